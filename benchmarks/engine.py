"""How fast this package answers next to the published one: `python -m benchmarks.engine --peer PYTHON`.

The published package is a black box here: it runs in its own environment, by its public calls, on the same checkpoint.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import NoReturn

from benchmarks.ceiling import matmul_rate, matrices
from benchmarks.differences import TOLERANCE
from benchmarks.harness import positive
from benchmarks.report import Report, show, summarize
from benchmarks.sides import Run, Side, WorkerError, load_or_pad
from benchmarks.workload import MAX_WORDS, MEDIAN_WORDS, QUESTIONS, make_states

CHECKPOINT = Path(__file__).parents[1] / "laya" / "checkpoints" / "mini"
PEER_OPTIONS = {"batch_size": 16, "sort_by_length": True}
WARM_UPS = 2
_CEILING_SECONDS = 1.0

DESCRIPTION = f"""\
Time predict_batch of this package and of the published `laya` on the bundled `mini` checkpoint, on the CPU in fp32, and compare
the answers. The states are made-up messages (median {MEDIAN_WORDS} words, at most {MAX_WORDS}), each asked a choice of 4, a score of 3 and
a noul.

Each side is one process in its own environment, started once and warmed up. The runs alternate and never overlap, so that
whatever else the machine does meets both sides; the ratio is the median over the rounds of peer seconds / our seconds.
"""

EPILOG = f"""\
set up the peer (once):
  python3 -m venv .venv-peer
  .venv-peer/bin/pip install torch==2.13.0 laya==0.4.15

examples:
  python -m benchmarks.engine
  python -m benchmarks.engine --peer .venv-peer/bin/python --rounds 9 --json out/bench.json

exit codes: 0 fine; 1 the answers differ by more than {TOLERANCE} or decide otherwise; 2 bad arguments, or a side that cannot run.
"""

NO_PEER = "Only this package was measured. --help says how to set up the peer for --peer."
PADDED = (
    "The peer refuses a checkpoint without the encoder's pooler, which no answer depends on: it read a temporary copy with "
    "a pooler of zeros."
)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        # One line: the mistake, not the whole usage before it.
        self.exit(2, f"{self.prog}: {message}\n")


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = _Parser(prog="benchmarks.engine", description=DESCRIPTION, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--peer", metavar="PYTHON", help="interpreter that has the published laya; without it only this package is measured"
    )
    parser.add_argument("--rounds", type=positive, default=5, help="timed runs of each side (default: %(default)s)")
    parser.add_argument("--states", type=positive, default=256, help="states of one run, each asked 3 questions (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all that was measured there")
    parser.add_argument("--seed", type=int, default=0, help="of the states (default: %(default)s)")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the benchmark and returns the exit code."""
    parser = build_parser()
    args = parser.parse_args(argv)
    if args.json and not args.json.parent.is_dir():
        parser.error(f"--json: there is no folder {args.json.parent}")
    try:
        report = measure(args.peer, args.rounds, args.states, args.seed)
    except WorkerError as error:
        parser.error(" ".join(str(error).split()))
    show(report)
    if args.json:
        args.json.write_text(json.dumps(asdict(report), indent=1) + "\n", encoding="utf-8")
    return 0 if report.same else 1


def measure(peer: str | None, rounds: int, count: int, seed: int) -> Report:
    """Measures one side or two.

    Args:
        peer: Interpreter of the peer, or None.
        rounds: Timed runs of each side.
        count: Number of states.
        seed: Of the states.

    Raises:
        WorkerError: A side cannot run.
    """
    states = make_states(count, seed)
    notes = []
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        sides = [stack.enter_context(Side("ours", sys.executable))]
        if peer is None:
            notes.append(NO_PEER)
        else:
            # The peer goes first: it is the one that may not be set up.
            sides.append(stack.enter_context(Side("peer", peer, PEER_OPTIONS)))
            if load_or_pad(sides[1], CHECKPOINT, scratch):
                notes.append(PADDED)
        sides[0].load(CHECKPOINT)
        take_turns(sides, WARM_UPS, states)
        ceiling = matmul_rate(_CEILING_SECONDS)
        turns = take_turns(sides, rounds, states)
        ceiling = max(ceiling, matmul_rate(_CEILING_SECONDS))
    return summarize([(side.name, side.about) for side in sides], turns, ceiling, matrices(CHECKPOINT), seed, notes)


def take_turns(sides: Sequence[Side], rounds: int, states: Sequence[str]) -> list[list[Run]]:
    """Runs the sides one after the other, the order turned round each time.

    Returns:
        For each round, the runs in the order of ``sides``.
    """
    turns = []
    for number in range(rounds):
        order = list(range(len(sides)))[:: -1 if number % 2 else 1]
        runs = {index: sides[index].predict(states, QUESTIONS) for index in order}
        turns.append([runs[index] for index in range(len(sides))])
    return turns


if __name__ == "__main__":
    sys.exit(main())
