"""Fitted temperatures: what they recover, which groups get one, what is refused; and the loop from known answers to an agent."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import laya
from laya import CalibrationRecord, Temperatures, fit_temperatures
from laya.calibration import LangTemperatures
from laya.fitting import right_slots
from laya.questions import parse_questions


def drawn(kind: str, n: int, temperature: float, count: int, seed: int = 0, lang: str | None = None) -> list[CalibrationRecord]:
    """Records whose truths are drawn with the probabilities that the logits have at a temperature."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 2, (count, n))
    weights = np.exp(logits / temperature)
    shares = (weights / weights.sum(1, keepdims=True)).cumsum(1)
    truths = (rng.random((count, 1)) > shares).sum(1).clip(0, n - 1)
    return [CalibrationRecord(kind, tuple(row), int(truth), lang) for row, truth in zip(logits.tolist(), truths, strict=True)]


def loss(records: Sequence[CalibrationRecord], temperature: float) -> float:
    """Mean negative log-likelihood."""
    return float(
        np.mean(
            [np.logaddexp.reduce(np.array(record.logits) / temperature) - record.logits[record.truth] / temperature for record in records]
        )
    )


def sure(right: int, count: int, kind: str = "choice", margin: float = 1.0) -> list[CalibrationRecord]:
    """Records of two options, all with the same logits, some of them right."""
    return [CalibrationRecord(kind, (margin, 0.0), 0 if index < right else 1) for index in range(count)]


class TestFit:
    @pytest.mark.parametrize("kind", ["choice", "score", "noul"])
    @pytest.mark.parametrize("temperature", [0.6, 1.0, 1.7, 3.5])
    def test_finds_the_temperature_that_truths_were_drawn_with(self, kind: str, temperature: float) -> None:
        records = drawn(kind, 2 if kind == "noul" else 4, temperature, 8000)
        found = fit_temperatures(records).by_type[("choice", "score", "noul").index(kind)]
        assert found == pytest.approx(temperature, rel=0.1)
        assert loss(records, found) <= loss(records, temperature) + 1e-9

    def test_the_loss_falls(self) -> None:
        records = drawn("choice", 4, 2.5, 2000)
        assert loss(records, fit_temperatures(records).by_type[0]) < loss(records, 1.0) - 0.1

    def test_is_the_one_of_least_loss(self) -> None:
        records = [*drawn("choice", 2, 2.2, 300), *drawn("choice", 7, 1.4, 300)]
        best = fit_temperatures(records).by_type[0]
        assert loss(records, best) <= min(loss(records, best * (1 + step)) for step in (-0.2, -0.01, 0.01, 0.2))

    def test_by_hand(self) -> None:
        """Three of four right at logits (1, 0): the probability of the first is 3/4 where 1 / t = ln 3."""
        found = fit_temperatures(sure(75, 100)).by_type[0]
        assert found == pytest.approx(1 / math.log(3), abs=1e-4)

    @pytest.mark.parametrize(
        ("records", "bound"),
        [
            pytest.param(sure(100, 100), 0.5, id="all right"),
            pytest.param(sure(50, 100), 5.0, id="no better than chance"),
            pytest.param(sure(0, 100), 5.0, id="all wrong"),
            pytest.param(sure(90, 100, margin=100.0), 5.0, id="far too sure"),
            pytest.param(sure(90, 100, margin=1e-3), 0.5, id="far too unsure"),
        ],
    )
    def test_ends_at_the_bounds_exactly(self, records: list[CalibrationRecord], bound: float) -> None:
        assert fit_temperatures(records).by_type[0] == bound

    def test_huge_logits_overflow_nothing(self) -> None:
        assert fit_temperatures(sure(90, 100, margin=1e6)).by_type[0] == 5.0

    @given(st.lists(st.tuples(st.lists(st.floats(-50, 50), min_size=2, max_size=4), st.integers(0, 1)), min_size=1, max_size=20))
    def test_stays_within_the_bounds_and_never_loses_to_one(self, rows: list[tuple[list[float], int]]) -> None:
        records = [CalibrationRecord("score", logits, truth) for logits, truth in rows]
        found = fit_temperatures(records, min_records=1).by_type[1]
        assert 0.5 <= found <= 5.0
        assert loss(records, found) <= loss(records, 1.0) + 1e-6


