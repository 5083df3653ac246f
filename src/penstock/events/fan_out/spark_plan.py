"""The jobs of events for all matching subscriptions, column by column; equal to `FanOut` in rule.py for every event.

The plan needs no shuffle: the jobs of an event come from one task. A batch that several tasks share is divided by
group, because tasks end in any order and the jobs of a group must be stored in order.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeAlias

import msgspec
import numpy
import pyarrow
import pyarrow.compute
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from penstock.domain.event import Filterable, is_high_priority_event
from penstock.domain.ids import job_id_for
from penstock.domain.matching import EventFilter, EventPattern, PatternIndex
from penstock.domain.order import DEFAULT_GROUP
from penstock.domain.pointer import DispatchMode
from penstock.domain.subscription import Subscription
from penstock.events.fan_out.columns import PLANNED_JOBS_ARROW, SetAsideEvents, examined
from penstock.spark.schemas import POSITION

Places = NDArray[numpy.int64]
Flags = NDArray[numpy.bool_]
_NONE: Places = numpy.array([], dtype=numpy.int64)
_JOINT = job_id_for("", "")
# Bounds the memory for types, which publishers may invent.
_MOST_REMEMBERED = 100_000
# Bounds the memory for data, of which an event may have much.
_MOST_READ = 200

DataOf: TypeAlias = Callable[[Sequence[str]], Mapping[str, bytes]]
"""Reads the data of events by their ids."""


def no_data(event_ids: Sequence[str]) -> Mapping[str, bytes]:
    """Refuse, where no filter reads data."""
    raise AssertionError(f"a filter asks for the data of {len(event_ids)} events, which is not available")


class PackedSubscription(msgspec.Struct, frozen=True, array_like=True):
    """What fan-out needs of a subscription. Secrets stay on the driver."""

    id: str
    tenant: str
    pattern: str
    filter: EventFilter
    target: str
    pool: str
    mode: DispatchMode
    unkeyed_mode: DispatchMode
    high_priority: bool


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[PackedSubscription]).decode


def packed(subscriptions: Iterable[Subscription]) -> bytes:
    """Return the subscriptions as bytes; equal subscriptions give equal bytes."""
    return _encode(
        [
            PackedSubscription(
                id=each.id,
                tenant=each.tenant,
                pattern=each.pattern,
                filter=each.filter,
                target=each.target,
                pool=each.pool_code,
                mode=each.mode,
                unkeyed_mode=each.mode_of(None),
                high_priority=each.high_priority,
            )
            for each in subscriptions
        ]
    )


def unpacked(catalog: bytes) -> list[PackedSubscription]:
    """Return what `packed` was given."""
    return _decode(catalog)


def by_group(events: DataFrame, tasks: int) -> DataFrame:
    """Send all events of a group to one task, in any order."""
    return events.repartition(tasks, "tenant", _group())


def in_order(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """Return a task's events in the order in which they were published, because Spark cannot sort a stream."""
    gathered = list(batches)
    if gathered:
        order = [(POSITION, "ascending"), ("id", "ascending")]
        yield from pyarrow.Table.from_batches(gathered).sort_by(order).combine_chunks().to_batches()


def _group() -> Column:
    """Return the group by the rule of `domain.order.group_key`: no group is the group `default`."""
    return f.when(f.col("group_name") != "", f.col("group_name")).otherwise(DEFAULT_GROUP)


class Planned(NamedTuple):
    """Some events, all jobs they cause, and damaged events that cause none."""

    event_ids: pyarrow.StringArray
    jobs: pyarrow.RecordBatch
    set_aside: Sequence[SetAsideEvents]


class Pairs(NamedTuple):
    """Some events, and who wants which of them: pairs of places among the events and the subscriptions."""

    events: pyarrow.RecordBatch
    high_priority: Flags
    """Which of the events have high priority."""
    event_at: Places
    subscription_at: Places
    set_aside: Sequence[SetAsideEvents]


