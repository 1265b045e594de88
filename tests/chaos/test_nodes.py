"""Nodes that come, drain and go under load. Each test is a scenario of `tests.chaos.clusters`, in a process with a cluster of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

STRATEGIES = [None, "SPREAD"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def seen_in(scenario: str, strategy: str | None = None) -> dict[str, Any]:
    """What a scenario saw, once it is certain that no request was lost, none was answered wrongly, and nothing of ours was left."""
    command = [sys.executable, "-m", "tests.chaos.clusters", scenario, *([strategy] if strategy else [])]
    # A child whose cluster is gone is not to find another one.
    done = subprocess.run(
        command, env={**os.environ, "RAY_ENABLE_AUTO_CONNECT": "0"}, capture_output=True, text=True, timeout=560, check=False
    )
    assert done.returncode == 0, done.stderr[-6000:]
    seen: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert seen["nothing_left"]
    if "answered" in seen:
        assert not seen["lost"]
        assert not seen["wrong"]
        assert all(seen["answered"].values())
    return seen


def test_spread_takes_both_nodes_pack_takes_one_and_of_two_replicas_one_may_be_lost():
    seen = seen_in("two_nodes")
    assert seen["packed_on"] == 1
    assert seen["spread"]
    assert seen["places"]


def test_spread_takes_each_of_four_nodes_and_pack_fills_two():
    seen = seen_in("four_nodes")
    assert seen["spread"]
    assert seen["packed"] == [2, 2]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_replica_lost_with_its_node_comes_back_when_there_is_another(strategy):
    seen = seen_in("node_lost", strategy)
    assert seen["apart"]
    assert seen["alone"]
    assert seen["open_again"] == 2


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_calls_wait_for_the_reload_of_a_checkpoint_that_was_only_on_the_lost_node(strategy):
    assert seen_in("only_replica_lost", strategy)["moved"]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_where_a_lost_node_leaves_too_little_room_checkpoints_take_turns(strategy):
    seen = seen_in("too_little_room", strategy)
    assert seen["evictions_before"] == 0
    assert seen["slots_open"] == 1
    assert seen["evictions"] > 0
    assert seen["longest_s"] < 100  # not the two minutes that Ray has to find room


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_replica_on_a_draining_node_leaves_when_its_successor_is_ready(strategy):
    seen = seen_in("node_drained", strategy)
    assert seen["fewest"] == 1
    assert seen["state"] in ("draining", "dead")


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_draining_node_is_left_where_there_is_no_room_for_a_successor(strategy):
    assert seen_in("kept_drained", strategy)["alone"]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_load_whose_node_is_lost_is_begun_elsewhere(strategy):
    assert seen_in("lost_while_loading", strategy)["moved"]


def test_checkpoints_choose_their_nodes_by_labels():
    seen = seen_in("labels")
    assert seen["big"]
    assert seen["small"]
    assert seen["group_on_big"]
    assert "no room for an agent of checkpoint 'c'" in seen["no_node"]
    assert "'label_selector': {'kind': 'huge'}" in seen["no_node"]
    assert "labelled {'kind': 'big'}" in seen["no_node"]
    assert not seen["loading"]
    assert "leave one out" in seen["refused"]


def test_agents_with_a_quarter_of_a_gpu_share_one_and_a_fifth_has_no_slot():
    seen = seen_in("fractions")
    assert seen["together"]
    assert seen["pids"] == 4
    assert "4 slots" in seen["no_fifth"]


def test_slots_that_the_cluster_cannot_hold_are_refused_at_once_and_leave_nothing():
    seen = seen_in("group_too_large")
    assert [error.partition(" within")[0] for error in seen["refused"]] == [
        "Ray could not reserve 3 slots of {'CPU': 1.0} with STRICT_SPREAD"
    ] * 2
    assert seen["refused_s"] < 9  # both waited for the same five seconds
    assert not seen["agents"]
    assert not seen["replicas"]
    assert seen["apart"] == 2
    assert seen["groups"] == ["laya-slots:router"]


def test_a_router_that_is_killed_comes_back_to_its_slots_and_agents():
    seen = seen_in("router_killed", "SPREAD")
    assert seen["groups"] == ["laya-slots:router"]
    assert seen["same"]
    assert seen["apart"] == 2
    assert seen["evictions"] == 0
    assert seen["both"]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_router_that_is_lost_with_its_node_comes_back_elsewhere(strategy):
    seen = seen_in("router_node_lost", strategy)
    assert seen["restarted"]
    assert seen["elsewhere"]
    assert seen["kept"]