class TestGroups:
    def test_types_and_buckets(self) -> None:
        records = [
            *drawn("choice", 2, 0.7, 4000, 1),
            *drawn("choice", 4, 2.0, 4000, 2),
            *drawn("choice", 12, 3.0, 49, 3),
            *drawn("noul", 2, 1.5, 4000, 4),
        ]
        found = fit_temperatures(records)
        assert found.by_type[0] == pytest.approx(1.3, abs=0.5)
        assert found.by_type[1] == 1.0
        assert found.by_type[2] == pytest.approx(1.5, rel=0.1)
        assert found.by_options == pytest.approx({"choice:2": 0.7, "choice:3-5": 2.0, "noul:2": 1.5}, rel=0.1)
        assert found.by_lang == {}

    def test_languages(self) -> None:
        records = [
            *drawn("choice", 4, 1.0, 4000, 1, "en"),
            *drawn("choice", 4, 3.0, 2000, 2, "de"),
            *drawn("choice", 4, 3.0, 2000, 3, "de-AT"),
            *drawn("score", 3, 2.0, 49, 4, "de"),
            *drawn("score", 3, 2.0, 60, 5, "und"),
            *drawn("choice", 4, 2.0, 49, 6, "fr"),
        ]
        found = fit_temperatures(records)
        assert set(found.by_lang) == {"en", "de"}
        german = found.by_lang["de"]
        assert german.by_type[0] == pytest.approx(3.0, rel=0.1)
        assert german.by_type[1:] == (None, None)
        assert german.by_options == {"choice:3-5": german.by_type[0]}
        assert found.by_lang["en"].by_type[0] == pytest.approx(1.0, rel=0.1)
        # All languages make up the general ones.
        assert 1.2 < found.by_type[0] < 2.7

    def test_a_language_of_thin_types_has_none(self) -> None:
        records = [*drawn("choice", 4, 2.0, 60), *drawn("choice", 4, 2.0, 30, lang="de"), *drawn("noul", 2, 2.0, 60, lang=None)]
        records += drawn("noul", 2, 2.0, 30, lang="de")
        assert fit_temperatures(records).by_lang == {}

    @pytest.mark.parametrize(("count", "min_records", "own"), [(49, 50, False), (50, 50, True), (50, 51, False), (3, 3, True)])
    def test_min_records(self, count: int, min_records: int, own: bool) -> None:
        records = [*drawn("choice", 2, 2.0, 100), *drawn("choice", 4, 2.0, count, lang="de")]
        found = fit_temperatures(records, min_records=min_records)
        assert ("choice:3-5" in found.by_options) is own
        assert found.by_lang.get("de", LangTemperatures()).by_options.keys() == ({"choice:3-5"} if own else set())

    def test_a_thin_type_is_fitted_and_told(self) -> None:
        records = [*sure(30, 40, "choice"), *sure(75, 100, "score"), *sure(3, 4, "noul")]
        with pytest.warns(RuntimeWarning) as caught:
            found = fit_temperatures(records)
        assert found.by_type == pytest.approx((0.9102,) * 3, abs=1e-4)
        assert set(found.by_options) == {"score:2"}
        assert len(caught) == 1
        assert "choice (40)" in str(caught[0].message)
        assert "noul (4)" in str(caught[0].message)
        assert "score" not in str(caught[0].message)

    def test_one_option_says_nothing(self) -> None:
        records = drawn("choice", 2, 2.0, 100)
        lone = [CalibrationRecord("choice", (float(index),), 0, "de") for index in range(100)]
        assert fit_temperatures([*lone, *records]) == fit_temperatures(records)

    def test_the_order_of_records_changes_nothing(self) -> None:
        records = [*drawn("choice", 2, 2.0, 100, lang="de"), *drawn("choice", 4, 2.0, 100), *drawn("noul", 2, 1.2, 100, lang="fr")]
        found, turned = fit_temperatures(records), fit_temperatures(records[::-1])
        assert found.by_type == pytest.approx(turned.by_type, abs=2e-4)
        assert found.by_options == pytest.approx(turned.by_options, abs=2e-4)
        assert found.by_lang.keys() == turned.by_lang.keys()


