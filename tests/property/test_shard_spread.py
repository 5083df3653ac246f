"""The spreading of shards over nodes: even, settled after one round of moves, and never more moves than needed."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.cluster.nodes.spread import Node, Shard, View, can_serve, plan, to_claim, to_give

INSTANCES = [f"i{number}" for number in range(6)]


@st.composite
def views(draw: st.DrawFn) -> View:
    live = draw(st.lists(st.sampled_from(INSTANCES), unique=True, max_size=5))
    nodes = [
        Node(f"n{each}", each, "", ("htfifo",) if draw(st.booleans()) else (), draining=draw(st.booleans()))
        for each in live
    ]
    shards = [
        Shard(
            f"s{number}",
            draw(st.sampled_from([None, *INSTANCES])),
            needs=("htfifo",) if draw(st.booleans()) else (),
        )
        for number in range(draw(st.integers(0, 9)))
    ]
    return View(tuple(nodes), tuple(shards))


def after_moves(view: View) -> View:
    """The view once every node has given away and claimed what it should."""
    given = {name for node in view.nodes for name in to_give(view, node.instance)}
    freed = View(view.nodes, tuple(replace(each, owner=None) if each.name in given else each for each in view.shards))
    claims = {name: node.instance for node in freed.nodes for name in to_claim(freed, node.instance)}
    return View(
        view.nodes,
        tuple(replace(each, owner=claims.get(each.name, each.owner)) for each in freed.shards),
    )


@given(views())
def test_every_shard_that_a_node_can_serve_has_one_owner_after_the_moves(view: View) -> None:
    settled = after_moves(view)
    for shard in settled.shards:
        able = [node.instance for node in view.nodes if not node.draining and can_serve(node, shard)]
        assert (shard.owner in able) if able else plan(settled).get(shard.name) is None
    for _ in range(len(view.shards)):
        settled = after_moves(settled)
    assert after_moves(settled) == settled


@given(views())
def test_equal_nodes_have_equal_shares_with_the_fewest_moves(view: View) -> None:
    nodes = tuple(replace(node, capabilities=("htfifo",), draining=False) for node in view.nodes)
    view = View(nodes, view.shards)
    if not nodes:
        assert plan(view) == {}
        return
    loads = {node.instance: 0 for node in nodes}
    for instance in plan(view).values():
        loads[instance] += 1
    assert max(loads.values()) - min(loads.values()) <= 1
    held = {node.instance: [each for each in view.shards if each.owner == node.instance] for node in nodes}
    base, odd = divmod(len(view.shards), len(nodes))
    kept = sum(plan(view)[each.name] == each.owner for each in view.shards)
    most = sum(min(len(each), base) for each in held.values()) + min(odd, sum(len(e) > base for e in held.values()))
    assert kept == most


@given(views())
def test_two_nodes_never_claim_the_same_shard(view: View) -> None:
    claims = [(name, node.instance) for node in view.nodes for name in to_claim(view, node.instance)]
    claimed_by = dict(claims)
    assert len(claims) == len(claimed_by)
    live = {node.instance for node in view.nodes}
    owned = [shard for shard in view.shards if shard.name in claimed_by and shard.owner in live]
    assert all(shard.owner == claimed_by[shard.name] for shard in owned)
