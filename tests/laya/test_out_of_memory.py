"""A pass that does not fit into memory is split; a device that is lost stays lost."""

from __future__ import annotations

import gc
import pickle
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import laya
from laya.engine.base import BatchingEngine
from laya.engine.onnx_engine import OnnxEngine
from laya.engine.torch_engine import TorchEngine
from laya.sequences import TokenSequence
from tests.laya.engines import PAD, FakeEngine, marks, row, rows
from tests.laya.test_engine_queue import Held

REFUND = {"refund": {"type": "noul", "instructions": "The writer wants money back"}}


class TestSplits:
    def test_down_to_what_fits_and_the_budget_stays_there(self) -> None:
        engine = FakeEngine(token_budget=64, room=20)
        assert marks(engine.score(rows(*range(1, 17)))) == list(range(1, 17))
        assert [len(batch) for batch in engine.passes] == [16, 8, 4, 4, 4, 4]
        assert engine.token_budget == 16
        assert engine.stats().memory_splits == engine.frees == 2
        engine.passes.clear()
        assert marks(engine.score(rows(*range(21, 29)))) == list(range(21, 29))
        assert [len(batch) for batch in engine.passes] == [4, 4]

    @pytest.mark.parametrize("options", [{"max_rows": 6}, {"sort": False}, {"max_rows": 6, "sort": False}], ids=str)
    def test_of_a_call_with_passes_of_its_own(self, options: dict[str, Any]) -> None:
        engine = FakeEngine(room=12)
        wanted = list(range(1, 13))
        assert marks(engine.score(rows(*wanted), **options)) == wanted
        assert all(len(batch) <= 3 for batch in engine.passes[-4:])
        assert engine.token_budget == 12

    def test_starts_from_the_pass_that_failed(self) -> None:
        """A budget far above what waits would have to be halved many times before anything splits."""
        engine = FakeEngine(token_budget=1 << 20, room=12)
        assert marks(engine.score(rows(1, 2, 3, 4))) == [1, 2, 3, 4]
        assert engine.stats().memory_splits == 1
        assert engine.token_budget == 8

    def test_rows_of_other_lengths_go_on_in_their_order(self) -> None:
        lengths = [3, 9, 4, 30, 9, 1, 12, 5]
        sequences = [row(mark, length) for mark, length in enumerate(lengths, 1)]
        engine = FakeEngine(room=30)
        assert engine.score(sequences) == FakeEngine().score(sequences)
        assert engine.token_budget >= 30

    def test_of_calls_that_share_a_pass(self) -> None:
        held = Held()
        held.engine.room = 8
        for mark in range(2, 8):
            held.ask(mark)
        held.release()
        assert [call.result() for call in held.calls] == [[mark] for mark in range(2, 8)]
        assert held.engine.stats().memory_splits > 0


class TestOneRowThatDoesNotFit:
    def test_is_an_error_that_says_what_to_do(self) -> None:
        engine = FakeEngine(room=10)
        with pytest.raises(laya.OutOfMemoryError, match=r"11 tokens.*cpu.*MemoryError: 11 tokens asked for.*max_len") as caught:
            engine.score([row(1, 11)])
        assert isinstance(caught.value, MemoryError)
        assert engine.token_budget == 1000
        assert engine.stats().memory_splits == 0

    def test_fails_its_call_and_no_other(self) -> None:
        held = Held()
        held.engine.room = 10
        held.ask(2, 3)
        held.ask(4, 5, length=11)
        held.ask(6)
        held.release()
        assert [held.calls[0].result(), held.calls[2].result()] == [[2, 3], [6]]
        with pytest.raises(laya.OutOfMemoryError):
            held.calls[1].result()
        assert held.engine.stats().waiting_rows == 0


class Tensors:
    """What a pass needs memory for."""


