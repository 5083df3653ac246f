"""Protocol-buffer schemas: a definition made into a message class of its own."""

from typing import Any

from google.protobuf import json_format  # type: ignore[import-untyped]
from google.protobuf.descriptor_pool import DescriptorPool  # type: ignore[import-untyped]
from google.protobuf.message import DecodeError, Message  # type: ignore[import-untyped]
from google.protobuf.message_factory import GetMessageClass  # type: ignore[import-untyped]
from google.protobuf.unknown_fields import UnknownFieldSet  # type: ignore[import-untyped]

from penstock.pubsub.errors import InvalidSchema, MessageDoesNotFit
from penstock.pubsub.proto_parser import parse_proto


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
