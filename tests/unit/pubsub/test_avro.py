"""Avro messages: what fits, and that a hostile one costs little."""

from io import BytesIO
from typing import Any

import fastavro
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.pubsub.errors import SchemaMismatch
from penstock.pubsub.limits import MAX_AVRO_VALUES
from penstock.pubsub.schemas.avro import AvroDefinition

TREE: Any = {
    "type": "record",
    "name": "shop.Node",
    "fields": [
        {"name": "name", "type": "string"},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "other_kind", "type": "Kind"},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 3}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "weights", "type": {"type": "map", "values": "double"}},
        {"name": "raw", "type": ["null", "bytes", "long", "boolean", "float"]},
        {"name": "children", "type": {"type": "array", "items": "shop.Node"}},
    ],
}


def nodes(children: st.SearchStrategy[list[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {
            "name": st.text(max_size=5),
            "kind": st.sampled_from("AB"),
            "other_kind": st.sampled_from("AB"),
            "hash": st.binary(min_size=3, max_size=3),
            "day": st.dates(),
            "weights": st.dictionaries(st.text(max_size=3), st.floats(allow_nan=False), max_size=3),
            "raw": st.none() | st.binary(max_size=200) | st.integers(-(2**62), 2**62) | st.booleans(),
            "children": children,
        }
    )


trees = st.recursive(nodes(st.just([])), lambda inner: nodes(st.lists(inner, max_size=3)), max_leaves=5)


def binary(schema: Any, value: Any) -> bytes:
    sink = BytesIO()
    fastavro.schemaless_writer(sink, fastavro.parse_schema(schema), value)
    return sink.getvalue()


def definition(schema: Any) -> AvroDefinition:
    return AvroDefinition(msgspec.json.encode(schema).decode())


@given(trees)
def test_what_was_written_by_the_schema_fits_and_no_part_of_it_does(value: Any) -> None:
    data = binary(TREE, value)
    checked = definition(TREE)
    checked.check_binary(data)
    with pytest.raises(SchemaMismatch):
        checked.check_binary(data[:-1])
    with pytest.raises(SchemaMismatch):
        checked.check_binary(data + b"\0")


@given(st.binary(max_size=200))
def test_any_bytes_fit_or_are_refused(data: bytes) -> None:
    try:
        definition(TREE).check_binary(data)
    except SchemaMismatch:
        return
    fastavro.schemaless_reader(BytesIO(data), fastavro.parse_schema(TREE), None)


def doubling(depth: int) -> Any:
    """Records that hold the next one twice: 2**depth values in no bytes at all."""
    schema: Any = {"type": "record", "name": f"R{depth}", "fields": []}
    for level in reversed(range(depth)):
        fields = [{"name": "one", "type": schema}, {"name": "two", "type": f"R{level + 1}"}]
        schema = {"type": "record", "name": f"R{level}", "fields": fields}
    return schema


HUGE_COUNT = b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f"
LINKED = {"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]}


@pytest.mark.parametrize(
    ("schema", "data", "problem"),
    [
        ({"type": "array", "items": "null"}, HUGE_COUNT, "more than"),
        ({"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}, HUGE_COUNT, "more than"),
        ({"type": "array", "items": {"type": "record", "name": "E", "fields": []}}, HUGE_COUNT, "more than"),
        (doubling(60), b"", "more than"),
        (LINKED, b"\x02" * 200_000 + b"\0", "too deep"),
        ("bytes", HUGE_COUNT, "ends within"),
        ("bytes", b"\x01", "ends within"),
        (["null", "int"], b"\x04", "branch 2"),
        ("long", b"\xff" * 11, "too long"),
    ],
)
def test_a_hostile_binary_is_refused_before_it_is_read(schema: Any, data: bytes, problem: str) -> None:
    with pytest.raises(SchemaMismatch, match=problem):
        definition(schema).check_binary(data)


def test_a_json_message_has_the_same_budget_and_commas_in_text_do_not_count() -> None:
    with pytest.raises(SchemaMismatch, match="more than"):
        definition({"type": "array", "items": "int"}).check_json(b"[" + b"1," * MAX_AVRO_VALUES + b"1]")
    definition("string").check_json(b'"' + b"," * (MAX_AVRO_VALUES + 1) + b'"')
