"""What the benchmark asks: made-up states of realistic lengths, and one question of each type."""

from __future__ import annotations

import math
import random
from typing import Any

MEDIAN_WORDS = 65
MAX_WORDS = 420
"""Longest state: with the longest question before it, it still fits the checkpoint's 512 tokens, so nothing is cut."""
_SPREAD = 0.7  # standard deviation of the logarithm: the middle half of the states has 40 to 104 words

# Each is one token of the bundled checkpoint, so that a state has as many tokens as words.
_WORDS = """
a about above account across action after again against agreement all almost already also always amount an and another answer any
approach are area around arrived article as ask asked at available away back bank be because become been before behind best better
between bill board book both box bring broken building business but by called came can cannot card care case cause center certain
chance change charge check city clear close closed code cold color come common company complete computer condition contact continue
contract copy correct cost could country course cover customer damage data date day days decision delivery did different difficult
do does done door down during each early easy either email end enough even evening event every example except expected experience
fact family far fast feature few field file final find fine first five follow for form found four free friend from front full
give given glass go going gone good great group had half hand happen happy hard has have he head heard help her here high
him his hold home hope hour hours house how however i idea if immediately important in information inside instead interest into is
issue it its job just keep kept kind know large last late later least leave left less let letter level light like limited line list
little local location long look lost lot low machine made mail main make manager many matter may maybe me mean meeting member
message might minute minutes missing model money month more morning most move much must my name near need network never new news
next night no normal not note nothing notice now number of off offer office often old on once one only open option or order other our
out over own page paid paper part party past pay payment people perhaps phone picture piece place plan please point possible post
power present price probably problem process product program promised public put quality question quickly quite rather reach read
ready real really reason received recent record red reply report request rest result return right road room said same save saw say
school screen second security see seems send sent serious service set several she short should show side sign simple since
single site situation six small so some someone something soon sorry sound special staff start state station step still stop store
story street strong study such support sure system take taken team tell ten test than thank that the their them then there these
they thing things think third this those though three through ticket time to today together told too took top toward town train
travel tried trouble try turn twice two type under until up upon use used user very view visit wait waiting want was watch water way
we week weeks well went were what when where whether which while who whole why will window with within without word work working
world would write written wrong year yes yet you young your
"""
WORDS = _WORDS.split()

QUESTIONS: dict[str, dict[str, Any]] = {
    "topic": {
        "type": "choice",
        "instructions": "What is the message about?",
        "criteria": {
            "payment": "a bill, a charge or money to be returned",
            "delivery": "an order that has not arrived or is damaged",
            "access": "an account that cannot be opened",
            "other": "anything else",
        },
    },
    "urgency": {
        "type": "score",
        "instructions": "How soon does the writer need an answer?",
        "criteria": ["whenever there is time", "within a few days", "today"],
    },
    "reply": {"type": "noul", "instructions": "The writer expects a reply"},
}


def make_states(count: int, seed: int) -> list[str]:
    """Makes states of log-normal lengths out of ordinary words; the same ones for the same arguments.

    Args:
        count: How many.
        seed: Of the lengths and the words.
    """
    rng = random.Random(seed)
    lengths = [round(rng.lognormvariate(math.log(MEDIAN_WORDS), _SPREAD)) for _ in range(count)]
    return [" ".join(rng.choices(WORDS, k=min(MAX_WORDS, max(1, length)))) for length in lengths]
