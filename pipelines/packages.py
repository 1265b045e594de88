"""The data set `installed-packages`: what the packages of the running Python say about themselves, and what their classifiers say."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageMetadata, distributions
from pathlib import Path
from typing import Any

LONGEST_DESCRIPTION = 4000
"""Characters of a description that are kept."""

_TOPICS: Mapping[str, str] = {
    "Communications": "network",
    "Internet": "network",
    "Scientific/Engineering": "science",
    "File Formats": "text",
    "Text Processing": "text",
    "System": "system",
    "Terminals": "system",
    "Security": "security",
}
_WEB_FRAMEWORKS = frozenset(f"Framework :: {name}" for name in ("AIOHTTP", "Django", "FastAPI", "Flask", "Pyramid"))
_MATURITY: Mapping[str, int] = {"1": 0, "2": 0, "3": 1, "4": 2, "5": 3, "6": 4}
"""Number of a development status to a level; 7, inactive, says nothing."""

_TAGS = "a|b|br|center|code|details|div|em|h[1-6]|i|img|kbd|p|picture|source|span|strong|sub|summary|sup|table|tbody|td|th|thead|tr"
_NOISE = tuple(
    re.compile(pattern, flags)
    for pattern, flags in (
        (r"<!--.*?-->", re.DOTALL),
        (r"\[!\[[^\]]*\](?:\([^)]*\)|\[[^\]]*\])\](?:\([^)]*\)|\[[^\]]*\])", 0),  # a badge that links somewhere
        (r"!\[[^\]]*\](?:\([^)]*\)|\[[^\]]*\])", 0),
        (r"^\.\. (?:\|[^|\n]*\| )?image::.*(?:\n[ \t]+\S.*)*", re.MULTILINE),
        (r"^(?:\|[\w .-]+\|_{0,2}[ \t]*)+$", re.MULTILINE),  # badges that reStructuredText names here and draws elsewhere
        (rf"</?(?:{_TAGS})(?:\s[^>]*)?/?>", re.IGNORECASE),
        # The classifiers are the answers; a few packages repeat them in their text.
        (r"^.*\b(?:Topic|Framework|Development Status) :: .*$", re.MULTILINE),
        (r"[ \t]+$", re.MULTILINE),
    )
)


@dataclass(frozen=True, slots=True)
class Counts:
    """What a data set holds.

    Attributes:
        rows: Packages.
        dropped: Packages that say nothing about themselves.
        known: How many rows hold each of the true answers.
    """

    rows: int
    dropped: int
    known: Mapping[str, int]


def write_installed_packages(path: str | Path) -> Counts:
    """Writes one line of JSON for each package that the running Python has installed, in the order of their names.

    A line holds ``name``, ``summary`` and ``description`` (without badges, markup comments and classifiers), and what its classifiers
    say: ``true_topic`` and ``true_http``, the answers to ``configs/questions/packages.yaml``, and ``true_maturity``, 0 (planned) to 4
    (mature), which texts hardly tell. They are null where the classifiers leave them open.

    Args:
        path: The file; folders above it are made.

    Raises:
        OSError: It cannot be written.
    """
    rows, dropped = package_rows(distributions())
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    answers = ("true_topic", "true_http", "true_maturity")
    return Counts(len(rows), dropped, {name: sum(row[name] is not None for row in rows) for name in answers})


def package_rows(found: Iterable[Distribution]) -> tuple[list[dict[str, Any]], int]:
    """The rows of some packages, in the order of their names, and how many packages were dropped because they say nothing.

    Of two with the same name the first counts: it is the one that is imported.
    """
    rows: dict[str, dict[str, Any]] = {}
    silent: set[str] = set()
    for distribution in found:
        metadata = distribution.metadata
        name = re.sub(r"[-_.]+", "-", _field(metadata, "Name")).lower()
        if name in rows or name in silent:
            continue
        summary, description = _field(metadata, "Summary"), plain_text(_field(metadata, "Description"))
        if not (name and (summary or description)):
            silent.add(name)
            continue
        rows[name] = {"name": name, "summary": summary, "description": description, **truths(metadata.get_all("Classifier") or [])}
    return [rows[name] for name in sorted(rows)], len(silent)


def truths(classifiers: Sequence[str]) -> dict[str, str | bool | int | None]:
    """The answers to the questions, as the classifiers of a package have them; None where they do not settle one."""
    topic = _topic(classifiers)
    speaks_http = any(text.startswith("Topic :: Internet :: WWW/HTTP") or text in _WEB_FRAMEWORKS for text in classifiers)
    # Who names a field that is not the internet would have named HTTP; who names the internet alone may mean anything.
    is_offline = topic is not None and not any(text.startswith("Topic :: Internet") for text in classifiers)
    levels = [_MATURITY.get(text.removeprefix("Development Status :: ")[:1]) for text in classifiers if text.startswith("Development")]
    return {
        "true_topic": topic,
        "true_http": True if speaks_http else False if is_offline else None,
        "true_maturity": levels[0] if len(levels) == 1 else None,
    }


def plain_text(description: str) -> str:
    """The start of a description without badges, markup comments and classifiers."""
    for noise in _NOISE:
        description = noise.sub("", description)
    return re.sub(r"\n{3,}", "\n\n", description).strip()[:LONGEST_DESCRIPTION]


def _topic(classifiers: Sequence[str]) -> str | None:
    topics = [text.split(" :: ")[1:] for text in classifiers if text.startswith("Topic :: ")]
    fields = {_TOPICS[path[0]] for path in topics if path[0] in _TOPICS}
    # Nearly every package calls itself a library; only what else is named under software development tells.
    if any(path[0] == "Software Development" and len(path) > 1 and path[1] != "Libraries" for path in topics):
        fields.add("development")
    if not fields and ["Software Development"] in topics:
        return "development"
    return fields.pop() if len(fields) == 1 else None


def _field(metadata: PackageMetadata, name: str) -> str:
    text = str(metadata[name]).strip() if name in metadata else ""
    return "" if text == "UNKNOWN" else text
