"""Shared weights: one copy a node, of the right content, owned by the router; whatever goes wrong, the disk is still there."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

import laya
from cluster import weights
from cluster.weights import Offer, Shared, Shelf, as_tensors, mapped, offer, provide, read
from laya.names import CheckpointSource

QUESTIONS = {"angry": {"type": "noul", "instructions": "The writer is angry"}}
STATES = ["I was charged twice!", "thank you"]


def an_offer(path="a", node="n1", size=4, capacity=10, state="1"):
    return Offer(node, path, state, size, capacity)


class TestShelf:
    def test_finds_what_was_put_and_nothing_else(self):
        shelf = Shelf()
        shared = shelf.put(an_offer(), "ref")
        assert shelf.find(an_offer()) is shared
        assert shelf.find(an_offer(path="b")) is None
        assert shelf.find(an_offer(node="n2")) is None
        assert shelf.find(an_offer(state="2")) is None

    def test_the_least_recently_used_goes_for_a_new_one(self):
        shelf = Shelf()
        for path in "ab":
            assert shelf.make_room(an_offer(path))
            shelf.put(an_offer(path), path)
        assert shelf.find(an_offer("a"))
        assert shelf.make_room(an_offer("c"))
        assert shelf.find(an_offer("b")) is None
        assert shelf.find(an_offer("a"))
        assert shelf.size("n1") == 4

    def test_each_node_has_room_of_its_own(self):
        shelf = Shelf()
        for node in ("n1", "n2", "n3"):
            assert shelf.make_room(an_offer(node=node, size=9))
            shelf.put(an_offer(node=node, size=9), node)
        assert len(shelf) == 3
        shelf.forget("n2")
        assert [shelf.size(node) for node in ("n1", "n2", "n3")] == [9, 0, 9]

    def test_another_content_replaces_the_old_one(self):
        shelf = Shelf()
        shelf.put(an_offer(size=9), "old")
        assert shelf.make_room(an_offer(size=9, state="2"))
        assert len(shelf) == 0

    def test_what_can_never_fit_pushes_nothing_out(self):
        shelf = Shelf()
        shelf.put(an_offer("a"), "a")
        assert not shelf.make_room(an_offer("b", size=11))
        assert shelf.find(an_offer("a"))

    def test_dropping_leaves_a_later_one_alone(self):
        shelf = Shelf()
        old = shelf.put(an_offer(), "old")
        new = shelf.put(an_offer(state="2"), "new")
        shelf.drop(old)
        assert shelf.find(an_offer(state="2")) is new
        shelf.drop(new)
        shelf.drop(new)
        assert len(shelf) == 0


@pytest.fixture
def source(quiet_folder, tmp_path):
    """A checkpoint to change."""
    return CheckpointSource(str(shutil.copytree(quiet_folder, tmp_path / "checkpoint")))


@pytest.fixture
def store(monkeypatch):
    """A node with an object store of 100 MB, all of it free."""
    monkeypatch.setattr(weights, "_node", lambda: "n1")
    monkeypatch.setattr(weights, "_store_total", lambda node: 100e6)
    monkeypatch.setattr(weights, "_store_free", lambda node: 100e6)
    return monkeypatch


def offer_of(source: CheckpointSource) -> Offer:
    found = offer(source)
    assert found is not None
    return found


def bytes_of(offered: Offer) -> int:
    arrays = read(offered)
    assert arrays is not None
    return sum(int(array.nbytes) for array in arrays.values())


@pytest.mark.usefixtures("store")
class TestOffer:
    def test_says_what_reading_gives(self, source):
        offered = offer_of(source)
        assert bytes_of(offered) == offered.size
        assert (offered.node, offered.capacity) == ("n1", 50_000_000)

    @pytest.mark.parametrize("way", ["touched", "rewritten", "replaced"])
    def test_a_file_that_has_changed_is_another(self, source, way):
        before = offer_of(source)
        file = Path(source.location) / "model.safetensors"
        times = file.stat()
        if way == "touched":
            os.utime(file, ns=(0, 0))
        else:
            content = bytearray(file.read_bytes())
            content[-1] ^= 1
            target = file if way == "rewritten" else file.with_name("new")
            target.write_bytes(content)
            os.utime(target, ns=(times.st_atime_ns, times.st_mtime_ns))  # a copy that keeps times, of the same size
            target.replace(file)
        assert offer_of(source).state != before.state
        assert read(before) is None  # the old offer gives nothing any more

    def test_weights_too_large_for_the_store_are_refused(self, source, store, caplog):
        store.setattr(weights, "_store_total", lambda node: 1000.0)
        with caplog.at_level(logging.WARNING, "laya.cluster"):
            assert offer(source) is None
        assert "object store" in caplog.text

    def test_nothing_is_pushed_out_of_a_full_store(self, source, store, caplog):
        store.setattr(weights, "_store_free", lambda node: 1000.0)
        store.setattr(weights, "_ROOM_S", 0.1)
        assert read(offer_of(source)) is None
        assert "no room" in caplog.text

    def test_what_cannot_be_read_is_not_offered(self, caplog):
        assert offer(CheckpointSource("/no/such/folder")) is None
        assert "not shared" in caplog.text

    def test_half_precision_takes_the_room_of_full_precision(self, source):
        from safetensors.torch import load_file, save_file

        file = Path(source.location) / "model.safetensors"
        save_file({name: tensor.half() for name, tensor in load_file(file).items()}, file)
        offered = offer_of(source)
        assert offered.size == bytes_of(offered)

    def test_without_ray_there_is_nothing_to_share(self, source, store, caplog):
        def no_ray():
            raise RuntimeError("no Ray here")

        store.setattr(weights, "_node", no_ray)
        assert offer(source) is None
        assert "no Ray here" in caplog.text


def test_read_only_arrays_become_tensors_without_a_copy_or_a_warning():
    array = np.ones(4, np.float32)
    array.setflags(write=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tensor = as_tensors({"w": array})["w"]
    assert tensor.data_ptr() == array.ctypes.data


def test_nothing_shared_is_nothing_mapped():
    assert mapped(None) is None


class Part:
    """Half of a handle: a call that answers, or fails."""

    def __init__(self, answer):
        self.answer = answer
        self.calls = 0

    def remote(self, *arguments):
        self.calls += 1

        async def reply():
            if isinstance(self.answer, Exception):
                raise self.answer
            return self.answer

        return reply() if not arguments else "ref"


class Handle:
    def __init__(self, offered):
        self.offer_weights = Part(offered)
        self.read_weights = Part(None)


class TestProvide:
    def test_the_first_agent_reads_and_the_others_map(self):
        shelf, first, second = Shelf(), Handle(an_offer()), Handle(an_offer())
        shared = asyncio.run(provide(first, shelf))
        assert shared == Shared(an_offer(), "ref")
        assert asyncio.run(provide(second, shelf)) is shared
        assert (first.read_weights.calls, second.read_weights.calls) == (1, 0)

    @pytest.mark.parametrize("offered", [None, RuntimeError("dead"), an_offer(size=11)])
    def test_without_an_offer_it_is_the_disk(self, offered):
        shelf, handle = Shelf(), Handle(offered)
        assert asyncio.run(provide(handle, shelf)) is None
        assert handle.read_weights.calls == 0


class _Agent:
    """An agent's side, as AgentActor has it."""

    def offer_weights(self, folder):
        return offer(CheckpointSource(folder))

    def read_weights(self, offered):
        return read(offered)

    def load(self, shared):
        tensors = mapped(shared)
        self.agent = laya.Agent(shared.offer.path.rpartition("/")[0], device="cpu", weights=tensors)
        return tensors is not None

    def answer(self):
        return self.agent.predict_batch(STATES, QUESTIONS)


