"""Which files are read: files, folders and globs, and the error that names what is wrong with one."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

from pipelines.errors import InputError

Format = Literal["jsonl", "csv", "parquet"]

FORMATS: Mapping[str, Format] = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
"""File name extension to format."""

_KNOWN = ", ".join(FORMATS)
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class InputFile:
    """One file to read.

    Attributes:
        path: Absolute path.
        format: What its extension says.
        size: Bytes.
        mtime_ns: When it was last changed.
    """

    path: str
    format: Format
    size: int
    mtime_ns: int


def find_inputs(inputs: Sequence[str]) -> list[InputFile]:
    """Finds the files to read.

    Args:
        inputs: Files, folders and globs (``**`` too). Of a folder, every file below it with a known extension is read, in the order of
            its path; what a glob matches must have a known extension. Hidden names and names that start with "_" are left out of both.

    Returns:
        The files in the order given, each once.

    Raises:
        InputError: Nothing is given, found or matched, a folder holds no data, an extension is unknown, or a file cannot be read.
    """
    if not inputs:
        raise InputError(f"no input: give a file, a folder or a glob ({_KNOWN})")
    found: dict[str, InputFile] = {}
    for given in inputs:
        try:
            for path in _expand(given):
                file = _open(path)
                found.setdefault(file.path, file)
        except OSError as error:
            raise InputError(f"{error.filename or given}: cannot be read: {error.strerror or error}") from error
    return list(found.values())


def skip_bom(file: BinaryIO) -> int:
    """Moves a file that stands at its start past a UTF-8 byte-order mark; returns where it stands then."""
    if file.read(len(_BOM)) != _BOM:
        file.seek(0)
    return file.tell()


def check_distinct(path: str, names: tuple[str, ...]) -> None:
    """Checks that every column of a file has a name of its own.

    Raises:
        InputError: Two have the same.
    """
    for index, name in enumerate(names):
        if name in names[:index]:
            raise InputError(f"{path}: two columns are named `{name}`; rename one of them")


def _expand(given: str) -> list[Path]:
    if not given.strip():
        raise InputError("an input is empty; give a file, a folder or a glob")
    try:
        given.encode()
        path = Path(given).expanduser()
    except (UnicodeEncodeError, RuntimeError) as error:
        raise InputError(f"{given!r}: not a path that can be used ({error}); rename it") from None
    if path.is_dir():
        return _walk(path)
    if path.exists():
        return [path]
    if not any(sign in given for sign in "*?["):
        raise InputError(f"{given}: not found; check the path (it is taken from {Path.cwd()})")
    matched = [Path(name) for name in sorted(glob.glob(str(path), recursive=True)) if _is_shown(Path(name).name)]  # noqa: PTH207
    files = [file for match in matched for file in ([match] if match.is_file() else _below(match))]
    if not files:
        raise InputError(f"{given}: no file matches; check the pattern (it is taken from {Path.cwd()})")
    return files


def _walk(folder: Path) -> list[Path]:
    files = _below(folder)
    if not files:
        raise InputError(f'{folder}: no file in this folder ends in {_KNOWN} (hidden names and names that start with "_" are not read)')
    return files


def _below(folder: Path) -> list[Path]:
    def files() -> Iterator[Path]:
        for root, folders, names in os.walk(folder, onerror=_raise):
            folders[:] = filter(_is_shown, folders)
            yield from (Path(root, name) for name in names if _is_shown(name) and Path(name).suffix.lower() in FORMATS)

    return sorted(files())


def _raise(error: OSError) -> None:
    raise error


def _is_shown(name: str) -> bool:
    return not name.startswith((".", "_"))


def _open(path: Path) -> InputFile:
    file_format = FORMATS.get(path.suffix.lower())
    if file_format is None:
        raise InputError(f"{path}: unknown extension {path.suffix!r}; known are {_KNOWN}")
    with path.open("rb") as file:
        facts = os.fstat(file.fileno())
    return InputFile(str(path.absolute()), file_format, facts.st_size, facts.st_mtime_ns)
