"""States and questions become rows: one token sequence for each question about each state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from laya.questions import Question
from laya.sequences import Head, TokenSequence, build_heads, build_sequence
from laya.states import serialize
from laya.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class EncodedState:
    """A state as tokens.

    Attributes:
        ids: Token ids of all of it.
        keep_end: Whether its end is kept where it is too long (a conversation) instead of its start.
    """

    ids: Sequence[int]
    keep_end: bool


class RowBuilder:
    """Builds rows with a checkpoint's tokenizer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        # The same questions come with call after call; what they alone decide is tokenized once.
        self._heads = lru_cache(maxsize=256)(self._build_heads)

    def heads(self, questions: tuple[Question, ...], max_len: int, head_max_len: int) -> list[Head]:
        """The heads of questions within token budgets; see `laya.sequences.build_heads`."""
        return self._heads(questions, max_len, head_max_len)

    def states(self, states: Sequence[Any], tokenize: bool = True) -> list[EncodedState]:
        """Tokenizes states, or only looks them over. Equal ones are tokenized once and are one object.

        Raises:
            TypeError: A state is None, or holds something that JSON cannot; the message names it.
            ValueError: A state holds a value that JSON cannot.
        """
        keys = [(serialize(state, f"states[{index}]"), isinstance(state, list)) for index, state in enumerate(states)]
        distinct = list(dict.fromkeys(keys))
        ids: Sequence[Sequence[int]] = self._tokenizer.encode([text for text, _ in distinct]) if tokenize else [()] * len(distinct)
        encoded = {key: EncodedState(part, key[1]) for key, part in zip(distinct, ids, strict=True)}
        return [encoded[key] for key in keys]

    def row(self, head: Head, state: EncodedState, max_len: int) -> tuple[TokenSequence, int]:
        """One row, and how many tokens of the state it had to drop; see `laya.sequences.build_sequence`."""
        return build_sequence(head, state.ids, state.keep_end, self._tokenizer, max_len)

    def _build_heads(self, questions: tuple[Question, ...], max_len: int, head_max_len: int) -> list[Head]:
        return build_heads(questions, self._tokenizer, max_len, head_max_len)


def usage_of(heads: Sequence[Head], rows: Sequence[tuple[TokenSequence, int]], state_tokens: int) -> dict[str, Any]:
    """The token counts of one state's result.

    Args:
        heads: The questions' heads.
        rows: The state's row for each of them, with the tokens that it dropped.
        state_tokens: Tokens of the whole state.
    """
    cut = [head.question.qid for head, (_, dropped) in zip(heads, rows, strict=True) if dropped]
    usage: dict[str, Any] = {
        "input_tokens": sum(len(row.ids) for row, _ in rows),
        "output_tokens": 0,
        "state_tokens": state_tokens,
        "state_tokens_dropped": max((dropped for _, dropped in rows), default=0),
        "truncated": bool(cut),
        "truncated_questions": cut,
    }
    alike = {
        head.question.qid: {"total": head.question.n, "distinct": head.distinct, "tokens_per_option": head.tokens_per_option}
        for head in heads
        if head.distinct < head.question.n
    }
    return {**usage, "options": alike} if alike else usage
