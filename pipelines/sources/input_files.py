"""What a file of the input is: its format by its name, its facts, and what counts as data."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from pyarrow import fs

from pipelines.errors import InputError
from pipelines.storage import is_remote, located, name_of

Format = Literal["jsonl", "csv", "text", "parquet"]
Compression = Literal["gzip", "zstd"]
Partitions = tuple[tuple[str, str | None], ...]

FORMATS: Mapping[str, Format] = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet", ".txt": "text"}
"""File name extension to format."""
COMPRESSIONS: Mapping[str, Compression] = {".gz": "gzip", ".zst": "zstd"}
"""Extension behind that of a text format to how the file is compressed."""

KNOWN = f"{', '.join(FORMATS)}, all but .parquet also with {' or '.join(COMPRESSIONS)} behind it"
"""The extensions, for messages."""

_REAL_SIGNS = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True)
class InputFile:
    """One file to read.

    Attributes:
        path: Absolute path, or URI.
        format: What its extension says.
        size: Bytes.
        mtime_ns: When it was last changed.
        compression: How it is compressed, if it is.
        partitions: Columns that the names of its folders give, ``key=value``, below the folder or glob that was given; text, None where the
            folder stands for null.
        name: What messages call it: its path below the folder or glob that was given.
    """

    path: str
    format: Format
    size: int
    mtime_ns: int
    compression: Compression | None = None
    partitions: Partitions = ()
    name: str = ""

    def __post_init__(self) -> None:
        # JSON has no tuples.
        object.__setattr__(self, "partitions", tuple((key, value) for key, value in self.partitions))
        object.__setattr__(self, "name", self.name or name_of(self.path))


class Found(NamedTuple):
    """A file that an input stands for.

    Attributes:
        path: Its path or URI.
        name: Its path below the folder or glob that was given.
        facts: Size and time of change, where they are known without asking for them.
    """

    path: str
    name: str
    facts: tuple[int, int] | None = None


def facts_of(path: str) -> tuple[int, int]:
    """Size and time of change of a file.

    Raises:
        OSError: It is not there or cannot be reached.
    """
    if not is_remote(path):
        facts = Path(path).stat()
        return facts.st_size, facts.st_mtime_ns
    filesystem, key = located(path)
    info = filesystem.get_file_info(key)
    if info.type is not fs.FileType.File:
        raise FileNotFoundError(path)
    return remote_facts(info)


def remote_facts(info: fs.FileInfo) -> tuple[int, int]:
    """Size and time of change, of what a listing says of a file."""
    return info.size or 0, info.mtime_ns or 0


def format_of(name: str) -> tuple[Format | None, Compression | None]:
    """Format and compression that a file's name stands for; no format where the extension is unknown."""
    parts = Path(name.lower())
    compression = COMPRESSIONS.get(parts.suffix)
    file_format = FORMATS.get(Path(parts.stem).suffix if compression else parts.suffix)
    return (None, None) if compression and file_format == "parquet" else (file_format, compression)


def is_shown(name: str) -> bool:
    """Whether a file or folder is data by its name."""
    return not name.startswith((".", "_"))


def has_glob_signs(text: str) -> bool:
    """Whether a name is a pattern."""
    return _REAL_SIGNS.search(text) is not None


def check_distinct(path: str, names: tuple[str, ...]) -> None:
    """Checks that every column of a file has a name of its own.

    Raises:
        InputError: Two have the same.
    """
    known = set()
    for name in names:
        if name in known:
            raise InputError(f"{path}: two columns are named `{name}`; rename one of them")
        known.add(name)
