"""Debian packages with their descriptions, sections and tags, read from the lists that apt fetched."""

from __future__ import annotations

import random
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from training.phrases import SECTIONS
from training.splits import Split, split_of

APT_HELPER = "/usr/lib/apt/apt-helper"
FIELD = re.compile(r"^(Package|Source|Section|Description|Description-md5|Tag): *((?:.*(?:\n .*)*))", re.MULTILINE)
COMPANION = re.compile(r"-(dbg|dev|dbgsym|doc|l10n.*)$")
SHORTEST_BODY = 80
DISTINCT_START = 120


@dataclass(frozen=True)
class Package:
    """What the rows use of a package. Packages of one source share a split."""

    name: str
    source: str
    section: str
    synopsis: str
    body: str
    tags: frozenset[str] = field(default_factory=frozenset)

    def tags_of(self, facet: str) -> frozenset[str]:
        """Returns the values of one debtags facet."""
        return frozenset(tag.removeprefix(f"{facet}::") for tag in self.tags if tag.startswith(f"{facet}::"))


def load_packages(lists: Path, rng: random.Random, suite: str = "bookworm", per_section: int = 700) -> dict[Split, list[Package]]:
    """Reads the packages of the main archive and splits them by source package.

    Args:
        lists: The folder that apt filled.
        rng: Source of randomness; it drops most companion packages (-dev, -doc...) and caps the large sections.
        suite: The Debian release.
        per_section: At most so many packages of a section, tagged ones first.
    """
    package_files = sorted(lists.glob(f"*_dists_{suite}_main_*_Packages*"))
    translation_files = sorted(lists.glob(f"*_dists_{suite}_main_*_Translation-en*"))
    if not package_files or not translation_files:
        raise FileNotFoundError(f"{lists}: no Packages or no Translation-en list of {suite}/main; run `python -m training.fetch` first")
    bodies: dict[str, str] = {}
    for path in translation_files:
        bodies.update(_bodies(_text(path)))
    by_section: dict[str, list[Package]] = defaultdict(list)
    starts: set[str] = set()
    for path in package_files:
        for package in _packages(_text(path), bodies):
            start = package.body[:DISTINCT_START]
            if start in starts or (COMPANION.search(package.name) and rng.random() < 0.8):
                continue
            starts.add(start)
            by_section[package.section].append(package)
    return _split(by_section, rng, per_section)


def _split(by_section: dict[str, list[Package]], rng: random.Random, per_section: int) -> dict[Split, list[Package]]:
    chosen: list[Package] = []
    for _, packages in sorted(by_section.items()):
        rng.shuffle(packages)
        chosen += sorted(packages, key=_is_untagged)[:per_section]
    rng.shuffle(chosen)
    splits: dict[Split, list[Package]] = {"train": [], "calib": [], "test": []}
    for package in chosen:
        splits[split_of(package.source)].append(package)
    return splits


def _is_untagged(package: Package) -> bool:
    return not package.tags


def _text(path: Path) -> str:
    """Reads a list whatever its compression is."""
    done = subprocess.run([APT_HELPER, "cat-file", str(path)], capture_output=True, check=True)
    return done.stdout.decode("utf-8", "replace")


def _bodies(text: str) -> Iterator[tuple[str, str]]:
    for paragraph in text.split("\n\n"):
        checksum = re.search(r"^Description-md5: (\w+)", paragraph, re.MULTILINE)
        start = paragraph.find("Description-en: ")
        if checksum and start >= 0:
            _, _, body = paragraph[start:].partition("\n")
            yield checksum.group(1), re.sub(r"\s+", " ", body.replace("\n .\n", "\n")).strip()


def _packages(text: str, bodies: dict[str, str]) -> Iterator[Package]:
    for paragraph in text.split("\n\n"):
        fields: dict[str, str] = dict(FIELD.findall(paragraph))
        section = fields.get("Section", "").split("/")[-1]
        body = bodies.get(fields.get("Description-md5", ""), "")
        if section not in SECTIONS or len(body) < SHORTEST_BODY:
            continue
        name = fields.get("Package", "")
        tags = (tag.strip() for tag in fields.get("Tag", "").replace("\n", " ").split(","))
        source = fields.get("Source", name).split()[0]
        yield Package(name, source, section, fields.get("Description", ""), body, frozenset(tag for tag in tags if tag))
