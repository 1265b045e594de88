"""Checkpoints: from a name, hub id or folder to verified files, and from those to a model with its weights."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from laya.files import CheckpointError, read_object
from laya.names import CheckpointSource

if TYPE_CHECKING:
    import torch

    from laya.network.model import DecisionModel

CONFIG_FILE = "rl_agent_config.json"
WEIGHTS_FILE = "model.safetensors"
_ENCODER_FILE = "encoder/config.json"
_TOKENIZER_FILE = "tokenizer/tokenizer.json"
# Encoders that count positions from behind their padding token's id, so that the first few of the table are never a token's.
_PADDED_POSITIONS = frozenset({"camembert", "data2vec-text", "longformer", "mpnet", "roberta", "xlm-roberta", "xlm-roberta-xl"})
# torch's own parameter names of parts that some encoders bring and the decision model never runs.
_UNUSED_ENCODER_PARTS = ("encoder.pooler.",)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint's files on this machine, looked over but with no weights loaded yet.

    Attributes:
        folder: Where they are.
        config: The content of rl_agent_config.json.
        encoder: The content of encoder/config.json.
    """

    folder: Path
    config: Mapping[str, Any]
    encoder: Mapping[str, Any]

    @property
    def fingerprint(self) -> str:
        """Tells checkpoints of another encoder or tokenizer apart: the SHA-256 of the two files that describe them."""
        digest = hashlib.sha256()
        for name in (_ENCODER_FILE, _TOKENIZER_FILE):
            digest.update(hashlib.sha256((self.folder / name).read_bytes()).digest())
        return digest.hexdigest()

    @property
    def tokenizer_folder(self) -> Path:
        """The folder of tokenizer.json."""
        return self.folder / "tokenizer"

    def weights_digest(self) -> str:
        """SHA-256 of the weights, "" where they are not here."""
        path = self.folder / WEIGHTS_FILE
        return _digest(path) if path.is_file() else ""

    def positions(self, default: int) -> int:
        """Longest sequence that the encoder can read, in tokens.

        Raises:
            CheckpointError: Its config says no number that could be one.
        """
        count = self.encoder_number("max_position_embeddings", default)
        if self.encoder.get("model_type") in _PADDED_POSITIONS and "max_position_embeddings" in self.encoder:
            padding = self.encoder.get("pad_token_id", 1)
            count -= 1 + (padding if type(padding) is int else 1)
        return count

    def budget(self, name: str, default: int) -> int:
        """A token budget of the config: ``max_len`` or ``head_max_len``.

        Raises:
            CheckpointError: It is not a positive int.
        """
        return _positive(self.config, name, default, self.folder / CONFIG_FILE)

    def encoder_number(self, name: str, default: int) -> int:
        """A number of the encoder's config, such as ``vocab_size``.

        Raises:
            CheckpointError: It is not a positive int.
        """
        return _positive(self.encoder, name, default, self.folder / _ENCODER_FILE)


def _positive(config: Mapping[str, Any], name: str, default: int, path: Path) -> int:
    value = config.get(name, default)
    if type(value) is not int or value < 1:
        raise CheckpointError(f"{path}: {name} must be a positive whole number, not {value!r}")
    return value


def open_checkpoint(
    source: CheckpointSource, token: str | None = None, sha256: Mapping[str, str] | None = None, weights: bool = True
) -> Checkpoint:
    """Finds a checkpoint's files, downloading them if it lives on the hub, and looks them over.

    Args:
        source: Which checkpoint.
        token: Hub token for private repositories.
        sha256: File name inside the checkpoint to the digest it must have.
        weights: Whether the weights are wanted; without them nothing else is downloaded than some small files.

    Raises:
        CheckpointError: A file is missing, unreadable or not the one expected; the message names it and the mend.
    """
    folder = _locate(source, token, weights)
    wanted = [CONFIG_FILE, *([WEIGHTS_FILE] if weights else []), _ENCODER_FILE, _TOKENIZER_FILE]
    missing = [name for name in wanted if not (folder / name).is_file()]
    if missing:
        raise CheckpointError(f"{folder} is not a laya checkpoint: {', '.join(missing)} missing")
    for name, digest in (sha256 or {}).items():
        _verify(folder / name, digest)
    config = read_object(folder / CONFIG_FILE)
    layout = config.get("option_layout", "sequential")
    if layout != "sequential":
        raise CheckpointError(f"{folder / CONFIG_FILE}: option_layout {layout!r} is not supported; only 'sequential' is")
    return Checkpoint(folder, config, read_object(folder / _ENCODER_FILE))


def _locate(source: CheckpointSource, token: str | None, weights: bool) -> Path:
    if source.bundled:
        return Path(str(resources.files("laya") / "checkpoints" / source.location))
    try:
        folder = Path(source.location).expanduser()
    except RuntimeError as error:  # "~nobody"
        raise CheckpointError(f"checkpoint {source.location!r}: {error}") from None
    if source.location and folder.is_dir():
        return folder / (source.subfolder or "")
    if source.location.startswith((".", "/", "~")) or source.location.count("/") != 1:
        raise CheckpointError(
            f"checkpoint {source.location!r} was not found: it is no folder here, no hub id (owner/name) and no known name; "
            "'mini' needs no download"
        )
    return _download(source, token, weights) / (source.subfolder or "")


