"""Reads a protocol-buffer definition: one file that imports nothing, with messages and enums."""

from google.protobuf.descriptor_pb2 import (  # type: ignore[import-untyped]
    DescriptorProto,
    EnumDescriptorProto,
    EnumOptions,
    FieldDescriptorProto,
    FileDescriptorProto,
    MessageOptions,
)

from penstock.pubsub.errors import InvalidSchema
from penstock.pubsub.proto_tokens import Tokens

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
