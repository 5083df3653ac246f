"""Subscriptions and pools: create, change, pause, delete and look them up."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from penstock.domain.pace.credit import CreditLimits
from penstock.domain.subscription import Pool, Subscription
from penstock.events.errors import PoolNotFound, SubscriptionNameTaken, UnknownSubscription
from penstock.events.store.database import RepositoryPart, Row, Transaction, reads, writes

_decode = msgspec.json.Decoder(Subscription).decode
_encode = msgspec.json.Encoder(enc_hook=dict).encode


class ChangedSubscriptions(NamedTuple):
    """All subscriptions, after this number of changes."""

    changes: int
    subscriptions: list[Subscription]


class SubscriptionRecords(RepositoryPart):
    """Subscriptions; UnknownSubscription for an id that none has."""

    @writes
    def add_subscription(self, tx: Transaction, subscription: Subscription) -> None:
        """Keep a new subscription; SubscriptionNameTaken when the tenant has one of that name."""
        if not tx.all("add_subscription", **_values(subscription), paused=subscription.paused):
            raise SubscriptionNameTaken(subscription.name)

    @writes
    def change_subscription(self, tx: Transaction, subscription: Subscription) -> None:
        """Keep the new definition of a subscription; whether it is paused does not change."""
        values = _values(subscription)
        if tx.all("name_taken", id=subscription.id, tenant=subscription.tenant, name=subscription.name):
            raise SubscriptionNameTaken(subscription.name)
        if not tx.all("change_subscription", id=values["id"], name=values["name"], definition=values["definition"]):
            raise UnknownSubscription(subscription.id)

    @writes
    def pause_subscription(self, tx: Transaction, subscription_id: str) -> None:
        """Stop taking its jobs."""
        tx.gate(exclusive=False)
        _set_paused(tx, subscription_id, True)

    @writes
    def resume_subscription(self, tx: Transaction, subscription_id: str) -> None:
        """Take its jobs again."""
        # A claim that still sees it paused would put to sleep the lanes that wake here.
        tx.gate(exclusive=True)
        _set_paused(tx, subscription_id, False)
        tx.all("wake_lanes_of_subscription", subscription_id=subscription_id)
        tx.announce()

    @writes
    def delete_subscription(self, tx: Transaction, subscription_id: str) -> None:
        """Delete a subscription; its jobs stay until they are cancelled."""
        tx.gate(exclusive=True)
        if not tx.all("delete_subscription", id=subscription_id):
            raise UnknownSubscription(subscription_id)
        tx.all("wake_lanes_of_subscription", subscription_id=subscription_id)

    @writes
    def seal_subscriptions(self, tx: Transaction, seal: Callable[[Subscription], Subscription]) -> None:
        """Replace what `seal` changes of stored subscriptions, and leave no trace of what was there before."""
        for definition, paused in tx.all("subscriptions"):
            stored = _subscription_of((definition, paused))
            sealed = seal(stored)
            if sealed != stored:
                tx.overwrite_replaced()
                # What another node has changed meanwhile, it has sealed.
                new = _encode(msgspec.structs.replace(sealed, paused=False)).decode()
                tx.all("replace_definition", id=stored.id, definition=new, before=definition)

    @reads
    def get_subscription(self, tx: Transaction, subscription_id: str) -> Subscription:
        """Return a subscription."""
        row = tx.first("subscription", id=subscription_id)
        if row is None:
            raise UnknownSubscription(subscription_id)
        return _subscription_of(row)

    @reads
    def list_subscriptions(self, tx: Transaction) -> list[Subscription]:
        """Return all subscriptions, the oldest first."""
        return [_subscription_of(row) for row in tx.all("subscriptions")]

    @reads
    def changed_subscriptions(self, tx: Transaction, changes: int) -> ChangedSubscriptions | None:
        """Return all subscriptions, the oldest first, unless they have changed exactly this often."""
        # Counted first: of a change in between, at most too much is read the next time.
        ((now,),) = tx.all("subscription_changes")
        if now == changes:
            return None
        return ChangedSubscriptions(now, [_subscription_of(row) for row in tx.all("subscriptions")])


class PoolRecords(RepositoryPart):
    """Pools; PoolNotFound for a code that none has."""

    @writes
    def put_pool(self, tx: Transaction, pool: Pool) -> None:
        """Keep a pool, new or changed."""
        tx.all("put_pool", **msgspec.structs.asdict(pool))

    @reads
    def get_pool(self, tx: Transaction, code: str) -> Pool:
        """Return a pool."""
        row = tx.first("pool", code=code)
        if row is None:
            raise PoolNotFound(code)
        return Pool(*row)

    @reads
    def list_pools(self, tx: Transaction) -> list[Pool]:
        """Return all pools, by code."""
        return [Pool(*row) for row in tx.all("pools")]

    @writes
    def delete_pool(self, tx: Transaction, code: str) -> None:
        """Delete a pool."""
        if not tx.all("delete_pool", code=code):
            raise PoolNotFound(code)

    @reads
    def pool_limits(self, tx: Transaction) -> dict[str, CreditLimits]:
        """Return the limits of all pools that subscriptions name or that were created."""
        return read_pool_limits(tx)

    @writes
    def add_pool_queues(self, tx: Transaction, codes: Sequence[str]) -> None:
        """Record that routers consume the queues of pools from now on."""
        tx.bulk("add_pool_queues", [(code,) for code in codes])

    @reads
    def pool_queues(self, tx: Transaction) -> list[str]:
        """Return the pools whose queues routers consume."""
        return [code for (code,) in tx.all("pool_queues")]

    @writes
    def delete_pool_queue(self, tx: Transaction, code: str) -> bool:
        """Forget the queue of a pool; return whether it was known."""
        return bool(tx.all("delete_pool_queue", code=code))

    @reads
    def pool_has_jobs(self, tx: Transaction, code: str) -> bool:
        """Return whether jobs of a pool wait to be published or are on their way."""
        return bool(tx.all("pool_has_jobs", code=code)[0][0])


def read_pool_limits(tx: Transaction) -> dict[str, CreditLimits]:
    """Return the limits of all pools that subscriptions name or that were created."""
    named = Counter(_subscription_of(row).pool_code for row in tx.all("subscriptions"))
    pools = {code: Pool(code) for code in named} | {code: Pool(code, *rest) for code, *rest in tx.all("pools")}
    return {
        code: CreditLimits(pool.concurrency, pool.rate_limit_per_minute, named[code] > 1)
        for code, pool in pools.items()
    }


def _set_paused(tx: Transaction, subscription_id: str, paused: bool) -> None:
    if not tx.all("pause_subscription", id=subscription_id, paused=paused):
        raise UnknownSubscription(subscription_id)


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
