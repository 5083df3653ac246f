"""`penstock bench end-to-end` with little: it measures everything that it names, and leaves no process behind."""

import json
import signal
import subprocess
from pathlib import Path

import pytest

from tests.rigs.penstock_process import PENSTOCK, descendants, wait_until

FIGURES = {
    "deliveries_per_s", "cpu_us_per_delivery", "cpu_us_by_part", "bare_per_s", "bare_cpu_us", "ratio", "cpu_ratio",
    "published_per_s",
    "calm_p50_ms", "calm_p99_ms", "first_event_ms", "hundredth_event_ms", "processes", "memory_mb", "row_versions",
    "wal_bytes", "transactions", "isolation_p99_ratio", "isolation", "load_1m", "faults",
}  # fmt: skip
COMMAND = [
    *(str(PENSTOCK), "bench", "end-to-end", "--engine", "inline", "--database", "sqlite", "--json"),
    *("--events", "300", "--keys", "30", "--calm-events", "50", "--no-isolation"),
]


@pytest.mark.long
def test_it_measures_an_engine_on_a_database(tmp_path: Path) -> None:
    options = ["--subscriptions", "3", "--slow", "1"]
    ran = subprocess.run([*COMMAND, *options], capture_output=True, text=True, timeout=300, check=False, cwd=tmp_path)

    assert ran.returncode == 0, ran.stderr
    assert "300 events over 30 keys to 3 subscriptions, 1 of them slow" in ran.stderr
    figures = json.loads(ran.stdout.splitlines()[-1])
    measured = figures.pop("inline_sqlite")
    assert figures == {"inline_postgres": None, "spark_sqlite": None, "spark_postgres": None}
    assert set(measured) == FIGURES
    assert measured["faults"] == {"lost": 0, "reordered": 0, "overlapping": 0, "repeated": 0}
    assert {"up", "sqs", "api", "router"} <= set(measured["cpu_us_by_part"])
    assert measured["cpu_us_per_delivery"] > 0
    assert 0 < measured["ratio"] < 1
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_stops_everything(tmp_path: Path) -> None:
    with subprocess.Popen(COMMAND, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "first hundred events" in line:
                break
        started = descendants(process.pid)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=120)

    assert process.returncode == 130
    assert len(started) >= 5
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in started))


@pytest.mark.parametrize("options", [["--slow", "1"], ["--engine", "other"]])
def test_options_that_make_no_sense(options: list[str]) -> None:
    ran = subprocess.run([*COMMAND, *options], capture_output=True, text=True, timeout=60, check=False)

    assert ran.returncode == 2
