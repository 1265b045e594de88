"""Train the bundled checkpoint: `python -m training.train --data DIR --out CHECKPOINT`."""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch

from laya.fitting import CalibrationRecord, fit_temperatures
from laya.questions import parse_questions
from laya.states import serialize
from laya.tokenizer import Tokenizer
from training import vocabulary
from training.act_head import train_act_head
from training.command_line import HelpFormatter
from training.debian import debian_rows, first_words
from training.evaluate import SETS_SEED, Evaluator, report, write_results
from training.examples import HEAD_MAX_LEN, MAX_LEN, Example, encode_rows
from training.fetch import lists_folder, minilm_folder
from training.fit import FitOptions, fit
from training.held_out import held_out_sets
from training.initial import build_initial_model
from training.intents import Intent, load_intents
from training.losses import LOSSES
from training.packages import Package, load_packages
from training.phrases import read_words
from training.predict import predict
from training.rows import Row
from training.save import save_model, save_tokenizer
from training.templates import Family, template_rows

TEMPLATE_SHARE = 0.6
CALIBRATION_SHARES = {"mix": 22, "unseen intents": 5, "debian": 15}
FEWEST_CALIBRATION_ROWS = 150
"""An option bucket with fewer rows gets no temperature of its own."""
VOCABULARY_STATES = 20_000
VOCABULARY_OPTIONS = 3
VOCABULARY_WORDS = 90
ALWAYS_READ = "choice question: score question: noul question: level 0: no, the statement does not hold yes, the statement holds false true"
ACT_COSTS = {"defer": 0.1}

DESCRIPTION = """\
Train a checkpoint of the size of the bundled `mini`, on a CPU, in about half an hour on two cores with bf16 units.

The steps: read the Debian packages and write the rows; cut MiniLM's vocabulary; start from its lower layers; train by the
clock; fit the temperatures and the act head on the calibration split; save; evaluate the saved files on the held-out sets.
"""
EPILOG = """\
examples:
  python -m training.fetch --into DATA                                  # once
  python -m training.train --data DATA --out CHECKPOINT                 # the bundled checkpoint's settings
  python -m training.train --data DATA --out CHECKPOINT --cold-head     # the first thing to try for a better one
  python -m training.train --data DATA --out TRY --minutes 0.3 --rows 2000 --calibration-rows 300 --evaluation-rows 30   # a trial

The schedule runs by the clock, so a second run is close to the first, not equal to it.
"""


def vocabulary_texts(templates: Sequence[Row], packages: Sequence[Package]) -> tuple[list[str], list[str]]:
    """Returns the texts whose pieces the vocabulary must keep, and those whose frequent pieces it should."""
    questions = parse_questions({number: row.question for number, row in enumerate(templates)})
    own = [serialize(row.state) for row in templates[:VOCABULARY_STATES]]
    own += [text for question in questions for text in question.option_texts[:VOCABULARY_OPTIONS]]
    other = [first_words(f"{package.synopsis} {package.body}", VOCABULARY_WORDS) for package in packages]
    return [*own, ALWAYS_READ], other


