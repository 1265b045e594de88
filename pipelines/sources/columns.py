"""The columns of the input: their names and the types that the output keeps them in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.types as pat

from pipelines.errors import InputError
from pipelines.sources.input_files import check_distinct

TEXT = 1
"""The bit of text in `Kinds`."""
_BOOL, _INT, _FLOAT, _BEYOND_INT64, _NO_FLOAT, _OTHER = (1 << bit for bit in range(1, 7))
_BITS: Mapping[type, int] = {str: TEXT, bool: _BOOL, float: _FLOAT, dict: _OTHER, list: _OTHER, type(None): 0}


@dataclass(frozen=True, slots=True)
class InputColumns:
    """The columns of the input, in order.

    Attributes:
        types: Name to the Arrow type of the output.
        as_json: Columns whose values have no type in common, or none that Arrow can hold exactly; they are kept as JSON text.
    """

    types: Mapping[str, pa.DataType]
    as_json: frozenset[str] = frozenset()

    @property
    def names(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(self.types)

    def kept(self, names: Sequence[str] | None) -> InputColumns:
        """Those of the names given, in the order of the input; None keeps all."""
        if names is None:
            return self
        types = {name: kind for name, kind in self.types.items() if name in names}
        return InputColumns(types, self.as_json & types.keys())


@dataclass(frozen=True, slots=True)
class Kinds:
    """What a part of the input says about its columns.

    Attributes:
        seen: Column to the kinds of values seen in it, as bits. (Text formats, and names of folders)
        schema: Column to type. (Parquet)
        path: The file that the schema is of.
    """

    seen: Mapping[str, int] = field(default_factory=dict)
    schema: Mapping[str, pa.DataType] | None = None
    path: str = ""


def note_kinds(seen: dict[str, int], row: Mapping[str, Any]) -> None:
    """Adds what one row says about its columns."""
    for name, value in row.items():
        bits = _BITS.get(type(value))
        if bits is None:
            bits = _int_bits(value)
        known = seen.get(name)
        if known is None:
            seen[name] = bits
        elif bits & ~known:
            seen[name] = known | bits


def decide_columns(parts: Iterable[Kinds]) -> InputColumns:
    """Decides the output type of every input column from what the parts of the input say, in their order.

    Parquet keeps the types of its files (a dictionary those of its values); every column of CSV and text, and every one that the names of
    folders give, is text, as it is written. A JSONL column is string, bool, int64 or float64 where all of its values are so and can be
    held exactly; else it is the JSON text of its values. A column without a value is string. Columns come in the order in which they are
    first seen, those of Parquet first.

    Raises:
        InputError: Two Parquet files have different columns or types, or a column of Parquet and of other files has different types.
    """
    merged = _merge(parts)
    types = {name: pa.string() if pat.is_null(kind) else kind for name, kind in (merged.schema or {}).items()}
    as_json = set()
    for name, bits in merged.seen.items():
        kind, is_json = _type(bits)
        known = types.setdefault(name, kind)
        if bits and (known != kind or (is_json and name in (merged.schema or {}))):
            raise InputError(
                f"column `{name}` is {known} in {merged.path} but {'mixed' if is_json else kind} in the text files or folder names; "
                "make them the same, or score them in separate runs"
            )
        if is_json:
            as_json.add(name)
    return InputColumns(types, frozenset(as_json))


def columns_of_schema(schema: pa.Schema) -> InputColumns:
    """The columns of Arrow data that is already in memory.

    Raises:
        InputError: Two columns have one name.
    """
    check_distinct("the data", tuple(schema.names))
    return InputColumns({name: pa.string() if pat.is_null(kind) else kind for name, kind in plain_types(schema).items()})


def plain_types(schema: pa.Schema) -> dict[str, pa.DataType]:
    """Column to type; a dictionary's is that of its values."""
    return {field.name: _value_type(field.type) for field in schema}


def _value_type(kind: Any) -> pa.DataType:
    value: pa.DataType = kind.value_type if pat.is_dictionary(kind) else kind
    return value


def _int_bits(value: int) -> int:
    if -(2**53) <= value <= 2**53:
        return _INT
    bits = _INT if -(2**63) <= value < 2**63 else _INT | _BEYOND_INT64
    try:
        return bits if int(float(value)) == value else bits | _NO_FLOAT
    except OverflowError:
        return bits | _NO_FLOAT


def _type(bits: int) -> tuple[pa.DataType, bool]:
    if bits in (0, TEXT):
        return pa.string(), False
    if bits == _BOOL:
        return pa.bool_(), False
    if not bits & ~(_INT | _NO_FLOAT):
        return pa.int64(), False
    if bits & _FLOAT and not bits & ~(_FLOAT | _INT | _BEYOND_INT64):
        return pa.float64(), False
    return pa.string(), True


def _merge(parts: Iterable[Kinds]) -> Kinds:
    seen: dict[str, int] = {}
    first = Kinds()
    for part in parts:
        for name, bits in part.seen.items():
            seen[name] = seen.get(name, 0) | bits
        if part.schema is not None:
            first = part if first.schema is None else Kinds(schema=_same(first, part), path=first.path)
    return Kinds(seen, first.schema, first.path)


def _same(first: Kinds, other: Kinds) -> dict[str, pa.DataType]:
    known, found = first.schema or {}, other.schema or {}
    if differing := known.keys() ^ found.keys():
        name = min(differing)
        has, lacks = (first.path, other.path) if name in known else (other.path, first.path)
        raise InputError(f"column `{name}` is in {has} but not in {lacks}; Parquet files of one run need the same columns")
    same = dict(known)
    for name, kind in known.items():
        # A column that holds nothing in one file is often written without a type there.
        if pat.is_null(kind):
            same[name] = found[name]
        elif kind != found[name] and not pat.is_null(found[name]):
            raise InputError(
                f"column `{name}` is {kind} in {first.path} but {found[name]} in {other.path}; Parquet files of one run need the same types"
            )
    return same
