"""Google's limits, which the Pub/Sub API checks; those of the broker itself are in `domain.limits`."""

from penstock.domain.limits import MIB

MINUTE_S = 60
DAY_S = 24 * 60 * MINUTE_S

MAX_PUBLISH_MESSAGES = 1000
MAX_PUBLISH_BYTES = 10 * 1000 * 1000
MAX_ORDERING_KEY_BYTES = 1024
MAX_ATTRIBUTES = 100

MIN_RETENTION_S = 10 * MINUTE_S
MAX_RETENTION_S = 31 * DAY_S
DEFAULT_RETENTION_S = 7 * DAY_S
SNAPSHOT_LIFE_S = 7 * DAY_S
MIN_SNAPSHOT_LIFE_S = 60 * MINUTE_S
MIN_EXPIRATION_S = DAY_S
DEFAULT_EXPIRATION_S = 31 * DAY_S

MIN_DELIVERY_ATTEMPTS = 5
MAX_DELIVERY_ATTEMPTS = 100
MAX_BACKOFF_S = 600
DEFAULT_MIN_BACKOFF_S = 10
PUSH_MIN_BACKOFF_S = 0.1
PUSH_MAX_BACKOFF_S = 60.0

MAX_SCHEMA_BYTES = 300 * 1000
MAX_SCHEMA_REVISIONS = 20
MAX_AVRO_VALUES = 250_000

# A subscription never drops a message: a publish beyond this is refused, so nothing that was accepted is lost.
BACKLOG_MESSAGES = 100_000_000
BACKLOG_BYTES = 1 << 40
MEMORY_BACKLOG_MESSAGES = 2_000_000
MEMORY_BACKLOG_BYTES = 1024 * MIB
"""The same for a store that is not durable, where every waiting message is in memory."""
