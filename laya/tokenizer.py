"""The checkpoint's tokenizer, read from its own files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import tokenizers

from laya.files import CheckpointError, read_object

_SPECIALS = ("cls_token", "sep_token", "mask_token", "pad_token")


class Tokenizer:
    """A fast tokenizer without any state that a call could change, so threads may share it.

    Truncation and padding are switched off for good: on a shared tokenizer, one thread's setting would silently cut
    another thread's text. Cutting is done on the ids.

    Args:
        folder: Holds tokenizer.json, and tokenizer_config.json or special_tokens_map.json for the names of special tokens.

    Raises:
        CheckpointError: A file is missing or unreadable, or a special token is not in the vocabulary.
    """

    def __init__(self, folder: Path) -> None:
        path = folder / "tokenizer.json"
        if not path.is_file():
            raise CheckpointError(f"{path} is missing: a checkpoint needs a fast tokenizer")
        try:
            self._tokenizer = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises no class of its own
            raise CheckpointError(f"{path} is no tokenizer that can be read: {error}") from None
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._tokenizer.encode_special_tokens = False
        names = _special_names(folder)
        ids = {}
        for special in _SPECIALS:
            name = names.get(special) or f"[{special.removesuffix('_token').upper()}]"
            token_id = self._tokenizer.token_to_id(name)
            if token_id is None:
                raise CheckpointError(f"{folder}: {special} {name!r} is not in the vocabulary; name it in tokenizer_config.json")
            ids[special] = token_id
        self.cls_id, self.sep_id, self.mask_id, self.pad_id = (ids[special] for special in _SPECIALS)
        self.mask_text = names.get("mask_token") or "[MASK]"

    @property
    def vocabulary_size(self) -> int:
        """Number of token ids, added tokens counted."""
        return int(self._tokenizer.get_vocab_size())

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each text, without special tokens added; the mask token's own text is read as a space."""
        encodings = self._tokenizer.encode_batch_fast([self.plain(text) for text in texts], add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def encode_with_spans(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Token ids of one text, and the (start, end) characters of ``plain(text)`` that each token stands for."""
        encoding = self._tokenizer.encode(self.plain(text), add_special_tokens=False)
        return encoding.ids, encoding.offsets

    def plain(self, text: str) -> str:
        """The text with the mask token's own text replaced, so that no text can add a marker."""
        return text.replace(self.mask_text, " ")


def _special_names(folder: Path) -> dict[str, str]:
    names: dict[str, str] = {}
    for file in ("special_tokens_map.json", "tokenizer_config.json"):
        path = folder / file
        if not path.is_file():
            continue
        content = read_object(path)
        for special in _SPECIALS:
            name = content.get(special)
            if isinstance(name, dict):
                name = name.get("content")
            if isinstance(name, str):
                names[special] = name
    return names
