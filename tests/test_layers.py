"""The layers: what imports what, what importing costs, and the public names and signatures of the API reference."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import laya
import pipelines
from laya import hooks

ROOT = Path(__file__).parent.parent
PACKAGES = ("laya", "cluster", "pipelines")
MODULES = sorted(path.relative_to(ROOT).as_posix() for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def imports_of(module: str) -> Iterator[str]:
    """Top-level names that a module imports, anywhere in it."""
    for node in ast.walk(ast.parse((ROOT / module).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield module.partition("/")[0] if node.level else (node.module or "").partition(".")[0]


class TestImportsPointDown:
    FORBIDDEN: dict[str, set[str]] = {  # noqa: RUF012 read only
        "laya": {"cluster", "pipelines", "ray", "training", "benchmarks", "tests"},
        "cluster": {"pipelines", "training", "benchmarks", "tests"},
        "pipelines": {"training", "benchmarks", "tests"},
    }

    def test_the_walk_sees_what_is_there(self) -> None:
        assert "laya/hooks/call.py" in MODULES
        assert {"threading", "laya"} <= set(imports_of("laya/router.py"))

    @pytest.mark.parametrize("module", MODULES)
    def test_never_up(self, module: str) -> None:
        assert set(imports_of(module)) & self.FORBIDDEN[module.partition("/")[0]] == set()


class TestSize:
    @pytest.mark.parametrize("module", MODULES)
    def test_modules_stay_small(self, module: str) -> None:
        assert len((ROOT / module).read_text(encoding="utf-8").splitlines()) < 350

    @pytest.mark.parametrize("package", PACKAGES)
    def test_each_package_is_typed(self, package: str) -> None:
        assert (ROOT / package / "py.typed").is_file()


@pytest.mark.parametrize(
    "statement",
    [
        "import laya",
        "import laya.hooks",
        "from laya import hooks, PredictContext, PredictHook, Hook, BaseHook, AsyncHook",
        "dir(__import__('laya'))",
    ],
)
def test_importing_brings_nothing_heavy(statement: str) -> None:
    script = f"import sys\n{statement}\nprint(sorted({{'torch', 'transformers', 'onnxruntime', 'ray'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]", done.stdout


def rank(name: str) -> tuple[int, str]:
    """Constants, then classes, then functions, each by the alphabet: the order that the linter keeps."""
    return (0 if name.isupper() else 1 if name[0].isupper() else 2, name)


class TestNames:
    @pytest.mark.parametrize("package", [laya, hooks, pipelines], ids=["laya", "laya.hooks", "pipelines"])
    def test_each_public_name_exists_and_they_are_sorted(self, package: Any) -> None:
        assert package.__all__ == sorted(set(package.__all__), key=rank)
        for name in package.__all__:
            assert getattr(package, name) is not None
        assert set(package.__all__) <= set(dir(package))

    def test_the_common_ones_of_the_reference_are_in_laya(self) -> None:
        assert {"Agent", "AsyncHook", "BaseHook", "Hook", "PredictContext", "PredictHook", "Router", "load"} <= set(laya.__all__)

    def test_the_whole_surface_is_in_laya_hooks(self) -> None:
        assert {
            *["HOOK_EVENTS", "AsyncHook", "BaseHook", "Hook", "HookRegistry", "PredictContext", "PredictHook"],
            *["add_default_hook", "aggregate_usage", "clear_default_hooks", "compose_hooks", "default_hooks", "dispatch"],
            *["normalise_hooks", "run_coroutine_sync", "set_default_hooks"],
        } <= set(hooks.__all__)

    def test_both_doors_give_the_same_objects(self) -> None:
        for name in set(laya.__all__) & set(hooks.__all__):
            assert getattr(laya, name) is getattr(hooks, name)

    def test_the_job_and_its_module_have_one_name(self) -> None:
        from pipelines.score import score

        assert pipelines.score is score

    def test_a_name_that_is_not_there(self) -> None:
        with pytest.raises(AttributeError, match="nonesuch"):
            laya.nonesuch  # noqa: B018 the look-up is what is tested

    def test_every_runtime_is_a_registry(self) -> None:
        assert issubclass(laya.Agent, hooks.HookRegistry)
        assert issubclass(laya.Router, hooks.HookRegistry)


AGENT = """model_id_or_path="convaiinnovations/laya", device=None, token=None, subfolder=None, fast=False, compile=False,
    hooks=None, on_predict_start=None, on_predict_end=None, hooks_raise=True, hooks_concurrent=True, hooks_timeout=None"""

SYSTEM_ONE = """state, questions, hooks=None, on_predict_start=None, on_predict_end=None, hooks_raise=None,
    hooks_timeout=None, max_len=None, head_max_len=None"""

ROUTED = """state, questions, model=None, task=None, lang=None, lang_guess=None, hooks=None, on_predict_start=None, on_predict_end=None,
    hooks_raise=None, hooks_timeout=None, max_len=None, head_max_len=None"""

# Written as the reference writes them; an alias has the signature of what it stands for.
SIGNATURES: list[tuple[Callable[..., Any], str]] = [
    (laya.Agent, AGENT),
    (laya.load, AGENT),
    (
        laya.Agent.predict_batch,
        """states, questions, batch_size=None, hooks=None, on_predict_start=None, on_predict_end=None, hooks_raise=None,
        hooks_timeout=None, max_len=None, head_max_len=None, sort_by_length=False""",
    ),
    (laya.Agent.system_one, SYSTEM_ONE),
    (laya.Agent.predict, SYSTEM_ONE),
    (
        laya.Agent.predict_long,
        """state, questions, window=None, stride=None, aggregate="auto", batch_size=None, lang=None,
        hooks=None, on_predict_start=None, on_predict_end=None, hooks_raise=None, hooks_timeout=None""",
    ),
    (
        laya.Router,
        """models=None, device=None, token=None, max_loaded=2, default="english", auto_task_detection=False, standalone_repos=False,
        preload=False, lang_guess=None, hooks=None, on_predict_start=None, on_predict_end=None, hooks_raise=True, hooks_concurrent=True""",
    ),
    (laya.Router.route, "state, questions=None, model=None, task=None, lang=None, lang_guess=None, hooks=None, hooks_raise=None"),
    (laya.Router.predict, ROUTED),
    (laya.Router.system_one, ROUTED),
    (laya.Router.load, "name"),
    (laya.Router.preload, "names=None"),
    (laya.Router.unload, "name=None"),
    (laya.Router.attach, "name, agent"),
    (hooks.AsyncHook, "hook, loop=None"),
    (hooks.PredictContext.skip, "results"),
    (hooks.HookRegistry.add_hook, "hook"),
    (hooks.HookRegistry.remove_hook, "hook"),
    (hooks.HookRegistry.hooks_installed, "*hooks"),
    (hooks.set_default_hooks, "hooks=None, on_predict_start=None, on_predict_end=None"),
    (hooks.add_default_hook, "hook"),
    (hooks.clear_default_hooks, ""),
    (hooks.default_hooks, ""),
    (hooks.normalise_hooks, "hooks=None, on_predict_start=None, on_predict_end=None"),
    (hooks.dispatch, "hooks, event, ctx, *, raise_errors=True, lock=None, timeout=None"),
    (hooks.run_coroutine_sync, "coro, loop=None"),
    (hooks.aggregate_usage, "results"),
]


@pytest.mark.parametrize(("function", "written"), SIGNATURES, ids=[function.__qualname__ for function, _ in SIGNATURES])
def test_signatures_are_those_of_the_reference(function: Callable[..., Any], written: str) -> None:
    """Names, order, kinds and defaults; what else there is comes after them and by keyword alone."""
    wanted = list(inspect.signature(eval(f"lambda {' '.join(written.split())}: None")).parameters.values())
    found = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in inspect.signature(function).parameters.values()]
    if found and found[0].name == "self":
        found = found[1:]
    assert found[: len(wanted)] == wanted
    for extra in found[len(wanted) :]:
        assert extra.kind in (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD)
        assert extra.default is not inspect.Parameter.empty or extra.kind is inspect.Parameter.VAR_KEYWORD
