"""A checkpoint's replicas, as a client asks them."""

from __future__ import annotations

import random
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from cluster.asking import GONE, AgentLostError, RouterHandle, get
from cluster.messages import LifecycleEvent, Moved, Placement, Reply, RouterReply
from cluster.sharing import SHARED_WINDOWS, read_together
from laya.answers import Result
from laya.confidence import ConfidenceGate
from laya.deadlines import DeadlineExceededError, remaining_s
from laya.hooks.call import Results, served_requests
from laya.names import CheckpointSource
from laya.scanning import SharedScan
from laya.states import as_batch

_ATTEMPTS = 20
"""Agents that a call may find leaving before it gives up."""
_DEATHS = 3
"""Agents that may die or be out of reach under one call before it gives up: it may be what kills them."""


class RemoteAgent:
    """A checkpoint's replicas, called like one agent. A call that meets a leaving or dead one is repeated on another.

    Args:
        router: The router actor.
        checkpoint: Name of the checkpoint.
        source: Where it lives, as far as this client knows.
        told: Gets the lifecycle events that a question to the router brought about.
    """

    def __init__(
        self, router: RouterHandle, checkpoint: str, source: CheckpointSource, told: Callable[[Sequence[LifecycleEvent]], None]
    ) -> None:
        self.model_id = checkpoint
        self._router = router
        self._source = source
        self._told = told
        self._lock = threading.Lock()
        self._asked: Future[Placement] | None = None  # the router's answer: one thread asks, the others wait for the same
        self._counting = threading.Lock()
        self._depth: dict[int, int] = {}
        self._gone: set[int] = set()  # replicas of the present placement that were found leaving or dead

    def predict_batch(self, states: Sequence[Any], questions: Mapping[Any, Any], batch_size: int | None = None, **options: Any) -> Results:
        """Answers the same questions about every state.

        Args:
            states: See `laya.Agent.predict_batch`, also for the other arguments.
            questions: Question id to question.
            batch_size: Rows of one forward pass.
            **options: max_len, head_max_len, sort_by_length, min_confidence, lang.

        Raises:
            TypeError: A hook argument was given: hooks run where they are installed, so they belong to the Router and its calls.
            Exception: What the agent raised, with its own class.
        """
        value: Results = self._call("predict_batch", as_batch(states), questions, {"batch_size": batch_size, **options})
        return value

    def system_one(self, state: Any, questions: Mapping[Any, Any], **options: Any) -> Result:
        """Answers questions about one state; see `predict_batch`."""
        return self.predict_batch([state], questions, **options)[0]

    predict = system_one

    def predict_long(
        self,
        state: Any,
        questions: Mapping[Any, Any],
        window: int | None = None,
        stride: int | None = None,
        aggregate: str = "auto",
        batch_size: int | None = None,
        lang: str | None = None,
        **options: Any,
    ) -> Result:
        """Answers questions about one state of any length; the windows of a long one are spread over all replicas.

        Args:
            state: See `laya.Agent.predict_long`, also for the other arguments.
            questions: Question id to question.
            window: Tokens of a window.
            stride: Tokens from one window's start to the next.
            aggregate: Only "auto".
            batch_size: Rows of one forward pass.
            lang: Language code of the state.
            **options: max_len, head_max_len, min_confidence.

        Raises:
            TypeError: As in `predict_batch`.
            Exception: As in `predict_batch`.
        """
        told = {"window": window, "stride": stride, "aggregate": aggregate, "batch_size": batch_size, "lang": lang}
        found = self._call("predict_long", state, questions, {**told, **options, "share": SHARED_WINDOWS})
        if not isinstance(found, SharedScan):
            answered: Result = found
            return answered
        how = {"batch_size": batch_size, "lang": lang, "max_len": options.get("max_len"), "head_max_len": options.get("head_max_len")}
        merged = read_together(found, len(self.place().agents), lambda windows: self._call("score_windows", windows, questions, how))
        return ConfidenceGate(options.get("min_confidence")).apply(merged)

    def place(self, fresh: bool = False) -> Placement:
        """Where the checkpoint can be asked, from memory while that holds good.

        Args:
            fresh: Ask the router in any case, since what is remembered may have left.

        Raises:
            laya.CheckpointError: It cannot be built; every thread that waits gets this error, and the next one asks again.
            NoRoomError: There is no room for it, and will be none.
            AgentLostError: The router actor is gone.
            laya.DeadlineExceededError: The deadline passed meanwhile.
        """
        while True:
            with self._lock:
                asked = self._asked
                mine = asked is None or (fresh and asked.done())
                if asked is None or mine:
                    asked = self._asked = Future()
            if mine:
                self._ask(asked)
            try:
                return asked.result(remaining_s())
            except DeadlineExceededError:
                if mine or remaining_s() == 0.0:
                    raise  # else it was the deadline of whoever asked
            except TimeoutError:
                raise DeadlineExceededError(f"the deadline passed while {self.model_id!r} was being placed: allow more time") from None
            except KeyboardInterrupt as interrupt:
                if mine or not asked.done() or asked.exception() is not interrupt:
                    raise  # else it was meant for whoever asked

    def _ask(self, asked: Future[Placement]) -> None:
        try:
            reply: RouterReply[Placement] = self._router.ask("place", self.model_id, self._source)
        except BaseException as error:
            reply = RouterReply()
            failure: BaseException | None = error
        else:
            failure = reply.error
        if failure is not None:
            self._forget(asked)
            asked.set_exception(failure)
        elif reply.value is not None:
            with self._counting:
                self._gone.clear()
                self._depth = {replica: self._depth.get(replica, 0) for replica in reply.value.agents}
            asked.set_result(reply.value)
        try:
            self._told(reply.events)
            if reply.events:  # a hook may have loaded others; this one is what was asked for last
                self._router.ask("touch", self.model_id)
        except Exception as raised:
            if failure is None:
                raise
            failure.add_note(f"a lifecycle hook failed too: {type(raised).__name__}: {raised}")

    def _call(self, method: str, payload: Any, questions: Any, options: dict[str, Any]) -> Any:
        hooks = [name for name in options if name.startswith(("hooks", "on_predict"))]
        if hooks:
            raise TypeError(f"{hooks[0]}= is not taken by an agent of a cluster: give it to a call of the ClusterRouter, with model=")
        request_ids = served_requests() or []
        deaths = 0
        for _ in range(_ATTEMPTS):
            placement = self.place()
            replica = self._pick(placement)
            agent = placement.agents[replica]
            with self._counting:
                self._depth[replica] = self._depth.get(replica, 0) + 1
            try:
                reply = get(getattr(agent, method).remote(payload, questions, options, request_ids, remaining_s()))
            except GONE as error:
                deaths += self._lost(placement, replica)
                if deaths == _DEATHS:
                    raise AgentLostError(
                        f"checkpoint {self.model_id!r}: {_DEATHS} agents died or were out of reach under this call ({error}); it may be "
                        "what ends them: too little memory, or a text that the model cannot take"
                    ) from error
                continue
            except BaseException:
                self._give_up(replica)
                raise
            if isinstance(reply, Moved):
                self._leave(placement, replica)
                continue
            self._learn(placement, replica, reply)
            for warning in reply.warnings:
                warnings.warn(warning, stacklevel=3)
            if reply.error is not None:
                raise reply.error
            return reply.value
        raise AgentLostError(f"checkpoint {self.model_id!r}: {_ATTEMPTS} agents in a row were leaving; see the status of the cluster")

    def _pick(self, placement: Placement) -> int:
        """The less loaded of two at random: nearly as even as asking all of them, and clients do not stampede to one."""
        left = [replica for replica in placement.agents if replica not in self._gone] or list(placement.agents)
        pair = random.sample(left, min(2, len(left)))
        return min(pair, key=lambda replica: self._depth.get(replica, 0))

    def _learn(self, placement: Placement, replica: int, reply: Reply) -> None:
        with self._counting:
            if replica in self._depth:  # else another call has found it gone meanwhile
                self._depth[replica] = reply.in_flight
        if reply.epoch > placement.epoch:  # replicas have come or gone since
            self._drop(placement)

    def _lost(self, placement: Placement, replica: int) -> bool:
        """A replica could not be reached. Returns whether that may be the call's doing: it had not left in good order before."""
        if self._leave(placement, replica):  # others are left: the call goes on there, and the router looks after this one meanwhile
            self._router.tell("lost", replica)
            return True
        return not self._router.ask("lost", replica)

    def _give_up(self, replica: int) -> None:
        """A call went before its answer, which would have said how loaded the replica is."""
        with self._counting:
            if replica in self._depth:
                self._depth[replica] -= 1

    def _leave(self, placement: Placement, gone: int) -> bool:
        """Asks a replica no more, and returns whether the placement has others."""
        with self._counting:
            self._depth.pop(gone, None)
            self._gone.add(gone)
            others = bool(placement.agents.keys() - self._gone)
        if not others:
            self._drop(placement)
        return others

    def _drop(self, placement: Placement) -> None:
        """Forgets a placement, if it is still the one that is remembered."""
        asked = self._asked
        if asked is not None and asked.done() and asked.exception() is None and asked.result() is placement:
            self._forget(asked)

    def _forget(self, asked: Future[Placement]) -> None:
        with self._lock:
            if self._asked is asked:
                self._asked = None
