"""A pool: how many deliveries run at once, and how many per minute."""

import msgspec

from penstock.core.errors import InvalidArgument

DEFAULT_CONCURRENCY = 10


class Pool(msgspec.Struct, frozen=True):
    """The pace of the jobs that name it."""

    code: str
    concurrency: int = DEFAULT_CONCURRENCY
    rate_limit_per_minute: int | None = None

    def __post_init__(self) -> None:
        if not self.code:
            raise InvalidArgument("a pool needs a code")
        if self.concurrency < 1:
            raise InvalidArgument(f"the concurrency of pool {self.code!r} is {self.concurrency}: use 1 or more")
        if self.rate_limit_per_minute is not None and self.rate_limit_per_minute < 1:
            raise InvalidArgument(
                f"the rate limit of pool {self.code!r} is {self.rate_limit_per_minute}: use 1 or more, or none"
            )
