"""AgentActor's promise: what it has accepted it finishes, and what it has not accepted it sends on."""

from __future__ import annotations

import asyncio
import threading

import pytest
import torch

from cluster.agent_actor import AgentActor
from cluster.messages import Moved, Reply
from laya.hooks import set_default_hooks
from laya.names import find_source

QUESTIONS = {"angry": {"type": "noul", "instructions": "The writer is angry"}}


@pytest.fixture
def actor():
    threads = torch.get_num_threads()
    actor = AgentActor(find_source("mini"), "cpu", None, threads=threads)
    asyncio.run(actor.load())
    return actor


class Gate:
    """A start hook that holds a request until it is let go."""

    def __init__(self):
        self.entered = threading.Event()
        self.release = threading.Event()
        self.request_ids = None

    def on_predict_start(self, ctx):
        self.request_ids = ctx.request_ids
        self.entered.set()
        assert self.release.wait(30)


def test_draining_finishes_what_is_in_flight_and_sends_the_rest_on(actor):
    gate = Gate()
    actor._agent.add_hook(gate)

    async def scenario():
        accepted = asyncio.create_task(actor.predict_batch(["hello"], QUESTIONS, {}, ["run-1"]))
        await asyncio.to_thread(gate.entered.wait, 30)
        draining = asyncio.create_task(actor.drain())
        await asyncio.sleep(0)  # lets it begin
        report = await actor.describe()  # control answers while a request is being served
        assert (report.in_flight, report.requests, report.idle_s) == (1, 1, 0.0)
        late = await actor.predict_batch(["too late"], QUESTIONS, {}, ["run-2"])
        assert isinstance(late, Moved)
        assert not draining.done()
        gate.release.set()
        reply = await accepted
        await draining
        return reply

    reply = asyncio.run(scenario())
    assert isinstance(reply, Reply)
    assert reply.error is None
    assert gate.request_ids == ["run-1"]
    assert reply.value == actor._agent.predict_batch(["hello"], QUESTIONS)
    assert reply.in_flight == 0


def test_errors_travel_in_the_reply_with_their_class(actor):
    reply = asyncio.run(actor.predict_batch(["hello"], {"q": {"type": "bool"}}, {}, []))
    assert isinstance(reply.error, ValueError)
    assert "question 'q'" in str(reply.error)
    assert asyncio.run(actor.describe()).in_flight == 0


def test_default_hooks_of_its_process_do_not_fire_a_second_time(actor):
    seen: list[object] = []
    set_default_hooks(on_predict_start=seen.append)
    asyncio.run(actor.predict_batch(["hello"], QUESTIONS, {}, ["run-1"]))
    assert seen == []


def test_a_long_state(actor):
    text = "The parcel is late. " * 300
    reply = asyncio.run(actor.predict_long(text, QUESTIONS, {"window": 100}, ["run-1"]))
    assert reply.value == actor._agent.predict_long(text, QUESTIONS, window=100)
    assert asyncio.run(actor.describe()).input_tokens == reply.value["usage"]["input_tokens"]
