"""Rows about Debian packages: the section, the tags, and which one-line summary belongs to a description."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from training.asking import ask_choice, ask_yes_no
from training.packages import Package
from training.phrases import DEBIAN, FACETS, HELD_OUT_FACETS, SECTIONS
from training.rows import Row

KIND_WEIGHTS = {"section": 4, "summary": 4, "tag": 3, "has_tag": 4, "is_summary": 3, "is_section": 2}


def first_words(text: str, count: int) -> str:
    """Returns the first words of a text."""
    return " ".join(text.split(" ")[:count])


def debian_rows(
    packages: Sequence[Package], rng: random.Random, count: int, kinds: Sequence[str] | None = None, held_out_facets: bool = False
) -> list[Row]:
    """Writes rows about packages.

    Args:
        packages: Those of one split.
        rng: Source of randomness.
        count: Number of rows.
        kinds: Kinds of rows to draw from; the mix of training when None.
        held_out_facets: Ask for the facets that are never trained on, and only for them.
    """
    writer = _Writer(packages, rng, held_out_facets)
    drawn_from = list(kinds or [kind for kind, weight in KIND_WEIGHTS.items() for _ in range(weight)])
    return [writer.row(rng.choice(drawn_from)) for _ in range(count)]


class _Writer:
    def __init__(self, packages: Sequence[Package], rng: random.Random, held_out_facets: bool) -> None:
        self.packages = packages
        self.rng = rng
        self.held_out = held_out_facets
        self.by_section: dict[str, list[Package]] = defaultdict(list)
        self.by_facet: dict[str, list[tuple[Package, list[str]]]] = defaultdict(list)
        for package in packages:
            self.by_section[package.section].append(package)
            for name, facet in FACETS.items():
                tags = package.tags_of(name)
                known = [value for value in facet.values if value in tags]
                if known:
                    self.by_facet[name].append((package, known))
        self.sections = sorted(self.by_section)
        self.facets = [name for name in self.by_facet if (name in HELD_OUT_FACETS) == held_out_facets]
        self.kinds: dict[str, Callable[[Package, str], Row]] = {
            "section": self.ask_section,
            "section_of_8": self.ask_section,
            "summary": self.ask_summary,
            "is_summary": self.ask_if_summary,
            "is_section": self.ask_if_section,
            "tag": self.ask_tag,
            "has_tag": self.ask_if_tag,
        }

    def row(self, kind: str) -> Row:
        # a section first, so that large sections do not crowd out small ones
        package = self.rng.choice(self.by_section[self.rng.choice(self.sections)])
        return self.kinds[kind](package, kind)

    def state(self, package: Package) -> Any:
        rng = self.rng
        length = rng.choice([25, 40, 40, 60, 60, 90])
        draw = rng.random()
        text = first_words(package.body, length)
        if draw < 0.5:
            return text
        if draw < 0.75:
            return f"{package.synopsis}. {text}"
        return {"title": package.synopsis, "text": text} if draw < 0.88 else f"{package.name}: {text}"

    def bare_state(self, package: Package) -> str:
        """Returns a state without the name and the synopsis, which would give the answer away."""
        return first_words(package.body, self.rng.choice([30, 60]))

    def ask_section(self, package: Package, kind: str) -> Row:
        rng = self.rng
        exactly_eight = kind == "section_of_8"
        size = 8 if exactly_eight else rng.randint(2, 8)
        others = rng.sample([section for section in self.sections if section != package.section], size - 1)
        spelled_out = rng.random() < 0.6
        options = [(SECTIONS[name][0] if spelled_out else name, SECTIONS[name][1]) for name in (package.section, *others)]
        instructions = rng.choice(DEBIAN["section_instructions"])
        asked = ask_choice(options, 0, instructions, rng, style="described" if exactly_eight else None)
        return Row(self.state(package), asked.question, asked.answer, kind)

    def ask_if_section(self, package: Package, kind: str) -> Row:
        rng = self.rng
        holds = rng.random() < 0.5
        section = package.section if holds else rng.choice([name for name in self.sections if name != package.section])
        label, description = SECTIONS[section]
        wordings = [
            f"The topic is {label}",
            f"Is this {label} software?",
            f"It belongs to: {description}",
            f"Does the text describe {description}?",
        ]
        asked = ask_yes_no(rng.choice(wordings), holds, rng)
        return Row(self.state(package), asked.question, asked.answer, kind)

    def ask_summary(self, package: Package, kind: str) -> Row:
        rng = self.rng
        size = rng.randint(2, 6)
        neighbours = self.by_section[package.section]
        drawn = rng.sample(neighbours if rng.random() < 0.5 and len(neighbours) > 8 else self.packages, size)
        others = [other for other in drawn if other.synopsis != package.synopsis][: size - 1]
        options = [(first_words(item.synopsis, 8), first_words(item.synopsis, 12)) for item in (package, *others)]
        instructions = rng.choice(DEBIAN["summary_instructions"])
        asked = ask_choice(options, 0, instructions, rng, style="bare" if rng.choice([True, False]) else "lettered")
        return Row(self.bare_state(package), asked.question, asked.answer, kind)

    def ask_if_summary(self, package: Package, kind: str) -> Row:
        rng = self.rng
        other = package
        if rng.random() >= 0.5:
            other = rng.choice(self.by_section[package.section] if rng.random() < 0.4 else self.packages)
        summary = first_words(other.synopsis, 12)
        wordings = [
            f"The text is about: {summary}",
            f'Is this a description of "{summary}"?',
            summary,
            f"It can be summarised as: {summary}",
        ]
        asked = ask_yes_no(rng.choice(wordings), other.synopsis == package.synopsis, rng)
        return Row(self.bare_state(package), asked.question, asked.answer, kind)

    def tagged(self) -> tuple[str, Package, str, list[str]]:
        """Draws a facet, a package that has tags of it, one of these tags, and the tags that it does not have."""
        facet = self.rng.choice(self.facets)
        package, known = self.rng.choice(self.by_facet[facet])
        value = self.rng.choice(known)
        return facet, package, value, [other for other in FACETS[facet].values if other not in known]

    def ask_tag(self, _: Package, kind: str) -> Row:
        rng = self.rng
        facet, package, value, others = self.tagged()
        size = rng.randint(2, min(8, len(others) + 1))
        options = [FACETS[facet].values[name] for name in (value, *rng.sample(others, size - 1))]
        instructions = rng.choice(FACETS[facet].instructions)
        asked = ask_choice(options, 0, instructions, rng, style="described" if self.held_out else None)
        return Row(self.state(package), asked.question, asked.answer, kind)

    def ask_if_tag(self, _: Package, kind: str) -> Row:
        rng = self.rng
        facet, package, value, others = self.tagged()
        holds = rng.random() < 0.5
        label, statement = FACETS[facet].values[value if holds else rng.choice(others)]
        wordings = [statement, f"{statement[0].upper()}{statement[1:]}.", f"Is it true that {statement}?", f"Tagged as {label}"]
        asked = ask_yes_no(rng.choice(wordings), holds, rng)
        return Row(self.state(package), asked.question, asked.answer, kind)
