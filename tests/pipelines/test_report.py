"""The report: a page that stands for itself, tells what the notes say, and shows the user's texts as texts."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from laya.questions import parse_questions
from pipelines.errors import InputError
from pipelines.report import report_location, write_report
from pipelines.report.facts import Span
from pipelines.report.throughput import throughput
from pipelines.report.words import duration, moment, share, short, shown
from pipelines.sinks import Manifest, part_name, run_location, write_manifest
from pipelines.tally import Tally

STARTED = 1_700_000_000.0
QUESTIONS = {
    "team": {"type": "choice", "instructions": "Which team?", "criteria": {"billing": "money", "technical": None}},
    "urgency": {"type": "score", "instructions": "How urgent?", "criteria": ["low", "high"]},
    "angry": {"type": "noul", "instructions": "Angry?"},
}
VOID = {"meta", "link", "br", "img", "hr", "input", "use"}
CELLS = {"td", "th", "dt", "dd", "li", "small", "figcaption"}


class Page(HTMLParser):
    """The tags of a page, which must be closed in the order in which they were opened, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.html, self.tags, self.ids = html, set[str](), list[str | None]()
        self._open, self._text = list[str](), list[str]()
        self.feed(html)
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.ids += [value for name, value in attrs if name == "id"]
        assert not [name for name, _ in attrs if name.startswith("on")]
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.add(tag)
        self.ids += [value for name, value in attrs if name == "id"]

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self._open.pop() == tag
        if tag in CELLS:
            self._text.append(" ")

    def handle_data(self, data):
        if self._open[-1:] != ["style"]:
            self._text.append(data)

    @property
    def text(self):
        return re.sub(r"\s+", " ", "".join(self._text))


def answers_of(questions, place=0, confidence=0.8):
    answers = {}
    for question in parse_questions(questions):
        if question.type == "noul":
            answers[question.qid] = {"type": "noul", "noul": confidence, "answer_confidence": confidence}
            continue
        names = list(question.labels) if question.type == "choice" else [str(level) for level in range(question.n)]
        top = names[place % len(names)]
        rest = (1 - confidence) / max(1, len(names) - 1)
        shares = {name: confidence if name == top else rest for name in names}
        answer = {"type": question.type, "answer_confidence": confidence, "probabilities": shares}
        decided = {"choice": top} if question.type == "choice" else {"score": float(top)}
        answers[question.qid] = {**answer, **decided}
    return answers


def result(questions, place=0, confidence=0.8, **usage):
    routing = {"model": "mini", "reason": "asked for"}
    return {"answers": answers_of(questions, place, confidence), "usage": {"input_tokens": 10, **usage}, "routing": routing}


def tally_of(questions, results, truths=None, errors=(), abstained=()):
    tally = Tally()
    for one in results:
        tally.add_result(one, parse_questions(questions), truths or {}, abstained)
    for number, error in enumerate(errors):
        tally.add_error(error, f"mails.csv line {number}")
    return tally


def write_job(folder, tallies, questions=QUESTIONS, fragments=None, config=None, inputs=(), starts=None, runs=()):
    rows = sum(tally.rows for tally in tallies)
    write_manifest(
        str(folder),
        Manifest(
            facts={"model": "ab" * 32},
            config={"format": "parquet", "model": "mini", **(config or {})},
            questions=questions,
            fragments=len(tallies) if fragments is None else fragments,
            rows=rows,
            inputs=list(inputs),
            created_at=STARTED,
        ),
    )
    for index, tally in enumerate(tallies):
        start = STARTED + 10 * index if starts is None else starts[index]
        note = {"index": index, "rows": tally.rows, "size": 4, "started_at": start, "finished_at": start + 10, "tally": tally.to_dict()}
        (folder / "_laya" / f"part-{index:05}.json").write_text(json.dumps(note), encoding="utf-8")
        (folder / part_name(index)).write_bytes(b"part")
    for started, rows in runs:
        run = {"started_at": started, "seconds": 20.0, "scoring_seconds": 15.0, "rows": rows, "agents": 2}
        Path(run_location(str(folder), started)).write_text(json.dumps(run), encoding="utf-8")
    return Page(Path(write_report(str(folder))).read_text(encoding="utf-8"))