class TestRecords:
    def test_dicts_are_records_too(self) -> None:
        records = drawn("choice", 3, 2.0, 60, lang="de")
        dicts = [{"type": each.type, "logits": list(each.logits), "truth": each.truth, "lang": each.lang} for each in records]
        assert fit_temperatures(dicts) == fit_temperatures(records)
        bare = [{key: value for key, value in each.items() if key != "lang"} for each in dicts]
        assert fit_temperatures(bare).by_lang == {}

    def test_numpy_values_and_generators(self) -> None:
        records = drawn("noul", 2, 2.0, 60)
        rows = (CalibrationRecord("noul", np.array(each.logits), np.int64(each.truth)) for each in records)  # type: ignore[arg-type]
        assert fit_temperatures(rows) == fit_temperatures(records)

    GOOD: dict[str, Any] = {"type": "choice", "logits": [1.0, 0.0], "truth": 0}  # noqa: RUF012 read only

    @pytest.mark.parametrize(
        ("change", "told"),
        [
            *[({"type": kind}, "type") for kind in ("bool", None, ["choice"])],
            *[({"truth": truth}, "truth") for truth in (-1, 2, 0.0, True, None, "0")],
            *[({"logits": logits}, "logits") for logits in ([], [1.0, math.nan], [math.inf, 0.0], [[1.0, 0.0]], None, "ab", [1.0, "x"])],
            ({"lang": 7}, "lang"),
            ({"label": "a"}, "label"),
        ],
    )
    def test_a_wrong_one_is_named(self, change: Any, told: str) -> None:
        with pytest.raises(ValueError, match=rf"records\[1\].*{told}"):
            fit_temperatures([self.GOOD, {**self.GOOD, **change}])

    @pytest.mark.parametrize("record", [None, 7, ("choice", [1.0, 0.0], 0), {"type": "choice", "truth": 0}])
    def test_what_is_no_record(self, record: Any) -> None:
        with pytest.raises(ValueError, match=r"records\[0\]"):
            fit_temperatures([record])

    @pytest.mark.parametrize("records", [[], [{"type": "choice", "logits": [1.0], "truth": 0}]], ids=["none", "one option"])
    def test_nothing_to_fit(self, records: Any) -> None:
        with pytest.raises(ValueError, match="no records"):
            fit_temperatures(records)

    @pytest.mark.parametrize("min_records", [0, -1, 1.5, True, None, "50"])
    def test_min_records_is_a_positive_number(self, min_records: Any) -> None:
        with pytest.raises(ValueError, match="min_records"):
            fit_temperatures([self.GOOD], min_records=min_records)


QUESTIONS: dict[Any, Any] = {
    "team": {"type": "choice", "instructions": "Which desk?", "criteria": ["billing", "technical", "other"], "option_order": [2, 0, 1]},
    "urgency": {"type": "score", "instructions": "How urgent?", "criteria": ["can wait", "this week", "now"]},
    "refund": {"type": "noul", "instructions": "Does the writer want money back?", "option_order": [1, 0]},
    7: {"type": "choice", "instructions": "Which number?", "criteria": [1, 2.5]},
}


class TestRightSlots:
    @pytest.mark.parametrize(
        ("truth", "slots"),
        [
            ({}, {}),
            ({"team": "billing"}, {"team": 1}),
            ({"team": "other", "urgency": 2}, {"team": 0, "urgency": 2}),
            ({"refund": True}, {"refund": 0}),
            ({"refund": False, 7: 2.5}, {"refund": 1, 7: 1}),
        ],
    )
    def test_answers_become_the_slots_that_show_them(self, truth: Any, slots: Any) -> None:
        assert right_slots(parse_questions(QUESTIONS), [truth]) == [slots]

    @pytest.mark.parametrize(
        "truth",
        [{"team": "bilings"}, {"team": None}, {"urgency": 3}, {"urgency": "now"}, {"urgency": -1}, {"refund": "yes"}, {"tem": "billing"}],
    )
    def test_what_is_no_answer_is_named(self, truth: Any) -> None:
        ((qid, answer),) = truth.items()
        with pytest.raises(ValueError, match=rf"truths\[1\].*{'tem' if qid == 'tem' else answer}.*") as caught:
            right_slots(parse_questions(QUESTIONS), [{}, truth])
        assert repr(qid) in str(caught.value)


