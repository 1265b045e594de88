"""How fast an evicted checkpoint comes back, and what a second replica costs: weights mapped from Ray's object store against the disk.

    python -m benchmarks.reload [--megabytes 600] [--runs 3] [--json reload.json]

A ModernBERT of base size with random weights is loaded by actors on a Ray of its own, each a fresh process unless said otherwise:

    disk, cold      from the file, which the kernel has been told to forget
    disk, cached    from the file, which the kernel still has in memory
    first, shared   from the cold file into the object store, and mapped from there
    reload          mapped from the object store; the agent that read the weights has been killed
    reload, warm    the same in a process that has its imports behind it (`cluster.warm`)

Seconds of a load: ``start`` until the process answers, ``imports``, ``load`` until the agent is built, ``all`` of it as the caller
sees it. Memory of replicas after a forward pass each: what is theirs alone, shared libraries by their part (Pss), and the weights
once. Each is told as measured; nothing is subtracted.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from laya.names import CheckpointSource

_TOKENIZER = Path(__file__).parent.parent / "tests" / "goldens" / "tiny"
_WIDTH, _LAYERS, _INNER, _VOCABULARY = 768, 22, 1152, 50368
_HEAD_LAYER = 12 * _WIDTH * _WIDTH
_ENCODER_LAYER = 4 * _WIDTH * _WIDTH + 3 * _WIDTH * _INNER
_TIMES = ("start", "imports", "load", "all")


def make_checkpoint(folder: Path, megabytes: int) -> int:
    """Writes a checkpoint of random weights: ModernBERT-base with one head layer, or as many layers of it as there is room for.

    Returns:
        Bytes of its weights.
    """
    import torch
    from safetensors.torch import save_file
    from transformers import ModernBertConfig, ModernBertModel

    from laya.network.model import DecisionModel
    from laya.network.unfilled import Unfilled

    rest = megabytes * 250_000 - _VOCABULARY * _WIDTH - _HEAD_LAYER
    layers = max(1, min(_LAYERS, round(rest / _ENCODER_LAYER)))
    config = ModernBertConfig(
        vocab_size=_VOCABULARY,
        hidden_size=_WIDTH,
        num_hidden_layers=layers,
        num_attention_heads=12,
        intermediate_size=_INNER,
        pad_token_id=0,
        bos_token_id=2,
        cls_token_id=2,
        eos_token_id=3,
        sep_token_id=3,
    )
    shutil.copytree(_TOKENIZER / "tokenizer", folder / "tokenizer")
    config.save_pretrained(folder / "encoder")
    decisions = {"head_layers": 1, "act_costs": {"ask": 0.1}, "max_len": 512, "head_max_len": 192, "temperature": [1.0, 1.0, 1.0]}
    (folder / "rl_agent_config.json").write_text(json.dumps(decisions), encoding="utf-8")
    with Unfilled():
        model = DecisionModel(ModernBertModel(config), head_layers=1, n_act=2)
    random = torch.Generator().manual_seed(0)
    tensors = {name: torch.randn(tensor.shape, generator=random) * 0.02 for name, tensor in model.state_dict().items()}
    save_file(tensors, folder / "model.safetensors")
    return sum(tensor.nbytes for tensor in tensors.values())


class Replica:
    """Stands for `cluster.agent_actor.AgentActor`: the calls that loading takes, and what is measured."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._agent: Any = None

    def ready(self) -> None:
        """Answers once the process is there."""

    def warm(self) -> float:
        """Imports what an agent needs; seconds."""
        begun = time.perf_counter()
        from cluster.warm import warm_up

        warm_up()
        return time.perf_counter() - begun

    def offer_weights(self) -> Any:
        """Which weights this node can share."""
        from cluster.weights import offer

        return offer(CheckpointSource(self._folder))

    def read_weights(self, offered: Any) -> Any:
        """The tensors, for the object store."""
        from cluster.weights import read

        return read(offered)

    def load(self, shared: Any) -> tuple[float, bool]:
        """Builds the agent: seconds, and whether its weights are mapped."""
        begun = time.perf_counter()
        import torch

        from cluster.weights import mapped
        from laya.agent import Agent

        torch.set_num_threads(1)
        weights = mapped(shared)
        self._agent = Agent(self._folder, device="cpu", weights=weights)
        return time.perf_counter() - begun, weights is not None

    def answer(self) -> Any:
        """One forward pass of eight rows, some 100 tokens each."""
        questions = {"late": {"type": "noul", "instructions": "The parcel is late"}}
        return self._agent.predict_batch(["Where is my parcel? It should have been here on Monday. " * 6] * 8, questions)

    def memory(self) -> dict[str, float]:
        """Megabytes of this process: anonymous (its own), of files (its part of what others map too), of the object store, and Rss."""
        names = {"Pss_Anon:": "own", "Pss_File:": "libraries", "Pss_Shmem:": "store", "Rss:": "rss"}
        lines = [line.split() for line in Path("/proc/self/smaps_rollup").read_text(encoding="utf-8").splitlines()]
        return {names[line[0]]: int(line[1]) * 1024 / 1e6 for line in lines if line[0] in names}


