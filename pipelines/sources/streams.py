"""Text files as streams of bytes, whatever they lie in and however they are compressed."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

import pyarrow as pa

from pipelines.errors import InputError, first_line
from pipelines.sources.inputs import Compression
from pipelines.storage import is_remote, located, open_input

_BLOCK_BYTES = 2**20
_REMOTE_BLOCK_BYTES = 8 * 2**20
_BOM = b"\xef\xbb\xbf"
_OTHER_BOMS = (b"\xff\xfe", b"\xfe\xff")


@contextmanager
def open_text(path: str, compression: Compression | None, start: int = 0) -> Iterator[BinaryIO]:
    """Opens a file to be read from a byte of its (decompressed) text, for the duration of a block.

    Raises:
        InputError: It cannot be opened or read any further, in the block too: it is gone, cut off, or not compressed as its name says.
    """
    try:
        with _open(path, compression) as file:
            if compression is None:
                file.seek(start)
            else:
                _skip(file, start)
            yield file
    except (OSError, pa.ArrowException) as error:
        what = "cannot be read" if compression is None else f"cannot be read as {compression}"
        raise InputError(f"{path}: {what}: {getattr(error, 'strerror', None) or first_line(error)}") from error


def skip_bom(path: str, file: BinaryIO) -> int:
    """Passes over the UTF-8 byte-order mark of a file that stands at its start; returns where it stands then.

    Raises:
        InputError: It begins with the mark of another encoding.
    """
    head = _peek(file)
    if head.startswith(_OTHER_BOMS):
        raise InputError(f"{path}: is UTF-16 or UTF-32 text; convert the file to UTF-8")
    return len(file.read(len(_BOM))) if head.startswith(_BOM) else 0


def _peek(file: Any) -> bytes:
    head: bytes = file.peek(len(_BOM))
    return head


def _open(path: str, compression: Compression | None) -> BinaryIO:
    if compression is None:
        return open_input(path)
    if is_remote(path):
        filesystem, key = located(path)
        source = filesystem.open_input_stream(key, compression=None, buffer_size=_REMOTE_BLOCK_BYTES)
    else:
        source = pa.OSFile(path, "rb")
    return io.BufferedReader(pa.CompressedInputStream(source, compression), _BLOCK_BYTES)


def _skip(file: BinaryIO, count: int) -> None:
    while count > 0 and (block := file.read(min(count, _BLOCK_BYTES))):
        count -= len(block)
