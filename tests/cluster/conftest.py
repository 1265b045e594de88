"""One Ray for the whole test session."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(scope="session")
def ray_session():
    os.environ["RAY_AUTH_MODE"] = "disabled"  # a session that only this process can reach needs no token
    import ray

    ray.init(num_cpus=6, include_dashboard=False, object_store_memory=150_000_000, logging_level="error", log_to_driver=False)
    yield ray
    ray.shutdown()


@pytest.fixture(scope="session")
def mini():
    import laya

    return laya.load("mini", device="cpu")
