"""Numbers the jobs of each key of a subscription, so that a receiver notices when one is missing (EVENT-FANOUT-8).

A number is taken in the transaction that stores the job: whoever needs the next one of a key waits for its commit. So
the numbers of a key have no gap, even after a crash.
"""

from collections import defaultdict
from collections.abc import Sequence

from penstock.domain.job import NewJob
from penstock.events.statistics import DAY_MS
from penstock.events.store.database import Transaction


def key_numbers(tx: Transaction, jobs: Sequence[NewJob], now_ms: int) -> list[int | None]:
    """Return the number of each job, taken for those that need one. Call it before lanes are locked.

    An event without a key that is kept in order has the empty key.
    """
    numbers = [job.key_sequence for job in jobs]
    places: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for place, job in enumerate(jobs):
        if job.is_numbered:
            places[job.subscription_id or "", job.group or ""].append(place)
    if not places:
        return numbers
    counts = {key: len(of_key) for key, of_key in places.items()}
    tenants = {key: jobs[of_key[0]].tenant for key, of_key in places.items()}
    for subscription_id, key, last in tx.take_key_numbers(counts, tenants, now_ms // DAY_MS):
        of_key = places[subscription_id, key]
        of_key.sort(key=lambda place: (jobs[place].created_at_ms, jobs[place].id))
        for number, place in enumerate(of_key, last - len(of_key) + 1):
            numbers[place] = number
    return numbers


def forget_key_numbers(tx: Transaction, before_ms: int, most: int) -> int:
    """Forget up to `most` keys without a job since the day of a moment, which then begin at 1; return how many."""
    return len(tx.all("forget_key_sequences", day=before_ms // DAY_MS, most=most))
