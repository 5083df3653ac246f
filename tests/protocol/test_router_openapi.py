"""The router's API against its own OpenAPI document: schemathesis makes up requests, good ones and bad ones."""

from collections.abc import Iterator
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.schemas import BaseSchema

from penstock.router.monitoring.app import openapi
from penstock.router.settings import RouterSettings
from tests.rigs.openapi import described, kept_connection
from tests.rigs.router_api import ServedApi, served_api
from tests.rigs.search import examples

EXAMPLES = 20
PATHS = {
    "/monitoring",
    "/monitoring/pools",
    "/monitoring/pools/{code}",
    "/monitoring/groups",
    "/monitoring/queues",
    "/monitoring/queues/{name}/restart",
    "/monitoring/circuit-breakers",
    "/monitoring/circuit-breakers/reset",
    "/monitoring/circuit-breakers/reset-all",
    "/monitoring/in-flight-messages",
    "/monitoring/in-flight-messages/check",
    "/monitoring/in-flight-messages/check-batch",
    "/monitoring/in-flight-messages/{id}",
    "/monitoring/consumer-health",
    "/monitoring/standby-status",
    "/warnings",
    "/warnings/acknowledge-all",
    "/warnings/{id}/acknowledge",
    "/config/reload",
    "/api/seed/messages",
}


@pytest.fixture(scope="module")
def api() -> Iterator[ServedApi]:
    with served_api(test_endpoints=True) as served:
        served.seed_warnings()
        yield served


def test_the_document_is_served(api: ServedApi) -> None:
    document = api.ask("GET", "/openapi.json").body

    assert document == openapi(api.parts())
    assert document["openapi"] == "3.1.0"
    assert set(document["paths"]) == PATHS


@pytest.fixture
def session() -> Iterator[requests.Session]:
    with kept_connection() as session:
        yield session


@pytest.fixture
def schema(request: pytest.FixtureRequest) -> BaseSchema:
    return described(openapi(ServedApi(RouterSettings()).parts()), request.node)


@schemathesis.pytest.from_fixture("schema").parametrize()
@settings(max_examples=examples(EXAMPLES), suppress_health_check=list(HealthCheck))
def test_every_answer_is_as_the_document_says(
    case: schemathesis.Case[Any], api: ServedApi, session: requests.Session
) -> None:
    # A cursor is a text that the last page gave; one that is made up is refused, as other tests show.
    case.query.pop("cursor", None)
    case.call_and_validate(base_url=api.url, session=session)
