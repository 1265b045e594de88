"""The Ray layer: actors that host agents, the actor that places them, and the Router that clients hold."""

from cluster.asking import AgentLostError
from cluster.client import ClusterRouter
from cluster.commands import NoRoomError
from cluster.hosting import Hosting
from cluster.house import AgentDiedError

__all__ = ["AgentDiedError", "AgentLostError", "ClusterRouter", "Hosting", "NoRoomError"]
