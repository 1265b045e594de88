"""AgentActor's promise: what it has accepted it finishes, and what it has not accepted it sends on."""

from __future__ import annotations

import asyncio
import threading

import pytest
import torch

import laya
from cluster.agent_actor import AgentActor
from cluster.hosting import RouterConfig
from cluster.messages import AgentId, Moved, Notice, Reply
from laya.deadlines import remaining_s
from laya.hooks import set_default_hooks
from laya.names import find_source

QUESTIONS = {"angry": {"type": "noul", "instructions": "The writer is angry"}}


@pytest.fixture
def actor(ray_session):
    config = RouterConfig(
        name="nobody",
        slots=1,
        sources={},
        hosting={},
        device="cpu",
        token=None,
        threads=torch.get_num_threads(),
        agent_options={},
        strategy=None,
        capacity_bytes=None,
        min_residency_s=1.0,
        busy_depth=4.0,
        idle_s=60.0,
        hooks=(),
    )
    actor = AgentActor(AgentId("nobody", 0, "mini", find_source("mini")), config)
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


def test_a_call_that_its_caller_gives_up_is_in_flight_until_its_work_has_ended(actor):
    gate = Gate()
    actor._agent.add_hook(gate)

    async def scenario():
        call = asyncio.create_task(actor.predict_batch(["hello"], QUESTIONS, {}, []))
        await asyncio.to_thread(gate.entered.wait, 30)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert (await actor.describe()).in_flight == 1
        gate.release.set()
        await actor.drain()
        return await actor.describe()

    report = asyncio.run(scenario())
    assert report.in_flight == 0
    assert report.input_tokens == 0  # it was dropped before its pass


class UntilTheDeadline:
    """A start hook that holds a request until its time is up."""

    def on_predict_start(self, ctx):
        while remaining_s():
            pass


def test_a_call_has_the_time_that_its_client_has_left(actor):
    actor._agent.add_hook(UntilTheDeadline())
    reply = asyncio.run(actor.predict_batch(["hello"], QUESTIONS, {}, [], 0.01))
    assert isinstance(reply.error, laya.DeadlineExceededError)


def test_a_notice_is_kept_for_the_next_router_and_an_older_one_is_not(actor):
    async def scenario():
        await actor.notice(Notice(5, 2, pinned=True))
        await actor.notice(Notice(4, 0, pinned=False))
        reply = await actor.predict_batch(["hello"], QUESTIONS, {}, [])
        return reply, await actor.describe()

    reply, report = asyncio.run(scenario())
    assert reply.epoch == 5
    assert report.notice == Notice(5, 2, pinned=True)
    assert (report.loaded, report.draining) == (True, False)
