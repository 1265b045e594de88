"""Evaluate a checkpoint on the held-out sets: `python -m training.evaluate --data DIR`."""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Mapping, Sequence, Set
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from laya.calibration import Temperatures
from laya.checkpoint import build_model, open_checkpoint
from laya.names import find_source
from laya.network.model import DecisionModel
from laya.tokenizer import Tokenizer
from training.command_line import HelpFormatter
from training.examples import HEAD_MAX_LEN, MAX_LEN, encode_rows
from training.fetch import lists_folder
from training.held_out import hand_written_sets, held_out_sets
from training.intents import load_intents
from training.measures import Measures, measure
from training.packages import load_packages
from training.predict import predict
from training.rows import Row

SETS_SEED = 99
PRECISIONS = {"bf16": torch.bfloat16, "fp32": torch.float32}


@dataclass(frozen=True)
class SetReport:
    """One evaluation set: with the checkpoint's temperatures, and the calibration error without them."""

    measures: Measures
    ece_before: float


@dataclass(frozen=True)
class Evaluator:
    """A checkpoint that is ready to answer rows."""

    model: DecisionModel
    tokenizer: Tokenizer
    temperatures: Temperatures
    max_len: int
    head_max_len: int
    dtype: torch.dtype = torch.bfloat16

    @classmethod
    def open(cls, name: str, precision: str = "bf16") -> Evaluator:
        """Opens a checkpoint as the library does.

        Args:
            name: A folder, or a name that laya knows, such as mini.
            precision: Bf16 (as it was trained) or fp32.
        """
        checkpoint = open_checkpoint(find_source(name))
        return cls(
            build_model(checkpoint),
            Tokenizer(checkpoint.tokenizer_folder),
            Temperatures.from_config(checkpoint.config, name),
            checkpoint.budget("max_len", MAX_LEN),
            checkpoint.budget("head_max_len", HEAD_MAX_LEN),
            PRECISIONS[precision],
        )

    def evaluate(self, rows: Sequence[Row]) -> SetReport:
        """Answers rows and measures the answers."""
        examples = encode_rows(rows, self.tokenizer, self.max_len, self.head_max_len)
        logits = predict(self.model, examples, self.tokenizer.pad_id, self.dtype)
        targets = torch.tensor([example.target for example in examples])
        temperatures = torch.tensor([self.temperatures.of(example.question) for example in examples])
        before = measure(logits, targets, torch.ones(len(examples)))
        return SetReport(measure(logits, targets, temperatures), before.ece)


def report(evaluator: Evaluator, sets: Mapping[str, Sequence[Row]]) -> dict[str, SetReport]:
    """Evaluates sets, printing one line for each as soon as it is done."""
    results: dict[str, SetReport] = {}
    for name, rows in sets.items():
        results[name] = evaluator.evaluate(rows)
        print(line(name, results[name], {row.question["type"] for row in rows}), flush=True)
    return results


def line(name: str, result: SetReport, types: Set[str]) -> str:
    """Returns one line of the report; a set of nothing but scores has a mean error, one of nothing but noul questions an AUC."""
    measures = result.measures
    text = (
        f"{name:42s} n {measures.n:4d}  accuracy {measures.accuracy:.3f} (chance {measures.chance:.2f}, majority {measures.majority:.2f})"
        f"  ECE {result.ece_before:.3f} -> {measures.ece:.3f}  Brier {measures.brier:.3f}"
    )
    if types == {"score"}:
        text += f"  MAE {measures.mean_error:.2f}"
    if types == {"noul"} and measures.auc is not None:
        text += f"  AUC {measures.auc:.2f}"
    return text


def write_results(path: Path, results: Mapping[str, SetReport], **about: object) -> None:
    """Writes the results, and what is given about them, as JSON."""
    content = {"results": {name: asdict(result) for name, result in results.items()}, **about}
    path.write_text(json.dumps(content, indent=1, default=str) + "\n", encoding="utf-8")


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m training.evaluate",
        description=(
            "Evaluate a checkpoint on packages, sentences, intents and label wordings that training never saw.\n"
            "A package is in the test split by its name, whatever the seed; --seed decides which packages are read at all."
        ),
        formatter_class=HelpFormatter,
    )
    parser.add_argument("--data", type=Path, required=True, help="folder that `python -m training.fetch` filled")
    parser.add_argument("--checkpoint", default="mini", help="a folder, or a name that laya knows")
    parser.add_argument("--rows", type=int, default=600, help="rows of a set; some Debian sets have half as many")
    parser.add_argument("--seed", type=int, default=7, help="seed of the training run")
    parser.add_argument("--suite", default="bookworm", help="Debian release of the lists")
    parser.add_argument("--precision", choices=list(PRECISIONS), default="bf16", help="type of the matrix products")
    parser.add_argument("--hand-written", type=Path, action="append", default=[], help="JSON file with answered messages; may be repeated")
    parser.add_argument("--json", type=Path, help="write the results to this file too")
    parser.add_argument("--threads", type=int, help="threads of torch; all cores when not given")
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    evaluator = Evaluator.open(arguments.checkpoint, arguments.precision)
    packages = load_packages(lists_folder(arguments.data), random.Random(arguments.seed), arguments.suite)
    sets = held_out_sets(load_intents(), packages, random.Random(SETS_SEED), arguments.rows)
    for path in arguments.hand_written:
        sets.update(hand_written_sets(path))
    start = time.monotonic()
    results = report(evaluator, sets)
    seconds = time.monotonic() - start
    rows = sum(len(part) for part in sets.values())
    print(f"{rows} rows in {seconds:.1f} s: {rows / seconds:.0f} rows/s")
    if arguments.json:
        write_results(arguments.json, results, checkpoint=arguments.checkpoint)


if __name__ == "__main__":
    main()
