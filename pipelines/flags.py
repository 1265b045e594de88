"""Flags whose values have a form of their own."""

from __future__ import annotations

from collections.abc import Sequence

import click


def listed(names: str | None) -> tuple[str, ...] | None:
    """The names of "a,b"."""
    return None if names is None else tuple(name.strip() for name in names.split(","))


def by_question(flag: str, pairs: Sequence[str], value_name: str) -> dict[str, str]:
    """Question id to value, of "QUESTION=VALUE" each.

    Raises:
        click.UsageError: One is of another form, or two are of one question.
    """
    values: dict[str, str] = {}
    for pair in pairs:
        question, _, value = pair.partition("=")
        if not question or not value:
            raise click.UsageError(f"{flag} {pair!r}: write QUESTION={value_name}")
        if question in values:
            raise click.UsageError(f"{flag} {pair!r}: question {question!r} has one already")
        values[question] = value
    return values