class Bench:
    """Actors on a running Ray, and the shelf that a router would hold.

    Args:
        folder: The checkpoint.
    """

    def __init__(self, folder: Path) -> None:
        import ray

        from cluster.weights import Shelf

        self._ray = ray
        self._file = folder / "model.safetensors"
        self._class = ray.remote(Replica).options(num_cpus=0)
        self._folder = str(folder)
        self._shelf = Shelf()

    def start(self) -> Any:
        """A new replica, its process not waited for."""
        return self._class.remote(self._folder)

    def load(self, share: bool, ready: Any = None) -> tuple[Any, dict[str, float]]:
        """Loads a replica and tells how long that took, in a process that is warm already or in a new one.

        Raises:
            RuntimeError: Its weights were to be mapped and are not.
        """
        begun = time.perf_counter()
        replica = ready or self.start()
        self._ray.get(replica.ready.remote())
        started = time.perf_counter()
        imports = self._ray.get(replica.warm.remote())
        imported = time.perf_counter()
        _, mapped = self._ray.get(replica.load.remote(self._provide(replica) if share else None))
        ended = time.perf_counter()
        if mapped is not share:
            raise RuntimeError("the weights were not shared: the object store is too small")
        return replica, {"start": started - begun, "imports": imports, "load": ended - imported, "all": ended - begun}

    def _provide(self, replica: Any) -> Any:
        import asyncio

        from cluster.weights import provide

        return asyncio.run(provide(replica, self._shelf))

    def warm(self) -> Any:
        """A replica with its imports behind it."""
        replica = self.start()
        self._ray.get(replica.warm.remote())
        return replica

    def end(self, *replicas: Any) -> None:
        """Kills replicas."""
        for replica in replicas:
            self._ray.kill(replica)
        time.sleep(1)

    def forget(self, weights: bool) -> None:
        """Makes the kernel drop the file from memory, and on demand the shelf what it keeps."""
        if weights:
            from cluster.weights import Shelf

            self._shelf = Shelf()
            time.sleep(1)
        with self._file.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def times(self) -> dict[str, dict[str, float]]:
        """One round of all loads."""
        found: dict[str, dict[str, float]] = {}
        self.forget(weights=True)
        for name, share in (("disk, cold", False), ("disk, cached", False)):
            replica, found[name] = self.load(share)
            self.end(replica)
        self.forget(weights=True)
        replica, found["first, shared"] = self.load(share=True)
        self.end(replica)
        self.forget(weights=False)
        replica, found["reload"] = self.load(share=True)
        self.end(replica)
        replica, found["reload, warm"] = self.load(share=True, ready=self.warm())
        self.end(replica)
        return found

    def memory(self, count: int, share: bool) -> list[dict[str, float]]:
        """Memory of a number of replicas that live at a time, after a forward pass each."""
        replicas = [self.load(share)[0] for _ in range(count)]
        for replica in replicas:
            self._ray.get(replica.answer.remote())
        found = [self._ray.get(replica.memory.remote()) for replica in replicas]
        self.end(*replicas)
        return found


