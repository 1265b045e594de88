"""What travels between processes arrives as it was."""

from __future__ import annotations

import pickle

import pytest

from cluster import AgentLostError, NoRoomError
from cluster.messages import AgentReport, Moved, Placement, Reply
from laya.files import CheckpointError
from laya.hooks import PredictContext
from pipelines.sources import InputError, RecordError


@pytest.mark.parametrize("message", [Placement(3, {1: "handle"}), Moved(), AgentReport(1, 0.5, 2, 3, 4), Reply([1], None, 2)])
def test_messages(message):
    assert pickle.loads(pickle.dumps(message)) == message


@pytest.mark.parametrize("error_class", [AgentLostError, NoRoomError, CheckpointError, InputError, RecordError])
def test_errors_keep_their_class_and_message(error_class):
    error = pickle.loads(pickle.dumps(error_class("what happened")))
    assert type(error) is error_class
    assert error.args == ("what happened",)


def test_a_context_leaves_its_agent_behind_and_keeps_its_age():
    ctx = PredictContext(states=["a"], questions={}, agent=object(), router=object())
    ctx.started_at -= 5.0
    there = pickle.loads(pickle.dumps(ctx))
    assert (there.run_id, there.agent, there.router) == (ctx.run_id, None, None)
    assert abs(there.started_at - ctx.started_at) < 1.0
