"""The two sides of the benchmark: a worker process each, in its own environment."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
from safetensors.numpy import load_file, save_file

_WORKER = Path(__file__).with_name("worker.py")
_POOLER = "encoder.pooler.dense"


class WorkerError(RuntimeError):
    """A worker could not start, ended early, or answered that a command failed."""


class Run(NamedTuple):
    """One timed call.

    Attributes:
        seconds: Wall clock of the call alone.
        results: What it returned.
    """

    seconds: float
    results: Any


class Side:
    """A worker process with one agent.

    Args:
        name: What tables call it.
        python: The interpreter whose `laya` it measures.
        options: Arguments of `predict_batch`, by keyword, beside states and questions.
        load_options: Arguments of `Agent`, by keyword, beside checkpoint and device.

    Raises:
        WorkerError: The interpreter cannot be started.
    """

    def __init__(
        self, name: str, python: str, options: Mapping[str, Any] | None = None, load_options: Mapping[str, Any] | None = None
    ) -> None:
        self.name = name
        self.about: dict[str, Any] = {}
        self._options = dict(options or {})
        self._load_options = dict(load_options or {})
        self._log = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115 it lives as long as the process
        try:
            self._process = subprocess.Popen(
                # -I: neither the current folder nor PYTHONPATH may put another `laya` before the environment's own.
                [python, "-I", str(_WORKER)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                encoding="utf-8",
            )
        except OSError as error:
            self._log.close()
            raise WorkerError(f"{name}: {python} cannot be started: {error.strerror}") from None

    def load(self, checkpoint: Path) -> None:
        """Loads a checkpoint folder; `about` holds the versions, the number of threads and the precision afterwards.

        Raises:
            WorkerError: The package refuses it, or there is no such package.
        """
        self.about = self._ask({"command": "load", "checkpoint": str(checkpoint), "options": self._load_options})

    def predict(self, states: Sequence[Any], questions: Mapping[str, Any]) -> Run:
        """Answers the questions about the states and times it.

        Raises:
            WorkerError: The call failed.
        """
        return self.call("predict_batch", states, questions, self._options)

    def call(self, method: str, given: Any, questions: Mapping[str, Any], options: Mapping[str, Any] | None = None) -> Run:
        """Times a call of the agent.

        Args:
            method: Its name.
            given: The state, or the states.
            questions: The questions.
            options: More arguments by keyword.

        Raises:
            WorkerError: The call failed.
        """
        command = {"command": "call", "method": method, "given": given, "questions": questions, "options": dict(options or {})}
        answer = self._ask(command)
        return Run(answer["seconds"], answer["result"])

    def _ask(self, command: Mapping[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(command) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise WorkerError(f"{self.name}: the worker ended early: {self._last_words()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise WorkerError(f"{self.name}: {answer['error']}")
        return answer

    def _last_words(self) -> str:
        self._log.seek(0)
        lines = self._log.read().strip().splitlines()
        return lines[-1] if lines else "it said nothing"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._process.terminate()
        self._process.communicate()
        self._log.close()


def load_or_pad(side: Side, checkpoint: Path, scratch: Path) -> bool:
    """Loads a checkpoint, giving the side a padded copy of it if it wants tensors that no answer depends on.

    A checkpoint may leave out the encoder's pooler, whose output the decision model never reads. The published package refuses
    such a file, so it gets a copy in which the pooler is there and all zeros; its answers are the same for any pooler.

    Args:
        side: The side.
        checkpoint: The checkpoint's folder.
        scratch: A folder for the copy, which is not there yet.

    Returns:
        Whether a padded copy was needed.

    Raises:
        WorkerError: The side refuses the checkpoint, and no pooler is missing or the copy is refused too.
    """
    try:
        side.load(checkpoint)
    except WorkerError:
        if not pad_pooler(checkpoint, scratch / checkpoint.name):
            raise
        side.load(scratch / checkpoint.name)
        return True
    return False


def pad_pooler(checkpoint: Path, copy: Path) -> bool:
    """Copies a checkpoint with a zero pooler added; returns False, and copies nothing, if it has a pooler already."""
    tensors = load_file(checkpoint / "model.safetensors")
    if f"{_POOLER}.weight" in tensors:
        return False
    width = json.loads((checkpoint / "encoder" / "config.json").read_text(encoding="utf-8"))["hidden_size"]
    shutil.copytree(checkpoint, copy)
    tensors[f"{_POOLER}.weight"] = np.zeros((width, width), dtype=np.float16)
    tensors[f"{_POOLER}.bias"] = np.zeros(width, dtype=np.float16)
    save_file(tensors, copy / "model.safetensors", metadata={"format": "pt"})
    return True
