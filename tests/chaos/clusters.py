"""Clusters of several nodes on one machine, whose nodes come, drain and go under load: one scenario to a process.

    python -m tests.chaos.clusters NAME [STRATEGY]

prints what was seen as JSON. A process of its own, since it can only be connected to one Ray; `test_nodes.py` runs them and judges.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import ray
from ray.cluster_utils import Cluster
from ray.util.placement_group import placement_group_table

import cluster.fleet
import cluster.house
import laya
from cluster import ClusterRouter, Hosting, NoRoomError
from cluster.hosting import Strategy
from tests import patience

GOLDEN = Path(__file__).parents[1] / "goldens" / "tiny"
LONGEST_S = 150.0
"""Longest wait for anything: far more than it takes, less than what the test allows the whole process."""
until = partial(patience.until, limit_s=LONGEST_S)
QUESTIONS = {
    "team": {"type": "choice", "instructions": "Which team?", "criteria": ["billing", "delivery", "technical"]},
    "urgency": {"type": "score", "instructions": "How urgent?", "criteria": ["low", "middle", "high"]},
    "angry": {"type": "noul", "instructions": "The writer is angry"},
}
STATES = ["I was charged twice, give me my money back!", "where is my parcel?", "hello", "The app has crashed three times since noon."]
HEALTH = {"health_check_initial_delay_ms": 1000, "health_check_period_ms": 500, "health_check_failure_threshold": 4}
"""A node that is killed counts as dead after two seconds, not fifteen; one that is only slow has the usual ten for its answer."""


class ShortSchedule(laya.BaseHook):
    """Installed in the router actor: there Ray has a few seconds to find room, not two minutes."""

    def __init__(self) -> None:
        for module in (cluster.fleet, cluster.house):
            vars(module)["SCHEDULE_S"] = 5.0


class HeldAgent(laya.Agent):
    """Says in a folder which node it is being built on, and is not ready before a file "go" lies there.

    Args:
        source: See `laya.Agent`, also for the options.
        hold: The folder.
        **options: More arguments.
    """

    def __init__(self, source: str, *, hold: str, **options: Any) -> None:
        folder = Path(hold)
        (folder / f"building-{ray.get_runtime_context().get_node_id()}").touch()
        until(lambda: (folder / "go").exists(), "a file go")
        super().__init__(source, **options)


class Nodes:
    """A cluster with a head on which no agent fits, and nodes that are added.

    Args:
        folder: Where files may be written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.checkpoint = _quiet(folder / "quiet")
        head = {"num_cpus": 0, "object_store_memory": 80_000_000, "include_dashboard": False, "_system_config": HEALTH}
        self._cluster = Cluster(initialize_head=True, head_node_args=head)
        ray.init(address=self._cluster.address, logging_level="error", log_to_driver=False)
        self.head: str = self._cluster.head_node.node_id
        self._nodes: dict[str, Any] = {}

    def add(self, num_cpus: int, **options: Any) -> str:
        """Adds a node and returns Ray's id of it."""
        node = self._cluster.add_node(num_cpus=num_cpus, object_store_memory=80_000_000, **options)
        self._nodes[node.node_id] = node
        return str(node.node_id)

    def lose(self, node_id: str) -> None:
        """Ends all of a node's processes at once."""
        self._cluster.remove_node(self._nodes.pop(node_id), allow_graceful=False)

    def drain(self, node_id: str) -> None:
        """Tells Ray that a node will be taken away in ten minutes."""
        from ray._private.worker import global_worker
        from ray.core.generated import autoscaler_pb2

        reason = autoscaler_pb2.DrainNodeReason.Value("DRAIN_NODE_REASON_PREEMPTION")
        accepted, told = global_worker.gcs_client.drain_node(node_id, reason, "it will be taken away", int((time.time() + 600) * 1000))
        assert accepted, told

    def router(self, models: tuple[str, ...] = ("a", "b"), **options: Any) -> ClusterRouter:
        """A router whose names all mean the golden checkpoint, and whose agents need one CPU."""
        options = {"num_cpus": 1, "min_residency_s": 0.5, "device": "cpu", **options}
        return ClusterRouter({name: str(self.checkpoint) for name in models}, default="a", name="router", **options)

    def expected(self) -> list[Any]:
        """What one process answers to each state."""
        return [result["answers"] for result in laya.load(str(self.checkpoint), device="cpu").predict_batch(STATES, QUESTIONS)]

    def close(self) -> None:
        """Ends every process of the cluster."""
        ray.shutdown()
        for node_id in list(self._nodes):
            self.lose(node_id)
        self._cluster.shutdown()


