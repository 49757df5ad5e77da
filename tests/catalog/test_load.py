"""Bad input is named whole, with file, line and column; good input becomes what was written."""

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import patchkit
from patchkit.catalog.load import built_in, load_catalog, load_manifest
from patchkit.errors import BadInput

PATCH = b"""Description: mend a
Origin: vendor

diff --git a/p/a.py b/p/a.py
--- a/p/a.py
+++ b/p/a.py
@@ -1 +1 @@
-a
+b
"""
A, B = "sha256:" + "a" * 64, "sha256:" + "b" * 64
GOOD = f"""\
name: good
package: p
versions: ">=1,<2"
images: [{{match: "good:*"}}]
digests: {{"{A}": {{version: "1.0", seen: 2026-11-30}}}}
patches:
  - id: fix-a
    file: patches/a.patch
    pre: {{"p/a.py": "{A}"}}
    post: {{"p/a.py": "{B}"}}
"""


@pytest.fixture
def root(tmp_path):
    (tmp_path / "manifests").mkdir()
    (tmp_path / "patches").mkdir()
    (tmp_path / "patches" / "a.patch").write_bytes(PATCH)
    return tmp_path


def write(root, text, name="m.yaml"):
    file = root / "manifests" / name
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return file


def faults(root, text):
    """Every fault of a manifest as ``line:col: text``."""
    file = write(root, text)
    with pytest.raises(BadInput) as caught:
        load_manifest(file)
    error = caught.value
    assert error.code == "bad-manifest"
    assert error.where.startswith(f"{file}:")
    return [each.removeprefix(f"{file}:") for each in error.details or (f"{error.where}: {error.what}",)]


def test_a_sound_manifest_becomes_what_was_written(root):
    found = load_manifest(write(root, GOOD))
    assert (found.name, found.package, found.versions) == ("good", "p", ">=1,<2")
    assert found.digests[A].seen == "2026-11-30"
    assert found.patches[0].pre == {"p/a.py": A}
    assert found.path == root / "manifests" / "m.yaml"


def test_every_fault_is_named_at_once_in_the_order_of_the_lines(root):
    text = GOOD.replace("name: good", "nam: good").replace('">=1,<2"', '">>1"').replace(A, "sha256:1", 1)
    text = text.replace("id: fix-a", "id: Fix A").replace("pre:", "prae:") + "strict: maybe\nplatforms: linux\n"
    assert faults(root, text) == [
        "1:1: name is missing: The manifest's name, as `--manifest` takes it; one of its kind in a catalog.",
        "1:1: unknown key nam; did you mean name?",
        "5:11: digests: 'sha256:1' is not sha256:<64 hex digits>",
        "7:9: patches[0].id: 'Fix A' is not lower-case letters, digits and . _ + -",
        "9:5: unknown key prae; did you mean pre?",
        "11:9: strict: 'maybe' is none of true, false",
        "12:12: platforms must be a list",
    ]


def test_a_range_that_is_none_is_a_fault(root):
    assert faults(root, GOOD.replace('">=1,<2"', '">>1"')) == [
        """3:11: '>>1' is no version range as ">=0.33,<0.34" is (PEP 440)"""
    ]


def test_a_number_where_a_text_belongs_must_be_quoted(root):
    assert faults(root, GOOD.replace('">=1,<2"', "0.30")) == [
        '3:11: versions must be a text; write it in quotes: "0.30"'
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "1:1: empty"),
        ("a: &x [1]\nb: *x\n", "2:4: alias *x: aliases are refused; repeat the text"),
        ("a: 1\n---\nb: 2\n", "3:1: a second document; one file is one manifest"),
        ("name: x\nimages:\n\t- match: x\n", "3:1: a tab; YAML indents with blanks"),
        ("[" * 50, "1:17: nested deeper than 16 levels"),
        (b"name: \xff\n", "1:7: not UTF-8: byte 0xff"),
        (b"name: x\ny: \x07\n", "2:4: a character that YAML forbids"),
        ("- a\n", "1:1: the manifest must be a mapping of key: value"),
        ("name: 'x\n", "2:1: "),
        ("!!python/object:os.system {a: b}\n", "1:1: the manifest must be a mapping of key: value"),
        (b"x" * (1024 * 1024 + 1), "1:1: larger than 1048576 bytes"),
    ],
)
def test_text_that_is_no_manifest_at_all_is_one_fault_with_its_place(root, text, said):
    found = faults(root, text)
    assert found[0].startswith(said)
    assert len(found) == 1


def test_a_bomb_of_aliases_is_refused_without_being_built(root):
    bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{chr(98 + n)}: &{chr(98 + n)} [{','.join(['*' + chr(97 + n)] * 9)}]\n" for n in range(20)
    )
    assert "aliases are refused" in faults(root, bomb)[0]


def test_a_key_that_stands_twice_is_a_fault_with_its_first_line(root):
    assert faults(root, GOOD + "name: again\n") == ["11:1: name stands twice; first in line 1"]


