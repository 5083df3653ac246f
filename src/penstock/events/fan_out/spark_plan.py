"""Events × subscriptions → jobs, as DataFrames. Without a shuffle: an event's jobs come from one task, side by side.

The subscriptions as tasks get them: what fan-out asks of one, packed. Their secrets stay on the driver.

Which subscriptions want which events of a batch: each distinct type is asked about once, filters row by row.

Batches of events to batches of jobs, column by column. Pure; equal to `jobs.fan_out.FanOut` for every event.

A batch that several tasks share, divided by groups.

Tasks end in any order. Were the events of a group spread over several, a later one's job could be delivered before an
earlier one's is made.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import msgspec
import numpy
import pyarrow
import pyarrow.compute
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from penstock.domain.ids import job_id_for
from penstock.domain.matching import EventFilter, EventPattern, PatternIndex
from penstock.domain.order import DEFAULT_GROUP
from penstock.domain.pointer import DispatchMode
from penstock.domain.subscription import Subscription
from penstock.events.fan_out.columns import PLANNED_JOBS_ARROW, SetAsideEvents, examined
from penstock.spark.schemas import POSITION


class Wish(msgspec.Struct, frozen=True, array_like=True):
    """Which events a subscription wants, and what its jobs are like."""

    id: str
    tenant: str
    pattern: str
    filter: EventFilter
    target: str
    pool: str
    mode: DispatchMode


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Wish]).decode


def packed(subscriptions: Iterable[Subscription]) -> bytes:
    """The subscriptions of this moment; the same ones give the same bytes."""
    return _encode(
        [
            Wish(each.id, each.tenant, each.pattern, each.filter, each.target, each.pool, each.mode)
            for each in subscriptions
        ]
    )


def unpacked(catalog: bytes) -> list[Wish]:
    """What `packed` took."""
    return _decode(catalog)


Places = NDArray[numpy.int64]

# Of types that were met before; a publisher who makes up types must not fill the memory.
_MOST_REMEMBERED = 100_000


class Matching:
    """All subscriptions, ready to be asked about batches of events. They are told by their place among `wishes`."""

    def __init__(self, wishes: Sequence[Wish]) -> None:
        self._filters = [wish.filter for wish in wishes]
        self.asks = numpy.array([bool(wish.filter.conditions) for wish in wishes], dtype=bool)
        self._by_tenant: dict[str, PatternIndex[int]] = {}
        for place, wish in enumerate(wishes):
            index = self._by_tenant.setdefault(wish.tenant, PatternIndex())
            index.add(EventPattern.parse(wish.pattern), place)
        self._met: dict[tuple[str, str], Places] = {}

    def wanting(self, tenants: pyarrow.StringArray, types: pyarrow.StringArray) -> tuple[list[Places], Places]:
        """Per distinct tenant and type who wants it, filters aside; and per event which of these it is."""
        tenants, types = tenants.dictionary_encode(), types.dictionary_encode()
        width = len(types.dictionary)
        pairs = tenants.indices.to_numpy().astype(numpy.int64) * width + types.indices.to_numpy()
        distinct, of_event = numpy.unique(pairs, return_inverse=True)
        names, kinds = tenants.dictionary.to_pylist(), types.dictionary.to_pylist()
        return [self._of(names[pair // width], kinds[pair % width]) for pair in distinct.tolist()], of_event

    def passes(self, place: int, attributes: Mapping[str, str]) -> bool:
        """Whether a subscription's filter takes an event with these attributes."""
        return self._filters[place].passes(attributes)

    def _of(self, tenant: str, event_type: str) -> Places:
        met = self._met.get((tenant, event_type))
        if met is None:
            if len(self._met) >= _MOST_REMEMBERED:
                self._met.clear()
            index = self._by_tenant.get(tenant)
            met = numpy.array([] if index is None else index.matching(event_type), dtype=numpy.int64)
            self._met[tenant, event_type] = met
        return met


_JOINT = job_id_for("", "")


class Planned(NamedTuple):
    """Some events, all the jobs they cause, and those beside them that cause none because they are damaged."""

    event_ids: pyarrow.StringArray
    jobs: pyarrow.RecordBatch
    set_aside: Sequence[SetAsideEvents]


class Pairs(NamedTuple):
    """Some events, and who wants which of them: pairs of places in the events and among the subscriptions."""

    events: pyarrow.RecordBatch
    event_at: Places
    wish_at: Places
    set_aside: Sequence[SetAsideEvents]


