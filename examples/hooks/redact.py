"""Take personal data out of a text before anything reads it.

A start hook may give the call other states. This one replaces e-mail addresses, IBANs, payment cards and international phone numbers by
a word in brackets, in texts and inside dicts and lists, and leaves the caller's own objects as they were.

Where to put it: first in ``hooks=``, since start hooks run in order and whatever stands behind it (audit, cache, shipping) sees the clean
text. Two events do not: ``on_route`` runs before any start hook, and process-wide defaults start before installed hooks; install the
redactor as the first default if there are others.

On ``predict_long`` a start hook sees the windows of the document. A window that it changes is scored as changed, and then the answers name
no window, because the offsets would be those of another text. An address on the border of two windows can also be cut in half. So give
long documents to ``redact`` yourself, before the call.

Run it: ``python examples/hooks/redact.py``
"""

from __future__ import annotations

import re
from typing import Any

import laya
from laya import BaseHook, PredictContext

# Every repeat has an upper bound, and none starts inside a word: a megabyte without a space costs a scan, not its square.
_PATTERNS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("iban", re.compile(r"(?<!\w)[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?(?!\w)")),
    ("card", re.compile(r"(?<![\w+])\d(?:[ -]?\d){12,18}(?!\w)")),
    ("phone", re.compile(r"(?<![\w+])(?:\+|00)[1-9](?:[ ()/.-]{0,2}\d){6,13}(?!\w)")),
    ("email", re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}")),
)


def is_card_number(text: str) -> bool:
    """Whether the check digit of a payment card number is right; most order numbers fail here."""
    total = 0
    for place, digit in enumerate(reversed([int(character) for character in text if character.isdigit()])):
        doubled = digit * 2 if place % 2 else digit
        total += doubled - 9 if doubled > 9 else doubled
    return total % 10 == 0


def redact(value: Any) -> Any:
    """The same value with personal data replaced; keys of dicts stay, and nothing is changed in place."""
    if isinstance(value, str):
        for name, pattern in _PATTERNS:
            if name == "card":
                value = pattern.sub(lambda match: "[card]" if is_card_number(match[0]) else match[0], value)
            else:
                value = pattern.sub(f"[{name}]", value)
        return value
    if isinstance(value, dict):
        return {key: redact(part) for key, part in value.items()}
    if isinstance(value, list):
        return [redact(part) for part in value]
    return value


class Redact(BaseHook):
    """Gives every call the redacted states."""

    def on_predict_start(self, ctx: PredictContext) -> None:
        """Replaces the states; the list that the caller gave stays."""
        ctx.states = [redact(state) for state in ctx.states]


def main() -> None:
    """Shows what the hooks behind the redactor see."""
    agent = laya.load("mini", hooks=[Redact()], on_predict_start=lambda ctx: print("\n".join(map(str, ctx.states))))
    states = [
        "Please refund jane.doe@example.com, card 4111 1111 1111 1111, order 4711000011112222.",
        {"from": "bob@example.org", "body": "Call me at +44 20 7946 0958 or pay DE89 3704 0044 0532 0130 00."},
    ]
    results = agent.predict_batch(states, {"refund": {"type": "noul", "instructions": "The writer wants money back"}})
    for result in results:
        print(result["answers"]["refund"]["noul"])


if __name__ == "__main__":
    main()
