"""Protocol-buffer schemas: a definition made into a message class of its own.

The words of a protocol-buffer definition, with their lines.

Reads a protocol-buffer definition: one file that imports nothing, with messages and enums.
"""

import re
from typing import Any, NamedTuple

from google.protobuf import json_format  # type: ignore[import-untyped]
from google.protobuf.descriptor_pb2 import (  # type: ignore[import-untyped]
    DescriptorProto,
    EnumDescriptorProto,
    EnumOptions,
    FieldDescriptorProto,
    FileDescriptorProto,
    MessageOptions,
)
from google.protobuf.descriptor_pool import DescriptorPool  # type: ignore[import-untyped]
from google.protobuf.message import DecodeError, Message  # type: ignore[import-untyped]
from google.protobuf.message_factory import GetMessageClass  # type: ignore[import-untyped]
from google.protobuf.unknown_fields import UnknownFieldSet  # type: ignore[import-untyped]

from penstock.pubsub.errors import InvalidSchema, MessageDoesNotFit

_TOKEN = re.compile(
    r"(?P<space>\s+|//[^\n]*|/\*.*?\*/)"
    r"|(?P<word>[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*|(?:\.[A-Za-z_][A-Za-z0-9_]*)+)"
    r"|(?P<number>-?(?:0[xX][0-9a-fA-F]+|\d+(?:\.\d*)?(?:[eE][-+]?\d+)?))"
    r"|(?P<string>\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*')"
    r"|(?P<sign>[{}\[\]()<>=;,:.+-])",
    re.DOTALL,
)


_MOST = (1 << 31) - 1


class Token(NamedTuple):
    """A word, number, string or sign."""

    kind: str
    text: str
    line: int


class Tokens:
    """The tokens of a definition, taken one after another."""

    def __init__(self, text: str) -> None:
        self._tokens = _read(text)
        self._at = 0

    @property
    def next(self) -> Token:
        """What comes next."""
        return self._tokens[self._at]

    def take(self, *texts: str) -> bool:
        """Take the next token if it is one of these."""
        taken = self.next.text in texts
        self._at += taken
        return taken

    def expect(self, text: str) -> None:
        """Take the next token, which must be this."""
        if not self.take(text):
            raise self.unexpected(repr(text))

    def word(self) -> str:
        """Take a word."""
        return self._of("word", "a name")

    def string(self) -> str:
        """Take a string."""
        return self._of("string", "a string")[1:-1]

    def number(self) -> int:
        """Take a whole number."""
        line, text = self.next.line, self._of("number", "a number")
        try:
            value = int(text, 0)
        except ValueError:
            value = _MOST + 1
        if not -_MOST <= value <= _MOST:
            raise InvalidSchema(f"line {line} of the definition: expected a whole number of 31 bits, found {text!r}")
        return value

    def skip_statement(self) -> None:
        """Pass over everything up to the next semicolon."""
        while not self.take(";"):
            self.skip_one()

    def skip_brackets(self) -> None:
        """Pass over options in brackets, if there are any."""
        if self.take("["):
            while not self.take("]"):
                self.skip_one()

    def skip_one(self) -> None:
        """Pass over the next token."""
        if self.next.kind == "end":
            raise self.unexpected("more")
        self._at += 1

    def unexpected(self, wanted: str) -> InvalidSchema:
        """What is wrong with the next token."""
        return InvalidSchema(f"line {self.next.line} of the definition: expected {wanted}, found {self.next.text!r}")

    def _of(self, kind: str, wanted: str) -> str:
        if self.next.kind != kind:
            raise self.unexpected(wanted)
        self._at += 1
        return self._tokens[self._at - 1].text


def _read(text: str) -> list[Token]:
    tokens: list[Token] = []
    at, line = 0, 1
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise InvalidSchema(f"line {line} of the definition: cannot read {text[at : at + 10]!r}")
        kind = match.lastgroup or ""
        if kind != "space":
            tokens.append(Token(kind, match[0], line))
        line += match[0].count("\n")
        at = match.end()
    return [*tokens, Token("end", "the end", line)]


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
_MOST_NESTED = 32


def parse_proto(text: str) -> FileDescriptorProto:
    """The descriptor of a definition; InvalidSchema with the line when it cannot be read."""
    parser = _Parser(Tokens(text))
    parser.file_body()
    return parser.file