class HoldingEngine(BatchingEngine):
    """Fails like a network does: its frames hold what it had made so far, some of it in a circle with the error."""

    def __init__(self) -> None:
        super().__init__(PAD, 1000)
        self.made: list[weakref.ref[Tensors]] = []
        self.kept: list[int] = []

    def _run(self, rows: Sequence[TokenSequence]) -> tuple[list[list[float]], list[float]]:
        self.kept.append(sum(known() is not None for known in self.made))
        tensors = Tensors()
        self.made.append(weakref.ref(tensors))
        if len(rows) > 1:
            try:
                raise MemoryError("inner")
            except MemoryError as error:
                circle = error  # noqa: F841 the circle is what is tested
                raise RuntimeError("outer") from error
        return [[1.0]] * len(rows), [1.0] * len(rows)

    def _out_of_memory(self, error: Exception) -> bool:
        return isinstance(error, RuntimeError)


def test_nothing_of_a_pass_is_held_while_it_is_tried_again() -> None:
    engine = HoldingEngine()
    gc.disable()
    try:
        engine.score(rows(1, 2, 3, 4))
    finally:
        gc.enable()
    assert engine.stats().memory_splits == 2
    assert engine.kept == [0] * len(engine.kept)


@pytest.fixture
def cramped(quiet_folder: Path, monkeypatch: pytest.MonkeyPatch) -> laya.Agent:
    """A real agent whose network has room for 120 padded tokens."""
    agent = laya.Agent(str(quiet_folder), device="cpu")
    run = TorchEngine._run

    def limited(self: TorchEngine, rows: Sequence[TokenSequence]) -> Any:
        if self.computed_tokens([len(row.ids) for row in rows]) > 120:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB")
        return run(self, rows)

    monkeypatch.setattr(TorchEngine, "_run", limited)
    return agent


class TestAgents:
    def test_answers_are_those_of_a_run_with_room(self, cramped: laya.Agent, tiny: laya.Agent) -> None:
        states = [f"message {index} about a parcel" for index in range(9)]
        found = cramped.predict_batch(states, REFUND)
        assert cramped.stats().memory_splits > 0
        for result, wanted in zip(found, cramped.predict_batch(states, REFUND, batch_size=1), strict=True):
            assert result["usage"] == wanted["usage"]
            assert result["answers"]["refund"]["noul"] == pytest.approx(wanted["answers"]["refund"]["noul"], abs=2e-4)

    def test_of_a_routers_batch_only_the_request_that_does_not_fit_fails(self, cramped: laya.Agent) -> None:
        router = laya.Router()
        router.attach("english", cramped)
        states = ["short", "late again " * 200, "another"]
        requests = [{"state": state, "questions": REFUND, "lang": "en"} for state in states]
        outcomes = router.predict_batch(requests, return_exceptions=True)
        assert [isinstance(outcome, laya.OutOfMemoryError) for outcome in outcomes] == [False, True, False]
        for index in (0, 2):
            alone = router.predict(states[index], REFUND, lang="en")
            assert outcomes[index]["answers"]["refund"]["noul"] == pytest.approx(alone["answers"]["refund"]["noul"], abs=2e-4)
        with pytest.raises(laya.OutOfMemoryError, match="CUDA out of memory"):
            router.predict_batch(requests)


