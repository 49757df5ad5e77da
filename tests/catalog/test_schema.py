"""Schema and reference are drawn from the types; what is shipped is what the types say."""

from pathlib import Path
from typing import ClassVar

import yaml

from patchkit.catalog.schema import json_schema, reference, schema_text, shipped

ROOT = Path(__file__).parents[2]


class _EditorLoader(yaml.SafeLoader):
    """Reads as YAML 1.2 does, and editors with it: a date is a text."""

    yaml_implicit_resolvers: ClassVar = {
        first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


def test_the_shipped_schema_is_the_one_that_the_types_give():
    assert shipped() == schema_text(), "run: patchkit manifest schema > patchkit/catalog/manifest.schema.json"


def test_every_key_is_told_in_the_schema_and_in_the_reference():
    schema = json_schema()
    objects = [schema, *schema["definitions"].values()]
    keys = {key for each in objects for key in each["properties"]}
    assert {"name", "drop_when", "calls_no", "except_under", "calls_with", "before", "seen"} <= keys
    assert "path" not in schema["properties"]
    for key in keys:
        assert f"| `{key}` |" in reference()
    assert all(value["description"] for each in objects for value in each["properties"].values())


def test_the_schema_accepts_every_shipped_manifest():
    import jsonschema

    for file in sorted((ROOT / "manifests").glob("*.yaml")):
        document = yaml.load(file.read_text("utf-8"), Loader=_EditorLoader)
        jsonschema.validate(document, json_schema(), jsonschema.Draft7Validator)


def test_the_schema_refuses_what_the_loader_refuses():
    import jsonschema

    validator = jsonschema.Draft7Validator(json_schema())
    sound = {"name": "x", "package": "p", "versions": "", "images": [], "patches": []}
    assert not list(validator.iter_errors(sound))
    for wrong in (
        {**sound, "nam": "x"},
        {key: value for key, value in sound.items() if key != "package"},
        {**sound, "name": "X Y"},
        {**sound, "digests": {"sha256:1": {"version": "1"}}},
        {**sound, "patches": [{"id": "a", "file": "../a.patch"}]},
        {**sound, "decoys": ["relative"]},
    ):
        assert list(validator.iter_errors(wrong)), wrong
