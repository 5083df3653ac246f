"""Queues of a configuration that cannot be what they say are left out, with a warning; the others go on (seed 000)."""

import msgspec

from penstock.domain.errors import InvalidArgument
from penstock.router.configuration import RouterConfiguration
from penstock.router.warnings import Severity, WarningCode, Warnings
from penstock.sources.opening import QueueSpec
from penstock.sources.uri import queue_uri


def with_usable_queues(configuration: RouterConfiguration, warnings: Warnings) -> RouterConfiguration:
    """The configuration with those of its queues whose URIs name a queue."""
    usable = tuple(queue for queue in configuration.queues if _is_usable(queue, warnings))
    return msgspec.structs.replace(configuration, queues=usable)


def _is_usable(queue: QueueSpec, warnings: Warnings) -> bool:
    try:
        queue_uri(queue.queue_uri)
    except InvalidArgument as error:
        reason = f"queue {queue.queue_name} is not consumed: {error.message}"
        warnings.add(WarningCode.QUEUE_VALIDATION, Severity.WARN, f"queue {queue.queue_name}", reason)
        return False
    return True
