"""Which node should own which shard: an even share each, with as few moves as possible (SQS-NODE-6).

Every node computes the same plan from the same view, so that only one of them claims a free shard. Who owns a shard is
decided by its lease alone: a node with an old view may try, and is refused.
"""

from collections.abc import Iterable

import msgspec


class Node(msgspec.Struct, frozen=True):
    """A live node."""

    name: str
    instance: str
    """A number of this process: a restarted node has the same name and another instance."""
    address: str
    capabilities: tuple[str, ...] = ()
    left_s: float = 0.0
    """How long it counts as live without another renewal, by the clock of the database."""
    draining: bool = False
    """Whether it is about to stop: it hands over what it has and claims nothing."""


class Shard(msgspec.Struct, frozen=True):
    """A part of the data with one owner at a time."""

    name: str
    owner: str | None = None
    """The instance of the node that last owned it; None if that node handed it over."""
    epoch: int = 0
    needs: tuple[str, ...] = ()
    """The capabilities that its owner must have."""
    moves: int = 0


class View(msgspec.Struct, frozen=True):
    """The live nodes and all shards at one moment."""

    nodes: tuple[Node, ...] = ()
    shards: tuple[Shard, ...] = ()

    def owner_of(self, shard: str) -> Node | None:
        """Return the live node that owns a shard."""
        instance = next((each.owner for each in self.shards if each.name == shard), None)
        return None if instance is None else self.node(instance)

    def node(self, instance: str) -> Node | None:
        """Return a live node."""
        return next((node for node in self.nodes if node.instance == instance), None)


def plan(view: View) -> dict[str, str]:
    """Return the instance that should own each shard; a shard that no live node can serve is left out."""
    nodes = {node.instance: node for node in view.nodes if not node.draining}
    held: dict[str, list[Shard]] = {instance: [] for instance in nodes}
    open_shards: list[Shard] = []
    for shard in sorted(view.shards, key=lambda each: each.name):
        owner = None if shard.owner is None else nodes.get(shard.owner)
        if owner is not None and can_serve(owner, shard):
            held[owner.instance].append(shard)
        else:
            open_shards.append(shard)
    shares = _shares(held, len(view.shards))
    for instance, shards in held.items():
        open_shards += shards[shares[instance] :]
        del shards[shares[instance] :]
    chosen = {shard.name: instance for instance, shards in held.items() for shard in shards}
    load = {instance: len(shards) for instance, shards in held.items()}
    # Those that few nodes can serve come first, so that the others fill the rest.
    for shard in sorted(open_shards, key=lambda each: -len(each.needs)):
        able = [instance for instance, node in nodes.items() if can_serve(node, shard)]
        if able:
            chosen[shard.name] = min(able, key=lambda each: (load[each] >= shares[each], load[each], nodes[each].name))
            load[chosen[shard.name]] += 1
    return chosen


def can_serve(node: Node, shard: Shard) -> bool:
    """Return whether a node has the capabilities that a shard needs."""
    return set(shard.needs) <= set(node.capabilities)


def to_claim(view: View, instance: str) -> list[str]:
    """Return the shards that this node should have now: planned for it, and without another live owner."""
    planned = plan(view)
    others = [node for node in view.nodes if node.instance != instance]
    return [shard.name for shard in view.shards if planned.get(shard.name) == instance and not _is_owned(others, shard)]


def to_give(view: View, instance: str) -> list[str]:
    """Return the shards that this node owns and another one should have."""
    planned = plan(view)
    return [
        shard.name for shard in view.shards if shard.owner == instance and planned.get(shard.name, instance) != instance
    ]


def _is_owned(nodes: Iterable[Node], shard: Shard) -> bool:
    return any(node.instance == shard.owner for node in nodes)


def _shares(held: dict[str, list[Shard]], shards: int) -> dict[str, int]:
    """Return how many shards each node may have; those that have most already get the odd ones."""
    if not held:
        return {}
    base, odd = divmod(shards, len(held))
    fullest = sorted(held, key=lambda instance: (-len(held[instance]), instance))
    return {instance: base + (place < odd) for place, instance in enumerate(fullest)}
