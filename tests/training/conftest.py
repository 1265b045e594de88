from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from training.vocabulary import SPECIAL_TOKENS

MakeTokenizer = Callable[[Sequence[str]], dict[str, Any]]


@pytest.fixture(scope="session")
def make_tokenizer() -> MakeTokenizer:
    """Makes the content of a WordPiece tokenizer.json, cased like MiniLM's, from its pieces."""

    def make(pieces: Sequence[str]) -> dict[str, Any]:
        flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        special = [{"id": pieces.index(token), "content": token, **flags, "special": True} for token in reversed(SPECIAL_TOKENS)]
        normalizer = {"clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True}
        return {
            "version": "1.0",
            "truncation": {"direction": "Right", "max_length": 8, "strategy": "LongestFirst", "stride": 0},
            "padding": None,
            "added_tokens": special,
            "normalizer": {"type": "BertNormalizer", **normalizer},
            "pre_tokenizer": {"type": "BertPreTokenizer"},
            "post_processor": None,
            "decoder": None,
            "model": {
                "type": "WordPiece",
                "unk_token": "[UNK]",
                "continuing_subword_prefix": "##",
                "max_input_chars_per_word": 100,
                "vocab": {piece: number for number, piece in enumerate(pieces)},
            },
        }

    return make
