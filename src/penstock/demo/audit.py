"""The last word on the demo: Spark's audit of what the database says happened."""

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

_FINDINGS = 1


class Verdict(msgspec.Struct, frozen=True):
    """What the audit says; without a reason it was made, and `clean` is its answer."""

    clean: bool
    counts: dict[str, int] = {}
    totals: dict[str, int] = {}
    failure: str | None = None

    def told(self) -> str:
        """In a sentence."""
        if self.failure is not None:
            return f"the audit could not be made: {self.failure}"
        looked = ", ".join(f"{number} {name}" for name, number in self.counts.items())
        if self.clean:
            return f"Spark's audit: nothing lost, every key in order, none overlapping ({looked})"
        broken = ", ".join(f"{number} x {kind}" for kind, number in self.totals.items() if number)
        return f"Spark's audit found {broken} ({looked})"


async def audited(directory: Path, environment: Mapping[str, str]) -> Verdict:
    """Audit everything in a data directory, as `penstock pipeline audit` does."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "penstock", "pipeline", "audit", "--data", str(directory), "--json"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=dict(environment),
    )
    try:
        output, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    if process.returncode not in (0, _FINDINGS):
        last = errors.decode(errors="replace").strip().splitlines()
        return Verdict(False, failure=last[-1] if last else f"it ended with code {process.returncode}")
    return msgspec.json.decode(output, type=Verdict)
