"""The catalogue of event types."""

from typing import NamedTuple

import msgspec

from penstock.client.types import EventTypeView
from penstock.domain.errors import ResourceExhausted
from penstock.events.errors import EventTypeNotFound
from penstock.events.store.database import RepositoryPart, Transaction, reads, writes

MOST_EVENT_TYPES = 2000

_decode = msgspec.json.Decoder(EventTypeView).decode
_encode = msgspec.json.encode


class ChangedEventTypes(NamedTuple):
    """The whole catalogue, after this number of changes."""

    changes: int
    event_types: list[EventTypeView]


class EventTypeRecords(RepositoryPart):
    """Event types; EventTypeNotFound for a type that the catalogue does not have."""

    @writes
    def put_event_type(self, tx: Transaction, given: EventTypeView) -> None:
        """Keep an event type, new or changed."""
        tx.all("put_event_type", type=given.type, definition=_encode(given).decode())
        ((types,),) = tx.all("count_event_types")
        if types > MOST_EVENT_TYPES:
            raise ResourceExhausted(f"the catalogue has {MOST_EVENT_TYPES} event types, which is the most it may have")
        tx.all("count_event_type_change")

    @writes
    def delete_event_type(self, tx: Transaction, type: str) -> EventTypeView:
        """Forget an event type; return it as it was."""
        deleted = tx.all("delete_event_type", type=type)
        if not deleted:
            raise EventTypeNotFound(type)
        tx.all("count_event_type_change")
        return _decode(deleted[0][0])

    @reads
    def get_event_type(self, tx: Transaction, type: str) -> EventTypeView:
        """Return an event type."""
        row = tx.first("event_type", type=type)
        if row is None:
            raise EventTypeNotFound(type)
        return _decode(row[0])

    @reads
    def list_event_types(self, tx: Transaction) -> list[EventTypeView]:
        """Return all event types, by name."""
        return [_decode(definition) for (definition,) in tx.all("event_types")]

    @reads
    def changed_event_types(self, tx: Transaction, changes: int) -> ChangedEventTypes | None:
        """Return the catalogue, unless it has changed exactly this often."""
        # Counted first: of a change in between, at most too much is read the next time.
        ((now,),) = tx.all("event_type_changes")
        if now == changes:
            return None
        return ChangedEventTypes(now, [_decode(definition) for (definition,) in tx.all("event_types")])
