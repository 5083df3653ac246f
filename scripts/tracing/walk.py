"""Publishes events through `penstock up` and prints the files of the package that every one of them crosses.

Parts also do things by the clock while an event is on its way. So several events are sent, one after the other, and
only files that all of them cross count. Their order is that of the first calls, by the median of the events.
"""

import argparse
import json
import mmap
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import groupby
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "penstock"
ADDRESS = re.compile(r"^api +(\S+)")
WARM_UP_EVENTS = 3
DELIVERY_S = 300
# After a delivery its outcome is recorded and its message is deleted; before the next event all is quiet again.
OUTCOME_S = 0.5
QUIET_S = 0.5
STOP_S = 120


class Step:
    """A file, with the process that called it first and when."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.calls: dict[int, tuple[int, str]] = {}

    @property
    def package(self) -> str:
        """The folder at the top of the package that it is in; the file itself if it is in none."""
        return self.path.partition("/")[0]

    @property
    def process(self) -> str:
        """Where it is called first, for most events."""
        processes = [process for _, process in self.calls.values()]
        return max(sorted(set(processes)), key=processes.count)


class Receiver:
    """An endpoint that accepts every delivery and counts them."""

    def __init__(self) -> None:
        self._arrived = threading.Semaphore(0)
        arrived = self._arrived

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["content-length"]))
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()
                arrived.release()

            def log_message(self, *_: object) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def wait(self, number: int) -> None:
        """Wait for the delivery of an event."""
        if not self._arrived.acquire(timeout=DELIVERY_S):
            raise TimeoutError(f"event {number} was not delivered within {DELIVERY_S} s")


def main() -> None:
    options = parsed()
    with tempfile.TemporaryDirectory(prefix="penstock-walk-") as place:
        directory = Path(place)
        (directory / "window").write_bytes(b"\0")
        (directory / "calls").touch()
        with running(directory, options.engine) as api:
            send_events(api, directory, options.events)
        steps = steps_of(directory, options.events)
    print_json(steps, options) if options.json else print_text(steps, options)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/walk", description="Print the files that one event crosses, in order."
    )
    parser.add_argument("--engine", choices=("inline", "spark"), default="inline", help="what makes and publishes jobs")
    parser.add_argument(
        "--events", type=int, default=9, help="how many events to send; files that all of them cross count"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    if not 1 <= options.events <= 200:
        parser.error("--events must be from 1 to 200")
    return options


@contextmanager
def running(directory: Path, engine: str) -> Iterator[str]:
    """A whole Penstock with the tracer in each of its processes; the address of its API."""
    path = [str(Path(__file__).parent), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
        "WALK_DIRECTORY": str(directory),
        "WALK_PACKAGE": f"{PACKAGE}{os.sep}",
    }
    ports = [word for port in ("http", "sqs", "pubsub", "router", "pipeline") for word in (f"--{port}", "0")]
    command = [sys.executable, "-m", "penstock", "up", "--data", str(directory / "data"), "--engine", engine, *ports]
    with (directory / "up.log").open("w") as log:
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        yield address_of_api(process, directory)
    except TimeoutError as error:
        raise SystemExit(f"{error}; the end of the log:\n{(directory / 'up.log').read_text()[-4000:]}") from error
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=STOP_S)


def address_of_api(process: "subprocess.Popen[str]", directory: Path) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if found := ADDRESS.match(line):
            return found[1]
    raise SystemExit(f"penstock up did not start:\n{(directory / 'up.log').read_text()}")


def send_events(api: str, directory: Path, count: int) -> None:
    """Publish events one after the other, and let the tracer record while each is on its way."""
    receiver = Receiver()
    post(f"{api}/api/v1/subscriptions", {"name": "walk", "pattern": "walk:**", "target": receiver.url})
    with (directory / "window").open("r+b") as file, mmap.mmap(file.fileno(), 1) as window:
        for number in range(-WARM_UP_EVENTS, count):
            time.sleep(QUIET_S)
            window[0] = max(0, number + 1)
            post(f"{api}/api/v1/events", event(number), "application/cloudevents+json")
            receiver.wait(number)
            time.sleep(OUTCOME_S)
            window[0] = 0


def event(number: int) -> dict[str, object]:
    return {
        "specversion": "1.0",
        "id": f"walk-{number}",
        "source": "/walk",
        "type": "walk:step",
        "partitionkey": "walk",
        "data": {"number": number},
    }


def post(url: str, body: object, kind: str = "application/json") -> None:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": kind})
    with urllib.request.urlopen(request, timeout=DELIVERY_S) as answer:
        answer.read()


def steps_of(directory: Path, count: int) -> list[Step]:
    """The files that every event crossed, in order."""
    steps: dict[str, Step] = {}
    began: dict[int, int] = {}
    lines = [line.split("\t") for line in (directory / "calls").read_text().splitlines()]
    # `penstock up` itself only watches its parts; on a slow machine its probes fall into every window.
    lines = [line for line in lines if not line[2].startswith("up ")]
    for window, at_ns, process, path in sorted(lines, key=lambda line: int(line[1])):
        start_ns = began.setdefault(int(window), int(at_ns))
        steps.setdefault(path, Step(path)).calls.setdefault(int(window), (int(at_ns) - start_ns, process))
    common = [step for step in steps.values() if len(step.calls) == count]
    return sorted(common, key=lambda step: (median(at_ns for at_ns, _ in step.calls.values()), step.path))


def package_changes(steps: list[Step]) -> int:
    """How often the package differs from that of the file before."""
    return max(0, len(list(groupby(steps, key=lambda step: step.package))) - 1)


def print_json(steps: list[Step], options: argparse.Namespace) -> None:
    facts = {
        "engine": options.engine,
        "events": options.events,
        "files": [{"path": step.path, "process": step.process} for step in steps],
        "file_count": len(steps),
        "packages": sorted({step.package for step in steps}),
        "package_changes": package_changes(steps),
    }
    print(json.dumps(facts))


def print_text(steps: list[Step], options: argparse.Namespace) -> None:
    for process, group in groupby(steps, key=lambda step: step.process):
        print(process)
        for step in group:
            print(f"    {step.path}")
    packages = len({step.package for step in steps})
    print(f"{options.engine}: {len(steps)} files in {packages} packages, {package_changes(steps)} changes of package")


if __name__ == "__main__":
    main()