def calibration_rows(intents: Sequence[Intent], packages: Sequence[Package], rng: random.Random, count: int) -> list[Row]:
    """Writes the rows of the calibration split: unseen sentences, some about unseen intents, and unseen packages."""
    mix, unseen, debian = (count * part // sum(CALIBRATION_SHARES.values()) for part in CALIBRATION_SHARES.values())
    return [
        *template_rows(intents, rng, mix, "calib"),
        *template_rows(intents, rng, unseen, "calib", Family("intent", unseen_intents=True)),
        *debian_rows(packages, rng, debian),
    ]


def train(arguments: argparse.Namespace) -> None:
    """Makes a checkpoint from the parsed command line."""
    start = time.monotonic()
    torch.manual_seed(arguments.seed)
    rng = random.Random(arguments.seed)
    minilm = minilm_folder(arguments.data)
    intents, packages = load_intents(), load_packages(lists_folder(arguments.data), rng, arguments.suite)
    templates = template_rows(intents, rng, int(arguments.rows * TEMPLATE_SHARE), "train")
    rows = templates + debian_rows(packages["train"], rng, arguments.rows - len(templates))
    print(f"{len(rows)} rows from {sum(map(len, packages.values()))} packages and {len(intents)} intents", flush=True)

    own, other = vocabulary_texts(templates, packages["train"])
    whole = json.loads((minilm / "tokenizer.json").read_text(encoding="utf-8"))
    pruned = vocabulary.prune(whole, own, other, read_words(), arguments.vocabulary)
    vocabulary.check(pruned.tokenizer, len(pruned.old_ids))
    tokenizer = Tokenizer(save_tokenizer(arguments.out, pruned.tokenizer))
    examples = encode_rows(rows, tokenizer)
    print(f"{len(pruned.old_ids)} pieces, {_describe_lengths(examples)}; {time.monotonic() - start:.0f} s so far", flush=True)

    model, encoder_config = build_initial_model(
        minilm, pruned.old_ids, arguments.layers, arguments.head_layers, len(ACT_COSTS) + 1, warm_head=not arguments.cold_head
    )
    print(f"{sum(parameter.numel() for parameter in model.parameters()) / 1e6:.2f} M parameters", flush=True)
    options = FitOptions(arguments.minutes * 60, arguments.learning_rate, arguments.tokens, arguments.loss)
    fitted = fit(model, examples, tokenizer.pad_id, rng, options)
    print(f"trained {fitted.steps} steps on {fitted.rows} rows in {fitted.seconds:.0f} s, loss {fitted.loss:.3f}", flush=True)

    unseen = calibration_rows(intents, packages["calib"], random.Random(arguments.seed + 1), arguments.calibration_rows)
    calibration = encode_rows(unseen, tokenizer)
    logits = predict(model, calibration, tokenizer.pad_id)
    records = [
        CalibrationRecord(example.question.type, row[: example.question.n], example.target)
        for example, row in zip(calibration, logits.tolist(), strict=True)
    ]
    temperatures = fit_temperatures(records, min_records=FEWEST_CALIBRATION_ROWS).to_config()
    print("temperatures", temperatures)
    act = train_act_head(model, calibration, tokenizer.pad_id)
    print(f"act head: loss {act.loss:.3f}, mean probability {act.mean_probability:.3f}, right {act.right:.3f}", flush=True)

    config = {
        "encoder": f"all-MiniLM-L6-v2 ({arguments.layers} of 6 layers, pruned vocabulary)",
        "head_layers": arguments.head_layers,
        "act_costs": ACT_COSTS,
        "max_len": MAX_LEN,
        "head_max_len": HEAD_MAX_LEN,
        **temperatures,
        "amp_dtype": "bf16",
        "option_layout": "sequential",
    }
    weights = save_model(arguments.out, model, config, encoder_config)
    print(f"saved {arguments.out}: {weights.stat().st_size / 1e6:.2f} MB of weights", flush=True)
    if arguments.evaluation_rows:
        sets = held_out_sets(intents, packages, random.Random(SETS_SEED), arguments.evaluation_rows)
        results = report(Evaluator.open(str(arguments.out)), sets)
        about = arguments.out.with_name(f"{arguments.out.name}.evaluation.json")
        write_results(about, results, config=config, arguments=vars(arguments), fit=asdict(fitted))
    print(f"done in {time.monotonic() - start:.0f} s")


def _describe_lengths(examples: Sequence[Example]) -> str:
    lengths = [len(example) for example in examples]
    return f"{sum(lengths) / len(lengths):.0f} tokens a row, at most {max(lengths)}"


def build_parser() -> argparse.ArgumentParser:
    """Returns the parser of the command line."""
    parser = argparse.ArgumentParser(prog="python -m training.train", description=DESCRIPTION, epilog=EPILOG, formatter_class=HelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder that `python -m training.fetch` filled")
    parser.add_argument("--out", type=Path, required=True, help="folder of the new checkpoint; results go to OUT.evaluation.json")
    parser.add_argument("--minutes", type=float, default=23, help="time of the training loop itself")
    parser.add_argument("--rows", type=int, default=140_000, help="training rows: three fifths templates, the rest Debian")
    parser.add_argument("--calibration-rows", type=int, default=4200, help="rows that fit the temperatures and the act head")
    parser.add_argument("--evaluation-rows", type=int, default=600, help="rows of a held-out set; 0 leaves the evaluation out")
    parser.add_argument("--vocabulary", type=int, default=7850, help="pieces to keep of MiniLM's 30,522; 8,000 are 3 M parameters")
    parser.add_argument("--layers", type=int, default=4, help="encoder layers to keep of MiniLM's six")
    parser.add_argument("--head-layers", type=int, default=1, help="layers of the decision head")
    parser.add_argument("--cold-head", action="store_true", help="start the head at random, not from the layers that are cut off")
    parser.add_argument("--loss", choices=list(LOSSES), default="proper", help="proper: log + half spherical, + ranked for scores")
    parser.add_argument("--learning-rate", type=float, default=2e-4, help="peak rate of the encoder; the head has twice as much")
    parser.add_argument("--tokens", type=int, default=4608, help="padded tokens of a batch")
    parser.add_argument("--seed", type=int, default=7, help="seed of the rows, of their order and of the weights")
    parser.add_argument("--suite", default="bookworm", help="Debian release of the lists")
    parser.add_argument("--threads", type=int, help="threads of torch; all cores when not given")
    return parser


def main() -> None:
    """Runs the command line."""
    arguments = build_parser().parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    train(arguments)


if __name__ == "__main__":
    main()
