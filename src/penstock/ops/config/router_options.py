"""Settings of the message router."""

# ruff: noqa: RUF009  `setting` makes a field, as `dataclasses.field` does; its result is not shared.

from dataclasses import dataclass
from enum import StrEnum

from penstock.domain.outcome import ClientErrors
from penstock.ops.config import kinds
from penstock.ops.config.setting import setting


class HttpVersion(StrEnum):
    """The newest version of HTTP that deliveries speak; a server that knows only 1.1 is spoken to in 1.1."""

    HTTP_2 = "HTTP_2"
    HTTP_1_1 = "HTTP_1_1"


@dataclass(frozen=True, kw_only=True)
class RouterOptions:
    """The message router: where its configuration comes from, and its limits."""

    enabled: bool = setting(True, kinds.flag(), "Off: the router starts, answers its API, and consumes nothing.")
    config: tuple[str, ...] = setting(
        (),
        kinds.places(),
        "URLs or files (JSON, TOML) of pools and queues; of what two of them define, the first holds. "
        "`serve router --config` and MESSAGE_ROUTER_CONFIG_URL go before it.",
    )
    initial_delay_s: float = setting(
        2.0, kinds.number(0, 3600), "Wait before the first sync of the configuration, unless all of it is in files."
    )
    sync_interval_s: float = setting(300.0, kinds.number(1, 86_400), "Time between syncs of the configuration.")
    sync_attempts: int = setting(12, kinds.integer(1, 1000), "Attempts of one sync before it has failed.")
    sync_retry_s: float = setting(5.0, kinds.number(0, 3600), "Wait between the attempts of one sync.")
    max_pools: int = setting(10_000, kinds.integer(1, 1_000_000), "Pools there may be; more are not made.")
    pool_warning_threshold: int = setting(
        5_000, kinds.integer(1, 1_000_000), "Number of pools from which on there is a warning."
    )
    sqs_max_messages: int = setting(10, kinds.integer(1, 10), "Messages that one poll of an SQS queue asks for.")
    sqs_wait_s: int = setting(20, kinds.integer(0, 20), "Time that a poll of an SQS queue waits for messages.")
    sqs_timeout_s: float = setting(25.0, kinds.number(1, 300), "Time after which a call to SQS has failed.")
    connect_timeout_s: float = setting(30.0, kinds.number(0.1, 3600), "Time to connect to an endpoint.")
    request_timeout_s: float = setting(900.0, kinds.number(0.1, 43_200), "Time for an endpoint to answer.")
    http_version: HttpVersion = setting(
        HttpVersion.HTTP_2, kinds.choice(HttpVersion), "The newest version of HTTP that deliveries speak."
    )
    client_errors: ClientErrors = setting(
        ClientErrors.ACK,
        kinds.choice(ClientErrors),
        "What a 4xx answer does: ack removes the message and warns, retry gives it back. "
        "408, 425 and 429 are always retried.",
    )
    consumer_health_s: float = setting(
        60.0, kinds.number(1, 3600), "A consumer that has not polled for so long is replaced."
    )
    stop_consumers_s: float = setting(25.0, kinds.number(0, 3600), "At shut-down, time for consumers to stop.")
    drain_pools_s: float = setting(30.0, kinds.number(0, 43_200), "At shut-down, time for deliveries to end.")
    test_endpoints: bool = setting(
        False, kinds.flag(), "Serve /api/test/…: endpoints that answer fast, slowly, or with errors."
    )
    api_token: str = setting(
        "",
        kinds.line(),
        "Token that callers of the router's API give as `Authorization: Bearer`, with all rights; unless given, "
        "`api.token`. Without a token and without `api.keys` the router listens on loopback only.",
        secret=True,
    )
