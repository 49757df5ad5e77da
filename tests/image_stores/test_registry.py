from __future__ import annotations

import gzip
import json
import subprocess

import pytest

from patchkit import cache
from patchkit.errors import BadInput, Refused, Unreachable
from patchkit.images import Access, derive_index, open_all, open_image, parse_reference
from patchkit.images.client import Client
from patchkit.images.layer import sha256
from patchkit.images.registry import split_name

from .servers import BASIC, Proxy, TokenServer, certificate, push, registry
from .trees import NORM, SITE, base_layers, derivation, layer_tar, write_layout


@pytest.fixture(autouse=True)
def no_logins_of_this_machine(tmp_path, monkeypatch):
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.delenv("REGISTRY_AUTH_FILE", raising=False)
    monkeypatch.setattr(Client, "first_wait", 0.001)


@pytest.fixture
def layout(tmp_path):
    return write_layout(tmp_path / "layout")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with registry(tmp_path_factory.mktemp("registry")) as host:
        yield host


@pytest.fixture
def repo(server, layout, request):
    """A repository of the test's own with the small image as ``v1``."""
    name = f"{server}/test/{abs(hash(request.node.name))}"
    push(layout, "v1", f"{name}:v1", "--dest-tls-verify=false")
    return name


@pytest.fixture
def proxied(repo, server):
    proxy = Proxy(server)
    yield proxy, repo.replace(server, proxy.address)
    proxy.close()


def at(name: str):
    return parse_reference(f"docker://{name}")


def read(name: str, **access) -> bytes:
    with open_image(at(name), access=Access(**access)) as image:
        return image.fs.read(NORM)


def derive(source: str, target: str, data: bytes = b"x = 2\n", access: Access | None = None, **keywords):
    with open_image(at(source), access=access) as image:
        return image.derive(derivation(data), at(target), **keywords)


def test_an_image_is_read_where_it_lies(repo):
    with open_image(at(f"{repo}:v1")) as image:
        assert image.fs.read(NORM) == b"x = 1\n"
        assert image.identity.config == sha256(image.config)
        assert image.identity.repo_digests == (f"{repo}@{image.identity.manifest}",)
        by_digest = f"{repo}@{image.identity.manifest}"
    assert read(by_digest) == b"x = 1\n"


def test_a_derived_image_is_written_and_read_back_by_others(repo, tmp_path):
    done = derive(f"{repo}:v1", f"{repo}:v1-patchkit")
    assert not done.existed
    subprocess.run(
        ["skopeo", "copy", "-q", "--src-tls-verify=false", str(done.reference), f"oci:{tmp_path}/out:x"], check=True
    )
    with open_image(parse_reference(f"oci:{tmp_path}/out:x")) as image:
        assert image.fs.read(NORM) == b"x = 2\n"
        assert image.identity.manifest == done.identity.manifest


def test_a_second_derivation_sends_nothing(repo):
    first = derive(f"{repo}:v1", f"{repo}:new")
    with open_image(at(f"{repo}:v1")) as image:
        second = image.derive(derivation(), at(f"{repo}:new"))
        assert image.store.client.sent == 0
    assert second.existed
    assert second.identity == first.identity


def test_the_same_bytes_as_in_a_layout(repo, layout):
    with open_image(parse_reference(f"oci:{layout}:v1")) as image:
        there = image.derive(derivation(), parse_reference(f"oci:{layout}:new"))
    here = derive(f"{repo}:v1", f"{repo}:new")
    assert (here.identity.config, here.identity.manifest) == (there.identity.config, there.identity.manifest)


def test_a_known_base_is_patched_with_few_requests_and_no_layer_read(server, tmp_path):
    root = write_layout(tmp_path / "index", architectures=("amd64", "arm64"))
    proxy = Proxy(server)
    name = f"{proxy.address}/few"
    push(root, "v1", f"{name}:v1", "--dest-tls-verify=false")
    with open_image(at(f"{name}:v1"), platform="linux/amd64") as image:
        image.fs.read(NORM)
        image.derive(derivation(b"x = 7\n"), at(f"{name}:old"))
    proxy.seen.clear()
    proxy.received = 0
    with open_image(at(f"{name}:v1"), platform="linux/amd64") as image:
        layers = [layer["digest"] for layer in json.loads(image.manifest)["layers"]]
        assert image.fs.read(NORM) == b"x = 1\n"
        image.derive(derivation(), at(f"{name}:new"))
        assert image.store.client.requests == len(proxy.seen)
    proxy.close()
    assert len(proxy.seen) <= 12
    assert proxy.received < 100_000
    assert not [path for _, path in proxy.seen if any(digest in path for digest in layers)]