class NoNetwork(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = torch.nn.Identity()


TORCH = TorchEngine(NoNetwork(), PAD, torch.device("cpu"))  # type: ignore[arg-type]
ACCELERATOR: type[Exception] = getattr(torch, "AcceleratorError", RuntimeError)


def onnx_error(text: str) -> Exception:
    from onnxruntime.capi.onnxruntime_pybind11_state import RuntimeException

    error: Exception = RuntimeException(text)
    return error


@pytest.fixture
def onnx() -> OnnxEngine:
    engine = OnnxEngine.__new__(OnnxEngine)
    engine.device = "cuda"
    return engine


class TestWhatErrorsMean:
    MEMORY: tuple[Exception, ...] = (
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
        RuntimeError(
            "[enforce fail at alloc_cpu.cpp:119] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"
        ),
        RuntimeError("[enforce fail at alloc_cpu.cpp:80] data. DefaultCPUAllocator: not enough memory: you tried to allocate 9 bytes."),
        RuntimeError("MPS backend out of memory (MPS allocated: 9.00 GB)"),
        ACCELERATOR("CUDA error: out of memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    )
    LOST: tuple[Exception, ...] = (
        ACCELERATOR("CUDA error: an illegal memory access was encountered"),
        RuntimeError("CUDA error: device-side assert triggered"),
        RuntimeError("CUDA error: unspecified launch failure"),
        RuntimeError("NCCL: an illegal memory access was encountered"),
        RuntimeError("uncorrectable ECC error encountered"),
    )
    OTHER: tuple[Exception, ...] = (
        RuntimeError("mat1 and mat2 shapes cannot be multiplied"),
        ValueError("CUDA error: out of memory"),
        IndexError("index out of range in self"),
    )

    @pytest.mark.parametrize("error", MEMORY, ids=str)
    def test_torch_memory(self, error: Exception) -> None:
        assert TORCH._out_of_memory(error)

    @pytest.mark.parametrize("error", LOST, ids=str)
    def test_torch_lost(self, error: Exception) -> None:
        assert TORCH._device_lost(error)
        assert not TORCH._out_of_memory(error)

    @pytest.mark.parametrize("error", OTHER, ids=str)
    def test_torch_other(self, error: Exception) -> None:
        assert not TORCH._out_of_memory(error)
        assert not TORCH._device_lost(error)

    @pytest.mark.parametrize(
        "text",
        [
            "Failed to allocate memory for requested buffer of size 9",
            "bfc_arena.cc:376 void* onnxruntime::BFCArena::AllocateRawInternal",
            "CUDA failure 2: out of memory ; GPU=0",
            "std::bad_alloc",
        ],
    )
    def test_onnx_memory(self, onnx: OnnxEngine, text: str) -> None:
        assert onnx._out_of_memory(onnx_error(text))
        assert not onnx._out_of_memory(ValueError(text))
        assert onnx._out_of_memory(MemoryError())

    def test_onnx_lost_and_other(self, onnx: OnnxEngine) -> None:
        assert onnx._device_lost(onnx_error("CUDA failure 700: an illegal memory access was encountered ; GPU=0"))
        for other in (onnx_error("Invalid Feed Input Name:nonesuch"), ValueError("CUDA failure 700")):
            assert not onnx._device_lost(other)
            assert not onnx._out_of_memory(other)


class BrokenError(RuntimeError):
    """What a fake device is lost with."""


class TestDeviceLost:
    def test_every_call_fails_from_then_on(self) -> None:
        def fail(_: list[int]) -> None:
            raise BrokenError("it fell down\nand more")

        held = Held(token_budget=4)
        held.engine.lost = BrokenError
        held.ask(2)
        held.ask(3)  # in no pass that fails
        held.engine.act = fail
        passes = held.release()
        assert len(passes) == 1
        for call in held.calls:
            with pytest.raises(laya.DeviceLostError, match="start the process again") as caught:
                call.result()
            assert "it fell down" in str(caught.value)
            assert "and more" not in str(caught.value)
        held.engine.act = None
        with pytest.raises(laya.DeviceLostError, match="it fell down"):
            held.engine.score(rows(4))
        assert len(held.engine.passes) == 2
        held.engine.close()

    def test_its_cause_is_told(self) -> None:
        def fail(_: list[int]) -> None:
            raise BrokenError("it fell down")

        engine = FakeEngine(act=fail)
        engine.lost = BrokenError
        with pytest.raises(laya.DeviceLostError) as caught:
            engine.score(rows(1))
        assert isinstance(caught.value.__cause__, BrokenError)


@pytest.mark.parametrize("error", [laya.OutOfMemoryError("no room"), laya.DeviceLostError("gone")])
def test_errors_cross_processes(error: Exception) -> None:
    copied = pickle.loads(pickle.dumps(error))
    assert (type(copied), copied.args) == (type(error), error.args)
