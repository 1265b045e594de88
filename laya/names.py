"""The names of checkpoints, and where each of them lives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

HUB_REPO = "convaiinnovations/laya"


@dataclass(frozen=True, slots=True)
class CheckpointSource:
    """Where a checkpoint lives.

    Attributes:
        location: A folder, a hub id ("owner/name"), or the name of a bundled checkpoint.
        subfolder: The part of it that holds the files, if not its root.
        revision: Branch, tag or commit on the hub; None means the newest.
        bundled: Whether it ships inside this package.
    """

    location: str
    subfolder: str | None = None
    revision: str | None = None
    bundled: bool = False

    def __str__(self) -> str:
        return f"{self.location}/{self.subfolder}" if self.subfolder else self.location


BUILT_IN: Mapping[str, CheckpointSource] = {
    "english": CheckpointSource(HUB_REPO),
    "multilingual": CheckpointSource(HUB_REPO, "multilingual"),
    "typed-decisions": CheckpointSource(HUB_REPO, "typed-decisions"),
    "mini": CheckpointSource("mini", bundled=True),
}
"""The published family, and the small checkpoint that ships with the package."""

STANDALONE: Mapping[str, CheckpointSource] = {
    "english": CheckpointSource(HUB_REPO),
    "multilingual": CheckpointSource(f"{HUB_REPO}-multilingual"),
    "typed-decisions": CheckpointSource(f"{HUB_REPO}-typed-decisions"),
}
"""The same family as one hub repository each."""

_ALIASES: Mapping[str, str] = {
    "en": "english",
    "laya": "english",
    "default": "english",
    "multi": "multilingual",
    "ml": "multilingual",
    "laya-multilingual": "multilingual",
    "typed": "typed-decisions",
    "typed_decisions": "typed-decisions",
    "laya-typed-decisions": "typed-decisions",
    "decisions": "typed-decisions",
}


def canonical(name: str) -> str:
    """The built-in name that an alias stands for, or the name itself."""
    return _ALIASES.get(name, name)


def find_source(name: str, subfolder: str | None = None, revision: str | None = None) -> CheckpointSource:
    """Where a built-in name or alias, a folder or a hub id lives."""
    known = BUILT_IN.get(canonical(name))
    if known is None:
        return CheckpointSource(name, subfolder, revision)
    if subfolder is None and revision is None:
        return known
    return CheckpointSource(known.location, subfolder or known.subfolder, revision, known.bundled)
