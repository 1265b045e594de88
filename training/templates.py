"""Rows from the templates: a written message and one question about its department, intent, urgency, mood or cues."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from training.asking import ask_choice, ask_yes_no
from training.intents import Intent, usable_lines
from training.logs import log_row
from training.messages import Message, write_message
from training.phrases import (
    CUES,
    DOMAINS,
    HELD_OUT_SENTIMENT_SCALES,
    HELD_OUT_URGENCY_SCALES,
    INSTRUCTIONS,
    KINDS,
    LABELS,
    SENTIMENT_SCALES,
    STATEMENTS,
    URGENCY_SCALES,
)
from training.rows import Asked, Row
from training.scales import SENTIMENT_FOLDING, URGENCY_FOLDING, ask_level
from training.splits import Split

LOG_SHARE = 0.07
FREQUENT_CUES = ["churn", "deadline"]


@dataclass(frozen=True)
class Family:
    """Which rows to write. The topic "mix" draws a topic for each row, as training does; others fix it."""

    topic: str
    unseen_intents: bool = False
    unseen_labels: bool = False


MIX = Family("mix")


@dataclass(frozen=True)
class Draft:
    """A message that waits for its question."""

    intent: Intent
    message: Message
    intents: Sequence[Intent]  # those whose names may be shown as options
    family: Family
    split: Split
    rng: random.Random


def template_rows(intents: Sequence[Intent], rng: random.Random, count: int, split: Split, family: Family = MIX) -> list[Row]:
    """Writes rows from the templates.

    Args:
        intents: All intents, in the order of the file: the split of a line depends on the place of its intent.
        rng: Source of randomness.
        count: Number of rows.
        split: Whose lines and sentences may be used.
        family: What to ask; the mix of training when not given.
    """
    pool = _pool(intents, split, family)
    known = [intent for intent in intents if not intent.held_out]
    options = known if split == "train" or not (family.topic == "mix" or family.unseen_intents) else list(intents)
    rows: list[Row] = []
    while len(rows) < count:
        intent, lines = rng.choice(pool)
        if family.topic == "mix" and rng.random() < LOG_SHARE:
            rows.append(log_row(rng, split))
            continue
        message = write_message(intent, lines, rng, split)
        topic = family.topic if family.topic != "mix" else rng.choices(list(TOPIC_WEIGHTS), list(TOPIC_WEIGHTS.values()))[0]
        asked = TOPICS[topic](Draft(intent, message, options, family, split, rng))
        if asked is not None:  # else the message does not settle what the topic asks for
            rows.append(Row(message.state, asked.question, asked.answer, topic))
    return rows


def _pool(intents: Sequence[Intent], split: Split, family: Family) -> list[tuple[Intent, Sequence[str]]]:
    pool = [(intent, usable_lines(intent, index, split)) for index, intent in enumerate(intents)]
    pool = [(intent, lines) for intent, lines in pool if lines]
    if family.unseen_intents:
        return [(intent, lines) for intent, lines in pool if intent.held_out]
    if family.topic != "mix":
        return [(intent, lines) for intent, lines in pool if not intent.held_out]
    return pool


def _department_options(domains: Sequence[str], draft: Draft) -> list[tuple[str, str]]:
    rng, unseen = draft.rng, draft.family.unseen_labels
    return [
        (DOMAINS[name].held_out_name if unseen else rng.choice(DOMAINS[name].names), rng.choice(DOMAINS[name].descriptions))
        for name in domains
    ]


def _ask_department(draft: Draft) -> Asked:
    rng, family, domain = draft.rng, draft.family, draft.intent.domain
    fewest = 2 if family.unseen_intents or family.unseen_labels else 1
    others = rng.sample([name for name in DOMAINS if name != domain], rng.randint(fewest, 9))
    options = _department_options([domain, *others], draft)
    if domain != "chat" and not family.unseen_labels and rng.random() < 0.06 and "chat" not in others:
        options = _department_options(["chat", *others], draft)  # none of the others is right, so "other" is
    return ask_choice(options, 0, rng.choice(INSTRUCTIONS["department"]), rng, style="bare" if family.unseen_labels else None)


def _ask_intent(draft: Draft) -> Asked:
    rng = draft.rng
    same_domain = [other for other in draft.intents if other.domain == draft.intent.domain and other is not draft.intent]
    other_domains = [other for other in draft.intents if other.domain != draft.intent.domain]
    wrong = 7
    if draft.split == "train":
        wrong = rng.randint(1, 8) if rng.random() < 0.92 else rng.randint(9, 14)
    near = min(len(same_domain), rng.randint(0, wrong))
    shown = [draft.intent, *rng.sample(same_domain, near), *rng.sample(other_domains, wrong - near)]
    options = [(rng.choice(intent.names), rng.choice(intent.descriptions)) for intent in shown]
    return ask_choice(options, 0, rng.choice(INSTRUCTIONS["intent"]), rng)


def _ask_if_intent(draft: Draft) -> Asked:
    rng = draft.rng
    holds = rng.random() < 0.5
    named = draft.intent
    if not holds:
        others = [other for other in draft.intents if other is not draft.intent]
        named = rng.choice([other for other in others if other.domain == draft.intent.domain or rng.random() < 0.5])
    statement = rng.choice(
        [
            f"The message is about: {rng.choice(named.names)}",
            f"Is this a {named.names[0]}?",
            rng.choice(named.descriptions),
            f"Topic: {rng.choice(named.names)}",
            f"True or false: {rng.choice(named.descriptions)}",
        ]
    )
    criteria = {"true": rng.choice(named.descriptions), "false": rng.choice(["something else", "it is not about that"])}
    return ask_yes_no(statement, holds, rng, criteria)


def _ask_if_department(draft: Draft) -> Asked:
    rng = draft.rng
    holds = rng.random() < 0.5
    domain = DOMAINS[draft.intent.domain if holds else rng.choice([name for name in DOMAINS if name != draft.intent.domain])]
    statement = rng.choice(
        [
            f"It is a matter for {rng.choice(domain.names)}",
            f"Should {rng.choice(domain.names)} handle this?",
            f"Topic: {rng.choice(domain.descriptions)}",
        ]
    )
    return ask_yes_no(statement, holds, rng)


def _ask_kind(draft: Draft) -> Asked:
    rng, kind = draft.rng, draft.intent.kind
    # a complaint reports something too, so the two are never options of one question
    others = [name for name in KINDS if name != kind and {name, kind} != {"complaint", "report"}]
    shown = [KINDS[name] for name in (kind, *rng.sample(others, rng.randint(1, len(others))))]
    options = [(rng.choice(item.names), item.description) for item in shown]
    return ask_choice(options, 0, rng.choice(INSTRUCTIONS["kind"]), rng)


def _ask_urgency(draft: Draft) -> Asked | None:
    if draft.message.urgency is None:
        return None
    unseen = draft.family.unseen_labels
    scales = HELD_OUT_URGENCY_SCALES if unseen else URGENCY_SCALES
    return ask_level(
        draft.message.urgency, scales, URGENCY_FOLDING, INSTRUCTIONS["urgency"], draft.rng, question_type="score" if unseen else None
    )


def _ask_sentiment(draft: Draft) -> Asked | None:
    if draft.message.sentiment is None:
        return None
    unseen = draft.family.unseen_labels
    scales = HELD_OUT_SENTIMENT_SCALES if unseen else SENTIMENT_SCALES
    return ask_level(
        draft.message.sentiment, scales, SENTIMENT_FOLDING, INSTRUCTIONS["sentiment"], draft.rng, question_type="choice" if unseen else None
    )


def _ask_if_urgent(draft: Draft) -> Asked | None:
    level = draft.message.urgency
    if level is None or level == 2:
        return None
    return ask_yes_no(draft.rng.choice(STATEMENTS["urgent"]), level > 2, draft.rng)


def _ask_if_pleased(draft: Draft) -> Asked | None:
    rng, level = draft.rng, draft.message.sentiment
    if level is None or level == 2:
        return None
    pleased = rng.random() < 0.5
    return ask_yes_no(rng.choice(STATEMENTS["pleased" if pleased else "upset"]), (level > 2) == pleased, rng)


def _ask_cue(draft: Draft) -> Asked | None:
    rng = draft.rng
    name = rng.choice([*CUES, *FREQUENT_CUES])
    present = draft.message.cues[name]
    if present is None or (not present and rng.random() < 0.75):  # absent cues are far more common: most are left out
        return None
    cue = CUES[name]
    statement = cue.held_out_statement if draft.family.unseen_labels else rng.choice(cue.statements)
    return ask_yes_no(statement, bool(present), rng)


def _ask_register(draft: Draft) -> Asked | None:
    if draft.message.register is None:
        return None
    registers: dict[str, str] = LABELS["registers"]
    answer = list(registers).index(draft.message.register)
    return ask_choice(list(registers.items()), answer, draft.rng.choice(INSTRUCTIONS["register"]), draft.rng)


TOPICS: dict[str, Callable[[Draft], Asked | None]] = {
    "department": _ask_department,
    "intent": _ask_intent,
    "is_intent": _ask_if_intent,
    "is_department": _ask_if_department,
    "kind": _ask_kind,
    "urgency": _ask_urgency,
    "sentiment": _ask_sentiment,
    "cue": _ask_cue,
    "is_urgent": _ask_if_urgent,
    "is_pleased": _ask_if_pleased,
    "register": _ask_register,
}
TOPIC_WEIGHTS = dict(zip(TOPICS, [20, 20, 12, 5, 7, 14, 10, 20, 3, 3, 2], strict=True))
