"""What a scoring job is told to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

AUTO = "auto"
"""As a model: choose a checkpoint for each row by its language."""

DEFAULT_MODEL = "mini"
ROWS_PER_FRAGMENT = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreConfig:
    """A scoring job.

    Attributes:
        inputs: Files, folders and globs of JSONL, CSV and Parquet.
        questions: Path of a question file, or the name of one that ships with the package.
        output: Folder of the part files.
        model: Name of a checkpoint, a folder, a hub id, or "auto".
        state: Columns that the questions are about; None finds the usual one.
        agents: How many agents score at a time.
        labels: Question id to the input column that holds its right answer.
        rows_per_fragment: Rows that are scored, committed and (after a fault) repeated as one.
        address: A running Ray cluster to join; None starts an embedded Ray unless RAY_ADDRESS names one.
    """

    inputs: tuple[str, ...]
    questions: str
    output: str
    model: str = DEFAULT_MODEL
    state: tuple[str, ...] | None = None
    agents: int = 1
    labels: Mapping[str, str] = field(default_factory=dict)
    rows_per_fragment: int = ROWS_PER_FRAGMENT
    address: str | None = None
