"""The parts that one machine runs, in the order they start: each needs only those before it."""

import os
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
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
# The SQS server asks for signatures there.
_EVERYWHERE = "0.0.0.0"

API_TOKEN = "PENSTOCK_API__TOKEN"
AUTH_SECRET = "PENSTOCK_JOBS__AUTH_SECRET"
DENY_PORTS = "PENSTOCK_EGRESS__DENY_PORTS"
LOG_FORMAT = "PENSTOCK_LOG__FORMAT"

_PARTS = "penstock-parts"
_NODE_ID = "PENSTOCK_NODE__ID"
_MOST_PARTS = 8
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
    pubsub_nodes: int = 0
    """Where the Pub/Sub API takes calls of other nodes."""


class NodeRole(msgspec.Struct, frozen=True, kw_only=True):
    """This machine as a node of the cluster of its database."""

    name: str
    host: str = ""
    """Where the other nodes reach it; empty: all of them are on this machine."""
    number: int = 0
    """Its number among the nodes: each of its parts creates ids with a number of its own."""
    secret: str = ""
    """Signs the tokens of jobs, as on every node; empty: the environment has it."""
    ttl_s: float = 10.0

    def settings(self) -> dict[str, str]:
        """Return the environment of a node's parts: they stand by for those of other nodes."""
        settings = {
            "PENSTOCK_CLUSTER__NODE": self.name,
            "PENSTOCK_CLUSTER__TTL_S": str(self.ttl_s),
            "PENSTOCK_SCHEDULER__STANDBY": "sql",
            "PENSTOCK_SCHEDULER__LEASE_TTL_S": str(self.ttl_s),
            "PENSTOCK_SCHEDULER__LEASE_RENEW_S": str(self.ttl_s / 3),
            "PENSTOCK_SCHEDULER__CLAIM_LEASE_S": str(self.ttl_s),
        }
        return {**settings, AUTH_SECRET: self.secret} if self.secret else settings

    def of_sqs(self, port: int) -> tuple[str, ...]:
        """Return the options of the SQS server."""
        if not self.host:
            return ("--node", self.name)
        return ("--node", self.name, "--host", _EVERYWHERE, "--advertise", f"http://{self._bracketed}:{port}")

    def of_pubsub(self, port: int) -> tuple[str, ...]:
        """Return the options of the Pub/Sub API."""
        options = ("--node", self.name, "--node-port", str(port))
        return (*options, "--advertise", f"{self._bracketed}:{port}") if self.host else options

    @property
    def _bracketed(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host


def parts_of(
    directory: Path,
    ports: Ports,
    environment: Mapping[str, str],
    engine: Engine,
    options: Sequence[str] = (),
    database: str = "",
    endpoint: str = "",
    node: NodeRole | None = None,
) -> list[SupervisedPart]:
    """Return the SQS server, Pub/Sub API, API and router, and the pipeline with Spark; else the API runs the scheduler.

    `options` go before every part's command, such as --config FILE. `database` is the URL of PostgreSQL for events and
    jobs; queues stay in the directory, unless this machine is a node: then they and the topics are there too.
    `endpoint` is where routers bring jobs; empty: to the API.
    """
    environment = environment if node is None else {**node.settings(), **environment}
    data = ("--data", str(directory))
    # By the environment: the URL may hold a password, and --data would choose the file in the directory.
    jobs_data = () if database else data
    wanted = (ports.sqs, ports.pubsub, 0, ports.pubsub_nodes, ports.http, ports.router, ports.pipeline)
    reserved = [ReservedPort(port) for port in wanted]
    sqs_port, pubsub_port, pubsub_probe_port, hop_port, http_port, router_port, pipeline_port = reserved
    environment = {**environment, DENY_PORTS: _with_ports(environment.get(DENY_PORTS, ""), reserved)}
    jobs_environment = {**environment, _DATABASE: database, _DIRECTORY: str(directory)} if database else environment
    with_spark = engine is Engine.SPARK
    queues_data, queues_environment = (data, environment) if node is None else ((), jobs_environment)

    def sqs(_: Mapping[str, str]) -> tuple[str, ...]:
        # The parts sign with whatever AWS credentials the environment has; they must see the same queues.
        shared = () if node is None else node.of_sqs(sqs_port.number)
        return (*options, "serve", "sqs", "--port", sqs_port.release(), "--scopes", "one", *shared, *queues_data)

    def pubsub(_: Mapping[str, str]) -> tuple[str, ...]:
        port, probe_port = pubsub_port.release(), pubsub_probe_port.release()
        hop_port.release()
        shared = () if node is None else node.of_pubsub(hop_port.number)
        return (*options, "serve", "pubsub", "--port", port, "--probe-port", probe_port, *shared, *queues_data)

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
        return {_ROUTER_CONFIGURATION: _with_token(f"{at['api']}{CONFIGURATION}", environment.get(API_TOKEN, ""))}

    def pipeline(at: Mapping[str, str]) -> tuple[str, ...]:
        port, queue = pipeline_port.release(), ("--queue", _dispatch_queue(at["sqs"], environment))
        processing = ("--endpoint", endpoint or f"{at['api']}{PROCESS}")
        return (*options, "pipeline", "run", "--port", port, *queue, *processing, *jobs_data)

    api_environment = {**jobs_environment, _FAN_OUT: FanOutBy.PIPELINE} if with_spark else jobs_environment
    parts = [
        SupervisedPart(
            "sqs", "SQS; any AWS SDK by its endpoint URL", sqs, queues_environment, port_from=_chosen("sqs")
        ),
        SupervisedPart(
            "pubsub",
            "Pub/Sub; Google's clients by PUBSUB_EMULATOR_HOST",
            pubsub,
            queues_environment,
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
    return parts if node is None else [_numbered(part, node.number, place) for place, part in enumerate(parts)]


def _numbered(part: SupervisedPart, number: int, place: int) -> SupervisedPart:
    if _NODE_ID in part.environment:
        return part
    return replace(part, environment={**part.environment, _NODE_ID: str(number * _MOST_PARTS + place)})


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
