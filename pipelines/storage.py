"""Files by their location: a path of this machine, or a URI of an object store (s3://bucket/key, gs://bucket/key)."""

from __future__ import annotations

import io
import os
import re
import shutil
from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO
from uuid import uuid4

import pyarrow as pa
from pyarrow import fs

from pipelines.errors import InputError, first_line

SCHEMES = ("s3", "gs", "gcs")
UNFINISHED = "unfinished-"
"""How the names of files begin that are being written."""

_URI = re.compile(r"([a-z][a-z0-9]*)://(.*?)(\?\w+=.*)?", re.DOTALL)
_BUFFER_BYTES = 2**20


def is_remote(location: str) -> bool:
    """Whether a location is in an object store."""
    return _URI.fullmatch(location) is not None


def located(location: str) -> tuple[Any, str]:
    """The pyarrow file system of an object store's location, and the path that the file system knows it by.

    Options follow a question mark, as pyarrow reads them: ``s3://bucket/key?region=eu-west-1&scheme=http``. What is not said there
    is taken from the environment (AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID, GOOGLE_APPLICATION_CREDENTIALS, ...).

    Raises:
        InputError: The scheme is unknown, or the store cannot be reached.
    """
    match = _URI.fullmatch(location)
    if match is None or match[1] not in SCHEMES:
        raise InputError(f"{location}: known are paths of this machine and {', '.join(f'{scheme}://' for scheme in SCHEMES)}")
    scheme, path, options = match[1], match[2], match[3] or ""
    bucket = path.partition("/")[0]
    if not bucket:
        raise InputError(f"{location}: names no bucket; write {scheme}://BUCKET/PATH")
    return _file_system(scheme, bucket, options), path.rstrip("/")


@lru_cache(maxsize=64)
def _file_system(scheme: str, bucket: str, options: str) -> Any:
    try:
        return fs.FileSystem.from_uri(f"{scheme}://{bucket}{options}")[0]
    except (OSError, ValueError, pa.ArrowException) as error:
        raise InputError(f"{scheme}://{bucket}: cannot be reached ({first_line(error)}); check its name and your credentials") from error


def absolute(location: str) -> str:
    """The same location for a process in another working directory."""
    return location if is_remote(location) else str(Path(location).absolute())


def join(folder: str, *names: str) -> str:
    """The location of something below a folder."""
    match = _URI.fullmatch(folder)
    if match is None:
        return str(Path(folder, *names))
    return "/".join([f"{match[1]}://{match[2].rstrip('/')}", *names]) + (match[3] or "")


def name_of(location: str) -> str:
    """The last part of a location, for messages and extensions."""
    match = _URI.fullmatch(location)
    return Path(location if match is None else match[2]).name


def open_input(location: str) -> BinaryIO:
    """Opens a file to be read, buffered and seekable.

    Raises:
        OSError: It is not there or cannot be read.
    """
    if not is_remote(location):
        return Path(location).open("rb")
    filesystem, path = located(location)
    return io.BufferedReader(filesystem.open_input_file(path), _BUFFER_BYTES)


def read_bytes(location: str) -> bytes:
    """The content of a file.

    Raises:
        FileNotFoundError: It is not there.
        OSError: It cannot be read.
    """
    with open_input(location) as file:
        return file.read()


def write_bytes(location: str, content: bytes) -> None:
    """Writes a file that is there as a whole or not at all; one that is there already is replaced.

    Raises:
        OSError: It cannot be written.
    """
    if is_remote(location):
        filesystem, path = located(location)
        with filesystem.open_output_stream(path, compression=None) as stream:
            stream.write(content)
        return
    target = Path(location)
    unfinished = target.with_name(f"{UNFINISHED}{uuid4().hex[:12]}-{target.name}")
    try:
        unfinished.write_bytes(content)
        _commit(unfinished, target)
    finally:
        unfinished.unlink(missing_ok=True)


def put_file(source: Path, location: str) -> None:
    """Moves a finished file of this machine to its location, where it appears as a whole; one that is there already is replaced.

    A path of this machine has to be on the same file system as the source. To an object store it is one upload, which shows nothing
    before it is complete.

    Raises:
        OSError: It cannot be written.
    """
    if not is_remote(location):
        _commit(source, Path(location))
        return
    filesystem, path = located(location)
    with source.open("rb") as file, filesystem.open_output_stream(path, compression=None) as stream:
        shutil.copyfileobj(file, stream, 8 * _BUFFER_BYTES)
    source.unlink()


def make_folder(location: str) -> None:
    """Makes a folder and those above it; an object store needs none.

    Raises:
        OSError: It cannot be made.
    """
    if not is_remote(location):
        Path(location).mkdir(parents=True, exist_ok=True)


def list_folder(location: str) -> dict[str, int]:
    """Name to size in bytes of everything directly in a folder (0 for a folder); empty where there is no such folder.

    Raises:
        NotADirectoryError: It is a file.
        OSError: It cannot be listed.
    """
    if is_remote(location):
        filesystem, path = located(location)
        found = filesystem.get_file_info(fs.FileSelector(path, allow_not_found=True))
        return {info.base_name: info.size or 0 for info in found}
    try:
        with os.scandir(location) as entries:
            return {entry.name: entry.stat().st_size if entry.is_file() else 0 for entry in entries}
    except FileNotFoundError:
        return {}


def delete(location: str) -> None:
    """Deletes a file, if it is there."""
    if is_remote(location):
        filesystem, path = located(location)
        if filesystem.get_file_info(path).type is fs.FileType.File:
            filesystem.delete_file(path)
        return
    Path(location).unlink(missing_ok=True)


def _commit(source: Path, target: Path) -> None:
    _sync(source)
    source.replace(target)
    _sync(target.parent)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def is_within(location: str, folder: str) -> bool:
    """Whether something is a folder or lies below it; links of this machine are followed."""
    parts, above = _parts(location), _parts(folder)
    return parts[: len(above)] == above


def reads(given: str, location: str) -> bool:
    """Whether a file at a location would be among those that a file, folder or glob stands for."""
    return is_remote(given) == is_remote(location) and _reaches(_parts(given), _parts(location))


def _parts(location: str) -> tuple[str, ...]:
    if is_remote(location):
        return tuple(location.partition("?")[0].rstrip("/").split("/"))
    return Path(os.path.realpath(os.path.expanduser(location))).parts  # noqa: PTH111 Path.expanduser refuses an unknown user


def _reaches(pattern: Sequence[str], parts: Sequence[str]) -> bool:
    """Whether a pattern matches a path, or a folder above it."""
    if not pattern:
        return True
    if not parts:
        return False
    if pattern[0] == "**":
        return _reaches(pattern[1:], parts) or _reaches(pattern, parts[1:])
    return (pattern[0] == parts[0] or fnmatchcase(parts[0], pattern[0])) and _reaches(pattern[1:], parts[1:])