def test_a_first_sight_reads_and_patches_with_only_the_layer_that_holds_the_file(proxied):
    proxy, name = proxied
    with open_image(at(f"{name}:v1")) as image:
        assert image.fs.read(NORM) == b"x = 1\n"
        image.derive(derivation(), at(f"{name}:new"))
        bottom, top = (layer["digest"] for layer in json.loads(image.manifest)["layers"])
    paths = [path for _, path in proxy.seen]
    assert sum(top in path for path in paths) == 1
    assert not any(bottom in path for path in paths)


def test_an_index_is_patched_on_every_platform(server, tmp_path):
    layout = write_layout(tmp_path / "index", architectures=("amd64", "arm64"))
    name = f"{server}/index"
    push(layout, "v1", f"{name}:v1", "--dest-tls-verify=false")
    done = derive_index(open_all(at(f"{name}:v1")), [derivation(), derivation()], at(f"{name}:new"))
    assert [image.fs.read(NORM) for image in open_all(at(f"{name}:new"))] == [b"x = 2\n"] * 2
    assert [image.fs.read(NORM) for image in open_all(at(f"{name}:v1"))] == [b"x = 1\n"] * 2
    images = open_all(parse_reference(f"oci:{layout}:v1"))
    there = derive_index(images, [derivation(), derivation()], parse_reference(f"oci:{layout}:new"))
    assert done.index == there.index


def test_another_repository_mounts_the_layers(proxied, server):
    proxy, name = proxied
    target = f"{proxy.address}/other/{name.rpartition('/')[2]}"
    derive(f"{name}:v1", f"{target}:v1")
    assert read(f"{target}:v1") == b"x = 2\n"
    assert proxy.received < 100_000
    assert sum("mount=" in path for _, path in proxy.seen) == 2


def test_another_repository_gets_all_platforms_of_an_index(server, tmp_path):
    plain = write_layout(tmp_path / "plain", architectures=("amd64", "arm64"))
    push(plain, "v1", f"{server}/both/one:v1", "--dest-tls-verify=false")
    images = open_all(at(f"{server}/both/one:v1"))
    derive_index(images, [derivation(), None], at(f"{server}/both/two:v1"))
    assert [image.fs.read(NORM) for image in open_all(at(f"{server}/both/two:v1"))] == [b"x = 2\n", b"x = 1\n"]


@pytest.mark.parametrize("status", [202, 401, 403, 404, 405])
def test_where_mounting_fails_small_layers_are_copied(proxied, server, status):
    proxy, name = proxied

    def fault(method, path, count):
        if "mount=" not in path:
            return None
        return (202, {"Location": "/nonsense"}) if status == 202 else status

    proxy.fault = fault
    target = f"{proxy.address}/copied/{status}"
    derive(f"{name}:v1", f"{target}:v1")
    proxy.fault = None
    assert read(f"{target}:v1") == b"x = 2\n"


def test_large_layers_are_never_copied_unasked(proxied, monkeypatch):
    proxy, name = proxied
    monkeypatch.setattr("patchkit.images.registry._MAX_COPY", 100)
    proxy.fault = lambda method, path, count: 403 if "mount=" in path else None
    with pytest.raises(Refused) as refused:
        derive(f"{name}:v1", f"{proxy.address}/never:v1")
    assert refused.value.code == "would-copy"
    assert not [seen for seen in proxy.seen if seen[0] == "PUT"]


def test_another_registry_gets_small_images_and_no_large_ones(repo, tmp_path, monkeypatch):
    with registry(tmp_path / "second") as second:
        derive(f"{repo}:v1", f"{second}/x:v1")
        assert read(f"{second}/x:v1") == b"x = 2\n"
        monkeypatch.setattr("patchkit.images.registry._MAX_COPY", 100)
        with pytest.raises(Refused) as refused:
            derive(f"{repo}:v1", f"{second}/y:v1")
    assert refused.value.code == "would-copy"


def test_the_source_tag_is_not_overwritten_unless_asked(repo):
    with pytest.raises(Refused) as refused:
        derive(f"{repo}:v1", f"{repo}:v1")
    assert refused.value.code == "target-is-source"
    assert read(f"{repo}:v1") == b"x = 1\n"
    derive(f"{repo}:v1", f"{repo}:v1", in_place=True)
    assert read(f"{repo}:v1") == b"x = 2\n"


