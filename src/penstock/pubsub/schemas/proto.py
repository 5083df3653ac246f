"""Protocol-buffer schemas: a definition is parsed and made into a message class.

A definition is one file of proto2 or proto3 with messages and enums, without imports and services. Of all options only
`json_name` is read, because no other changes what a message may look like. The descriptor pool checks whether the names
resolve.
"""

import re
from typing import Any, NamedTuple

from google.protobuf import json_format  # type: ignore[import-untyped]
from google.protobuf.descriptor_pb2 import (  # type: ignore[import-untyped]
    DescriptorProto,
    EnumDescriptorProto,
    EnumValueDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)
from google.protobuf.descriptor_pool import DescriptorPool  # type: ignore[import-untyped]
from google.protobuf.message import DecodeError, Message  # type: ignore[import-untyped]
from google.protobuf.message_factory import GetMessageClass  # type: ignore[import-untyped]
from google.protobuf.unknown_fields import UnknownFieldSet  # type: ignore[import-untyped]

from penstock.pubsub.errors import InvalidSchema, SchemaMismatch

_SPACE = re.compile(r"(?:\s+|//[^\n]*|/\*.*?\*/)*+", re.DOTALL)
_TOKEN = re.compile(
    r"(?P<word>\.?[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)"
    r"|(?P<number>-?(?:0[xX][0-9a-fA-F]+|\d+(?:\.\d*)?(?:[eE][-+]?\d+)?))"
    r"|(?P<string>\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*')"
    r"|(?P<sign>[{}\[\]()<>=;,:.+-])",
    re.ASCII | re.DOTALL,
)
_MAX_NUMBER = (1 << 31) - 1

_SCALARS = {
    name: getattr(FieldDescriptorProto, f"TYPE_{name.upper()}")
    for name in (
        *("double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64"),
        *("fixed32", "fixed64", "sfixed32", "sfixed64", "bool", "string", "bytes"),
    )
}
_LABELS = {
    "optional": FieldDescriptorProto.LABEL_OPTIONAL,
    "required": FieldDescriptorProto.LABEL_REQUIRED,
    "repeated": FieldDescriptorProto.LABEL_REPEATED,
}
_MAX_DEPTH = 32


class ProtoDefinition:
    """A definition with exactly one top-level message; others may be nested in it."""

    def __init__(self, definition: str) -> None:
        file = parse_proto(definition)
        names = [message.name for message in file.message_type]
        if len(names) != 1:
            raise InvalidSchema(f"a definition has exactly one top-level message, got {len(names)}: {', '.join(names)}")
        pool = DescriptorPool()
        try:
            pool.Add(file)
            full_name = f"{file.package}.{names[0]}" if file.package else names[0]
            self._kind: Any = GetMessageClass(pool.FindMessageTypeByName(full_name))
        except (TypeError, KeyError) as error:
            raise InvalidSchema(f"the definition is not a protocol-buffer message: {error}") from error

    def check_binary(self, data: bytes) -> None:
        """Raise SchemaMismatch unless the bytes are a message of the definition, without unknown fields."""
        try:
            message = self._kind.FromString(data)
        except DecodeError as error:
            raise SchemaMismatch(f"the message is not a protocol buffer of its schema: {error}") from error
        self._check(message)

    def check_json(self, data: bytes) -> None:
        """Do the same for protobuf's JSON encoding."""
        message = self._kind()
        try:
            json_format.Parse(data.decode(), message)
        except (json_format.ParseError, UnicodeDecodeError) as error:
            raise SchemaMismatch(f"the message is not JSON of its schema: {error}") from error
        self._check(message)

    def _check(self, message: Message) -> None:
        if missing := message.FindInitializationErrors():
            raise SchemaMismatch(f"the message lacks required fields: {', '.join(missing)}")
        if unknown := [field.field_number for field in UnknownFieldSet(message)]:
            raise SchemaMismatch(f"the message has fields that its schema does not define: {unknown}")


