"""A person's own catalog from the command line: made, filled from every kind of change, listed, checked."""

import http.server
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from patchkit import index
from patchkit.diff import write

LOGGER = "vllm/logger.py"
VERSION = "0.33.0"


@pytest.fixture(scope="module")
def logger():
    """The file as that release has it."""
    return index.configured().wheel("vllm", VERSION).read(LOGGER)


@pytest.fixture
def mine(patchkit, tmp_path, monkeypatch):
    """The command line on a new catalog, with work folders of its own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    patchkit("init", "mine", "--package", "vllm", "--image", "*vllm-xpu:*", status=0)
    monkeypatch.setenv("PATCHKIT_CATALOG", str(tmp_path / "mine"))
    return patchkit


def a_diff(logger, line=b"OURS = True\n"):
    return write({LOGGER: logger}, {LOGGER: logger + b"\n" + line})


def listed(mine):
    return {row["patch"]: row["description"] for row in mine("list", "--json", status=0).json["files"]}


def test_a_file_is_edited_saved_and_edited_again(mine, tmp_path, logger, tree_of):
    mine("edit", "--version", VERSION, LOGGER, status=0)
    work = tmp_path / "state/patchkit/work/vllm/new" / LOGGER
    assert work.read_bytes() == logger
    nothing = mine("save", "--name", "ours", "-m", "Ours", status=1)
    assert "nothing-changed" in nothing.err
    work.write_bytes(logger + b"\nOURS = True\n")
    saved = mine("save", "--name", "ours", "-m", "Ours", "--json", status=0).json
    assert [row["state"] for row in saved["files"]] == ["applies"]
    assert saved["changed"]
    before = tree_of(tmp_path / "mine")
    again = mine("edit", "--version", VERSION, "--patch", "ours", status=0)
    assert again.out.strip().endswith(f"vllm/ours/{LOGGER}")
    assert not mine("save", "--name", "ours", "--json", status=0).json["changed"]
    assert tree_of(tmp_path / "mine") == before
    assert listed(mine) == {"ours": "Ours"}


def test_a_catalog_without_patches_is_told_how_the_first_one_is_made(mine, fixture_layout):
    image = f"oci:{fixture_layout('xpu')}:latest"
    refused = mine("apply", "--image", image, "--manifest", "vllm", status=1)
    assert "manifest vllm has no patches" in refused.err
    command = f"patchkit edit --image {image} --manifest vllm vllm/FILE.py"
    assert f"next: make one: {command}" in refused.err
    mine(*command.replace("FILE", "logger").split()[1:], status=0)


def test_a_diff_from_standard_input_and_a_url_are_taken(mine, tmp_path, logger, monkeypatch):
    (tmp_path / "served").mkdir()
    (tmp_path / "served/fix.diff").write_bytes(a_diff(logger))

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), lambda *args: Quiet(*args, directory=str(tmp_path / "served"))
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        mine("import", f"{address}/fix.diff", "--version", VERSION, "-m", "By URL", status=0)
        gone = mine("import", f"{address}/gone.diff", "--version", VERSION, "-m", "By URL", status=3)
    finally:
        server.shutdown()
        server.server_close()
    assert "url-unreachable" in gone.err
    assert f"Origin: upstream, {address}/fix.diff" in (tmp_path / "mine/patches/fix.patch").read_text()
    other = a_diff(logger + b"\nOURS = True\n", b"MORE = True\n")
    (tmp_path / "more.diff").write_bytes(other)
    by_pipe = ["sh", "-c", '"$@" < more.diff', "sh"]
    mine("import", "-", "--version", VERSION, "--name", "more", "-m", "By pipe", prefix=by_pipe, status=0)
    assert listed(mine) == {"fix": "By URL", "more": "By pipe"}


def test_a_quilt_series_and_a_mailbox_become_patches_in_their_order(mine, tmp_path, logger):
    first, second = logger + b"\nONE = 1\n", logger + b"\nONE = 1\nTWO = 2\n"
    quilt = tmp_path / "quilt"
    quilt.mkdir()
    (quilt / "one.patch").write_bytes(b"Description: First\n\n" + write({LOGGER: logger}, {LOGGER: first}))
    (quilt / "two.patch").write_bytes(b"Description: Second\n\n" + write({LOGGER: first}, {LOGGER: second}))
    (quilt / "series").write_text("one.patch\ntwo.patch\n")
    mine("import", "quilt", "--version", VERSION, status=0)
    assert list(listed(mine)) == ["one", "two"]
    repository = tmp_path / "upstream"

    def git(*arguments):
        identity = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
        return subprocess.run(["git", *identity, *arguments], cwd=repository, check=True, capture_output=True).stdout

    (repository / "src/vllm").mkdir(parents=True)
    file = repository / "src" / LOGGER
    git("init", "--quiet")
    for name, content in (
        ("Start", second),
        ("Add three", second + b"THREE = 3\n"),
        ("Add four", second + b"THREE = 3\nFOUR = 4\n"),
    ):
        file.write_bytes(content)
        git("add", ".")
        git("commit", "--quiet", "-m", name)
    (tmp_path / "all.mbox").write_bytes(git("format-patch", "--stdout", "HEAD~2"))
    mine("import", "all.mbox", "--version", VERSION, status=0)
    assert listed(mine) == {"one": "First", "two": "Second", "add-three": "Add three", "add-four": "Add four"}
    assert "Author: A <a@example.org>" in (tmp_path / "mine/patches/add-three.patch").read_text()
    states = mine("survey", "vllm", "--versions", f"=={VERSION}", "--json", status=0).json["files"]
    assert [cell["state"] for cell in states] == ["applies"] * 4


def test_a_series_of_which_one_does_not_fit_leaves_nothing_behind(mine, tmp_path, logger, tree_of):
    quilt = tmp_path / "quilt"
    quilt.mkdir()
    (quilt / "one.patch").write_bytes(a_diff(logger))
    (quilt / "two.patch").write_bytes(write({LOGGER: b"nothing of it\n"}, {LOGGER: b"other\n"}))
    (quilt / "series").write_text("one.patch\ntwo.patch\n")
    before = tree_of(tmp_path / "mine")
    refused = mine("import", "quilt", "--version", VERSION, "-m", "x", status=1)
    assert "two: " in refused.err
    assert tree_of(tmp_path / "mine") == before
    (quilt / "one.patch").write_bytes(b"Description: First\n\n" + a_diff(logger))
    (quilt / "two.patch").write_bytes(write({}, {"vllm/without_a_reason.py": b"x = 1\n"}))
    refused = mine("import", "quilt", "--version", VERSION, status=2)
    assert "two: the patch needs a reason" in refused.err
    assert tree_of(tmp_path / "mine") == before
    mine("import", "quilt", "--version", VERSION, "-m", "Second", status=0)


def test_full_files_that_no_index_can_be_asked_about_are_taken_on_the_persons_word(patchkit, fixture_layout, tmp_path):
    image = f"oci:{fixture_layout('pure')}:latest"
    patchkit("init", "mine", "--package", "tinyserve", "--image", "*", status=0)
    place = tmp_path / "full/tinyserve/ops/scale.py"
    place.parent.mkdir(parents=True)
    place.write_text("FACTOR = 2\n")
    nowhere = ["--index", "http://127.0.0.1:9/simple"]
    call = ["import", "full", "--image", image, "--catalog", "mine", "-m", "Mine", *nowhere]
    assert "for sure: --force" in patchkit(*call, status=3).err
    patchkit(*call, "--force", status=0)


def test_imports_at_the_same_time_lose_nothing(mine, tmp_path, logger):
    names = [f"fix-{number}" for number in range(4)]
    for name in names:
        path = f"vllm/{name.replace('-', '_')}.py"
        (tmp_path / f"{name}.diff").write_bytes(write({}, {path: b"x = 1\n"}))
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda name: mine("import", f"{name}.diff", "--version", VERSION, "-m", name, status=0), names))
    assert listed(mine) == {name: name for name in names}
    mine("manifest", "check", status=0)


@pytest.mark.parametrize(
    ("text", "status", "code"),
    [
        (b"no patch at all\n", 2, "malformed-patch"),
        (b"--- a/../../x\n+++ b/../../x\n@@ -1 +1 @@\n-a\n+b\n", 2, "unsafe-path"),
        (b"--- /etc/passwd\n+++ /etc/passwd\n@@ -1 +1 @@\n-a\n+b\n", 2, "unsafe-path"),
        (b"diff --git a/x b/x\nGIT binary patch\nliteral 0\nHcmV?d00001\n\n", 2, "unsupported-patch"),
    ],
)
def test_what_is_no_sound_diff_is_refused_with_its_kind(mine, tmp_path, text, status, code):
    (tmp_path / "bad.diff").write_bytes(text)
    refused = mine("import", "bad.diff", "--version", VERSION, status=status)
    assert code in refused.err


def test_a_patch_is_shown_with_its_reason_and_its_diff(mine, tmp_path, logger):
    (tmp_path / "fix.diff").write_bytes(b"Short reason\n\nLonger reason.\n\n" + a_diff(logger))
    mine("import", "fix.diff", "--version", VERSION, status=0)
    shown = mine("show", "fix", "--no-engine", "--diff", status=0).out
    for text in ("Short reason", "Longer reason.", "patches/fix.patch", LOGGER, "+OURS = True"):
        assert text in shown
    assert "did you mean" in mine("show", "fxi", "--no-engine", status=2).err


def test_faults_of_a_catalog_are_named_by_the_command_with_exit_status_2(mine, tmp_path):
    manifest = tmp_path / "mine/manifests/vllm.yaml"
    manifest.write_text(manifest.read_text().replace("package:", "pakage:"))
    found = mine("manifest", "check", status=2)
    assert f"{manifest}:3:1: package is missing" in found.err
    assert f"{manifest}:4:1: unknown key pakage; did you mean package?" in found.err
    assert mine("list", status=2).err == found.err
    json = mine("manifest", "check", "--json", status=2).json
    assert json["schema"] == "patchkit.error"
    assert len(json["findings"][0]["details"]) == 2


def test_the_built_in_catalog_holds_against_the_real_releases(patchkit):
    found = patchkit("manifest", "check", "--rehearse", "--json", status=0).json["findings"]
    assert not [each for each in found if each["severity"] == "error"]
