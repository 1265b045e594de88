from __future__ import annotations

import random
from pathlib import Path

import pytest

from laya.questions import parse_questions
from training import packages
from training.debian import KIND_WEIGHTS, debian_rows
from training.packages import Package, load_packages
from training.phrases import FACETS, HELD_OUT_FACETS, SECTIONS


def some_packages(count: int = 200) -> list[Package]:
    rng = random.Random(0)
    tags = [f"{facet}::{value}" for facet in FACETS for value in FACETS[facet].values]
    return [
        Package(
            f"name{number}", f"source{number}", rng.choice(list(SECTIONS)), f"synopsis {number}", f"body {number} " * 30,
            frozenset(rng.sample(tags, 4)),
        )
        for number in range(count)
    ]  # fmt: skip


@pytest.mark.parametrize("kind", [*KIND_WEIGHTS, "section_of_8", None])
def test_rows_are_questions_that_laya_accepts(kind: str | None) -> None:
    for row in debian_rows(some_packages(), random.Random(1), 60, kind and [kind]):
        (question,) = parse_questions({"q": row.question})
        assert 0 <= row.answer < question.n


def test_the_summary_is_not_in_the_state() -> None:
    for row in debian_rows(some_packages(), random.Random(2), 60, ["summary", "is_summary"]):
        assert "synopsis" not in row.state
        assert "name" not in row.state


def test_the_right_summary_is_the_answer() -> None:
    for row in debian_rows(some_packages(), random.Random(2), 60, ["summary"]):
        criteria = row.question["criteria"]
        right = criteria[row.answer] if isinstance(criteria, list) else list(criteria.values())[row.answer]
        assert right == f"synopsis {row.state.split()[1]}"


def test_held_out_facets_are_only_asked_when_wanted() -> None:
    held_out = [statement for name in HELD_OUT_FACETS for _, statement in FACETS[name].values.values()]
    usual = [row.question["instructions"] for row in debian_rows(some_packages(), random.Random(3), 300, ["has_tag"])]
    assert not [text for text in usual if any(statement in text for statement in held_out)]
    rows = debian_rows(some_packages(), random.Random(3), 60, ["tag"], held_out_facets=True)
    assert {row.question["instructions"] for row in rows} <= {text for name in HELD_OUT_FACETS for text in FACETS[name].instructions}


LIST = """\
Package: fine
Source: fine-source (1.0)
Section: utils
Description: a fine tool
Description-md5: 0001
Tag: role::program,
 use::searching, interface::commandline

Package: twin
Section: utils
Description: the same words
Description-md5: 0001

Package: short
Section: utils
Description: too short a text
Description-md5: 0002

Package: odd
Section: contrib/nowhere
Description: a section without a name
Description-md5: 0003
"""
BODY = "It searches for things in files and tells where they are, quickly and without using much memory. "
TRANSLATIONS = f"""\
Package: fine
Description-md5: 0001
Description-en: a fine tool
 {BODY}
 .
 Second paragraph.

Package: short
Description-md5: 0002
Description-en: too short a text
 Little.

Package: odd
Description-md5: 0003
Description-en: a section without a name
 {BODY} {BODY}
"""


def test_load_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mirror_debian_dists_bookworm_main_binary-amd64_Packages").write_text(LIST)
    (tmp_path / "mirror_debian_dists_bookworm_main_i18n_Translation-en").write_text(TRANSLATIONS)
    (tmp_path / "mirror_debian_dists_bookworm-updates_main_binary-amd64_Packages").write_text(LIST.replace("fine", "updated"))
    monkeypatch.setattr(packages, "_text", lambda path: path.read_text())
    (package,) = (package for part in load_packages(tmp_path, random.Random(0)).values() for package in part)
    assert (package.name, package.source, package.section, package.synopsis) == ("fine", "fine-source", "utils", "a fine tool")
    assert package.body == BODY + "Second paragraph."
    assert package.tags == {"role::program", "use::searching", "interface::commandline"}
    assert package.tags_of("use") == {"searching"}


def test_missing_lists_are_told(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"training\.fetch"):
        load_packages(tmp_path, random.Random(0))
