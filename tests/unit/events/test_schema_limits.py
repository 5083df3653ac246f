"""Schemas of event types may cost little and reach nothing, whoever wrote them."""

from typing import Any

import pytest

from penstock.domain.errors import InvalidArgument
from penstock.events.catalogue.event_schemas import CompiledSchema
from penstock.events.catalogue.schema_limits import MOST_DEPTH, check_schema

ORDER: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$id": "https://shop.example/order/1",
    "type": "object",
    "required": ["total"],
    "properties": {
        "total": {"type": "number", "minimum": 0},
        "address": {"$ref": "#/$defs/address"},
        "billing": {"$ref": "#/$defs/address"},
    },
    "$defs": {"address": {"type": "object", "properties": {"zip": {"pattern": "^[0-9]{5}$"}}}},
}
JSON_VALUE: dict[str, Any] = {
    "anyOf": [
        {"type": ["string", "number", "boolean", "null"]},
        {"type": "array", "items": {"$ref": "#"}},
        {"type": "object", "additionalProperties": {"$ref": "#"}},
    ]
}
TREE: dict[str, Any] = {
    "type": "object",
    "properties": {"value": {"type": "integer"}, "left": {"$ref": "#"}, "right": {"$ref": "#"}},
    "additionalProperties": False,
}


def doubled(levels: int) -> dict[str, Any]:
    """A schema that compares one value 2 ** levels times."""
    defs: dict[str, Any] = {str(n): {"allOf": [{"$ref": f"#/$defs/{n + 1}"}] * 2} for n in range(levels)}
    return {"$ref": "#/$defs/0", "$defs": {**defs, str(levels): {"type": "integer"}}}


@pytest.mark.parametrize("schema", [ORDER, JSON_VALUE, TREE, {}, doubled(3)])
def test_schemas_as_people_write_them_are_allowed(schema: dict[str, Any]) -> None:
    CompiledSchema(schema)


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"$ref": "http://127.0.0.1:1/schema"}, "nothing is read from elsewhere"),
        ({"properties": {"a": {"$ref": "file:///etc/passwd"}}}, "nothing is read from elsewhere"),
        ({"$defs": {"a": {"$ref": "other.json#/x"}}, "$ref": "#/$defs/a"}, "nothing is read from elsewhere"),
        ({"$schema": "http://127.0.0.1:1/meta"}, r"\$schema must be one of"),
        ({"$ref": "#/$defs/missing"}, "the schema does not have"),
        ({"$ref": "#/x-hidden", "x-hidden": {"type": "string"}}, "is not a schema"),
        ({"properties": {"a": {"$id": "http://127.0.0.1:1/"}}}, r"only the whole schema may have an \$id"),
        ({"$dynamicRef": "#node"}, r"\$dynamicRef is not allowed"),
        ({"allOf": [{"$ref": "#"}]}, "without end"),
        (doubled(30), "more than 10000 subschemas"),
        # Each level of the data is compared twice as often as the one above.
        ({"properties": {"a": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}}}, "more than 10000 subschemas"),
        ({"allOf": [{"properties": {"a": {"$ref": "#"}}}] * 2}, "more than 10000 subschemas"),
        ({"anyOf": [{"type": "null"} for _ in range(2001)]}, "more than 2000 subschemas"),
        ({"description": "x" * 70_000}, "at most 65536"),
        ({"pattern": "(?=a)b"}, "not a regular expression, too large, or uses lookaround"),
        ({"pattern": "((a{1000}){1000}){1000}"}, "not a regular expression, too large"),
        ({"type": "strin"}, "the schema is wrong"),
        ({"properties": []}, "the schema is wrong"),
    ],
)
def test_schemas_that_are_wrong_or_hostile_are_refused(schema: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidArgument, match=reason):
        CompiledSchema(schema)


def test_a_schema_that_is_nested_without_end_is_refused() -> None:
    schema: dict[str, Any] = {}
    for _ in range(1500):
        schema = {"not": schema}
    with pytest.raises(InvalidArgument, match="nested too deeply"):
        check_schema(schema)


def test_a_pattern_that_takes_other_engines_ages_is_compared_at_once() -> None:
    # Python's engine needs longer than the universe is old.
    assert CompiledSchema({"pattern": "^(a+)+$"}).problems("a" * 5000 + "b")


def test_data_that_is_nested_deeper_than_a_recursive_schema_may_follow_is_invalid() -> None:
    data: Any = 1
    for _ in range(MOST_DEPTH):
        data = [data]
    schema = CompiledSchema(JSON_VALUE)
    assert schema.problems(data) == []
    assert schema.problems([data]) == [f"the data is nested more than {MOST_DEPTH} levels deep"]


def test_problems_name_the_field_and_never_the_value() -> None:
    problems = CompiledSchema(ORDER).problems({"total": "s3cret", "address": {"zip": "s3cret"}})

    assert [each.partition(":")[0] for each in problems] == ["total", "address.zip"]
    assert "s3cret" not in " ".join(problems)
