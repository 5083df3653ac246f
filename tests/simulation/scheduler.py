"""Search simulated histories of two schedulers for one in which a promise is broken."""

import argparse
import logging
import sys
import time

from penstock.testing.virtual_loop import LoopClock, run_virtual
from tests.rigs.scheduler_world import World

STEPS = 40


def simulate_scheduler(seed: int) -> tuple[list[str], World]:
    """Run the history of a seed; return what was wrong, and the world that it left."""
    worlds: list[World] = []

    async def main(clock: LoopClock) -> list[str]:
        worlds.append(World(clock, seed))
        return await worlds[0].run(STEPS)

    return run_virtual(main), worlds[0]


def main() -> None:
    """Run seeds, print what they found, and exit with 1 if any broke a promise."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=100)
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    began_s, failed, made = time.perf_counter(), 0, 0
    for seed in range(given.first, given.first + given.seeds):
        findings, world = simulate_scheduler(seed)
        made += len(world.made)
        if findings:
            failed += 1
            print(f"seed {seed}: {len(findings)} findings, as {findings[0]}", flush=True)
    print(f"{given.seeds} seeds in {time.perf_counter() - began_s:.1f} s: {made} jobs, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
