"""Compares published events with the schemas of their types.

The catalogue is kept in memory and read again when it may have changed: immediately after a change through this
process, after a second for one of another. A schema is compiled when the first event needs it.
"""

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Protocol

import msgspec

from penstock.client.types import DataCheck, EventTypeView, JsonSchema
from penstock.domain.errors import InvalidArgument
from penstock.domain.event import MISSING, Filterable, StoredEvent, Validation
from penstock.domain.limits import SECOND_MS
from penstock.edge.clock import Clock
from penstock.events.catalogue.schema_limits import MOST_DEPTH, check_schema, depth_of
from penstock.events.store import ChangedEventTypes

if TYPE_CHECKING:
    from jsonschema_rs import Validator

_MOST_PROBLEMS = 5
_MOST_CHARACTERS = 200
_MOST_REGEX_BYTES = 1 << 20
_MASK = "the value"
"""Stands for values of events, which may be secret, in what is said about them."""


class CompiledSchema:
    """A schema that data can be compared with; InvalidArgument if it is wrong or not allowed."""

    def __init__(self, schema: JsonSchema) -> None:
        self._is_recursive = check_schema(schema)
        self._validator: Validator = _compiled(schema)

    def problems(self, data: object) -> list[str]:
        """Return what is wrong with the data, the first few problems, in words."""
        if self._is_recursive and depth_of(data, MOST_DEPTH) > MOST_DEPTH:
            return [f"the data is nested more than {MOST_DEPTH} levels deep"]
        if self._validator.is_valid(data):
            return []
        found = islice(self._validator.iter_errors(data), _MOST_PROBLEMS)
        return [_in_words(each.message, each.instance_path) for each in found]


def _compiled(schema: JsonSchema) -> "Validator":
    # Only where there are schemas: the module costs a start 50 ms, and 15 MB on the disk.
    import jsonschema_rs

    # Patterns take linear time, which is why they have no lookaround and no references to groups.
    patterns = jsonschema_rs.RegexOptions(size_limit=_MOST_REGEX_BYTES, dfa_size_limit=_MOST_REGEX_BYTES)
    try:
        return jsonschema_rs.validator_for(schema, offline=True, pattern_options=patterns, mask=_MASK)
    except jsonschema_rs.ValidationError as error:
        what = error.message
        if what.endswith('is not a "regex"'):
            what = "one of its patterns is not a regular expression, too large, or uses lookaround or a reference"
        raise InvalidArgument(f"the schema is wrong: {_in_words(what, error.instance_path)}") from error
    except (ValueError, jsonschema_rs.ReferencingError) as error:
        raise InvalidArgument(f"the schema is wrong: {str(error)[:_MOST_CHARACTERS]}") from error


def _in_words(message: str, path: Sequence[str | int]) -> str:
    place = ".".join(map(str, path))
    text = f"{place}: {message}" if place else message
    return text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 1]}…"


class EventTypeSource(Protocol):
    """Knows the catalogue, and how often it has changed."""

    async def changed_event_types(self, changes: int) -> ChangedEventTypes | None:
        """Return the catalogue, unless it has changed exactly this often."""
        ...


class EventSchemas:
    """Says what is wrong with events by the catalogue of their types."""

    def __init__(self, source: EventTypeSource, clock: Clock, unknown_types: Validation) -> None:
        self._source = source
        self._clock = clock
        self.unknown_types = unknown_types
        self._changes = -1
        self._known: dict[str, _KnownType] = {}
        self._read_ms: int | None = None
        self._forgotten = 0

    def forget(self) -> None:
        """Read the catalogue again before the next event: it was changed."""
        self._read_ms = None
        self._forgotten += 1

    async def check(self, events: Sequence[StoredEvent]) -> list[list[str]]:
        """Return the warnings about each event; InvalidArgument if one is to be refused."""
        await self._refresh()
        if not self._known and self.unknown_types is Validation.OFF:
            return [[] for _ in events]
        return [self._warnings(event) for event in events]

    async def _refresh(self) -> None:
        now_ms = self._clock.now_ms()
        if self._read_ms is not None and 0 <= now_ms - self._read_ms < SECOND_MS:
            return
        forgotten = self._forgotten
        changed = await self._source.changed_event_types(self._changes)
        if changed is not None:
            before = self._known
            self._changes = changed.changes
            self._known = {
                each.type: known if (known := before.get(each.type)) and known.view == each else _KnownType(each)
                for each in changed.event_types
            }
        if forgotten == self._forgotten:
            self._read_ms = now_ms

    def _warnings(self, event: StoredEvent) -> list[str]:
        known = self._known.get(event.type)
        if known is None:
            problem = f"the type {event.type!r} is not in the catalogue of event types"
            return [] if self.unknown_types is Validation.OFF else _said(event, [problem], self.unknown_types)
        if known.view.validation is Validation.OFF or not known.view.versions:
            return []
        data = Filterable(event.attributes, event.data, event.content_type).data
        return _said(event, known.check(data, event.attributes.get("dataschema")).problems, known.view.validation)


def _said(event: StoredEvent, problems: list[str], validation: Validation) -> list[str]:
    if problems and validation is Validation.REJECT:
        raise InvalidArgument(f"event {event.external_id!r} of type {event.type!r} is refused: {'; '.join(problems)}")
    return problems


class _KnownType:
    """An event type, with its schemas as far as they were needed."""

    def __init__(self, view: EventTypeView) -> None:
        self.view = view
        self._schemas: dict[str, CompiledSchema] = {}

    def check(self, data: object, wanted: str | None) -> DataCheck:
        return check_data(self.view, data, wanted, self._schemas)


def check_data(
    view: EventTypeView, data: object, wanted: str | None, schemas: dict[str, CompiledSchema] | None = None
) -> DataCheck:
    """Compare data with the wanted version of a type, by its name or its schema's `$id`, else with the newest.

    Schemas that were compiled are kept in `schemas`, by version.
    """
    if not view.versions:
        return DataCheck(True, None, [])
    found = [each for each in view.versions if wanted in (each.version, each.schema.get("$id"))]
    if wanted is not None and not found:
        versions = ", ".join(each.version for each in view.versions)
        return DataCheck(False, None, [f"dataschema {wanted[:100]!r} is not a version of it; there are {versions}"])
    version = found[-1] if wanted is not None else view.versions[-1]
    if data is MISSING:
        return DataCheck(False, version.version, ["the data is not JSON"])
    schemas = {} if schemas is None else schemas
    schema = schemas.get(version.version)
    if schema is None:
        schema = schemas[version.version] = CompiledSchema(version.schema)
    problems = [f"{each} (version {version.version})" for each in schema.problems(data)]
    return DataCheck(not problems, version.version, problems)


def check_event_type(view: EventTypeView) -> None:
    """Raise InvalidArgument if a type cannot be in the catalogue: a schema is wrong, or an example does not meet it."""
    names = [each.version for each in view.versions]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise InvalidArgument(f"version {min(twice)!r} is given twice")
    for each in view.versions:
        try:
            schema = CompiledSchema(each.schema)
        except InvalidArgument as error:
            raise InvalidArgument(f"version {each.version!r}: {error.message}") from error
        for number, example in enumerate(each.examples, 1):
            problems = schema.problems(example)
            if problems:
                said = "; ".join(problems)
                raise InvalidArgument(f"example {number} of version {each.version!r} does not meet its schema: {said}")


def decoded(content: bytes) -> object:
    """Return JSON as Python's values, or MISSING."""
    try:
        return msgspec.json.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return MISSING
