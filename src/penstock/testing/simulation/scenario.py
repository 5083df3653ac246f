"""The scenario of a seed: queues, pools, groups, messages and faults."""

import msgspec

from penstock.domain.pointer import DispatchMode, MessagePointer
from penstock.queues import QueueSpec
from penstock.router import PoolConfiguration, RouterConfiguration
from penstock.testing.simulation.chance import Chance
from penstock.testing.simulation.endpoint import EndpointFaults
from penstock.testing.simulation.source import LinkFaults

PUBLISHING_S = 200.0
TROUBLE_S = 400.0
_BURST_GROUPS = 40


class PlannedQueue(msgspec.Struct, frozen=True):
    """A queue and the network to it."""

    name: str
    ordered: bool
    visibility_s: float
    connections: int
    faults: LinkFaults
    # Whether messages name their group in the body alone.
    group_in_body: bool = False


class PlannedPublication(msgspec.Struct, frozen=True):
    """A message, its queue, and when it is sent."""

    at_s: float
    queue: str
    pointer: MessagePointer


class Scenario(msgspec.Struct, frozen=True):
    """Everything that a seed determines before the simulation starts."""

    pools: tuple[PoolConfiguration, ...]
    queues: tuple[PlannedQueue, ...]
    endpoints: dict[str, EndpointFaults]
    publications: tuple[PlannedPublication, ...]
    # Number of routers that share the queues.
    routers: int
    # Whether only one of them consumes, and the others stand by.
    standby: bool = False

    def configuration(self) -> RouterConfiguration:
        """Return the router's first configuration."""
        queues = tuple(QueueSpec(each.name, f"simulated:{each.name}", each.connections) for each in self.queues)
        return RouterConfiguration(self.pools, queues)


def scenario_of(chance: Chance) -> Scenario:
    """Return the scenario of a seed."""
    queues = tuple(_queue(chance.fork(f"queue {number}"), number) for number in range(chance.whole(1, 4)))
    pools = tuple(_pool(chance.fork(f"pool {number}"), number) for number in range(chance.whole(1, 5)))
    endpoints = {
        f"http://e{number}.test/": _endpoint(chance.fork(f"e {number}")) for number in range(chance.whole(1, 3))
    }
    roles = chance.fork("routers")
    routers, standby = roles.one_of([1, 1, 2]), roles.happens(0.5)
    publications = [
        publication
        for queue in queues
        for number in range(chance.whole(1, 6))
        for publication in _group(chance.fork(f"{queue.name} {number}"), queue.name, number, pools, list(endpoints))
    ]
    publications += _burst(chance.fork("burst"), queues, pools, list(endpoints))
    in_time = tuple(sorted(publications, key=lambda each: each.at_s))
    return Scenario(pools, queues, endpoints, in_time, routers, standby and routers > 1)


def _queue(chance: Chance, number: int) -> PlannedQueue:
    trouble = chance.one_of([0.0, 0.02, 0.1])
    faults = LinkFaults(
        lost_request=trouble,
        lost_answer=trouble,
        slow=chance.one_of([0.0, 0.05, 0.3]),
        stall=chance.one_of([0.0, 0.02]),
        lost_heartbeat=chance.one_of([0.0, 0.3, 0.9]),
        is_shut=chance.fork("shut").happens(0.1),
    )
    return PlannedQueue(
        f"q{number}",
        chance.happens(0.8),
        chance.one_of([10.0, 15.0, 30.0]),
        chance.whole(1, 3),
        faults,
        chance.fork("body").happens(0.3),
    )


def _pool(chance: Chance, number: int) -> PoolConfiguration:
    return PoolConfiguration(f"P{number}", chance.whole(1, 6), chance.one_of([None, None, 6, 30]))


def _endpoint(chance: Chance) -> EndpointFaults:
    trouble = chance.one_of([0.0, 0.05, 0.3])
    return EndpointFaults(
        server_error=trouble,
        refusal=chance.one_of([0.0, 0.02]),
        deferral=chance.one_of([0.0, 0.1]),
        rate_limited=chance.one_of([0.0, 0.1]),
        broken_before=trouble / 2,
        broken_after=trouble / 3,
        slow=chance.one_of([0.0, 0.0, 0.1]),
    )


def _burst(
    chance: Chance, queues: tuple[PlannedQueue, ...], pools: tuple[PoolConfiguration, ...], endpoints: list[str]
) -> list[PlannedPublication]:
    """Return messages of many groups that come at once, more than their pool has room for; mostly none."""
    if not chance.happens(0.2):
        return []
    at_s, queue = chance.between(0.0, PUBLISHING_S), chance.one_of(queues).name
    target, code = chance.one_of(endpoints), chance.one_of(pools).code
    return [
        PlannedPublication(
            at_s,
            queue,
            MessagePointer(
                id=f"{queue}-burst-{number:03}",
                mediation_target=target,
                pool_code=code,
                message_group_id=f"{queue}-burst-{number % _BURST_GROUPS}",
            ),
        )
        for number in range(chance.whole(60, 150))
    ]


def _group(
    chance: Chance, queue: str, number: int, pools: tuple[PoolConfiguration, ...], endpoints: list[str]
) -> list[PlannedPublication]:
    """Return the messages of a group, with one endpoint, one pool (which may not exist) and one mode."""
    group = f"{queue}-g{number}"
    code = chance.one_of([*(pool.code for pool in pools), "NO-SUCH-POOL"])
    target = chance.one_of(endpoints)
    mode = chance.one_of([DispatchMode.BLOCK_ON_ERROR] * 4 + [DispatchMode.NEXT_ON_ERROR, DispatchMode.IMMEDIATE])
    times = sorted(chance.between(0.0, PUBLISHING_S) for _ in range(chance.whole(1, 20)))
    return [
        PlannedPublication(
            at_s,
            queue,
            MessagePointer(
                id=f"{group}-{index:03}",
                mediation_target=target,
                pool_code=code,
                message_group_id=group,
                high_priority=chance.happens(0.1),
                dispatch_mode=mode,
            ),
        )
        for index, at_s in enumerate(times)
    ]