def test_somebody_elses_tag_is_not_taken_without_force(repo, tmp_path):
    other = write_layout(tmp_path / "theirs", layers=[base_layers()[0]])
    push(other, "v1", f"{repo}:theirs", "--dest-tls-verify=false")
    with pytest.raises(Refused) as refused:
        derive(f"{repo}:v1", f"{repo}:theirs")
    assert refused.value.code == "target-tag-taken"
    derive(f"{repo}:v1", f"{repo}:theirs", force=True)
    derive(f"{repo}:v1", f"{repo}:theirs", data=b"x = 3\n")
    assert read(f"{repo}:theirs") == b"x = 3\n"


def test_a_source_tag_that_moved_meanwhile_is_not_overwritten(repo, tmp_path):
    other = write_layout(tmp_path / "theirs", layers=[base_layers()[1]])
    with open_image(at(f"{repo}:v1")) as image:
        push(other, "v1", f"{repo}:v1", "--dest-tls-verify=false")
        with pytest.raises(Refused) as refused:
            image.derive(derivation(), at(f"{repo}:v1"), in_place=True)
    assert refused.value.code == "tag-moved"


def test_a_tag_that_moves_while_the_image_is_sent_is_not_overwritten(proxied, repo, tmp_path):
    proxy, name = proxied
    other = write_layout(tmp_path / "theirs", layers=[base_layers()[1]])
    moved = []

    def fault(method, path, count):
        if method == "PUT" and "/blobs/uploads/" in path and not moved:
            push(other, "v1", f"{repo}:v1", "--dest-tls-verify=false")
            moved.append(True)

    proxy.fault = fault
    with pytest.raises(Refused) as refused:
        derive(f"{name}:v1", f"{name}:v1", in_place=True)
    assert refused.value.code == "tag-moved"
    with open_image(at(f"{repo}:v1")) as image:
        assert len(image.identity.diff_ids) == 1


@pytest.mark.parametrize(
    ("status", "code"),
    [(401, "registry-denied"), (403, "registry-denied"), (429, "registry-busy"), (500, "registry-error")],
)
@pytest.mark.parametrize("where", ["GET", "POST", "PUT"])
def test_a_refusal_is_told_with_its_reason_and_the_tag_stays(proxied, repo, status, code, where):
    proxy, name = proxied
    derive(f"{repo}:v1", f"{repo}:v1-patchkit", data=b"x = 0\n")
    proxy.fault = lambda method, path, count: status if method == where and count > 2 else None
    with pytest.raises(Unreachable) as error:
        derive(f"{name}:v1", f"{name}:v1-patchkit")
    assert error.value.code == code
    assert "made up" in error.value.what
    assert error.value.remedy
    assert read(f"{repo}:v1-patchkit") == b"x = 0\n"


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_fault_that_passes_is_outlived(proxied, status):
    proxy, name = proxied
    failed = set()

    def fault(method, path, count):
        place = (method, path.partition("/uploads/")[0])
        if place not in failed:
            failed.add(place)
            return (status, {"Retry-After": "0"})
        return None

    proxy.fault = fault
    derive(f"{name}:v1", f"{name}:new")
    assert read(f"{name}:new") == b"x = 2\n"


def test_a_registry_that_asks_for_a_long_wait_is_told_at_once(proxied):
    proxy, name = proxied
    proxy.fault = lambda method, path, count: (429, {"Retry-After": "3600"})
    with pytest.raises(Unreachable) as error:
        open_image(at(f"{name}:v1"))
    assert error.value.code == "registry-busy"
    assert len(proxy.seen) == 1


def big_layout(tmp_path):
    filler = b"".join(bytes([n % 251]) * 97 for n in range(20_000))
    layers = [layer_tar((f"{SITE}/filler", {"data": filler}), (f"{SITE}/pkg/norm.py", {"data": b"x = 1\n"}))]
    return write_layout(tmp_path / "big", layers=layers, compress=lambda data: gzip.compress(data, 0))


