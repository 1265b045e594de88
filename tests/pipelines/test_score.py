"""The scoring job on a real Ray, with the bundled checkpoint."""

from __future__ import annotations

import importlib
import json
import os
import pickle
import shutil
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import torch

import laya
from pipelines import ScoreConfig, score
from pipelines.errors import InputError
from pipelines.sinks import committed_parts

ROOT = Path(__file__).parents[2]
TICKETS = ROOT / "examples" / "tickets.jsonl"
TOLERANCE = 1e-3


@pytest.fixture(scope="module")
def tickets():
    return [json.loads(line) for line in TICKETS.read_text(encoding="utf-8").split("\n") if line]


@pytest.fixture(scope="module")
def questions():
    from pipelines.question_files import load_questions

    return load_questions("tickets")[0]


def config(inputs, output, **changes):
    return ScoreConfig(**{"inputs": tuple(map(str, inputs)), "questions": "tickets", "output": str(output), "report": False, **changes})


def rows_of(output):
    return pq.read_table(output).to_pylist()


def assert_same_answers(row, result):
    """A row of the output says what one process says."""
    for qid, answer in result["answers"].items():
        value = answer[answer["type"]]
        if isinstance(value, str):
            assert row[qid] == value
        else:
            assert row[qid] == pytest.approx(value, abs=TOLERANCE)
        assert row[f"{qid}_confidence"] == pytest.approx(answer["answer_confidence"], abs=TOLERANCE)
        if "probabilities" in answer:
            assert row[f"{qid}_probabilities"] == pytest.approx(answer["probabilities"], abs=TOLERANCE)


