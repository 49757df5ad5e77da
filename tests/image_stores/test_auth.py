from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from patchkit.errors import BadInput
from patchkit.images import auth


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("DOCKER_CONFIG", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR", "REGISTRY_AUTH_FILE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def entry(user: str, secret: str = "s") -> dict:
    return {"auth": base64.b64encode(f"{user}:{secret}".encode()).decode()}


def write(path: Path, **value) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


def user(registry: str = "r.example", repository: str = "a/b", file: str | None = None) -> str | None:
    found = auth.find(registry, repository, file)
    return found.user if found else None


def test_nobody_is_logged_in():
    assert user() is None


def test_the_first_file_that_knows_the_registry_counts(home, monkeypatch):
    write(home / ".docker/config.json", auths={"r.example": entry("docker")})
    assert user() == "docker"
    write(home / ".config/containers/auth.json", auths={"r.example": entry("config")})
    assert user() == "config"
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(home / "run"))
    write(home / "run/containers/auth.json", auths={"other.example": entry("nobody")})
    assert user() == "config"
    write(home / "run/containers/auth.json", auths={"r.example": entry("runtime")})
    assert user() == "runtime"
    write(home / "named.json", auths={"r.example": entry("named")})
    monkeypatch.setenv("REGISTRY_AUTH_FILE", str(home / "named.json"))
    assert user() == "named"
    write(home / "given.json", auths={"r.example": entry("given")})
    assert user(file=str(home / "given.json")) == "given"


def test_the_most_specific_name_counts(home):
    write(home / ".docker/config.json", auths={"r.example": entry("all"), "r.example/a/b": entry("one")})
    assert user(repository="a/b") == "one"
    assert user(repository="a/c") == "all"
    assert user(repository="a/bc") == "all"


@pytest.mark.parametrize("key", ["https://index.docker.io/v1/", "docker.io", "index.docker.io"])
def test_docker_hub_goes_by_its_old_names(home, key):
    write(home / ".docker/config.json", auths={key: entry("hub")})
    assert user("docker.io", "library/x") == "hub"
    assert user("r.example") is None


@pytest.mark.parametrize("key", ["https://r.example", "https://r.example/v1/", "http://r.example"])
def test_names_may_be_urls(home, key):
    write(home / ".docker/config.json", auths={key: entry("u")})
    assert user() == "u"


def test_an_identity_token_has_no_user(home):
    write(home / ".docker/config.json", auths={"r.example": {**entry("u"), "identitytoken": "tok"}})
    found = auth.find("r.example", "a", None)
    assert found.is_token
    assert found.secret == "tok"


def test_a_secret_may_hold_colons(home):
    write(home / ".docker/config.json", auths={"r.example": entry("u", "a:b:c")})
    assert auth.find("r.example", "a", None).secret == "a:b:c"


def helper(home, monkeypatch, body: str) -> None:
    path = home / "bin/docker-credential-test"
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\nread server\n{body}\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{path.parent}:/usr/bin:/bin")


@pytest.mark.parametrize("how", [{"credsStore": "test"}, {"credHelpers": {"r.example": "test"}}])
def test_helpers_are_asked(home, monkeypatch, how):
    helper(home, monkeypatch, 'echo "{\\"Username\\": \\"for-$server\\", \\"Secret\\": \\"s\\"}"')
    write(home / ".docker/config.json", **how)
    assert user() == "for-r.example"


def test_a_helpers_token_is_an_identity_token(home, monkeypatch):
    helper(home, monkeypatch, 'echo "{\\"Username\\": \\"<token>\\", \\"Secret\\": \\"s\\"}"')
    write(home / ".docker/config.json", credsStore="test")
    assert auth.find("r.example", "a", None).is_token


def test_a_helper_that_knows_nobody_is_no_fault(home, monkeypatch):
    helper(home, monkeypatch, "echo credentials not found in native keychain; exit 1")
    write(home / ".docker/config.json", credsStore="test")
    assert user() is None


@pytest.mark.parametrize("body", ["echo locked; exit 1", "echo rubbish", "echo '{}'"])
def test_a_helper_that_fails_is_told(home, monkeypatch, body):
    helper(home, monkeypatch, body)
    write(home / ".docker/config.json", credsStore="test")
    with pytest.raises(BadInput) as error:
        user()
    assert error.value.code == "bad-auth-file"


@pytest.mark.parametrize("name", ["../x", "a b", "x;y"])
def test_a_helper_of_a_strange_name_is_not_run(home, name):
    write(home / ".docker/config.json", credsStore=name)
    with pytest.raises(BadInput):
        user()


@pytest.mark.parametrize("text", ["{", "[]", '{"auths": {"r.example": {"auth": "%%%"}}}'])
def test_a_damaged_file_is_told(home, text):
    (home / ".docker").mkdir()
    (home / ".docker/config.json").write_text(text)
    with pytest.raises(BadInput) as error:
        user()
    assert error.value.code == "bad-auth-file"
