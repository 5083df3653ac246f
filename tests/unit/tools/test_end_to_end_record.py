"""What the receiver of `penstock bench end-to-end` sees: losses are counted elsewhere, order and overlaps here."""

from penstock.tools.bench.end_to_end.figures import Faults, percentile_ms
from penstock.tools.bench.end_to_end.record import Delivered, ReceivedStream, StreamReport


def record_of(*requests: tuple[str, int]) -> StreamReport:
    """The report of requests that were answered one after another."""
    record = ReceivedStream()
    for key, sequence in requests:
        record.begin(key, Delivered("stream", sequence, 1.0), 1.5)
        record.end(key)
    return record.report()


def test_keys_in_order_have_no_fault() -> None:
    report = record_of(("a", 0), ("b", 0), ("a", 1), ("b", 1), ("a", 2))

    assert report == StreamReport(requests=5, distinct=5, last_s=1.5)


def test_an_event_after_a_later_one_of_its_key_is_reordered() -> None:
    report = record_of(("a", 0), ("a", 2), ("b", 1), ("a", 1), ("b", 0))

    assert (report.distinct, report.reordered, report.repeated) == (5, 2, 0)


def test_the_same_event_again_is_repeated_and_not_reordered() -> None:
    report = record_of(("a", 0), ("a", 1), ("a", 0), ("a", 3), ("a", 2), ("a", 2))

    assert (report.distinct, report.reordered, report.repeated) == (4, 1, 2)


def test_a_request_before_the_answer_to_the_one_before_it_overlaps() -> None:
    record = ReceivedStream()
    record.begin("a", Delivered("stream", 0, 1.0), 1.0)
    record.begin("b", Delivered("stream", 0, 1.0), 1.0)
    record.begin("a", Delivered("stream", 1, 1.0), 1.0)
    record.end("a")
    record.end("a")
    record.begin("a", Delivered("stream", 2, 1.0), 1.0)

    assert record.report().overlapping == 1


def test_latencies_are_those_of_new_events() -> None:
    record = ReceivedStream()
    record.begin("a", Delivered("stream", 0, 1.0), 1.5)
    record.begin("a", Delivered("stream", 0, 1.0), 9.0)

    assert record.latencies_ms == [500.0]
    assert record.report().last_s == 1.5


def test_what_did_not_arrive_is_lost() -> None:
    faults = Faults()
    faults.add(3, record_of(("a", 0), ("a", 1), ("a", 1)))

    assert (faults.lost, faults.reordered, faults.overlapping, faults.repeated) == (1, 0, 0, 1)
    assert faults.any


def test_repeated_events_break_no_promise() -> None:
    faults = Faults()
    faults.add(1, record_of(("a", 0), ("a", 0)))

    assert faults.repeated == 1
    assert not faults.any


def test_percentiles() -> None:
    assert percentile_ms([float(number) for number in range(100, 0, -1)], 99) == 99.0
    assert percentile_ms([1.0, 2.0, float("inf")], 50) == 2.0
    assert percentile_ms([1.0, 2.0, float("inf")], 99) == float("inf")
    assert percentile_ms([7.0], 50) == 7.0
    assert percentile_ms([], 50) == float("inf")