def test_an_empty_value_is_a_fault(root):
    assert faults(root, GOOD + "service:\n") == ["11:9: service is empty; leave the key out or give a value"]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("patches/a.patch", "patches/b.patch", "8:11: patches/b.patch is not there; did you mean a.patch?"),
        ("patches/a.patch", "../a.patch", "8:11: patches[0].file: '../a.patch' is not a relative path"),
        ("patches/a.patch", "/etc/passwd", "8:11: patches[0].file: '/etc/passwd' is not a relative path"),
        ('pre: {"p/a.py"', 'pre: {"p/b.py"', "9:11: p/b.py is no target of patches/a.patch: p/a.py"),
        ('pre: {"p/a.py"', 'pre: {"p/../a.py"', "9:11: patches[0].pre: 'p/../a.py' is not a relative path"),
        (
            f'post: {{"p/a.py": "{B}"}}',
            f'post: {{"p/a.py": "{A}"}}',
            "10:12: p/a.py has the same hash before and after",
        ),
        (B, "absent", "10:12: patches/a.patch would modify p/a.py: its post must be a hash"),
        (
            f'    post: {{"p/a.py": "{B}"}}\n',
            "    fuzz: 1\n",
            "10:11: fuzz above 0 needs post, the hash of every patched",
        ),
        ("    post:", "    fuzz: 3\n    post:", "10:11: fuzz is at most 2"),
        ("    post:", "    fuzz: x\n    post:", "10:11: patches[0].fuzz must be a whole number"),
        ("    post:", "    drop_when: {}\n    post:", "10:16: drop_when takes either post or syntax"),
        (
            "    post:",
            f'    drop_when: {{post: {{"p/a.py": "{A}"}}}}\n    post:',
            "10:24: holds already before the patch: p/a.py has this hash in pre",
        ),
        (
            "    post:",
            "    drop_when: {syntax: {path: p/a.py, function: f}}\n    post:",
            "10:25: function goes together with calls_no or calls_with",
        ),
        (
            "    post:",
            "    drop_when: {syntax: {path: p/a.py, calls_no: [g]}}\n    post:",
            "10:25: syntax takes either function with calls_no or calls_with, or future",
        ),
        (
            "    post:",
            "    drop_when: {syntax: {path: p/a.py, future: x, calls_no: [g]}}\n    post:",
            "10:25: function goes together with calls_no or calls_with",
        ),
        (
            "    post:",
            "    drop_when: {syntax: {path: p/a.py, function: f, calls_no: [g], calls_with: {h: [x]}}}\n    post:",
            "10:80: function takes either calls_no or calls_with",
        ),
        (
            "    post:",
            "    drop_when: {syntax: {path: p/a.py, function: f, calls_with: {h: [x]}, except_under: [g]}}\n    post:",
            "10:89: except_under goes together with calls_no",
        ),
        (
            "    post:",
            "    drop_when: {syntax: {path: p/a.py, function: f, calls_with: {h: []}}}\n    post:",
            "10:66: h must name the parameters that are passed to it",
        ),
        (
            "    post:",
            "    drop_when: {syntax: {path: p/a.py, function: f, calls_with: {h: [self.x]}}}\n    post:",
            "10:70: patches[0].drop_when.syntax.calls_with.h[0]: 'self.x' is not a plain Python name",
        ),
        (
            "    post:",
            "    drop_when: {syntax: {path: p/a.py, function: f, future: x}}\n    post:",
            "10:25: syntax takes either function with calls_no or calls_with, or future",
        ),
        ("    post:", "    asserts: [{module: p, code: 'x ='}]\n    post:", "10:33: not Python: invalid syntax"),
        (
            "    post:",
            "    asserts: [{module: p, code: x, needs: [tpu]}]\n    post:",
            "10:44: patches[0].asserts[0].needs[0]",
        ),
        ('match: "good:*"', 'match: "good:[a"', "4:18: good:[a: an open bracket"),
        ("patches:", "gpus: {only: [], why: x}\npatches:", "6:14: only is empty, so that no GPU would do"),
        ("patches:", "gpus: {only: ['gfx94[0-9]', 'gfx1['], why: x}\npatches:", "6:29: gfx1[: an open bracket"),
        ("patches:", "gpus: {only: ['*'], why: x}\npatches:", "6:15: gpus.only[0]: '*' is not a shell"),
        ("patches:", "gpus: {only: [gfx942]}\npatches:", "6:7: why is missing: What goes wrong on others"),
    ],
)
def test_what_the_types_do_not_hold_is_checked_too(root, old, new, said):
    found = faults(root, GOOD.replace(old, new))
    assert [each for each in found if each.startswith(said)], found


def test_a_listed_pre_image_must_cover_every_target(root):
    (root / "patches" / "a.patch").write_bytes(PATCH + PATCH.replace(b"p/a.py", b"p/b.py").partition(b"\n\n")[2])
    assert "9:10: pre lacks p/b.py, a target of patches/a.patch" in faults(root, GOOD)


