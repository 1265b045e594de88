"""Sequences: their layout and every budget, on a tokenizer with one token a word, so that the sums can be done by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laya.questions import Question, parse_questions
from laya.sequences import Head, build_heads, build_sequence

CLS, SEP, MASK = 1, 2, 3


class WordTokenizer:
    """One token a word; the id tells the word by its place among the words seen so far."""

    cls_id, sep_id, mask_id, pad_id = CLS, SEP, MASK, 0

    def __init__(self) -> None:
        self.words: list[str] = []

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        return [[self._id(word) for word in text.split()] for text in texts]

    def _id(self, word: str) -> int:
        if word not in self.words:
            self.words.append(word)
        return 10 + self.words.index(word)

    def decode(self, ids: Sequence[int]) -> str:
        names = {CLS: "[CLS]", SEP: "[SEP]", MASK: "[MASK]"}
        return " ".join(names[token] if token in names else self.words[token - 10] for token in ids)


@pytest.fixture
def words() -> WordTokenizer:
    return WordTokenizer()


def many(n: int, prefix: str = "w") -> str:
    return " ".join(f"{prefix}{index}" for index in range(n))


def choice(labels: Any, instructions: str = "Which?", **more: Any) -> Question:
    return parse_questions({"lane": {"type": "choice", "instructions": instructions, "criteria": labels, **more}})[0]


def head_of(question: Question, words: WordTokenizer, max_len: int = 512, head_max_len: int = 192) -> Head:
    return build_heads([question], words, max_len, head_max_len)[0]


def instruction_tokens(head: Head) -> int:
    return head.ids.index(SEP) - 1


def option_tokens(head: Head) -> list[int]:
    """Text tokens of each option, its marker not counted."""
    ends = [*head.markers[1:], len(head.ids) - 1]
    return [end - marker - 1 for marker, end in zip(head.markers, ends, strict=True)]


class TestLayout:
    def test_in_full(self, words: WordTokenizer) -> None:
        head = head_of(choice({"a": "first one", "b": None}, "Which of them?"), words)
        row, dropped = build_sequence(head, words.encode(["so it goes"])[0], False, words, 512)
        assert words.decode(row.ids) == ("[CLS] choice question: Which of them? [SEP] [MASK] a: first one [MASK] b [SEP] so it goes [SEP]")
        assert row.markers == [7, 11]
        assert [row.ids[marker] for marker in row.markers] == [MASK, MASK]
        assert dropped == 0

    @pytest.mark.parametrize(
        ("question", "opening", "type_id"),
        [
            ({"type": "choice", "criteria": ["x"]}, "[CLS] choice question: Q [SEP] [MASK] x [SEP]", 0),
            ({"type": "score", "criteria": ["x"]}, "[CLS] score question: Q [SEP] [MASK] level 0: x [SEP]", 1),
            (
                {"type": "noul", "criteria": {"true": "T", "false": "F"}},
                "[CLS] noul question: Q [SEP] [MASK] false: F [MASK] true: T [SEP]",
                2,
            ),
        ],
    )
    def test_of_each_type(self, question: dict[str, Any], opening: str, type_id: int, words: WordTokenizer) -> None:
        head = head_of(parse_questions({"q": {"instructions": "Q", **question}})[0], words)
        assert words.decode(head.ids) == opening
        assert build_sequence(head, [], False, words, 512)[0].type_id == type_id

    def test_option_order_is_the_order_of_the_slots(self, words: WordTokenizer) -> None:
        head = head_of(choice(["a", "b", "c"], option_order=[2, 0, 1]), words)
        assert words.decode(head.ids).endswith("[MASK] c [MASK] a [MASK] b [SEP]")

    def test_an_empty_state_leaves_two_separators(self, words: WordTokenizer) -> None:
        row, _ = build_sequence(head_of(choice(["a"]), words), [], False, words, 512)
        assert row.ids[-2:] == [SEP, SEP]

    def test_heads_come_in_the_order_of_the_questions(self, words: WordTokenizer) -> None:
        first, second = choice(["a"], "one"), choice(["b", "c"], "two")
        heads = build_heads([first, second], words, 512, 192)
        assert [head.question for head in heads] == [first, second]
        assert [words.decode(head.ids[3:4]) for head in heads] == ["one", "two"]


class TestOptionBudget:
    def test_a_text_keeps_48_tokens_its_marker_not_counted(self, words: WordTokenizer) -> None:
        head = head_of(choice([many(48, "a"), many(49, "b")]), words)
        assert option_tokens(head) == [48, 48]
        assert head.tokens_per_option is None

    def test_16_tokens_left_is_enough(self, words: WordTokenizer) -> None:
        # Two options of 11 words and a marker: 24 tokens; 40 - 24 = 16.
        head = head_of(choice([many(11, "a"), many(11, "b")], many(30)), words, head_max_len=40)
        assert option_tokens(head) == [11, 11]
        assert instruction_tokens(head) == 16
        assert head.tokens_per_option is None

    def test_15_tokens_left_cuts_every_option(self, words: WordTokenizer) -> None:
        # 39 - 24 = 15, so each option gets (39 - 16) // 2 = 11 tokens, of which one is its marker; 39 - 22 = 17 are left.
        head = head_of(choice([many(11, "a"), many(11, "b")], many(30)), words, head_max_len=39)
        assert option_tokens(head) == [10, 10]
        assert instruction_tokens(head) == 17
        assert head.tokens_per_option == 11

    def test_the_cut_lets_short_options_be(self, words: WordTokenizer) -> None:
        head = head_of(choice([many(40, "a"), "b"], many(50)), words, head_max_len=48)
        # 48 - 43 = 5 < 16; (48 - 16) // 2 = 16: 15 words and 1 word; 48 - 16 - 2 = 30 are left.
        assert option_tokens(head) == [15, 1]
        assert instruction_tokens(head) == 30

    def test_the_cut_leaves_four_tokens_with_the_marker(self, words: WordTokenizer) -> None:
        # (64 - 16) // 20 = 2, but never fewer than 4: the marker and 3 words.
        head = head_of(choice([many(6, f"o{index}x") for index in range(20)]), words, head_max_len=64)
        assert option_tokens(head) == [3] * 20
        assert head.tokens_per_option == 4

    def test_options_are_cut_to_48_before_anything_is_left_for_the_instructions(self, words: WordTokenizer) -> None:
        # 60 words become 48; 65 - 49 = 16 are left, so nothing else is cut.
        head = head_of(choice([many(60, "a")], many(30)), words, head_max_len=65)
        assert option_tokens(head) == [48]
        assert instruction_tokens(head) == 16


class TestInstructionBudget:
    @pytest.mark.parametrize(("head_max_len", "kept"), [(100, 32), (30, 28), (18, 16)])
    def test_instructions_keep_what_the_options_leave(self, head_max_len: int, kept: int, words: WordTokenizer) -> None:
        # 30 words and "choice question:" are 32 tokens; one option of one word takes 2.
        assert instruction_tokens(head_of(choice(["a"], many(30)), words, head_max_len=head_max_len)) == kept

    def test_they_keep_8_tokens_even_past_head_max_len(self, words: WordTokenizer) -> None:
        # 20 options of 4 tokens take 80 of 64.
        head = head_of(choice([many(6, f"o{index}x") for index in range(20)], many(30)), words, head_max_len=64)
        assert instruction_tokens(head) == 8
        assert len(head.ids) == 1 + 8 + 1 + 80 + 1

    @pytest.mark.parametrize(("head_max_len", "kept"), [(27, 11), (24, 8), (23, 8)])
    def test_around_8(self, head_max_len: int, kept: int, words: WordTokenizer) -> None:
        # Four options of 6 words are cut to 4 tokens each: 16 in all, whatever is left.
        head = head_of(choice([many(6, f"o{index}x") for index in range(4)], many(30)), words, head_max_len=head_max_len)
        assert option_tokens(head) == [3] * 4
        assert instruction_tokens(head) == kept

    def test_short_instructions_stay_short(self, words: WordTokenizer) -> None:
        assert instruction_tokens(head_of(choice(["a"], "Which?"), words)) == 3


class TestStateBudget:
    @pytest.fixture
    def head(self, words: WordTokenizer) -> Head:
        head = head_of(choice(["a", "b"]), words)
        assert len(head.ids) == 10
        return head

    def test_room_is_what_the_head_and_the_last_separator_leave(self, head: Head) -> None:
        assert [head.room(max_len) for max_len in (512, 20, 12, 11, 10, 9)] == [501, 9, 1, 0, 0, 0]

    def test_a_state_that_just_fits_is_kept_whole(self, head: Head, words: WordTokenizer) -> None:
        row, dropped = build_sequence(head, list(range(100, 109)), False, words, 20)
        assert (row.ids[10:], dropped) == ([*range(100, 109), SEP], 0)

    def test_of_a_text_the_start_is_kept(self, head: Head, words: WordTokenizer) -> None:
        row, dropped = build_sequence(head, list(range(100, 115)), False, words, 20)
        assert (row.ids[10:], dropped) == ([*range(100, 109), SEP], 6)

    def test_of_a_conversation_the_end_is_kept(self, head: Head, words: WordTokenizer) -> None:
        row, dropped = build_sequence(head, list(range(100, 115)), True, words, 20)
        assert (row.ids[10:], dropped) == ([*range(106, 115), SEP], 6)

    @pytest.mark.parametrize("keep_end", [False, True])
    def test_no_room_at_all(self, keep_end: bool, head: Head, words: WordTokenizer) -> None:
        row, dropped = build_sequence(head, [100, 101], keep_end, words, 11)
        assert (row.ids[10:], dropped) == ([SEP], 2)

    @pytest.mark.parametrize("keep_end", [False, True])
    def test_a_head_longer_than_max_len_is_cut_without_a_closing_separator(self, keep_end: bool, head: Head, words: WordTokenizer) -> None:
        # The last marker stands at 7, its option's word at 8, the separator at 9.
        row, dropped = build_sequence(head, [100, 101], keep_end, words, 8)
        assert row.ids == head.ids[:8]
        assert row.ids[-1] == MASK
        assert (row.markers, dropped) == (head.markers, 2)


class TestOptionsThatDoNotFit:
    def test_the_last_position_is_still_inside(self, words: WordTokenizer) -> None:
        question = choice(["a", "b"])
        last = head_of(question, words).markers[-1]
        assert head_of(question, words, max_len=last + 1).markers[-1] == last
        with pytest.raises(ValueError, match="lane"):
            head_of(question, words, max_len=last)

    def test_the_message_names_the_question_and_both_budgets(self, words: WordTokenizer) -> None:
        with pytest.raises(ValueError, match=r"'lane'.*max_len=64.*head_max_len=63"):
            head_of(choice([f"label {index}" for index in range(200)]), words, max_len=64, head_max_len=63)


class TestDistinct:
    def test_all_differ(self, words: WordTokenizer) -> None:
        assert head_of(choice(["a", "b", "c"]), words).distinct == 3

    def test_options_made_alike_by_the_cut(self, words: WordTokenizer) -> None:
        labels = [f"overseas account transfer desk number {index:02}" for index in range(20)]
        head = head_of(choice(labels), words, head_max_len=64)
        assert (head.distinct, head.tokens_per_option) == (1, 4)

    def test_options_that_were_alike_before_any_cut(self, words: WordTokenizer) -> None:
        head = head_of(choice({"a b": None, "a  b": None, "c": None}), words)
        assert (head.distinct, head.tokens_per_option) == (2, None)


@given(
    options=st.lists(st.integers(0, 70), min_size=1, max_size=40),
    instructions=st.integers(1, 60),
    state=st.integers(0, 300),
    keep_end=st.booleans(),
    max_len=st.integers(1, 256),
    head_max_len=st.integers(1, 256),
)
def test_budgets_hold_for_any_question(
    options: list[int], instructions: int, state: int, keep_end: bool, max_len: int, head_max_len: int
) -> None:
    words = WordTokenizer()
    question = choice([f"{index} " + many(count, f"o{index}x") for index, count in enumerate(options)], many(instructions, "i"))
    if head_of(question, words, 100_000, head_max_len).markers[-1] >= max_len:
        with pytest.raises(ValueError, match=f"lane.*max_len={max_len}"):
            head_of(question, words, max_len, head_max_len)
        return
    head = head_of(question, words, max_len, head_max_len)
    tokens = list(range(10_000, 10_000 + state))
    row, dropped = build_sequence(head, tokens, keep_end, words, max_len)
    kept = [token for token in row.ids if token >= 10_000]
    assert len(row.ids) <= max_len
    assert [row.ids[marker] for marker in row.markers] == [MASK] * len(options)
    assert row.ids.count(MASK) == len(options)
    assert len(kept) + dropped == state
    assert kept == (tokens[len(tokens) - len(kept) :] if keep_end else tokens[: len(kept)])
    # Nothing is dropped while there is room for it.
    assert dropped == 0 or len(row.ids) == max_len
    assert instruction_tokens(head) == min(instructions + 2, max(8, head_max_len - sum(1 + count for count in option_tokens(head))))
