"""Arrow values as what a model can read of them: plain Python values that JSON can hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.types as pat

Convert = Callable[[Any], Any]

_PER_SECOND: Mapping[str, int] = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_EPOCH = datetime(1970, 1, 1)


def python_values(array: pa.Array[Any]) -> list[Any]:
    """The values of a column.

    Lists and structs become lists and dicts, maps become dicts, decimals, UUIDs and times (ISO 8601) become text, and binary becomes
    the UTF-8 text that it holds; binary that holds none stays bytes.
    """
    stored: Any = array.storage if isinstance(array, pa.ExtensionArray) else array
    counted = _counted(stored.type)
    is_uuid = stored is not array and array.type.extension_name == "arrow.uuid"
    convert = _uuid if is_uuid else _converter(stored.type)
    values: list[Any] = (stored if counted == stored.type else stored.cast(counted)).to_pylist()
    return values if convert is None else [None if value is None else convert(value) for value in values]


def _is_list(kind: Any) -> bool:
    return bool(pat.is_list(kind) or pat.is_large_list(kind) or pat.is_fixed_size_list(kind))


def _counted(kind: Any) -> Any:
    """The same type with times as counts: Python's own times have no nanoseconds and end with the year 9999."""
    if pat.is_date32(kind) or pat.is_time32(kind):
        return pa.int32()
    if pat.is_temporal(kind) and not pat.is_interval(kind):
        return pa.int64()
    if pat.is_struct(kind):
        return pa.struct([field.with_type(_counted(field.type)) for field in kind])
    if pat.is_map(kind):
        return pa.map_(kind.key_field.with_type(_counted(kind.key_type)), kind.item_field.with_type(_counted(kind.item_type)))
    if pat.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(_counted(kind.value_type)), kind.list_size)
    if pat.is_list(kind):
        return pa.list_(kind.value_field.with_type(_counted(kind.value_type)))
    if pat.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(_counted(kind.value_type)))
    if pat.is_dictionary(kind):
        return _counted(kind.value_type)
    return kind


def _converter(kind: Any) -> Convert | None:
    """What turns a value of the counted type into what a model can read; None where it is so already."""
    if pat.is_dictionary(kind):
        return _converter(kind.value_type)
    if pat.is_decimal(kind):
        return lambda value: format(value, "f")
    if pat.is_binary(kind) or pat.is_large_binary(kind) or pat.is_fixed_size_binary(kind) or pat.is_binary_view(kind):
        return _text_or_bytes
    if pat.is_timestamp(kind):
        zone = _zone(kind.tz)
        return lambda value: _timestamp(value, kind.unit, zone)
    if pat.is_date(kind):
        return _date32 if pat.is_date32(kind) else _date64
    if pat.is_time(kind):
        return lambda value: _timestamp(value, kind.unit, None).partition("T")[2]
    if pat.is_duration(kind):
        return lambda value: _duration(value, kind.unit)
    return _nested(kind)


def _nested(kind: Any) -> Convert | None:
    if pat.is_struct(kind):
        parts = {field.name: convert for field in kind if (convert := _converter(field.type)) is not None}
        return (lambda value: _convert_parts(value, parts)) if parts else None
    if pat.is_map(kind):
        key, item = _converter(kind.key_type), _converter(kind.item_type)
        return lambda pairs: {_apply(key, k): _apply(item, v) for k, v in pairs}
    if _is_list(kind) and (convert := _converter(kind.value_type)) is not None:
        return lambda value: [_apply(convert, part) for part in value]
    return None


def _apply(convert: Convert | None, value: Any) -> Any:
    return value if convert is None or value is None else convert(value)


def _convert_parts(value: dict[str, Any], parts: Mapping[str, Convert]) -> dict[str, Any]:
    return {name: _apply(parts.get(name), part) for name, part in value.items()}


def _text_or_bytes(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def _zone(name: str | None) -> tzinfo | None:
    moment: Any = pa.scalar(0, pa.timestamp("s", tz=name)).as_py()
    zone: tzinfo | None = moment.tzinfo
    return zone


def _uuid(value: bytes) -> str:
    return str(UUID(bytes=value))


def _timestamp(value: int, unit: str, zone: tzinfo | None) -> str:
    seconds, rest = divmod(value, _PER_SECOND[unit])
    try:
        moment = _EPOCH + timedelta(seconds=seconds)
        if zone is not None:
            moment = moment.replace(tzinfo=UTC).astimezone(zone)
    except OverflowError:
        return f"{value} {unit} after 1970-01-01"
    text = moment.isoformat()
    return text[:19] + _fraction(rest, unit) + text[19:]


def _fraction(rest: int, unit: str) -> str:
    if not rest:
        return ""
    nanoseconds = f".{rest * (10**9 // _PER_SECOND[unit]):09}"
    return nanoseconds.removesuffix("000")


def _date32(value: int) -> str:
    return _timestamp(value * 86_400, "s", None).partition("T")[0]


def _date64(value: int) -> str:
    return _timestamp(value, "ms", None).partition("T")[0]


def _duration(value: int, unit: str) -> str:
    seconds, rest = divmod(abs(value), _PER_SECOND[unit])
    return f"{'-' if value < 0 else ''}PT{seconds}{_fraction(rest, unit)}S"
