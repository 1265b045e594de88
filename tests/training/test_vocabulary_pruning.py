from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tokenizers import Tokenizer

from training.vocabulary import SPECIAL_TOKENS, check, is_kept_character, prune

CHARACTERS = ["a", "b", "ж", "é", "€", "7", "##a", "##b", "##7"]
FOREIGN = ["注", "ह", "##注"]
WORDS = ["refund", "invoice", "##ing", "12", "2024", "zebra", "quartz", "hello"]
PIECES = ["[PAD]", "[unused0]", "[unused1]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *FOREIGN, *CHARACTERS]
ALWAYS = len(SPECIAL_TOKENS) + len(CHARACTERS)


@pytest.fixture
def whole(make_tokenizer: Callable[[Sequence[str]], dict[str, Any]]) -> dict[str, Any]:
    return make_tokenizer(PIECES)


def pieces_kept(whole: dict[str, Any], size: int, own: list[str], other: list[str], words: list[str]) -> list[str]:
    pruned = prune(whole, own, other, words, size)
    assert [PIECES[old_id] for old_id in pruned.old_ids] == list(pruned.tokenizer["model"]["vocab"])
    assert list(pruned.tokenizer["model"]["vocab"].values()) == list(range(size))
    check(pruned.tokenizer, size)
    return list(pruned.tokenizer["model"]["vocab"])


def test_special_tokens_come_first_and_single_characters_stay(whole: dict[str, Any]) -> None:
    kept = pieces_kept(whole, ALWAYS, [], ["zebra " * 9], ["refund"])
    assert kept[:5] == SPECIAL_TOKENS
    assert set(kept[5:]) == set(CHARACTERS)


@pytest.mark.parametrize(
    ("room", "kept"),
    [(1, {"12"}), (2, {"12", "refund"}), (3, {"12", "refund", "invoice"}), (4, {"12", "refund", "invoice", "zebra"})],
)
def test_numbers_then_own_pieces_then_words_then_frequent_ones(whole: dict[str, Any], room: int, kept: set[str]) -> None:
    found = pieces_kept(whole, ALWAYS + room, ["refund"], ["zebra " * 9, "hello"], ["invoice", "nowhere"])
    assert set(found) - {*SPECIAL_TOKENS, *CHARACTERS} == kept


def test_unused_slots_and_foreign_characters_go_first(whole: dict[str, Any]) -> None:
    kept = pieces_kept(whole, len(PIECES) - 2 - len(FOREIGN) - 1, [], [], [])  # numbers like 2024 are as unlikely
    assert not {*FOREIGN, "[unused0]", "[unused1]"} & set(kept)


def test_the_given_tokenizer_is_left_alone_and_truncation_is_off(whole: dict[str, Any]) -> None:
    before = json.dumps(whole)
    pruned = prune(whole, [], [], [], 20).tokenizer
    assert json.dumps(whole) == before
    assert pruned["truncation"] is None
    assert len(Tokenizer.from_str(json.dumps(pruned)).encode("a " * 50, add_special_tokens=False).ids) == 50


@pytest.mark.parametrize(
    ("piece", "kept"), [("a", True), ("##ж", True), ("€", True), ("–", True), ("注", False), ("ab", False), ("##ab", False)]
)
def test_is_kept_character(piece: str, kept: bool) -> None:
    assert is_kept_character(piece) is kept


def test_check_refuses_another_size(whole: dict[str, Any]) -> None:
    pruned = prune(whole, [], [], [], 20).tokenizer
    with pytest.raises(ValueError, match="20 pieces, not 21"):
        check(pruned, 21)
