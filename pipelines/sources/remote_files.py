"""Finding input files in an object store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import takewhile

from pyarrow import fs

from pipelines.errors import InputError
from pipelines.sources.input_files import KNOWN, Found, format_of, has_glob_signs, is_shown, remote_facts
from pipelines.storage import located


def find_remote(given: str) -> list[Found]:
    """The files that a URI or a glob of them stands for. Sizes and times of change come from the listing.

    Raises:
        InputError: There are none, or the store is unknown.
        OSError: The store cannot be listed.
    """
    filesystem, path = located(given)
    scheme = given[: given.index("://") + 3]
    options = given[len(scheme) + len(path) :].lstrip("/")

    def found(info: fs.FileInfo, root: str) -> Found:
        return Found(f"{scheme}{info.path}{options}", info.path[len(root) :].lstrip("/"), remote_facts(info))

    info = filesystem.get_file_info(path)
    if info.type is fs.FileType.File:
        return [found(info, path.rpartition("/")[0])]
    if info.type is fs.FileType.Directory:
        files = [one for one in _files(filesystem, path) if _is_data(one.path[len(path) + 1 :].split("/"))]
        if not files:
            raise InputError(f'{given}: no file in this folder ends in {KNOWN} (hidden names and names that start with "_" are not read)')
        return [found(one, path) for one in files]
    if not has_glob_signs(path):
        raise InputError(f"{given}: not found; check the bucket, the key and your credentials")
    parts = path.split("/")
    literal = list(takewhile(lambda part: not has_glob_signs(part), parts))
    if not literal:
        raise InputError(f"{given}: the name of a bucket cannot be a pattern; list the buckets one by one")
    root = "/".join(literal)
    pattern = parts[len(literal) :]
    files = [one for one in _files(filesystem, root) if _matches(one.path[len(root) + 1 :].split("/"), pattern)]
    if not files:
        raise InputError(f"{given}: no file matches; check the pattern and your credentials")
    return [found(one, root) for one in files]


def _files(filesystem: fs.FileSystem, folder: str) -> Iterator[fs.FileInfo]:
    listed = filesystem.get_file_info(fs.FileSelector(folder, allow_not_found=True, recursive=True))
    # As paths sort, a folder's files beside those of its sub-folders, so that the same files have the same order wherever they are.
    yield from sorted((one for one in listed if one.type is fs.FileType.File), key=lambda one: one.path.split("/"))


def _is_data(parts: Sequence[str]) -> bool:
    return all(map(is_shown, parts)) and format_of(parts[-1])[0] is not None


def _matches(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether a file is what a pattern stands for, or data in a folder that is."""
    return any(
        _fits(parts[:depth], pattern)
        and all(is_shown(part) or part in pattern for part in parts[:depth])
        and (depth == len(parts) or _is_data(parts[depth:]))
        for depth in range(1, len(parts) + 1)
    )


def _fits(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    """A glob's signs stand for characters of one name; ``**`` stands for any number of folders."""
    if not pattern:
        return not parts
    if pattern[0] == "**" and _fits(parts, pattern[1:]):
        return True
    if not parts or not (pattern[0] == "**" or fnmatchcase(parts[0], pattern[0])):
        return False
    return _fits(parts[1:], pattern if pattern[0] == "**" else pattern[1:])
