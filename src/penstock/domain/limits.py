"""Numbers that bound the system, with where each comes from."""

KIB = 1024
MIB = 1024 * KIB

SECOND_MS = 1000
MINUTE_MS = 60 * SECOND_MS

# Seed 001: BR-017.
MAX_MESSAGE_BYTES = 10 * MIB
MAX_ATTRIBUTE_KEY_BYTES = 256
MAX_ATTRIBUTE_VALUE_BYTES = 1024
RESERVED_ATTRIBUTE_PREFIXES = ("goog",)  # covers `googclient_`

# Seed 001: BR-008, BR-022 and its performance notes.
MIN_ACK_DEADLINE_S = 10
MAX_ACK_DEADLINE_S = 600
DEFAULT_ACK_DEADLINE_S = 10
MAX_FILTER_BYTES = 256
SUBSCRIPTION_MAX_MESSAGES = 10_000
SUBSCRIPTION_MAX_BYTES = 100 * MIB
DEFAULT_RETENTION_S = 7 * 24 * 60 * 60

# Memory held per queue: the window it keeps full, and how far it looks past groups that are blocked.
WINDOW_MESSAGES = 10_000
WINDOW_BYTES = 64 * MIB
LOOKAHEAD_MESSAGES = 120_000
