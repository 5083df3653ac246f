"""The keys of queues: how URLs, names and ARNs of a client name the queues of a server."""

from penstock.ops.config import QueueScopes
from penstock.sqs.auth.caller import SqsCaller
from penstock.sqs.errors import queue_does_not_exist
from penstock.sqs.names import Scope, arn, parse_arn, parts_of_url, queue_url, scope_and_name


class QueueKeys:
    """Finds the key that a client means; the queues of `home` have plain names as keys."""

    def __init__(self, home: Scope, scopes: QueueScopes) -> None:
        self.home = home
        """The region and account of requests without credentials."""
        self._scopes = scopes

    def key_of_url(self, caller: SqsCaller, url: str) -> str:
        """Return the key of the queue that a client's URL names, if the client may see it."""
        region, account, name = parts_of_url(url)
        scope = caller.scope
        if scope is None:
            scope = self.home if region is None and account is None else self._scope(region, account)
        elif region is not None and region != scope.region:
            raise queue_does_not_exist()
        elif account is not None and account != scope.account:
            scope = self.scope_of(caller, account)
        return name if scope == self.home else scope.key_of(name, self.home)

    def key_of_arn(self, queue_arn: str) -> str | None:
        """Return the key of the queue that an ARN names; None if it is not the ARN of a queue."""
        parsed = parse_arn(queue_arn)
        return None if parsed is None else parsed[0].key_of(parsed[1], self.home)

    def _scope(self, region: str | None, account: str | None) -> Scope:
        return Scope(region or self.home.region, account or self.home.account)

    def scope_of(self, caller: SqsCaller, account: str | None = None) -> Scope:
        """Return the region and account whose queues a caller uses; only admins may name another account."""
        scope = caller.scope or self.home
        if account is None or account == scope.account:
            return scope
        if not caller.admin or self._scopes is QueueScopes.ONE:
            raise queue_does_not_exist()
        return Scope(scope.region, account)

    def key_for(self, caller: SqsCaller, name: str) -> str:
        """Return the key of a caller's queue."""
        return self.scope_of(caller).key_of(name, self.home)

    def place_of(self, key: str) -> tuple[Scope, str]:
        """Return where the queue of a key belongs, and its name."""
        return scope_and_name(key, self.home)

    def arn_of(self, key: str) -> str:
        """Return the ARN of a queue."""
        return arn(*self.place_of(key))

    def url_of(self, caller: SqsCaller, key: str) -> str:
        """Return the URL by which a client names a queue."""
        return queue_url(caller.base_url, *self.place_of(key), self.home)
