"""Settings of the message router."""

# ruff: noqa: RUF009  `setting` returns a field, as `dataclasses.field` does; it is not shared.

from dataclasses import dataclass
from enum import StrEnum

from penstock.domain.outcome import ClientErrors
from penstock.ops.config import kinds
from penstock.ops.config.setting import setting


class HttpVersion(StrEnum):
    """The newest version of HTTP used for deliveries; a server that supports only 1.1 gets 1.1."""

    HTTP_2 = "HTTP_2"
    HTTP_1_1 = "HTTP_1_1"


@dataclass(frozen=True, kw_only=True)
class RouterOptions:
    """The message router: the source of its configuration, and its limits."""

    enabled: bool = setting(True, kinds.flag(), "If false, the router starts and answers its API but consumes nothing.")
    config: tuple[str, ...] = setting(
        (),
        kinds.places(),
        "URLs or files (JSON, TOML) of pools and queues; if two define the same one, the first wins. `serve router "
        "--config` and MESSAGE_ROUTER_CONFIG_URL take precedence.",
    )
    initial_delay_s: float = setting(
        2.0, kinds.number(0, 3600), "Delay before the first sync of the configuration, unless all of it is in files."
    )
    sync_interval_s: float = setting(300.0, kinds.number(1, 86_400), "Time between syncs of the configuration.")
    sync_attempts: int = setting(12, kinds.integer(1, 1000), "Attempts before a sync has failed.")
    sync_retry_s: float = setting(5.0, kinds.number(0, 3600), "Delay between the attempts of a sync.")
    max_pools: int = setting(10_000, kinds.integer(1, 1_000_000), "Maximum number of pools; no more are created.")
    pool_warning_threshold: int = setting(5_000, kinds.integer(1, 1_000_000), "Number of pools that causes a warning.")
    sqs_max_messages: int = setting(10, kinds.integer(1, 10), "Messages per poll of an SQS queue.")
    sqs_wait_s: int = setting(20, kinds.integer(0, 20), "Time a poll of an SQS queue waits for messages.")
    sqs_timeout_s: float = setting(25.0, kinds.number(1, 300), "Time until a call to SQS fails.")
    connect_timeout_s: float = setting(30.0, kinds.number(0.1, 3600), "Time to connect to an endpoint.")
    request_timeout_s: float = setting(900.0, kinds.number(0.1, 43_200), "Time for an endpoint to answer.")
    http_version: HttpVersion = setting(
        HttpVersion.HTTP_2, kinds.choice(HttpVersion), "The newest version of HTTP used for deliveries."
    )
    client_errors: ClientErrors = setting(
        ClientErrors.ACK,
        kinds.choice(ClientErrors),
        "Effect of a 4xx answer: ack removes the message and warns, retry returns it to the queue. 408, 425 and 429 "
        "are always retried.",
    )
    consumer_health_s: float = setting(
        60.0, kinds.number(1, 3600), "A consumer that has not polled for this time is replaced."
    )
    stop_consumers_s: float = setting(25.0, kinds.number(0, 3600), "Time for consumers to stop at shut-down.")
    drain_pools_s: float = setting(30.0, kinds.number(0, 43_200), "Time for deliveries to finish at shut-down.")
    test_endpoints: bool = setting(
        False, kinds.flag(), "Serve /api/test/…: endpoints that answer fast, slowly, or with errors."
    )
    api_token: str = setting(
        "",
        kinds.line(),
        "Token with all rights, which callers of the router's API send as `Authorization: Bearer`; by default "
        "`api.token`. Without a token and without `api.keys` the router listens on loopback only.",
        secret=True,
    )
