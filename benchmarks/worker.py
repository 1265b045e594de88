"""One side of the benchmark: a process that loads `laya` and answers commands, one JSON object a line.

It imports the standard library and `laya` alone, and only what both packages of that name offer, so the same file runs in
either environment. Commands, by their ``command``:

    load     checkpoint: folder, options: arguments by keyword    -> laya, torch, threads, precision, reason, import_s, load_s
    call     method, given: what about, questions, options         -> seconds, result

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
                agent, answer = _load(command["checkpoint"], command["options"])
            else:
                answer = _call(agent, command)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _load(checkpoint: str, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    begun = time.perf_counter()
    import laya

    imported = time.perf_counter()
    # Without a device, both packages take a GPU if there is one.
    agent = laya.Agent(checkpoint, device="cpu", **options)
    loaded = time.perf_counter()
    torch = sys.modules["torch"]  # whichever the package computes with; importing it here could load another
    about = {"laya": version("laya"), "torch": version("torch"), "threads": torch.get_num_threads()}
    told = agent.describe() if hasattr(agent, "describe") else {}
    about |= {"precision": told.get("precision", ""), "reason": told.get("precision_reason", "")}
    return agent, {**about, "import_s": imported - begun, "load_s": loaded - imported}


def _call(agent: Any, command: dict[str, Any]) -> dict[str, Any]:
    method = getattr(agent, command["method"])
    begun = time.perf_counter()
    result = method(command["given"], command["questions"], **command["options"])
    return {"seconds": time.perf_counter() - begun, "result": result}


if __name__ == "__main__":
    main()
