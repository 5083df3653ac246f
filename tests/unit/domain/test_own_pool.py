"""The pool that a subscription has for itself, and the mode of events without a key."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.domain.pointer import DispatchMode
from penstock.domain.subscription import Subscription, UnkeyedOrder, is_pool_code, own_pool

NAMES = st.text(st.characters(blacklist_categories=("Cs", "Cc")), min_size=1, max_size=256)
PAIRS = st.tuples(st.just("") | NAMES, NAMES)


@given(one=PAIRS, other=PAIRS)
def test_no_two_subscriptions_have_the_same_pool(one: tuple[str, str], other: tuple[str, str]) -> None:
    assert (own_pool(*one) == own_pool(*other)) is (one == other)
    assert is_pool_code(own_pool(*one))


def test_a_pool_is_named_after_its_subscription() -> None:
    assert own_pool("", "billing") == "billing"
    assert own_pool("shop", "billing") == "shop/billing"
    assert own_pool("", "shop/billing") == "shop%2Fbilling"


def test_an_event_without_a_key_has_no_order_unless_asked_for() -> None:
    free = Subscription(id="s", name="s", pattern="**", target="https://a.example")
    ordered = Subscription(id="s", name="s", pattern="**", target="https://a.example", unkeyed=UnkeyedOrder.ORDERED)

    assert [free.mode_of(key) for key in ("k", "", None)] == [
        DispatchMode.BLOCK_ON_ERROR,
        DispatchMode.IMMEDIATE,
        DispatchMode.IMMEDIATE,
    ]
    assert [ordered.mode_of(key) for key in ("k", "", None)] == [DispatchMode.BLOCK_ON_ERROR] * 3
