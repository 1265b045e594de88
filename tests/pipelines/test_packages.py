"""The data set of installed packages: what a model may read of it, and what must stay the answer."""

from __future__ import annotations

import json
from importlib.metadata import Distribution
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml

from laya.questions import parse_questions
from pipelines.packages import LONGEST_DESCRIPTION, package_rows, plain_text, truths, write_installed_packages


class FakeDistribution(Distribution):
    def __init__(self, content: str) -> None:
        self.content = content

    def read_text(self, filename: str) -> str | None:
        return self.content if filename == "METADATA" else None

    def locate_file(self, path: Any) -> Any:
        raise NotImplementedError


def package(name: str, *headers: str, description: str = "") -> FakeDistribution:
    return FakeDistribution("\n".join(["Metadata-Version: 2.1", f"Name: {name}", *headers]) + f"\n\n{description}")


@pytest.fixture(scope="module")
def questions() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((files("configs") / "questions" / "packages.yaml").read_text(encoding="utf-8"))
    return loaded


class TestRows:
    def test_rows_are_sorted_and_each_name_comes_once(self):
        rows, dropped = package_rows(
            [package("Zeta_B", "Summary: first"), package("alpha", description="text"), package("zeta-b", "Summary: second")]
        )
        assert [(row["name"], row["summary"], row["description"]) for row in rows] == [("alpha", "", "text"), ("zeta-b", "first", "")]
        assert dropped == 0

    def test_packages_that_say_nothing_are_dropped(self):
        rows, dropped = package_rows(
            [package("a"), package("b", "Summary: UNKNOWN", description="UNKNOWN"), FakeDistribution(""), package("c", "Summary: x")]
        )
        assert [row["name"] for row in rows] == ["c"]
        assert dropped == 3

    def test_a_row_is_text_and_answers(self):
        (row,), _ = package_rows(
            [package("a", "Summary: s", "Classifier: Topic :: Text Processing", "Classifier: Typing :: Typed", description="d")]
        )
        assert row == {"name": "a", "summary": "s", "description": "d", "true_topic": "text", "true_http": False, "true_maturity": None}


class TestTruths:
    @pytest.mark.parametrize(
        ("topics", "answer"),
        [
            (["Internet :: WWW/HTTP", "Internet", "Software Development :: Libraries"], "network"),
            (["Scientific/Engineering :: Mathematics", "Software Development"], "science"),
            (["Software Development :: Testing", "Utilities"], "development"),
            (["Software Development"], "development"),
            (["Software Development :: Libraries :: Python Modules"], None),
            (["Text Processing", "Internet"], None),
            (["Utilities"], None),
            (["File Formats :: JSON"], "text"),
            (["Security :: Cryptography"], "security"),
            (["System :: Logging", "Terminals"], "system"),
            ([], None),
        ],
    )
    def test_a_topic_needs_one_field(self, topics, answer):
        assert truths([f"Topic :: {topic}" for topic in topics])["true_topic"] == answer

    @pytest.mark.parametrize(
        ("classifiers", "answer"),
        [
            (["Topic :: Internet :: WWW/HTTP :: HTTP Servers"], True),
            (["Framework :: FastAPI"], True),
            (["Topic :: Internet"], None),
            (["Topic :: Text Processing"], False),
            (["Topic :: Utilities"], None),
            ([], None),
        ],
    )
    def test_http_is_open_where_nothing_settles_it(self, classifiers, answer):
        assert truths(classifiers)["true_http"] is answer

    @pytest.mark.parametrize(
        ("statuses", "level"),
        [
            (["2 - Pre-Alpha"], 0),
            (["3 - Alpha"], 1),
            (["5 - Production/Stable"], 3),
            (["6 - Mature"], 4),
            (["7 - Inactive"], None),
            ([], None),
        ],
    )
    def test_maturity_is_a_level(self, statuses, level):
        assert truths([f"Development Status :: {status}" for status in statuses])["true_maturity"] == level
        assert (
            truths([f"Development Status :: {status}" for status in (*statuses, "4 - Beta", "5 - Production/Stable")])["true_maturity"]
            is None
        )


@pytest.mark.parametrize(
    ("description", "text"),
    [
        ("[![CI](https://x/y.svg)](https://x) [![Docs][badge]][docs]\n\n# Title", "# Title"),
        ("![Logo](logo.png)\nText <!-- a\ncomment -->here", "Text here"),
        ('<p align="center">\n<img src="x.png"/>\n</p>\nText with List<int> and a < b', "Text with List<int> and a < b"),
        (".. image:: https://x\n   :alt: logo\n   :target: y\n\nText\n\n.. |CI| image:: z\n", "Text"),
        ("|CI| |Docs|_\n\nA ``|`` b |x| c", "A ``|`` b |x| c"),
        ("Text\nTopic :: Internet\nmore", "Text\n\nmore"),
        ("one  \n\n\n\n\ntwo", "one\n\ntwo"),
        ("x" * 5000, "x" * LONGEST_DESCRIPTION),
    ],
)
def test_descriptions_lose_badges_and_classifiers_but_no_text(description, text):
    assert plain_text(description) == text


def test_the_installed_packages_fit_the_questions(tmp_path: Path, questions: dict[str, Any]):
    path = tmp_path / "sub" / "packages.jsonl"
    counts = write_installed_packages(path)
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n")[:-1]]
    assert len(rows) == counts.rows > 30
    assert [row["name"] for row in rows] == sorted({row["name"] for row in rows})
    assert {"pytest", "pyarrow", "numpy"} <= {row["name"] for row in rows}
    assert {row["true_topic"] for row in rows} - {None} <= set(questions["topic"]["criteria"])
    assert {row["true_http"] for row in rows} == {True, False, None}
    assert counts.known == {name: sum(row[name] is not None for row in rows) for name in ("true_topic", "true_http", "true_maturity")}
    assert all(f"{kind} :: " not in row["summary"] + row["description"] for row in rows for kind in ("Topic", "Development Status"))
    assert all(row["summary"] or row["description"] for row in rows)


def test_the_question_file_is_valid(questions: dict[str, Any]):
    assert [(question.qid, question.type) for question in parse_questions(questions)] == [("topic", "choice"), ("http", "noul")]
