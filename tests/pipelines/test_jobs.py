"""What a job can be told: questions, checkpoints and budgets by row, hooks, gates, repeats, formats."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import laya
from laya.questions import parse_questions
from pipelines import InputError, ScoreConfig, score
from pipelines.plan import make_plan
from pipelines.sinks import read_manifest
from tests.pipelines.job_hooks import DIARY

TOLERANCE = 1e-3
ANGRY = {"angry": {"type": "noul", "instructions": "The writer is angry"}}
TEXTS = ["I was charged twice!", "Where is my parcel?", "Thank you for the quick help.", "Cancel my account now."]


def written(path: Path, rows: list[Any]) -> str:
    path.write_text("".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows), encoding="utf-8")
    return str(path)


def job(source, output, **changes):
    return ScoreConfig(**{"inputs": source, "questions": ANGRY, "output": str(output), "report": False, **changes})


def rows_of(output):
    return pq.read_table(output).to_pylist()


@pytest.fixture
def diary():
    """Where the hooks of `job_hooks` write."""
    DIARY.write_text("")
    yield DIARY
    DIARY.unlink()


class TestRowsOfTheirOwn:
    def test_each_row_asks_its_own_questions_and_gets_exactly_its_own_labels(self, ray_session, tmp_path, mini):
        sets = [
            {"q": {"type": "choice", "instructions": "Which?", "criteria": {"a.b": "money", "": "parcels"}}},
            {
                "q": {"type": "choice", "instructions": "Which?", "criteria": [1, 2]},
                "s": {"type": "score", "instructions": "How?", "criteria": ["x", "y"]},
            },
            {"q": {"type": "choice", "instructions": "Which?", "criteria": ["x y", "é"]}, **ANGRY},
        ]
        rows = [{"id": index, "text": TEXTS[index % 4], "asked": sets[index % 3]} for index in range(12)]
        rows[5]["asked"] = json.dumps(sets[2])
        rows += [
            {"id": 12, "text": "x", "asked": None},
            {"id": 13, "text": "x", "asked": {"q": {"type": "choice"}}},
            {"id": 14, "text": "x", "asked": "{"},
        ]
        source = written(tmp_path / "in.jsonl", rows)
        summary = score(
            job(source, tmp_path / "out", questions=None, questions_column="asked", rows_per_fragment=4, min_confidence={"q": 0.9})
        )
        found = rows_of(tmp_path / "out")
        assert [row["id"] for row in found] == list(range(15))
        for row in found[:12]:
            asked = sets[row["id"] % 3]
            expected = mini.system_one(row["text"], asked)["answers"]
            assert [answer["question"] for answer in row["answers"]] == list(asked)
            for answer in row["answers"]:
                truth = expected[answer["question"]]
                assert answer["type"] == truth["type"]
                assert answer["confidence"] == pytest.approx(truth["answer_confidence"], abs=TOLERANCE)
                assert answer["abstain"] is (truth["answer_confidence"] < 0.9 if answer["question"] == "q" else None)
                if truth["type"] == "noul":
                    assert answer["noul"] == pytest.approx(truth["noul"], abs=TOLERANCE)
                    continue
                shares = {share["label"]: share["probability"] for share in answer["probabilities"]}
                assert shares == pytest.approx({str(label): share for label, share in truth["probabilities"].items()}, abs=TOLERANCE)
                assert answer["answer"] == (str(truth["choice"]) if truth["type"] == "choice" else None)
        told = [row["laya"]["error"]["message"] for row in found[12:]]
        assert [row["answers"] for row in found[12:]] == [None] * 3
        for message, part in zip(told, ("`asked` is empty", "question 'q'", "`asked` is not valid JSON"), strict=True):
            assert part in message
        assert summary.tally.questions["q"].answers.total() == 12

    def test_a_row_may_name_its_checkpoint_language_and_budget(self, ray_session, tmp_path, mini, quiet_folder):
        long = "The parcel is late and nobody answers. " * 30
        rows = [
            {"text": long, "checkpoint": None, "tokens": None, "lang": "en"},
            {"text": long, "checkpoint": "mini", "tokens": 80},
            {"text": long, "checkpoint": "nonesuch", "tokens": None},
            {"text": long, "checkpoint": "", "tokens": "96"},
            {"text": long, "checkpoint": None, "tokens": -1},
            {"text": long, "checkpoint": str(quiet_folder), "tokens": None},
        ]
        source = written(tmp_path / "in.jsonl", rows)
        score(
            job(source, tmp_path / "out", model=str(quiet_folder), model_column="checkpoint", max_len_column="tokens", lang_column="lang")
        )
        found = rows_of(tmp_path / "out")
        tiny = laya.load(str(quiet_folder), device="cpu")
        for index, budget, agent in ((0, None, tiny), (1, 80, mini), (3, 96, tiny), (5, None, tiny)):
            expected = agent.system_one(long, ANGRY, max_len=budget)
            assert found[index]["laya"]["tokens"] == expected["usage"]["input_tokens"]
            assert found[index]["angry"] == pytest.approx(expected["answers"]["angry"]["noul"], abs=TOLERANCE)
        assert found[1]["laya"]["model"] == "mini"
        assert "nonesuch" in found[2]["laya"]["error"]["message"]
        assert "`tokens` must be a positive whole number" in found[4]["laya"]["error"]["message"]

    def test_a_state_of_json_text_is_what_it_says(self, ray_session, tmp_path, mini):
        states = [
            {"subject": "refund", "n": 12},
            {"body": "van late", "n": 12.5},
            {"n": 3, "subject": "torn box"},
            [{"role": "user", "content": "hi"}],
        ]
        table = pa.table({"state": [json.dumps(state) for state in states] + ["{", "7"]})
        pq.write_table(table, tmp_path / "in.parquet")
        score(job(str(tmp_path / "in.parquet"), tmp_path / "out", state_json=True))
        found = rows_of(tmp_path / "out")
        for row, state in zip(found, states, strict=False):
            assert row["angry"] == pytest.approx(mini.system_one(state, ANGRY)["answers"]["angry"]["noul"], abs=TOLERANCE)
        assert [row["laya"]["error"]["class"] for row in found[4:]] == ["RecordError"] * 2


class TestRepeats:
    def test_rows_that_ask_the_same_are_computed_once(self, ray_session, tmp_path, mini):
        turns = [{"role": "user", "content": f"turn {index} of a long talk about parcels"} for index in range(80)]
        rows = [{"id": index, "text": TEXTS[index % 2]} for index in range(100)]
        rows += [{"id": 100, "text": turns}, {"id": 101, "text": json.dumps(turns)}]  # a list is read from its end, its text from its start
        summary = score(job(written(tmp_path / "in.jsonl", rows), tmp_path / "out"))
        found = rows_of(tmp_path / "out")
        assert (summary.tally.repeats, summary.tally.rows) == (98, 102)
        assert len({row["laya"]["run_id"] for row in found}) == 102
        for first in (0, 1):
            assert len({(row["angry"], row["laya"]["tokens"]) for row in found[first:100:2]}) == 1
        for row, asked in ((found[0], TEXTS[0]), (found[1], TEXTS[1]), (found[100], turns), (found[101], json.dumps(turns))):
            assert row["angry"] == pytest.approx(mini.system_one(asked, ANGRY)["answers"]["angry"]["noul"], abs=TOLERANCE)


class TestHooks:
    def test_rows_can_be_vetoed_answered_and_watched(self, ray_session, tmp_path, diary):
        texts = [*TEXTS, "how is the weather", "about weapons", TEXTS[0]]
        source = written(tmp_path / "in.jsonl", [{"text": text} for text in texts])
        hooks = "tests.pipelines.job_hooks:Guard"
        summary = score(job(source, tmp_path / "out", hooks=hooks, agent_hooks="tests.pipelines.job_hooks:Batches"))
        found = rows_of(tmp_path / "out")
        assert summary.tally.repeats == 0
        assert found[5]["laya"]["error"] == {"class": "PermissionError", "message": "not this one"}
        assert (found[4]["angry"], found[4]["laya"]["model"]) == (0.25, "mini")
        lines = diary.read_text().splitlines()
        # The first question that a job asks, to see whether the model can hold it, is asked of the agent too.
        ends = {f"end {row['laya']['run_id']} {text}" for row, text in zip(found, texts, strict=True)}
        assert sorted(line for line in lines if line.startswith("end")) == sorted(ends)
        assert "load mini" in lines
        assert sum(int(line.split()[1]) for line in lines if line.startswith("batch")) == 1 + 5

    @pytest.mark.slow
    def test_a_hook_that_spoils_results_makes_error_rows(self, ray_session, tmp_path):
        source = written(tmp_path / "in.jsonl", [{"text": text} for text in TEXTS])
        summary = score(job(source, tmp_path / "out", hooks="tests.pipelines.job_hooks:Spoil"))
        assert summary.tally.errors == {"ValueError": 4}
        assert {row["laya"]["error"]["class"] for row in rows_of(tmp_path / "out")} == {"ValueError"}

    @pytest.mark.parametrize(
        ("path", "told"), [("nonesuch:Hook", "nonesuch"), ("json", "write package.module:name"), ("json:dumps", "hook")]
    )
    def test_a_path_that_names_no_hook_is_refused_before_anything_starts(self, tmp_path, path, told):
        source = written(tmp_path / "in.jsonl", [{"text": "x"}])
        with pytest.raises(InputError, match=told):
            score(job(source, tmp_path / "out", hooks=path))
        assert not (tmp_path / "out").exists()


class TestGates:
    def test_unsure_answers_are_marked_and_their_rows_put_aside(self, ray_session, tmp_path, mini):
        source = written(tmp_path / "in.jsonl", [{"id": index, "text": text} for index, text in enumerate(TEXTS)])
        questions = {**ANGRY, "team": {"type": "choice", "instructions": "Which team?", "criteria": ["billing", "delivery"]}}
        sure = sorted(result["answers"]["team"]["answer_confidence"] for result in mini.predict_batch(TEXTS, questions))
        least = sum(sure[1:3]) / 2
        config = job(source, tmp_path / "out", questions=questions, min_confidence={"team": least}, abstain_output=str(tmp_path / "review"))
        summary = score(config)
        found = rows_of(tmp_path / "out")
        unsure = [row for row in found if row["team_confidence"] < least]
        assert len(unsure) == 2
        assert [row["team_abstain"] for row in found] == [row["team_confidence"] < least for row in found]
        assert [row["angry_abstain"] for row in found] == [None] * 4
        assert rows_of(tmp_path / "review") == unsure
        assert summary.tally.questions["team"].abstained == len(unsure)
        assert pq.read_schema(tmp_path / "review" / "part-00000.parquet") == pq.read_schema(tmp_path / "out" / "part-00000.parquet")

    def test_a_threshold_for_a_question_that_is_not_asked_is_refused(self, tmp_path):
        source = written(tmp_path / "in.jsonl", [{"text": "x"}])
        with pytest.raises(InputError, match="did you mean 'angry'"):
            score(job(source, tmp_path / "out", min_confidence={"angri": 0.5}))


class TestPlans:
    def test_a_large_input_is_surveyed_on_ray_with_the_same_result(self, ray_session, tmp_path, monkeypatch):
        for index in range(3):
            written(tmp_path / f"{index}.jsonl", [{"text": text, "n": index} for text in TEXTS])
        config = job(str(tmp_path / "*.jsonl"), tmp_path / "out", rows_per_fragment=3)
        here = make_plan(config)
        monkeypatch.setattr("pipelines.plan.SURVEYED_HERE_BYTES", 0)
        there = make_plan(config)
        assert (there.fragments, there.columns, there.fingerprint) == (here.fragments, here.columns, here.fingerprint)
        (tmp_path / "3.jsonl.gz").write_bytes(b"no gzip")
        with pytest.raises(InputError, match=r"3\.jsonl\.gz"):
            make_plan(job([str(tmp_path / "3.jsonl.gz")], tmp_path / "out"))


class TestErrors:
    def test_a_bad_row_can_stop_the_job(self, ray_session, tmp_path):
        source = written(tmp_path / "in.jsonl", [{"text": "x"}, {"text": None}])
        with pytest.raises(InputError, match=r"in\.jsonl line 2: RecordError: .*`text` is null; with --on-error row"):
            score(job(source, tmp_path / "out", on_error="raise"))
        assert not list((tmp_path / "out").glob("part*"))


class TestOutput:
    def test_json_lines_hold_the_columns_that_are_kept_and_the_answers(self, ray_session, tmp_path, mini):
        rows = [
            {"id": 2**53 + 1 + index, "text": text, "secret": "s", "note": None if index else "ü \u2028"}
            for index, text in enumerate(TEXTS)
        ]
        source = written(tmp_path / "in.jsonl", [*rows, {"id": 0, "text": ""}])
        score(job(source, tmp_path / "out", format="jsonl", columns=("note", "id")))
        lines = (tmp_path / "out" / "part-00000.jsonl").read_bytes().split(b"\n")[:-1]
        found = [json.loads(line) for line in lines]
        assert [(row["id"], row["note"]) for row in found] == [*((row["id"], row["note"]) for row in rows), (0, None)]
        for row, text in zip(found, TEXTS, strict=False):
            assert list(row) == ["id", "note", "angry", "angry_confidence", "angry_abstain", "laya"]
            assert row["angry"] == pytest.approx(mini.system_one(text, ANGRY)["answers"]["angry"]["noul"], abs=TOLERANCE)
            assert (row["laya"]["model"], row["laya"]["error"]) == ("mini", None)
        assert found[4]["laya"]["error"] == {"class": "RecordError", "message": "in.jsonl line 5: `text` is empty"}
        manifest = read_manifest(str(tmp_path / "out"))
        assert (manifest.rows, manifest.fragments, manifest.config["format"]) == (5, 1, "jsonl")
        assert parse_questions(manifest.questions or {}) == parse_questions(ANGRY)
        with pytest.raises(InputError, match="job: questions: not the same; max_len: null there, 99 now; "):
            score(job(source, tmp_path / "out", format="jsonl", columns=("note", "id"), questions={"calm": ANGRY["angry"]}, max_len=99))
