"""Search simulated histories of a cluster for one in which a promise is broken."""

import argparse
import logging
import sys
import time
from collections import Counter

from penstock.testing.simulation.history import InvariantBroken
from tests.cluster.simulated.world import simulate_cluster


def main() -> None:
    """Run seeds, print what they found, and exit with 1 if any broke a promise."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--log-level", default="")
    given = parser.parse_args()
    if given.log_level:
        logging.basicConfig(level=given.log_level.upper(), format="%(message)s")
    else:
        logging.disable(logging.CRITICAL)
    began_s, failed, sent, received = time.perf_counter(), 0, 0, 0
    faults: Counter[str] = Counter()
    for seed in range(given.first, given.first + given.seeds):
        try:
            found = simulate_cluster(seed)
        except InvariantBroken as broken:
            failed += 1
            print(broken, flush=True)
            continue
        sent, received = sent + len(found.sends), received + len(found.receipts)
        faults += found.faults
    took_s = time.perf_counter() - began_s
    print(f"{given.seeds} seeds in {took_s:.1f} s: {sent} sent, {received} received, {dict(faults)}, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
