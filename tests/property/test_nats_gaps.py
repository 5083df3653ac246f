"""Group order on a simulated JetStream consumer that loses deliveries and routers: no message passes an earlier one."""

from collections.abc import Set
from random import Random

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from penstock.queues.group_order import GroupOrder, State
from penstock.queues.nats.gaps import MARGIN_S, ConsumerProgress, DeliveryGaps, DeliveryNumbers
from tests.rigs.search import examples

LEASE_S = 9.0
GROUPS = ("a", "b", None)


class SimulatedConsumer:
    """JetStream's side: what is in the stream, who leases it until when."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.groups: dict[int, str | None] = {}
        self.delivered_seq = 0
        self.delivery_seq = 0
        self.lease_ends_s: dict[int, float] = {}
        self.acked: set[int] = set()

    def publish(self) -> None:
        # A message with no place for this consumer makes holes in the numbers that mean nothing.
        seq = len(self.groups) + 1
        self.groups[seq] = self.random.choice(GROUPS)
        if self.random.random() < 0.1:
            self.acked.add(seq)

    def pull(self, most: int, now_s: float) -> list[DeliveryNumbers]:
        expired = [seq for seq, ends_s in self.lease_ends_s.items() if ends_s <= now_s]
        self.random.shuffle(expired)
        new = [seq for seq in self.groups if seq > self.delivered_seq and seq not in self.acked]
        return [self._deliver(seq, now_s) for seq in (expired + new)[:most]]

    def _deliver(self, seq: int, now_s: float) -> DeliveryNumbers:
        is_first = seq > self.delivered_seq
        self.delivered_seq = max(seq, self.delivered_seq)
        self.delivery_seq += 1
        self.lease_ends_s[seq] = now_s + LEASE_S
        return DeliveryNumbers(seq, self.delivery_seq, is_first)

    def ack(self, seq: int) -> None:
        self.acked.add(seq)
        self.lease_ends_s.pop(seq, None)

    def progress(self) -> ConsumerProgress:
        settled_seq = min(self.lease_ends_s, default=self.delivered_seq + 1) - 1
        return ConsumerProgress(settled_seq, self.delivered_seq, self.delivery_seq, len(self.lease_ends_s))


class Router:
    """Penstock's side, which checks every hand-out."""

    def __init__(self, consumer: SimulatedConsumer, now_s: float) -> None:
        self.consumer = consumer
        self.gaps: DeliveryGaps[int] = DeliveryGaps(consumer.progress(), LEASE_S, now_s)
        self.order: GroupOrder[int] = GroupOrder()

    def pull(self, most: int, now_s: float, lost: Set[int] = frozenset()) -> None:
        self.gaps.pull_started(now_s)
        deliveries = self.consumer.pull(most, now_s)
        for at, numbers in enumerate(deliveries):
            if at not in lost:
                grouped = self.consumer.groups[numbers.stream_seq] is not None
                self.shelve(self.gaps.arrive(numbers, numbers.stream_seq, grouped=grouped, now_s=now_s))
        if lost:
            self.gaps.pull_failed(now_s)
        elif len(deliveries) < most:
            self.shelve(self.gaps.pull_empty())

    def shelve(self, seqs: list[int]) -> None:
        for seq in seqs:
            if seq not in self.consumer.acked:
                self.order.arrive(str(seq), self.consumer.groups[seq], seq)

    def take(self, most: int) -> list[int]:
        taken = self.order.take(most)
        out = set(self.order.messages(State.OUT))
        for seq in taken:
            group = self.consumer.groups[seq]
            if group is None:
                continue
            earlier = {n for n in range(1, seq) if self.consumer.groups[n] == group} - self.consumer.acked
            assert earlier <= out, f"{seq} passed {earlier - out}"
        return taken

    def settle(self, seq: int) -> None:
        self.consumer.ack(seq)
        self.order.settle(str(seq))

    def keep_ours(self, now_s: float) -> None:
        for seq in (*self.order.messages(State.WAITING, State.HELD), *self.gaps.held):
            if seq in self.consumer.lease_ends_s:
                self.consumer.lease_ends_s[seq] = now_s + LEASE_S


def step(random: Random, consumer: SimulatedConsumer, router: Router, now_s: float) -> Router:
    """Something happens."""
    match random.randrange(8):
        case 0 | 1:
            consumer.publish()
        case 2:
            router.pull(random.randint(1, 6), now_s)
        case 3:
            lost = {at for at in range(6) if random.random() < 0.5}
            router.pull(random.randint(1, 6), now_s, lost)
        case 4 | 5:
            for seq in router.take(random.randint(1, 4)):
                if random.random() < 0.6:
                    router.settle(seq)
        case 6:
            for seq in router.order.messages(State.OUT):
                if random.random() < 0.5:
                    router.order.give_back(str(seq))
        case 7:
            if random.random() < 0.3:
                router = Router(consumer, now_s)
    return router


# A run of random steps does not get clearer by shrinking it; the seed is enough.
@settings(max_examples=examples(500), phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(seed=st.integers(0, 2**32))
def test_whatever_gets_lost_no_message_passes_an_earlier_one_of_its_group(seed: int) -> None:
    random = Random(seed)
    now_s = 100.0
    consumer = SimulatedConsumer(random)
    router = Router(consumer, now_s)
    for _ in range(60):
        router = step(random, consumer, router, now_s)
        if random.random() < 0.3:
            now_s += LEASE_S / 3
            router.keep_ours(now_s)

    for _ in range(12):  # nothing gets lost any more: everything comes
        now_s += LEASE_S / 3 + MARGIN_S
        router.keep_ours(now_s)
        router.pull(1000, now_s)
        while taken := router.take(10):
            for seq in taken:
                router.settle(seq)
    assert consumer.acked == set(consumer.groups)