class _Parser:
    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self.file = FileDescriptorProto(name="schema.proto", syntax="proto2")

    def file_body(self) -> None:
        tokens = self._tokens
        if tokens.take("syntax"):
            tokens.expect("=")
            syntax = tokens.string()
            if syntax not in ("proto2", "proto3"):
                raise InvalidSchema(f"syntax must be proto2 or proto3, got {syntax!r}")
            self.file.syntax = syntax
            tokens.expect(";")
        while tokens.next.kind != "end":
            if tokens.take("package"):
                self.file.package = tokens.word()
                tokens.expect(";")
            elif tokens.take("option"):
                tokens.skip_statement()
            elif tokens.take("message"):
                self._message(self.file.message_type.add(), 0)
            elif tokens.take("enum"):
                self._enum(self.file.enum_type.add())
            elif not tokens.take(";"):
                raise tokens.unexpected("a message or an enum (imports, services and extensions are not allowed)")

    def _message(self, message: DescriptorProto, depth: int) -> None:
        if depth > _MOST_NESTED:
            raise InvalidSchema(f"messages are nested more than {_MOST_NESTED} deep")
        tokens = self._tokens
        message.name = tokens.word()
        tokens.expect("{")
        while not tokens.take("}"):
            if tokens.take("message"):
                self._message(message.nested_type.add(), depth + 1)
            elif tokens.take("enum"):
                self._enum(message.enum_type.add())
            elif tokens.take("oneof"):
                self._oneof(message)
            elif tokens.take("option", "reserved"):
                tokens.skip_statement()
            elif not tokens.take(";"):
                self._field(message)

    def _field(self, message: DescriptorProto) -> None:
        tokens = self._tokens
        label = tokens.next.text
        if tokens.take(*_LABELS):
            self._one_field(message, _LABELS[label])
        elif tokens.take("map"):
            self._map_field(message)
        elif self.file.syntax == "proto3":
            self._one_field(message, FieldDescriptorProto.LABEL_OPTIONAL)
        else:
            raise tokens.unexpected("optional, required, repeated or map")

    def _one_field(self, message: DescriptorProto, label: int, oneof_index: int | None = None) -> None:
        field = message.field.add(label=label, oneof_index=oneof_index)
        _set_type(field, self._tokens.word())
        self._name_and_number(field)

    def _map_field(self, message: DescriptorProto) -> None:
        """A map is a repeated message of its own with a key and a value."""
        tokens = self._tokens
        tokens.expect("<")
        key_type = tokens.word()
        tokens.expect(",")
        value_type = tokens.word()
        tokens.expect(">")
        field = message.field.add(label=FieldDescriptorProto.LABEL_REPEATED)
        self._name_and_number(field)
        options = MessageOptions(map_entry=True)
        entry = message.nested_type.add(name=f"{_camel_case(field.name)}Entry", options=options)
        for number, (name, type_name) in enumerate((("key", key_type), ("value", value_type)), 1):
            _set_type(entry.field.add(name=name, number=number, label=FieldDescriptorProto.LABEL_OPTIONAL), type_name)
        field.type_name = entry.name

    def _name_and_number(self, field: FieldDescriptorProto) -> None:
        tokens = self._tokens
        field.name = tokens.word()
        tokens.expect("=")
        field.number = tokens.number()
        tokens.skip_brackets()
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
            if tokens.take("reserved"):
                tokens.skip_statement()
            elif tokens.take("option"):
                if tokens.next.text == "allow_alias":
                    enum.options.CopyFrom(EnumOptions(allow_alias=True))
                tokens.skip_statement()
            elif not tokens.take(";"):
                value = enum.value.add(name=tokens.word())
                tokens.expect("=")
                value.number = tokens.number()
                tokens.skip_brackets()
                tokens.expect(";")


def _set_type(field: FieldDescriptorProto, name: str) -> None:
    if name in _SCALARS:
        field.type = _SCALARS[name]
    else:
        field.type_name = name


def _camel_case(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


class ProtoDefinition:
    """A definition with exactly one message at its top; others may be inside it."""

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
            raise InvalidSchema(f"the definition is no protocol-buffer message: {error}") from error

    def check_binary(self, data: bytes) -> None:
        """Raise MessageDoesNotFit unless these bytes are a message of the definition, without unknown fields."""
        try:
            message = self._kind.FromString(data)
        except DecodeError as error:
            raise MessageDoesNotFit(f"the message is no protocol buffer of its schema: {error}") from error
        self._check(message)

    def check_json(self, data: bytes) -> None:
        """The same for protobuf's JSON encoding."""
        message = self._kind()
        try:
            json_format.Parse(data.decode(), message)
        except (json_format.ParseError, UnicodeDecodeError) as error:
            raise MessageDoesNotFit(f"the message is no JSON of its schema: {error}") from error
        self._check(message)

    def _check(self, message: Message) -> None:
        if missing := message.FindInitializationErrors():
            raise MessageDoesNotFit(f"the message lacks required fields: {', '.join(missing)}")
        if unknown := [field.field_number for field in UnknownFieldSet(message)]:
            raise MessageDoesNotFit(f"the message has fields its schema does not know: {unknown}")
