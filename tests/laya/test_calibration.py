"""Temperatures of a checkpoint: which one a question gets, and what happens to unusable ones."""

from __future__ import annotations

import json
import math
import warnings
from pathlib import Path
from typing import Any

import pytest

from laya import CheckpointError
from laya.calibration import LangTemperatures, Temperatures, option_bucket
from laya.questions import Question, parse_questions

SOURCE = "some/rl_agent_config.json"


def choice(n: int) -> Question:
    return parse_questions({"q": {"type": "choice", "instructions": "x", "criteria": [f"l{index}" for index in range(n)]}})[0]


def score(n: int) -> Question:
    return parse_questions({"q": {"type": "score", "instructions": "x", "criteria": [f"l{index}" for index in range(n)]}})[0]


NOUL = parse_questions({"q": {"type": "noul", "instructions": "x"}})[0]


@pytest.mark.parametrize(
    ("n", "bucket"), [(1, "2"), (2, "2"), (3, "3-5"), (5, "3-5"), (6, "6-10"), (10, "6-10"), (11, "11+"), (400, "11+")]
)
def test_buckets(n: int, bucket: str) -> None:
    assert option_bucket(n) == bucket


def test_one_temperature_a_type() -> None:
    temperatures = Temperatures.from_config({"temperature": [1.2, 1.1, 0.9]}, SOURCE)
    assert [temperatures.of(question) for question in (choice(3), score(3), NOUL)] == [1.2, 1.1, 0.9]


def test_that_of_the_options_comes_first() -> None:
    by_options = {"choice:2": 1.3, "choice:3-5": 1.5, "score:6-10": 0.8, "choice:11+": 2.5, "noul:2": 3.0}
    temperatures = Temperatures.from_config({"temperature": [1.2, 1.1, 0.9], "temperature_by_options": by_options}, SOURCE)
    assert [temperatures.of(choice(n)) for n in (1, 2, 3, 5, 6, 10, 11)] == [1.3, 1.3, 1.5, 1.5, 1.2, 1.2, 2.5]
    assert [temperatures.of(score(n)) for n in (2, 5, 6, 10, 11)] == [1.1, 1.1, 0.8, 0.8, 1.1]
    assert temperatures.of(NOUL) == 3.0


def test_without_any_it_is_one() -> None:
    assert [Temperatures.from_config({}, SOURCE).of(question) for question in (choice(2), score(2), NOUL)] == [1.0] * 3


@pytest.mark.parametrize(
    ("value", "used"),
    [
        pytest.param(0.1006, 0.5, id="too small"),
        pytest.param(9.0, 5.0, id="too large"),
        pytest.param(0, 0.5, id="zero"),
        pytest.param(-2, 0.5, id="negative"),
        pytest.param(True, 1.0, id="a bool is no number"),
        pytest.param(None, 1.0, id="null"),
        pytest.param("warm", 1.0, id="text"),
        pytest.param([1.0], 1.0, id="list"),
        pytest.param(math.nan, 1.0, id="NaN"),
        pytest.param(math.inf, 1.0, id="infinity"),
        pytest.param(-math.inf, 1.0, id="negative infinity"),
        pytest.param(10**400, 1.0, id="an int beyond any float"),
    ],
)
def test_unusable_ones_are_replaced_and_named(value: Any, used: float) -> None:
    with pytest.warns(RuntimeWarning) as caught:
        temperatures = Temperatures.from_config({"temperature": [2.0, value, 2.0]}, SOURCE)
    assert temperatures.by_type == (2.0, used, 2.0)
    assert len(caught) == 1
    message = str(caught[0].message)
    assert SOURCE in message
    assert "temperature[1]" in message
    assert "temperature[0]" not in message
    assert f"by {used}" in message


