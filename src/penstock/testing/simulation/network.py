"""The simulated network between routers and endpoints, which checks every delivery."""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Mapping

import msgspec

from penstock.delivery import Answer, RequestHead
from penstock.domain.pace.rate import WINDOW_MS
from penstock.domain.pointer import DispatchMode, MessagePointer
from penstock.domain.signing import Signature
from penstock.edge.clock import Clock
from penstock.testing.simulation.endpoint import SimulatedEndpoint
from penstock.testing.simulation.history import Delivery


class PoolLimits(msgspec.Struct, frozen=True):
    """The current limits of a pool."""

    code: str
    concurrency: int
    rate_limit_per_minute: int | None


class _Body(msgspec.Struct, rename="camel"):
    message_id: str


class SimulatedNetwork:
    """The endpoints, all deliveries to them, and in `findings` the invariants that were broken."""

    def __init__(self, endpoints: Mapping[str, SimulatedEndpoint], pointers: Mapping[str, MessagePointer]) -> None:
        self.findings: list[str] = []
        self.deliveries: list[Delivery] = []
        self._endpoints = endpoints
        self._pointers = pointers

    def pointer(self, body: bytes) -> MessagePointer:
        """Return the message of a request."""
        return self._pointers[msgspec.json.decode(body, type=_Body).message_id]

    async def carry(self, pointer: MessagePointer) -> Answer:
        """Send a delivery to its endpoint, and return the answer."""
        self.deliveries.append(Delivery(asyncio.get_running_loop().time(), pointer.id))
        return await self._endpoints[pointer.mediation_target].take(pointer.id, pointer.group)


class NetworkLink:
    """The HTTP client of one router, which checks what it sends; `cut` simulates the crash of its process."""

    def __init__(
        self,
        network: SimulatedNetwork,
        clock: Clock,
        limits_of: Callable[[str], PoolLimits],
        has_lease: Callable[[str], bool],
    ) -> None:
        self._network = network
        self._clock = clock
        self._limits_of = limits_of
        self._has_lease = has_lease
        self._is_cut = False
        self._under_way: Counter[str] = Counter()
        self._in_group: Counter[str] = Counter()
        self._in_pool: Counter[str] = Counter()
        self._starts: dict[str, deque[int]] = {}
        self._rates: dict[str, int | None] = {}

    async def send(
        self, head: RequestHead, body: bytes, signature: Signature | None = None, *, timeout_s: float | None = None
    ) -> Answer:
        """Send a request and return its answer."""
        if self._is_cut:
            # The process has crashed: tasks that still run in it end here.
            raise asyncio.CancelledError
        pointer = self._network.pointer(body)
        limits = self._limits_of(pointer.id)
        self._check_start(pointer, limits)
        self._under_way[pointer.id] += 1
        self._in_group[pointer.group] += 1
        self._in_pool[limits.code] += 1
        try:
            return await self._network.carry(pointer)
        finally:
            self._under_way[pointer.id] -= 1
            self._in_group[pointer.group] -= 1
            self._in_pool[limits.code] -= 1

    def cut(self) -> None:
        """Send nothing any more."""
        self._is_cut = True

    def limits_changed(self) -> None:
        """Ignore earlier deliveries when checking the new limits."""
        self._rates.clear()

    def _check_start(self, pointer: MessagePointer, limits: PoolLimits) -> None:
        findings = self._network.findings
        if not self._has_lease(pointer.id):
            findings.append(f"message {pointer.id} is delivered without its lease")
        if self._under_way[pointer.id]:
            findings.append(f"two deliveries of message {pointer.id} at once")
        if pointer.dispatch_mode is not DispatchMode.IMMEDIATE and self._in_group[pointer.group]:
            findings.append(f"two deliveries of group {pointer.group} at once, the second of {pointer.id}")
        if self._in_pool[limits.code] >= limits.concurrency:
            findings.append(f"more than {limits.concurrency} deliveries at once in pool {limits.code}")
        self._check_rate(limits)

    def _check_rate(self, limits: PoolLimits) -> None:
        rate = limits.rate_limit_per_minute
        if rate is None or self._rates.get(limits.code) != rate:
            self._starts[limits.code] = deque()
            self._rates[limits.code] = rate
        starts = self._starts[limits.code]
        now_ms = self._clock.now_ms()
        starts.append(now_ms)
        while now_ms - starts[0] >= WINDOW_MS:
            starts.popleft()
        if rate is not None and len(starts) > rate:
            self._network.findings.append(
                f"{len(starts)} deliveries within a minute in pool {limits.code}, {rate} allowed"
            )
