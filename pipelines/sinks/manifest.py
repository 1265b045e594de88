"""The manifest of an output folder: what its parts were made of, so that a run goes on only where it stopped itself."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from fcntl import LOCK_EX, LOCK_NB, flock
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from pipelines.errors import InputError
from pipelines.sinks.parts import UNFINISHED, atomic_path
from pipelines.sources.inputs import InputFile

MANIFEST_NAME = "_laya_manifest.json"
LOCK_NAME = "_laya_lock"
FORMAT_VERSION = 1
"""Version of the output's format; part files of different versions are never mixed."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """What an output folder is made of.

    Attributes:
        fingerprint: See `fingerprint`.
        fragments: How many fragments the input is cut into.
        rows: How many records it holds.
        inputs: Its files.
    """

    fingerprint: str
    fragments: int
    rows: int
    inputs: tuple[InputFile, ...]


def fingerprint(
    files: Sequence[InputFile],
    questions: Mapping[Any, Any],
    model: str,
    state_columns: Sequence[str],
    rows_per_fragment: int,
    settings: Mapping[str, Any] | None = None,
) -> str:
    """A hash of all that decides what the output holds.

    Args:
        files: The input; paths, sizes and times of change count.
        questions: The questions as they were given; their order and that of their options counts.
        model: Which checkpoint answers, or how it is chosen.
        state_columns: What the questions are about.
        rows_per_fragment: Where the input is cut.
        settings: Anything else that the answers depend on.
    """
    facts = {
        "version": FORMAT_VERSION,
        "inputs": [asdict(file) for file in files],
        "questions": questions,
        "model": model,
        "state_columns": list(state_columns),
        "rows_per_fragment": rows_per_fragment,
        "settings": settings or {},
    }
    return sha256(json.dumps(_canonical(facts), default=repr).encode()).hexdigest()


def write_manifest(folder: str | Path, manifest: Manifest) -> None:
    """Writes the manifest of an output folder, which is made if it is not there.

    Raises:
        InputError: The folder cannot be written to.
    """
    content = {
        "version": FORMAT_VERSION,
        "fingerprint": manifest.fingerprint,
        "fragments": {"count": manifest.fragments, "rows": manifest.rows},
        "inputs": [asdict(file) for file in manifest.inputs],
    }
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        with atomic_path(Path(folder) / MANIFEST_NAME) as path:
            path.write_text(json.dumps(content, indent=1), encoding="utf-8")
    except OSError as error:
        raise _not_writable(folder, error) from error


def read_manifest(folder: str | Path) -> Manifest:
    """Reads the manifest of an output folder.

    Raises:
        InputError: It has none, or one of another version.
    """
    path = Path(folder) / MANIFEST_NAME
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["version"] != FORMAT_VERSION:
            raise InputError(f"{path}: format version {content['version']}, not {FORMAT_VERSION}; choose a new --output")
        inputs = tuple(InputFile(**file) for file in content["inputs"])
        return Manifest(content["fingerprint"], content["fragments"]["count"], content["fragments"]["rows"], inputs)
    except (OSError, json.JSONDecodeError, KeyError, TypeError) as error:
        raise InputError(f"{path}: not a manifest that can be read ({error}); choose a new --output") from error


def check_output_folder(folder: str | Path, fingerprint: str) -> Literal["fresh", "resume"]:
    """Whether a run starts anew in a folder (it is new or empty) or goes on there (the same run stopped there).

    Raises:
        InputError: The folder holds something else, or the output of another run.
    """
    path = Path(folder)
    try:
        names = sorted(entry.name for entry in path.iterdir() if not entry.name.startswith((UNFINISHED, LOCK_NAME)))
    except FileNotFoundError:
        return "fresh"
    except OSError as error:
        raise InputError(f"{folder}: cannot be an output folder: {error.strerror or error}; choose another --output") from error
    if not names:
        return "fresh"
    if MANIFEST_NAME not in names:
        raise InputError(f"{folder}: holds something that is no output of this program ({names[0]}); choose a new --output")
    if read_manifest(path).fingerprint != fingerprint:
        raise InputError(
            f"{folder}: holds the output of another job (input files, questions, model, labels or settings differ); "
            "choose a new --output, or delete that folder"
        )
    return "resume"


@contextmanager
def locked(folder: str | Path) -> Iterator[None]:
    """Keeps other runs out of an output folder for a block; the lock goes with the process, however that ends.

    The folder is made if it is not there.

    Raises:
        InputError: Another run holds it, or it cannot be written to.
    """
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        file = (Path(folder) / LOCK_NAME).open("ab")
    except OSError as error:
        raise _not_writable(folder, error) from error
    with file:
        try:
            flock(file, LOCK_EX | LOCK_NB)
        except BlockingIOError:
            raise InputError(f"{folder}: another run writes to it now; wait for that, or choose another --output") from None
        yield


def _not_writable(folder: str | Path, error: OSError) -> InputError:
    return InputError(f"{folder}: cannot be written to: {error.strerror or error}; choose another --output")


def _canonical(value: Any) -> Any:
    """Tells apart what JSON would write alike: the keys 1 and "1", true and "true"."""
    if isinstance(value, Mapping):
        return {"mapping": [[_canonical(key), _canonical(part)] for key, part in value.items()]}
    if isinstance(value, list | tuple):
        return [_canonical(part) for part in value]
    return value