def test_a_created_file_has_an_absent_pre_image(root):
    (root / "patches" / "a.patch").write_bytes(
        b"diff --git a/p/a.py b/p/a.py\nnew file mode 100644\n--- /dev/null\n+++ b/p/a.py\n@@ -0,0 +1 @@\n+b\n"
    )
    assert faults(root, GOOD) == ["9:11: patches/a.patch would create p/a.py: its pre must be absent"]
    assert load_manifest(write(root, GOOD.replace(f'pre: {{"p/a.py": "{A}"', 'pre: {"p/a.py": "absent"')))


def test_a_file_that_is_no_patch_is_a_fault_at_the_line_that_lists_it(root):
    (root / "patches" / "a.patch").write_text("nothing of a patch\n")
    assert faults(root, GOOD)[0].startswith("8:11: patches/a.patch: ")


@pytest.mark.parametrize("name", [b"../../etc/passwd", b"/etc/passwd"])
def test_a_patch_that_leaves_the_tree_is_a_fault(root, name):
    (root / "patches" / "a.patch").write_bytes(
        b"--- a/" + name + b"\n+++ b/" + name + b"\n@@ -1 +1 @@\n-a\n+b\n"
        if name.startswith(b".")
        else b"--- " + name + b"\n+++ " + name + b"\n@@ -1 +1 @@\n-a\n+b\n"
    )
    assert faults(root, GOOD)[0].startswith("8:11: patches/a.patch: ")


def test_a_patch_behind_a_symlink_out_of_the_catalog_is_a_fault(root, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside") / "a.patch"
    outside.write_bytes(PATCH)
    (root / "patches" / "a.patch").unlink()
    (root / "patches" / "a.patch").symlink_to(outside)
    assert faults(root, GOOD) == [f"8:11: patches/a.patch leads out of the catalog, to {outside}"]


def test_variants_that_nothing_tells_apart_are_a_fault(root):
    text = GOOD + GOOD[GOOD.index("  - id") :]
    assert faults(root, text)[0].startswith("11:9: fix-a stands twice (first as patches[0])")


def test_a_catalog_names_the_faults_of_all_its_manifests(root):
    write(root, GOOD.replace("name: good", "nam: good"), "a.yaml")
    write(root, GOOD.replace("package: p", "package: 1"), "b.yaml")
    with pytest.raises(BadInput) as caught:
        load_catalog(root)
    assert {Path(each.split(":")[0]).name for each in caught.value.details} == {"a.yaml", "b.yaml"}


def test_two_manifests_of_one_name_are_a_fault(root):
    write(root, GOOD, "a.yaml")
    write(root, GOOD, "b.yaml")
    with pytest.raises(BadInput, match="name good is taken by"):
        load_catalog(root)


def test_a_manifest_that_would_be_passed_over_is_a_fault(root):
    write(root, GOOD, "a.yaml")
    write(root, GOOD.replace("name: good", "name: other"), "b.yml")
    with pytest.raises(BadInput, match=r"manifests end in \.yaml"):
        load_catalog(root)


def test_a_missing_catalog_says_how_to_start_one(tmp_path):
    with pytest.raises(BadInput) as caught:
        load_catalog(tmp_path / "none")
    assert caught.value.code == "no-catalog"
    assert "patchkit init" in caught.value.remedy


def test_the_environment_names_the_catalog_and_the_working_folder_never_does(root, monkeypatch, tmp_path):
    write(root, GOOD)
    monkeypatch.setenv("PATCHKIT_CATALOG", str(root))
    assert [each.name for each in load_catalog().manifests] == ["good"]
    monkeypatch.delenv("PATCHKIT_CATALOG")
    monkeypatch.chdir(root)
    assert load_catalog().root == built_in() != root


def test_the_built_in_catalog_is_sound():
    catalog = load_catalog(built_in())
    assert "vllm-xpu" in [each.name for each in catalog.manifests]
    assert catalog.patch_bytes(catalog.manifests[-1].patches[0])


def test_an_installed_package_uses_the_catalog_inside_itself(tmp_path, monkeypatch):
    (tmp_path / "patchkit" / "_catalog").mkdir(parents=True)
    monkeypatch.setattr(patchkit, "__file__", str(tmp_path / "patchkit" / "__init__.py"))
    assert built_in() == tmp_path / "patchkit" / "_catalog"
    (tmp_path / "patchkit" / "_catalog").rmdir()
    with pytest.raises(BadInput, match="holds no catalog"):
        built_in()


@given(st.binary(max_size=300))
def test_any_bytes_are_a_manifest_or_a_fault_with_a_place(data):
    from patchkit.catalog import nodes
    from patchkit.catalog.faults import Faults

    found = Faults()
    assert (nodes.compose(Path("m"), data, found) is None) == bool(found.found)
    assert all(fault.line >= 1 and fault.column >= 1 for fault in found.found)


def test_a_hostile_manifest_of_full_size_ends_soon(root):
    start = time.process_time()
    faults(root, "name: [" + "a, " * 300_000 + "a]\n")
    assert time.process_time() - start < 60  # a bound against blow-ups, not a speed