class Planner:
    """Plans any number of batches for the subscriptions of one moment."""

    def __init__(self, subscriptions: Sequence[PackedSubscription]) -> None:
        self._matcher = BatchMatcher(subscriptions)
        self._subscriptions = {
            name: pyarrow.array([getattr(each, name) for each in subscriptions], pyarrow.string())
            for name in ("id", "target", "pool", "mode", "unkeyed_mode")
        }
        self._high_priority = numpy.array([each.high_priority for each in subscriptions], dtype=bool)

    @property
    def subscription_ids(self) -> list[str]:
        """Return the ids of the subscriptions by their places."""
        ids: list[str] = self._subscriptions["id"].to_pylist()
        return ids

    def plan(self, events: pyarrow.RecordBatch, most_jobs: int, data_of: DataOf = no_data) -> Iterator[Planned]:
        """Return the jobs in pieces of up to `most_jobs`, or more if one event causes more."""
        for found in self.pairs(events, most_jobs, data_of):
            jobs = self._jobs(found)
            yield Planned(found.events.column("id"), jobs, found.set_aside)

    def pairs(self, events: pyarrow.RecordBatch, most_pairs: int, data_of: DataOf = no_data) -> Iterator[Pairs]:
        """Return who wants what in pieces; damaged events come with the first."""
        events, attributes, set_aside = examined(events)
        wanting, of_event = self._matcher.wanting(events.column("tenant"), events.column("type"))
        counts = numpy.array([len(places) for places in wanting], dtype=numpy.int64)[of_event]
        high = numpy.array([is_high_priority_event(each) for each in attributes], dtype=bool)
        for start, end in _pieces(counts, most_pairs):
            part = events.slice(start, end - start)
            event_at, subscription_at = _pairs(wanting, of_event[start:end])
            wanted = self._passing(_Filterables(part, attributes[start:end], data_of), event_at, subscription_at)
            yield Pairs(part, high[start:end], event_at[wanted], subscription_at[wanted], set_aside)
            set_aside = ()
        if set_aside:
            yield Pairs(events, high, _NONE, _NONE, set_aside)

    def _passing(self, events: "_Filterables", event_at: Places, subscription_at: Places) -> Flags:
        """Return which pairs pass the filters; only subscriptions with a filter are asked."""
        wanted: Flags = ~self._matcher.asks[subscription_at]
        asking = numpy.flatnonzero(~wanted)
        if len(asking):
            event_at, subscription_at = event_at[asking], subscription_at[asking]
            events.prepare(numpy.unique(event_at[self._matcher.reads_data[subscription_at]]).tolist())
            pairs = zip(asking.tolist(), event_at.tolist(), subscription_at.tolist(), strict=True)
            for row, event, subscription in pairs:
                wanted[row] = self._matcher.passes(subscription, events.at(event))
        return wanted

    def _jobs(self, found: Pairs) -> pyarrow.RecordBatch:
        event_places, subscription_places = pyarrow.array(found.event_at), pyarrow.array(found.subscription_at)
        high_priority = found.high_priority[found.event_at] | self._high_priority[found.subscription_at]
        of_event = {
            name: found.events.column(name).take(event_places)
            for name in ("id", "tenant", "type", "group_name", "content_type", "received_ms")
        }
        of_subscription = {name: column.take(subscription_places) for name, column in self._subscriptions.items()}
        group = of_event["group_name"]
        named = pyarrow.compute.fill_null(pyarrow.compute.not_equal(group, ""), False)
        columns = {
            **of_event,
            "id": _joined(of_event["id"], of_subscription["id"], _JOINT),
            "event_id": of_event["id"],
            "subscription_id": of_subscription["id"],
            "group_key": _joined(of_subscription["id"], pyarrow.compute.if_else(named, group, DEFAULT_GROUP), ":"),
            "mode": pyarrow.compute.if_else(named, of_subscription["mode"], of_subscription["unkeyed_mode"]),
            "high_priority": pyarrow.array(high_priority),
            "target": of_subscription["target"],
            "pool": of_subscription["pool"],
            "created_at_ms": of_event["received_ms"],
        }
        return pyarrow.RecordBatch.from_arrays(
            [columns[name] for name in PLANNED_JOBS_ARROW.names], schema=PLANNED_JOBS_ARROW
        )


@lru_cache(maxsize=2)
def planner_of(catalog: bytes) -> Planner:
    """Return the planner of packed subscriptions; a process reuses it for the same ones."""
    return Planner(unpacked(catalog))


