"""A question's head and a state become one token sequence, within budgets.

    [CLS] instructions [SEP] [MASK] option 0 [MASK] option 1 ... [SEP] state [SEP]

Each [MASK] is the marker of the option after it: the model reads that option's logit there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from laya.questions import Question

OPTION_TOKENS = 48
"""Most tokens of one option's text, its marker not counted."""
MIN_INSTRUCTION_ROOM = 16
"""Below this many tokens left for the instructions, every option is cut."""
MIN_OPTION_TOKENS = 4
"""Fewest tokens that cut leaves an option, its marker counted."""
MIN_INSTRUCTION_TOKENS = 8
"""Fewest tokens kept of the instructions, even past head_max_len."""


class TextTokenizer(Protocol):
    """What a tokenizer must offer; `laya.tokenizer.Tokenizer` does."""

    cls_id: int
    sep_id: int
    mask_id: int
    pad_id: int

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each text, without special tokens added, the mask token's own text read as a space."""


@dataclass(frozen=True, slots=True)
class Head:
    """The part of a sequence that a question decides alone.

    Attributes:
        question: The question.
        ids: Token ids up to and with the [SEP] before the state.
        markers: Position of each slot's marker.
        distinct: Options whose tokens, after any cut, differ from each other.
        tokens_per_option: What each option was cut to, its marker counted; None where nothing had to be cut.
    """

    question: Question
    ids: list[int]
    markers: list[int]
    distinct: int
    tokens_per_option: int | None

    def room(self, max_len: int) -> int:
        """Tokens of a state that fit behind this head."""
        return max(0, max_len - len(self.ids) - 1)


@dataclass(frozen=True, slots=True)
class TokenSequence:
    """One row for the model.

    Attributes:
        ids: Token ids, at most max_len of them.
        markers: Position of each slot's marker.
        type_id: Row of the type embedding.
    """

    ids: list[int]
    markers: list[int]
    type_id: int


def build_heads(questions: Sequence[Question], tokenizer: TextTokenizer, max_len: int, head_max_len: int) -> list[Head]:
    """Tokenizes the questions of a call.

    Args:
        questions: The questions.
        tokenizer: The checkpoint's tokenizer.
        max_len: Longest sequence, in tokens.
        head_max_len: Tokens for instructions, options and markers together.

    Raises:
        ValueError: The options of a question do not fit into max_len.
    """
    texts = [text for question in questions for text in _head_texts(question)]
    encoded = iter(tokenizer.encode(texts))
    heads = []
    for question in questions:
        instructions, *options = [next(encoded) for _ in range(1 + question.n)]
        heads.append(_head(question, instructions, options, tokenizer, max_len, head_max_len))
    return heads


def _head_texts(question: Question) -> list[str]:
    return [f"{question.type} question: {question.instructions}", *(f" {text}" for text in question.option_texts)]


def _head(
    question: Question, instructions: list[int], options: list[list[int]], tokenizer: TextTokenizer, max_len: int, head_max_len: int
) -> Head:
    options = [option[:OPTION_TOKENS] for option in options]
    tokens_per_option = None
    left = head_max_len - sum(1 + len(option) for option in options)
    if left < MIN_INSTRUCTION_ROOM:
        tokens_per_option = max(MIN_OPTION_TOKENS, (head_max_len - MIN_INSTRUCTION_ROOM) // question.n)
        options = [option[: tokens_per_option - 1] for option in options]
        left = head_max_len - sum(1 + len(option) for option in options)
    ids = [tokenizer.cls_id, *instructions[: max(MIN_INSTRUCTION_TOKENS, left)], tokenizer.sep_id]
    markers = []
    for option in options:
        markers.append(len(ids))
        ids += [tokenizer.mask_id, *option]
    if markers[-1] >= max_len:
        raise ValueError(
            f"question {question.qid!r}: its {question.n} options do not fit into max_len={max_len} "
            f"(head_max_len={head_max_len}): use fewer or shorter options, or raise max_len"
        )
    ids.append(tokenizer.sep_id)
    return Head(question, ids, markers, len({tuple(option) for option in options}), tokens_per_option)


def build_sequence(head: Head, state: Sequence[int], keep_end: bool, tokenizer: TextTokenizer, max_len: int) -> tuple[TokenSequence, int]:
    """Joins a head and a state.

    Args:
        head: The question's part.
        state: Token ids of the whole state.
        keep_end: Keep the end of a state that is too long (a conversation) instead of its start.
        tokenizer: The checkpoint's tokenizer.
        max_len: Longest sequence, in tokens.

    Returns:
        The sequence, and how many tokens of the state it had to drop.
    """
    room = head.room(max_len)
    if len(state) <= room:
        kept = state
    elif keep_end:
        kept = state[len(state) - room :]
    else:
        kept = state[:room]
    ids = [*head.ids, *kept, tokenizer.sep_id][:max_len]
    return TokenSequence(ids, head.markers, head.question.type_id), len(state) - len(kept)
