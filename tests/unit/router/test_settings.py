from dataclasses import replace
from ipaddress import ip_network

import pytest

from penstock.ops.config import Config, ConfigError
from penstock.ops.config.loader import resolve
from penstock.ops.config.text import as_tree
from penstock.router.settings import RouterSettings, router_settings


def settings(config: Config, sources: tuple[str, ...] = ()) -> RouterSettings:
    return router_settings(config, sources=sources, host="127.0.0.1", port=8081, workers=1)


def test_the_defaults_are_those_of_the_specification() -> None:
    defaults = settings(Config())

    assert defaults == RouterSettings()
    assert (defaults.enabled, defaults.sync_interval_s, defaults.initial_delay_s) == (True, 300, 2)
    assert (defaults.sync_attempts, defaults.sync_retry_s) == (12, 5)
    assert (defaults.max_pools, defaults.pool_warning_threshold) == (10_000, 5_000)
    assert (defaults.sqs_max_messages, defaults.sqs_wait_s, defaults.sqs_timeout_s) == (10, 20, 25)
    assert (defaults.request_timeout_s, defaults.connect_timeout_s, defaults.http_version) == (900, 30, "HTTP_2")
    assert (defaults.stop_consumers_s, defaults.drain_pools_s, defaults.consumer_health_s) == (25, 30, 60)


def test_the_options_of_the_tree_are_the_settings_of_the_router() -> None:
    environ = {
        "PENSTOCK_ROUTER__ENABLED": "false",
        "PENSTOCK_ROUTER__CONFIG": "https://host/a.json, b.toml",
        "PENSTOCK_ROUTER__SYNC_INTERVAL_S": "60",
        "PENSTOCK_ROUTER__CLIENT_ERRORS": "retry",
        "PENSTOCK_EGRESS__ALLOW": "127.0.0.0/8",
        "PENSTOCK_NODE__ID": "7",
    }
    found = settings(resolve(Config, {}, "", environ).config)

    assert (found.enabled, found.sync_interval_s, found.client_errors) == (False, 60, "retry")
    assert found.config == ("https://host/a.json", "b.toml")
    assert (found.egress_allow, found.node_id) == ((ip_network("127.0.0.0/8"),), 7)


def test_sources_that_are_named_go_before_those_of_the_tree() -> None:
    config = resolve(Config, {"router": {"config": ["a.json"]}}, "test", {}).config

    assert settings(config).config == ("a.json",)
    assert settings(config, ("b.json",)).config == ("b.json",)


@pytest.mark.parametrize("given", ["a.json", [1], [""]])
def test_sources_are_a_list_of_texts(given: object) -> None:
    with pytest.raises(ConfigError, match="a list of URLs or files"):
        resolve(Config, {"router": {"config": given}}, "test", {})


def test_neither_a_password_in_a_source_nor_the_token_is_shown() -> None:
    config = Config()
    secret = replace(config, router=replace(config.router, config=("https://me:hunter2@host/",), api_token="hunter2"))

    assert "hunter2" not in str(as_tree(secret))
