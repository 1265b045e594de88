"""Text files as streams of bytes, whatever they lie in and however they are compressed."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any, BinaryIO

import pyarrow as pa

from pipelines.errors import InputError, first_line
from pipelines.sources.input_files import Compression, facts_of
from pipelines.storage import is_remote, located, open_input

_BLOCK_BYTES = 2**20
_REMOTE_BLOCK_BYTES = 8 * 2**20
_BOM = b"\xef\xbb\xbf"
_OTHER_BOMS = (b"\xff\xfe", b"\xfe\xff")


@contextmanager
def open_text(path: str, compression: Compression | None, start: int = 0) -> Iterator[BinaryIO]:
    """Opens a file to be read from a byte of its (decompressed) text, for the duration of a block.

    A compressed file can only be read from its start. Who reads one piece of it after the other goes on where the last one ended.

    Raises:
        InputError: It cannot be opened or read any further, in the block too: it is gone, cut off, or not compressed as its name says.
    """
    try:
        if compression is None:
            with open_input(path) as file:
                file.seek(start)
                yield file
        else:
            yield from _decompressed(path, compression, start)
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


class _Decompressed(io.RawIOBase):
    """The text of a compressed file; knows how far it got."""

    def __init__(self, path: str, compression: Compression) -> None:
        if is_remote(path):
            filesystem, key = located(path)
            source = filesystem.open_input_stream(key, compression=None, buffer_size=_REMOTE_BLOCK_BYTES)
        else:
            source = pa.OSFile(path, "rb")
        self._stream = pa.CompressedInputStream(source, compression)
        self._position = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        block = self._stream.read(len(buffer))
        buffer[: len(block)] = block
        self._position += len(block)
        return len(block)

    def tell(self) -> int:
        return self._position

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
        super().close()


class _Left:
    """Where the last reader of a compressed file has left it, one a process."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._file: BinaryIO | None = None
        self._key: Any = None

    def take(self, key: Any, start: int) -> BinaryIO | None:
        """The file, if it is this one and stands before the byte that is wanted."""
        with self._lock:
            if self._file is None or self._key != key or self._file.tell() > start:
                return None
            file, self._file = self._file, None
            return file

    def put(self, key: Any, file: BinaryIO) -> None:
        """Leaves a file."""
        with self._lock:
            last, self._file, self._key = self._file, file, key
        if last is not None:
            last.close()


_left = _Left()


def _decompressed(path: str, compression: Compression, start: int) -> Iterator[BinaryIO]:
    key = (path, facts_of(path))
    file = _left.take(key, start) or io.BufferedReader(_Decompressed(path, compression), _BLOCK_BYTES)
    try:
        missing = start - file.tell()
        while missing > 0 and (block := file.read(min(missing, _BLOCK_BYTES))):
            missing -= len(block)
        yield file
        has_more = bool(_peek(file))
    except BaseException:
        file.close()
        raise
    if has_more:
        _left.put(key, file)
    else:
        file.close()


def _peek(file: Any) -> bytes:
    head: bytes = file.peek(len(_BOM))
    return head
