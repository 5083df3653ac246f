"""A Celery application on an SQS queue: its tasks append to a file."""

import os
from pathlib import Path

from celery import Celery  # type: ignore[import-not-found]

app = Celery("tasks", broker=os.environ["BROKER"])
app.conf.update(
    broker_transport_options={
        "region": "us-east-1",
        "is_secure": False,
        "visibility_timeout": 60,
        "wait_time_seconds": 5,
    },
    task_default_queue=os.environ["QUEUE"],
    worker_enable_remote_control=False,
    worker_prefetch_multiplier=1,
    broker_connection_retry_on_startup=True,
    task_acks_late=True,
)


@app.task(name="note")  # type: ignore[untyped-decorator]
def note(word: str) -> None:
    """Note a word."""
    with Path(os.environ["NOTES"]).open("a") as notes:
        notes.write(f"{word}\n")


if __name__ == "__main__":
    for number in range(20):
        note.delay(f"word {number}")
