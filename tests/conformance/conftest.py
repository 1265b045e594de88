"""The runtimes that one suite of tests runs against, each made by a factory. No test knows which one it has.

A runtime is built afresh by its ``make_...`` fixture, for hook arguments at construction or a life cycle of its own. The others are
shared by the whole session and come back to the next test as they were: Routers with English and multilingual agents resident.
"""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import laya

WARM = ("english", "multilingual")
NAMES = (*WARM, "typed-decisions", "one", "two", "three")

Make = Callable[..., Any]


@pytest.fixture(scope="package", autouse=True)
def _one_thread() -> Iterator[None]:
    """The model is so small that threads only wait for each other."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def folder(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The golden checkpoint with its temperatures in range already: the same answers, and loading it warns of nothing."""
    copy = tmp_path_factory.mktemp("checkpoints") / "golden"
    shutil.copytree(tiny_folder, copy, copy_function=shutil.copyfile)
    path = copy / "rl_agent_config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    buckets = config["temperature_by_options"]
    config["temperature_by_options"] = {name: min(5.0, max(0.5, temperature)) for name, temperature in buckets.items()}
    path.write_text(json.dumps(config), encoding="utf-8")
    return copy


@pytest.fixture(scope="session")
def reference(folder: Path) -> laya.Agent:
    """The agent whose answers and errors the others' are held against; tests/laya holds it against the goldens."""
    return laya.Agent(str(folder), device="cpu")


class Agents:
    """One kind of agent."""

    def __init__(self, make: Make) -> None:
        self.make = make
        self.shared = make()

    def ready(self) -> Any:
        """The shared one."""
        return self.shared


class LocalRouters:
    """Routers of this process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.shared = self.fresh()

    def fresh(self, models: dict[str, Any] | None = None, **arguments: Any) -> Any:
        """A Router with nothing resident."""
        return laya.Router(models=dict.fromkeys(NAMES, self._folder) | (models or {}), device="cpu", **arguments)

    def make(self, **arguments: Any) -> Any:
        """A Router whose English and multilingual agents are those of the shared one."""
        router = self.fresh(**arguments)
        for name in WARM:
            router.attach(name, self.ready().load(name))
        return router

    def ready(self) -> Any:
        """The shared one, English and multilingual resident."""
        return _warm(self.shared)

    def close(self, router: Any) -> None:
        """Lets go of a fresh one's agents."""
        router.unload()


class ClusterRouters:
    """Routers over the actors of a cluster."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = itertools.count()
        self.shared = self._build("conformance")

    def _build(self, name: str, models: dict[str, Any] | None = None, **arguments: Any) -> Any:
        from cluster import ClusterRouter
        from cluster.hosting import MIN_RESIDENCY_S

        return ClusterRouter(
            models=dict.fromkeys(NAMES, self._folder) | (models or {}),
            device="cpu",
            name=name,
            num_cpus=0.5,
            min_residency_s=MIN_RESIDENCY_S,
            **arguments,
        )

    def fresh(self, **arguments: Any) -> Any:
        """A Router with nothing resident."""
        return self._build(f"conformance-{next(self._numbers)}", **arguments)

    def make(self, **arguments: Any) -> Any:
        """A Router whose English and multilingual agents are those of the shared one."""
        self.ready()
        return self._build("conformance", **arguments)

    def ready(self) -> Any:
        """The shared one, English and multilingual resident, and for long enough that each may be evicted."""
        from cluster.hosting import MIN_RESIDENCY_S

        _warm(self.shared)
        while any(replica["ready_s"] < MIN_RESIDENCY_S for replica in self.shared.status()["replicas"]):
            pass
        return self.shared

    def close(self, router: Any) -> None:
        """Ends a fresh one's agents."""
        router.close()


def _warm(router: Any) -> Any:
    for name in WARM:
        router.predict("warm up", {}, model=name)
    return router


@pytest.fixture(scope="session")
def torch_agents(folder: Path) -> Agents:
    return Agents(lambda **arguments: laya.Agent(str(folder), device="cpu", **arguments))


@pytest.fixture(scope="session")
def onnx_agents(folder: Path, tiny_onnx: Path) -> Agents:
    return Agents(lambda **arguments: laya.ONNXAgent(str(folder), onnx_path=str(tiny_onnx), device="cpu", threads=1, **arguments))


@pytest.fixture(scope="session")
def local_routers(folder: Path) -> LocalRouters:
    return LocalRouters(folder)


@pytest.fixture(scope="session")
def cluster_routers(folder: Path, ray_session: Any) -> Iterator[ClusterRouters]:
    routers = ClusterRouters(folder)
    yield routers
    routers.close(routers.shared)


AGENTS = {"Agent": "torch_agents", "ONNXAgent": "onnx_agents"}
ROUTERS = {"Router": "local_routers", "ClusterRouter": "cluster_routers"}


@contextmanager
def _left_as_found(runtime: Any) -> Iterator[Any]:
    yield runtime
    for hook in runtime.hooks:
        runtime.remove_hook(hook)


# Agents


@pytest.fixture(params=AGENTS)
def agents(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(AGENTS[request.param])


@pytest.fixture
def make_agent(agents: Any) -> Make:
    """Makes agents: ``make_agent(hooks=...)``."""
    make: Make = agents.make
    return make


@pytest.fixture
def agent(agents: Any) -> Iterator[Any]:
    with _left_as_found(agents.ready()) as shared:
        yield shared


# Routers


@pytest.fixture(params=ROUTERS)
def routers(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(ROUTERS[request.param])


@pytest.fixture
def make_router(routers: Any) -> Iterator[Make]:
    """Makes Routers with nothing resident, whose agents end with the test."""
    made: list[Any] = []

    def make(**arguments: Any) -> Any:
        made.append(routers.fresh(**arguments))
        return made[-1]

    yield make
    for router in made:
        routers.close(router)


@pytest.fixture
def make_warm_router(routers: Any) -> Make:
    """Makes Routers whose English and multilingual agents are those of the shared one."""
    make: Make = routers.make
    return make


@pytest.fixture
def router(routers: Any) -> Iterator[Any]:
    """The shared Router, English and multilingual resident."""
    with _left_as_found(routers.ready()) as shared:
        yield shared


@pytest.fixture
def cold_router(routers: Any) -> Iterator[Any]:
    """The shared Router with nothing resident."""
    routers.shared.unload()
    with _left_as_found(routers.shared) as shared:
        yield shared


# Both, for what every ``predict`` has


@pytest.fixture(params=AGENTS | ROUTERS)
def runtimes(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue((AGENTS | ROUTERS)[request.param])


@pytest.fixture
def make_runtime(runtimes: Any) -> Make:
    """Makes Agents and Routers: ``make_runtime(hooks=...)``."""
    make: Make = runtimes.make
    return make


@pytest.fixture
def runtime(runtimes: Any) -> Iterator[Any]:
    """A shared Agent or Router."""
    with _left_as_found(runtimes.ready()) as shared:
        yield shared


# What answers predict_batch and predict_long, in this process or another

ANSWERING: dict[str, Callable[[pytest.FixtureRequest], Any]] = {
    "Agent": lambda request: request.getfixturevalue("torch_agents").ready(),
    "ONNXAgent": lambda request: request.getfixturevalue("onnx_agents").ready(),
    "RemoteAgent": lambda request: request.getfixturevalue("cluster_routers").ready().load("english"),
}


@pytest.fixture(params=ANSWERING)
def answering(request: pytest.FixtureRequest) -> Any:
    return ANSWERING[request.param](request)
