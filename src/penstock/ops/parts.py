"""The parts that one machine runs, in the order they start: each needs only those before it."""

import os
import socket
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from urllib.parse import quote

import msgspec

from penstock.edge.clock import SystemClock
from penstock.events.api import ROUTER_CONFIG_PATH as CONFIGURATION
from penstock.events.process import PATH as PROCESS
from penstock.ops.config import FanOutBy
from penstock.ops.part_process import SupervisedPart
from penstock.queues.sqs.request import find_key, find_region
from penstock.sqs import CreateQueueRequest, QueueUrlResponse, is_access_key
from penstock.sqs.auth.signer import Signer
from penstock.sqs.client import BlockingSqsClient, SqsEndpoint

DISPATCH_QUEUE = "dispatch.fifo"
LOOPBACK = "127.0.0.0/8,::1/128"

API_TOKEN = "PENSTOCK_API__TOKEN"
AUTH_SECRET = "PENSTOCK_JOBS__AUTH_SECRET"
DENY_PORTS = "PENSTOCK_EGRESS__DENY_PORTS"

_PARTS = "penstock-parts"
_QUEUES = "PENSTOCK_API__QUEUES"
_FAN_OUT = "PENSTOCK_JOBS__FAN_OUT"
_DATABASE = "PENSTOCK_DATA__DATABASE"
_DIRECTORY = "PENSTOCK_DATA__DIR"
_ROUTER_CONFIGURATION = "MESSAGE_ROUTER_CONFIG_URL"

# A JVM starts slowly on a busy machine.
_SPARK_START_S = 180.0


class Engine(StrEnum):
    """What turns events into jobs and publishes them."""

    SPARK = "spark"
    INLINE = "inline"


class Ports(msgspec.Struct, frozen=True, kw_only=True):
    """The ports of the parts; 0 is any free port."""

    http: int
    sqs: int
    pubsub: int
    router: int
    pipeline: int


def parts_of(
    directory: Path,
    ports: Ports,
    environment: Mapping[str, str],
    engine: Engine,
    options: Sequence[str] = (),
    database: str = "",
    endpoint: str = "",
) -> list[SupervisedPart]:
    """Return the SQS server, Pub/Sub API, API and router, and the pipeline with Spark; else the API runs the scheduler.

    `options` go before every part's command, such as --config FILE. `database` is the URL of PostgreSQL for events and
    jobs; queues stay in the directory. `endpoint` is where routers bring jobs; empty: to the API.
    """
    data = ("--data", str(directory))
    # By the environment: the URL may hold a password, and --data would choose the file in the directory.
    jobs_data = () if database else data
    reserved = [ReservedPort(port) for port in (ports.sqs, ports.pubsub, 0, ports.http, ports.router, ports.pipeline)]
    sqs_port, pubsub_port, pubsub_probe_port, http_port, router_port, pipeline_port = reserved
    environment = {**environment, DENY_PORTS: _with_ports(environment.get(DENY_PORTS, ""), reserved)}
    jobs_environment = {**environment, _DATABASE: database, _DIRECTORY: str(directory)} if database else environment
    with_spark = engine is Engine.SPARK

    def sqs(_: Mapping[str, str]) -> tuple[str, ...]:
        # The parts sign with whatever AWS credentials the environment has; they must see the same queues.
        return (*options, "serve", "sqs", "--port", sqs_port.release(), "--scopes", "one", *data)

    def pubsub(_: Mapping[str, str]) -> tuple[str, ...]:
        port, probe_port = pubsub_port.release(), pubsub_probe_port.release()
        return (*options, "serve", "pubsub", "--port", port, "--probe-port", probe_port, *data)

    def api(at: Mapping[str, str]) -> tuple[str, ...]:
        queue = ("--queue", _dispatch_queue(at["sqs"], environment))
        port = http_port.release()
        shown = ["--router", f"http://127.0.0.1:{router_port.number}", "--queues", at["sqs"]]
        if with_spark:
            shown += ["--pipeline", f"http://127.0.0.1:{pipeline_port.number}"]
        part = "api" if with_spark else "dispatch"
        topics = ("--topics", at["pubsub"])
        return (*options, "serve", part, "--port", port, *queue, *topics, *shown, *jobs_data)

    def router(at: Mapping[str, str]) -> tuple[str, ...]:
        topics = ("--topics", at["pubsub"])
        return (*options, "serve", "router", "--port", router_port.release(), *topics, "--local", *jobs_data)

    def router_configuration(at: Mapping[str, str]) -> Mapping[str, str]:
        configuration = _with_token(f"{at['api']}{CONFIGURATION}", environment.get(API_TOKEN, ""))
        return {_ROUTER_CONFIGURATION: configuration, _QUEUES: at["sqs"]}

    def pipeline(at: Mapping[str, str]) -> tuple[str, ...]:
        port, queue = pipeline_port.release(), ("--queue", _dispatch_queue(at["sqs"], environment))
        processing = ("--endpoint", endpoint or f"{at['api']}{PROCESS}")
        return (*options, "pipeline", "run", "--port", port, *queue, *processing, *jobs_data)

    api_environment = {**jobs_environment, _FAN_OUT: FanOutBy.PIPELINE} if with_spark else jobs_environment
    parts = [
        SupervisedPart("sqs", "SQS; any AWS SDK by its endpoint URL", sqs, environment, port_from=_chosen("sqs")),
        SupervisedPart(
            "pubsub",
            "Pub/Sub; Google's clients by PUBSUB_EMULATOR_HOST",
            pubsub,
            environment,
            port_from=_chosen("pubsub"),
        ),
        SupervisedPart(
            "api",
            "web page; events, subscriptions, jobs",
            api,
            api_environment,
            port_from=_chosen("http", "http.port"),
        ),
        SupervisedPart(
            "router",
            "deliveries, pools, breakers, warnings",
            router,
            jobs_environment,
            secrets=router_configuration,
            port_from=_chosen("router"),
        ),
    ]
    if with_spark:
        purpose = "Spark: fan-out, dispatch, delivery facts"
        how = _chosen("pipeline")
        parts.append(
            SupervisedPart("pipeline", purpose, pipeline, jobs_environment, start_s=_SPARK_START_S, port_from=how)
        )
    return parts


