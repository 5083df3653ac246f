"""How long a job that came back from the queue waits before it goes there again.

The process endpoint sends a job back whose turn it is not: an earlier one of its group is still on its way, or lost.
Nothing tells when that changes, so without a pause the job would go round as fast as the queue can carry it.
"""

_FREE_ROUNDS = 2
_FIRST_S = 0.1
_MOST_S = 5.0


def return_pause_s(publish_round: int) -> float:
    """None for the first rounds, then twice as long with every round, up to five seconds."""
    doublings = publish_round - _FREE_ROUNDS - 1
    if doublings < 0:
        return 0.0
    return float(min(_FIRST_S * 2.0 ** min(doublings, 10), _MOST_S))
