"""Hooks by import path: how a job brings its own code into every process that needs it."""

from __future__ import annotations

import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

from cluster.hosting import resolve_hooks
from laya.hooks.protocol import normalise_hooks
from pipelines.errors import InputError, first_line


@lru_cache(maxsize=32)
def hooks_of(paths: tuple[str, ...]) -> tuple[Any, ...]:
    """The hooks that import paths name, one object a process.

    Args:
        paths: "package.module:Object" each; a class is made an object. Modules of the working directory are found too.

    Raises:
        InputError: One names nothing that can be imported, or no hook.
    """
    here = str(Path.cwd())
    if paths and here not in sys.path:
        sys.path.append(here)
    try:
        return tuple(normalise_hooks(resolve_hooks(paths)))
    except (ValueError, TypeError) as error:
        raise InputError(f"--hooks: {error}") from error
    except Exception as error:  # whatever their own code raises while it is imported or made
        raise InputError(f"--hooks {', '.join(paths)}: {type(error).__name__}: {first_line(error)}") from error


def code_of(paths: tuple[str, ...]) -> list[Path]:
    """The source files of the modules that import paths name; of what has none, such as a compiled module, nothing."""
    hooks_of(paths)  # which imports them
    files = (getattr(sys.modules.get(path.partition(":")[0]), "__file__", None) for path in paths)
    return [Path(file) for file in files if file is not None]
