"""Receipt files are input like any other: whatever lies there is a receipt that patchkit wrote, or refused in words."""

from __future__ import annotations

import contextlib
import copy
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from patchkit.catalog.model import Gpus, RefusedEnv
from patchkit.deliver import image as image_delivery
from patchkit.deliver.receipt import Receipt, ReceiptFile, ReceiptPatch, load, to_bytes
from patchkit.errors import BadInput, PatchkitError, Refused
from patchkit.images.model import Entry, Identity, Mount, Reference
from patchkit.plan import fingerprint_of
from patchkit.site.model import Launch

POST = "sha256:" + "b" * 64
FILE = ReceiptFile("p/a.py", "/site/p/a.py", "sha256:" + "a" * 64, POST, 0o644, 0, 0, "p.a", (1, 2))
IDENTITY = Identity("sha256:" + "c" * 64, ("sha256:" + "d" * 64,), "linux/amd64", repo_digests=("p@sha256:1",))
RECEIPT = Receipt(
    kind="bind",
    origin="docker-daemon:p:1",
    origin_identity=IDENTITY,
    delivered="docker-daemon:p:1",
    delivered_identity=IDENTITY,
    manifest="p",
    package="p",
    package_version="1",
    copy="/site/p",
    launch=Launch("module", "/bin/python3", "p", "/", {"PATH": "/bin"}),
    launch_given="",
    patches=(ReceiptPatch("one", "e" * 64),),
    files=(FILE,),
    fingerprint=fingerprint_of({"p/a.py": POST}),
    gpus=Gpus(("gfx942",), "Others differ."),
    refused_env=(RefusedEnv("X", ("1",), "It breaks."),),
    mounts=(Mount("/host/a.py", "/site/p/a.py"),),
    levels=({"name": "bytes", "state": "passed", "files": []},),
)


def test_a_receipt_comes_back_as_it_was_written(tmp_path):
    place = tmp_path / "receipt.json"
    place.write_bytes(to_bytes(RECEIPT))
    assert load(place) == RECEIPT


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield (*path, key)
        yield from _places(value[key], (*path, key))


def test_a_value_of_another_type_anywhere_is_refused(tmp_path):
    good = json.loads(to_bytes(RECEIPT))
    place = tmp_path / "receipt.json"
    taken = []
    for path in _places(good):
        if path[0] == "levels" and len(path) > 1:
            continue  # told as they are, never worked with
        for wrong in (5.5, True, [[]], {"x": {}}, "a\0b", "\ud800"):
            bad = copy.deepcopy(good)
            inner = bad
            for key in path[:-1]:
                inner = inner[key]
            inner[path[-1]] = wrong
            place.write_text(json.dumps(bad))
            with contextlib.suppress(BadInput):
                load(place)
                taken.append((path, wrong))
    assert taken == []


@pytest.mark.parametrize(
    "change",
    [
        {"files": []},
        {"fingerprint": "0" * 64},
        {"files": [json.loads(to_bytes(RECEIPT))["files"][0]] * 2},
        {"more": 1},
    ],
)
def test_a_receipt_of_no_files_or_of_others_than_its_fingerprint_proves_nothing(tmp_path, change):
    place = tmp_path / "receipt.json"
    place.write_text(json.dumps({**json.loads(to_bytes(RECEIPT)), **change}))
    with pytest.raises(PatchkitError, match="no receipt that patchkit wrote"):
        load(place)


@pytest.mark.parametrize("target", ["a.py", "//site/p/a.py", "/site/../a.py", ""])
def test_a_mount_at_what_is_no_plain_path_is_refused(tmp_path, target):
    place = tmp_path / "receipt.json"
    mounts = [{"source": "/host/a.py", "target": target}]
    place.write_text(json.dumps({**json.loads(to_bytes(RECEIPT)), "mounts": mounts}))
    with pytest.raises(PatchkitError, match="no plain path inside of an image"):
        load(place)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"schema":' * 100_000, "9" * 5000, "", "null", "[1]", '"x"', "NaN"])
