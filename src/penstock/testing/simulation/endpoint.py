"""A simulated endpoint that receives deliveries, fails, and records the order in which messages became final."""

import asyncio
from collections import defaultdict

import msgspec

from penstock.delivery import Answer, ConnectionBroken
from penstock.testing.simulation.chance import Chance

_ACK = b'{"ack":true}'


class EndpointFaults(msgspec.Struct):
    """The faults of an endpoint, as shares of all requests."""

    server_error: float = 0.0
    refusal: float = 0.0
    deferral: float = 0.0
    rate_limited: float = 0.0
    broken_before: float = 0.0
    broken_after: float = 0.0
    slow: float = 0.0


class SimulatedEndpoint:
    """Receives requests; a message is final once it was accepted or rejected for good."""

    def __init__(self, faults: EndpointFaults, chance: Chance) -> None:
        # The final messages by group, in the order in which they first became final.
        self.final: dict[str, list[str]] = defaultdict(list)
        self.requests = 0
        self.faults = faults
        self._chance = chance

    async def take(self, message_id: str, group: str) -> Answer:
        """Process a request."""
        faults, chance = self.faults, self._chance
        self.requests += 1
        await asyncio.sleep(chance.between(5.0, 90.0) if chance.happens(faults.slow) else chance.between(0.001, 0.3))
        if chance.happens(faults.broken_before):
            raise ConnectionBroken("broken before the request was processed")
        if chance.happens(faults.server_error):
            return Answer(chance.one_of([500, 502, 503, 504]), None, b"")
        if chance.happens(faults.rate_limited):
            return Answer(429, chance.one_of([None, "1", "7"]), b"")
        if chance.happens(faults.deferral):
            return Answer(200, None, b'{"ack":false,"delaySeconds":%d}' % chance.whole(0, 60))
        if message_id not in self.final[group]:
            self.final[group].append(message_id)
        if chance.happens(faults.refusal):
            return Answer(chance.one_of([400, 401, 404, 422]), None, b"")
        if chance.happens(faults.broken_after):
            raise ConnectionBroken("broken after the request was processed")
        return Answer(200, None, _ACK)