@pytest.mark.parametrize("value", [0.5, 5.0, 1, "1.5"])
def test_what_float_takes_is_a_number(value: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        temperatures = Temperatures.from_config({"temperature": [value, 1.0, 1.0]}, SOURCE)
    assert temperatures.of(choice(3)) == float(value)


def test_one_warning_names_everything_that_was_replaced() -> None:
    config = {"temperature": [0.1, 1.0, None], "temperature_by_options": {"choice:2": 70, "score:2": 1.5, "noul:2": False}}
    with pytest.warns(RuntimeWarning) as caught:
        temperatures = Temperatures.from_config(config, SOURCE)
    assert len(caught) == 1
    message = str(caught[0].message)
    assert all(name in message for name in ("temperature[0]", "temperature[2]", "choice:2", "noul:2"))
    assert "score:2" not in message
    assert (temperatures.of(choice(2)), temperatures.of(score(2)), temperatures.of(NOUL)) == (5.0, 1.5, 1.0)


@pytest.mark.parametrize("listed", [[], [1.0], [1.0, 1.0], [1.0] * 4, 1.0, "1.0", {"choice": 1.0}, None])
def test_wrong_length_is_refused(listed: Any) -> None:
    with pytest.raises(ValueError, match=rf"{SOURCE}.*temperature"):
        Temperatures.from_config({"temperature": listed}, SOURCE)


@pytest.mark.parametrize("named", [[], 1.0, "choice:2"])
def test_temperature_by_options_is_a_mapping(named: Any) -> None:
    with pytest.raises(ValueError, match=rf"{SOURCE}.*temperature_by_options"):
        Temperatures.from_config({"temperature_by_options": named}, SOURCE)


BY_LANG: dict[str, Any] = {
    "de": {"temperature": [2.0, None, 3.0], "temperature_by_options": {"choice:3-5": 4.0}},
    "fr": {"temperature_by_options": {"score:3-5": 0.6}},
    "nl": {"temperature": [1.7, 1.8, 1.9]},
    "pl": {},
}
GENERAL = {"temperature": [1.2, 1.1, 0.9], "temperature_by_options": {"choice:2": 1.3, "choice:3-5": 1.5, "score:3-5": 0.8}}
EVERYTHING = {**GENERAL, "lang_temperatures": BY_LANG}
ASKED = (choice(2), choice(3), choice(6), score(3), score(6), NOUL)


class TestByLanguage:
    """The language's own of the options, its own of the type, the general of the options, the general of the type."""

    @pytest.mark.parametrize(
        ("lang", "found"),
        [
            pytest.param(None, [1.3, 1.5, 1.2, 0.8, 1.1, 0.9], id="none"),
            pytest.param("de", [2.0, 4.0, 2.0, 0.8, 1.1, 3.0], id="both parts, the type in part"),
            pytest.param("fr", [1.3, 1.5, 1.2, 0.6, 1.1, 0.9], id="only of the options"),
            pytest.param("nl", [1.7, 1.7, 1.7, 1.8, 1.8, 1.9], id="only of the type"),
            pytest.param("pl", [1.3, 1.5, 1.2, 0.8, 1.1, 0.9], id="empty"),
            pytest.param("es", [1.3, 1.5, 1.2, 0.8, 1.1, 0.9], id="unknown"),
        ],
    )
    def test_the_order(self, lang: str | None, found: list[float]) -> None:
        temperatures = Temperatures.from_config(EVERYTHING, SOURCE)
        assert [temperatures.of(question, lang) for question in ASKED] == found

    @pytest.mark.parametrize("code", ["de-AT", "de_AT.UTF-8", "DE", " de "])
    def test_codes_are_matched_by_their_language(self, code: str) -> None:
        assert Temperatures.from_config(EVERYTHING, SOURCE).of(choice(3), code) == 4.0
        written = {"lang_temperatures": {code: BY_LANG["de"]}}
        assert Temperatures.from_config(written, SOURCE).of(choice(3), "de") == 4.0

    @pytest.mark.parametrize("code", ["", "C", "und", "mul"])
    def test_a_code_that_says_nothing_is_no_language(self, code: str) -> None:
        assert Temperatures.from_config(EVERYTHING, SOURCE).of(choice(3), code) == 1.5

    def test_one_warning_names_what_was_replaced_in_all_of_them(self) -> None:
        config = {
            "temperature": [0.1, 1.0, 1.0],
            "lang_temperatures": {"de": {"temperature": [9, None, True]}, "fr-CA": {"temperature_by_options": {"choice:2": 0}}},
        }
        with pytest.warns(RuntimeWarning) as caught:
            temperatures = Temperatures.from_config(config, SOURCE)
        assert len(caught) == 1
        message = str(caught[0].message)
        assert all(name in message for name in ("temperature[0]", "'de'].temperature[0]", "'de'].temperature[2]", "'fr-CA'", "choice:2"))
        assert "'de'].temperature[1]" not in message
        assert temperatures.by_lang == {"de": LangTemperatures((5.0, None, 1.0)), "fr": LangTemperatures(by_options={"choice:2": 0.5})}

    @pytest.mark.parametrize(
        "languages",
        [
            pytest.param(None, id="null"),
            pytest.param([["de", {}]], id="a list"),
            pytest.param({"de": [1.0, 1.0, 1.0]}, id="no mapping in it"),
            pytest.param({"de": {"temperature": [1.0]}}, id="too few"),
            pytest.param({"de": {"temperature": None}}, id="no list"),
            pytest.param({"de": {"temperature_by_options": 1.0}}, id="options that are no mapping"),
            pytest.param({"de": {"temperatures": [1.0, 1.0, 1.0]}}, id="an unknown key"),
            pytest.param({"und": {}}, id="a code that says nothing"),
            pytest.param({7: {}}, id="no code"),
            pytest.param({"de": {}, "de-AT": {}}, id="one language twice"),
        ],
    )
    def test_what_is_not_of_the_form_is_refused(self, languages: Any) -> None:
        with pytest.raises(CheckpointError, match=rf"{SOURCE}.*lang_temperatures"):
            Temperatures.from_config({"lang_temperatures": languages}, SOURCE)

    def test_some_languages_are_replaced_whole_and_the_others_stay(self) -> None:
        before = Temperatures.from_config(EVERYTHING, SOURCE)
        after = before.with_languages({"de-DE": {"temperature": (None, 1.4, None)}, "it": {"temperature": [1.0, 1.0, 1.0]}})
        assert [after.of(question, "de") for question in ASKED] == [1.3, 1.5, 1.2, 1.4, 1.4, 0.9]
        assert [after.of(question, "it") for question in ASKED] == [1.0] * 6
        for lang in ("fr", "nl", None):
            assert [after.of(question, lang) for question in ASKED] == [before.of(question, lang) for question in ASKED]
        assert before == Temperatures.from_config(EVERYTHING, SOURCE)


class TestFiles:
    @pytest.mark.parametrize(
        "temperatures",
        [
            Temperatures(),
            Temperatures((1.23456789, 0.5, 5.0), {"choice:11+": 1 / 1.3}),
            Temperatures.from_config(EVERYTHING, SOURCE),
        ],
    )
    def test_what_is_saved_is_loaded(self, temperatures: Temperatures, tmp_path: Path) -> None:
        temperatures.save(tmp_path / "calibration.json")
        assert Temperatures.load(str(tmp_path / "calibration.json")) == temperatures
        assert [path.name for path in tmp_path.iterdir()] == ["calibration.json"]

    def test_a_file_reads_like_a_config(self, tmp_path: Path) -> None:
        path = tmp_path / "calibration.json"
        Temperatures.from_config(EVERYTHING, SOURCE).save(path)
        written = json.loads(path.read_text(encoding="utf-8"))
        assert list(written) == ["temperature", "temperature_by_options", "lang_temperatures"]
        assert Temperatures.from_config({**written, "encoder": "some"}, SOURCE) == Temperatures.load(path)
        assert path.read_text(encoding="utf-8").count("\n") > 10

    def test_a_save_that_fails_leaves_the_old_file_and_nothing_else(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = tmp_path / "calibration.json"
        Temperatures().save(path)

        def full(*_: Any, **__: Any) -> None:
            raise OSError("no space left")

        monkeypatch.setattr(Path, "replace", full)
        with pytest.raises(OSError, match="no space"):
            Temperatures((2.0, 2.0, 2.0)).save(path)
        assert Temperatures.load(path) == Temperatures()
        assert [found.name for found in tmp_path.iterdir()] == ["calibration.json"]

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "[1.0, 1.0, 1.0]",
            "{}",
            '{"encoder": "some"}',
            '{"temperature": [1.0]}',
            '{"temperature": [1, 1, 1], "lang_temperatures": 7}',
        ],
    )
    def test_what_is_no_calibration_file_is_named(self, text: str, tmp_path: Path) -> None:
        path = tmp_path / "mine.json"
        path.write_text(text, encoding="utf-8")
        with pytest.raises(CheckpointError, match=r"mine\.json"):
            Temperatures.load(path)

    def test_one_that_is_not_there_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(CheckpointError, match="nowhere"):
            Temperatures.load(tmp_path / "nowhere.json")

    def test_its_values_are_looked_over(self, tmp_path: Path) -> None:
        path = tmp_path / "mine.json"
        path.write_text('{"temperature": [9, 1, NaN]}', encoding="utf-8")
        with pytest.warns(RuntimeWarning, match=r"mine\.json.*temperature\[0\].*temperature\[2\]"):
            assert Temperatures.load(path).by_type == (5.0, 1.0, 1.0)
