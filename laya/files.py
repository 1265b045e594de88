"""Reading and writing the small files of a checkpoint, with errors that name them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4


class CheckpointError(ValueError):
    """A checkpoint cannot be found, or its files are not what the format says."""


def read_object(path: Path) -> dict[str, Any]:
    """Reads a file that holds one JSON object.

    Raises:
        CheckpointError: It cannot be read, or holds something else.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise CheckpointError(f"{path} is not valid JSON: {error}") from None
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} must hold a JSON object, not {type(content).__name__}")
    return content


def write_object(path: Path, content: Mapping[str, Any]) -> None:
    """Writes a file that holds one JSON object. Whoever reads it meanwhile finds the old content or the new, never a part.

    Raises:
        OSError: It cannot be written.
    """
    beside = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        beside.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error
    finally:
        beside.unlink(missing_ok=True)
