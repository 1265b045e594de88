"""The torch agent: one checkpoint, loaded in this process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from laya.calibration import Temperatures
from laya.checkpoint import CONFIG_FILE, build_model, open_checkpoint
from laya.engine.torch_engine import TorchEngine, amp_dtype, pick_device
from laya.files import CheckpointError
from laya.names import find_source
from laya.runtime import AgentRuntime, Budgets, PredictHooks
from laya.tokenizer import Tokenizer

_DEFAULT_MAX_LEN = 512
_DEFAULT_HEAD_MAX_LEN = 192


class Agent(AgentRuntime):
    """Answers typed questions with one checkpoint.

    Args:
        model_id_or_path: A name ("english", "multilingual", "typed-decisions", "mini" or an alias), a hub id, or a folder.
        device: "cpu", "cuda", "cuda:1", ...; None takes a GPU if there is one.
        token: Hub token, for private repositories.
        subfolder: The part of the repository or folder that holds the checkpoint.
        fast: Compute in the checkpoint's amp_dtype on a CPU too; faster where the processor has such products, slower elsewhere.
            On a GPU that is always done.
        compile: Run the model through torch.compile: a slow first call, faster ones after it.
        hooks: See `laya.hooks.HookRegistry`, also for the other hook arguments.
        on_predict_start: Start callables.
        on_predict_end: End callables.
        hooks_raise: Whether a hook's exception fails the call.
        hooks_concurrent: Whether hooks of concurrent calls may overlap.
        hooks_timeout: Seconds a hook may take, or None.
        revision: Branch, tag or commit on the hub.
        sha256: File name inside the checkpoint to the digest it must have.
        token_budget: Padded tokens of one forward pass; None picks one for the device.

    Raises:
        laya.CheckpointError: The checkpoint cannot be found, or its files are not what the format says.
        TypeError: Something given as a hook is not one.
        ValueError: The device cannot be used here, or an argument is out of range.
    """

    def __init__(
        self,
        model_id_or_path: str = "convaiinnovations/laya",
        device: str | None = None,
        token: str | None = None,
        subfolder: str | None = None,
        fast: bool = False,
        compile: bool = False,  # noqa: A002 the reference names it so
        hooks: Any = None,
        on_predict_start: PredictHooks = None,
        on_predict_end: PredictHooks = None,
        hooks_raise: bool = True,
        hooks_concurrent: bool = True,
        hooks_timeout: float | None = None,
        *,
        revision: str | None = None,
        sha256: Mapping[str, str] | None = None,
        token_budget: int | None = None,
    ) -> None:
        place = pick_device(device)
        checkpoint = open_checkpoint(find_source(str(model_id_or_path), subfolder, revision), token, sha256)
        config_path = str(checkpoint.folder / CONFIG_FILE)
        precision = amp_dtype(checkpoint.config.get("amp_dtype"), config_path)
        temperatures = Temperatures.from_config(checkpoint.config, config_path)
        tokenizer = Tokenizer(checkpoint.tokenizer_folder)
        known = checkpoint.encoder_number("vocab_size", tokenizer.vocabulary_size)
        if tokenizer.vocabulary_size > known:
            raise CheckpointError(
                f"{checkpoint.tokenizer_folder / 'tokenizer.json'} has {tokenizer.vocabulary_size} tokens, the encoder knows {known}: "
                "they are not of one checkpoint"
            )
        max_len = checkpoint.budget("max_len", _DEFAULT_MAX_LEN)
        positions = checkpoint.encoder_number("max_position_embeddings", max_len)
        if max_len > positions:
            raise CheckpointError(f"{config_path}: max_len {max_len} is more than the encoder can read ({positions} tokens)")
        budgets = Budgets(max_len, checkpoint.budget("head_max_len", _DEFAULT_HEAD_MAX_LEN), positions)
        engine = TorchEngine(
            build_model(checkpoint),
            tokenizer.pad_id,
            place,
            autocast=precision if fast or place.type == "cuda" else None,
            compile_model=compile,
            token_budget=token_budget,
        )
        super().__init__(
            str(model_id_or_path),
            tokenizer,
            engine,
            temperatures,
            budgets,
            hooks,
            on_predict_start,
            on_predict_end,
            hooks_raise,
            hooks_concurrent,
            hooks_timeout,
        )


def load(
    model_id_or_path: str = "convaiinnovations/laya",
    device: str | None = None,
    token: str | None = None,
    subfolder: str | None = None,
    fast: bool = False,
    compile: bool = False,  # noqa: A002 the reference names it so
    hooks: Any = None,
    on_predict_start: PredictHooks = None,
    on_predict_end: PredictHooks = None,
    hooks_raise: bool = True,
    hooks_concurrent: bool = True,
    hooks_timeout: float | None = None,
    *,
    revision: str | None = None,
    sha256: Mapping[str, str] | None = None,
    token_budget: int | None = None,
) -> Agent:
    """Loads a checkpoint; the arguments are those of `Agent`.

    Example:
        >>> agent = laya.load("mini")
        >>> agent.predict("Where is my parcel?", {"angry": {"type": "noul", "instructions": "The writer is angry"}})
    """
    return Agent(
        model_id_or_path,
        device,
        token,
        subfolder,
        fast,
        compile,
        hooks,
        on_predict_start,
        on_predict_end,
        hooks_raise,
        hooks_concurrent,
        hooks_timeout,
        revision=revision,
        sha256=sha256,
        token_budget=token_budget,
    )
