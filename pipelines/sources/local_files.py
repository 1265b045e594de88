"""Finding input files on this machine."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

from pipelines.errors import InputError
from pipelines.sources.input_files import KNOWN, Found, format_of, has_glob_signs, is_shown


def find_local(given: str) -> list[Found]:
    """The files that a path or glob stands for.

    Raises:
        InputError: There are none, or it is no path.
        OSError: A folder cannot be listed.
    """
    if not given.strip():
        raise InputError("an input is empty; give a file, a folder or a glob")
    try:
        given.encode()
        path = Path(os.path.abspath(Path(given).expanduser()))  # noqa: PTH100 also without "..", so that a file has one name
    except (UnicodeEncodeError, RuntimeError) as error:
        raise InputError(f"{given!r}: not a path that can be used ({error}); rename it") from None
    if path.is_dir():
        files = _below(path)
        if not files:
            raise InputError(f'{given}: no file in this folder ends in {KNOWN} (hidden names and names that start with "_" are not read)')
        return [_found(file, path) for file in files]
    if path.is_file():
        return [_found(path, path.parent)]
    if path.exists():
        raise InputError(f"{given}: no regular file (such as a pipe); write what it gives to a file")
    if not has_glob_signs(given):
        raise InputError(f"{given}: not found; check the path (it is taken from {Path.cwd()})")
    root = Path(*takewhile(lambda part: not has_glob_signs(part), path.parts))
    files = [file for match in _matches(path, root) for file in (_below(match) if match.is_dir() else [match] if match.is_file() else [])]
    if not files:
        raise InputError(f"{given}: no file matches; check the pattern (it is taken from {Path.cwd()})")
    return [_found(file, root) for file in files]


def _matches(pattern: Path, root: Path) -> Iterator[Path]:
    literal = set(pattern.parts)
    for match in sorted(map(Path, glob.glob(str(pattern), recursive=True))):  # noqa: PTH207
        if all(is_shown(part) or part in literal for part in match.relative_to(root).parts):
            yield match


def _below(folder: Path) -> list[Path]:
    seen = {os.path.realpath(folder)}  # a link may lead back up

    def is_new(root: str, name: str) -> bool:
        known = len(seen)
        seen.add(os.path.realpath(Path(root, name)))
        return len(seen) > known

    def files() -> Iterator[Path]:
        for root, folders, names in os.walk(folder, onerror=_raise, followlinks=True):
            folders[:] = [name for name in sorted(folders) if is_shown(name) and is_new(root, name)]
            shown = (Path(root, name) for name in names if is_shown(name) and format_of(name)[0] is not None)
            yield from (path for path in shown if path.is_file())

    return sorted(files())


def _raise(error: OSError) -> None:
    raise error


def _found(path: Path, root: Path) -> Found:
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise InputError(f"{str(path)!r}: its name is not UTF-8; rename it") from None
    return Found(str(path), path.relative_to(root).as_posix())
