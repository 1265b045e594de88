"""The manifest of an output folder: what its parts were made of, so that a run goes on only where it stopped itself."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from typing import Any, Literal

from pipelines.errors import InputError
from pipelines.sinks.folder import CORNER, corner, not_writable
from pipelines.sources import InputFile
from pipelines.storage import join, list_folder, make_folder, read_bytes, write_bytes

FORMAT_VERSION = 3
"""Version of the output's format; part files of different versions are never mixed."""
HASHED = "sha256:"
"""What the hash of a fact begins with."""
_MANIFEST = "manifest.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What an output folder is made of.

    Attributes:
        facts: Name to text of all that decides what the output holds; of a long one its hash.
        config: What the job was told to do.
        questions: Question id (as text) to question; None where each row has its own.
        fragments: How many fragments the input is cut into.
        rows: How many records it holds.
        inputs: Its files: path, format, size in bytes.
        created_at: When the job was first started, in seconds since 1970.
    """

    facts: Mapping[str, str]
    config: Mapping[str, Any]
    questions: Mapping[str, Any] | None
    fragments: int
    rows: int
    inputs: Sequence[Mapping[str, Any]]
    created_at: float = field(default_factory=time.time)


def input_facts(files: Sequence[InputFile]) -> list[dict[str, Any]]:
    """What a manifest says about the input's files."""
    return [{"path": file.path, "format": file.format, "size": file.size} for file in files]


def fingerprint(facts: Mapping[str, str]) -> str:
    """One hash of all that decides what the output holds."""
    return sha256(json.dumps([FORMAT_VERSION, *sorted(facts.items())]).encode()).hexdigest()


def write_manifest(folder: str, manifest: Manifest) -> None:
    """Writes the manifest of an output folder, which is made if it is not there; one of the same job stays.

    Raises:
        InputError: The folder cannot be written to.
    """
    try:
        if _MANIFEST not in list_folder(corner(folder)):
            make_folder(corner(folder))
            content = {"version": FORMAT_VERSION, **asdict(manifest)}
            write_bytes(corner(folder, _MANIFEST), json.dumps(content, indent=1, ensure_ascii=False, default=str).encode())
    except OSError as error:
        raise not_writable(folder, error) from error


def read_manifest(folder: str) -> Manifest:
    """Reads the manifest of an output folder.

    Raises:
        InputError: It has none, or one of another version.
    """
    where = corner(folder, _MANIFEST)
    try:
        content = json.loads(read_bytes(where))
        version = content.pop("version")
        if version != FORMAT_VERSION:
            raise InputError(f"{where}: format version {version}, not {FORMAT_VERSION}; choose a new --output")
        return Manifest(**content)
    except FileNotFoundError:
        raise InputError(f"{folder}: holds no output of `laya score` ({CORNER}/{_MANIFEST} is not there)") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{where}: not a manifest that can be read ({error}); choose a new --output") from error


def check_output_folder(folder: str, facts: Mapping[str, str]) -> Literal["fresh", "resume"]:
    """Whether a run starts anew in a folder (it is new or empty) or goes on there (the same run stopped there).

    Raises:
        InputError: The folder holds something else, or the output of another run; the message says in what that differs.
    """
    try:
        names = sorted(name for name in list_folder(folder) if not name.startswith(CORNER))
        ours = list_folder(corner(folder))
    except OSError as error:
        raise InputError(f"{folder}: cannot be an output folder: {error.strerror or error}; choose another --output") from error
    if _MANIFEST not in ours:
        if not names:
            return "fresh"
        raise InputError(f"{folder}: holds something that is no output of this program ({names[0]}); choose a new --output")
    known = read_manifest(folder).facts
    differing = [name for name in {**known, **facts} if known.get(name) != facts.get(name)]
    if differing:
        told = "; ".join(_difference(name, known.get(name, "nothing"), facts.get(name, "nothing")) for name in differing)
        raise InputError(f"{folder}: holds the output of another job: {told}; choose a new --output, or delete that folder")
    return "resume"


def _difference(name: str, there: str, now: str) -> str:
    if there.startswith(HASHED) or now.startswith(HASHED):
        return f"{name}: not the same"
    return f"{name}: {there} there, {now} now"


def run_location(folder: str, started: float) -> str:
    """Where one run of a job writes down what it did."""
    return corner(folder, f"run-{started:.3f}.json")


def read_runs(folder: str) -> list[dict[str, Any]]:
    """What the runs of a job have written down, in order; one that was stopped has written nothing."""
    names = [name for name in list_folder(corner(folder)) if name.startswith("run-")]
    runs = [json.loads(read_bytes(join(folder, CORNER, name))) for name in names]
    return sorted(runs, key=lambda run: float(run["started_at"]))
