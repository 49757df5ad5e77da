"""What the doctor cannot look at, it tells: once for all the checks that depend on it, and the rest is looked at."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from click.testing import CliRunner

from patchkit.api.prove import Promises, Verified
from patchkit.catalog.load import load_catalog
from patchkit.catalog.model import Gpus
from patchkit.cli.doctor import command
from patchkit.doctor.asking import once
from patchkit.doctor.checks import engine as engine_checks
from patchkit.doctor.checks import host as host_checks
from patchkit.doctor.model import CHECKS, Check, Report
from patchkit.doctor.run import examine
from patchkit.doctor.world import Container, Question, Seen, World
from patchkit.errors import Refused, Unreachable
from patchkit.findings import Finding
from patchkit.images.engine import EngineError
from patchkit.images.model import Entry
from patchkit.plan import Plan
from patchkit.proof.processes import Inside, Process
from patchkit.site.model import Launch
from patchkit.site.probe import Answer
from patchkit.site.view import View
from patchkit.stack.compose_model import Model
from tests.e2e.conftest import TINY

LAUNCH = Launch("module", "/usr/bin/python3", "serve", "/", {})
GONE = Unreachable("gone", "it stopped meanwhile", where="f00", remedy="docker start vllm")


def container(name="vllm", **inspect):
    return Container(name, name, "sha256:1", "vllm-xpu:1", True, "", "", inspect)


def mounted(source, target, **more):
    return {"Type": "bind", "Source": str(source), "Destination": target, "RW": False, **more}


def file(path="vllm/a.py", pre="sha256:0", post="sha256:1"):
    return SimpleNamespace(path=path, image_path=f"/site/{path}", pre=pre, post=post)


def proven(*files, levels=(), findings=(), **receipt):
    """What came of a container that was held against a receipt."""
    parts = {"files": files, "mounts": (), "manifest": "series", "launch_given": "", "kind": "image"}
    promised = SimpleNamespace(**{**parts, **receipt})
    return Mock(spec=Verified, receipt=promised, proof=SimpleNamespace(levels=levels), findings=findings)


def level(name, state, *files):
    return SimpleNamespace(name=name, state=state, detail="why", files=files)


def world(*containers, **parts):
    """A world of these containers, without an engine unless one is among the parts."""
    made = World(parts.pop("question", Question()))
    made.__dict__ |= {
        "_engine": GONE,
        "_catalog": GONE,
        "_asked_id": None,
        "containers": containers,
        "images": {},
        "patched_images": (),
        "receipts": {},
        "verified": {},
        "looks": {},
        "logs": {},
        "plan": None,
        "asked": None,
        "compose": None,
        **parts,
    }
    made.promises = lambda receipt: Promises((), Gpus(("gfx942",), "why"), (), ())
    return made


def told(world, monkeypatch, *checks):
    """What ``examine`` tells of these checks alone."""
    monkeypatch.setattr("patchkit.doctor.run.CHECKS", {name: CHECKS[name] for name in checks})
    return examine(world)


@pytest.fixture
def nowhere(tmp_path):
    """A path that nobody can follow, whatever rights he has: a link to itself."""
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    return loop


def test_a_check_that_the_system_stops_is_told_as_severe_as_it_is_with_what_it_had_found(monkeypatch):
    def look(world):
        yield Report("seen before")
        raise PermissionError(13, "Permission denied", "/secret")

    stopped, other = Check("stopped", "warning", "", "", look), Check("other", "note", "", "", lambda world: [])
    monkeypatch.setattr("patchkit.doctor.run.CHECKS", {"stopped": stopped, "other": other})
    monkeypatch.setattr(World, "require", lambda world: None)
    before, unseen = examine(World())
    assert (before.id, before.what) == ("stopped", "seen before")
    assert (unseen.id, unseen.severity, unseen.where) == ("unseen", "warning", "/secret")
    assert unseen.what == "check stopped could not look: Permission denied"
    assert unseen.remedy


def test_what_could_not_be_asked_for_is_not_asked_for_again():
    asked = []

    class Things:
        @once
        def thing(self):
            asked.append(1)
            raise GONE

    things = Things()
    for _ in range(2):
        with pytest.raises(Unreachable):
            _ = things.thing
    assert asked == [1]


def test_an_engine_that_does_not_list_its_containers_is_told_once_and_the_rest_is_looked_at(monkeypatch, tmp_path):
    refused = EngineError(500, "out of memory", where="unix:///engine.sock")
    dying = Mock(host="unix:///engine.sock", is_remote=False, is_rootless=False, shortcomings=(), info={}, version={})
    dying.configure_mock(kind="docker", store="classic", api_version=(1, 50), containers=Mock(side_effect=refused))
    dying.images.return_value, dying.leftovers.return_value = [], []
    monkeypatch.setattr("patchkit.doctor.world.connect", lambda host: dying)
    arguments = ["--catalog", str(TINY), "--output", str(tmp_path)]
    said = CliRunner().invoke(command, arguments, standalone_mode=False, catch_exceptions=False)
    assert said.return_value == 1
    assert said.output.count("out of memory") == 1
    assert "container-unpatched, " in said.output
    assert "[catalog]" in said.output
    assert "looked at no container" in said.output
    assert dying.containers.call_count == 1


@pytest.mark.parametrize("how", ["gone", "silent", "garbled"])
def test_a_container_that_cannot_be_asked_is_told_once_however_many_checks_depend_on_it(monkeypatch, how):
    @contextmanager
    def asked(name, host):
        if how == "gone":
            raise GONE
        yield SimpleNamespace(container=SimpleNamespace(name="vllm", cwd="/"))

    done = proven(file(), levels=(level("bytecode", "not run", SimpleNamespace(name="vllm/a.py", state="not run")),))
    monkeypatch.setattr("patchkit.doctor.world.running", asked)
    monkeypatch.setattr("patchkit.doctor.world.launch_for", lambda live, options: LAUNCH)
    monkeypatch.setattr("patchkit.doctor.world.look_inside", lambda *asked: None if how == "silent" else Inside(()))
    monkeypatch.setattr("patchkit.doctor.world.ask", lambda *asked: Answer({"search_path": []}))
    here = world(container(), verified={"vllm": done})
    del here.__dict__["looks"]
    processes = ("process-older", "environment-refused", "file-shared", "compile-cache-older")
    (unseen,) = told(here, monkeypatch, "bytecode-stale", "gpu-refused", *processes)
    assert (unseen.id, unseen.severity, unseen.where) == ("unseen", "error", "vllm")
    blind = ("bytecode-stale", "gpu-refused", *(() if how == "garbled" else processes))
    assert unseen.what.startswith(f"checks {', '.join(blind)} could not look: ")
    remedies = {"gone": "docker start vllm"}
    assert unseen.remedy == remedies.get(how, "patchkit verify --container vllm")


def test_a_compiled_file_of_which_the_interpreter_says_nothing_is_told(monkeypatch):
    proofs = [SimpleNamespace(name=name, state="not run") for name in ("vllm/a.py", "vllm/b.py")]
    done = proven(file(), file("vllm/b.py"), levels=(level("bytecode", "not run", *proofs),))
    answer = Answer({"bytecode": {"/site/vllm/b.py": {"runs": False}}})
    seen = Seen(LAUNCH, Inside(()), answer)
    (unseen,) = told(world(container(), verified={"vllm": done}, looks={"vllm": seen}), monkeypatch, "bytecode-stale")
    assert (unseen.severity, unseen.where) == ("error", "vllm:/site/vllm/a.py")


def test_processes_of_another_user_and_those_that_wrote_over_their_environment_are_told(monkeypatch):
    titled = Process(7, "/usr/bin/python3", ("VLLM::EngineCore",), "/", 1.0, None)
    seen = Seen(LAUNCH, Inside((titled,), hidden=(8,)), Answer())
    checks = ("process-older", "environment-overridden", "environment-refused")
    here = world(container(), verified={"vllm": proven()}, looks={"vllm": seen})
    hidden, overwritten = told(here, monkeypatch, *checks)
    assert (hidden.severity, hidden.where, hidden.evidence) == ("warning", "vllm", "pid 8")
    assert hidden.what.startswith(f"checks {', '.join(checks)} could not look: ")
    assert (overwritten.severity, overwritten.where, overwritten.evidence) == ("note", "vllm", "pid 7")
    assert "checks environment-overridden, environment-refused could not look: 1 process wrote" in overwritten.what


def test_a_launch_that_reading_cannot_follow_is_not_taken_for_one_that_finds_the_files(monkeypatch):
    done = proven(levels=(level("bytes", "passed"), level("resolves", "not run"), level("imports", "not run")))
    (unseen,) = told(world(container(), verified={"vllm": done}), monkeypatch, "container-not-proven")
    assert (unseen.severity, unseen.where) == ("error", "vllm")
    assert "resolves: why" in unseen.what


def test_a_log_that_cannot_be_read_is_told_and_one_of_a_container_that_is_gone_is_not(monkeypatch):
    def logs(name, tail):
        if name == "other":
            raise EngineError(404, "no such container", where=name)
        raise EngineError(500, "configured logging driver does not support reading", where=name)

    here = world(container(), container("other"), verified={name: proven() for name in ("vllm", "other")})
    del here.__dict__["logs"]
    here.__dict__["_engine"] = SimpleNamespace(logs=logs)
    here.concerns = lambda container: True
    (unseen,) = told(here, monkeypatch, "log-known-bad", "second-patcher")
    assert (unseen.severity, unseen.where) == ("warning", "vllm")
    assert unseen.what.startswith(
        "checks log-known-bad, second-patcher could not look: the engine answered: configured"
    )
    assert unseen.remedy.endswith("docker logs vllm")


@pytest.fixture
def overlapping(tmp_path):
    """A catalog with two manifests for ``tinyserve:1``, by patterns of different texts."""
    shutil.copytree(TINY, tmp_path / "catalog")
    first = tmp_path / "catalog/manifests/tinyserve.yaml"
    second = first.read_text().replace("name: tinyserve", "name: second").replace('"*tinyserve:*"', '"tinyserve:1*"')
    (first.parent / "second.yaml").write_text(second)
    return load_catalog(tmp_path / "catalog")


def test_an_image_that_two_manifests_claim_is_told_once_and_its_containers_are_looked_at(
    overlapping, tmp_path, monkeypatch
):
    (tmp_path / "patches").mkdir()
    inspect = {"Mounts": [mounted(tmp_path / "patches", "/p")]}
    servers = [Container(name, name, "sha256:1", "tinyserve:1", True, "", "", inspect) for name in ("one", "two")]
    service = SimpleNamespace(image="tinyserve:1")
    here = world(*servers, _catalog=overlapping, compose=Mock(spec=Model, services=[service]))
    checks = ("claimed-twice", "container-undelivered", "compose-undelivered", "mount-empty")
    twice, *empty = told(here, monkeypatch, *checks)
    assert (twice.id, twice.severity, twice.where) == ("claimed-twice", "warning", "docker-daemon:tinyserve:1")
    assert "second and tinyserve" in twice.what
    assert [(each.id, each.where) for each in empty] == [("mount-empty", "one:/p"), ("mount-empty", "two:/p")]


def test_a_container_that_calls_its_image_by_an_id_that_is_gone_is_told(monkeypatch):
    server = Container("id", "vllm", f"sha256:{'1' * 64}", f"sha256:{'1' * 64}", True, "", "", {})
    here = world(server, _catalog=load_catalog(TINY), images={server.image_id: GONE})
    (unseen,) = told(here, monkeypatch, "claimed-twice", "container-undelivered")
    assert (unseen.id, unseen.severity, unseen.where) == ("unseen", "warning", "vllm")


def test_a_mounted_folder_that_cannot_be_read_is_told_and_the_next_is_looked_at(tmp_path, nowhere, monkeypatch):
    (tmp_path / "empty").mkdir()
    server = container(Mounts=[mounted(nowhere, "/one"), mounted(tmp_path / "empty", "/two"), mounted(__file__, "/f")])
    here = world(server)
    here.concerns = lambda container: True
    empty, unseen = told(here, monkeypatch, "mount-empty")
    assert (empty.id, empty.where) == ("mount-empty", "vllm:/two")
    assert (unseen.id, unseen.severity, unseen.where) == ("unseen", "error", "vllm:/one")


def test_a_patched_file_on_the_host_that_cannot_be_looked_at_is_not_called_missing(tmp_path, nowhere, monkeypatch):
    (tmp_path / "folder").mkdir()
    mounts = [mounted(nowhere, "/a.py"), mounted(tmp_path / "none", "/b.py"), mounted(tmp_path / "folder", "/c.py")]
    here = world(container(Mounts=mounts))
    here.receipt_of = lambda container: SimpleNamespace(
        mounts=[SimpleNamespace(target=mount["Destination"]) for mount in mounts]
    )
    missing, folder, unseen = told(here, monkeypatch, "mount-source-missing", "mount-empty")
    assert (missing.where, missing.what.endswith("is missing")) == ("vllm:/b.py", True)
    assert (folder.where, folder.what.endswith("is no file")) == ("vllm:/c.py", True)
    assert (unseen.id, unseen.where) == ("unseen", "vllm:/a.py")


NEWER = [mounted("/files/a.py", "/site/vllm/a.py")]


@pytest.mark.parametrize(
    ("shipped", "outcome"),
    [({}, "unseen"), ({"vllm/a.py": "2"}, "mount-hides-other"), ({"vllm/a.py": "0"}, None), (GONE, "unseen")],
)
def test_a_mount_over_another_image_whose_file_nothing_tells_is_told(monkeypatch, shipped, outcome):
    def asked(container, receipt):
        if shipped is GONE:
            raise shipped
        return shipped

    receipt = proven(file()).receipt
    receipt.kind, receipt.delivered_identity = "bind", SimpleNamespace(digests=("sha256:origin",))
    receipt.mounts = (SimpleNamespace(source="/files/a.py", target="/site/vllm/a.py"),)
    here = world(container(Mounts=NEWER))
    here.receipt_of, here.shipped = lambda container: receipt, asked
    found = told(here, monkeypatch, "mount-hides-other")
    assert [each.id for each in found] == [outcome] * (outcome is not None)
    receipt.delivered_identity = SimpleNamespace(digests=("sha256:1",))
    assert told(here, monkeypatch, "mount-hides-other") == (), "over the image that they were made for"


def test_an_environment_whose_image_is_gone_is_told_and_not_called_overridden(monkeypatch):
    here = world(container(Config={"Env": ["PATH=/usr/bin"]}), images={"sha256:1": GONE})
    here.expects_patches = lambda container: True
    (unseen,) = told(here, monkeypatch, "environment-overridden")
    assert (unseen.id, unseen.severity, unseen.where) == ("unseen", "warning", "vllm")


def test_a_container_that_is_named_and_does_not_run_is_told(monkeypatch):
    engine = SimpleNamespace(
        inspect_container=lambda name: {
            "Id": "f00",
            "Name": "/vllm",
            "Config": {"Labels": {"dev.patchkit.fingerprint": "1"}},
            "State": {"Running": False},
        }
    )

    def not_running(name, options, **where):
        raise Unreachable("not-running", "the container does not run", where=name, remedy="docker start vllm")

    monkeypatch.setattr("patchkit.doctor.world.verify_container", not_running)
    here = world(question=Question(container="vllm"), _engine=engine)
    del here.__dict__["containers"], here.__dict__["verified"]
    (found,) = told(here, monkeypatch, "container-not-proven")
    assert (found.what, found.where, found.remedy) == ("the container does not run", "vllm", "docker start vllm")


@pytest.mark.parametrize("labelled", [False, True])
def test_a_receipt_that_a_label_names_and_nobody_finds_is_told(tmp_path, monkeypatch, labelled):
    place = str(tmp_path / "receipt.json") if labelled else ""
    server = Container("id", "vllm", "sha256:1", "vllm-xpu:1", True, place, "", {})
    here = world(server, question=Question(output=tmp_path))
    del here.__dict__["receipts"]
    assert [each.where for each in told(here, monkeypatch, "receipt-unreadable")] == [place] * labelled


def test_what_an_engine_on_another_machine_shows_there_is_told_in_one_note(monkeypatch):
    engine = SimpleNamespace(is_remote=True, host="ssh://there", info={"DockerRootDir": "/"})
    checks = ("mount-source-missing", "mount-empty", "disk-low", "render-device", "render-group", "weights-incomplete")
    checks += ("weights-no-room", "model-unknown")
    (unseen,) = told(world(container(Mounts=[mounted("/", "/models")]), _engine=engine), monkeypatch, *checks)
    assert (unseen.severity, unseen.where) == ("note", "ssh://there")
    assert unseen.what.startswith(f"checks {', '.join(checks)} could not look: ")


@pytest.mark.parametrize("info", [{"DockerRootDir": "/var/lib/not-on-this-machine"}, {}])
def test_an_engine_whose_disk_is_not_this_machines_is_told(monkeypatch, info):
    engine = SimpleNamespace(is_remote=False, host="unix:///desktop.sock", info=info)
    (unseen,) = told(world(_engine=engine), monkeypatch, "disk-low")
    assert (unseen.id, unseen.severity, unseen.where) == ("unseen", "note", "unix:///desktop.sock")


def test_a_host_that_does_not_answer_is_told_and_the_others_are_compared(monkeypatch):
    def connect(host):
        if host == "ssh://two":
            raise GONE
        item = {"RepoTags": ["vllm:a"], "Labels": {"dev.patchkit.fingerprint": host}}
        return SimpleNamespace(images=lambda label: [item])

    monkeypatch.setattr(engine_checks, "connect", connect)
    here = world(question=Question(hosts=("ssh://one", "ssh://two", "ssh://three")))
    differ, unseen = told(here, monkeypatch, "nodes-differ")
    assert (differ.where, "ssh://two" in differ.evidence) == ("vllm:a", False)
    assert (unseen.severity, unseen.where) == ("error", "ssh://two")


@pytest.mark.parametrize(
    ("source", "arguments", "concerned", "told_of"),
    [
        ("loop", (), True, "loop"),
        ("loop", (), False, None),
        (".", (), True, None),
        (".", ("serve", "/models/loop"), True, "loop/config.json"),
        ("hub", (), True, "hub/models--org--flint/snapshots"),
        ("damaged", (), True, "damaged/model.safetensors.index.json"),
        ("none", (), True, "none/model.safetensors.index.json"),
    ],
)
def test_a_folder_of_models_that_cannot_be_read_is_told_where_something_says_that_it_is_one(
    tmp_path, nowhere, monkeypatch, source, arguments, concerned, told_of
):
    (tmp_path / "hub/models--org--flint").mkdir(parents=True)
    (tmp_path / "hub/models--org--flint/snapshots").symlink_to(nowhere)
    for name, text in (("damaged", "["), ("none", "{}")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.safetensors.index.json").write_text(text)
    checks = ("weights-incomplete",)
    if source == ".":
        for name in ("hub", "damaged", "none"):
            shutil.rmtree(tmp_path / name)
    server = container(Mounts=[mounted(tmp_path / source, "/models")], Args=list(arguments))
    here = world(server)
    here.concerns = lambda container: concerned
    found = told(here, monkeypatch, *checks)
    assert [(each.id, each.severity) for each in found] == [("unseen", "error")] * (told_of is not None)
    assert [each.where for each in found if told_of] == [str(tmp_path / told_of) for _ in found]


@pytest.mark.parametrize("content", ["[", None])
def test_a_config_of_a_served_model_that_cannot_be_read_is_told(tmp_path, nowhere, monkeypatch, content):
    config = tmp_path / "flint/config.json"
    config.parent.mkdir()
    (config.parent / "model.safetensors.index.json").write_text('{"weight_map": {}}')
    if content is None:
        config.mkdir()
    else:
        config.write_text(content)
    server = container(Mounts=[mounted(config.parent, "/flint")], Args=["serve", "/flint"])
    here = world(server)
    here.package_file = lambda container, path: b""
    (unseen,) = told(here, monkeypatch, "model-unknown")
    assert (unseen.id, unseen.severity, unseen.where) == ("unseen", "warning", str(config))


@pytest.mark.parametrize("user", ["nobody-knows", "root", "1000", ""])
def test_an_image_whose_user_it_does_not_know_is_told(monkeypatch, user):
    folder = Entry("/", "dir", 0o755, 0, 0, 0, 0)
    entries = {"/": folder, "/python": Entry("/python", "file", 0o755, 0, 0, 0, 0)}
    fs = SimpleNamespace(lstat=entries.get, listdir=lambda path: [], read=lambda path: b"")
    launch = SimpleNamespace(interpreter="/python", user=user)
    found = told(world(asked=(None, View(fs), launch)), monkeypatch, "interpreter-closed")
    assert [(each.id, each.severity, each.where) for each in found] == [("unseen", "error", "/etc/passwd")] * (
        user == "nobody-knows"
    )


def test_whatever_stops_a_delivery_is_told_of_the_image_asked_about(monkeypatch):
    strict = Finding("pre-image-not-listed", "error", "no such pre-image", where="a.py")
    answers = Finding("resolution-disagrees", "error", "two answers", where="import a")
    row = SimpleNamespace()
    manifest = SimpleNamespace(name="series")
    plan = Mock(
        spec=Plan, refused=(), rows=(row,), findings=(strict, answers), match=SimpleNamespace(manifest=manifest)
    )
    checks = ("patch-refused", "resolution-disagrees")
    found = told(world(plan=plan), monkeypatch, *checks)
    assert [(each.id, each.severity, each.where) for each in found] == [
        ("patch-refused", "error", "a.py"),
        ("resolution-disagrees", "error", "import a"),
    ]
    plan = Mock(spec=Plan, refused=(), rows=(), findings=(), match=SimpleNamespace(manifest=manifest))
    (empty,) = told(world(plan=plan), monkeypatch, *checks)
    assert (empty.id, empty.severity, empty.where) == ("patch-refused", "error", "series")


def test_an_image_that_cannot_be_read_is_told_once_whatever_the_catalog_says(monkeypatch):
    why = Refused("launch-unknown", "reading does not tell which Python serves", where="script:1", remedy="--launch")
    here = world(asked=why)
    del here.__dict__["plan"]
    (found,) = told(here, monkeypatch, "patch-refused", "interpreter-closed", "package-linked", "gpu-refused")
    assert (found.id, found.what, found.remedy) == ("patch-refused", why.what, "--launch")


def test_gpus_that_a_container_does_not_tell_are_not_taken_for_none(monkeypatch):
    here = world(container(), verified={"vllm": proven()}, looks={"vllm": Seen(LAUNCH, Inside(()), GONE)})
    (unseen,) = told(here, monkeypatch, "gpu-refused")
    assert (unseen.severity, unseen.where) == ("error", "vllm")


def test_a_card_of_which_the_kernel_gives_no_answer_is_told(tmp_path, nowhere, monkeypatch):
    (tmp_path / "card0/device").mkdir(parents=True)
    (tmp_path / "card0/device/vendor").symlink_to(nowhere)
    monkeypatch.setattr(host_checks, "_DRM", tmp_path)
    (unseen,) = told(world(), monkeypatch, "cards")
    assert (unseen.id, unseen.severity, unseen.where) == ("unseen", "note", str(tmp_path / "card0/device/vendor"))


def test_an_error_of_the_proof_that_no_check_is_called_by_is_told(monkeypatch):
    other = Finding("other-image", "error", "its receipt is of another image", where="vllm", remedy="make it anew")
    (found,) = told(
        world(container(), verified={"vllm": proven(findings=(other,))}), monkeypatch, "container-not-proven"
    )
    assert (found.id, found.severity, found.what) == ("container-not-proven", "error", other.what)
