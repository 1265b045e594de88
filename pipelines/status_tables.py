"""The state of routers, and how it is drawn. Nothing is fetched here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

_LEFT = frozenset({"node", "address", "state", "checkpoint", "pinned"})
_ONLY_WIDE = frozenset({"pid", "weights"})
_WIDE = 96
"""Columns of a terminal from which on everything is shown."""
_REPLICA_COLUMNS, _WIDE_REPLICA_COLUMNS, _CHECKPOINT_COLUMNS = 64, 80, 53
"""What the tables of replicas and of checkpoints need beside the names of checkpoints."""
_NAME_CHARS, _NODE_CHARS = (12, 40), 6
_STYLES = {"ready": "green", "alive": "green", "loading": "yellow", "draining": "magenta", "dead": "red"}


class NodeStatus(TypedDict):
    """A node of the cluster, as a router sees it: alive, draining or dead."""

    id: str
    address: str
    state: str


class ReplicaStatus(TypedDict):
    """A replica: loading, ready or draining. Its report is what its agent last said of itself."""

    id: int
    checkpoint: str
    state: str
    ready_s: float | None
    bytes: int
    node: str | None
    pid: int | None
    tokens_per_s: float
    report: dict[str, Any] | None


class RouterStatus(TypedDict):
    """What a router actor answers. ``slots`` are those that were asked for, ``slots_open`` those that can be used now."""

    router: str
    slots: int
    slots_open: int
    capacity_bytes: int | None
    resident_bytes: int
    loads: int
    evictions: int
    restarted: bool
    calls: int
    waiting: dict[str, int]
    pinned: list[str]
    wanted: dict[str, int]
    nodes: list[NodeStatus]
    replicas: list[ReplicaStatus]


@dataclass(frozen=True, slots=True)
class RouterAnswer:
    """What one router said.

    Attributes:
        router: Name of the router actor.
        status: Its status; None where it gave none.
        problem: Why it gave none.
    """

    router: str
    status: RouterStatus | None = None
    problem: str | None = None


def tables(answers: Sequence[RouterAnswer]) -> RenderableType:
    """Draws what routers said. What has no room on a narrow terminal is left out: `--json` has everything."""
    if not answers:
        return Text("no router runs here; a ClusterRouter or `laya score --address` starts one")
    parts: list[RenderableType] = []
    for answer in answers:
        if parts:
            parts.append(Text())
        if answer.status is None:
            parts.append(Text.assemble((f"router {_printable(answer.router)}", "bold"), "  ", (_printable(answer.problem or ""), "red")))
        else:
            parts.extend(_router_tables(answer.router, answer.status))
    return Group(*parts)


def _router_tables(name: str, status: RouterStatus) -> list[RenderableType]:
    limit = f" of {_size(status['capacity_bytes'])}" if status["capacity_bytes"] is not None else ""
    slots = f"slots {len(status['replicas'])} used, {status['slots_open']} open, {status['slots']} configured"
    counts = ", ".join(f"{key} {_count(status[key])}" for key in ("calls", "loads", "evictions"))
    parts: list[RenderableType] = [
        Text.assemble((f"router {_printable(name)}", "bold"), f"  {slots}", ("  restarted" if status["restarted"] else "", "yellow")),
        Text(f"weights {_size(status['resident_bytes'])}{limit}; {counts}; {_count(sum(status['waiting'].values()))} waiting"),
    ]
    if status["nodes"]:
        parts += [Text(), _nodes_table(status)]
    if names := sorted({*status["waiting"], *status["pinned"], *status["wanted"], *(held["checkpoint"] for held in status["replicas"])}):
        parts += [Text(), _ByWidth(lambda width: _checkpoints_table(status, names, width))]
    if status["replicas"]:
        parts += [Text(), _ByWidth(lambda width: _replicas_table(status["replicas"], width))]
    return parts


@dataclass(frozen=True, slots=True)
class _ByWidth:
    """A table that is drawn for the width there is."""

    draw: Callable[[int], Table]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self.draw(options.max_width)


def _table(*columns: tuple[str, str]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1), collapse_padding=True, header_style="bold", footer_style="bold")
    for header, footer in columns:
        left = header in _LEFT
        table.add_column(header, Text(footer), justify="left" if left else "right", vertical="bottom", no_wrap=True)
    return table


def _nodes_table(status: RouterStatus) -> Table:
    table = _table(("node", ""), ("address", ""), ("state", ""), ("replicas", ""))
    held = Counter(replica["node"] for replica in status["replicas"])
    for node in status["nodes"]:
        table.add_row(Text(node["id"][:_NODE_CHARS]), Text(node["address"]), _state(node["state"]), Text(str(held[node["id"]])))
    return table


def _checkpoints_table(status: RouterStatus, names: Sequence[str], width: int) -> Table:
    replicas = status["replicas"]
    states = ("ready", "loading", "draining")
    table = _table(*((header, "") for header in ("checkpoint", "wanted", *states, "waiting", "weights", "pinned")))
    held = Counter((replica["checkpoint"], replica["state"]) for replica in replicas)
    for name in names:
        weights = sum(replica["bytes"] for replica in replicas if replica["checkpoint"] == name)
        counts = [status["wanted"].get(name, 0), *(held[name, state] for state in states), status["waiting"].get(name, 0)]
        cells = [
            _clipped(name, width - _CHECKPOINT_COLUMNS),
            *map(_count, counts),
            _size(weights),
            "pinned" if name in status["pinned"] else "",
        ]
        table.add_row(*map(Text, cells))
    return table


def _replicas_table(replicas: Sequence[ReplicaStatus], width: int) -> Table:
    wide = width >= _WIDE
    name_columns = width - (_WIDE_REPLICA_COLUMNS if wide else _REPLICA_COLUMNS)
    reports = [replica["report"] or {} for replica in replicas]
    total = {key: sum(report.get(key, 0) for report in reports) for key in ("in_flight", "waiting_rows", "requests", "rss_bytes")}
    columns: list[tuple[str, str, Callable[[ReplicaStatus], Text]]] = [
        ("id", "", lambda replica: Text(str(replica["id"]))),
        ("checkpoint", "total", lambda replica: Text(_clipped(replica["checkpoint"], name_columns))),
        ("state", "", lambda replica: _state(replica["state"])),
        ("node", "", lambda replica: Text((replica["node"] or "-")[:_NODE_CHARS])),
        ("pid", "", lambda replica: Text(str(replica["pid"] or "-"))),
        ("age", "", lambda replica: Text(_age(replica["ready_s"]))),
        ("in\nflight", _count(total["in_flight"]), lambda replica: _reported(replica, "in_flight", _count)),
        ("queue", _count(total["waiting_rows"]), lambda replica: _reported(replica, "waiting_rows", _count)),
        ("requests", _count(total["requests"]), lambda replica: _reported(replica, "requests", _count)),
        (
            "tokens/s",
            _count(sum(replica["tokens_per_s"] for replica in replicas)),
            lambda replica: Text(_count(replica["tokens_per_s"])),
        ),
        ("RSS", _size(total["rss_bytes"]), lambda replica: _reported(replica, "rss_bytes", _size)),
        ("weights", _size(sum(replica["bytes"] for replica in replicas)), lambda replica: Text(_size(replica["bytes"]))),
    ]
    shown = [column for column in columns if wide or column[0] not in _ONLY_WIDE]
    table = _table(*((header, footer) for header, footer, _ in shown))
    table.show_footer = len(replicas) > 1
    for replica in sorted(replicas, key=lambda replica: replica["id"]):
        table.add_row(*(cell(replica) for _, _, cell in shown))
    return table


def _reported(replica: ReplicaStatus, key: str, say: Callable[[Any], str]) -> Text:
    value = (replica["report"] or {}).get(key)
    return Text("-" if value is None else say(value))


def _state(state: str) -> Text:
    return Text(state, style=_STYLES.get(state, ""))


def _printable(name: str) -> str:
    return name if name.isprintable() else ascii(name)


def _clipped(name: str, chars: int) -> str:
    """The end of a long name, which is what tells folders apart."""
    least, most = _NAME_CHARS
    chars, name = min(most, max(least, chars)), _printable(name)
    return name if len(name) <= chars else f"...{name[3 - chars :]}"


def _scaled(value: float, units: Sequence[str]) -> str:
    """Three figures and a unit, each unit a thousand of the one before."""
    unit = 0
    while unit + 1 < len(units) and value >= 999.5:
        value /= 1000
        unit += 1
    return f"{value:.{1 if unit and value < 9.95 else 0}f}{units[unit]}"


def _count(value: float) -> str:
    return f"{value:,.0f}" if value < 99_999.5 else _scaled(value, ("", "k", "M", "G", "T"))


def _size(size_bytes: int) -> str:
    return _scaled(size_bytes, (" B", " kB", " MB", " GB", " TB"))


def _age(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    for unit, length_s in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= 2 * length_s:
            return f"{seconds / length_s:.0f}{unit}"
    return f"{seconds:.0f}s"
