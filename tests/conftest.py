"""Fixtures that every part of the tests shares."""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# The networks of the tests are so small that more threads than one only get into each other's way. Read when torch is first imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Processes of a Ray that was started earlier know the S3 server of a test too.
with socket.socket() as _free:
    _free.bind(("127.0.0.1", 0))
    S3_PORT: int = _free.getsockname()[1]
os.environ |= {
    "AWS_ENDPOINT_URL": f"http://127.0.0.1:{S3_PORT}",
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_REGION": "us-east-1",
}

import laya
from laya.hooks import HOOK_EVENTS, PredictContext, clear_default_hooks

GOLDENS = Path(__file__).parent / "goldens"

# A property holds or not, however long an example takes.
settings.register_profile("laya", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("laya")


class RecordingHook:
    """Implements all six events: notes each with its context, then does what was asked for that event."""

    def __init__(self, **actions: Callable[[PredictContext], Any]) -> None:
        self.seen: list[tuple[str, PredictContext]] = []
        for event in HOOK_EVENTS:
            setattr(self, event, partial(self._note, event, actions.get(event)))

    def _note(self, event: str, action: Callable[[PredictContext], Any] | None, ctx: PredictContext) -> None:
        self.seen.append((event, ctx))
        if action is not None:
            action(ctx)

    @property
    def events(self) -> list[str]:
        """Names of the events seen, in order."""
        return [event for event, _ in self.seen]

    def contexts(self, event: str) -> list[PredictContext]:
        """The contexts that one event was given, in order."""
        return [ctx for name, ctx in self.seen if name == event]


@pytest.fixture(scope="session")
def make_hook() -> type[RecordingHook]:
    """Makes hooks that record: ``make_hook(on_predict_start=action)``."""
    return RecordingHook


@pytest.fixture(scope="session")
def tiny_folder() -> Path:
    """The golden checkpoint's folder. Loading it warns of temperatures that are replaced."""
    return GOLDENS / "tiny"


@pytest.fixture(scope="session")
def quiet_folder(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the golden checkpoint whose temperatures are all in range, so that loading it warns of nothing."""
    folder = tmp_path_factory.mktemp("checkpoints") / "quiet"
    shutil.copytree(tiny_folder, folder, copy_function=shutil.copyfile)
    path = folder / "rl_agent_config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config["temperature_by_options"] = {"choice:3-5": 1.5}
    path.write_text(json.dumps(config), encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def tiny(tiny_folder: Path) -> laya.Agent:
    """The golden checkpoint's agent. It is shared: a test that adds a hook takes it off again."""
    with pytest.warns(RuntimeWarning, match="temperatures replaced"):
        return laya.load(str(tiny_folder), device="cpu")


@pytest.fixture(scope="session")
def mini() -> laya.Agent:
    """The bundled checkpoint's agent. It is shared: a test that adds a hook takes it off again."""
    return laya.load("mini", device="cpu")


@pytest.fixture(scope="session")
def tiny_onnx(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The golden checkpoint's network, exported. It belongs to any copy of that checkpoint."""
    from laya.onnx_export import export_onnx

    return export_onnx(str(tiny_folder), tmp_path_factory.mktemp("onnx") / "tiny.onnx").path


@pytest.fixture(scope="session")
def s3() -> Iterator[str]:
    """The URI of an empty bucket on an S3 server of this machine. It is shared: a test writes below a name of its own."""
    from moto.server import ThreadedMotoServer
    from pyarrow import fs

    server = ThreadedMotoServer("127.0.0.1", S3_PORT, verbose=False)
    server.start()
    fs.FileSystem.from_uri("s3://laya-tests?allow_bucket_creation=true")[0].create_dir("laya-tests")
    yield "s3://laya-tests"
    server.stop()


@pytest.fixture(autouse=True)
def _no_default_hooks_left() -> Iterator[None]:
    yield
    clear_default_hooks()


@pytest.fixture(scope="session")
def ray_session() -> Iterator[Any]:
    """One Ray for all tests that need one; agents ask for a CPU each."""
    import ray

    # A session that only this process can reach needs no token, and must not write one into the user's home.
    os.environ["RAY_AUTH_MODE"] = "disabled"
    ray.init(num_cpus=8, include_dashboard=False, object_store_memory=150_000_000, logging_level="error", log_to_driver=False)
    yield ray
    ray.shutdown()
