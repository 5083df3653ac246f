"""Which subscriptions want which events of a batch: each distinct type is asked about once, filters row by row."""

from collections.abc import Mapping, Sequence

import numpy
import pyarrow
from numpy.typing import NDArray

from penstock.domain.matching import EventPattern, PatternIndex
from penstock.pipeline.fan_out.catalog import Wish

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
