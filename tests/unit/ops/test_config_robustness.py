from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.ops.config import Config, ConfigError
from penstock.ops.config.loader import resolve
from penstock.ops.config.setting import settings

KNOWN = tuple(settings(Config))
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.datetimes() | st.dates() | st.times()
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
SECTIONS = st.sampled_from([entry.section for entry in KNOWN]) | st.text()
NAMES = st.sampled_from([entry.name for entry in KNOWN]) | st.text()
DOCUMENTS = st.dictionaries(SECTIONS, VALUES | st.dictionaries(NAMES, VALUES, max_size=4), max_size=5)
VARIABLES = st.sampled_from([entry.variable for entry in KNOWN]) | st.text().map("PENSTOCK_{}".format) | st.text()
ENVIRONMENTS = st.dictionaries(VARIABLES, st.text() | st.integers().map(str), max_size=5)


@given(DOCUMENTS, ENVIRONMENTS)
def test_any_input_loads_or_is_a_configuration_error(document: dict[str, object], environ: dict[str, str]) -> None:
    # With a variable that is never known every input is refused, and says so in printable lines.
    with pytest.raises(ConfigError) as caught:
        resolve(Config, document, "file", {**environ, "PENSTOCK_NOPE": ""})
    assert all(str(problem).isprintable() for problem in caught.value.problems)
    with suppress(ConfigError):
        assert isinstance(resolve(Config, document, "file", environ).config, Config)
