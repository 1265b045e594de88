"""What a scoring job is told to do: the fields of its configuration file, which the flags of `laya score` override."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from pipelines.errors import InputError
from pipelines.yaml_files import load_yaml

AUTO = "auto"
"""As a model: choose a checkpoint for each row by its language."""

DEFAULT_MODEL = "mini"
ROWS_PER_FRAGMENT = 2000


def _listed(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


Names = Annotated[tuple[str, ...], BeforeValidator(_listed)]
Share = Annotated[float, Field(ge=0, le=1, strict=True)]
"""A probability."""


class AskConfig(BaseModel):
    """What is asked of every row, and of whom."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    questions: str | dict[str | int, Any] | None = Field(
        default=None, description="Question file for all rows (YAML or JSON), the name of a bundled one, or the questions themselves."
    )
    questions_column: str | None = Field(default=None, description="Column that holds each row's own questions, as JSON text or object.")

    state: Names | None = Field(
        default=None, description="Column that the questions are about; several make a dict. None: state, text, body, message or content."
    )
    state_json: bool = Field(default=False, description="Whether the state column holds JSON text, to be read as a dict or list.")

    model: str = Field(default=DEFAULT_MODEL, description="Checkpoint: a name, a folder, a hub id, or 'auto' to choose by language.")
    model_column: str | None = Field(default=None, description="Column that names a row's checkpoint; where it is empty, `model` holds.")
    lang: str | None = Field(default=None, description="Language of all rows, such as en, de or pt-BR.")
    lang_column: str | None = Field(default=None, description="Column with a row's language; where it is empty, `lang` holds.")
    max_len: int | None = Field(default=None, ge=1, description="Longest sequence in tokens; None takes the checkpoint's.")
    max_len_column: str | None = Field(default=None, description="Column with a row's max_len; where it is empty, `max_len` holds.")
    head_max_len: int | None = Field(default=None, ge=1, description="Tokens for instructions and options; None takes the checkpoint's.")

    long: Literal["truncate", "scan"] = Field(
        default="truncate",
        description="Texts longer than the model reads: answer from their start, or read all of them window by window.",
    )
    window: int | None = Field(
        default=None, ge=1, description="Tokens of a window of `long: scan`, also of texts that would fit; None takes all the room."
    )
    stride: int | None = Field(default=None, ge=1, description="Tokens from one window's start to the next; None is half a window.")

    hooks: Names = Field(
        default=(), description="Hooks, package.module:Object: those of calls run for every row, those of loads in the router."
    )
    min_confidence: Share | dict[str, Share] | None = Field(
        default=None, description="Least confidence of an answer, for all questions or by question id; `<id>_abstain` marks those below."
    )

    @model_validator(mode="after")
    def _asks_one_way(self) -> Self:
        if (self.questions is None) == (self.questions_column is None):
            raise ValueError("give either questions (the same for all rows) or questions_column (each row's own)")
        if self.long != "scan" and (self.window is not None or self.stride is not None):
            raise ValueError("window and stride are for long: scan")
        return self


class ScoreConfig(AskConfig):
    """A scoring job."""

    inputs: Names = Field(description="Files, folders and globs of Parquet, JSONL, CSV and text; s3:// and gs:// too.")
    output: str = Field(description="Folder of the part files. The same job started again goes on there.")
    format: Literal["parquet", "jsonl"] = Field(default="parquet", description="Format of the part files.")
    columns: Names | None = Field(default=None, description="Input columns that the output keeps; None keeps all.")

    calibration: str | None = Field(default=None, description="File of temperatures that laya.fit_temperatures has fitted to your texts.")
    agent_hooks: Names = Field(default=(), description="Hooks, package.module:Object, that run in every agent, round its batches.")

    abstain_output: str | None = Field(
        default=None, description="Folder for copies of the rows with an answer below min_confidence, for review."
    )
    labels: dict[str, str] = Field(default_factory=dict, description="Question id to the column of its right answers.")
    on_error: Literal["row", "raise"] = Field(default="row", description="A row that cannot be answered: an error row, or the job stops.")

    agents: int = Field(default=1, ge=1, description="Copies of the model that score at a time.")
    agent_cpus: float | None = Field(default=None, gt=0, description="CPUs of each and of what feeds it; None shares what is free.")
    rows_per_fragment: int = Field(
        default=ROWS_PER_FRAGMENT, ge=1, description="Rows that are scored, committed and (after a fault) repeated as one."
    )
    address: str | None = Field(default=None, description="Ray cluster to join; None joins what RAY_ADDRESS names, or starts its own.")
    report: bool = Field(default=True, description="Whether to write OUTPUT.report.html at the end.")

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        for name in ("output", "abstain_output"):
            value = getattr(self, name)
            if value is not None and not value.strip():
                raise ValueError(f"{name} is empty; name a folder for the part files")
        if self.abstain_output is not None and self.min_confidence is None:
            raise ValueError("abstain_output needs min_confidence, which says what is to be reviewed")
        if self.window is not None and self.stride is not None and self.stride > self.window:
            raise ValueError(f"stride {self.stride} is wider than the window of {self.window}: nobody would read the tokens between")
        if self.questions_column is not None and self.labels:
            raise ValueError("labels need questions that all rows share: give questions instead of questions_column")
        return self


def load_config(path: str | None, overrides: Mapping[str, Any]) -> ScoreConfig:
    """Reads a job's configuration file.

    Args:
        path: A YAML file; None for none.
        overrides: Fields that count instead of those of the file.

    Raises:
        InputError: The file cannot be read, a field is unknown, missing or wrong, or fields do not go together.
    """
    fields: dict[str, Any] = {} if path is None else _read(path)
    try:
        return ScoreConfig.model_validate({**fields, **overrides})
    except ValidationError as error:
        raise InputError(told(error, path)) from None


def _read(path: str) -> dict[str, Any]:
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"config {path} cannot be read: {error}") from None
    fields = load_yaml(text, f"config {path}")
    if not isinstance(fields, dict):
        raise InputError(f"config {path} must map field names to values; `laya score --help` lists the flags of the same names")
    return fields


def told(error: ValidationError, path: str | None = None) -> str:
    """The first thing that is wrong, in one line."""
    first = error.errors(include_url=False)[0]
    where = str(first["loc"][0]) if first["loc"] else ""
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        message = f"no such field; the fields are {', '.join(ScoreConfig.model_fields)}"
    if first["type"] == "missing":
        message = f"missing; give --{where.replace('_', '-')}" if path is None else "missing"
    source = "" if path is None else f"config {path}: "
    return f"{source}{where}: {message}" if where else f"{source}{message}"
