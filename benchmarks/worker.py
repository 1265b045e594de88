"""One side of the benchmark: a process that loads `laya` and answers commands, one JSON object a line.

It imports the standard library and `laya` alone, and only what both packages of that name offer, so the same file runs in
either environment. Commands, by their ``command``:

    load     checkpoint: folder                                    -> laya, torch, threads
    predict  states, questions, options: arguments by keyword      -> seconds, results

An answer that failed is ``{"error": text}``. The process ends when its input does.
"""

from __future__ import annotations

import json
import os
import sys
import time
from importlib.metadata import version
from typing import Any


def main() -> None:
    """Answers commands until the input ends."""
    # The protocol keeps the two channels to itself: whatever a library prints, from C too, goes where errors go.
    commands = os.fdopen(os.dup(0), encoding="utf-8")
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    agent: Any = None
    for line in commands:
        command = json.loads(line)
        try:
            if command["command"] == "load":
                agent, answer = _load(command["checkpoint"])
            else:
                answer = _predict(agent, command)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _load(checkpoint: str) -> tuple[Any, dict[str, Any]]:
    import laya

    # Without a device, both packages take a GPU if there is one, and not in fp32.
    agent = laya.Agent(checkpoint, device="cpu")
    torch = sys.modules["torch"]  # whichever the package computes with; importing it here could load another
    return agent, {"laya": version("laya"), "torch": version("torch"), "threads": torch.get_num_threads()}


def _predict(agent: Any, command: dict[str, Any]) -> dict[str, Any]:
    start = time.perf_counter()
    results = agent.predict_batch(command["states"], command["questions"], **command["options"])
    return {"seconds": time.perf_counter() - start, "results": results}


if __name__ == "__main__":
    main()
