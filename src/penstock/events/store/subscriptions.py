"""Subscriptions and pools: making, changing, pausing, removing and looking them up."""

import msgspec

from penstock.domain.subscription import Pool, Subscription
from penstock.events.errors import PoolNotFound, SubscriptionNameTaken, UnknownSubscription
from penstock.events.store.transaction import Row, Transaction

_decode = msgspec.json.Decoder(Subscription).decode
_encode = msgspec.json.Encoder(enc_hook=dict).encode


def add_subscription(tx: Transaction, subscription: Subscription) -> None:
    """Keep a new subscription; SubscriptionExists when the tenant has one of that name."""
    if not tx.all("add_subscription", **_values(subscription), paused=subscription.paused):
        raise SubscriptionNameTaken(subscription.name)


def change_subscription(tx: Transaction, subscription: Subscription) -> None:
    """Keep what a subscription says now, all but whether it is paused."""
    values = _values(subscription)
    if tx.all("name_taken", id=subscription.id, tenant=subscription.tenant, name=subscription.name):
        raise SubscriptionNameTaken(subscription.name)
    if not tx.all("change_subscription", id=values["id"], name=values["name"], definition=values["definition"]):
        raise UnknownSubscription(subscription.id)


def set_paused(tx: Transaction, subscription_id: str, paused: bool) -> None:
    """Pause a subscription, or let it go on."""
    # A claim that still sees it paused would put to sleep what is woken here.
    tx.gate(exclusive=not paused)
    if not tx.all("pause_subscription", id=subscription_id, paused=paused):
        raise UnknownSubscription(subscription_id)
    if not paused:
        tx.all("wake_lanes_of_subscription", subscription_id=subscription_id)
        tx.announce()


def delete_subscription(tx: Transaction, subscription_id: str) -> None:
    """Forget a subscription; its jobs stay until they are cancelled."""
    tx.gate(exclusive=True)
    if not tx.all("delete_subscription", id=subscription_id):
        raise UnknownSubscription(subscription_id)
    tx.all("wake_lanes_of_subscription", subscription_id=subscription_id)


def get_subscription(tx: Transaction, subscription_id: str) -> Subscription:
    """A subscription; SubscriptionNotFound."""
    row = tx.first("subscription", id=subscription_id)
    if row is None:
        raise UnknownSubscription(subscription_id)
    return _subscription_of(row)


def list_subscriptions(tx: Transaction) -> list[Subscription]:
    """All subscriptions, the oldest first."""
    return [_subscription_of(row) for row in tx.all("subscriptions")]


def put_pool(tx: Transaction, pool: Pool) -> None:
    """Keep a pool, new or changed."""
    tx.all("put_pool", **msgspec.structs.asdict(pool))


def get_pool(tx: Transaction, code: str) -> Pool:
    """A pool; PoolNotFound."""
    row = tx.first("pool", code=code)
    if row is None:
        raise PoolNotFound(code)
    return Pool(*row)


def list_pools(tx: Transaction) -> list[Pool]:
    """All pools, by code."""
    return [Pool(*row) for row in tx.all("pools")]


def delete_pool(tx: Transaction, code: str) -> None:
    """Forget a pool; PoolNotFound."""
    if not tx.all("delete_pool", code=code):
        raise PoolNotFound(code)


def _values(subscription: Subscription) -> dict[str, object]:
    return {
        "id": subscription.id,
        "tenant": subscription.tenant,
        "name": subscription.name,
        "definition": _encode(subscription).decode(),
    }


def _subscription_of(row: Row) -> Subscription:
    definition, paused = row
    return msgspec.structs.replace(_decode(definition), paused=bool(paused))
