"""The page about scoring, executed, and its tables against the code."""

from __future__ import annotations

import re
from pathlib import Path

from pipelines.config import ScoreConfig
from pipelines.question_files import parse_question_text

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "scoring.md"
TEXT = PAGE.read_text(encoding="utf-8")


def test_its_blocks_run_one_after_the_other(ray_session, tmp_path, monkeypatch):
    tickets = (ROOT / "examples" / "tickets.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (tmp_path / "examples").mkdir()
    (tmp_path / "examples" / "tickets.jsonl").write_text("".join(tickets[:3]), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ray_session, "init", lambda **_: None)  # the session's Ray is there already
    blocks = re.findall(r"^```python\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
    assert len(blocks) == 3
    page: dict[str, object] = {"__name__": "page"}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), page)
    assert (tmp_path / "out" / "from-python.report.html").is_file()


def test_its_questions_are_valid():
    (block,) = re.findall(r"^```yaml\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
    _, parsed = parse_question_text(block, "the page")
    assert [(question.type, question.n) for question in parsed] == [("choice", 2), ("score", 3), ("noul", 2)]


def test_each_flag_that_it_names_is_there():
    flags = {flag.replace("-", "_") for flag in re.findall(r"--([a-z][a-z-]+)", TEXT)}
    assert flags - set(ScoreConfig.model_fields) == {"config", "dry_run", "help", "rows"}
