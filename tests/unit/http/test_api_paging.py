"""Cursors mean what the list that made them meant, and pages stay where they are while a list changes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.domain.errors import InvalidArgument
from penstock.http.api.paging import check_no_cursor, cursor_after, first_of, key_before, page_of, whole_or_page_of
from penstock.http.errors import BadCursor

Row = tuple[str, int]
KEYS = st.tuples(st.text(), st.integers(-(2**62), 2**62), st.floats(allow_nan=False, allow_infinity=False))
NAMES = st.sets(st.text(max_size=3), max_size=12)


@given(KEYS)
def test_a_cursor_is_the_key_it_was_made_of(key: tuple[str, int, float]) -> None:
    cursor = cursor_after(key)

    assert key_before(cursor, tuple[str, int, float]) == key
    assert cursor.replace("-", "").replace("_", "").isalnum(), "it needs no escaping in a URL"


@given(st.text())
def test_a_text_that_is_no_cursor_is_refused(text: str) -> None:
    with pytest.raises(BadCursor, match="send the cursor of the previous page"):
        key_before(f"!{text}", tuple[str])


@pytest.mark.parametrize("bad", ["", "x", "WyJhIl0=", "WyJhIl0 ", "W yJhIl0", "WzFd", "WyJhIiwiYiJd", "e30", "Ä"])
def test_a_cursor_of_another_list_or_a_damaged_one_is_refused(bad: str) -> None:
    assert key_before("WyJhIl0", tuple[str]) == ("a",)
    with pytest.raises(BadCursor):
        key_before(bad, tuple[str])


def name_of(row: Row) -> tuple[str]:
    return (row[0],)


@given(NAMES, st.lists(NAMES, max_size=8), st.integers(1, 4))
def test_a_walk_neither_skips_nor_repeats_what_was_there_throughout(
    names: set[str], changes: list[set[str]], limit: int
) -> None:
    rows, stayed, ever = set(names), set(names), set(names)
    told: list[str] = []
    cursor: str | None = None
    while True:
        page, cursor = page_of(((name, 0) for name in rows), name_of, tuple[str], limit, cursor)
        told += [name for name, _ in page]
        if cursor is None:
            break
        # Of these, what is there goes, and what is not comes.
        rows ^= changes.pop() if changes else set()
        stayed &= rows
        ever |= rows
    assert sorted(told) == told
    assert len(set(told)) == len(told)
    assert stayed <= set(told) <= ever


def test_rows_of_one_key_stay_on_one_page() -> None:
    rows = [("a", 1), ("b", 2), ("b", 3), ("c", 4)]

    page, cursor = page_of(rows, name_of, tuple[str], 2, None)
    assert page == rows[:3]
    assert page_of(rows, name_of, tuple[str], 2, cursor) == (rows[3:], None)


def test_what_was_found_in_order_is_cut_to_a_page() -> None:
    rows = [("a", 1), ("b", 2), ("c", 3)]

    assert first_of(rows, name_of, 3) == (rows, None)
    assert first_of(rows, name_of, 2) == (rows[:2], cursor_after(("b",)))
    assert first_of([], name_of, 2) == ([], None)


def test_a_list_asked_for_as_a_whole_keeps_its_own_order() -> None:
    rows = [("b", 1), ("a", 2)]

    assert whole_or_page_of(rows, name_of, tuple[str], None, None) == (rows, None)
    assert whole_or_page_of(rows, name_of, tuple[str], 2, None) == (rows[::-1], None)
    assert whole_or_page_of(rows, name_of, tuple[str], None, cursor_after(("a",))) == (rows[:1], None)


def test_an_order_without_pages_takes_no_cursor() -> None:
    check_no_cursor(None, "order=longest")
    with pytest.raises(InvalidArgument, match="order=longest lists only the first items"):
        check_no_cursor("x", "order=longest")
