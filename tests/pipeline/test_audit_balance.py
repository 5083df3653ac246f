"""The sums of an audit: what is wanted and what there is cancel out, and nothing else does."""

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from penstock.history.audit.lost import BUCKETS, Sums, unbalanced
from penstock.history.audit.packed_rows import number_hash, pair_hash

NUMBER = st.integers(-(1 << 63), (1 << 63) - 1)
PAIRS = st.lists(NUMBER.filter(bool), max_size=20)


@pytest.mark.xdist_group("spark")
def test_a_pair_has_the_hash_that_spark_gives_it(spark: SparkSession) -> None:
    texts = ["", "0000000000007", "ключ ✓", "x" * 1000]
    marks = [0, 1, -1, 1 << 62, -(1 << 63), 0x0123456789ABCDEF]
    rows = spark.createDataFrame([(text, mark) for text in texts for mark in marks], "text string, mark long")
    text = f.xxhash64("text")
    hashed = rows.select(text, "mark", f.xxhash64("text", "mark"), f.xxhash64(text, "mark")).collect()
    of_text, mark, of_both, of_numbers = numpy.array([tuple(row) for row in hashed], dtype=numpy.int64).T.copy()
    assert pair_hash(of_text, mark).tolist() == of_both.tolist()
    assert pair_hash(number_hash(of_text), mark).tolist() == of_numbers.tolist()


def _numbers(pairs: list[int]) -> "numpy.ndarray[tuple[int], numpy.dtype[numpy.int64]]":
    return numpy.array(pairs, dtype=numpy.int64)


@given(wanted=PAIRS, extra=PAIRS, lacking=st.integers(0, 20), damaged=st.lists(NUMBER, max_size=2))
def test_buckets_in_which_something_is_amiss_are_told(
    wanted: list[int], extra: list[int], lacking: int, damaged: list[int]
) -> None:
    events, jobs = Sums(), Sums()
    events.want(_numbers(wanted))
    events.damaged(_numbers(damaged))
    # 0 stands for a job that no event caused.
    jobs.have(_numbers([*extra, 0, *reversed(wanted[lacking:])]))
    amiss = {each % BUCKETS for each in [*wanted[:lacking], *extra, *damaged]}
    found = set(unbalanced([events.numbers.ravel(), jobs.numbers.ravel()]).tolist())
    # One that is lacking and another one that is too many may be the same: then nothing is amiss.
    same = {each % BUCKETS for each in set(wanted[:lacking]) & set(extra)}
    assert amiss - same <= found <= amiss


def test_jobs_that_changed_places_are_noticed() -> None:
    event, mark = _numbers([7 * BUCKETS, 9 * BUCKETS]), _numbers([1, 2])
    sums = Sums()
    sums.want(pair_hash(event, mark) & -BUCKETS)
    sums.have(pair_hash(event, mark[::-1].copy()) & -BUCKETS)
    assert unbalanced([sums.numbers]).tolist() == [0]
