"""What a queue holds, by state."""

import msgspec


class Counters(msgspec.Struct, frozen=True, kw_only=True):
    """Message counts and bytes of one queue; `in_store` counts those beyond the window in memory."""

    visible: int
    leased: int
    delayed: int
    settling: int
    total_bytes: int
    leased_bytes: int
    in_store: int = 0

    @property
    def total(self) -> int:
        """Every message the queue is responsible for."""
        return self.visible + self.leased + self.delayed + self.settling + self.in_store

    def beyond_window(self, messages: int, size_bytes: int) -> "Counters":
        """With the messages that are in the store only."""
        return msgspec.structs.replace(self, in_store=messages, total_bytes=self.total_bytes + size_bytes)