def test_it_tells_what_the_notes_say(tmp_path):
    right = tally_of(QUESTIONS, [result(QUESTIONS)] * 3, {"team": "billing", "urgency": 1, "angry": True})
    other = tally_of(QUESTIONS, [result(QUESTIONS, 1, truncated=True, windows=4)], errors=[ValueError("`body` is empty")])
    inputs = [{"path": "/data/mails.csv", "format": "csv", "size": 1500}]
    page = write_job(tmp_path / "out", [right, other], inputs=inputs, config={"labels": {"team": "true_team"}, "lang": None})
    for told in (
        "4 of 5 rows are answered, 1 could not be.",
        "billing money 3 75.0 %",
        "technical 1 25.0 %",
        "Against 3 labels",
        "commonest label: 100.0 %",
        "ValueError 1",
        "mails.csv line 0: `body` is empty",
        "mini 4 100.0 %",
        "asked for 4 100.0 %",
        "1 rows, 4 windows, 4.0 each",
        "0.2 on average over 20 s of work",
        "/data/mails.csv csv 1.5 kB",
        "labels team = true_team",
        "2 parts, 8 B",
    ):
        assert told in page.text
    assert "lang " not in page.text
    # Brier of the choice: twice (1 - 0.8)^2; of the score, which is wrong: twice 0.8^2; calibration errors 0.2, 0.8 and 0.2.
    assert "accuracy 100.0 % commonest label: 100.0 % Brier score 0.080" in page.text
    assert "Brier score 1.280" in page.text
    assert [page.text.count(f"calibration error {value}") for value in ("0.200", "0.800")] == [2, 1]


def test_it_tells_of_labels_that_are_no_answer_and_of_the_first_start(tmp_path):
    tallies = [tally_of(QUESTIONS, [result(QUESTIONS)] * 2, {"team": "Billing"})]
    page = write_job(tmp_path / "out", tallies, runs=[(STARTED - 65.0, 2)])
    assert "2 labels are none of its answers, such as Billing; they count for nothing below." in page.text
    assert page.text.count(moment(STARTED - 65.0)) == 3  # at the top, at the foot and in the table of runs
    assert "1 part, 4 B" in page.text


def test_it_needs_nothing_but_itself(tmp_path):
    page = write_job(tmp_path / "out", [tally_of(QUESTIONS, [result(QUESTIONS)], {"team": "billing"})])
    assert {"svg", "table", "style"} <= page.tags
    assert not {"script", "link", "img", "iframe", "image"} & page.tags
    assert not re.search(r"""(?:src|href)=["'](?!#)|url\((?!#)|@import""", page.html)
    assert "prefers-color-scheme: dark" in page.html
    assert "@media print" in page.html
    assert "#0" not in re.sub(r"<style>.*?</style>", "", page.html, flags=re.DOTALL)  # every colour of a plot is one of the page's
    assert len(page.ids) == len(set(page.ids))


def test_hostile_texts_are_shown_as_texts(tmp_path):
    script = "<script>alert(1)</script>"
    questions = {
        script: {
            "type": "choice",
            "instructions": "</style>{{ 7 * 7 }} [bold]" + "long " * 2000,
            "criteria": {"\u202eleft": '"><b>', "</td></table>": "مرحبا", "x" * 5000: "\x00"},
        },
        "n": {"type": "noul", "instructions": "&lt;", "labels": {"true": "<i>", "false": "</i>"}},
    }
    tally = tally_of(
        questions,
        [result(questions), result(questions, 1)],
        {script: "</td></table>"},
        [type("<b>Error", (Exception,), {})("<img src=x onerror=y>")],
    )
    inputs = [{"path": f"s3://KEY:SECRET@bucket/{script}?secret_key=SECRET&scheme=http", "format": "csv", "size": 1}]
    page = write_job(tmp_path / "<b>out", [tally], questions, inputs=inputs, config={"hooks": ["</dl>"]})
    assert not {"script", "img"} & page.tags
    for told in (script, "{{ 7 * 7 }} [bold]", "</td></table>", "<b>Error", "<img src=x onerror=y>", "s3://...@bucket/", "<b>out", "</dl>"):
        assert told in page.text
    assert "SECRET" not in page.html
    assert len(page.html) < 200_000


