"""Filter expressions: what they mean, and what a wrong one says."""

import pytest

from penstock.domain.errors import InvalidArgument
from penstock.domain.event import Filterable
from penstock.domain.matching.expression import MOST_EXPRESSION_CHARS, compiled

ORDER = Filterable(
    {"region": "eu-west", "type": "orders:created"},
    b'{"total": 120.5, "count": 3, "paid": true, "coupon": null, "lines": [{"sku": "AB-1"}, {"sku": "CD-2"}],'
    b' "tags": ["new", 7], "odd name": {"in": 1}, "note": "it\'s \\"late\\""}',
    "application/json",
)


@pytest.mark.parametrize(
    "text",
    [
        "data.total >= 100",
        "data.total > 120 and data.total < 121",
        "data.count == 3",
        "data.count == 3.0",
        "data.count != 4",
        "data.count <= 3 and data.count >= 3",
        "data.count > -1e2",
        "data.paid == true",
        "data.coupon == null",
        "data.coupon exists",
        "data.missing not exists",
        "not data.missing exists",
        "data.lines[1].sku == 'CD-2'",
        'data.lines[0]["sku"] prefix "AB-"',
        "data.lines[0].sku not prefix 'CD-'",
        "data.tags contains 'new' and data.tags contains 7",
        "data.note contains 'late'",
        "data['odd name'].in == 1",
        r"""data.note == "it's \"late\"" """,
        r"data.note == 'it\u0027s \"late\"'",
        "region in ('us', 'eu-west')",
        "region not in ('us')",
        "region prefix 'eu' and type == 'orders:created'",
        "region == 'us' or data.count == 3 and region != 'us'",
        "(region == 'us' or data.count == 3) and region != 'us'",
        "not (region == 'us' or region == 'ap')",
        "missing != 'x'",
        "missing not in ('x')",
        "data exists",
    ],
)
def test_it_holds(text: str) -> None:
    assert compiled(text).matches(ORDER)


@pytest.mark.parametrize(
    "text",
    [
        "data.total >= 200",
        "data.paid == 1",
        "data.count == true",
        "data.paid > 0",
        "data.count == '3'",
        "data.count < '4'",
        "data.coupon == 0",
        "data.missing == null",
        "data.missing < 1",
        "data.missing prefix ''",
        "data.lines[2] exists",
        "data.lines.sku exists",
        "data.count.x exists",
        "data.count[0] exists",
        "data.tags contains 'ne'",
        "data.count prefix '3'",
        "data.lines in ('a', 1)",
        "missing == 'x'",
        "region == 'us' and data.count == 3 or region == 'ap'",
        "not not region == 'us'",
    ],
)
def test_it_does_not_hold(text: str) -> None:
    assert not compiled(text).matches(ORDER)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "data.total >= ",
            "at character 15: expected a string in quotes, a number, true, false or null, found the end",
        ),
        ("data.total = 5", "at character 12: equality is written =="),
        ("data.total", "at character 11: expected a comparison"),
        ("total >= 100", "at character 10: attributes are text, so write 100 in quotes"),
        ("order.total > 1", "at character 1: 'order' is an attribute and has no parts"),
        ("data.a == 1 data.b == 2", "at character 13: expected `and`, `or` or the end, found data"),
        ("(data.a == 1", "at character 13: expected `)`, found the end"),
        ("data.a in (1, )", "at character 15: expected a string"),
        ("data.a in 1", "at character 11: expected `(`"),
        ("data.a == 'x", "at character 11: the string has no closing quote"),
        (r"data.a == 'a\qb'", r"at character 13: unknown escape \q"),
        ("data.a > true", "at character 10: true has no order"),
        ("data.a prefix 5", "at character 15: expected a string in quotes, found 5"),
        ("data.1 == 5", "at character 6: expected a name"),
        ("data[-1] == 5", "at character 6: expected a place in a list"),
        ("data.a == 1e999", "at character 11: 1e999 is too large a number"),
        ("and == 'x'", "at character 1: expected an attribute"),
        ("data.a == 5 & data.b == 6", "at character 13: cannot read '& data.b ='"),
        ("", "at character 1: expected an attribute"),
        ("(" * 60 + "a == 'b'" + ")" * 60, "at character 51: more than 50 levels"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text: str, says: str) -> None:
    with pytest.raises(InvalidArgument) as raised:
        compiled(text)

    assert says in raised.value.message


def test_a_long_expression_is_refused() -> None:
    with pytest.raises(InvalidArgument, match=f"use up to {MOST_EXPRESSION_CHARS}"):
        compiled("data.a == " + "1" * MOST_EXPRESSION_CHARS)


@pytest.mark.parametrize(
    ("content", "content_type"),
    [
        (b"", "application/json"),
        (b"{broken", "application/json"),
        (b'{"total": 1}', "text/plain"),
        (b"\xff", "application/json"),
        (b"[" * 100_000, "application/json"),
    ],
)
def test_data_that_is_not_json_has_no_paths(content: bytes, content_type: str) -> None:
    event = Filterable({}, content, content_type)

    assert not compiled("data.total exists or data exists").matches(event)
    assert compiled("data.total != 1").matches(event)


def test_only_an_expression_with_a_path_into_the_data_reads_it() -> None:
    assert compiled("region == 'eu' or data.total > 1").reads_data
    assert not compiled("region == 'data.total'").reads_data
