"""The operations files, by themselves; test_alert_rules.py tries the alerts, test_ops_metrics.py their metrics."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from configparser import ConfigParser, SectionProxy
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from typer.testing import CliRunner

from penstock.cli.app import app

OPS = Path(__file__).parents[3] / "ops"
RULES = OPS / "prometheus" / "penstock.rules.yml"
DASHBOARD = OPS / "grafana" / "penstock.json"
UNITS = sorted((OPS / "systemd").glob("*.service"))
MOST_EXPOSED = 2.0
COMMAND = "/opt/penstock/bin/penstock "


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    return [panel for panel in json.loads(DASHBOARD.read_text())["panels"] if panel["type"] != "row"]


def service_of(unit: Path) -> SectionProxy:
    """What a unit says about its service; of several values of one name, the last."""
    parser = ConfigParser(strict=False, interpolation=None)
    parser.read(unit)
    return parser["Service"]


# Prometheus and Grafana


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_an_alert_says_when_how_bad_and_what_to_do(rule: dict[str, Any]) -> None:
    assert re.fullmatch(r"Penstock[A-Za-z]+", rule["alert"])
    assert rule["expr"].strip()
    assert re.fullmatch(r"\d+[smh]", rule["for"])
    assert rule["labels"]["severity"] in ("page", "ticket")
    assert {"summary", "description"} <= rule["annotations"].keys()


def test_alerts_have_different_names() -> None:
    names = [rule["alert"] for rule in rules()]
    assert len(set(names)) == len(names) >= 15


def test_every_panel_says_what_it_shows_and_has_a_place_of_its_own() -> None:
    cells: set[tuple[int, int]] = set()
    for panel in panels():
        assert panel["title"]
        assert panel["description"]
        assert all(target["expr"] for target in panel["targets"])
        place = panel["gridPos"]
        covered = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert max(x for x, _ in covered) < 24
        assert not covered & cells, panel["title"]
        cells |= covered
    ids = [panel["id"] for panel in json.loads(DASHBOARD.read_text())["panels"]]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize(
    "expr", [rule["expr"] for rule in rules()] + [t["expr"] for p in panels() for t in p["targets"]]
)
def test_brackets_of_an_expression_close(expr: str) -> None:
    for opening, closing in ("()", "[]", "{}"):
        assert expr.count(opening) == expr.count(closing)


# systemd


def commands(unit: Path) -> Iterator[list[str]]:
    for line in unit.read_text().splitlines():
        if line.startswith(("ExecStart=", "ExecStartPre=")):
            command = line.partition("=")[2]
            assert command.startswith(COMMAND)
            yield command.removeprefix(COMMAND).split()


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_the_options_of_a_unit_exist(unit: Path) -> None:
    for arguments in commands(unit):
        names = [word for word in arguments if not word.startswith(("-", "/", "http"))]
        known = "".join(
            CliRunner().invoke(app, [*names[:length], "--help"]).stdout for length in range(1, len(names[:2]) + 1)
        )
        for option in (word for word in arguments if word.startswith("--")):
            assert re.search(rf"{option}\b", known), (option, names)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_runs_without_rights_and_keeps_data_to_itself(unit: Path) -> None:
    service = service_of(unit)
    assert service["User"] == "penstock"
    assert (service["NoNewPrivileges"], service["ProtectSystem"]) == ("yes", "strict")
    assert (service["StateDirectory"], service["StateDirectoryMode"], service["UMask"]) == ("penstock", "0700", "0077")


def test_units_of_one_machine_see_each_others_node_numbers() -> None:
    for unit in UNITS:
        assert "Environment=TMPDIR=/run/penstock" in unit.read_text().splitlines(), unit
        service = service_of(unit)
        assert (service["RuntimeDirectory"], service["RuntimeDirectoryPreserve"]) == ("penstock", "yes")


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_finds_a_unit_well_closed(unit: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed; units are checked as files only")
    told = subprocess.run(
        [analyze, "security", "--offline=true", "--no-pager", str(unit)], capture_output=True, text=True, check=True
    ).stdout
    found = re.search(r"exposure level for \S+: ([0-9.]+)", told)
    assert found is not None, told
    assert float(found[1]) < MOST_EXPOSED


# Docker


def test_the_image_installs_by_hash_and_drops_its_rights() -> None:
    lines = (OPS / "docker" / "Dockerfile").read_text().splitlines()
    assert [line for line in lines if re.fullmatch(r"FROM [\w.:/-]+@sha256:[0-9a-f]{64}", line)]
    assert any("--require-hashes -r" in line for line in lines)
    assert "USER 10001" in lines
    copied = [line.split()[1] for line in lines if line.startswith("COPY")]
    assert all((OPS.parent / path).exists() for path in copied)


# What examples of receivers and consumers need, and a tool that only packs; none of it runs with Penstock's rights.
NOT_OURS = re.compile(r"pip install (flask|fastapi uvicorn|boto3|venv-pack|duckdb|pandas)\b")
GUIDES = [
    *OPS.parent.glob("*.md"),
    *(OPS.parent / "docs").rglob("*.md"),
    *OPS.rglob("*ockerfile"),
    OPS.parent / "examples/README.md",
]


@pytest.mark.parametrize("guide", GUIDES, ids=lambda path: str(path.relative_to(OPS.parent)))
def test_guides_install_by_hash_and_show_no_key_on_a_command_line(guide: Path) -> None:
    lines = guide.read_text().splitlines()
    installs = [line for line in lines if "pip install" in line and not NOT_OURS.search(line)]
    hashed = any("--require-hashes" in line for line in installs)
    for line in installs if guide.name != "CHANGELOG.md" else ():
        # The first line of a first try, in a guide that has the locked form beside it.
        if line.startswith("pip install . ") and hashed:
            continue
        assert "--require-hashes" in line or "--no-deps" in line, line
    keys = re.compile(
        r"--(secret|token|password|api-key|key)[ =](whsec_|psk_|\w{16,})|-e PENSTOCK_\w*(TOKEN|SECRET|KEYS?)="
    )
    assert [line for line in lines if keys.search(line)] == []
