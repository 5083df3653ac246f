"""Which parts one machine runs, in the order they start: each needs only those before it."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from penstock.edge.clock import SystemClock
from penstock.machine.supervisor import Part
from penstock.sqs.client import Endpoint, SqsClient
from penstock.sqs.model import CreateQueueRequest, QueueUrlResponse

DISPATCH_QUEUE = "dispatch.fifo"
LOOPBACK = "127.0.0.0/8,::1/128"


class Ports(msgspec.Struct, frozen=True, kw_only=True):
    """Where the parts listen; 0 is any free port."""

    http: int = 8080
    sqs: int = 9324
    pubsub: int = 8085
    router: int = 8081


def parts_of(directory: Path, ports: Ports, environment: Mapping[str, str]) -> list[Part]:
    """SQS server, Pub/Sub front, API with the scheduler, and router."""
    data = ("--data", str(directory))

    def sqs(at: Mapping[str, str]) -> tuple[str, ...]:
        return ("serve", "sqs", "--port", _port(at, "sqs", ports.sqs), *data)

    def pubsub(at: Mapping[str, str]) -> tuple[str, ...]:
        return ("serve", "pubsub", "--port", _port(at, "pubsub", ports.pubsub), "--probe-port", "0", *data)

    def api(at: Mapping[str, str]) -> tuple[str, ...]:
        queue = _dispatch_queue(at["sqs"])
        port = _port(at, "api", ports.http)
        return ("serve", "dispatch", "--port", port, "--queue", queue, "--dead-letters", at["pubsub"], *data)

    def router(at: Mapping[str, str]) -> tuple[str, ...]:
        configuration = f"{at['api']}/api/router/config"
        return ("serve", "router", "--port", _port(at, "router", ports.router), "--config", configuration)

    return [
        Part("sqs", "SQS; any AWS SDK by its endpoint URL", sqs, environment),
        Part("pubsub", "Pub/Sub; Google's clients by PUBSUB_EMULATOR_HOST", pubsub, environment),
        Part("api", "events, subscriptions, jobs", api, environment),
        Part("router", "deliveries, pools, breakers, warnings", router, environment),
    ]


def _port(at: Mapping[str, str], part: str, wanted: int) -> str:
    # A port that was chosen freely stays when the part is started again: others know it.
    return at[part].rstrip("/").rpartition(":")[2] if part in at else str(wanted)


def _dispatch_queue(sqs_url: str) -> str:
    """The URL of the queue between scheduler and router, which is made if it is not there."""
    with SqsClient(Endpoint.parse(sqs_url), SystemClock()) as client:
        request = CreateQueueRequest(DISPATCH_QUEUE, {"FifoQueue": "true"})
        return client.call("CreateQueue", request, QueueUrlResponse).queue_url