def _total(replicas: list[dict[str, float]], weights: float) -> float:
    """Megabytes of replicas, the weights that they share counted once."""
    return sum(replica["own"] + replica["libraries"] for replica in replicas) + weights


def measure(folder: Path, size: int, runs: int) -> dict[str, Any]:
    """All that is measured, on a Ray that is started for it."""
    from benchmarks.harness import own_ray

    with own_ray(2, int(2.5 * size)):
        bench = Bench(folder)
        rounds = [bench.times() for _ in range(runs)]
        loads = {name: {time: statistics.median(one[name][time] for one in rounds) for time in _TIMES} for name in rounds[0]}
        weights = size / 1e6
        replicas = {f"{count} {kind}": bench.memory(count, kind == "shared") for kind in ("private", "shared") for count in (1, 2)}
        totals = {name: _total(found, weights if "shared" in name else 0.0) for name, found in replicas.items()}
    return {
        "machine": f"{platform.machine()}, {os.cpu_count()} CPUs",
        "weights_mb": weights,
        "loads_s": loads,
        "replicas_mb": replicas,
        "total_mb": totals,
        "ratios": {
            "load, cold": loads["disk, cold"]["load"] / loads["reload"]["load"],
            "load, cached": loads["disk, cached"]["load"] / loads["reload"]["load"],
            "all, cold": loads["disk, cold"]["all"] / loads["reload"]["all"],
            "all, cold against warm": loads["disk, cold"]["all"] / loads["reload, warm"]["all"],
            "memory, shared": totals["2 shared"] / totals["1 shared"],
            "memory, private": totals["2 private"] / totals["1 private"],
        },
    }


def show(found: dict[str, Any]) -> str:
    """The measurements as text."""
    lines = [f"{found['weights_mb']:.0f} MB of weights, {found['machine']}", "", "seconds " + "".join(f"{time:>10}" for time in _TIMES)]
    lines += [f"{name:14}" + "".join(f"{times[time]:>10.3f}" for time in _TIMES) for name, times in found["loads_s"].items()]
    lines += ["", "MB of each replica"]
    lines += [f"{name:12}{total:8.0f} in all" for name, total in found["total_mb"].items()]
    for name, replicas in found["replicas_mb"].items():
        lines += [f"{name:12}" + "".join(f"{kind} {amount:6.0f}  " for kind, amount in replica.items()) for replica in replicas]
    return "\n".join([*lines, "", *(f"{name:32}{ratio:7.2f}" for name, ratio in found["ratios"].items())])


def main() -> None:
    """Measures and tells."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reload", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--megabytes", type=int, default=600, help="size of the weights, at most what ModernBERT-base has")
    parser.add_argument("--runs", type=int, default=3, help="of which the median is told")
    parser.add_argument("--json", type=Path, help="file to write the measurements to")
    parser.add_argument("--make", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.make is not None:
        print(make_checkpoint(arguments.make, arguments.megabytes))
        return
    with tempfile.TemporaryDirectory(prefix="laya-reload-") as scratch:
        folder = Path(scratch) / "checkpoint"
        folder.mkdir()
        # In a process of its own: what this one maps of torch would be counted as shared with the replicas.
        made = subprocess.run(
            [sys.executable, "-m", "benchmarks.reload", "--make", str(folder), "--megabytes", str(arguments.megabytes)],
            check=True,
            capture_output=True,
            text=True,
        )
        found = measure(folder, int(made.stdout.split()[-1]), arguments.runs)
    print(show(found))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