def test_json_that_is_no_receipt_is_told_and_no_traceback(tmp_path, text):
    place = tmp_path / "receipt.json"
    place.write_text(text)
    with pytest.raises(PatchkitError, match="no receipt that patchkit wrote"):
        load(place)


def test_a_pipe_or_a_device_that_a_label_names_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for place in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        with pytest.raises(PatchkitError) as told:
            load(place)
        assert told.value.code == "bad-receipt"


class _Image:
    """Just enough of an image: one file, and labels."""

    reference = Reference("oci", "x")
    identity = IDENTITY

    def __init__(self, labels: Any, content: bytes = b"") -> None:
        self.config = json.dumps({"config": {"Labels": labels}}).encode()
        self.fs = self
        self.content = content

    def lstat(self, path: str) -> Entry | None:
        return Entry(path, "file", 0o644, 0, 0) if path.endswith("patchkit.json") else None

    def read(self, path: str) -> bytes:
        return self.content


def _layer(**changes: Any) -> bytes:
    file = {name: value for name, value in json.loads(to_bytes(RECEIPT))["files"][0].items() if name != "image_path"}
    content = {
        "schema": "patchkit.layer",
        "version": 1,
        "manifest": "p",
        "package": "p",
        "package_version": "1",
        "patches": [],
        "files": [file],
        "fingerprint": RECEIPT.fingerprint,
        **{name: json.loads(to_bytes(RECEIPT))[name] for name in ("gpus", "refused_env")},
    }
    return json.dumps({**content, **changes}).encode()


LABELS = {"dev.patchkit.fingerprint": RECEIPT.fingerprint, "dev.patchkit.receipt": "/site/p.dist-info/patchkit.json"}


def test_the_receipt_of_a_layer_is_read():
    found = image_delivery.receipt_in(_Image(LABELS, _layer()))
    assert found is not None
    assert found.files == (FILE,)
    assert (found.gpus, found.refused_env) == (RECEIPT.gpus, RECEIPT.refused_env)


def test_a_receipt_of_a_layer_that_lacks_something_says_what():
    content = json.loads(_layer())
    del content["gpus"]
    with pytest.raises(Refused, match="'gpus' is missing"):
        image_delivery.receipt_in(_Image(LABELS, json.dumps(content).encode()))


def _leaving() -> bytes:
    file = {**json.loads(_layer())["files"][0], "path": "../../etc/passwd"}
    fingerprint = fingerprint_of({"../../etc/passwd": POST})
    return _layer(files=[file], fingerprint=fingerprint)


@pytest.mark.parametrize(
    ("labels", "content"),
    [
        (LABELS, b"[" * 100_000),
        (LABELS, b"[]"),
        (LABELS, _layer(files=5)),
        (LABELS, _layer(files=[5])),
        (LABELS, _layer(files=[])),
        (LABELS, _layer(package=5)),
        (LABELS, _layer(patches=[{"id": {}, "sha256": 1}])),
        ({**LABELS, "dev.patchkit.receipt": "/site/../patchkit.json"}, _layer()),
        ({**LABELS, "dev.patchkit.receipt": "//site/p.dist-info/patchkit.json"}, _layer()),
        ({**LABELS, "dev.patchkit.fingerprint": fingerprint_of({"../../etc/passwd": POST})}, _leaving()),
    ],
)
def test_a_layer_receipt_that_lies_or_is_none_is_refused(labels, content):
    with pytest.raises(PatchkitError) as told:
        image_delivery.receipt_in(_Image(labels, content))
    assert told.value.code == "receipt-unreadable"


def test_a_hostile_name_in_a_label_is_no_command_in_the_remedy():
    labels = {**LABELS, "dev.patchkit.origin.name": "x; rm -rf ~"}
    with pytest.raises(PatchkitError) as told:
        image_delivery.receipt_in(_Image(labels, b""))
    assert told.value.remedy is not None
    assert told.value.remedy.endswith("--image 'x; rm -rf ~'")


@pytest.mark.parametrize("labels", [None, [], "dev.patchkit.fingerprint", {"dev.patchkit.fingerprint": 5}, 7])
def test_labels_that_no_engine_writes_are_no_labels(labels):
    assert image_delivery.receipt_in(_Image(labels)) is None
