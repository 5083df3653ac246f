"""The files that run a cluster with Compose and on Kubernetes, by themselves: nothing here needs either of them."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from typer.testing import CliRunner

from penstock import __version__
from penstock.cli.app import app
from penstock.ops.config import Config
from penstock.ops.config.setting import settings

ROOT = Path(__file__).parents[3]
COMPOSE = ROOT / "ops" / "docker" / "compose.cluster.yml"
CHART = ROOT / "ops" / "helm" / "penstock"
TEMPLATES = sorted((CHART / "templates").glob("*.yaml"))
# All that the templates use, so that a few lines render them as Helm does.
_INSERT = re.compile(r"\{\{ (\.[\w.]+)( \| quote)? \}\}")
_NOT_SETTINGS = {"POD_NAME", "POSTGRES_PASSWORD"}
STOP_S = 200


def known_variables() -> set[str]:
    return {f"PENSTOCK_{each.section}__{each.name}".upper() for each in settings(Config)}


def rendered(template: Path) -> list[dict[str, Any]]:
    values = {
        "Values": yaml.safe_load((CHART / "values.yaml").read_text()),
        "Release": {"Name": "events"},
    }

    def insert(found: re.Match[str]) -> str:
        value: Any = values
        for name in found[1].strip(".").split("."):
            value = value[name]
        assert not isinstance(value, dict | list), found[0]
        return f'"{value}"' if found[2] else str(value)

    text = _INSERT.sub(insert, template.read_text())
    assert "{{" not in text, template.name
    return list(yaml.safe_load_all(text))


def documents(kind: str) -> list[dict[str, Any]]:
    return [each for template in TEMPLATES for each in rendered(template) if each["kind"] == kind]


def options_exist(arguments: list[str]) -> None:
    known = CliRunner().invoke(app, [arguments[0], "--help"]).stdout
    options = [word for word in arguments if word.startswith("--")]
    assert options
    for option in options:
        assert re.search(rf"{option}\b", known), option


# Compose


def nodes_of_compose() -> dict[str, dict[str, Any]]:
    services = yaml.safe_load(COMPOSE.read_text())["services"]
    return {name: service for name, service in services.items() if name != "database"}


def test_compose_starts_three_nodes_that_reach_each_other_by_name() -> None:
    nodes = nodes_of_compose()
    assert len(nodes) == 3
    names = set()
    for name, node in nodes.items():
        options_exist(node["command"])
        given = dict(zip(node["command"], node["command"][1:], strict=False))
        assert given["--advertise"] == name
        names.add(given["--node"])
        assert node["environment"].keys() <= known_variables()
        assert node["depends_on"] == {"database": {"condition": "service_healthy"}}
        assert node["stop_grace_period"] == f"{STOP_S}s"
        assert all(port.startswith("127.0.0.1:") for port in node["ports"])
    assert len(names) == 3
    ports = [port.rpartition(":")[0] for node in nodes.values() for port in node["ports"]]
    assert len(set(ports)) == len(ports)


def test_the_secrets_of_compose_are_in_a_file() -> None:
    text = COMPOSE.read_text()
    named = set(re.findall(r"^#   ([A-Z_]+)=", text, re.MULTILINE))
    assert named - _NOT_SETTINGS <= known_variables()
    assert {"PENSTOCK_DATA__DATABASE", "PENSTOCK_API__TOKEN"} <= named
    assert all(service["env_file"] == "penstock.env" for service in yaml.safe_load(text)["services"].values())


# Helm


def test_the_chart_has_the_version_of_the_package() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert (chart["version"], chart["appVersion"], values["image"]["tag"]) == (__version__.partition(".dev")[0],) * 3


def test_every_value_of_the_chart_is_used() -> None:
    text = "".join(template.read_text() for template in TEMPLATES)
    for name, value in yaml.safe_load((CHART / "values.yaml").read_text()).items():
        used = [f".Values.{name}.{each}" for each in value] if isinstance(value, dict) else [f".Values.{name}"]
        assert all(each in text for each in used), name


def test_the_pods_are_nodes_with_names_and_addresses_of_their_own() -> None:
    (nodes,) = documents("StatefulSet")
    pod = nodes["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    options_exist(container["args"])
    variables = {each["name"]: each.get("value") for each in container["env"]}
    assert set(variables) - _NOT_SETTINGS <= known_variables()
    assert variables["PENSTOCK_CLUSTER__NODE"] == "$(POD_NAME)"
    assert variables["PENSTOCK_CLUSTER__HOST"] == f"$(POD_NAME).{nodes['spec']['serviceName']}"
    assert [each["name"] for each in container["env"]].index("POD_NAME") == 0
    assert all(value is None or isinstance(value, str) for value in variables.values())
    assert pod["terminationGracePeriodSeconds"] == STOP_S
    assert pod["enableServiceLinks"] is False
    assert pod["securityContext"]["runAsNonRoot"]
    assert {each["name"] for each in pod["volumes"]} == {each["name"] for each in container["volumeMounts"]}


def test_the_services_lead_to_ports_of_the_pods() -> None:
    (nodes,) = documents("StatefulSet")
    template = nodes["spec"]["template"]
    (container,) = template["spec"]["containers"]
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert ports == {"http": 8080, "sqs": Config().ports.sqs, "pubsub": Config().ports.pubsub, "pubsub-nodes": 8087}
    services = {each["metadata"]["name"]: each["spec"] for each in documents("Service")}
    for service in services.values():
        assert service["selector"].items() <= template["metadata"]["labels"].items()
        assert all(ports[each["targetPort"]] == each["port"] for each in service["ports"])
    between = services[nodes["spec"]["serviceName"]]
    assert (between["clusterIP"], between["publishNotReadyAddresses"]) == ("None", True)
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["port"] == "http"


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda template: template.stem)
def test_every_document_says_what_it_is(template: Path) -> None:
    for document in rendered(template):
        assert {"apiVersion", "kind", "metadata", "spec"} <= document.keys()
