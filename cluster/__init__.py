"""The Ray layer: actors that host agents, the actor that places them, and the Router that clients hold."""

from cluster.client import ClusterRouter
from cluster.remote_agent import AgentLostError
from cluster.residency import NoRoomError
from cluster.router_actor import AgentDiedError

__all__ = ["AgentDiedError", "AgentLostError", "ClusterRouter", "NoRoomError"]
