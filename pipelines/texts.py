"""Texts from a plain file or standard input, one a line."""

from __future__ import annotations

import sys
from pathlib import Path

from pipelines.errors import InputError


def read_texts(source: str) -> list[str]:
    """Reads one text a line. Lines end with a line feed, whatever else a text holds; blank ones are left out.

    Args:
        source: Path of a UTF-8 file, or "-" for standard input.

    Raises:
        InputError: The file cannot be read, or is not UTF-8.
    """
    try:
        content = sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
        text = content.decode("utf-8-sig")
    except OSError as error:
        raise InputError(f"{source}: cannot be read ({error.strerror or error})") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{source}: not valid UTF-8 at byte {error.start + 1}; convert the file to UTF-8") from None
    lines = (line.removesuffix("\r") for line in text.split("\n"))
    return [line for line in lines if line.strip()]
