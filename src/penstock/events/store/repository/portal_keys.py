"""The keys with which tokens of the customers' portal are signed, one for each tenant."""

from penstock.events.store.database import RepositoryPart, Transaction, reads, writes


class PortalKeys(RepositoryPart):
    """Keys of tenants."""

    @writes
    def portal_key(self, tx: Transaction, tenant: str, new: str) -> str:
        """Return the key of a tenant: `new` if it has none yet."""
        tx.all("add_portal_key", tenant=tenant, key=new)
        ((key,),) = tx.all("portal_key", tenant=tenant)
        return str(key)

    @writes
    def rotate_portal_key(self, tx: Transaction, tenant: str, new: str) -> None:
        """Replace the key of a tenant."""
        tx.all("rotate_portal_key", tenant=tenant, key=new)

    @reads
    def find_portal_key(self, tx: Transaction, tenant: str) -> str | None:
        """Return the key of a tenant, if it has one."""
        row = tx.first("portal_key", tenant=tenant)
        return None if row is None else str(row[0])