def parse_proto(text: str) -> FileDescriptorProto:
    """Parse a definition into a descriptor; raise InvalidSchema with the line of an error."""
    parser = _Parser(Tokens(text))
    parser.read_file()
    return parser.file


class _Token(NamedTuple):
    kind: str
    text: str
    start: int


class Tokens:
    """The tokens of a definition."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._end = 0
        self.next = self._read()

    def advance(self) -> str:
        """Consume the next token, whatever it is."""
        taken = self.next
        if taken.kind == "end":
            raise self.unexpected("more")
        self.next = self._read()
        return taken.text

    def take(self, text: str) -> bool:
        """Consume the next token if it is this text."""
        if self.next.text != text:
            return False
        self.advance()
        return True

    def expect(self, text: str) -> None:
        """Consume the next token, which must be this text."""
        if not self.take(text):
            raise self.unexpected(repr(text))

    def word(self) -> str:
        """Consume a word."""
        return self._of("word", "a name")

    def string(self) -> str:
        """Consume a string, which may be written in several pieces."""
        text = self._of("string", "a string")[1:-1]
        while self.next.kind == "string":
            text += self.advance()[1:-1]
        return text

    def number(self) -> int:
        """Consume a whole number."""
        token = self.next
        text = self._of("number", "a number")
        try:
            value = int(text, 0)
        except ValueError:
            value = _MAX_NUMBER + 1
        if abs(value) > _MAX_NUMBER:
            raise self._wrong(f"expected a whole number of 31 bits, found {text!r}", token.start)
        return value

    def skip_to(self, *ends: str) -> None:
        """Skip to one of these signs, past brackets with their contents."""
        depth = 0
        while depth > 0 or self.next.text not in ends:
            depth += (self.next.text in ("{", "[", "(")) - (self.next.text in ("}", "]", ")"))
            self.advance()

    def skip_statement(self) -> None:
        """Skip to the end of the statement."""
        self.skip_to(";")
        self.advance()

    def unexpected(self, wanted: str) -> InvalidSchema:
        """Return the error for the next token."""
        return self._wrong(f"expected {wanted}, found {self.next.text!r}", self.next.start)

    def _of(self, kind: str, wanted: str) -> str:
        if self.next.kind != kind:
            raise self.unexpected(wanted)
        return self.advance()

    def _read(self) -> _Token:
        space = _SPACE.match(self._text, self._end)
        start = space.end() if space else self._end
        if start == len(self._text):
            return _Token("end", "the end", start)
        match = _TOKEN.match(self._text, start)
        if match is None:
            raise self._wrong(f"cannot read {self._text[start : start + 10]!r}", start)
        self._end = match.end()
        return _Token(match.lastgroup or "", match[0], start)

    def _wrong(self, problem: str, at: int) -> InvalidSchema:
        return InvalidSchema(f"line {self._text.count(chr(10), 0, at) + 1} of the definition: {problem}")


class _Parser:
    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self.file = FileDescriptorProto(name="schema.proto", syntax="proto2")

    def read_file(self) -> None:
        tokens = self._tokens
        if tokens.take("syntax"):
            self._syntax()
        while tokens.next.kind != "end":
            if tokens.take(";"):
                continue
            if tokens.take("message"):
                self._message(self.file.message_type.add(), 0)
            elif tokens.take("enum"):
                self._enum(self.file.enum_type.add())
            elif tokens.take("option"):
                tokens.skip_statement()
            elif tokens.take("package"):
                self.file.package = tokens.word()
                tokens.expect(";")
            else:
                raise tokens.unexpected("a message or an enum (imports, services and extensions are not allowed)")

    def _syntax(self) -> None:
        self._tokens.expect("=")
        self.file.syntax = self._tokens.string()
        if self.file.syntax not in ("proto2", "proto3"):
            raise InvalidSchema(f"syntax must be proto2 or proto3, got {self.file.syntax!r}")
        self._tokens.expect(";")

    def _message(self, message: DescriptorProto, depth: int) -> None:
        if depth > _MAX_DEPTH:
            raise InvalidSchema(f"messages are nested more than {_MAX_DEPTH} deep")
        tokens = self._tokens
        message.name = tokens.word()
        tokens.expect("{")
        while not tokens.take("}"):
            if tokens.take(";"):
                continue
            if tokens.take("message"):
                self._message(message.nested_type.add(), depth + 1)
            elif tokens.take("enum"):
                self._enum(message.enum_type.add())
            elif tokens.take("oneof"):
                self._oneof(message)
            elif tokens.take("option") or tokens.take("reserved"):
                tokens.skip_statement()
            else:
                self._field(message)

    def _field(self, message: DescriptorProto) -> None:
        tokens = self._tokens
        if tokens.next.text in _LABELS:
            self._one_field(message, _LABELS[tokens.advance()])
        elif tokens.take("map"):
            self._map_field(message)
        elif self.file.syntax == "proto3":
            self._one_field(message, FieldDescriptorProto.LABEL_OPTIONAL)
        else:
            raise tokens.unexpected("optional, required, repeated or map")

    def _one_field(self, message: DescriptorProto, label: int, oneof_index: int | None = None) -> None:
        field = message.field.add(label=label, oneof_index=oneof_index)
        _set_type(field, self._tokens.word())
        self._rest_of_field(field)

    def _map_field(self, message: DescriptorProto) -> None:
        """Read a map, which is a repeated message with a key and a value."""
        tokens = self._tokens
        tokens.expect("<")
        key_type = tokens.word()
        tokens.expect(",")
        value_type = tokens.word()
        tokens.expect(">")
        field = message.field.add(label=FieldDescriptorProto.LABEL_REPEATED)
        self._rest_of_field(field)
        entry = message.nested_type.add(name=f"{_camel_case(field.name)}Entry")
        entry.options.map_entry = True
        for number, (name, type_name) in enumerate((("key", key_type), ("value", value_type)), 1):
            _set_type(entry.field.add(name=name, number=number, label=FieldDescriptorProto.LABEL_OPTIONAL), type_name)
        field.type_name = entry.name

    def _rest_of_field(self, field: FieldDescriptorProto) -> None:
        tokens = self._tokens
        field.name = tokens.word()
        tokens.expect("=")
        field.number = tokens.number()
        has_option = tokens.take("[")
        while has_option:
            if tokens.take("json_name"):
                tokens.expect("=")
                field.json_name = tokens.string()
            tokens.skip_to(",", "]")
            has_option = tokens.advance() == ","
        tokens.expect(";")

    def _oneof(self, message: DescriptorProto) -> None:
        tokens = self._tokens
        index = len(message.oneof_decl)
        message.oneof_decl.add(name=tokens.word())
        tokens.expect("{")
        while not tokens.take("}"):
            if tokens.take("option"):
                tokens.skip_statement()
            else:
                self._one_field(message, FieldDescriptorProto.LABEL_OPTIONAL, index)

    def _enum(self, enum: EnumDescriptorProto) -> None:
        tokens = self._tokens
        enum.name = tokens.word()
        tokens.expect("{")
        while not tokens.take("}"):
            if tokens.take(";"):
                continue
            if tokens.take("option") or tokens.take("reserved"):
                tokens.skip_statement()
            else:
                self._enum_value(enum.value.add())

    def _enum_value(self, value: EnumValueDescriptorProto) -> None:
        tokens = self._tokens
        value.name = tokens.word()
        tokens.expect("=")
        value.number = tokens.number()
        if tokens.next.text == "[":
            tokens.skip_to(";")
        tokens.expect(";")


def _set_type(field: FieldDescriptorProto, name: str) -> None:
    if name in _SCALARS:
        field.type = _SCALARS[name]
    else:
        field.type_name = name


def _camel_case(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))
