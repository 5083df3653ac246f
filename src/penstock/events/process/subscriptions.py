"""Subscriptions as deliveries need them: each is read once, until one of them changes."""

from penstock.delivery import SecretBox
from penstock.domain.subscription import Subscription
from penstock.events.store import JobRepository


class KnownSubscriptions:
    """Keeps subscriptions in memory for as long as none has changed in the database."""

    def __init__(self, repository: JobRepository, secret_box: SecretBox) -> None:
        self._repository = repository
        self._secret_box = secret_box
        self._changes = -1
        self._known: dict[str, Subscription] = {}

    async def get(self, subscription_id: str, changes: int) -> Subscription:
        """Return a subscription, its secrets opened; UnknownSubscription.

        `changes` is how often subscriptions had changed at the least.
        """
        if changes > self._changes:
            self._changes, self._known = changes, {}
        found = self._known.get(subscription_id)
        if found is None:
            # It goes where it belongs even if the others change meanwhile: then that is not looked at any more.
            known = self._known
            stored = await self._repository.get_subscription(subscription_id)
            found = known[subscription_id] = self._secret_box.opened(stored)
        return found
