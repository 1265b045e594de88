"""What travels between processes arrives as it was."""

from __future__ import annotations

import pickle
import pkgutil
from importlib import import_module

import pytest

import cluster
import laya
import pipelines
from cluster import AgentDiedError, AgentLostError, Hosting, NoRoomError
from cluster.messages import AgentId, AgentReport, LifecycleEvent, Loaded, Moved, Notice, Placement, Reply, RouterReply
from laya.files import CheckpointError
from laya.hooks import PredictContext
from laya.names import find_source
from pipelines.errors import InputError, RecordError

REPORT = AgentReport(
    id=AgentId("router", 1, "mini", find_source("mini"), 0),
    node="n",
    pid=7,
    loaded=True,
    draining=False,
    in_flight=1,
    idle_s=0.5,
    requests=2,
    states=3,
    moved=0,
    input_tokens=4,
    forward_s=1.5,
    waiting_rows=5,
    rss_bytes=6,
    size_bytes=7,
    notice=Notice(1, 2, pinned=True),
    token_budget=2048,
)


@pytest.mark.parametrize(
    "message",
    [
        Placement(3, {1: "handle"}),
        Moved(),
        Loaded(7, mapped=True),
        Hosting(options={"fast": True}, max_replicas=2),
        REPORT,
        Reply([1], None, 2),
        RouterReply(1, None, [LifecycleEvent("on_load", "english")]),
    ],
)
def test_messages(message):
    assert pickle.loads(pickle.dumps(message)) == message


def exception_classes():
    """Every exception class that the packages define, wherever it stands."""
    for package in (laya, cluster, pipelines):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if found.name.endswith("__main__"):
                continue
            for value in vars(import_module(found.name)).values():
                if isinstance(value, type) and issubclass(value, BaseException) and value.__module__ == found.name:
                    yield value


def test_the_walk_finds_them():
    assert {AgentDiedError, AgentLostError, NoRoomError, CheckpointError, InputError, RecordError} <= set(exception_classes())


@pytest.mark.parametrize("error_class", list(exception_classes()))
def test_errors_keep_their_class_and_message(error_class):
    error = pickle.loads(pickle.dumps(error_class("what happened")))
    assert type(error) is error_class
    assert error.args == ("what happened",)
    assert str(error) == "what happened"


def test_a_context_leaves_its_agent_behind_and_keeps_its_age():
    ctx = PredictContext(states=["a"], questions={}, agent=object(), router=object())
    ctx.started_at -= 5.0
    there = pickle.loads(pickle.dumps(ctx))
    assert (there.run_id, there.agent, there.router) == (ctx.run_id, None, None)
    assert abs(there.started_at - ctx.started_at) < 1.0