class _Filterables:
    """What filters can ask of events, by the rule of `StoredEvent.filterable`; asked for in the order of the events."""

    def __init__(self, events: pyarrow.RecordBatch, attributes: Sequence[Mapping[str, str]], data_of: DataOf) -> None:
        self._events = events
        self._attributes = attributes
        self._data_of = data_of
        self._data: Mapping[str, bytes] = {}
        self._last: tuple[int, Filterable] | None = None

    def prepare(self, reading: list[int]) -> None:
        """Get ready to be asked, also for the data of the events at these places, which is read in bulk."""
        names = ("id", "external_id", "source", "type", "subject", "content_type")
        self._ids, self._external_ids, self._sources, self._types, self._subjects, self._content_types = (
            self._events.column(name).to_pylist() for name in names
        )
        self._read_at = {
            reading[start]: reading[start : start + _MOST_READ] for start in range(0, len(reading), _MOST_READ)
        }

    def at(self, place: int) -> Filterable:
        """Return an event's attributes, with those that every event has, and its data if that was prepared."""
        if self._last is None or self._last[0] != place:
            self._last = place, self._filterable(place)
        return self._last[1]

    def _filterable(self, place: int) -> Filterable:
        event_id = self._ids[place]
        named = {
            **self._attributes[place],
            "id": self._external_ids[place] or event_id,
            "source": self._sources[place],
            "type": self._types[place],
        }
        if self._subjects[place] is not None:
            named["subject"] = self._subjects[place]
        if place in self._read_at:
            self._data = self._data_of([self._ids[each] for each in self._read_at[place]])
        return Filterable(named, self._data.get(event_id, b""), self._content_types[place])


def _pieces(counts: Places, most_jobs: int) -> Iterator[tuple[int, int]]:
    """Return runs of events that cause about `most_jobs` jobs together."""
    until = numpy.cumsum(counts)
    start, before = 0, 0
    while start < len(counts):
        end = max(start + 1, int(numpy.searchsorted(until, before + most_jobs, side="right")))
        yield start, end
        start, before = end, int(until[end - 1])


def _pairs(wanting: Sequence[Places], of_event: Places) -> tuple[Places, Places]:
    """Return all pairs of an event and a subscription that wants it, as places in the order of the events."""
    counts = numpy.array([len(places) for places in wanting], dtype=numpy.int64)
    starts = (numpy.cumsum(counts) - counts)[of_event]
    counts = counts[of_event]
    event_at = numpy.repeat(numpy.arange(len(of_event)), counts)
    within = numpy.arange(len(event_at)) - numpy.repeat(numpy.cumsum(counts) - counts, counts)
    flat = numpy.concatenate(wanting) if wanting else _NONE
    return event_at, flat[numpy.repeat(starts, counts) + within]


def _joined(left: pyarrow.StringArray, right: pyarrow.StringArray, joint: str) -> pyarrow.StringArray:
    return pyarrow.compute.binary_join_element_wise(left, right, joint)


class BatchMatcher:
    """Matches batches of events with all subscriptions, which are identified by their places in the list."""

    def __init__(self, subscriptions: Sequence[PackedSubscription]) -> None:
        self._filters = [each.filter for each in subscriptions]
        self.asks = numpy.array([not each.filter.is_empty for each in subscriptions], dtype=bool)
        self.reads_data = numpy.array([each.filter.reads_data for each in subscriptions], dtype=bool)
        self._by_tenant: dict[str, PatternIndex[int]] = {}
        for place, each in enumerate(subscriptions):
            index = self._by_tenant.setdefault(each.tenant, PatternIndex())
            index.add(EventPattern.parse(each.pattern), place)
        self._known: dict[tuple[str, str], Places] = {}

    def wanting(self, tenants: pyarrow.StringArray, types: pyarrow.StringArray) -> tuple[list[Places], Places]:
        """Return who wants each distinct tenant and type, filters aside, and which of these each event has."""
        tenants, types = tenants.dictionary_encode(), types.dictionary_encode()
        width = len(types.dictionary)
        pairs = tenants.indices.to_numpy().astype(numpy.int64) * width + types.indices.to_numpy()
        distinct, of_event = numpy.unique(pairs, return_inverse=True)
        names, kinds = tenants.dictionary.to_pylist(), types.dictionary.to_pylist()
        return [self._of(names[pair // width], kinds[pair % width]) for pair in distinct.tolist()], of_event

    def passes(self, place: int, event: Filterable) -> bool:
        """Return whether an event passes a subscription's filter."""
        return self._filters[place].passes(event)

    def _of(self, tenant: str, event_type: str) -> Places:
        met = self._known.get((tenant, event_type))
        if met is None:
            if len(self._known) >= _MOST_REMEMBERED:
                self._known.clear()
            index = self._by_tenant.get(tenant)
            met = numpy.array([] if index is None else index.matching(event_type), dtype=numpy.int64)
            self._known[tenant, event_type] = met
        return met
