"""The tokenizer: special tokens found by name, no text that adds a marker, nothing that a call could change."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import laya
from laya.tokenizer import Tokenizer

Edit = Callable[[dict[str, Any]], Any]


@pytest.fixture(scope="module")
def tokenizer(tiny_folder: Path) -> Tokenizer:
    return Tokenizer(tiny_folder / "tokenizer")


@pytest.fixture
def folder(tiny_folder: Path, tmp_path: Path) -> Path:
    """A copy of the golden tokenizer's folder, to change."""
    return Path(shutil.copytree(tiny_folder / "tokenizer", tmp_path / "tokenizer", copy_function=shutil.copyfile))


def edit(path: Path, change: Edit) -> None:
    content = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    change(content)
    path.write_text(json.dumps(content), encoding="utf-8")


def rename_mask(folder: Path, name: str) -> None:
    """Renames the mask token inside tokenizer.json alone."""

    def change(content: dict[str, Any]) -> None:
        content["added_tokens"][4]["content"] = name
        content["model"]["vocab"][name] = content["model"]["vocab"].pop("[MASK]")

    edit(folder / "tokenizer.json", change)


def test_special_tokens(tokenizer: Tokenizer) -> None:
    assert (tokenizer.pad_id, tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id) == (0, 2, 3, 4)
    assert tokenizer.vocabulary_size == 845


def test_no_special_tokens_are_added(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode(["quote score hundred", ""]) == [[344, 334, 431], []]


def test_the_mask_tokens_text_is_read_as_a_space(tokenizer: Tokenizer) -> None:
    found, wanted = tokenizer.encode(["quote[MASK]score [MASK][MASK] hundred", "quote score    hundred"])
    assert found == wanted
    assert tokenizer.mask_id not in found


def test_a_mask_made_by_the_replacement_is_none(tokenizer: Tokenizer) -> None:
    assert tokenizer.mask_id not in tokenizer.encode(["[MA[MASK]SK] [[MASK]MASK]"])[0]


def test_the_text_of_other_special_tokens_does_become_them(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode(["[SEP] [CLS] quote"]) == [[3, 2, 344]]


def test_spans_are_characters_of_the_plain_text(tokenizer: Tokenizer) -> None:
    text = "  quote [MASK] 退款 hundred!"
    ids, spans = tokenizer.encode_with_spans(text)
    plain = tokenizer.plain(text)
    assert plain == "  quote   退款 hundred!"
    assert ids == tokenizer.encode([text])[0]
    assert [plain[start:end] for start, end in spans] == ["quote", "退", "款", "hundred", "!"]


@pytest.mark.parametrize("name", ["<mask>", {"content": "<mask>", "lstrip": True, "special": True}])
@pytest.mark.parametrize("file", ["tokenizer_config.json", "special_tokens_map.json"])
def test_the_masks_name_comes_from_either_file_as_text_or_object(name: Any, file: str, folder: Path) -> None:
    rename_mask(folder, "<mask>")
    (folder / "tokenizer_config.json").unlink()
    edit(folder / file, lambda content: content.update(mask_token=name))
    tokenizer = Tokenizer(folder)
    assert tokenizer.mask_id == 4
    assert tokenizer.encode(["quote<mask>score"]) == [[344, 334]]


def test_tokenizer_config_comes_before_the_special_tokens_map(folder: Path) -> None:
    rename_mask(folder, "<mask>")
    edit(folder / "tokenizer_config.json", lambda content: content.update(mask_token="<mask>"))
    edit(folder / "special_tokens_map.json", lambda content: content.update(mask_token="[UNK]"))
    assert Tokenizer(folder).mask_text == "<mask>"


def test_without_both_files_the_usual_names_count(folder: Path) -> None:
    (folder / "tokenizer_config.json").unlink()
    tokenizer = Tokenizer(folder)
    assert (tokenizer.pad_id, tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id) == (0, 2, 3, 4)


@pytest.mark.parametrize("special", ["cls_token", "sep_token", "mask_token", "pad_token"])
def test_a_special_token_outside_the_vocabulary_is_named(special: str, folder: Path) -> None:
    edit(folder / "tokenizer_config.json", lambda content: content.update({special: "<nowhere>"}))
    with pytest.raises(ValueError, match=f"{special}.*<nowhere>"):
        Tokenizer(folder)


def test_a_missing_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(laya.CheckpointError, match=r"tokenizer\.json"):
        Tokenizer(tmp_path)


def test_truncation_and_padding_of_the_file_are_switched_off(folder: Path, tokenizer: Tokenizer) -> None:
    def change(content: dict[str, Any]) -> None:
        content["truncation"] = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
        content["padding"] = {
            "strategy": {"Fixed": 16},
            "direction": "Right",
            "pad_to_multiple_of": None,
            "pad_id": 0,
            "pad_type_id": 0,
            "pad_token": "[PAD]",
        }

    edit(folder / "tokenizer.json", change)
    texts = ["quote", "quote score hundred monday payment before now"]
    assert Tokenizer(folder).encode(texts) == tokenizer.encode(texts)
    assert Tokenizer(folder).encode_with_spans(texts[1]) == tokenizer.encode_with_spans(texts[1])


def test_threads_may_share_it(tokenizer: Tokenizer) -> None:
    """On a shared tokenizer, a truncation set for one thread once cut another thread's text."""
    texts = ["quote score " * 15, "which late " * 1000, ""]
    wanted = tokenizer.encode(texts)
    spans = [tokenizer.encode_with_spans(text) for text in texts]
    barrier = threading.Barrier(8)

    def work(_: int) -> bool:
        barrier.wait(30)
        for _ in range(10):
            if tokenizer.encode(texts) != wanted or [tokenizer.encode_with_spans(text) for text in texts] != spans:
                return False
        return True

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(work, range(8)))
