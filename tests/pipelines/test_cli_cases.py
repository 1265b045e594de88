"""Inputs that hurt people on the command line, from public reports: see tests/cases."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import laya
from pipelines.question_files import load_questions
from pipelines.texts import read_texts
from tests.cases import case

ROOT = Path(__file__).parents[2]
GIVEN = case("UC-53")
CONTENT = bytes.fromhex(GIVEN["file_hex"])
STATES = ["Wo ist mein paket", "one \u2028two", "last line"]


def run(*arguments: str, stdin: bytes = b"") -> list[Any]:
    """The JSON lines that the command prints."""
    command = [sys.executable, "-m", "pipelines", *arguments, "--json"]
    done = subprocess.run(command, input=stdin, capture_output=True, cwd=ROOT, env={**os.environ, **GIVEN["env"]}, timeout=120)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.split(b"\n") if line]


def test_uc_53_a_batch_file_of_another_program(tmp_path: Path, mini: laya.Agent) -> None:
    path = tmp_path / "batch.txt"
    path.write_bytes(CONTENT)
    by_name = run("predict", "-q", "tickets", "--batch", str(path))
    by_stdin = run("predict", "-q", "tickets", "--batch", "-", stdin=CONTENT)
    assert by_name == by_stdin
    assert len(by_name) == 3
    for state, found in zip(STATES, by_name, strict=True):
        wanted = mini.system_one(state, load_questions("tickets")[0])
        assert found["usage"] == wanted["usage"]
        assert {qid: answer["answer_confidence"] for qid, answer in found["answers"].items()} == pytest.approx(
            {qid: answer["answer_confidence"] for qid, answer in wanted["answers"].items()}, abs=1e-3
        )


@pytest.mark.parametrize(
    ("content", "states"),
    [
        (CONTENT, STATES),
        ("\ufeffone\r\n\r\ntwo\r\n".encode(), ["one", "two"]),
        ("one\x0btwo\x0cthree\x1cfour\x85five\u2029six\n".encode(), ["one\x0btwo\x0cthree\x1cfour\x85five\u2029six"]),
        (b"one\n \t\n\xe2\x80\x83\n\ntwo", ["one", "two"]),
        ("one \ufeff two".encode(), ["one \ufeff two"]),
        (b"one\rtwo\n", ["one\rtwo"]),
        (b"\xef\xbb\xbf", []),
        (b"", []),
    ],
    ids=[
        "as reported",
        "mark and CRLF",
        "separators inside of texts",
        "blank lines",
        "a mark inside",
        "CR inside",
        "a mark alone",
        "nothing",
    ],
)
def test_uc_53_lines_end_with_a_line_feed_and_nothing_else(content: bytes, states: list[str], tmp_path: Path) -> None:
    path = tmp_path / "batch.txt"
    path.write_bytes(content)
    assert read_texts(str(path)) == states