def test_a_transfer_that_is_cut_goes_on_where_it_was(server, tmp_path):
    push(big_layout(tmp_path), "v1", f"{server}/cut:v1", "--dest-tls-verify=false")
    proxy = Proxy(server)
    cut = []

    def fault(method, path, count):
        if "/blobs/" in path and len(cut) < 4:
            cut.append(path)
            return ("cut", 300_000)
        return None

    proxy.fault = fault
    assert read(f"{proxy.address}/cut:v1") == b"x = 1\n"
    proxy.close()
    assert len(cut) == 4


def test_a_transfer_that_is_cut_again_and_again_is_told(server, tmp_path):
    push(big_layout(tmp_path), "v1", f"{server}/cuts:v1", "--dest-tls-verify=false")
    proxy = Proxy(server, lambda method, path, count: ("cut", 1) if "/blobs/" in path and count > 2 else None)
    with pytest.raises(Unreachable):
        read(f"{proxy.address}/cuts:v1")
    proxy.close()


@pytest.mark.parametrize("what", ["manifests", "blobs"])
def test_a_registry_that_lies_about_a_digest_is_found_out(proxied, what):
    proxy, name = proxied
    proxy.fault = lambda method, path, count: (
        (lambda data: data.replace(b"linux", b"linus").replace(b"2,", b"2 ,")) if what in path else None
    )
    with pytest.raises(Unreachable) as error:
        read(f"{name}:v1")
    assert error.value.code == "digest-mismatch"
    assert not [path for path in cache.folder("files").glob("*") if b"linus" in path.read_bytes()]


def test_a_layer_of_other_bytes_is_found_out(proxied):
    proxy, name = proxied
    proxy.fault = lambda method, path, count: (
        lambda data: data[:4] + b"\x01" + data[5:] if data[:1] == b"\x1f" else data
    )
    with pytest.raises(Unreachable) as error:
        read(f"{name}:v1")
    assert error.value.code == "bad-layer"


def test_a_registry_that_stores_something_else_is_found_out_by_the_read_back(proxied):
    proxy, name = proxied
    proxy.fault = lambda method, path, count: (
        (lambda data: data.replace(b"x = 2", b"x = 3")) if "/blobs/" in path else None
    )
    with pytest.raises((Refused, Unreachable)):
        derive(f"{name}:v1", f"{name}:new")


def test_an_endless_manifest_is_not_read_to_its_end(proxied):
    proxy, name = proxied
    proxy.fault = lambda method, path, count: lambda data: b" " * (17 << 20)
    with pytest.raises(Unreachable):
        open_image(at(f"{name}:v1"))


def test_an_unknown_tag_or_host_is_told(server):
    with pytest.raises(Unreachable) as error:
        open_image(at(f"{server}/none:v1"))
    assert error.value.code == "no-such-image"
    with pytest.raises(Unreachable) as error:
        open_image(at("127.0.0.1:1/x:v1"))
    assert error.value.code == "no-registry"


def login(path, host: str, **entry) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"auths": {host: entry}}))


def test_basic_login_from_dockers_config(tmp_path, layout):
    with registry(tmp_path / "registry", htpasswd=True) as host:
        push(layout, "v1", f"{host}/x:v1", "--dest-tls-verify=false", "--dest-creds=patch:kit")
        with pytest.raises(Unreachable) as error:
            read(f"{host}/x:v1")
        assert error.value.code == "registry-denied"
        assert error.value.remedy == f"docker login {host}"
        login(tmp_path / "docker/config.json", host, auth="d3Jvbmc6cGFzcw==")
        with pytest.raises(Unreachable):
            read(f"{host}/x:v1")
        login(tmp_path / "docker/config.json", host, auth=BASIC)
        derive(f"{host}/x:v1", f"{host}/x:new")
        assert read(f"{host}/x:new") == b"x = 2\n"


def test_tls_with_a_certificate_of_ones_own(tmp_path, layout):
    pair = certificate(tmp_path)
    with registry(tmp_path / "registry", htpasswd=True, tls=pair) as host:
        login(tmp_path / "auth.json", host, auth=BASIC)
        push(layout, "v1", f"{host}/x:v1", "--dest-tls-verify=false", "--dest-creds=patch:kit")
        with pytest.raises(Unreachable) as error:
            read(f"{host}/x:v1", auth_file=str(tmp_path / "auth.json"))
        assert error.value.code == "no-registry"
        trusted = Access(ca_file=str(pair[0]), auth_file=str(tmp_path / "auth.json"))
        derive(f"{host}/x:v1", f"{host}/x:new", access=trusted)
        assert read(f"{host}/x:new", ca_file=str(pair[0]), auth_file=str(tmp_path / "auth.json")) == b"x = 2\n"


