"""Which files are read: files, folders and globs of this machine and of object stores, and the error that names what is wrong with one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from pipelines.errors import InputError, first_line
from pipelines.sources.input_files import COMPRESSIONS, KNOWN, Found, InputFile, facts_of, format_of
from pipelines.sources.local_files import find_local
from pipelines.sources.partitions import partitions_of
from pipelines.sources.remote_files import find_remote
from pipelines.storage import is_remote, name_of


def find_inputs(inputs: Sequence[str]) -> list[InputFile]:
    """Finds the files to read.

    Args:
        inputs: Files, folders and globs (``**`` too), of this machine or of an object store (s3://, gs://). Of a folder every file below it
            with a known extension is read, in the order of its path; what a glob matches must have a known extension. Hidden names and
            names that start with "_" are left out of both, unless the pattern itself has them.

    Returns:
        The files in the order given, each once.

    Raises:
        InputError: Nothing is given, found or matched, a folder holds no data, an extension is unknown, or a file cannot be read.
    """
    if not inputs:
        raise InputError(f"no input: give a file, a folder or a glob ({KNOWN})")
    found: dict[str, InputFile] = {}
    for given in inputs:
        try:
            for one in find_remote(given) if is_remote(given) else find_local(given):
                if one.path not in found:
                    found[one.path] = _input_file(one)
        except (OSError, pa.ArrowException) as error:
            filename, reason = getattr(error, "filename", None), getattr(error, "strerror", None)
            raise InputError(f"{filename or given}: cannot be read: {reason or first_line(error)}") from error
    return list(found.values())


def check_unchanged(file: InputFile) -> None:
    """Checks that a file is the one that was found.

    Raises:
        InputError: It has been changed or deleted since, or cannot be reached.
    """
    try:
        facts = facts_of(file.path)
    except FileNotFoundError:
        raise InputError(f"{file.path}: is gone since the job was planned; start again with a new output folder") from None
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{file.path}: cannot be read: {first_line(error)}") from error
    if facts != (file.size, file.mtime_ns):
        raise InputError(f"{file.path}: changed since the job was planned; start again with a new output folder")


def _input_file(found: Found) -> InputFile:
    file_format, compression = format_of(name_of(found.path))
    if file_format is None:
        raise InputError(f"{found.path}: unknown extension {_extension(found.path)!r}; known are {KNOWN}")
    if found.facts is None:
        with Path(found.path).open("rb") as file:
            facts = os.fstat(file.fileno())
        size, mtime_ns = facts.st_size, facts.st_mtime_ns
    else:
        size, mtime_ns = found.facts
    return InputFile(found.path, file_format, size, mtime_ns, compression, partitions_of(found), found.name)


def _extension(path: str) -> str:
    name = Path(name_of(path))
    return "".join(name.suffixes[-2:]) if name.suffix.lower() in COMPRESSIONS else name.suffix