def _chosen(option: str, setting: str = "") -> str:
    """Return how a part's port is chosen: an option of `penstock up`, or a setting."""
    return f"--{option} PORT or the setting {setting or f'ports.{option}'}"


def _with_ports(given: str, reserved: Iterable["ReservedPort"]) -> str:
    return ",".join([*filter(None, given.split(",")), *(str(port.number) for port in reserved)])


def _with_token(url: str, token: str) -> str:
    return url.replace("://", f"://router:{quote(token, safe='')}@", 1) if token else url


def parts_key(environment: Mapping[str, str], secret: str) -> str:
    """Return the key with which the parts sign: the one that AWS's variables or file have, else one with `secret`.

    A user's own clients can then use the same variables; a key that the SQS server does not accept is left alone.
    """
    key = find_key(environment)
    if key is not None and is_access_key(key.access_key, key.secret):
        return f"{key.access_key}:{key.secret}"
    return f"{_PARTS}:{secret}"


def _dispatch_queue(sqs_url: str, environment: Mapping[str, str]) -> str:
    """Return the URL of the queue between scheduler and router; create it if it does not exist."""
    key = find_key(environment)
    signer = None if key is None else Signer(key.access_key, key.secret, find_region(None, environment))
    with BlockingSqsClient(SqsEndpoint.parse(sqs_url), SystemClock(), signer) as client:
        request = CreateQueueRequest(DISPATCH_QUEUE, {"FifoQueue": "true"})
        return client.call("CreateQueue", request, QueueUrlResponse).queue_url


class ReservedPort:
    """A port that is known before its part listens on it; for 0 a free one, reserved until it is released."""

    def __init__(self, wanted: int) -> None:
        self._held: int | None = None
        self.number = wanted
        if wanted == 0:
            with socket.socket() as holder:
                holder.bind(("127.0.0.1", 0))
                self.number = holder.getsockname()[1]
                # Keep it bound, as a bare descriptor: a socket object would warn if the port is never released.
                self._held = holder.detach()

    def release(self) -> str:
        """Release the port for the part that is about to listen on it, the first time or again."""
        if self._held is not None:
            os.close(self._held)
            self._held = None
        return str(self.number)
