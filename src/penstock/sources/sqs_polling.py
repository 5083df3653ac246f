"""How an SQS queue is polled; the numbers are seed 000's."""

import msgspec


class SqsPolling(msgspec.Struct, frozen=True):
    """Settings of every poll of SQS queues."""

    most: int = 10
    wait_s: int = 20
    # Of any call, so longer than a poll waits.
    timeout_s: float = 25.0
