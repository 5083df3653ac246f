"""The store on a local disk, and whether that disk has room."""

import os

from penstock.edge.disk_room import DiskRoom, FreeBytes, free_bytes
from penstock.queue.errors import StoreFailed
from penstock.queue.store.port import Shares, WriteBatch
from penstock.queue.store.sqlite import SqliteStore


class DiskStore(SqliteStore):
    """Knows whether its latest commit failed for lack of room, and whether there is room since."""

    def __init__(
        self, path: str | os.PathLike[str], *, durability: str = "fsync", free: FreeBytes = free_bytes
    ) -> None:
        super().__init__(path, durability=durability)
        self.room = DiskRoom(self._path.parent, free)

    def apply(self, batch: WriteBatch) -> Shares:
        """Commit a batch; StoreFailed if nothing was kept."""
        try:
            shares = super().apply(batch)
        except StoreFailed as error:
            self.room.refused(error.__cause__)
            raise
        self.room.kept()
        return shares
