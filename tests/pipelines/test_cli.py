"""The command line as a user meets it: in a process of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import laya
from pipelines.cli import main

ROOT = Path(__file__).parents[2]


@pytest.fixture
def command(capsys, monkeypatch):
    """Runs the command in this process, as a second takes a hundred of those."""
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # which the command replaces

    def run_here(*arguments):
        try:
            main([str(argument) for argument in arguments])
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        told = capsys.readouterr()
        return code, told.out, told.err

    return run_here


def run(*arguments, stdin=b"", cwd=ROOT, **environment):
    command = [sys.executable, "-m", "pipelines", *map(str, arguments)]
    return subprocess.run(command, input=stdin, capture_output=True, cwd=cwd, env={**os.environ, **environment}, timeout=120)


def test_help_teaches_and_loads_nothing_heavy():
    done = run("score", "--help")
    assert done.returncode == 0
    for told in (
        b"[INPUT]...",
        b"--config",
        b"--dry-run",
        b"--questions",
        b"--output",
        b"--model",
        b"--state",
        b"--agents",
        b"--labels",
        b"laya score mails",
    ):
        assert told in done.stdout
    loaded = subprocess.run(
        [sys.executable, "-c", "import pipelines.cli, sys; print([m for m in ('torch', 'ray', 'transformers') if m in sys.modules])"],
        capture_output=True,
        cwd=ROOT,
        check=True,
    )
    assert loaded.stdout.strip() == b"[]"


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "in.jsonl"
    path.write_text('{"text": "hello", "team": "billing"}\n')
    return path


@pytest.fixture
def place(tmp_path, source):
    """A folder with inputs that are wrong in one way each."""
    (tmp_path / "latin.csv").write_bytes(b"text,text\ncaf\xe9,x\n")
    (tmp_path / "bad.yaml").write_text("q: {type: choice, instructions: which?, criteria: []}")
    (tmp_path / "job.yaml").write_text("inputs: in.jsonl\noutput: out\nquestions: tickets\nagent: 2\n")
    (tmp_path / "listed.yaml").write_text("? [1, 2]\n: {type: noul, instructions: x}")
    (tmp_path / "deep.yaml").write_text("[" * 5000)
    (tmp_path / "raises.py").write_text("raise KeyError('no such secret')")
    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "diary.txt").write_text("mine")
    return tmp_path


GOOD = "score in.jsonl -q tickets -o out"
WRONG = {
    "score -q tickets -o out": "no input",
    "score in.jsonl -o out": "questions",
    "score in.jsonl -q tickets": "output: missing; give --output",
    "score --config nowhere.yaml": "nowhere.yaml",
    "score --config job.yaml": "agent: no such field",
    "score s3:/in -q tickets -o out": "s3:/in",
    "score in.jsonl -q tickets -o http://out": "http://out",
    f"{GOOD} --min-confidence 2": "min_confidence",
    f"{GOOD} --min-confidence high": "--min-confidence",
    f"{GOOD} --min-confidence teams=0.5": "teams",
    f"{GOOD} --abstain-output review": "abstain_output needs min_confidence",
    f"{GOOD} --window 64": "long: scan",
    f"{GOOD} --hooks nothing": "write package.module:name",
    f"{GOOD} --columns txet": "did you mean 'text'",
    f"{GOOD} --calibration nothing.json": "nothing.json",
    "score in.jsonl --questions-column nothing -o out": "no column 'nothing'",
    "report nothing": "holds no output of `laya score`",
    "report full": "holds no output of `laya score`",
    "score nowhere.jsonl -q tickets -o out": "nowhere.jsonl",
    "score bad.yaml -q tickets -o out": "bad.yaml",
    "score ~nobody-here/x.jsonl -q tickets -o out": "~nobody-here",
    "score . -q tickets -o out": "lies inside the input .",
    "score *.jsonl -q tickets -o . --format jsonl": "lies inside the input *.jsonl",
    f"{GOOD} --min-confidence 0.5 --abstain-output out/aside": "whose readers would see both",
    f"{GOOD} --min-confidence 0.5 --abstain-output .": "whose readers would see both",
    "score full -q tickets -o out --min-confidence 0.5 --abstain-output full/aside": "--abstain-output full/aside lies inside",
    f"{GOOD} --hooks raises:Hook": "--hooks raises:Hook: KeyError: 'no such secret'",
    "score in.jsonl -q listed.yaml -o out": "cannot be a key",
    "score in.jsonl -q deep.yaml -o out": "nested too deeply",
    "score pipe.jsonl -q tickets -o out": "no regular file",
    "score latin.csv -q tickets -o out": "`text`",
    "score in.jsonl -q no.yaml -o out": "no.yaml",
    "score in.jsonl -q bad.yaml -o out": "bad.yaml",
    "score in.jsonl -q tickets -o full": "diary.txt",
    "score in.jsonl -q tickets -o bad.yaml": "bad.yaml",
    f"{GOOD} --state txet": "`txet`",
    f"{GOOD} --labels urgency=taem": "taem",
    f"{GOOD} --labels teams=team": "teams",
    f"{GOOD} --labels urgency": "QUESTION=COLUMN",
    f"{GOOD} --labels urgency=team --labels urgency=text": "has one already",
    f"{GOOD} --agents 0": "--agents",
    f"{GOOD} --agents two": "--agents",
    f"{GOOD} --agent 2": "--agent",
    f"{GOOD} --model ./nothing": "nothing",
    f"{GOOD} --model ./full": "rl_agent_config.json",
    "scoer in.jsonl": "scoer",
    "predict -q tickets": "no text",
    "predict hello": "--questions",
    "predict hello -q tickets --model nothing": "nothing",
    "predict -q tickets --batch nowhere.txt": "nowhere.txt",
    "route": "no text",
    "route hello --model nothing": "nothing",
    "route hello --default nothing": "nothing",
    "dataset installed-packages -o in.jsonl/f.jsonl": "f.jsonl",
}


@pytest.mark.parametrize("line", WRONG)
def test_bad_input_is_one_line_and_exit_code_2(line, place, command, monkeypatch):
    monkeypatch.chdir(place)
    code, _, error = command(*line.split())
    assert code == 2, error
    assert WRONG[line] in error
    assert len(error.strip().splitlines()) == 1, error


@pytest.mark.parametrize("line", ["score in.jsonl -q tickets", "score in.jsonl -q tickets -o out --address 127.0.0.1:1"])
def test_so_it_is_in_a_process_of_its_own(line, place):
    done = run(*line.split(), cwd=place)
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr


def test_predict_says_what_the_answers_mean(command):
    code, told, _ = command("predict", "I was charged twice", "Hello", "-q", "tickets")
    assert code == 0
    lines = told.splitlines()
    assert [lines[0], lines[4]] == ["'I was charged twice'", "'Hello'"]
    assert re.fullmatch(r"  department  billing         confidence [01]\.\d\d", lines[1])
    assert re.fullmatch(r"  urgency     \d\.\d\d of 0 to 3  confidence 0\.\d\d, nearest to '[a-z ,]+'", lines[2])
    assert re.fullmatch(r"  leaving     no              confidence 0\.\d\d, probability of yes 0\.\d\d", lines[3])


def test_a_dry_run_counts_rows_that_ask_for_a_checkpoint_that_is_not_there(command, place, monkeypatch):
    monkeypatch.chdir(place)
    (place / "in.jsonl").write_text('{"text": "a", "by": "mini"}\n{"text": "b", "by": "maxi"}\n')
    code, told, _ = command(*f"{GOOD} --model-column by --dry-run".split())
    assert code == 0
    assert re.search(r"^.*mini.*no checkpoint 'maxi'", told, re.MULTILINE), told


def test_a_dry_run_says_why_it_has_no_estimate(command, place, monkeypatch):
    monkeypatch.chdir(place)
    code, told, _ = command(*f"{GOOD} --max-len 3 --dry-run".split())
    assert code == 0
    assert re.search(r"^estimate    none: no sampled row could be answered: .*max_len", told, re.MULTILINE), told


def test_route_says_where_and_why():
    done = run("route", "Wo ist mein Paket geblieben?", "Where is my parcel?", "--json")
    decisions = [json.loads(line) for line in done.stdout.splitlines()]
    assert [decision["model"] for decision in decisions] == ["multilingual", "english"]
    assert decisions[0]["detection"]["language"] == "de"


def test_predict_answers_as_the_library_does(mini):
    from pipelines.question_files import load_questions

    done = run("predict", "I was charged twice", "-q", "tickets", "--json")
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    expected = mini.system_one("I was charged twice", load_questions("tickets")[0])
    assert json.loads(line)["answers"] == json.loads(json.dumps(expected["answers"]))


def test_a_batch_file_from_another_program(tmp_path):
    content = b"\xef\xbb\xbfWo ist mein paket\r\n\r\none \xe2\x80\xa8 two\r\n  \r\nlast line"
    path = tmp_path / "batch.txt"
    path.write_bytes(content)
    by_name = run("route", "--batch", path, "--json", LC_ALL="C")
    by_stdin = run("route", "--batch", "-", "--json", stdin=content, LC_ALL="C")
    assert by_name.returncode == by_stdin.returncode == 0
    assert len(by_name.stdout.splitlines()) == 3
    assert by_name.stdout == by_stdin.stdout


def test_texts_keep_their_odd_characters(tmp_path):
    from pipelines.texts import read_texts

    path = tmp_path / "batch.txt"
    path.write_bytes(b"\xef\xbb\xbfWo ist mein paket\r\n\r\none \xe2\x80\xa8 two\r\n  \r\nlast line")
    assert read_texts(str(path)) == ["Wo ist mein paket", "one \u2028 two", "last line"]


def test_a_job_file_runs_and_flags_count_more(tmp_path, source):
    (tmp_path / "job.yaml").write_text("inputs: in.jsonl\noutput: out\nquestions: tickets\nlabels: {department: team}\n")
    forecast = run("score", "--config", "job.yaml", "--dry-run", cwd=tmp_path)
    text = forecast.stdout.decode()
    assert forecast.returncode == 0, forecast.stderr
    for told in ("1 file, 1 rows", "department (choice)", "mini: 1 (of 1 sampled rows)", "tokens      about", "nothing was written"):
        assert told in text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.jsonl", "job.yaml"]
    done = run("score", "--config", "job.yaml", "--output", "elsewhere", cwd=tmp_path)
    text = done.stdout.decode()
    assert done.returncode == 0, done.stderr
    for told in ("rows        1", "errors      0", "models      mini: 1", "department", "accuracy", "elsewhere.report.html"):
        assert told in text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["elsewhere", "elsewhere.report.html", "in.jsonl", "job.yaml"]
    page = tmp_path / "elsewhere.report.html"
    page.unlink()
    assert run("report", "elsewhere/", cwd=tmp_path).stdout.decode().strip() == "elsewhere.report.html"
    assert "department" in page.read_text(encoding="utf-8")
    assert laya.__version__ in run("--version").stdout.decode()