@contextmanager
def a_cluster() -> Iterator[Nodes]:
    """A cluster with a head only."""
    with tempfile.TemporaryDirectory(prefix="laya-") as folder:
        # Ray keeps the address of the last cluster there; nobody else is to find this one.
        os.environ |= {"RAY_TMPDIR": folder, "RAY_AUTH_MODE": "disabled"}
        # While a lost bundle finds no node, Ray tries without a pause (ray-project/ray#65007), and counts each try: that alone is a core.
        os.environ |= {"RAY_enable_metrics_collection": "0"}
        nodes = Nodes(Path(folder))
        try:
            yield nodes
        except BaseException:
            traceback.print_exc()  # before threads that still ask meet a Ray that is gone, which ends the process
            raise
        finally:
            nodes.close()


def _quiet(folder: Path) -> Path:
    """A copy of the golden checkpoint whose temperatures are in range."""
    shutil.copytree(GOLDEN, folder, copy_function=shutil.copyfile)
    path = folder / "rl_agent_config.json"
    config = {**json.loads(path.read_text(encoding="utf-8")), "temperature_by_options": {"choice:3-5": 1.5}}
    path.write_text(json.dumps(config), encoding="utf-8")
    return folder


class Clients:
    """Threads that ask without a pause and compare each answer with that of one process.

    Args:
        router: What they ask.
        expected: The answer to each state.
        models: Checkpoints, asked by turns.
        threads: How many.
    """

    def __init__(self, router: ClusterRouter, expected: list[Any], models: tuple[str, ...] = ("a",), threads: int = 6) -> None:
        self.answered: Counter[str] = Counter()
        self.wrong: list[Any] = []
        self.errors: list[str] = []
        self.longest_s = 0.0
        self._router = router
        self._expected = expected
        self._models = models
        self._counting = threading.Lock()
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(number,), daemon=True) for number in range(threads)]
        for thread in self._threads:
            thread.start()

    def _ask(self, number: int) -> None:
        while not self._stop.is_set():
            number += 1
            state, model = number % len(STATES), self._models[number // len(STATES) % len(self._models)]
            begun = time.monotonic()
            try:
                answers = self._router.predict(STATES[state], QUESTIONS, model=model)["answers"]
            except Exception as error:
                with self._counting:
                    self.errors.append(repr(error))
                return
            with self._counting:
                self.longest_s = max(self.longest_s, time.monotonic() - begun)
                self.answered[model] += 1
                if not alike(answers, self._expected[state]):
                    self.wrong.append((STATES[state], answers))

    def more(self, count: int = 40) -> None:
        """Waits until so many more calls of each checkpoint have been answered."""
        goal = {model: self.answered[model] + count for model in self._models}
        until(lambda: self.errors or all(self.answered[model] >= goal[model] for model in goal), f"{count} answers more")

    def stop(self) -> dict[str, Any]:
        """Stops, and returns what came of it; a call that still waits is one that is lost."""
        self._stop.set()
        for thread in self._threads:
            thread.join(LONGEST_S)
        stuck = sum(thread.is_alive() for thread in self._threads)
        return {
            "answered": dict(self.answered),
            "lost": [*self.errors, *["no answer"] * stuck],
            "wrong": self.wrong,
            "longest_s": round(self.longest_s, 1),
        }


def alike(here: Any, there: Any) -> bool:
    """Whether two answers are the same, but for the last digits of their numbers."""
    if isinstance(here, dict):
        return isinstance(there, dict) and here.keys() == there.keys() and all(alike(here[key], there[key]) for key in here)
    if isinstance(here, list):
        return isinstance(there, list) and len(here) == len(there) and all(map(alike, here, there))
    if isinstance(here, float) and isinstance(there, float):
        return abs(here - there) < 2e-3
    return bool(here == there)


def ready(router: ClusterRouter, checkpoint: str | None = None) -> list[dict[str, Any]]:
    """The replicas that take requests."""
    replicas: list[dict[str, Any]] = router.status()["replicas"]
    return [replica for replica in replicas if replica["state"] == "ready" and checkpoint in (None, replica["checkpoint"])]


def places(router: ClusterRouter, checkpoint: str | None = None) -> list[str]:
    """The nodes of the replicas that take requests."""
    return sorted(replica["node"] for replica in ready(router, checkpoint))


def state_of(router: ClusterRouter, node_id: str) -> str | None:
    """What the router takes a node for."""
    return next((node["state"] for node in router.status()["nodes"] if node["id"] == node_id), None)


def until_one_is_left(router: ClusterRouter) -> None:
    """Waits until the router lists one slot and one replica: those on the node that is left."""

    def alone() -> bool:
        status = router.status()
        return bool(status["slots_open"] == 1 and len(status["replicas"]) == 1)

    until(alone, "table without the node that has gone")


def actors_on(node_id: str) -> int:
    """Actors that live on a node, whoever knows of them."""
    from ray._private.state import actors

    return sum(actor["State"] == "ALIVE" and actor["Address"]["NodeID"] == node_id for actor in actors().values())


def groups() -> dict[str, str]:
    """Placement groups that are there, by id, and their names."""
    return {group: found["name"] for group, found in placement_group_table().items() if found["state"] != "REMOVED"}


def left() -> dict[str, Any]:
    """What of ours is still there."""
    return {"actors": sorted(actor["name"] for actor in ray.util.list_named_actors(all_namespaces=True)), "groups": groups()}


def nothing_left(router: ClusterRouter) -> bool:
    """Closes a router, and waits until nothing of ours is there."""
    router.close()
    try:
        until(lambda: not any(left().values()), "end of actors and placement groups")
    except TimeoutError as error:
        raise TimeoutError(f"{error}; there are {left()}") from None
    return True


def two_nodes(_strategy: Strategy | None) -> dict[str, Any]:
    """Two replicas: SPREAD takes both nodes, PACK one that has room; one node of the spread ones is lost under load."""
    with a_cluster() as nodes:
        first, second = nodes.add(2), nodes.add(2)
        router = nodes.router(max_loaded=2, strategy="PACK")
        router.scale("a", 2)
        packed = len(set(places(router)))
        nothing_left(router)
        router = nodes.router(max_loaded=2, strategy="SPREAD")
        router.scale("a", 2)
        spread = sorted(places(router)) == sorted([first, second])
        clients = Clients(router, nodes.expected())
        clients.more()
        nodes.lose(second)
        until(lambda: state_of(router, second) == "dead", "node that counts as dead")
        clients.more()
        seen = {"packed_on": packed, "spread": spread, **clients.stop(), "places": set(places(router)) == {first}}
        return {**seen, "nothing_left": nothing_left(router)}


def four_nodes(_strategy: Strategy | None) -> dict[str, Any]:
    """Four replicas on four nodes: SPREAD takes each, PACK fills two."""
    with a_cluster() as nodes:
        ids = {nodes.add(2) for _ in range(4)}
        router = nodes.router(max_loaded=4, strategy="SPREAD")
        router.scale("a", 4)
        clients = Clients(router, nodes.expected())
        clients.more()
        spread = set(places(router)) == ids
        told = clients.stop()
        nothing_left(router)
        router = nodes.router(max_loaded=4, strategy="PACK")
        router.scale("a", 4)
        packed = Counter(places(router))
        return {"spread": spread, "packed": sorted(packed.values()), **told, "nothing_left": nothing_left(router)}


def node_lost(strategy: Strategy | None) -> dict[str, Any]:
    """Two replicas that are to be kept, on a node each; one node goes, and another one comes."""
    with a_cluster() as nodes:
        router = nodes.router(max_loaded=2, strategy=strategy)
        first, second = nodes.add(1), nodes.add(1)
        router.scale("a", 2)
        apart = places(router) == sorted([first, second])
        clients = Clients(router, nodes.expected())
        clients.more()
        nodes.lose(second)
        until(lambda: state_of(router, second) == "dead", "node that counts as dead")
        clients.more()
        until_one_is_left(router)
        alone = places(router) == [first]
        third = nodes.add(1)
        until(lambda: places(router) == sorted([first, third]), "replica on the new node")
        open_again = router.status()["slots_open"]
        new = next(replica["id"] for replica in ready(router) if replica["node"] == third)
        until(lambda: clients.errors or _served(router, new), "answers of the new replica")
        return {"apart": apart, "alone": alone, "open_again": open_again, **clients.stop(), "nothing_left": nothing_left(router)}


def _served(router: ClusterRouter, replica: int) -> int:
    found = (known["report"]["requests"] for known in router.status()["replicas"] if known["id"] == replica and known["report"])
    return next(found, 0)


def only_replica_lost(strategy: Strategy | None) -> dict[str, Any]:
    """The only replica of a checkpoint is on the node that goes, and another node has room."""
    with a_cluster() as nodes:
        router = nodes.router(max_loaded=2, strategy=strategy)
        ids = [nodes.add(2), nodes.add(2)]
        clients = Clients(router, nodes.expected())
        clients.more()
        lost = places(router)[0]
        nodes.lose(lost)
        clients.more()
        until(lambda: state_of(router, lost) == "dead", "node that counts as dead")
        clients.more()
        until(lambda: router.status()["slots_open"] == 2, "slots on the node that is left")
        moved = places(router) == [node for node in ids if node != lost]
        return {"moved": moved, **clients.stop(), "nothing_left": nothing_left(router)}


def too_little_room(strategy: Strategy | None) -> dict[str, Any]:
    """Two checkpoints on a node each; the node that is left has one slot, so that they have to take turns."""
    with a_cluster() as nodes:
        router = nodes.router(max_loaded=2, strategy=strategy)
        for _ in range(2):
            nodes.add(1)
        clients = Clients(router, nodes.expected(), ("a", "b"))
        clients.more()
        before = router.status()["evictions"]
        lost = places(router, "b")[0]
        nodes.lose(lost)
        until(lambda: state_of(router, lost) == "dead", "node that counts as dead")
        clients.more(8)
        status = router.status()
        seen = {"evictions_before": before, "evictions": status["evictions"], "slots_open": status["slots_open"]}
        return {**seen, **clients.stop(), "nothing_left": nothing_left(router)}


def node_drained(strategy: Strategy | None) -> dict[str, Any]:
    """The only replica of a checkpoint is on a node that will be taken away, and another node has room."""
    with a_cluster() as nodes:
        router = nodes.router(max_loaded=2, strategy=strategy)
        ids = [nodes.add(1), nodes.add(1)]
        router.scale("a", 1)
        clients = Clients(router, nodes.expected())
        clients.more()
        going = places(router)[0]
        fewest = 1
        nodes.drain(going)

        def moved() -> bool:
            nonlocal fewest
            here = places(router)
            fewest = min(fewest, len(here))
            return here == [node for node in ids if node != going]

        until(moved, "replica elsewhere")
        until(lambda: not actors_on(going), "node without actors")
        until_one_is_left(router)
        clients.more()
        state = state_of(router, going)
        return {"fewest": fewest, "state": state, **clients.stop(), "nothing_left": nothing_left(router)}


def kept_drained(strategy: Strategy | None) -> dict[str, Any]:
    """Two replicas that are to be kept, on a node each, of which one will be taken away: there is no room for a successor."""
    with a_cluster() as nodes:
        router = nodes.router(max_loaded=2, strategy=strategy)
        ids = [nodes.add(1), nodes.add(1)]
        router.scale("a", 2)
        clients = Clients(router, nodes.expected())
        clients.more()
        nodes.drain(ids[1])
        until(lambda: not actors_on(ids[1]), "node without actors")
        until_one_is_left(router)
        clients.more()
        alone = places(router) == ids[:1]
        return {"alone": alone, **clients.stop(), "nothing_left": nothing_left(router)}


def lost_while_loading(strategy: Strategy | None) -> dict[str, Any]:
    """The node on which a checkpoint is being loaded goes."""
    with a_cluster() as nodes:
        hosting = {"a": Hosting(agent="tests.chaos.clusters:HeldAgent", options={"hold": str(nodes.folder)})}
        router = nodes.router(max_loaded=1, strategy=strategy, hosting=hosting)
        ids = [nodes.add(1), nodes.add(1)]
        clients = Clients(router, nodes.expected())
        lost = until(lambda: [file.name.partition("-")[2] for file in nodes.folder.glob("building-*")], "load that has begun")[0]
        nodes.lose(lost)
        (nodes.folder / "go").touch()
        clients.more()
        moved = places(router) == [node for node in ids if node != lost]
        return {"moved": moved, **clients.stop(), "nothing_left": nothing_left(router)}


def labels(_strategy: Strategy | None) -> dict[str, Any]:
    """Checkpoints that choose their nodes by labels."""
    with a_cluster() as nodes:
        small, big = nodes.add(2, labels={"kind": "small"}), nodes.add(2, labels={"kind": "big"})
        hosting = {"a": Hosting(label_selector={"kind": "big"}), "b": Hosting(label_selector={"kind": "small"})}
        hosting["c"] = Hosting(label_selector={"kind": "huge"})
        router = nodes.router(("a", "b", "c"), max_loaded=5, hosting=hosting, actor_hooks=("tests.chaos.clusters:ShortSchedule",))
        until(lambda: router.status()["slots_open"] == 4, "table that knows its nodes")
        router.scale("a", 2)
        router.scale("b", 2)
        clients = Clients(router, nodes.expected(), ("a", "b"))
        clients.more()
        seen: dict[str, Any] = {"big": places(router, "a") == [big, big], "small": places(router, "b") == [small, small]}
        router.scale("b", 0)
        router.unload("b")
        clients_told = None
        begun = time.monotonic()
        try:
            router.load("c")
        except NoRoomError as error:
            clients_told = str(error)
        refused_s = time.monotonic() - begun
        after = router.status()["replicas"]
        told = clients.stop()
        nothing_left(router)
        try:
            nodes.router(("a",), strategy="SPREAD", hosting={"a": hosting["a"]})
        except ValueError as error:
            seen["refused"] = str(error)
        router = nodes.router(("a",), max_loaded=2, strategy="SPREAD", agent_options={"label_selector": {"kind": "big"}})
        router.scale("a", 2)
        seen["group_on_big"] = places(router) == [big, big]
        seen |= {"no_node": clients_told, "refused_s": refused_s, "loading": [one for one in after if one["checkpoint"] == "c"]}
        return {**seen, **told, "nothing_left": nothing_left(router)}


def fractions(_strategy: Strategy | None) -> dict[str, Any]:
    """Agents that share a GPU, which need not be there for that."""
    with a_cluster() as nodes:
        node = nodes.add(4, num_gpus=1)
        router = nodes.router(max_loaded=5, num_cpus=0.5, num_gpus=0.25)
        until(lambda: router.status()["slots_open"] == 4, "table that knows how many share")
        router.scale("a", 4)
        clients = Clients(router, nodes.expected())
        clients.more()
        together = places(router) == [node] * 4
        no_fifth = None
        try:
            router.scale("a", 5)
        except NoRoomError as error:
            no_fifth = str(error)
        seen = {"together": together, "no_fifth": no_fifth, "pids": len({replica["pid"] for replica in ready(router)})}
        clients.more()
        return {**seen, **clients.stop(), "nothing_left": nothing_left(router)}


def group_too_large(_strategy: Strategy | None) -> dict[str, Any]:
    """A placement group that the cluster cannot hold, asked for by two at a time; then one that it can."""
    with a_cluster() as nodes:
        for _ in range(2):
            nodes.add(1)
        router = nodes.router(max_loaded=3, strategy="STRICT_SPREAD", actor_hooks=("tests.chaos.clusters:ShortSchedule",))
        refused: list[str] = []

        def ask(model: str) -> None:
            try:
                router.predict("hello", QUESTIONS, model=model)
            except NoRoomError as error:
                refused.append(str(error))

        begun = time.monotonic()
        threads = [threading.Thread(target=ask, args=(model,), daemon=True) for model in ("a", "b")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LONGEST_S)
        seen: dict[str, Any] = {"refused": refused, "refused_s": time.monotonic() - begun}
        until(lambda: not groups(), "end of the placement group")
        status = router.status()
        seen |= {"agents": [name for name in left()["actors"] if name != "router"], "replicas": status["replicas"]}
        nothing_left(router)
        router = nodes.router(max_loaded=2, strategy="STRICT_SPREAD")
        router.scale("a", 2)
        return {**seen, "apart": len(set(places(router))), "groups": list(groups().values()), "nothing_left": nothing_left(router)}


def router_killed(strategy: Strategy | None) -> dict[str, Any]:
    """The router's process is killed under load; the next one takes slots and agents over, and knows which slot is taken."""
    with a_cluster() as nodes:
        router = nodes.router(max_loaded=2, strategy=strategy)
        for _ in range(2):
            nodes.add(1)
        clients = Clients(router, nodes.expected())
        clients.more()
        agents, group = _agents(router), groups()
        _kill_router(router)
        clients.more()
        same = _agents(router) == agents and groups() == group
        router.load("b")
        apart = len(set(places(router)))
        evictions = router.status()["evictions"]
        agents = _agents(router)
        _kill_router(router)
        clients.more()
        both = _agents(router) == agents and groups() == group
        seen = {"groups": list(group.values()), "same": same, "apart": apart, "evictions": evictions, "both": both}
        return {**seen, **clients.stop(), "nothing_left": nothing_left(router)}


def _agents(router: ClusterRouter) -> set[tuple[int, int]]:
    return {(replica["id"], replica["pid"]) for replica in ready(router)}


def _kill_router(router: ClusterRouter) -> None:
    pid = router.status()["pid"]
    os.kill(pid, signal.SIGKILL)
    until(lambda: router.status()["pid"] != pid and len(ready(router)) > 0, "router that is there again")
    assert router.status()["restarted"]


def router_node_lost(strategy: Strategy | None) -> dict[str, Any]:
    """The router is on the node that goes, and so is one of two replicas."""
    with a_cluster() as nodes:
        ids = [nodes.add(1), nodes.add(1)]
        # Ray places an actor that needs nothing anywhere: another one is made until it is on a node that can be lost.
        router = nodes.router(max_loaded=2, strategy=strategy)
        while (here := _node_of_router()) == nodes.head:
            nothing_left(router)
            router = nodes.router(max_loaded=2, strategy=strategy)
        router.scale("a", 2)
        group = groups()
        clients = Clients(router, nodes.expected())
        clients.more()
        stays = next(replica["pid"] for replica in ready(router) if replica["node"] != here)
        nodes.lose(here)
        until(lambda: state_of(router, here) == "dead", "node that counts as dead")
        clients.more()
        until_one_is_left(router)
        kept = [replica["pid"] for replica in ready(router)] == [stays] and groups() == group
        nodes.add(1)
        until(lambda: len(ready(router)) == 2, "replica on the new node")
        seen = {"kept": kept, "restarted": router.status()["restarted"], "elsewhere": here in ids and _node_of_router() != here}
        return {**seen, **clients.stop(), "nothing_left": nothing_left(router)}


def _node_of_router() -> str:
    from ray._private.state import actors

    return next(str(actor["Address"]["NodeID"]) for actor in actors().values() if actor["Name"] == "router" and actor["State"] == "ALIVE")


SCENARIOS: dict[str, Callable[[Strategy | None], dict[str, Any]]] = {
    scenario.__name__: scenario
    for scenario in (
        two_nodes,
        four_nodes,
        node_lost,
        only_replica_lost,
        too_little_room,
        node_drained,
        kept_drained,
        lost_while_loading,
        labels,
        fractions,
        group_too_large,
        router_killed,
        router_node_lost,
    )
}


def main() -> None:
    """Runs one scenario."""
    warnings.simplefilter("ignore", DeprecationWarning)
    name, *strategy = sys.argv[1:]
    begun = time.monotonic()
    seen = SCENARIOS[name](strategy[0] if strategy else None)  # type: ignore[arg-type]
    print(json.dumps({**seen, "seconds": round(time.monotonic() - begun, 1)}))


if __name__ == "__main__":
    main()
