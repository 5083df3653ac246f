"""Which mixtures of partitions a crash can leave, and what is done with them."""

import pytest

from penstock.sqs.queue.intents import NextStep, QueueState, next_step

STATES = {"c": QueueState.CREATING, "l": QueueState.LIVE, "d": QueueState.DELETING}


@pytest.mark.parametrize(
    ("found", "step"),
    [
        ("ll", NextStep.SERVE),
        ("cc", NextStep.UNDO_CREATION),
        ("c-", NextStep.UNDO_CREATION),
        ("-c", NextStep.UNDO_CREATION),
        ("cl", NextStep.FINISH_CREATION),
        ("lc", NextStep.FINISH_CREATION),
        ("ld", NextStep.FINISH_DELETION),
        ("dl", NextStep.FINISH_DELETION),
        ("dd", NextStep.FINISH_DELETION),
        ("d-", NextStep.FINISH_DELETION),
        ("-d", NextStep.FINISH_DELETION),
        ("l-", NextStep.REFUSE),
        ("-l", NextStep.REFUSE),
        ("cd", NextStep.REFUSE),
        ("dc", NextStep.REFUSE),
        ("l-d", NextStep.REFUSE),
        ("lc-", NextStep.REFUSE),
        ("lcd", NextStep.REFUSE),
    ],
)
def test_steps(found: str, step: NextStep) -> None:
    states = {index: STATES[letter] for index, letter in enumerate(found) if letter != "-"}
    assert next_step(len(found), states) is step
