from __future__ import annotations

import copy
import dataclasses
import json
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file

import laya
from benchmarks import engine
from benchmarks.ceiling import flops, matmul_rate, matrices
from benchmarks.checkpoints import ENCODERS
from benchmarks.checkpoints import MINI as CHECKPOINT
from benchmarks.differences import Difference, compare
from benchmarks.engine import main, take_turns
from benchmarks.report import summarize
from benchmarks.settings import PEER, Setting
from benchmarks.sides import Run, Side, WorkerError, pad_pooler
from benchmarks.workload import MAX_WORDS, MEDIAN_WORDS, QUESTIONS, WORDS, make_states
from laya.tokenizer import Tokenizer

STATES = make_states(4, seed=1)


@pytest.fixture(scope="module")
def agent() -> laya.Agent:
    return laya.load("mini", device="cpu")


@pytest.fixture(scope="module")
def results(agent: laya.Agent) -> list[Any]:
    return list(agent.predict_batch(STATES, QUESTIONS))


@pytest.fixture(scope="module")
def side() -> Iterator[Side]:
    with Side("ours", sys.executable) as side:
        side.load(CHECKPOINT)
        yield side


# the workload


def test_same_seed_same_states() -> None:
    assert make_states(50, seed=3) == make_states(50, seed=3)
    assert make_states(50, seed=3) != make_states(50, seed=4)


def test_lengths_have_the_median_and_the_upper_bound() -> None:
    lengths = [len(state.split()) for state in make_states(4000, seed=0)]
    assert statistics.median(lengths) == pytest.approx(MEDIAN_WORDS, rel=0.05)
    assert max(lengths) == MAX_WORDS
    assert min(lengths) >= 1


def test_every_word_is_one_token_and_the_longest_state_fits(agent: laya.Agent) -> None:
    tokenizer = Tokenizer(CHECKPOINT / "tokenizer")
    assert {len(ids) for ids in tokenizer.encode(WORDS)} == {1}
    (result,) = agent.predict_batch([" ".join(WORDS[:MAX_WORDS])], QUESTIONS)
    assert not result["usage"]["truncated"]


# the worker


def test_worker_answers_as_the_package_does_here(side: Side, results: list[Any]) -> None:
    run = side.predict(STATES, QUESTIONS)
    assert run.results == results
    assert run.seconds > 0
    assert side.about["laya"] == laya.__version__
    assert side.about["threads"] >= 1


def test_worker_tells_an_error_and_goes_on(side: Side) -> None:
    with pytest.raises(WorkerError, match=r"ours: ValueError: .*type must be one of"):
        side.predict(STATES, {"a": {"type": "guess", "instructions": "?"}})
    assert len(side.predict(STATES[:1], QUESTIONS).results) == 1


def test_what_a_library_prints_or_reads_does_not_reach_the_protocol(tmp_path: Path) -> None:
    package = tmp_path / "laya"
    package.mkdir()
    (package / "__init__.py").write_text(
        "import os, sys, types\n"
        "sys.modules['torch'] = types.SimpleNamespace(get_num_threads=lambda: 7)\n"
        "print('hello')\n"
        "class Agent:\n"
        "    def __init__(self, path, device, **options): os.system('echo from a child')\n"
        "    def predict_batch(self, states, questions, **options):\n"
        "        os.write(1, b'noise')\n"
        "        return [[sys.stdin.read(), options]]\n"
    )
    # The worker ignores PYTHONPATH on purpose, so the stand-in comes in through an interpreter of its own.
    python = tmp_path / "python"
    worker = Path(engine.__file__).with_name("worker.py")
    start = f"import runpy, sys; sys.path.insert(0, {str(tmp_path)!r}); runpy.run_path({str(worker)!r}, run_name='__main__')"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -I -c "{start}"\n')
    python.chmod(0o755)
    with Side("stand-in", str(python), {"batch_size": 2}) as side:
        side.load(CHECKPOINT)
        assert side.about["threads"] == 7
        assert side.predict(["a"], {}).results == [["", {"batch_size": 2}]]


