"""Write a message from an intent: a template line, sentences about urgency and mood, cues, a greeting, some typing errors."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from training.intents import Intent
from training.phrases import CUES, MESSAGES, REGISTERS, SENTIMENT, SLOTS, URGENCY
from training.splits import Split, share

FURIOUS_INTENTS = frozenset({"legal_threat", "general_complaint", "account_hacked", "food_quality", "workplace_conflict"})
DOMAINS_WITHOUT_CHURN = frozenset({"chat", "health", "hr"})
SENTIMENTS_OF_KIND = {"complaint": [0, 0, 1], "praise": [4], "question": [1, 2, 3], "request": [0, 1, 2, 3, 4], "report": [0, 1, 2]}
NEAR_MISS_RATE = 0.03
NAMES_CONTACT_OR_DATE = re.compile(r"@|\bby (Mon|Tue|Thu|May|12|Oct|the 4)|before \w+day")


@dataclass(frozen=True)
class Message:
    """A state and what is true of it. None where the text does not settle it."""

    state: Any
    urgency: int | None
    sentiment: int | None
    cues: dict[str, int | None]
    register: str | None


def expand(template: str, rng: random.Random) -> str:
    """Fills a template: {a|b} picks one of its parts (it nests), $slot is replaced by one of the slot's values."""
    while "{" in template:
        template = re.sub(r"\{([^{}]*)\}", lambda found: rng.choice(found.group(1).split("|")), template)
    template = re.sub(r"\$([a-z]+)", lambda found: rng.choice(SLOTS.get(found.group(1), [found.group(0)])), template)
    return re.sub(r"\s+([?!.,])", r"\1", re.sub(r"\s+", " ", template)).strip()


def mistype(text: str, rng: random.Random) -> str:
    """Puts a typing error into every forty characters or so: a letter left out, two swapped, one doubled."""
    letters = list(text)
    for _ in range(max(1, len(letters) // 40)):
        place = rng.randrange(max(1, len(letters) - 1))
        draw = rng.random()
        if not letters[place].isalpha():
            continue
        if draw < 0.35:
            letters[place] = ""
        elif draw < 0.7 and place + 1 < len(letters) and letters[place + 1].isalpha():
            letters[place], letters[place + 1] = letters[place + 1], letters[place]
        else:
            letters[place] *= 2
    return "".join(letters)


def write_message(intent: Intent, lines: Sequence[str], rng: random.Random, split: Split) -> Message:
    """Writes one message.

    Args:
        intent: What it is about.
        lines: The template lines of the intent that may be used.
        rng: Source of randomness.
        split: Whose sentences may be used.
    """
    core = _core_sentence(lines, rng)
    extra: list[str] = []
    urgency = _add_urgency(intent, extra, rng, split)
    sentiment = _add_sentiment(intent, extra, rng, split)
    cues = _add_cues(intent, core, extra, rng, split)
    rng.shuffle(extra)
    before = rng.randint(0, len(extra)) if rng.random() < 0.3 else 0
    text = " ".join([*extra[:before], core, *extra[before:]])
    text, register = _add_greeting(text, rng)
    if rng.random() < 0.15:
        text = text.lower()
    if rng.random() < 0.12:
        text = mistype(text, rng)
    return Message(_wrap(text, rng), urgency, sentiment, cues, register)


def _core_sentence(lines: Sequence[str], rng: random.Random) -> str:
    core = expand(rng.choice(lines), rng)
    if rng.random() < 0.7:
        core = core[0].upper() + core[1:]
    return core if core.endswith(("?", "!", ".")) else core + rng.choice([".", ".", "", "!"])


def _add_urgency(intent: Intent, extra: list[str], rng: random.Random, split: Split) -> int | None:
    if rng.random() < 0.5:
        lowest, highest = max(0, intent.urgency - 2), 4
        if intent.domain == "chat" or intent.urgency == 0:
            lowest, highest = 0, 2
        level = rng.randint(lowest, highest)
        extra.append(rng.choice(share(URGENCY[level], split)))
        return level
    # a weak label: what such messages usually need
    return intent.urgency if intent.urgency in (0, 4) or rng.random() < 0.5 else None


def _add_sentiment(intent: Intent, extra: list[str], rng: random.Random, split: Split) -> int | None:
    if rng.random() < 0.45 or intent.kind in ("complaint", "praise"):
        level = 4 if intent.key == "praise" else rng.choice(SENTIMENTS_OF_KIND[intent.kind])
        if intent.key in FURIOUS_INTENTS:
            level = 0
        sentence = rng.choice(share(SENTIMENT[level], split))
        if sentence and rng.random() < 0.9:
            extra.append(sentence)
        elif intent.kind == "complaint" and level != 2:
            level = 1 if intent.sentiment == 1 else 0
        return level
    return 2 if intent.kind in ("question", "request") and rng.random() < 0.5 else None


def _add_cues(intent: Intent, core: str, extra: list[str], rng: random.Random, split: Split) -> dict[str, int | None]:
    found: dict[str, int | None] = {}
    for name, cue in CUES.items():
        found[name] = 0
        draw = rng.random()
        if name == "lawyer" and intent.key == "legal_threat":
            found[name] = 1
            continue
        rate = 0.0 if name == "churn" and _never_leaves(intent) else cue.rate
        if draw < rate:
            found[name] = 1
            extra.append(expand(rng.choice(share(cue.present, split)), rng))
        elif draw < rate + NEAR_MISS_RATE:
            extra.append(expand(rng.choice(share(cue.near_misses, split)), rng))
    if intent.key == "cancel_subscription" and not found["churn"]:
        found["churn"] = None  # who cancels is leaving, but does not threaten to
    for name in ("contact", "deadline"):
        if not found[name] and NAMES_CONTACT_OR_DATE.search(core):
            found[name] = None
    if "ttached" in core or "nclosed" in core:
        found["attach"] = 1
    if "hank" in core:
        found["thanks"] = 1
    return found


def _never_leaves(intent: Intent) -> bool:
    return intent.kind == "praise" or (intent.domain in DOMAINS_WITHOUT_CHURN and intent.key != "general_complaint")


def _add_greeting(text: str, rng: random.Random) -> tuple[str, str | None]:
    if rng.random() < 0.35:
        register = rng.choice(REGISTERS)
        return f"{rng.choice(register.openers)} {text} {expand(rng.choice(register.closers), rng)}", register.name
    if rng.random() < 0.3:
        text = rng.choice(MESSAGES["greetings"]) + text
    return text, None


def _wrap(text: str, rng: random.Random) -> Any:
    draw = rng.random()
    if draw < 0.08:
        return {"subject": expand(rng.choice(MESSAGES["subjects"]), rng), "body": text}
    if draw < 0.13:
        return {"channel": rng.choice(MESSAGES["channels"]), "message": text}
    if draw < 0.19:
        return [{"role": "agent", "text": rng.choice(MESSAGES["agent_turns"])}, {"role": "user", "text": text}]
    return text
