"""A long document that several agents read: the same answer as one agent gives, whatever happens on the way."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest

import laya
from cluster import ClusterRouter
from cluster.sharing import SHARED_WINDOWS, SLICE_WINDOWS, read_together
from laya.scanning import SharedScan
from laya.windows import merge
from tests.chaos.support import kill
from tests.patience import start, until

QUESTIONS = {
    "team": {"type": "choice", "instructions": "Which team?", "criteria": ["billing", "delivery", "technical"]},
    "urgency": {"type": "score", "instructions": "How urgent?", "criteria": ["low", "middle", "high"]},
    "angry": {"type": "noul", "instructions": "The writer is angry"},
}
SMALL: dict[str, Any] = {"max_len": 64, "head_max_len": 40}
"""Budgets that make many windows of few tokens."""


def words(count: int) -> str:
    return " ".join(f"word{index % 97} {'late' if index % 13 else 'charged twice!'}" for index in range(count))


def noul(share: float) -> dict[str, Any]:
    return {"answers": {"q": {"type": "noul", "noul": share, "answer_confidence": max(share, 1 - share)}}, "usage": {"input_tokens": 3}}


class TestReadTogether:
    def scan(self, windows: int) -> SharedScan:
        starts = np.arange(windows)
        return SharedScan(np.arange(windows + 1, dtype=np.int32), np.stack([starts, starts + 2], axis=1))

    def test_it_merges_in_order_whatever_comes_back_first(self):
        scan = self.scan(10 * SLICE_WINDOWS + 3)
        results = [noul((index * 37 % 101) / 101) for index in range(len(scan.spans))]
        turns = threading.Semaphore(0)

        def score(windows):
            first = int(windows[0][0])
            if first == 0:  # the first slice is done after the second
                assert turns.acquire(timeout=30)
            elif first == SLICE_WINDOWS:
                turns.release()
            return [results[int(ids[0])] for ids in windows]

        assert read_together(scan, 2, score) == merge(results, len(results), scan.windows())

    def test_no_more_is_under_way_than_replicas_are_kept_busy_with(self):
        scan, lock = self.scan(40 * SLICE_WINDOWS), threading.Lock()
        running, most, done = 0, 0, 0

        def score(windows):
            nonlocal running, most, done
            with lock:
                running += 1
                most = max(most, running)
            time.sleep(0.002)
            with lock:
                running -= 1
                done += 1
            return [noul(0.5)] * len(windows)

        read_together(scan, 3, score)
        assert most <= 6
        assert done == 40

    def test_an_error_ends_it_and_what_has_not_begun_never_does(self):
        scan, asked = self.scan(100 * SLICE_WINDOWS), []

        def score(windows):
            asked.append(int(windows[0][0]))
            raise ValueError("no")

        with pytest.raises(ValueError, match="no"):
            read_together(scan, 1, score)
        assert len(asked) <= 4

    def test_a_window_that_was_read_in_part_is_not_named(self):
        scan = self.scan(2)
        cut = {**noul(0.9), "usage": {"truncated": True}}
        assert "window" not in read_together(scan, 1, lambda windows: [cut, cut])["answers"]["q"]


@pytest.fixture(scope="module")
def router(ray_session, quiet_folder):
    router = ClusterRouter(
        {"tiny": str(quiet_folder)}, max_loaded=2, default="tiny", name="sharing-router", num_cpus=1, min_residency_s=0.1
    )
    router.scale("tiny", 2)
    yield router
    router.close()


@pytest.fixture(scope="module")
def alone(quiet_folder):
    return laya.load(str(quiet_folder), device="cpu")


def same(found, expected):
    assert found["usage"] == expected["usage"]
    assert list(found["answers"]) == list(expected["answers"])
    for qid, answer in expected["answers"].items():
        assert found["answers"][qid]["window"] == answer["window"]
        assert found["answers"][qid]["answer_confidence"] == pytest.approx(answer["answer_confidence"], abs=1e-3)


def replicas(router) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [replica for replica in router.status()["replicas"] if replica["report"] is not None]
    return found


def all_read(router) -> bool:
    found = replicas(router)
    return len(found) == 2 and all(replica["report"]["in_flight"] > 0 for replica in found)


class TestCluster:
    @pytest.mark.parametrize(
        "options", [{}, pytest.param({"window": 12, "stride": 12, "lang": "de", "batch_size": 3}, marks=pytest.mark.slow)]
    )
    def test_it_answers_as_one_agent_does(self, router, alone, options):
        text = words(2000)
        expected = alone.predict_long(text, QUESTIONS, **options, **SMALL)
        assert expected["usage"]["windows"] > 2 * SHARED_WINDOWS
        found = router.predict_long(text, QUESTIONS, model="tiny", **options, **SMALL)
        assert found.pop("routing")["model"] == "tiny"
        same(found, expected)

    def test_a_gate_marks_the_merged_answer_and_a_wide_window_warns_once(self, router, alone):
        text = words(2000)
        with pytest.warns(RuntimeWarning, match="more than the questions leave room for") as told:
            found = router.predict_long(text, QUESTIONS, model="tiny", window=10**6, min_confidence=1.0, **SMALL)
        assert len(told) == 1
        assert {answer["abstention"] for answer in found["answers"].values()} == {"abstained"}

    def test_a_short_document_stays_with_one_agent(self, router, alone):
        text = words(60)
        expected = alone.predict_long(text, QUESTIONS, **SMALL)
        assert 1 < expected["usage"]["windows"] < SHARED_WINDOWS
        same(router.predict_long(text, QUESTIONS, model="tiny", **SMALL), expected)

    def test_bad_arguments_are_refused_as_ever(self, router):
        for options in ({"stride": 10**6}, {"aggregate": "mean"}, {"min_confidence": 2.0}):
            with pytest.raises(ValueError, match=next(iter(options))):
                router.predict_long(words(2000), QUESTIONS, model="tiny", **options, **SMALL)

    @pytest.mark.slow
    def test_an_agent_that_dies_meanwhile_is_made_up_for(self, router, alone):
        text = words(12_000)
        expected = alone.predict_long(text, QUESTIONS, **SMALL)
        reading = start(lambda: router.predict_long(text, QUESTIONS, model="tiny", **SMALL))
        until(lambda: reading.done() or all_read(router), "both replicas are reading")
        assert not reading.done(), "it was over before an agent could be killed"
        kill(replicas(router)[0]["pid"])
        same(reading.result(120), expected)

    @pytest.mark.slow
    def test_short_calls_are_answered_between_its_slices(self, router):
        reading = start(lambda: router.predict_long(words(20_000), QUESTIONS, model="tiny", **SMALL))
        until(lambda: reading.done() or all_read(router), "both replicas are reading")
        for _ in range(20):
            router.predict("where is my parcel?", QUESTIONS, model="tiny")
        assert not reading.done(), "the short calls waited for the whole document"
        assert reading.result(120)["usage"]["windows"] > 1000