class TestCalibrationRecords:
    def test_they_hold_the_networks_own_logits_in_slot_order(self, tiny: laya.Agent) -> None:
        states = ["where is my invoice", "late " * 300]
        truths = [{"team": "billing", "refund": True}, {"urgency": 1, "team": "other", "refund": False}]
        records = tiny.calibration_records(states, QUESTIONS, truths, lang="de")
        assert [(record.type, record.truth, record.lang) for record in records] == [
            *[("choice", 1, "de"), ("noul", 0, "de")],
            *[("choice", 0, "de"), ("score", 1, "de"), ("noul", 1, "de")],
        ]
        answers = [result["answers"] for result in tiny.predict_batch(states, QUESTIONS)]
        # The golden checkpoint divides the logits of three labels by 1.5.
        shares = laya.answers.probabilities(records[0].logits, 1.5)
        assert dict(zip(("other", "billing", "technical"), shares, strict=True)) == pytest.approx(
            answers[0]["team"]["probabilities"], abs=1e-3
        )
        # And those of a noul by 5.0, after a warning.
        assert laya.answers.probabilities(records[1].logits, 5.0)[0] == pytest.approx(answers[0]["refund"]["noul"], abs=1e-3)

    def test_no_hooks_fire(self, tiny: laya.Agent, make_hook: Any) -> None:
        hook = make_hook()
        with tiny.hooks_installed(hook):
            tiny.calibration_records(["x"], QUESTIONS, [{"urgency": 0}])
        assert hook.events == []

    @pytest.mark.parametrize("batch_size", [1, 3, None])
    def test_batch_size_changes_no_record(self, batch_size: int | None, tiny: laya.Agent) -> None:
        states = ["one", "two two", "three three three"]
        truths = [{"urgency": 0, "refund": True}] * 3
        wanted = tiny.calibration_records(states, QUESTIONS, truths)
        for found, record in zip(tiny.calibration_records(states, QUESTIONS, truths, batch_size=batch_size), wanted, strict=True):
            assert found.logits == pytest.approx(record.logits, abs=1e-4)

    def test_nothing(self, tiny: laya.Agent) -> None:
        assert tiny.calibration_records([], QUESTIONS, []) == []
        assert tiny.calibration_records(["x"], QUESTIONS, [{}]) == []

    @pytest.mark.parametrize(
        ("states", "truths", "options", "told"),
        [
            (["x"], [], {}, "truths"),
            (["x"], [{}, {}], {}, "truths"),
            (["x"], [{"team": "bilings"}], {}, "bilings"),
            (["x"], [{"team": "other"}], {"batch_size": 0}, "batch_size"),
        ],
    )
    def test_wrong_arguments(self, states: Any, truths: Any, options: Any, told: str, tiny: laya.Agent) -> None:
        with pytest.raises(ValueError, match=told):
            tiny.calibration_records(states, QUESTIONS, truths, **options)

    def test_the_whole_loop(self, mini: laya.Agent, tmp_path: Path) -> None:
        """Answers that are known to be right half of the time lose the confidence that they were given with."""
        questions = {"refund": {"type": "noul", "instructions": "The writer wants money back"}}
        asks, thanks = "I was charged twice and want my money back, order {}.", "Thank you, parcel {} came on time and all is well."
        states = [text.format(index) for index in range(30) for text in (asks, thanks)]
        truths = [{"refund": index % 4 in (0, 3)} for index in range(len(states))]
        records = mini.calibration_records(states, questions, truths, lang="en")
        assert len(records) == 60
        path = tmp_path / "calibration.json"
        fitted = fit_temperatures(records)
        fitted.save(path)
        assert Temperatures.load(path) == fitted
        assert fitted.by_type[2] == fitted.by_options["noul:2"] == fitted.by_lang["en"].by_type[2]
        assert fitted.by_type[2] > 3
        calibrated = laya.load("mini", device="cpu", calibration=str(path))
        before, after = (
            np.mean([result["answers"]["refund"]["answer_confidence"] for result in agent.predict_batch(states, questions)])
            for agent in (mini, calibrated)
        )
        assert 0.5 <= after < before
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            logits = calibrated.calibration_records(states[:2], questions, truths[:2])
        assert [each.logits for each in logits] == [pytest.approx(each.logits, abs=1e-3) for each in records[:2]]