def test_a_resumed_job_is_one_story_with_its_stop(tmp_path):
    tallies = [tally_of(QUESTIONS, [result(QUESTIONS)] * 100) for _ in range(4)]
    starts = [STARTED, STARTED + 10, STARTED + 7220, STARTED + 7230]
    page = write_job(tmp_path / "out", tallies, starts=starts, runs=[(STARTED, 200), (STARTED + 7200, 200)])
    assert "10.0 on average over 40 s of work; dashed: stopped for 2 h, then resumed" in page.text
    assert "2023-11-14 22:13:20 UTC 200 20 s 15 s 2" in page.text
    assert "2023-11-15 00:13:20 UTC 200 20 s 15 s 2" in page.text


def test_an_unfinished_job_says_so_and_counts_only_parts_that_are_there(tmp_path):
    folder = tmp_path / "out"
    tallies = [tally_of(QUESTIONS, [result(QUESTIONS)]) for _ in range(3)]
    write_job(folder, tallies, fragments=5)
    (folder / part_name(2)).write_bytes(b"of an earlier try")
    page = Page(Path(write_report(str(folder))).read_text(encoding="utf-8"))
    assert "2 of 3 rows are answered; 3 of 5 parts are still to be done." in page.text


def test_an_empty_job(tmp_path):
    page = write_job(tmp_path / "out", [])
    assert "The input holds no rows." in page.text
    assert "Which team?" in page.text
    assert "svg" not in page.tags


def test_a_job_of_errors(tmp_path):
    errors = [KeyError(str(number)) for number in range(9)]
    page = write_job(tmp_path / "out", [tally_of(QUESTIONS, [], errors=errors)])
    assert "0 of 9 rows are answered, 9 could not be." in page.text
    assert "mails.csv line 2: '2'" in page.text
    assert "and 6 more" in page.text
    assert "No row has an answer to it." in page.text


def test_rows_with_questions_of_their_own(tmp_path):
    tallies = []
    for number in range(100):
        own = {f"q{number}": QUESTIONS["team"], "common": QUESTIONS["angry"]}
        tallies.append(tally_of(own, [result(own)]))
    page = write_job(tmp_path / "out", tallies, questions=None)
    assert page.ids.count("q1") == 1
    assert "common noul" in page.text
    assert "41 more questions, asked less often, are not shown." in page.text


@pytest.mark.parametrize("right", [True, False])
def test_thirty_options_are_listed_with_what_is_taken_for_what(tmp_path, right):
    questions = {"topic": {"type": "choice", "instructions": "?", "criteria": [f"topic {number}" for number in range(30)]}}
    tally = Tally()
    for number in range(30):
        label = f"topic {number if right else (number + 1) % 30}"
        tally.add_result(result(questions, number), parse_questions(questions), {"topic": label})
    page = write_job(tmp_path / "out", [tally], questions)
    assert all(f"topic {number} 1 3.3 %" in page.text for number in range(30))
    assert ("no answer differs from its label" in page.text) is right
    assert ("topic 5 topic 4 1" in page.text) is not right


def test_unsure_answers(tmp_path):
    tally = tally_of(QUESTIONS, [result(QUESTIONS, confidence=0.6), result(QUESTIONS, confidence=0.6)], abstained=["team"])
    page = write_job(tmp_path / "out", [tally], config={"min_confidence": {"team": 0.7}})
    assert "mean 0.600; 2 answers (100.0 %) are below 0.7" in page.text
    assert page.text.count("are below") == 1


