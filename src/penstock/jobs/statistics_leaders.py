"""The groups with most attempts of a minute, in bounded memory and mergeable.

With `floor` the most that a group may have that is not held, for every group

    held:  true attempts  <=  `attempts`  <=  true attempts + `error`,      not held:  true attempts  <=  `floor`,

and merging keeps both. `failed` and `busy_ms` are what was seen while the group was held: never too much.
"""

from collections.abc import Iterable

import msgspec

LEADERS_KEPT = 50


class Leader(msgspec.Struct, frozen=True, array_like=True):
    """One group, with how much `attempts` may be too large."""

    group_key: str
    attempts: int
    error: int = 0
    failed: int = 0
    busy_ms: int = 0


class Leaders(msgspec.Struct, frozen=True, array_like=True):
    """The groups that are held, most attempts first."""

    held: tuple[Leader, ...] = ()
    floor: int = 0


def leading(counted: Iterable[Leader], most: int = LEADERS_KEPT, floor: int = 0) -> Leaders:
    """The first of groups that were counted one by one; of equal ones, by name."""
    ranked = sorted(counted, key=lambda leader: (-leader.attempts, leader.group_key))
    dropped = ranked[most].attempts if len(ranked) > most else 0
    return Leaders(tuple(ranked[:most]), max(floor, dropped))


def joined(one: Leaders, other: Leaders, most: int = LEADERS_KEPT) -> Leaders:
    """The leaders of both together."""
    mine = {leader.group_key: leader for leader in one.held}
    theirs = {leader.group_key: leader for leader in other.held}
    both = (
        _sum(mine.get(key) or _unseen(key, one.floor), theirs.get(key) or _unseen(key, other.floor))
        for key in mine.keys() | theirs.keys()
    )
    return leading(both, most, one.floor + other.floor)


def _unseen(group_key: str, floor: int) -> Leader:
    return Leader(group_key, floor, floor)


def _sum(one: Leader, other: Leader) -> Leader:
    return Leader(
        one.group_key,
        one.attempts + other.attempts,
        one.error + other.error,
        one.failed + other.failed,
        one.busy_ms + other.busy_ms,
    )
