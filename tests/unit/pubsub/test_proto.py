"""Protocol-buffer definitions: what can be read, what is refused, and where."""

import pytest

from penstock.pubsub.errors import InvalidSchema, SchemaMismatch
from penstock.pubsub.schemas.proto import ProtoDefinition, parse_proto

EVERYTHING = """
syntax = "proto3";
package shop.v1;  // a comment
option java_package = "com.example";
/* one
   more */
message Order {
  option deprecated = true;
  string id = 1;
  optional int32 count = 2 [deprecated = true, json_name = "n"];
  repeated Line lines = 3;
  map<string, .shop.v1.Order.Line> by_name = 4;
  oneof payment { string card = 5; bytes cash = 6; }
  Line.Kind kind = 7;
  reserved 8, 10 to 20;
  reserved "old";
  message Line {
    enum Kind { option allow_alias = true; UNKNOWN = 0; FOOD = 1; MEAL = 1; reserved 5; }
    Kind kind = 1;
    double price = 0x2;
  }
}
"""


def test_a_definition_with_everything_in_it_is_read() -> None:
    file = parse_proto(EVERYTHING)

    (order,) = file.message_type
    assert (file.syntax, file.package) == ("proto3", "shop.v1")
    assert [(field.name, field.number) for field in order.field] == [
        *(("id", 1), ("count", 2), ("lines", 3), ("by_name", 4), ("card", 5), ("cash", 6), ("kind", 7)),
    ]
    assert {nested.name for nested in order.nested_type} == {"Line", "ByNameEntry"}


def test_messages_of_it_are_told_from_others() -> None:
    definition = ProtoDefinition(EVERYTHING)

    definition.check_json(b'{"id": "a", "lines": [{"kind": "FOOD"}], "byName": {"x": {"price": 1.5}}, "card": "1"}')
    definition.check_binary(b"\x0a\x01a\x10\x02")
    for wrong in (b'{"unknown": 1}', b'{"count": "many"}', b'{"lines": [{"kind": "WATER"}]}', b"[", b"\xff"):
        with pytest.raises(SchemaMismatch):
            definition.check_json(wrong)
    for wrong in (b"\x0a\x05a", b"\x52\x01x", b"\xff"):
        with pytest.raises(SchemaMismatch):
            definition.check_binary(wrong)


def test_a_name_for_json_is_taken_from_the_options_of_a_field() -> None:
    definition = ProtoDefinition(
        'syntax = "proto3"; message A { int32 a = 1 [(x) = { y: [1, 2]; z: "]" }, json_name = "n" "ame"]; }'
    )

    definition.check_json(b'{"name": 1}')
    with pytest.raises(SchemaMismatch):
        definition.check_json(b'{"other": 1}')


def test_an_option_may_hold_brackets_with_semicolons() -> None:
    definition = ProtoDefinition('syntax = "proto3"; option (x) = { a: 1; b: "};" }; message A { int32 a = 1; }')

    definition.check_json(b'{"a": 1}')


@pytest.mark.parametrize("text", ["{" * 300_000, ";" * 300_000, "a " * 150_000, "option a = " + "{" * 299_000])
def test_a_definition_of_the_greatest_size_is_refused_in_bounded_time(text: str) -> None:
    # Work that grows with the square of the size would take hours.
    with pytest.raises(InvalidSchema):
        ProtoDefinition(text)


def test_required_fields_are_required() -> None:
    definition = ProtoDefinition("message A { required string a = 1; optional int32 b = 2 [default = 5]; }")

    definition.check_binary(b"\x0a\x01x")
    with pytest.raises(SchemaMismatch, match="required fields: a"):
        definition.check_binary(b"")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "exactly one top-level message, got 0"),
        ("message A {\n  string a = 1;\n}", "line 2 of the definition: expected optional, required, repeated or map"),
        ('syntax = "proto4"; message A {}', "proto2 or proto3"),
        ('syntax = "proto3"; message A {', "the end"),
        ('syntax = "proto3"; message A { string a = 1 }', "expected ';', found '}'"),
        ('syntax = "proto3"; message A { string a = 99999999999; }', "31 bits"),
        ('syntax = "proto3"; message A { string a = 0; }', "invalid field number"),
        ('syntax = "proto3"; message A { string a = 1; string b = 1; }', "duplicate field number"),
        ('syntax = "proto3"; message A { string a = 1; string a = 2; }', "duplicate"),
        ('syntax = "proto3"; message A { extensions 1; }', "expected '='|found"),
        ('syntax = "proto3"; service S {}', "not allowed"),
        ('syntax = "proto3"; message A { $ }', "cannot read"),
        ('syntax = "proto3"; ' + "message A {" * 40 + "}" * 40, "nested more than 32 deep"),
        ('option a = "never ends', "cannot read"),
    ],
)
def test_a_wrong_definition_is_refused_with_its_line_or_reason(text: str, problem: str) -> None:
    with pytest.raises(InvalidSchema, match=problem):
        ProtoDefinition(text)
