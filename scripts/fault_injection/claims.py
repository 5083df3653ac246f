"""What a `penstock up` says of itself while faults are injected (warnings, health, readiness), and if it was true."""

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from time import monotonic
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.request import urlopen

EVERY_S = 0.5
PARTS = ("sqs", "api", "router")
_TIMEOUT_S = 2.0
# A queue is unhealthy when it has not answered for a minute, which includes a pause of up to 15 s between two tries.
_HEALTH_S, _BACK_OFF_S = 60.0, 15.0
# A part that answers no question for this long was killed, stopped or cut off.
_AWAY_S = 2.0
# What is read here may be as old as this.
_SLACK_S = 10.0
# A part that answers again needs this long for all that it does at its start.
_START_S = 45.0


class Warned(NamedTuple):
    """A warning as the router lists it."""

    id: str
    code: str
    times: int
    text: str


class Claim(NamedTuple):
    """What was said at one moment. A part that said nothing is not in `ready`."""

    at_s: float
    ready: Mapping[str, bool]
    status: str = ""
    reasons: Sequence[str] = ()
    warnings: Sequence[Warned] = ()


class Fault(NamedTuple):
    """A fault, and how long it lasted."""

    name: str
    began_s: float
    ended_s: float


class Claims:
    """Asks the parts twice a second; as a task, until cancelled."""

    def __init__(self, addresses: Callable[[], Mapping[str, str]]) -> None:
        self.said: list[Claim] = []
        self._addresses = addresses

    async def watch(self) -> None:
        """Ask until cancelled."""
        while True:
            self.said.append(await self._ask())
            await asyncio.sleep(EVERY_S)

    async def _ask(self) -> Claim:
        addresses = dict(self._addresses())
        ready = await asyncio.gather(*(asyncio.to_thread(_ready, addresses.get(part)) for part in PARTS))
        known = {part: is_ready for part, is_ready in zip(PARTS, ready, strict=True) if is_ready is not None}
        at_s = monotonic()
        if "router" not in known:
            return Claim(at_s, known)
        try:
            health, listed = await asyncio.gather(
                asyncio.to_thread(_json, f"{addresses['router']}/monitoring"),
                asyncio.to_thread(_json, f"{addresses['router']}/warnings"),
            )
        except (OSError, ValueError):
            return Claim(at_s, {part: is_ready for part, is_ready in known.items() if part != "router"})
        warnings = [Warned(each["id"], each["code"], each["count"], each["message"]) for each in listed["warnings"]]
        return Claim(at_s, known, health["health"]["status"], health["health"]["reasons"], warnings)


def _ready(address: str | None) -> bool | None:
    try:
        with urlopen(f"{address}/health/ready", timeout=_TIMEOUT_S) as answer:
            return bool(answer.status == 200)
    except HTTPError as error:
        return False if error.code == 503 else None
    except (OSError, ValueError):
        return None


def _json(url: str) -> Any:
    with urlopen(url, timeout=_TIMEOUT_S) as answer:
        return json.load(answer)


def raised(said: Sequence[Claim]) -> dict[str, int]:
    """Return how often each warning was raised."""
    codes: dict[str, int] = {}
    for _, warning in _new_warnings(said):
        codes[warning.code] = codes.get(warning.code, 0) + 1
    return codes


def untrue(said: Sequence[Claim], faults: Sequence[Fault]) -> list[str]:
    """Return what was said that the faults do not explain, and what should have been said and was not."""
    if not said:
        return ["nothing was said"]
    facts = _Facts(said, faults)
    found = [
        f"{warning.code}: {warning.text}" for at_s, warning in _new_warnings(said) if not facts.explains(warning, at_s)
    ]
    for claim in said:
        if "router" in claim.ready:
            found += [f"{claim.status}: {reason}" for reason in claim.reasons if not facts.excuses(reason, claim.at_s)]
            silent_s = facts.silence_s("sqs", claim.at_s, within_s=0)
            if claim.status == "HEALTHY" and silent_s > _HEALTH_S + _SLACK_S + facts.blind_s(claim.at_s):
                found.append("HEALTHY though its queues have been silent for more than a minute")
        found += [f"{part} is not ready" for part in claim.ready if not facts.allows(part, claim)]
    # The same untruth is said again and again.
    return list(dict.fromkeys(found))


def _new_warnings(said: Sequence[Claim]) -> Iterator[tuple[float, Warned]]:
    counts: dict[str, int] = {}
    for claim in said:
        for warning in claim.warnings:
            if warning.times > counts.get(warning.id, 0):
                counts[warning.id] = warning.times
                yield claim.at_s, warning


class _Facts:
    """When each part was silent, and what had been done to it."""

    def __init__(self, said: Sequence[Claim], faults: Sequence[Fault]) -> None:
        self._faults = faults
        self._gaps = {part: list(_gaps(part, said)) for part in PARTS}

    def silence_s(self, part: str, at_s: float, within_s: float) -> float:
        """Return the longest silence of a part that had not ended this long before."""
        lately = [(start_s, end_s) for start_s, end_s in self._gaps[part] if start_s < at_s <= end_s + within_s]
        return max((min(end_s, at_s) - start_s for start_s, end_s in lately), default=0.0)

    def blind_s(self, at_s: float) -> float:
        """Return how long the router itself was silent lately: it counts from its start."""
        return self.silence_s("router", at_s, within_s=2 * _HEALTH_S)

    def explains(self, warning: Warned, at_s: float) -> bool:
        """Return whether a warning is true."""
        if warning.code in ("CONSUMER_RESTART", "CONSUMER_RESTART_FAILED"):
            return self._queues_were_silent(at_s)
        if warning.code == "QUEUE_VALIDATION":
            return self._was_away(("sqs",), at_s, 2 * _HEALTH_S)
        if warning.code == "CONFIG_SYNC_FAILED":
            return self.silence_s("api", at_s, _BACK_OFF_S) > _HEALTH_S - _SLACK_S
        return False

    def excuses(self, reason: str, at_s: float) -> bool:
        """Return whether a reason for bad health is true."""
        if "does not poll" in reason:
            return self._queues_were_silent(at_s)
        if "first sync" in reason or "last sync" in reason:
            return self._was_away(("api", "router"), at_s, _START_S + _HEALTH_S)
        # The flaky subscriber fails about a tenth of its requests, and full pools are what they say.
        return "pool flaky delivers" in reason or reason.endswith("is full") or "not acknowledged" in reason

    def allows(self, part: str, claim: Claim) -> bool:
        """Return whether a part was ready, or had a reason not to be."""
        if claim.ready[part] or self._was_away(PARTS, claim.at_s, _START_S):
            return True
        return any(
            fault.began_s <= claim.at_s <= fault.ended_s + _SLACK_S for fault in self._faults if "disk" in fault.name
        )

    def _queues_were_silent(self, at_s: float) -> bool:
        return self.silence_s("sqs", at_s, _BACK_OFF_S + _SLACK_S) > _HEALTH_S - _BACK_OFF_S - _SLACK_S

    def _was_away(self, parts: Sequence[str], at_s: float, within_s: float) -> bool:
        return any(self.silence_s(part, at_s, within_s) > _AWAY_S for part in parts)


def _gaps(part: str, said: Sequence[Claim]) -> Iterator[tuple[float, float]]:
    """Yield the times between two answers of a part."""
    last_s = said[0].at_s
    for claim in said:
        if part in claim.ready:
            yield last_s, claim.at_s
            last_s = claim.at_s
    yield last_s, said[-1].at_s + EVERY_S