def test_two_hundred_parts(tmp_path):
    page = write_job(tmp_path / "out", [tally_of(QUESTIONS, [result(QUESTIONS)] * 20) for _ in range(200)])
    assert "4,000 of 4,000 rows are answered." in page.text
    assert len(page.html) < 300_000


def test_it_lies_beside_the_folder():
    assert report_location("a/out/") == "a/out.report.html"
    assert report_location("s3://b/out/") == "s3://b/out.report.html"
    assert report_location("s3://b/out?scheme=http") == "s3://b/out.report.html?scheme=http"
    assert report_location("s3://b") == "s3://b/_laya/report.html"
    assert report_location(".") == f"{Path.cwd()}.report.html"


def test_refusals_name_the_folder(tmp_path):
    with pytest.raises(InputError, match="nowhere: holds no output"):
        write_report(str(tmp_path / "nowhere"))
    write_job(tmp_path / "out", [])
    (tmp_path / "out.report.html").unlink()
    (tmp_path / "out.report.html").mkdir()
    with pytest.raises(InputError, match=r"out\.report\.html: the report cannot be written"):
        write_report(str(tmp_path / "out"))


def test_matplotlib_comes_when_a_report_is_made_and_leaves_nothing_behind(tmp_path):
    write_job(tmp_path / "out", [tally_of(QUESTIONS, [result(QUESTIONS)])])
    home = tmp_path / "home"
    home.mkdir()
    code = (
        "import sys, os; from pipelines.report import write_report; assert 'matplotlib' not in sys.modules; "
        "write_report(sys.argv[1]); assert 'matplotlib' in sys.modules; assert 'MPLCONFIGDIR' not in os.environ"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "MPL"))}
    command = [sys.executable, "-W", "error", "-c", code, str(tmp_path / "out")]
    done = subprocess.run(command, env={**environment, "HOME": str(home)}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert list(home.iterdir()) == []


def test_plots_do_not_take_the_style_of_their_user(tmp_path):
    import matplotlib as mpl

    tally = tally_of(QUESTIONS, [result(QUESTIONS)])
    plain = write_job(tmp_path / "out", [tally]).html
    with mpl.rc_context({"axes.facecolor": "red", "svg.fonttype": "path", "font.size": 30}):
        assert Path(write_report(str(tmp_path / "out"))).read_text(encoding="utf-8") == plain
        assert mpl.rcParams["font.size"] == 30


def test_throughput_keeps_every_row_and_leaves_stops_out():
    spans = [Span(at, at + 7, 70) for at in (0, 2, 7, 500, 503.5)]
    found = throughput(spans)
    assert found.seconds == pytest.approx(14 + 10.5)
    assert sum(rate * (found.edges[1] - found.edges[0]) for rate in found.rates) == pytest.approx(350)
    assert found.mean == pytest.approx(350 / 24.5)
    assert found.stops == [(14, 486)]


@pytest.mark.parametrize("spans", [[], [Span(5, 5, 10)], [Span(5, 4, 10)]])
def test_no_time_is_no_throughput(spans):
    assert (throughput(spans).rates, throughput(spans).mean) == ([], 0.0)


def test_words():
    assert [duration(seconds) for seconds in (0, 0.34, 9.97, 59.7, 119.7, 3599.8, 7000, 86400 * 3)] == [
        *("0 s", "0.3 s", "10 s", "1 min", "2 min", "1 h", "1 h 57 min", "3 d")
    ]
    assert [short(number) for number in (0, 9999, 10_000, 423_900, 1_250_000, 3_000_000_000)] == [
        "0",
        "9,999",
        "10.0k",
        "424k",
        "1.2M",
        "3.0G",
    ]
    assert [share(part, 10_000) for part in (0, 1, 1234, 9999, 10_000)] == ["0.0 %", "<0.1 %", "12.3 %", ">99.9 %", "100.0 %"]
    assert shown("x" * 3000) == "x" * 2000 + "…"