@pytest.fixture
def tokens(tmp_path):
    server = TokenServer(tmp_path)
    yield server
    server.close()


def test_bearer_tokens_are_asked_for_with_the_scopes_that_are_needed(tmp_path, layout, tokens):
    with registry(tmp_path / "registry", token=tokens.config) as host:
        push(layout, "v1", f"{host}/a/x:v1", "--dest-tls-verify=false", "--dest-creds=patch:kit")
        login(tmp_path / "docker/config.json", host, auth=BASIC)
        tokens.asked.clear()
        derive(f"{host}/a/x:v1", f"{host}/b/y:new")
        assert read(f"{host}/b/y:new") == b"x = 2\n"
    assert tokens.asked[0] == ("GET", ["repository:a/x:pull"], "patch:kit")
    assert {"repository:a/x:pull", "repository:b/y:pull,push"} <= set(tokens.asked[1][1])


def test_anonymous_pull_and_a_refused_push(tmp_path, layout, tokens):
    with registry(tmp_path / "registry", token=tokens.config) as host:
        push(layout, "v1", f"{host}/x:v1", "--dest-tls-verify=false", "--dest-creds=patch:kit")
        assert read(f"{host}/x:v1") == b"x = 1\n"
        with pytest.raises(Unreachable) as error:
            derive(f"{host}/x:v1", f"{host}/x:new")
        assert error.value.code == "registry-denied"
        login(tmp_path / "docker/config.json", host, auth="cGF0Y2g6d3Jvbmc=")
        with pytest.raises(Unreachable) as error:
            read(f"{host}/x:v1")
        assert "wrong password" in error.value.what


def test_an_identity_token_is_exchanged(tmp_path, layout, tokens):
    with registry(tmp_path / "registry", token=tokens.config) as host:
        push(layout, "v1", f"{host}/x:v1", "--dest-tls-verify=false", "--dest-creds=patch:kit")
        login(tmp_path / "docker/config.json", host, identitytoken="secret")
        tokens.asked.clear()
        derive(f"{host}/x:v1", f"{host}/x:new")
    assert {(method, who) for method, _, who in tokens.asked} == {("POST", "refresh:secret")}


def test_credentials_do_not_follow_an_upload_to_another_host(tmp_path, layout):
    with registry(tmp_path / "registry", htpasswd=True) as host:
        foreign = Proxy(host, lambda method, path, count: 403)
        elsewhere = {"Location": f"http://localhost:{foreign.address.partition(':')[2]}/up"}
        proxy = Proxy(host, lambda method, path, count: (202, elsewhere) if method == "POST" else None)
        push(layout, "v1", f"{host}/x:v1", "--dest-tls-verify=false", "--dest-creds=patch:kit")
        login(tmp_path / "docker/config.json", proxy.address, auth=BASIC)
        with pytest.raises(Unreachable):
            derive(f"{proxy.address}/x:v1", f"{proxy.address}/x:new")
        proxy.close()
        foreign.close()
    assert set(proxy.authorizations) == {None, f"Basic {BASIC}"}
    assert set(foreign.authorizations) == {None}


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("ubuntu", ("docker.io", "library/ubuntu", "latest")),
        ("a/b:c", ("docker.io", "a/b", "c")),
        ("docker.io/a/b", ("docker.io", "a/b", "latest")),
        ("localhost/a:1", ("localhost", "a", "1")),
        ("h:5000/a/b", ("h:5000", "a/b", "latest")),
        ("ghcr.io/a/b:c@sha256:" + "1" * 64, ("ghcr.io", "a/b", "sha256:" + "1" * 64)),
    ],
)
def test_names_are_completed_as_docker_completes_them(name, parts):
    assert split_name(at(name)) == parts


def test_targets_are_named_as_promised(repo):
    with open_image(at(f"{repo}:v1")) as image:
        assert image.default_target() == at(f"{repo}:v1-patchkit")
        assert image.named("mine") == at(f"{repo}:mine")
        assert image.named("ghcr.io/a/b:c") == at("ghcr.io/a/b:c")
        digest = f"{repo}@{image.identity.manifest}"
    with open_image(at(digest)) as image:
        assert image.default_target() == at(f"{repo}:patchkit-{image.identity.config[7:19]}")
        with pytest.raises(BadInput):
            image.derive(derivation(), at(digest))
