"""Rows as token sequences with the slot of the right option, the form in which the model reads and learns them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from laya.questions import Question, parse_questions
from laya.sequences import TextTokenizer, TokenSequence, build_heads, build_sequence
from laya.states import serialize
from training.rows import Row

MAX_LEN = 512
HEAD_MAX_LEN = 192
CHUNK = 2048


@dataclass(frozen=True)
class Example:
    """A row that is ready for the model. `target` is the slot of the right option."""

    question: Question
    sequence: TokenSequence
    target: int

    def __len__(self) -> int:
        return len(self.sequence.ids)


def encode_rows(rows: Sequence[Row], tokenizer: TextTokenizer, max_len: int = MAX_LEN, head_max_len: int = HEAD_MAX_LEN) -> list[Example]:
    """Turns rows into examples, exactly as the library turns states and questions into sequences.

    Args:
        rows: The rows.
        tokenizer: The tokenizer of the checkpoint.
        max_len: Longest sequence.
        head_max_len: Budget of instructions and options.
    """
    examples: list[Example] = []
    for start in range(0, len(rows), CHUNK):
        chunk = rows[start : start + CHUNK]
        questions = parse_questions({number: row.question for number, row in enumerate(chunk)})
        heads = build_heads(questions, tokenizer, max_len, head_max_len)
        states = tokenizer.encode([serialize(row.state) for row in chunk])
        for row, question, head, state in zip(chunk, questions, heads, states, strict=True):
            sequence, _ = build_sequence(head, state, isinstance(row.state, list), tokenizer, max_len)
            examples.append(Example(question, sequence, question.order.index(row.answer)))
    return examples
