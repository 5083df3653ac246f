"""Avro schemas, parsed by fastavro, with a limit on the values of a message.

A few bytes of Avro can stand for any number of values: items of size zero, or records that refer to each other twice.
So values are counted before any is built; a message within the limit is parsed in a fraction of a second.
"""

from collections.abc import Mapping
from io import BytesIO, StringIO
from typing import Any

import fastavro
import msgspec
from fastavro.validation import ValidationError, validate

from penstock.pubsub.errors import InvalidSchema, SchemaMismatch
from penstock.pubsub.limits import MAX_AVRO_VALUES

_SIZES = {"null": 0, "boolean": 1, "float": 4, "double": 8}
_INTEGERS = frozenset({"int", "long"})
_TEXTS = frozenset({"bytes", "string"})
_MAX_VARINT_BITS = 70


class AvroDefinition:
    """A parsed Avro schema."""

    def __init__(self, definition: str) -> None:
        try:
            self._schema: Any = fastavro.parse_schema(msgspec.json.decode(definition))
        except msgspec.DecodeError as error:
            raise InvalidSchema(f"the Avro definition is not JSON: {error}") from error
        except Exception as error:  # fastavro raises many kinds of errors
            raise InvalidSchema(f"the definition is not an Avro schema: {error!r}") from error
        self._named = _named_types(self._schema)

    def check_binary(self, data: bytes) -> None:
        """Raise SchemaMismatch unless the bytes are exactly one value of the schema."""
        _check_binary_values(data, self._schema, self._named)
        source = BytesIO(data)
        try:
            fastavro.schemaless_reader(source, self._schema, None)
        except Exception as error:  # malformed data may cause any error in the reader
            raise SchemaMismatch(f"the message is not Avro binary of its schema: {error!r}") from error
        if source.tell() != len(data):
            raise SchemaMismatch(f"the message has {len(data) - source.tell()} bytes after its Avro value")

    def check_json(self, data: bytes) -> None:
        """Do the same for Avro's JSON encoding, where a value of a union names its type."""
        try:
            _check_json_values(data)
            values = list(fastavro.json_reader(StringIO(data.decode()), self._schema))
            fits = len(values) == 1 and validate(values[0], self._schema, strict=True)
        except SchemaMismatch:
            raise
        except ValidationError as error:
            raise SchemaMismatch(f"the message does not match its Avro schema: {error}") from error
        except Exception as error:  # malformed data may cause any error in the reader
            raise SchemaMismatch(f"the message is not Avro JSON of its schema: {error!r}") from error
        if not fits:
            raise SchemaMismatch(f"the message must be one JSON value, got {len(values)}")


def _check_binary_values(data: bytes, schema: Any, named: Mapping[str, Any]) -> None:
    """Raise SchemaMismatch if binary data has more values than allowed, or is cut off."""
    try:
        _Walk(data, named).value(schema)
    except RecursionError as error:
        raise SchemaMismatch("the message nests its Avro values too deeply") from error


def _check_json_values(data: bytes) -> None:
    """Do the same for JSON."""
    # Every value except the first follows a comma or an opening bracket; text may contain more of them.
    if data.count(b",") + data.count(b"[") + data.count(b"{") < MAX_AVRO_VALUES:
        return
    waiting: list[object] = [msgspec.json.decode(data)]
    count = 0
    while waiting:
        value = waiting.pop()
        count += 1
        if count > MAX_AVRO_VALUES:
            raise _too_many()
        if isinstance(value, list):
            waiting.extend(value)
        elif isinstance(value, dict):
            waiting.extend(value.values())


def _named_types(schema: Any) -> dict[str, Any]:
    """Return the definitions inside a parsed schema that can be referred to by name."""
    named: dict[str, Any] = {}
    waiting = [schema]
    while waiting:
        part = waiting.pop()
        if isinstance(part, list):
            waiting.extend(part)
        elif isinstance(part, dict):
            if "name" in part and part["type"] in ("record", "error", "enum", "fixed"):
                named[part["name"]] = part
            waiting.extend(part[key] for key in ("type", "items", "values") if key in part)
            waiting.extend(field["type"] for field in part.get("fields", ()))
    return named


class _Walk:
    """Walks through binary data by its schema, and keeps nothing."""

    def __init__(self, data: bytes, named: Mapping[str, Any]) -> None:
        self._data = data
        self._named = named
        self._at = 0
        self._left = MAX_AVRO_VALUES

    def value(self, schema: Any) -> None:
        """Skip one value."""
        self._left -= 1
        if self._left < 0:
            raise _too_many()
        if isinstance(schema, list):
            self.value(self._branch(schema))
            return
        kind = schema if isinstance(schema, str) else schema["type"]
        if kind in _SIZES:
            self._skip(_SIZES[kind])
        elif kind in _INTEGERS or kind == "enum":
            self._integer()
        elif kind in _TEXTS:
            self._skip(self._integer())
        elif kind in ("record", "error"):
            for field in schema["fields"]:
                self.value(field["type"])
        elif kind in ("array", "map"):
            self._blocks(schema["items"] if kind == "array" else schema["values"], keyed=kind == "map")
        elif kind == "fixed":
            self._skip(schema["size"])
        else:
            self.value(self._named[kind] if isinstance(kind, str) else kind)

    def _branch(self, union: list[Any]) -> Any:
        index = self._integer()
        if not 0 <= index < len(union):
            raise SchemaMismatch(f"the message has branch {index} of an Avro union of {len(union)}")
        return union[index]

    def _blocks(self, items: Any, *, keyed: bool) -> None:
        while count := self._integer():
            if count < 0:
                count = -count
                self._integer()  # the size of the block
            for _ in range(count):
                if keyed:
                    self._skip(self._integer())
                self.value(items)

    def _integer(self) -> int:
        """Read a variable-length number, with its sign in the lowest bit."""
        number = shift = 0
        while shift < _MAX_VARINT_BITS:
            if self._at >= len(self._data):
                raise _cut_off()
            byte = self._data[self._at]
            self._at += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (number >> 1) ^ -(number & 1)
            shift += 7
        raise SchemaMismatch("the message has an Avro number that is too long")

    def _skip(self, size_bytes: int) -> None:
        self._at += size_bytes
        if size_bytes < 0 or self._at > len(self._data):
            raise _cut_off()


def _too_many() -> SchemaMismatch:
    return SchemaMismatch(f"the message holds more than {MAX_AVRO_VALUES:,} Avro values; publish several messages")


def _cut_off() -> SchemaMismatch:
    return SchemaMismatch("the message ends within its Avro value")
