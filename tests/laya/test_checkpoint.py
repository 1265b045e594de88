"""Checkpoints: found by name, refused by name, and loaded with the weights that the file holds."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import torch
from huggingface_hub.utils import filter_repo_objects
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModel

import laya
from laya.checkpoint import build_model, open_checkpoint
from laya.names import CheckpointSource
from laya.network.model import DecisionModel

CONFIG, WEIGHTS = "rl_agent_config.json", "model.safetensors"
QUESTIONS = {"refund": {"type": "noul", "instructions": "Does the writer want money back?"}}


@pytest.fixture
def folder(quiet_folder: Path, tmp_path: Path) -> Path:
    """A checkpoint of its own for each test, to break."""
    return Path(shutil.copytree(quiet_folder, tmp_path / "checkpoint"))


def load(folder: Path, **options: Any) -> laya.Agent:
    return laya.load(str(folder), device="cpu", **options)


def edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | changes), encoding="utf-8")


def edit_weights(folder: Path, change: Callable[[dict[str, torch.Tensor]], Any]) -> None:
    tensors = load_file(folder / WEIGHTS)
    change(tensors)
    save_file(tensors, folder / WEIGHTS)


class TestNames:
    def test_the_bundled_one(self, mini: laya.Agent) -> None:
        assert mini.model_id == "mini"
        assert (mini.max_len, mini.head_max_len) == (512, 192)

    def test_a_folder(self, quiet_folder: Path) -> None:
        agent = load(quiet_folder)
        assert agent.model_id == str(quiet_folder)
        assert (agent.max_len, agent.head_max_len) == (256, 96)

    def test_a_path_object_and_a_subfolder(self, folder: Path) -> None:
        model_id: Any = folder.parent
        assert load(model_id, subfolder="checkpoint").max_len == 256

    @pytest.mark.parametrize("name", ["/no/such/folder", "./no/such", "nobody", "a/b/c", "~/no/such/folder"])
    def test_an_unknown_name_is_refused_without_the_network(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *args, **options: pytest.fail("asked the hub"))
        with pytest.raises(laya.CheckpointError, match="not found") as caught:
            laya.load(name, device="cpu")
        assert repr(name) in str(caught.value)


class FakeHub:
    """Stands in for the hub's client: a repository on disk, of which it hands out what the patterns let through."""

    def __init__(self, repository: Path, downloads: Path) -> None:
        self.repository = repository
        self.downloads = downloads
        self.calls: list[dict[str, Any]] = []
        self.files: list[str] = []

    def __call__(self, repo_id: str, **options: Any) -> str:
        self.calls.append({"repo_id": repo_id, **options})
        names = [path.relative_to(self.repository).as_posix() for path in self.repository.rglob("*") if path.is_file()]
        self.files = sorted(filter_repo_objects(names, allow_patterns=options.get("allow_patterns")))
        for name in self.files:
            target = self.downloads / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self.repository / name, target)
        return str(self.downloads)


