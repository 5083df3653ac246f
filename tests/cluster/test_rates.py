"""Routers of several nodes take the permits of a rate limit from their database."""

import asyncio

from penstock.cluster.nodes import RatePermits
from penstock.domain.pace.rate import Grant

LIMIT = 20


async def test_the_routers_of_a_database_share_the_permits_of_a_pool(postgres_database: str) -> None:
    routers = [RatePermits(postgres_database) for _ in range(3)]
    asked = [routers[number % 3].take("pool", 1 + number % 7, LIMIT, None) for number in range(12)]
    grants = [grant for grant in await asyncio.gather(*asked) if grant.count]
    assert sum(grant.count for grant in grants) == LIMIT
    refused = await routers[0].take("pool", 1, LIMIT, None)
    assert refused.count == 0
    assert 0 < refused.wait_s < 62
    # Another pool has permits of its own, and what is returned can be taken by another router.
    assert (await routers[0].take("other", 5, LIMIT, None)).count == 5
    unused = max(grants, key=lambda grant: grant.count)
    assert (await routers[1].take("pool", 2, LIMIT, Grant(unused.id, 2))).count == 2
    assert (await routers[2].take("pool", 1, LIMIT, None)).count == 0
    # A lower limit counts what was taken before; a higher one takes effect immediately.
    assert (await routers[2].take("pool", 1, LIMIT - 5, None)).count == 0
    assert (await routers[2].take("pool", 9, LIMIT + 3, None)).count == 3
    for router in routers:
        await router.aclose()
