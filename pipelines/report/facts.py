"""What a report tells of: a job's manifest, the notes of its parts, and those of its runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipelines.sinks import Manifest, committed_notes, read_manifest, read_runs
from pipelines.storage import name_of
from pipelines.tally import Tally


@dataclass(frozen=True, slots=True)
class Span:
    """When a part was made.

    Attributes:
        start: In seconds since 1970.
        end: The same.
        rows: How many rows it holds.
    """

    start: float
    end: float
    rows: int


@dataclass(frozen=True, slots=True)
class Job:
    """A job, finished or not.

    Attributes:
        name: Of its output folder.
        folder: Its location.
        manifest: What it was told to do.
        spans: One a committed part, by start.
        tally: Counts over those parts.
        runs: What its runs that came to an end have noted.
        bytes_written: Size of the parts.
    """

    name: str
    folder: str
    manifest: Manifest
    spans: Sequence[Span]
    tally: Tally
    runs: Sequence[Mapping[str, Any]]
    bytes_written: int

    @property
    def started(self) -> float:
        """When the first run began, in seconds since 1970; one that was stopped is known by the manifest that it has written."""
        return min([self.manifest.created_at, *(float(run["started_at"]) for run in self.runs)])

    @property
    def complete(self) -> bool:
        """Whether every fragment has its part."""
        return len(self.spans) >= self.manifest.fragments


def read_job(folder: str) -> Job:
    """Reads what an output folder knows of its job.

    Raises:
        InputError: It holds no output of a job.
    """
    manifest = read_manifest(folder)
    parts = list(committed_notes(folder, manifest.config.get("format", "parquet")).values())
    spans = [Span(part["started_at"], part["finished_at"], part["rows"]) for part in parts]
    return Job(
        name=name_of(folder.partition("?")[0].rstrip("/")) or folder,
        folder=folder,
        manifest=manifest,
        spans=sorted(spans, key=lambda span: span.start),
        tally=Tally.total(Tally.from_dict(part["tally"]) for part in parts),
        runs=read_runs(folder),
        bytes_written=sum(part["size"] for part in parts),
    )