def test_worker_that_dies_is_told_with_its_last_words(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho too bad >&2\nexit 3\n")
    python.chmod(0o755)
    with Side("peer", str(python)) as side, pytest.raises(WorkerError, match="peer: the worker ended early: too bad"):
        side.load(CHECKPOINT)


def test_padded_copy_adds_a_zero_pooler_and_changes_no_answer(tmp_path: Path, results: list[Any]) -> None:
    padded = tmp_path / "mini"
    assert pad_pooler(CHECKPOINT, padded)
    before, after = load_file(CHECKPOINT / "model.safetensors"), load_file(padded / "model.safetensors")
    assert {name: after[name].shape for name in after.keys() - before.keys()} == {
        "encoder.pooler.dense.weight": (384, 384),
        "encoder.pooler.dense.bias": (384,),
    }
    assert not any(after[name].any() for name in after.keys() - before.keys())
    assert list(laya.load(str(padded), device="cpu").predict_batch(STATES, QUESTIONS)) == results
    assert not pad_pooler(padded, tmp_path / "twice")


# differences


def test_equal_results_do_not_differ(results: list[Any]) -> None:
    difference = compare(results, copy.deepcopy(results))
    assert (difference.largest, difference.where, difference.same) == (0, "", True)


def test_a_changed_number_is_found(results: list[Any]) -> None:
    other = copy.deepcopy(results)
    other[2]["answers"]["topic"]["action"]["act_probability"] += 0.01
    difference = compare(results, other)
    assert difference.largest == pytest.approx(0.01)
    assert difference.where == "[2].answers.topic.action.act_probability"
    assert not difference.same


def test_a_small_difference_is_measured_and_allowed(results: list[Any]) -> None:
    other = copy.deepcopy(results)
    other[0]["answers"]["urgency"]["score"] += 0.0001
    difference = compare(results, other)
    assert difference.largest == pytest.approx(0.0001)
    assert difference.same


@pytest.mark.parametrize(
    ("change", "flipped"),
    [
        ({"topic": {"type": "choice", "choice": "b", "probabilities": {"a": 0.4999, "b": 0.5001}}}, "topic"),
        ({"level": {"type": "score", "probabilities": {"0": 0.4999, "1": 0.5001}}}, "level"),
        ({"reply": {"type": "noul", "noul": 0.5002}}, "reply"),
    ],
)
def test_a_changed_decision_is_found_however_small_the_difference(change: dict[str, Any], flipped: str) -> None:
    answers = {
        "topic": {"type": "choice", "choice": "a", "probabilities": {"a": 0.5001, "b": 0.4999}},
        "level": {"type": "score", "probabilities": {"0": 0.5001, "1": 0.4999}},
        "reply": {"type": "noul", "noul": 0.4999},
    }
    difference = compare([{"answers": answers}], [{"answers": answers | change}])
    assert difference.largest < 1e-3
    assert difference.flipped == (f"[0].answers.{flipped}",)
    assert not difference.same


@pytest.mark.parametrize("path", [("model",), ("usage", "truncated"), ("answers", "topic", "confidence")])
@pytest.mark.parametrize("value", ["other", None, float("nan"), 1])
def test_whatever_else_differs_is_found(results: list[Any], path: tuple[str, ...], value: Any) -> None:
    other = copy.deepcopy(results)
    part = other[1]
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    assert not compare(results, other).same


def test_a_missing_result_or_answer_is_found(results: list[Any]) -> None:
    other = copy.deepcopy(results)
    del other[0]["answers"]["reply"]
    assert compare(results, other).flipped == ("[0].answers.reply",)
    assert compare(results, results[:-1]).unlike == ("",)


# rounds, report, command line


class Scripted:
    def __init__(self, name: str, log: list[str]) -> None:
        self.name, self.log = name, log

    def predict(self, *_: object) -> Run:
        self.log.append(self.name)
        return Run(1.0, [self.name])


def test_sides_take_turns_in_flipped_order() -> None:
    log: list[str] = []
    turns = take_turns([Scripted("a", log), Scripted("b", log)], 3, [])  # type: ignore[list-item]
    assert "".join(log) == "abbaab"
    assert [[run.results for run in runs] for runs in turns] == [[["a"], ["b"]]] * 3


ABOUT = {"laya": "1", "torch": "2", "threads": 3, "precision": "", "reason": ""}


def test_report_takes_medians_of_times_and_of_paired_ratios(results: list[Any]) -> None:
    moved = copy.deepcopy(results)
    probabilities = moved[0]["answers"]["topic"]["probabilities"]
    for label, shift in zip(probabilities, (0.004, -0.004), strict=False):
        probabilities[label] += shift
    settings = [
        (Setting("ours, fp32", True, True), ABOUT),
        (Setting("ours, auto", True, False), {**ABOUT, "precision": "bfloat16", "reason": "it pays"}),
        (Setting("peer", False, True), ABOUT),
        (Setting("peer, fast", False, False), ABOUT),
        (Setting("peer, sorted", False, True), ABOUT),
    ]
    seconds = [(1.0, 0.5, 4.0, 1.0, 2.0), (2.0, 1.0, 9.0, 2.0, 8.0), (4.0, 2.0, 16.0, 4.0, 12.0)]
    turns = [[Run(time, moved if index == 1 else results) for index, time in enumerate(times)] for times in seconds]
    counted = matrices(CHECKPOINT)
    report = summarize(settings, turns, {"float32": 1e12, "bfloat16": 4e12}, counted, "mini", 0, [])
    assert [side.median_seconds for side in report.sides] == [2.0, 1.0, 9.0, 2.0, 8.0]
    assert [(found.ours, found.peer, found.ratio) for found in report.comparisons] == [
        ("ours, fp32", "as it comes: peer", 4.0),
        ("ours, fp32", "its best in fp32: peer, sorted", 3.0),
        ("ours, fp32", "its best: peer, fast", 1.0),
        ("ours, auto", "as it comes: peer", 8.0),
        ("ours, auto", "its best in fp32: peer, sorted", 6.0),
        ("ours, auto", "its best: peer, fast", 2.0),
    ]
    assert report.tokens == sum(result["usage"]["input_tokens"] for result in results)
    assert report.sides[0].decisions_per_second == 12 / 2.0
    assert report.useful_flops == {"ours, fp32": counted.useful * report.tokens, "ours, auto": 2 * counted.useful * report.tokens}
    assert report.same
    assert report.sides[1].difference is not None
    assert report.sides[1].difference.largest == pytest.approx(0.004)


def test_half_precision_may_move_a_little_and_decide_what_nothing_decided(results: list[Any]) -> None:
    def answered(share: float) -> list[Any]:
        return [{"answers": {"q": {"type": "noul", "noul": share, "confidence": share}}}]

    for ours, theirs, same in ((0.495, 0.503, True), (0.495, 0.507, False), (0.485, 0.494, True), (0.4905, 0.5, True)):
        assert compare(answered(ours), answered(theirs), reduced=True).same is same
    assert compare(answered(0.48), answered(0.509), reduced=True).flipped
    assert not compare(answered(0.495), answered(0.503)).same


def test_work_is_counted_by_the_matrices_of_the_checkpoint() -> None:
    layer = 4 * 384 * 384 + 2 * 384 * 1536
    counted = matrices(CHECKPOINT)
    assert counted.useful == 5 * layer
    assert counted.executed == 4 * layer + 2 * 384 * 384
    assert flops(counted.useful, 10) == 100 * layer
    assert matmul_rate(0.01) > 1e6
    assert matmul_rate(0.01, "bfloat16") > 1e6


def test_a_modernbert_has_gates(tmp_path: Path) -> None:
    (tmp_path / "encoder").mkdir()
    (tmp_path / "encoder" / "config.json").write_text(json.dumps(ENCODERS["modernbert-base"]))
    (tmp_path / "rl_agent_config.json").write_text('{"head_layers": 2}')
    assert matrices(tmp_path).useful == 22 * (4 * 768 * 768 + 3 * 768 * 1152) + 2 * 12 * 768 * 768


@pytest.mark.parametrize(
    "arguments", [["--rounds", "0"], ["--states", "x"], ["--json", "/no/such/folder/a.json"], ["--peer", "/no/such/python"], ["--what"]]
)
def test_bad_arguments_end_with_2_and_one_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.slow
def test_one_side_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--states", "4", "--rounds", "2", "--json", str(tmp_path / "bench.json")]) == 0
    said = json.loads((tmp_path / "bench.json").read_text())
    assert [side["name"] for side in said["sides"]] == ["ours, fp32", "ours, auto"]
    assert len(said["sides"][0]["seconds"]) == 2
    assert said["comparisons"] == []
    assert "--help says how to set up the peer" in " ".join(capsys.readouterr().out.split())


@pytest.mark.slow
def test_two_sides(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--states", "2", "--rounds", "1", "--peer", sys.executable]
    monkeypatch.setattr(engine, "PEER", (PEER[0], PEER[2]))
    report = engine.measure(sys.executable, rounds=1, count=2, seed=0)
    assert [side.laya for side in report.sides] == [laya.__version__] * 4
    assert report.notes == []
    monkeypatch.setattr(engine, "measure", lambda *_: report)
    assert main(arguments) == 0
    spoilt = Difference(0.5, "[0].answers.topic.confidence", (), ("[1].answers.reply",))
    report.sides[2] = dataclasses.replace(report.sides[2], difference=spoilt)
    capsys.readouterr()
    assert main(arguments) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "peer: THE ANSWERS DIFFER: numbers differ by up to 0.5 (at [0].answers.topic.confidence); decisions differ (1," in said
