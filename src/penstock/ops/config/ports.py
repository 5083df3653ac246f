"""Where the parts listen, but for the API, which has settings of its own."""

from dataclasses import dataclass

from penstock.ops.config import kinds
from penstock.ops.config.setting import setting

_PORT = kinds.integer(0, 65535)


@dataclass(frozen=True, kw_only=True)
class PortSettings:
    """Ports of the parts beside the API; 0 takes a free one. An option of a command goes before its setting."""

    sqs: int = setting(9324, _PORT, "The SQS server.")
    pubsub: int = setting(8085, _PORT, "The Pub/Sub API.")
    pubsub_probes: int = setting(8086, _PORT, "Health and metrics of the Pub/Sub API.")
    router: int = setting(8081, _PORT, "The router's API.")
    scheduler: int = setting(8082, _PORT, "Health and metrics of the scheduler.")
    pipeline: int = setting(8083, _PORT, "Health, metrics and progress of the pipeline.")
