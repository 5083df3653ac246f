"""Avro schemas, by fastavro."""

from io import BytesIO, StringIO
from typing import Any

import fastavro
import msgspec
from fastavro.validation import ValidationError, validate

from penstock.pubsub.avro_budget import check_binary_values, check_json_values, named_types
from penstock.pubsub.errors import InvalidSchema, MessageDoesNotFit


class AvroDefinition:
    """A parsed Avro schema."""

    def __init__(self, definition: str) -> None:
        try:
            self._schema: Any = fastavro.parse_schema(msgspec.json.decode(definition))
        except msgspec.DecodeError as error:
            raise InvalidSchema(f"the Avro definition is not JSON: {error}") from error
        except Exception as error:  # fastavro raises many kinds, for what it finds where
            raise InvalidSchema(f"the definition is no Avro schema: {error!r}") from error
        self._named = named_types(self._schema)

    def check_binary(self, data: bytes) -> None:
        """Raise MessageDoesNotFit unless these bytes are one value of the schema and nothing more."""
        check_binary_values(data, self._schema, self._named)
        source = BytesIO(data)
        try:
            fastavro.schemaless_reader(source, self._schema, None)
        except Exception as error:  # whatever the bytes led the reader to
            raise MessageDoesNotFit(f"the message is no Avro binary of its schema: {error!r}") from error
        if source.tell() != len(data):
            raise MessageDoesNotFit(f"the message has {len(data) - source.tell()} bytes after its Avro value")

    def check_json(self, data: bytes) -> None:
        """The same for Avro's JSON encoding, where a value of a union names its type."""
        try:
            check_json_values(data)
            values = list(fastavro.json_reader(StringIO(data.decode()), self._schema))
            fits = len(values) == 1 and validate(values[0], self._schema, strict=True)
        except MessageDoesNotFit:
            raise
        except ValidationError as error:
            raise MessageDoesNotFit(f"the message does not fit its Avro schema: {error}") from error
        except Exception as error:  # whatever the text led the reader to
            raise MessageDoesNotFit(f"the message is no Avro JSON of its schema: {error!r}") from error
        if not fits:
            raise MessageDoesNotFit(f"the message must be one JSON value, got {len(values)}")