class Planner:
    """The subscriptions of one moment, ready to be asked about any number of batches."""

    def __init__(self, wishes: Sequence[Wish]) -> None:
        self._matching = Matching(wishes)
        self._wishes = {
            name: pyarrow.array([getattr(wish, name) for wish in wishes], pyarrow.string())
            for name in ("id", "target", "pool", "mode")
        }

    @property
    def subscription_ids(self) -> list[str]:
        """The subscriptions by their places."""
        ids: list[str] = self._wishes["id"].to_pylist()
        return ids

    def plan(self, events: pyarrow.RecordBatch, most_jobs: int) -> Iterator[Planned]:
        """The jobs, in pieces of at most so many; more only if one event causes more."""
        for found in self.pairs(events, most_jobs):
            jobs = self._jobs(found.events, found.event_at, found.wish_at)
            yield Planned(found.events.column("id"), jobs, found.set_aside)

    def pairs(self, events: pyarrow.RecordBatch, most_pairs: int) -> Iterator[Pairs]:
        """Who wants what, in pieces; damaged events are told with the first of them."""
        events, attributes, set_aside = examined(events)
        wanting, of_event = self._matching.wanting(events.column("tenant"), events.column("type"))
        counts = numpy.array([len(places) for places in wanting], dtype=numpy.int64)[of_event]
        for start, end in _pieces(counts, most_pairs):
            part = events.slice(start, end - start)
            event_at, wish_at = _pairs(wanting, of_event[start:end])
            wanted = self._passing(part, attributes[start:end], event_at, wish_at)
            yield Pairs(part, event_at[wanted], wish_at[wanted], set_aside)
            set_aside = ()
        if set_aside:
            yield Pairs(events, _NONE, _NONE, set_aside)

    def _passing(
        self, events: pyarrow.RecordBatch, attributes: Sequence[Mapping[str, str]], event_at: Places, wish_at: Places
    ) -> "numpy.ndarray[tuple[int], numpy.dtype[numpy.bool_]]":
        """Which pairs the filters leave: only subscriptions that have one are asked."""
        wanted = ~self._matching.asks[wish_at]
        asking = numpy.flatnonzero(~wanted)
        if len(asking):
            filterable = _Filterable(events, attributes)
            pairs = zip(asking.tolist(), event_at[asking].tolist(), wish_at[asking].tolist(), strict=True)
            for row, event, wish in pairs:
                wanted[row] = self._matching.passes(wish, filterable.of(event))
        return wanted

    def _jobs(self, events: pyarrow.RecordBatch, event_at: Places, wish_at: Places) -> pyarrow.RecordBatch:
        event_places, wish_places = pyarrow.array(event_at), pyarrow.array(wish_at)
        of_event = {
            name: events.column(name).take(event_places)
            for name in ("id", "tenant", "type", "group_name", "content_type", "received_ms")
        }
        of_wish = {name: column.take(wish_places) for name, column in self._wishes.items()}
        group = of_event["group_name"]
        named = pyarrow.compute.fill_null(pyarrow.compute.not_equal(group, ""), False)
        columns = {
            **of_event,
            "id": _joined(of_event["id"], of_wish["id"], _JOINT),
            "event_id": of_event["id"],
            "subscription_id": of_wish["id"],
            "group_key": _joined(of_wish["id"], pyarrow.compute.if_else(named, group, DEFAULT_GROUP), ":"),
            "mode": of_wish["mode"],
            "target": of_wish["target"],
            "pool": of_wish["pool"],
            "created_at_ms": of_event["received_ms"],
        }
        return pyarrow.RecordBatch.from_arrays(
            [columns[name] for name in PLANNED_JOBS_ARROW.names], schema=PLANNED_JOBS_ARROW
        )


class _Filterable:
    """What filters can ask of the events of a batch, by the rule of `Event.filterable`; put together once for each."""

    def __init__(self, events: pyarrow.RecordBatch, attributes: Sequence[Mapping[str, str]]) -> None:
        self._attributes = attributes
        self._ids = events.column("id").to_pylist()
        self._external_ids = events.column("external_id").to_pylist()
        self._sources = events.column("source").to_pylist()
        self._types = events.column("type").to_pylist()
        self._subjects = events.column("subject").to_pylist()
        self._last: tuple[int, Mapping[str, str]] = (-1, {})

    def of(self, place: int) -> Mapping[str, str]:
        """The attributes of an event, and what every event has."""
        if self._last[0] != place:
            named = {
                **self._attributes[place],
                "id": self._external_ids[place] or self._ids[place],
                "source": self._sources[place],
                "type": self._types[place],
            }
            if self._subjects[place] is not None:
                named["subject"] = self._subjects[place]
            self._last = (place, named)
        return self._last[1]


@lru_cache(maxsize=2)
def planner_of(catalog: bytes) -> Planner:
    """The planner of packed subscriptions; a process that meets the same ones again has it at hand."""
    return Planner(unpacked(catalog))


def _pieces(counts: Places, most_jobs: int) -> Iterator[tuple[int, int]]:
    """Runs of events that cause about so many jobs together."""
    until = numpy.cumsum(counts)
    start, before = 0, 0
    while start < len(counts):
        end = max(start + 1, int(numpy.searchsorted(until, before + most_jobs, side="right")))
        yield start, end
        start, before = end, int(until[end - 1])


def _pairs(wanting: Sequence[Places], of_event: Places) -> tuple[Places, Places]:
    """All pairs of an event and who wants it, as places: the events in their order."""
    counts = numpy.array([len(places) for places in wanting], dtype=numpy.int64)
    starts = (numpy.cumsum(counts) - counts)[of_event]
    counts = counts[of_event]
    event_at = numpy.repeat(numpy.arange(len(of_event)), counts)
    within = numpy.arange(len(event_at)) - numpy.repeat(numpy.cumsum(counts) - counts, counts)
    flat = numpy.concatenate(wanting) if wanting else _NONE
    return event_at, flat[numpy.repeat(starts, counts) + within]


def _joined(left: pyarrow.StringArray, right: pyarrow.StringArray, joint: str) -> pyarrow.StringArray:
    return pyarrow.compute.binary_join_element_wise(left, right, joint)


_NONE: Places = numpy.array([], dtype=numpy.int64)


def by_group(events: DataFrame, tasks: int) -> DataFrame:
    """All events of a group in one task, in any order."""
    return events.repartition(tasks, "tenant", _group())


def in_order(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """A task's events in the order in which they were published; Spark itself sorts no stream."""
    gathered = list(batches)
    if gathered:
        order = [(POSITION, "ascending"), ("id", "ascending")]
        yield from pyarrow.Table.from_batches(gathered).sort_by(order).combine_chunks().to_batches()


def _group() -> Column:
    """The rule of `core.order.group_key`: no group is the group `default`."""
    return f.when(f.col("group_name") != "", f.col("group_name")).otherwise(DEFAULT_GROUP)
