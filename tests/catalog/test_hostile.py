"""Whatever stands in a catalog's files, it is read or refused with a place; nothing else happens."""

from pathlib import Path

import yaml
from hypothesis import given
from hypothesis import strategies as st

from patchkit.catalog import header
from patchkit.catalog.load import load_text
from patchkit.catalog.model import Manifest
from patchkit.errors import BadInput
from patchkit.lifecycle import lock

_SCALARS = st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=8) | st.sampled_from([
    "name", "sha256:" + "0" * 64, ">=1", "../x", "/x", "linux/amd64", "2026-11-30"
])  # fmt: skip
_KEYS = st.sampled_from([*Manifest.__dataclass_fields__, "id", "file", "pre", "post", "match", "syntax", "why", "x"])
_VALUES = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=3), max_leaves=12
)


def read(load):
    """What loading gives, or the bad input that it was."""
    try:
        return load()
    except BadInput as error:
        return error


@given(st.dictionaries(_KEYS, _VALUES, max_size=8))
def test_any_mapping_is_a_manifest_or_a_list_of_faults(document):
    text = yaml.safe_dump(document, allow_unicode=True)
    found = read(lambda: load_text(Path("m.yaml"), text.encode(), Path("/nowhere")))
    if isinstance(found, BadInput):
        assert found.code == "bad-manifest"
        assert found.where.startswith("m.yaml:")
        assert all(line.startswith("m.yaml:") for line in found.details)
    else:
        assert isinstance(found, Manifest)


@given(st.text(max_size=200))
def test_any_text_is_a_lock_or_bad_input_with_its_line(text):
    found = read(lambda: lock.loads(text))
    assert isinstance(found, dict) or found.where.startswith("patchkit.lock:")


@given(st.binary(max_size=300))
def test_any_bytes_have_a_header_and_are_split_without_loss(data):
    prose, diff = header.split(data)
    assert prose + diff == data
    header.render(header.parse(data))
