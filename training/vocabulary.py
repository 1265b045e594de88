"""Cut the tokenizer's vocabulary down to what an English model of this size needs."""

from __future__ import annotations

import copy
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from tokenizers import Tokenizer

SPECIAL_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
CONTINUATION = "##"
PROBES = [
    "Hello, wörld! 12345 €99 #48213",
    "naïve café résumé",
    "注文が届きません",
    "Что делать",
    "🙂 😡",
    "a" * 200,
    "\x00\x07 tab\tnew\nline",
    "[MASK] [SEP]",
    "".join(map(chr, range(32, 0x600))),
]


class PrunedVocabulary(NamedTuple):
    """The content of the new tokenizer.json, and the old id of each new one."""

    tokenizer: dict[str, Any]
    old_ids: list[int]


def is_kept_character(piece: str) -> bool:
    """Tells whether a piece is a single character that is always kept: Latin, Greek, Cyrillic, punctuation, symbols.

    CJK, Arabic and Indic characters would take a thousand pieces, which an English model cannot afford.
    """
    character = piece.removeprefix(CONTINUATION)
    return len(character) == 1 and (ord(character) < 0x530 or 0x2000 <= ord(character) < 0x2C00)


def prune(
    tokenizer: Mapping[str, Any], own_texts: Sequence[str], other_texts: Sequence[str], words: Iterable[str], size: int
) -> PrunedVocabulary:
    """Chooses the pieces to keep.

    In this order, until `size` is reached: special tokens, single characters, numbers of one or two digits, every piece of
    the own texts, the given words, then the pieces that are frequent in the other texts and in the original vocabulary,
    which is sorted by frequency. The kept pieces stay in their old order.

    Args:
        tokenizer: Content of a WordPiece tokenizer.json.
        own_texts: Texts whose pieces must all stay.
        other_texts: Texts that count.
        words: Words to keep if they are one piece.
        size: Number of pieces.
    """
    pruned = copy.deepcopy(dict(tokenizer))
    pruned["truncation"] = pruned["padding"] = None
    vocabulary: dict[str, int] = pruned["model"]["vocab"]
    pieces = {old_id: piece for piece, old_id in vocabulary.items()}
    special = [vocabulary[token] for token in SPECIAL_TOKENS]
    counter = Tokenizer.from_str(json.dumps(pruned))
    own = _count_pieces(counter, own_texts)
    other = _count_pieces(counter, other_texts)

    def usefulness(old_id: int) -> float:
        return _usefulness(pieces[old_id], old_id, other[old_id])

    kept = dict.fromkeys(special)
    for candidates in (
        (old_id for old_id, piece in pieces.items() if is_kept_character(piece)),
        (old_id for piece, old_id in vocabulary.items() if piece.isdigit() and len(piece) <= 2),
        (old_id for old_id, _ in own.most_common()),
        (vocabulary[word] for word in words if word in vocabulary),
        sorted(pieces, key=usefulness, reverse=True),
    ):
        for old_id in candidates:
            if len(kept) >= size:
                break
            if not pieces[old_id].startswith("[unused"):
                kept[old_id] = None
    old_ids = special + sorted(set(kept) - set(special))
    new_ids = {pieces[old_id]: new_id for new_id, old_id in enumerate(old_ids)}
    pruned["model"]["vocab"] = new_ids
    for added in pruned["added_tokens"]:
        added["id"] = new_ids[added["content"]]
    pruned["added_tokens"].sort(key=_token_id)
    pruned["post_processor"] = None
    return PrunedVocabulary(pruned, old_ids)


def _token_id(added: Mapping[str, Any]) -> int:
    return int(added["id"])


def _count_pieces(tokenizer: Tokenizer, texts: Sequence[str]) -> Counter[int]:
    counts: Counter[int] = Counter()
    for encoding in tokenizer.encode_batch(list(texts), add_special_tokens=False):
        counts.update(encoding.ids)
    return counts


def _usefulness(piece: str, old_id: int, count: int) -> float:
    # a low id means a frequent piece; the first two thousand are taken as equal, and continuations are favoured a little
    common = 2500 if piece.startswith(CONTINUATION) else 2000
    score = math.log(count + 1) - 0.9 * math.log(max(old_id, 2000) / common)
    unlikely = not piece.replace(CONTINUATION, "").isascii() or any(character.isdigit() for character in piece)
    return score - 2.5 if unlikely else score


def check(tokenizer: Mapping[str, Any], size: int) -> None:
    """Raises ValueError unless the tokenizer has `size` pieces, the special tokens first, and reads any text."""
    read_back = Tokenizer.from_str(json.dumps(tokenizer))
    if read_back.get_vocab_size() != size:
        raise ValueError(f"the vocabulary has {read_back.get_vocab_size()} pieces, not {size}")
    special = [read_back.token_to_id(token) for token in SPECIAL_TOKENS]
    if special != list(range(len(SPECIAL_TOKENS))):
        raise ValueError(f"the special tokens have the ids {special}")
    for probe in PROBES:
        ids = read_back.encode(probe, add_special_tokens=False).ids
        if not all(0 <= token_id < size for token_id in ids):
            raise ValueError(f"{probe!r} has ids out of range")
