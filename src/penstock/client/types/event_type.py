"""The catalogue of event types in the API."""

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from penstock.client.types.fields import Name
from penstock.domain.event import Validation

MOST_VERSIONS = 50
MOST_EXAMPLES = 20

Description = Annotated[str, Meta(max_length=4000)]
Examples = Annotated[Sequence[Any], Meta(max_length=MOST_EXAMPLES)]
JsonSchema = dict[str, Any]


class EventTypeVersion(msgspec.Struct, frozen=True, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """What the data of events looks like: a JSON Schema, and examples that meet it."""

    version: Name
    schema: JsonSchema
    examples: Examples = ()


class EventTypeBody(msgspec.Struct, frozen=True, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """An event type as it is stored, whole.

    Versions are in order, the newest last. An event says its version by `dataschema`, which is a version's name or the
    `$id` of its schema; without it, the newest is meant. Events that do not meet the schema are refused (`reject`),
    accepted with a warning in the receipt (`warn`) or not looked at (`off`).
    """

    description: Description = ""
    validation: Validation = Validation.WARN
    versions: Annotated[Sequence[EventTypeVersion], Meta(max_length=MOST_VERSIONS)] = ()


class EventTypeView(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """An event type of the catalogue."""

    type: str
    description: str
    validation: Validation
    versions: Sequence[EventTypeVersion]


class EventTypeList(msgspec.Struct, frozen=True, rename="camel"):
    """A page of the catalogue, by type; and what happens to events of types that it does not have."""

    event_types: list[EventTypeView]
    unknown_types: Validation
    cursor: str | None


class DataToCheck(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Data to compare with the schema of an event type: of a version, else of the newest."""

    data: Raw
    version: Name | UnsetType = UNSET


class DataCheck(msgspec.Struct, frozen=True):
    """Whether data meets the schema, and what is wrong with it."""

    valid: bool
    version: str | None
    problems: list[str]
