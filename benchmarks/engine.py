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
from benchmarks.checkpoints import ENCODERS, MINI, make_checkpoint
from benchmarks.differences import REDUCED_TOLERANCE, TOLERANCE
from benchmarks.harness import positive
from benchmarks.report import Report, show, summarize
from benchmarks.settings import OURS, PEER
from benchmarks.sides import Run, Side, WorkerError, load_or_pad
from benchmarks.workload import MAX_WORDS, MEDIAN_WORDS, QUESTIONS, make_states

CHECKPOINTS = ("mini", *ENCODERS)
WARM_UPS = 2
_CEILING_SECONDS = 1.0

DESCRIPTION = f"""\
Time predict_batch of this package and of the published `laya` on one checkpoint, on the CPU, each in several settings, and compare
the answers. The states are made-up messages (median {MEDIAN_WORDS} words, at most {MAX_WORDS}), each asked a choice of 4, a score of 3 and
a noul.

Each side is one process in its own environment, started once and warmed up. The runs alternate and never overlap, so that
whatever else the machine does meets all sides; a ratio is the median over the rounds of peer seconds / our seconds.
"""

EPILOG = f"""\
checkpoints: mini (bundled); minilm and modernbert-base have random weights and the size of their namesakes

set up the peer (once):
  python3 -m venv .venv-peer
  .venv-peer/bin/pip install torch==2.13.0 laya==0.4.15

examples:
  python -m benchmarks.engine
  python -m benchmarks.engine --checkpoint minilm --peer .venv-peer/bin/python --states 128 --json out/bench.json

exit codes: 0 fine; 1 the answers differ by more than {TOLERANCE} (in half precision {REDUCED_TOLERANCE}) or decide otherwise; 2 bad
arguments, or a side that cannot run.
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
    parser.add_argument("--checkpoint", choices=CHECKPOINTS, default="mini", help="which network (default: %(default)s)")
    parser.add_argument("--rounds", type=positive, default=5, help="timed runs of each side (default: %(default)s)")
    parser.add_argument("--states", type=positive, default=64, help="states of one run, each asked 3 questions (default: %(default)s)")
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
        report = measure(args.peer, args.rounds, args.states, args.seed, args.checkpoint)
    except WorkerError as error:
        parser.error(" ".join(str(error).split()))
    show(report)
    if args.json:
        args.json.write_text(json.dumps(asdict(report), indent=1) + "\n", encoding="utf-8")
    return 0 if report.same else 1


def measure(peer: str | None, rounds: int, count: int, seed: int, checkpoint: str = "mini") -> Report:
    """Measures our settings, and the peer's.

    Args:
        peer: Interpreter of the peer, or None.
        rounds: Timed runs of each setting.
        count: Number of states.
        seed: Of the states.
        checkpoint: One of `CHECKPOINTS`.

    Raises:
        WorkerError: A side cannot run.
    """
    states = make_states(count, seed)
    notes = []
    settings = [*OURS, *(PEER if peer else ())]
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder = MINI if checkpoint == "mini" else make_checkpoint(checkpoint, scratch / "checkpoint")
        sides = [
            stack.enter_context(Side(setting.name, sys.executable if setting.ours else str(peer), setting.predict, setting.load))
            for setting in settings
        ]
        if peer is None:
            notes.append(NO_PEER)
        # The peer goes first: it is the one that may not be set up.
        for index, side in reversed(list(enumerate(sides))):
            if settings[index].ours:
                side.load(folder)
            elif load_or_pad(side, folder, scratch / str(index)) and PADDED not in notes:
                notes.append(PADDED)
        take_turns(sides, WARM_UPS, states[: max(1, count // 8)])
        kinds = sorted({"float32", *(side.about["precision"] for side, setting in zip(sides, settings, strict=True) if setting.ours)})
        ceilings = dict.fromkeys(kinds, 0.0)
        turns = []
        for number in range(rounds):
            turns += take_turns(sides, 1, states, turned=bool(number % 2))
            # Between the rounds, so that it is the ceiling of the very same minutes.
            ceilings = {kind: max(rate, matmul_rate(_CEILING_SECONDS, kind)) for kind, rate in ceilings.items()}
        counted = matrices(folder)
    told = [(setting, side.about) for setting, side in zip(settings, sides, strict=True)]
    return summarize(told, turns, ceilings, counted, checkpoint, seed, notes)


def take_turns(sides: Sequence[Side], rounds: int, states: Sequence[str], turned: bool = False) -> list[list[Run]]:
    """Runs the sides one after the other, the order turned round each time.

    Args:
        sides: The sides.
        rounds: How often.
        states: What about.
        turned: Whether the first round begins with the last side.

    Returns:
        For each round, the runs in the order of ``sides``.
    """
    turns = []
    for number in range(rounds):
        order = list(range(len(sides)))[:: -1 if (number + turned) % 2 else 1]
        runs = {index: sides[index].predict(states, QUESTIONS) for index in order}
        turns.append([runs[index] for index in range(len(sides))])
    return turns


if __name__ == "__main__":
    sys.exit(main())
