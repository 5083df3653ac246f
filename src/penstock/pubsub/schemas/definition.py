"""A parsed schema definition, which checks messages."""

from typing import Protocol

from google.pubsub_v1 import types

from penstock.pubsub.errors import InvalidRequest, InvalidSchema
from penstock.pubsub.limits import MAX_SCHEMA_BYTES
from penstock.pubsub.schemas.avro import AvroDefinition
from penstock.pubsub.schemas.proto import ProtoDefinition


class Definition(Protocol):
    """What both kinds of definition can do."""

    def check_binary(self, data: bytes) -> None:
        """Raise SchemaMismatch unless the bytes are a message of the schema."""
        ...

    def check_json(self, data: bytes) -> None:
        """Do the same for a message in JSON."""
        ...


def read_definition(schema: types.Schema) -> Definition:
    """Parse the definition of a schema; raise InvalidSchema if it is invalid."""
    if len(schema.definition.encode()) > MAX_SCHEMA_BYTES:
        raise InvalidSchema(f"a schema definition has at most {MAX_SCHEMA_BYTES} bytes")
    if schema.type_ == types.Schema.Type.AVRO:
        return AvroDefinition(schema.definition)
    if schema.type_ == types.Schema.Type.PROTOCOL_BUFFER:
        return ProtoDefinition(schema.definition)
    raise InvalidSchema("a schema's type must be AVRO or PROTOCOL_BUFFER")


def check_message(definition: Definition, data: bytes, encoding: int) -> None:
    """Raise SchemaMismatch unless a message in an encoding matches a schema."""
    if encoding == types.Encoding.BINARY:
        definition.check_binary(data)
    elif encoding == types.Encoding.JSON:
        definition.check_json(data)
    else:
        raise InvalidRequest("encoding must be BINARY or JSON")