class _Router:
    """A router's side: owns the weights, and never fetches them."""

    def keep(self, agent, offered):
        self.shared = Shared(offered[0], agent[0].read_weights.remote(offered[0]))
        import ray

        ray.wait([self.shared.ref], fetch_local=False)

    def give(self, agent):
        import ray

        return ray.get(agent[0].load.remote(self.shared))

    def lend(self):
        return [self.shared]


def _end(actor, method):
    """Ends an actor's process, and returns when it has ended: what it is asked after the kill may still be answered."""
    import ray

    ray.kill(actor)
    while True:
        try:
            ray.get(method.remote())
        except ray.exceptions.RayActorError:
            return
        except ray.exceptions.RayTaskError:
            pass


@pytest.mark.slow
def test_weights_outlive_the_agent_that_read_them_and_mappings_the_router(ray_session, quiet_folder):
    ray = ray_session
    agent_class = ray.remote(_Agent).options(num_cpus=0)
    router = ray.remote(_Router).options(num_cpus=0).remote()
    reader, second = agent_class.remote(), agent_class.remote()
    offered = ray.get(reader.offer_weights.remote(str(quiet_folder)))
    ray.get(router.keep.remote([reader], [offered]))
    _end(reader, reader.answer)
    assert ray.get(router.give.remote([second]))
    expected = laya.load(str(quiet_folder), device="cpu").predict_batch(STATES, QUESTIONS)
    assert ray.get(second.answer.remote()) == expected
    (lent,) = ray.get(router.lend.remote())
    _end(router, router.lend)
    # The owner is gone: who has mapped its weights does not notice, and once nobody has, they are lost.
    assert ray.get(second.answer.remote()) == expected
    ray.kill(second)
    end = time.monotonic() + 30
    while mapped(lent) is not None and time.monotonic() < end:
        time.sleep(0.2)
    assert mapped(lent) is None


def test_a_store_in_use_is_seen(ray_session):
    node = weights._node()
    assert 0 < weights._store_free(node) <= weights._store_total(node)
    tensors = mapped(Shared(an_offer(), ray_session.put({"w": np.ones(3, np.float32)})))
    assert tensors is not None
    assert torch.equal(tensors["w"], torch.ones(3))
