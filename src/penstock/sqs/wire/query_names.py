"""How the Query protocol names the fields of the model.

A list is flattened: each element has the singular name, and an index in requests. A map is a list of name and value
pairs.
"""

from dataclasses import dataclass
from enum import IntEnum, auto
from functools import cache
from typing import cast

from msgspec import inspect

from penstock.sqs.model import Shape

_SINGULAR = {
    "AWSAccountIds": "AWSAccountId",
    "Actions": "ActionName",
    "AttributeNames": "AttributeName",
    "Attributes": "Attribute",
    "BinaryListValues": "BinaryListValue",
    "Failed": "BatchResultErrorEntry",
    "MessageAttributeNames": "MessageAttributeName",
    "MessageAttributes": "MessageAttribute",
    "MessageSystemAttributeNames": "MessageSystemAttributeName",
    "MessageSystemAttributes": "MessageSystemAttribute",
    "Messages": "Message",
    "QueueUrls": "QueueUrl",
    "Results": "ListMessageMoveTasksResultEntry",
    "StringListValues": "StringListValue",
    "TagKeys": "TagKey",
    "Tags": "Tag",
    "queueUrls": "QueueUrl",
    "tags": "Tag",
}
_PER_ACTION = {"Entries": "RequestEntry", "Successful": "ResultEntry"}


class FieldKind(IntEnum):
    """The kind of value in a field."""

    TEXT = auto()
    INTEGER = auto()
    FLAG = auto()
    BINARY = auto()
    TEXTS = auto()
    BINARIES = auto()
    SHAPES = auto()
    TEXT_MAP = auto()
    SHAPE_MAP = auto()


@dataclass(frozen=True, slots=True)
class QueryField:
    """A field of a shape in the Query protocol."""

    attribute: str
    name: str
    model_name: str
    """The name in the service model, by which AWS's errors call a list or a map."""
    kind: FieldKind
    required: bool
    item: type[Shape]  # the element of SHAPES and SHAPE_MAP; Shape itself for other kinds
    key: str  # the name of a map's keys


@cache
def fields_of(shape: type[Shape], action: str = "") -> tuple[QueryField, ...]:
    """Return the fields of a shape; a batch names its entries after the action."""
    return tuple(
        QueryField(field.name, _name(name, action), name, kind=kind, required=field.required, item=item, key=_key(name))
        for field in _struct(shape).fields
        for name, (kind, item) in [(field.encode_name, _kind(field.type))]
    )


def _struct(shape: type[Shape]) -> inspect.StructType:
    described = inspect.type_info(shape)
    assert isinstance(described, inspect.StructType)
    return described


def _name(wire_name: str, action: str) -> str:
    if wire_name in _PER_ACTION:
        return action + _PER_ACTION[wire_name]
    return _SINGULAR.get(wire_name, wire_name)


def _key(wire_name: str) -> str:
    return "Key" if wire_name.lower() == "tags" else "Name"


def _kind(described: inspect.Type) -> tuple[FieldKind, type[Shape]]:
    match described:
        case inspect.UnionType(types=(first, *_)):
            return _kind(first)
        case inspect.ListType(item_type=inspect.StructType(cls=cls)):
            return FieldKind.SHAPES, cast(type[Shape], cls)
        case inspect.DictType(value_type=inspect.StructType(cls=cls)):
            return FieldKind.SHAPE_MAP, cast(type[Shape], cls)
        case _:
            return _plain_kind(described), Shape


def _plain_kind(described: inspect.Type) -> FieldKind:
    match described:
        case inspect.StrType():
            return FieldKind.TEXT
        case inspect.IntType():
            return FieldKind.INTEGER
        case inspect.BoolType():
            return FieldKind.FLAG
        case inspect.BytesType():
            return FieldKind.BINARY
        case inspect.ListType(item_type=inspect.StrType()):
            return FieldKind.TEXTS
        case inspect.ListType(item_type=inspect.BytesType()):
            return FieldKind.BINARIES
        case inspect.DictType(value_type=inspect.StrType()):
            return FieldKind.TEXT_MAP
    raise TypeError(f"the Query protocol has no form for {described}")
