"""Time-ordered ids: a TSID is 42 bits of milliseconds, 10 of node and 12 of counter, as 13 Crockford characters."""

JOB_JOINT = "-"
"""Separates the event's id from the subscription's in a job id."""
COPY_JOINT = "~"
"""Separates the job's id from the replay's in the id of a copy."""

CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
EPOCH_MS = 1_577_836_800_000  # 2020-01-01T00:00:00Z, the epoch TSID implementations share
NODE_BITS = 10
COUNTER_BITS = 12
MAX_NODE = (1 << NODE_BITS) - 1
TSID_LENGTH = 13

_TAIL_BITS = NODE_BITS + COUNTER_BITS
_TIME_BITS = 64 - _TAIL_BITS
_COUNTER_SPAN = 1 << COUNTER_BITS
_PAIR_BITS = 10
_PAIR_MASK = (1 << _PAIR_BITS) - 1
_PAIRS = tuple(high + low for high in CROCKFORD for low in CROCKFORD)
_VALUES = {char: value for value, char in enumerate(CROCKFORD)}
# Crockford reads the letters people confuse with digits as those digits.
_VALUES |= {char.lower(): value for char, value in _VALUES.items()}
_VALUES |= {"O": 0, "o": 0, "I": 1, "i": 1, "L": 1, "l": 1}


def encode_tsid(value: int) -> str:
    """Return the 13 characters of a 64-bit id."""
    pairs = _PAIRS
    return (
        CROCKFORD[value >> 60]
        + pairs[value >> 50 & 1023]
        + pairs[value >> 40 & 1023]
        + pairs[value >> 30 & 1023]
        + pairs[value >> 20 & 1023]
        + pairs[value >> 10 & 1023]
        + pairs[value & 1023]
    )


def decode_tsid(text: str) -> int:
    """Return the 64-bit id of 13 characters; raise ValueError if the text is not an id."""
    if len(text) != TSID_LENGTH:
        raise ValueError(f"a TSID has {TSID_LENGTH} characters, got {len(text)}: {text!r}")
    value = 0
    for char in text:
        digit = _VALUES.get(char)
        if digit is None:
            raise ValueError(f"{char!r} is not a Crockford base-32 character in {text!r}")
        value = value << 5 | digit
    if value >> 64:
        raise ValueError(f"{text!r} is larger than 64 bits")
    return value


def tsid_time_ms(value: int) -> int:
    """Return when an id was created, in milliseconds since the Unix epoch."""
    return (value >> _TAIL_BITS) + EPOCH_MS


def first_id_of(now_ms: int) -> str:
    """Return the smallest id that can be created at a time; times before the epoch of ids give the smallest of all."""
    return encode_tsid(min(max(now_ms - EPOCH_MS, 0), (1 << _TIME_BITS) - 1) << _TAIL_BITS)


class TsidFactory:
    """Creates strictly increasing ids for one node; nodes with different numbers never create the same id.

    When the counter of a millisecond is used up, or the clock stands still, the factory runs ahead of the clock
    instead of waiting: order and uniqueness matter more than the last millisecond of the time stamp.
    """

    __slots__ = ("_counter", "_head", "_node", "_prefix", "_tick_ms")

    def __init__(self, node: int) -> None:
        if not 0 <= node <= MAX_NODE:
            raise ValueError(f"a node id is between 0 and {MAX_NODE}, got {node}")
        self._node = node << COUNTER_BITS
        self._tick_ms = -1
        self._counter = _COUNTER_SPAN
        self._head = 0
        self._prefix = (-1, "")

    def next_value(self, now_ms: int) -> int:
        """Return the next id as a number."""
        return self._run(now_ms, 1)[0]

    def next_start(self, now_ms: int) -> int:
        """Return an id to count on from: no earlier id of the factory has its millisecond, and no later start does."""
        self._counter = _COUNTER_SPAN
        return self.next_value(now_ms)

    def next_id(self, now_ms: int) -> str:
        """Return the next id as text."""
        value = self.next_value(now_ms)
        key, prefix = self._prefix
        if key != value >> _PAIR_BITS:
            prefix = encode_tsid(value)[:-2]
            self._prefix = (value >> _PAIR_BITS, prefix)
        return prefix + _PAIRS[value & _PAIR_MASK]

    def next_ids(self, now_ms: int, count: int) -> list[str]:
        """Return the next `count` ids as text, the same that `next_id` would return."""
        ids: list[str] = []
        while len(ids) < count:
            value, length = self._run(now_ms, count - len(ids))
            prefix, first = encode_tsid(value)[:-2], value & _PAIR_MASK
            ids += [prefix + pair for pair in _PAIRS[first : first + length]]
        return ids

    def _run(self, now_ms: int, most: int) -> tuple[int, int]:
        """Return the next id as a number, and how many ids from it on differ only in the last two characters."""
        # Brokers in several threads may share a factory: without a call or a loop in here, CPython does not switch
        # threads between the read of the counter and its increment.
        tick_ms = now_ms - EPOCH_MS
        if tick_ms <= self._tick_ms:
            tick_ms = self._tick_ms + 1 if self._counter == _COUNTER_SPAN else self._tick_ms
        if tick_ms > self._tick_ms:
            self._tick_ms = tick_ms
            self._head = tick_ms << _TAIL_BITS | self._node
            self._counter = 0
        value = self._head | self._counter
        left = _PAIR_MASK + 1 - (value & _PAIR_MASK)
        length = most if most < left else left  # noqa: FURB136 `min` is a call
        self._counter += length
        return value, length


def job_id_for(event_id: str, subscription_id: str) -> str:
    """Return the id of the job that brings an event to a subscription; it depends on nothing else."""
    return f"{event_id}{JOB_JOINT}{subscription_id}"


def check_job_id(text: str) -> None:
    """Raise ValueError unless the text is the id of a direct job, a job of `job_id_for`, or a copy."""
    original, is_copy, replay_id = text.partition(COPY_JOINT)
    event_id, joint, subscription_id = original.partition(JOB_JOINT)
    decode_tsid(event_id)
    if joint:
        decode_tsid(subscription_id)
    if is_copy:
        decode_tsid(replay_id)