def _download(source: CheckpointSource, token: str | None, weights: bool) -> Path:
    from huggingface_hub import snapshot_download

    prefix = f"{source.subfolder}/" if source.subfolder else ""
    patterns = [CONFIG_FILE, *([WEIGHTS_FILE] if weights else []), "encoder/*", "tokenizer/*"]
    try:
        return Path(
            snapshot_download(source.location, revision=source.revision, token=token, allow_patterns=[prefix + name for name in patterns])
        )
    except Exception as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise CheckpointError(
            f"checkpoint {source.location!r} could not be fetched from the hub ({reason}); check the name, the network and the token, "
            "or give a local folder; 'mini' needs no download"
        ) from error


def _verify(path: Path, digest: str) -> None:
    if not path.is_file():
        raise CheckpointError(f"{path} is missing, but a sha256 was given for it")
    found = _digest(path)
    if found != digest.lower():
        raise CheckpointError(f"{path} has sha256 {found}, not the {digest} that was asked for")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def build_model(checkpoint: Checkpoint, weights: Mapping[str, torch.Tensor] | None = None) -> DecisionModel:
    """Builds a checkpoint's model and gives it its weights, in fp32.

    Args:
        checkpoint: The checkpoint.
        weights: Its tensors by name, as `read_weights` gives them; None reads them from the file. Those that are fp32 become the
            model's own parameters without being copied, so they may be read-only memory, and models may share them. Nothing can
            train them.

    Raises:
        CheckpointError: Tensors are missing, unexpected or of another shape; the first five are named.
    """
    from laya.network.model import DecisionModel
    from laya.network.unfilled import Unfilled

    path = checkpoint.folder / CONFIG_FILE
    encoder = _encoder(checkpoint)
    act_costs = checkpoint.config.get("act_costs", {})
    head_layers = checkpoint.config.get("head_layers", 2)
    if not isinstance(act_costs, Mapping):
        raise CheckpointError(f"{path}: act_costs must map names to costs, not {act_costs!r}")
    if type(head_layers) is not int or head_layers < 0:
        raise CheckpointError(f"{path}: head_layers must be a number of layers, not {head_layers!r}")
    with Unfilled():
        model = DecisionModel(encoder, head_layers, n_act=len(act_costs) + 1)
    if hasattr(encoder, "pooler"):
        encoder.pooler = None
    wanted = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    path = checkpoint.folder / WEIGHTS_FILE
    if weights is None:
        # Copied, though mapping the file would be faster: a file that is cut short under a running agent would end its process.
        with _open_weights(path) as file:
            _check_names(path, {name: tuple(file.get_slice(name).get_shape()) for name in _names(file)}, wanted)
            tensors = {name: _float(file.get_tensor(name), copy=True) for name in wanted}
    else:
        model.requires_grad_(False)
        _check_names(path, {name: tuple(tensor.shape) for name, tensor in weights.items()}, wanted)
        tensors = {name: _float(weights[name]) for name in wanted}
    model.load_state_dict(tensors, assign=True)
    return model.eval()


def read_weights(path: Path) -> dict[str, torch.Tensor]:
    """The tensors of a weights file by name, in fp32, for `build_model` and `laya.Agent`, which check whether they are the right ones.

    Those that are fp32 in the file map it, which takes neither time nor memory: they are for handing on. Whoever keeps them copies
    them, since a file that is cut short while it is mapped ends the process that reads on.

    Raises:
        CheckpointError: The file cannot be read.
    """
    with _open_weights(path) as file:
        return {name: _float(file.get_tensor(name)) for name in _names(file)}


def weights_size(path: Path) -> int:
    """Bytes that `read_weights` gives, from the file's head alone.

    Raises:
        CheckpointError: The file cannot be read.
    """
    with _open_weights(path) as file:
        return sum(4 * math.prod(file.get_slice(name).get_shape()) for name in _names(file))


def _encoder(checkpoint: Checkpoint) -> Any:
    """The encoder, its parameters without memory where that can be had."""
    from laya.network.encoders import build_encoder

    try:
        return build_encoder(checkpoint.folder / "encoder", checkpoint.encoder)
    except Exception as error:  # transformers raises errors of many kinds for a config that is wrong
        raise CheckpointError(f"{checkpoint.folder / _ENCODER_FILE} describes no encoder that can be built: {error}") from error


@contextmanager
def _open_weights(path: Path) -> Iterator[Any]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="pt") as file:
            yield file
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} is not a safetensors file: {error}") from error


def _names(file: Any) -> list[str]:
    # `temperature` travels in the file too, but the config's are the ones that count.
    return [name for name in file.keys() if name != "temperature" and not name.startswith(_UNUSED_ENCODER_PARTS)]  # noqa: SIM118


def _check_names(path: Path, found: Mapping[str, tuple[int, ...]], wanted: Mapping[str, tuple[int, ...]]) -> None:
    problems = [
        ("missing", [name for name in wanted if name not in found]),
        ("unexpected", [name for name in found if name not in wanted]),
        ("of another shape", [f"{name} {found[name]}, not {shape}" for name, shape in wanted.items() if found.get(name, shape) != shape]),
    ]
    told = [f"{len(names)} {what} ({', '.join(names[:5])}{', ...' if len(names) > 5 else ''})" for what, names in problems if names]
    if told:
        raise CheckpointError(f"{path} does not fit its config: tensors {'; '.join(told)}")


def _float(tensor: torch.Tensor, copy: bool = False) -> torch.Tensor:
    import torch

    return tensor.to(torch.float32, copy=copy)