@pytest.fixture
def hub(quiet_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHub:
    repository = tmp_path / "repository"
    for subfolder, max_len in (("", 200), ("multilingual", 210), ("typed-decisions", 220)):
        shutil.copytree(quiet_folder, repository / subfolder, dirs_exist_ok=True)
        edit(repository / subfolder / CONFIG, max_len=max_len)
    (repository / "README.md").write_text("hello", encoding="utf-8")
    (repository / "onnx").mkdir()
    (repository / "onnx" / "model.onnx").write_bytes(b"big")
    fake = FakeHub(repository, tmp_path / "downloads")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", fake)
    return fake


FILES = ["encoder/config.json", WEIGHTS, CONFIG, "tokenizer/tokenizer.json", "tokenizer/tokenizer_config.json"]


class TestHub:
    @pytest.mark.parametrize(
        ("name", "subfolder", "max_len"),
        [
            *[(name, "", 200) for name in ("english", "en", "laya", "default", "convaiinnovations/laya")],
            *[(name, "multilingual/", 210) for name in ("multilingual", "multi", "ml", "laya-multilingual")],
            *[
                (name, "typed-decisions/", 220)
                for name in ("typed-decisions", "typed", "typed_decisions", "laya-typed-decisions", "decisions")
            ],
        ],
    )
    def test_only_the_wanted_folder_is_downloaded(self, name: str, subfolder: str, max_len: int, hub: FakeHub) -> None:
        agent = laya.load(name, device="cpu")
        assert agent.max_len == max_len
        assert [call["repo_id"] for call in hub.calls] == ["convaiinnovations/laya"]
        assert hub.files == sorted(subfolder + file for file in FILES)

    def test_a_repository_of_ones_own(self, hub: FakeHub) -> None:
        assert laya.load("someone/theirs", subfolder="multilingual", device="cpu").max_len == 210
        assert hub.calls[0]["repo_id"] == "someone/theirs"
        assert hub.files == sorted(f"multilingual/{file}" for file in FILES)

    def test_token_and_revision_are_passed_on(self, hub: FakeHub) -> None:
        laya.load("multilingual", token="hf_secret", revision="abc123", device="cpu")
        assert (hub.calls[0]["token"], hub.calls[0]["revision"]) == ("hf_secret", "abc123")
        assert hub.files[0].startswith("multilingual/")

    def test_no_revision_is_the_newest(self, hub: FakeHub) -> None:
        laya.load("english", device="cpu")
        assert (hub.calls[0]["token"], hub.calls[0]["revision"]) == (None, None)

    def test_the_downloaded_files_are_not_changed(self, hub: FakeHub) -> None:
        laya.load("english", device="cpu").system_one("hello", QUESTIONS)
        for file in FILES:
            assert (hub.downloads / file).read_bytes() == (hub.repository / file).read_bytes()
        assert sorted(path.relative_to(hub.downloads).as_posix() for path in hub.downloads.rglob("*") if path.is_file()) == sorted(FILES)

    def test_a_repository_without_the_folder_is_refused_by_name(self, hub: FakeHub) -> None:
        shutil.rmtree(hub.repository / "multilingual")
        with pytest.raises(laya.CheckpointError, match=r"rl_agent_config\.json"):
            laya.load("multilingual", device="cpu")

    def test_what_goes_wrong_there_is_told(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def unreachable(*args: Any, **options: Any) -> str:
            raise ConnectionError("no route to the hub\nand more")

        monkeypatch.setattr(huggingface_hub, "snapshot_download", unreachable)
        with pytest.raises(laya.CheckpointError, match=r"'someone/theirs'.*no route to the hub") as caught:
            laya.load("someone/theirs", device="cpu")
        assert isinstance(caught.value.__cause__, ConnectionError)
        assert "mini" in str(caught.value)


class TestFiles:
    @pytest.mark.parametrize("name", [CONFIG, WEIGHTS, "encoder/config.json", "tokenizer/tokenizer.json"])
    def test_a_missing_one_is_named(self, name: str, folder: Path) -> None:
        (folder / name).unlink()
        with pytest.raises(laya.CheckpointError, match=name) as caught:
            load(folder)
        assert not any(other in str(caught.value) for other in {CONFIG, WEIGHTS, "encoder", "tokenizer"} - {name, name.split("/")[0]})

    def test_all_missing_ones_are_named_together(self, tmp_path: Path) -> None:
        with pytest.raises(laya.CheckpointError) as caught:
            load(tmp_path)
        assert all(name in str(caught.value) for name in (CONFIG, WEIGHTS, "encoder/config.json", "tokenizer/tokenizer.json"))

    @pytest.mark.parametrize(
        "name", [CONFIG, "encoder/config.json", "tokenizer/tokenizer.json", "tokenizer/tokenizer_config.json", WEIGHTS]
    )
    @pytest.mark.parametrize("content", [b"{", b"[]", b"\xff\xfe\x00"], ids=["cut off", "a list", "no text"])
    def test_a_broken_one_is_named(self, name: str, content: bytes, folder: Path) -> None:
        (folder / name).write_bytes(content)
        with pytest.raises(laya.CheckpointError, match=name):
            load(folder)

    @pytest.mark.parametrize("changes", [{"model_type": "nonesuch"}, {"model_type": None}, {"hidden_size": "wide"}])
    def test_an_encoder_that_cannot_be_built(self, changes: dict[str, Any], folder: Path) -> None:
        edit(folder / "encoder" / "config.json", **changes)
        with pytest.raises(laya.CheckpointError, match=r"encoder/config\.json"):
            load(folder)

    def test_the_tokenizer_of_another_checkpoint(self, folder: Path) -> None:
        """Its ids go past the encoder's embeddings, which would only show, as an IndexError, at some later text."""
        other = Path(laya.__file__).parent / "checkpoints" / "mini" / "tokenizer" / "tokenizer.json"
        shutil.copyfile(other, folder / "tokenizer" / "tokenizer.json")
        with pytest.raises(laya.CheckpointError, match="tokenizer"):
            load(folder)


class TestConfig:
    @pytest.mark.parametrize("layout", ["interleaved", "", 1])
    def test_another_option_layout_is_refused_by_its_name(self, layout: Any, folder: Path) -> None:
        edit(folder / CONFIG, option_layout=layout)
        with pytest.raises(laya.CheckpointError, match="option_layout") as caught:
            load(folder)
        assert repr(layout) in str(caught.value)

    def test_the_one_that_is_known(self, folder: Path) -> None:
        edit(folder / CONFIG, option_layout="sequential")
        assert load(folder).max_len == 256

    @pytest.mark.parametrize("temperature", [[1.0, 1.0], [1.0, 1.0, 1.0, 1.0], 1.0])
    def test_a_wrong_number_of_temperatures(self, temperature: Any, folder: Path) -> None:
        edit(folder / CONFIG, temperature=temperature)
        with pytest.raises(laya.CheckpointError, match=r"rl_agent_config\.json.*temperature"):
            load(folder)

    @pytest.mark.parametrize("name", ["max_len", "head_max_len"])
    @pytest.mark.parametrize("value", [0, -1, 1.5, "512", True])
    def test_a_budget_that_is_none(self, name: str, value: Any, folder: Path) -> None:
        edit(folder / CONFIG, **{name: value})
        with pytest.raises(laya.CheckpointError, match=name):
            load(folder)

    def test_budgets_left_out_have_defaults(self, folder: Path) -> None:
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        (folder / CONFIG).write_text(json.dumps({key: value for key, value in config.items() if "max_len" not in key}), encoding="utf-8")
        agent = load(folder)
        assert (agent.max_len, agent.head_max_len) == (512, 192)

    @pytest.mark.parametrize("changes", [{"amp_dtype": "fp8"}, {"head_layers": "2"}, {"head_layers": -1}, {"act_costs": [0.1]}])
    def test_other_entries_are_named(self, changes: dict[str, Any], folder: Path) -> None:
        edit(folder / CONFIG, **changes)
        with pytest.raises(laya.CheckpointError, match=next(iter(changes))):
            load(folder)

    @pytest.mark.parametrize("changes", [{"head_layers": 1}, {"act_costs": {"defer": 0.1, "ask": 0.2}}])
    def test_a_config_that_does_not_fit_the_weights(self, changes: dict[str, Any], folder: Path) -> None:
        edit(folder / CONFIG, **changes)
        with pytest.raises(laya.CheckpointError, match="head"):
            load(folder)

    def test_replaced_temperatures_are_told_once_at_load(self, tiny_folder: Path) -> None:
        with pytest.warns(RuntimeWarning) as caught:
            agent = laya.load(str(tiny_folder), device="cpu")
        assert len(caught) == 1
        agent.system_one("hello", QUESTIONS)  # a warning would be an error here
        assert "choice:11+" in str(caught[0].message)
        assert "noul:2" in str(caught[0].message)


def drop(*names: str) -> Callable[[dict[str, torch.Tensor]], Any]:
    return lambda tensors: [tensors.pop(name) for name in names]


class TestTensors:
    def test_missing_ones_are_named(self, folder: Path) -> None:
        edit_weights(folder, drop("scorer.3.bias", "type_emb.weight"))
        with pytest.raises(laya.CheckpointError, match=r"model\.safetensors.*missing") as caught:
            load(folder)
        assert "scorer.3.bias" in str(caught.value)
        assert "type_emb.weight" in str(caught.value)

    def test_unexpected_ones_are_named(self, folder: Path) -> None:
        edit_weights(folder, lambda tensors: tensors.update({"encoder.layers.9.extra": torch.zeros(2)}))
        with pytest.raises(laya.CheckpointError, match=r"unexpected.*encoder\.layers\.9\.extra"):
            load(folder)

    def test_misshapen_ones_are_named_with_both_shapes(self, folder: Path) -> None:
        edit_weights(folder, lambda tensors: tensors.update({"type_emb.weight": torch.zeros(4, 64)}))
        with pytest.raises(laya.CheckpointError, match=r"type_emb\.weight.*\(4, 64\).*\(3, 64\)"):
            load(folder)

    def test_of_many_the_first_five_are_named(self, folder: Path) -> None:
        edit_weights(folder, lambda tensors: tensors.update({f"extra.{index}": torch.zeros(1) for index in range(7)}))
        with pytest.raises(laya.CheckpointError, match="7 unexpected") as caught:
            load(folder)
        assert sum(f"extra.{index}" in str(caught.value) for index in range(7)) == 5

    def test_missing_unexpected_and_misshapen_are_told_together(self, folder: Path) -> None:
        def change(tensors: dict[str, torch.Tensor]) -> None:
            tensors["scorer.renamed"] = tensors.pop("scorer.3.bias")
            tensors["type_emb.weight"] = torch.zeros(4, 64)

        edit_weights(folder, change)
        with pytest.raises(laya.CheckpointError) as caught:
            load(folder)
        assert all(name in str(caught.value) for name in ("scorer.3.bias", "scorer.renamed", "type_emb.weight"))

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
    def test_any_float_type_is_computed_in_fp32(self, dtype: torch.dtype, folder: Path) -> None:
        edit_weights(folder, lambda tensors: tensors.update({name: tensor.to(dtype) for name, tensor in tensors.items()}))
        model = build_model(open_checkpoint(CheckpointSource(str(folder))))
        assert {tensor.dtype for tensor in model.state_dict().values()} == {torch.float32}
        assert load(folder).describe()["precision"] == "float32"

    def test_the_weights_are_those_of_the_file(self, folder: Path) -> None:
        tensors = load_file(folder / WEIGHTS)
        state = build_model(open_checkpoint(CheckpointSource(str(folder)))).state_dict()
        assert set(tensors) - set(state) == {"temperature"}
        assert all(torch.equal(tensor, tensors[name].float()) for name, tensor in state.items())

    def test_the_files_own_temperature_does_not_count(self, folder: Path) -> None:
        before = load(folder).system_one("hello", QUESTIONS)
        edit_weights(folder, lambda tensors: tensors.update({"temperature": torch.tensor([4.0, 4.0, 4.0])}))
        assert load(folder).system_one("hello", QUESTIONS) == before
        edit_weights(folder, drop("temperature"))
        assert load(folder).system_one("hello", QUESTIONS) == before

    @pytest.mark.parametrize("given", [True, False])
    def test_a_pooler_that_nothing_reads_may_be_there_or_not(self, given: bool, tmp_path: Path) -> None:
        folder = Path(shutil.copytree(Path(laya.__file__).parent / "checkpoints" / "mini", tmp_path / "mini"))
        width = json.loads((folder / "encoder" / "config.json").read_text(encoding="utf-8"))["hidden_size"]
        pooler = {"encoder.pooler.dense.weight": torch.zeros(width, width), "encoder.pooler.dense.bias": torch.zeros(width)}

        def change(tensors: dict[str, torch.Tensor]) -> None:
            for name in pooler:
                tensors.pop(name, None)
            tensors.update(pooler if given else {})

        edit_weights(folder, change)
        assert load(folder).max_len == 512


class TestSha256:
    @staticmethod
    def digest(folder: Path, name: str) -> str:
        return hashlib.sha256((folder / name).read_bytes()).hexdigest()

    @pytest.mark.parametrize("name", [WEIGHTS, CONFIG, "tokenizer/tokenizer.json"])
    def test_the_right_one_is_let_through(self, name: str, folder: Path) -> None:
        digest = self.digest(folder, name)
        assert load(folder, sha256={name: digest}).max_len == 256
        assert load(folder, sha256={name: digest.upper()}).max_len == 256

    def test_another_file_is_refused_by_name(self, folder: Path) -> None:
        digest = self.digest(folder, WEIGHTS)
        edit_weights(folder, lambda tensors: tensors["type_emb.weight"].add_(1))
        with pytest.raises(laya.CheckpointError, match=WEIGHTS) as caught:
            load(folder, sha256={CONFIG: self.digest(folder, CONFIG), WEIGHTS: digest})
        assert digest in str(caught.value)
        assert self.digest(folder, WEIGHTS) in str(caught.value)

    def test_it_is_checked_before_the_file_is_read(self, folder: Path) -> None:
        (folder / CONFIG).write_text("{", encoding="utf-8")
        with pytest.raises(laya.CheckpointError, match="sha256"):
            load(folder, sha256={CONFIG: "0" * 64})

    def test_a_file_that_is_not_there(self, folder: Path) -> None:
        with pytest.raises(laya.CheckpointError, match=r"extra\.bin"):
            load(folder, sha256={"extra.bin": "0" * 64})


@pytest.mark.parametrize("device", ["quantum", "cuda:99", ""])
def test_a_device_that_cannot_be_used_is_named(device: str, quiet_folder: Path) -> None:
    with pytest.raises(ValueError, match="device"):
        laya.load(str(quiet_folder), device=device)


class TestEncodersOfManyKinds:
    """Any encoder that transformers can build, with positions counted as it counts them."""

    KINDS: tuple[tuple[str, dict[str, Any], int], ...] = (
        ("bert", {"max_position_embeddings": 128}, 128),
        ("roberta", {"max_position_embeddings": 130, "pad_token_id": 1}, 128),
        ("xlm-roberta", {"max_position_embeddings": 130, "pad_token_id": 0}, 129),
        ("mpnet", {"max_position_embeddings": 130, "pad_token_id": 1}, 128),
        ("deberta-v2", {"max_position_embeddings": 128, "relative_attention": False}, 128),
    )

    @pytest.mark.parametrize(("kind", "options", "positions"), KINDS, ids=[kind for kind, _, _ in KINDS])
    def test_reads_as_many_tokens_as_it_has_positions_for(
        self, kind: str, options: dict[str, Any], positions: int, tiny_folder: Path, tmp_path: Path
    ) -> None:
        folder = tmp_path / kind
        shutil.copytree(tiny_folder, folder)
        size = {"vocab_size": 845, "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
        encoder = AutoConfig.for_model(kind, **size, **options)
        encoder.save_pretrained(folder / "encoder")
        config = {"head_layers": 1, "act_costs": {}, "max_len": 64, "head_max_len": 32, "temperature": [1, 1, 1]}
        (folder / CONFIG).write_text(json.dumps(config), encoding="utf-8")
        model = DecisionModel(AutoModel.from_config(encoder), head_layers=1, n_act=1)
        save_file({name: tensor for name, tensor in model.state_dict().items() if "pooler" not in name}, str(folder / WEIGHTS))
        agent = laya.Agent(str(folder), device="cpu")
        question = {"q": {"type": "noul", "instructions": "x"}}
        long = agent.system_one("late " * 500, question, max_len=positions)
        assert long["usage"]["input_tokens"] == positions
        with pytest.raises(ValueError, match="more than this checkpoint's encoder can read"):
            agent.system_one("late", question, max_len=positions + 1)
