"""The evaluation sets: packages, sentences, intents and label wordings that training never saw."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from training.debian import debian_rows
from training.intents import Intent
from training.packages import Package
from training.rows import Row
from training.splits import Split
from training.templates import Family, template_rows

DEBIAN_SETS: dict[str, tuple[str, bool, int]] = {  # name -> kind of row, held-out facets, divisor of the number of rows
    "debian section, 8-way": ("section_of_8", False, 1),
    "debian tags, noul": ("has_tag", False, 1),
    "debian synopsis match": ("summary", False, 2),
    "debian tags, noul, unseen facets": ("has_tag", True, 2),
    "debian facet choice, unseen facets": ("tag", True, 2),
}
TEMPLATE_SETS = {
    "seen intents, new sentences: department": Family("department"),
    "seen intents, new sentences: 8-way intent": Family("intent"),
    "new sentences: urgency score": Family("urgency"),
    "new sentences: sentiment": Family("sentiment"),
    "new sentences: cues, noul": Family("cue"),
    "unseen intents: department": Family("department", unseen_intents=True),
    "unseen intents: 8-way intent (zero-shot)": Family("intent", unseen_intents=True),
    "unseen labels: department names, bare": Family("department", unseen_labels=True),
    "unseen labels: urgency scale": Family("urgency", unseen_labels=True),
    "unseen labels: sentiment words": Family("sentiment", unseen_labels=True),
    "unseen labels: cue statements": Family("cue", unseen_labels=True),
}


def held_out_sets(
    intents: Sequence[Intent], packages: Mapping[Split, Sequence[Package]], rng: random.Random, count: int
) -> dict[str, list[Row]]:
    """Writes the evaluation sets.

    Args:
        intents: All intents.
        packages: The packages of each split.
        rng: Source of randomness; the same seed gives the same sets.
        count: Rows of a set; some Debian sets have half as many.
    """
    sets = {
        name: debian_rows(packages["test"], rng, count // divisor, [kind], held_out_facets)
        for name, (kind, held_out_facets, divisor) in DEBIAN_SETS.items()
    }
    for name, family in TEMPLATE_SETS.items():
        sets[name] = template_rows(intents, rng, count, "test", family)
    return sets


def hand_written_sets(path: Path) -> dict[str, list[Row]]:
    """Reads messages that were written and answered by hand, one set for each question.

    Args:
        path: A JSON file `{"questions": {id: question}, "messages": [{"state": ..., "answers": {id: answer}}]}`, where an
            answer is a label of a choice, a level of a score, or true or false; a missing answer or null leaves a row out.
    """
    content = json.loads(path.read_text(encoding="utf-8"))
    return {
        f"{path.stem}: {qid}": [
            Row(message["state"], question, _answer_index(question, message["answers"][qid]), "hand")
            for message in content["messages"]
            if message["answers"].get(qid) is not None
        ]
        for qid, question in content["questions"].items()
    }


def _answer_index(question: Mapping[str, Any], answer: Any) -> int:
    return list(question["criteria"]).index(answer) if question["type"] == "choice" else int(answer)