@pytest.fixture
def all_cores():
    """Tests compute on one core; what takes long anyway may have all of them."""
    threads = torch.get_num_threads()
    torch.set_num_threads(os.cpu_count() or 1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("all_cores")
@pytest.mark.parametrize("count", [24, pytest.param(240, marks=pytest.mark.slow)])
def test_two_agents_answer_every_ticket_as_one_process_does(ray_session, tmp_path, tickets, questions, mini, count):
    tickets, source = tickets[:count], tmp_path / "tickets.jsonl"
    source.write_text("\n".join(json.dumps(ticket) for ticket in tickets), encoding="utf-8")
    labels = {"department": "true_department", "urgency": "true_urgency", "leaving": "true_leaving"}
    summary = score(config([source], tmp_path / "out", state=("subject", "text"), agents=2, labels=labels, rows_per_fragment=count // 4))
    rows = rows_of(tmp_path / "out")
    assert [row["id"] for row in rows] == [ticket["id"] for ticket in tickets]
    results = mini.predict_batch([{"subject": ticket["subject"], "text": ticket["text"]} for ticket in tickets], questions)
    for row, ticket, result in zip(rows, tickets, results, strict=True):
        assert {name: row[name] for name in ticket} == ticket
        assert_same_answers(row, result)
        assert row["laya"]["tokens"] == result["usage"]["input_tokens"]
        assert row["laya"]["model"] == "mini"
        assert row["laya"]["error"] is None
    assert len({row["laya"]["run_id"] for row in rows}) == len(rows)
    assert summary.parts == 4
    assert summary.tally.rows == len(tickets)
    assert summary.tally.errors.total() == 0
    right = sum(row["department"] == row["true_department"] for row in rows)
    assert summary.tally.questions["department"].evaluation.right == right
    assert summary.tally.questions["department"].evaluation.rows == len(tickets)
    assert summary.tally.questions["leaving"].evaluation.right == sum((row["leaving"] >= 0.5) == row["true_leaving"] for row in rows)


def test_hostile_lines_become_error_rows_and_the_rest_is_right(ray_session, tmp_path, questions, mini):
    good = "my parcel has not arrived and I am leaving you for another shop"
    lines = [
        json.dumps({"id": 1, "text": good}),
        json.dumps({"id": 2, "text": None}),
        json.dumps({"id": 3, "text": ""}),
        '{"id": 4, "text": "broken',
        json.dumps({"id": 5, "text": "parcel " * 14_286}),
        json.dumps({"id": 6, "text": good}),
    ]
    assert len(json.loads(lines[4])["text"]) > 100_000
    source = tmp_path / "in.jsonl"
    source.write_text("\n".join(lines))
    summary = score(config([source], tmp_path / "out"))
    rows = rows_of(tmp_path / "out")
    assert [row["id"] for row in rows] == [1, 2, 3, None, 5, 6]
    expected = mini.system_one(good, questions)
    for row in (rows[0], rows[5]):
        assert_same_answers(row, expected)
        assert row["laya"]["truncated"] is False
    assert_same_answers(rows[4], mini.system_one("parcel " * 14_286, questions))
    assert rows[4]["laya"]["truncated"] is True
    for row, told in ((rows[1], "`text` is null"), (rows[2], "`text` is empty"), (rows[3], "line 4: not valid JSON")):
        assert row["laya"]["error"]["class"] == "RecordError"
        assert told in row["laya"]["error"]["message"]
        assert row["department"] is None
        assert row["leaving"] is None
    assert summary.tally.rows == 6
    assert summary.tally.errors == {"RecordError": 3}
    assert summary.tally.truncated == 1


@pytest.mark.slow
def test_csv_and_parquet_give_the_same_answers_as_jsonl(ray_session, tmp_path, tickets, questions, mini):
    few = tickets[:12]
    table = pa.Table.from_pylist([{"id": ticket["id"], "text": ticket["text"], "code": "00123"} for ticket in few])
    pq.write_table(table, tmp_path / "few.parquet", row_group_size=5)
    pa.csv.write_csv(table, tmp_path / "few.csv")
    expected = mini.predict_batch([ticket["text"] for ticket in few], questions)
    for name in ("few.parquet", "few.csv"):
        score(config([tmp_path / name], tmp_path / f"out-{name}", rows_per_fragment=5))
        rows = rows_of(tmp_path / f"out-{name}")
        assert [row["id"] for row in rows] == [ticket["id"] for ticket in few]
        assert {row["code"] for row in rows} == {"00123"}
        for row, result in zip(rows, expected, strict=True):
            assert_same_answers(row, result)


@pytest.mark.slow
def test_a_stopped_run_goes_on_and_equals_one_that_was_not(ray_session, tmp_path, tickets):
    source, whole, stopped = tmp_path / "in.jsonl", tmp_path / "whole", tmp_path / "stopped"
    source.write_text("\n".join(json.dumps(ticket) for ticket in tickets[:40]))
    score(config([source], whole, state=("subject", "text"), rows_per_fragment=10))
    shutil.copytree(whole, stopped)
    (stopped / "part-00001.parquet").unlink()
    (stopped / "part-00003.parquet").write_bytes(b"")
    (stopped / "_laya" / "unfinished-0").write_bytes(b"half a file")
    kept = (stopped / "part-00002.parquet").stat().st_mtime_ns
    job = config([source], stopped, state=("subject", "text"), rows_per_fragment=10)
    summary = score(job)
    assert summary.resumed_rows == 20
    assert summary.tally.rows == 40
    assert (stopped / "part-00002.parquet").stat().st_mtime_ns == kept
    assert not list((stopped / "_laya").glob("unfinished*"))
    assert rows_of(stopped) == rows_of(whole)
    again = score(job)
    assert again.resumed_rows == again.tally.rows == 40


def test_a_full_disk_stops_the_job_in_one_line_and_the_same_command_goes_on(tmp_path, monkeypatch):
    import errno

    from pipelines import worker
    from pipelines.plan import make_plan

    (tmp_path / "in.jsonl").write_text('{"text": "hello"}\n')
    plan = make_plan(config([tmp_path / "in.jsonl"], tmp_path / "out"))
    job = worker.FragmentJob.of(plan, cast("Any", None), in_flight=1, progress=None)

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(worker, "write_part", full)
    monkeypatch.setattr(worker, "Asker", lambda *_, **__: None)
    told = worker.score_fragment({"fragment": pickle.dumps(plan.pending[0])}, job)
    with pytest.raises(InputError, match=rf"part 0 of {tmp_path}/out: .*No space left on device; .* the same command goes on from there"):
        raise pickle.loads(told["stopped"])


def test_another_job_in_the_same_folder_is_refused(ray_session, tmp_path):
    source = tmp_path / "in.jsonl"
    source.write_text('{"text": "hello"}\n')
    score(config([source], tmp_path / "out"))
    with pytest.raises(InputError, match="of another job: questions: not the same; choose a new --output"):
        score(config([source], tmp_path / "out", questions="packages"))


def test_a_checkpoint_that_cannot_be_had_leaves_nothing_behind(ray_session, tmp_path):
    source = tmp_path / "in.jsonl"
    source.write_text('{"text": "hello"}\n')
    with pytest.raises(laya.CheckpointError, match="/no/such/model"):
        score(config([source], tmp_path / "out", model="/no/such/model"))
    assert not (tmp_path / "out").exists()


def test_an_empty_file_gives_an_empty_output(tmp_path):
    (tmp_path / "in.jsonl").write_text("")
    summary = score(config([tmp_path / "in.jsonl"], tmp_path / "out"))
    assert (summary.tally.rows, summary.parts) == (0, 1)
    assert rows_of(tmp_path / "out") == []
    assert "department_probabilities" in pq.read_schema(tmp_path / "out" / "part-00000.parquet").names
    assert score(config([tmp_path / "in.jsonl"], tmp_path / "out")).tally.rows == 0


def test_a_second_run_into_the_same_folder_is_refused_while_the_first_writes(tmp_path):
    from pipelines.outputs import opened
    from pipelines.plan import make_plan

    source = tmp_path / "in.jsonl"
    source.write_text('{"text": "hello"}\n')
    job = config([source], tmp_path / "out")
    plan = make_plan(job)
    with opened(plan), pytest.raises(InputError, match="another run writes to it"), opened(plan):
        pass
    with opened(plan):
        pass


def test_a_job_planned_before_another_took_the_folder_is_refused_and_the_other_keeps_its_answers(tmp_path):
    from pipelines.outputs import opened, write_empty
    from pipelines.plan import make_plan

    (tmp_path / "in.jsonl").write_text("")
    early = make_plan(config([tmp_path / "in.jsonl"], tmp_path / "out"))
    late = make_plan(config([tmp_path / "in.jsonl"], tmp_path / "out", questions="packages"))
    with opened(late):
        write_empty(late)
    with pytest.raises(InputError, match="holds the output of another job: questions"), opened(early):
        write_empty(early)
    assert "topic_probabilities" in pq.read_schema(tmp_path / "out" / "part-00000.parquet").names


def test_what_another_run_of_the_job_has_done_meanwhile_is_not_done_again(tmp_path):
    from pipelines.outputs import opened
    from pipelines.plan import make_plan
    from pipelines.sinks import write_part
    from pipelines.tally import Tally

    (tmp_path / "in.jsonl").write_text('{"text": "hello"}\n')
    plan = make_plan(config([tmp_path / "in.jsonl"], tmp_path / "out"))
    with opened(plan) as first:
        assert len(first.pending) == 1
        write_part(plan.config.output, 0, (), plan.schema, "parquet", lambda: {"tally": Tally().to_dict()})
    with opened(plan) as second:
        assert second.pending == []


def test_other_folder_columns_are_another_job(tmp_path):
    from pipelines.outputs import opened
    from pipelines.plan import make_plan

    folder = tmp_path / "data" / "year=2026"
    folder.mkdir(parents=True)
    (folder / "in.jsonl").write_text('{"text": "hello"}\n')
    with opened(make_plan(config([tmp_path / "data"], tmp_path / "out"))):
        pass
    with pytest.raises(InputError, match="input: not the same"):
        make_plan(config([folder], tmp_path / "out"))


def test_other_weights_are_another_job(tmp_path):
    import shutil

    from pipelines.plan import make_plan

    source = tmp_path / "in.jsonl"
    source.write_text('{"text": "hello"}\n')
    model = tmp_path / "model"
    shutil.copytree(Path(laya.__file__).parent / "checkpoints" / "mini", model)
    job = config([source], tmp_path / "out", model=str(model))
    before = make_plan(job).fingerprint
    assert make_plan(job).fingerprint == before
    content = json.loads((model / "rl_agent_config.json").read_text())
    (model / "rl_agent_config.json").write_text(json.dumps({**content, "temperature": [1.0, 1.0, 1.0]}))
    assert make_plan(job).fingerprint != before


def test_a_question_that_the_model_cannot_hold_stops_the_job_before_it_starts(ray_session, tmp_path):
    source = tmp_path / "in.jsonl"
    source.write_text('{"text": "hello"}\n')
    questions = tmp_path / "q.yaml"
    questions.write_text(json.dumps({"lane": {"type": "choice", "instructions": "which?", "criteria": [f"desk {n}" for n in range(300)]}}))
    with pytest.raises(InputError, match=r"q\.yaml.*lane.*do not fit"):
        score(config([source], tmp_path / "out", questions=str(questions)))
    assert not (tmp_path / "out").exists()


def test_a_file_that_changes_while_it_is_scored_is_not_committed(ray_session, tmp_path, monkeypatch):
    job_module = importlib.import_module("pipelines.score")
    source = tmp_path / "in.jsonl"
    source.write_text('{"text": "hello"}\n')
    load = job_module.load_models

    def change(*arguments):
        load(*arguments)
        source.write_text('{"text": "HELLO"}\n')

    monkeypatch.setattr(job_module, "load_models", change)
    with pytest.raises(InputError, match="changed since the job was planned"):
        score(config([source], tmp_path / "out"))
    assert committed_parts(str(tmp_path / "out"), "parquet") == set()
