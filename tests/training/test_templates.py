from __future__ import annotations

import json
import random
import re
from collections import Counter

import pytest

from laya.questions import parse_questions
from laya.states import serialize
from training import phrases
from training.intents import Intent, load_intents, usable_lines
from training.messages import expand, mistype, write_message
from training.rows import Row
from training.splits import SPLITS, Split, share, split_of
from training.templates import MIX, TOPICS, Family, template_rows

INTENTS = load_intents()
FAMILIES = [MIX, *map(Family, TOPICS)]


@pytest.fixture(scope="module")
def training_rows() -> list[Row]:
    return template_rows(INTENTS, random.Random(1), 3000, "train")


def held_out_sentences() -> list[str]:
    lists = [*phrases.URGENCY, *phrases.SENTIMENT, *(cue.present for cue in phrases.CUES.values())]
    return [sentence for sentences in lists for sentence in share(sentences, "test") if sentence and "$" not in sentence]


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.topic)
def test_rows_are_questions_that_laya_accepts(family: Family, split: Split) -> None:
    for row in template_rows(INTENTS, random.Random(2), 60, split, family):
        (question,) = parse_questions({"q": row.question})
        assert 0 <= row.answer < question.n
        assert len(set(question.option_texts)) == question.n
        assert serialize(row.state).strip()


def test_the_same_seed_gives_the_same_rows() -> None:
    assert template_rows(INTENTS, random.Random(5), 50, "train") == template_rows(INTENTS, random.Random(5), 50, "train")


def test_the_mix_covers_all_topics_and_question_types(training_rows: list[Row]) -> None:
    assert set(Counter(row.group for row in training_rows)) == {*TOPICS, "log"}
    assert {row.question["type"] for row in training_rows} == {"choice", "score", "noul"}


def test_the_right_option_stands_anywhere(training_rows: list[Row]) -> None:
    places = Counter(row.answer for row in training_rows if row.group == "department" and len(row.question["criteria"]) == 4)
    assert set(places) == {0, 1, 2, 3}


def test_a_template_line_belongs_to_one_split() -> None:
    for index, intent in enumerate(INTENTS):
        lines = [line for split in SPLITS for line in usable_lines(intent, index, split)]
        assert Counter(lines) == Counter(intent.lines)
        assert not (intent.held_out and usable_lines(intent, index, "train"))


def test_held_out_lines_never_reach_a_training_state() -> None:
    # digits survive capitals and typing errors
    intents = [
        Intent("billing", f"seen{number}", [f"name {number}"], ["description"], 1, 1, "request", held_out=False, lines=["1111", "9999"])
        for number in range(6)
    ]
    intents += [
        Intent("billing", f"unseen{number}", [f"unseen {number}"], ["description"], 1, 1, "request", held_out=True, lines=["9999"])
        for number in range(6)
    ]
    family = Family("department")
    assert not [row for row in template_rows(intents, random.Random(3), 200, "train", family) if "9999" in serialize(row.state)]
    for split in ("calib", "test"):
        assert not [row for row in template_rows(intents, random.Random(3), 200, split, family) if "1111" in serialize(row.state)]
    questions = json.dumps([row.question for row in template_rows(intents, random.Random(3), 200, "train", Family("is_intent"))])
    assert "unseen" not in questions


def test_held_out_sentences_never_reach_a_training_state(training_rows: list[Row]) -> None:
    states = "\n".join(serialize(row.state) for row in training_rows).lower()
    assert not [sentence for sentence in held_out_sentences() if sentence.lower() in states]


def test_held_out_labels_are_never_asked_in_training(training_rows: list[Row]) -> None:
    scales = [row.question["criteria"] for row in training_rows if row.group in ("urgency", "sentiment")]
    for scale in (*phrases.HELD_OUT_URGENCY_SCALES, *phrases.HELD_OUT_SENTIMENT_SCALES):
        assert not [criteria for criteria in scales if set(scale) <= set(criteria)]
    questions = json.dumps([row.question for row in training_rows])
    names = [domain.held_out_name for domain in phrases.DOMAINS.values()]
    statements = [cue.held_out_statement for cue in phrases.CUES.values()]
    descriptions = [description for intent in INTENTS if intent.held_out for description in intent.descriptions]
    assert not [text for text in (*names, *statements, *descriptions) if text in questions]


def test_unseen_labels_are_asked_when_wanted() -> None:
    rows = template_rows(INTENTS, random.Random(4), 40, "test", Family("department", unseen_labels=True))
    names = {domain.held_out_name for domain in phrases.DOMAINS.values()}
    assert all(set(row.question["criteria"]) <= names for row in rows)


def test_a_cue_is_true_when_its_sentence_is_there() -> None:
    assert "The deadline is $date." in share(phrases.CUES["deadline"].present, "train")
    intent = next(intent for intent in INTENTS if intent.key == "app_crash")
    rng = random.Random(6)
    seen: Counter[int | None] = Counter()
    for _ in range(400):
        message = write_message(intent, ["The app crashed."], rng, "train")
        if "The deadline is" in serialize(message.state):
            assert message.cues["deadline"] == 1
        seen[message.cues["deadline"]] += 1
    assert 0 < seen[1] < 200
    assert seen[None] == 0


@pytest.mark.parametrize(
    ("template", "possible"),
    [
        ("{a|b} c", {"a c", "b c"}),
        ("{a{1|2}|b}", {"a1", "a2", "b"}),
        ("so {|much} , please {!|}", {"so, please!", "so much, please!", "so, please", "so much, please"}),
        ("$nothing stays", {"$nothing stays"}),
    ],
)
def test_expand(template: str, possible: set[str]) -> None:
    rng = random.Random(0)
    assert {expand(template, rng) for _ in range(100)} == possible


def test_expand_fills_slots() -> None:
    assert expand("$month", random.Random(0)) in phrases.SLOTS["month"]


def test_every_slot_of_a_template_is_known() -> None:
    for intent in INTENTS:
        for line in intent.lines:
            assert set(re.findall(r"\$([a-z]+)", line)) <= set(phrases.SLOTS), line


def test_mistype_changes_little() -> None:
    text = "I would like to know when my parcel arrives, please."
    changed = [mistype(text, random.Random(seed)) for seed in range(20)]
    assert any(other != text for other in changed)
    assert all(abs(len(other) - len(text)) <= 1 for other in changed)
    assert mistype("1234", random.Random(0)) == "1234"


def test_share_keeps_the_last_quarter_from_training() -> None:
    assert share(list("abcdefgh"), "train") == list("abcdef")
    assert share(list("abcdefgh"), "calib") == share(list("abcdefgh"), "test") == ["g", "h"]
    assert share(["a", "b"], "train") == ["a"]


def test_split_of_is_stable_and_cuts_as_it_says() -> None:
    assert split_of("bash") == split_of("bash")
    counts = Counter(split_of(f"package-{number}") for number in range(4000))
    assert counts["calib"] / 4000 == pytest.approx(0.06, abs=0.015)
    assert counts["test"] / 4000 == pytest.approx(0.14, abs=0.02)
