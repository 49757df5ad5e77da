"""Credentials for registries, found where docker, podman and skopeo keep them.

Files: containers-auth.json(5) and docker's config.json; helpers: docker-credential-helpers' protocol. Nothing is
written, and nothing is asked for.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from patchkit import cache
from patchkit.errors import BadInput

_HUB = "docker.io"
_HUB_KEYS = ("https://index.docker.io/v1/", "index.docker.io", "registry-1.docker.io", "docker.io")
_HELPER_SECONDS = 60


class Credentials(NamedTuple):
    """What to log in with: a user and secret, or an identity token (an OAuth2 refresh token, user empty)."""

    user: str
    secret: str

    @property
    def is_token(self) -> bool:
        return not self.user

    @property
    def basic(self) -> str:
        """The value of an HTTP ``Authorization`` header."""
        return "Basic " + base64.b64encode(f"{self.user}:{self.secret}".encode()).decode()


def find(registry: str, repository: str, auth_file: str | None = None) -> Credentials | None:
    """The credentials for ``repository`` at ``registry``, the most specific of the first file that has any.

    Raises:
        patchkit.errors.BadInput: ``bad-auth-file``: a file cannot be read, or a helper fails.
    """
    for path in _files(auth_file):
        found = _in_file(path, registry, repository)
        if found is not None:
            return found
    return None


def _files(auth_file: str | None) -> Iterator[Path]:
    home = cache.home()
    if auth_file:
        yield Path(auth_file)
    if os.environ.get("REGISTRY_AUTH_FILE"):
        yield Path(os.environ["REGISTRY_AUTH_FILE"])
    if os.environ.get("XDG_RUNTIME_DIR"):
        yield Path(os.environ["XDG_RUNTIME_DIR"]) / "containers" / "auth.json"
    yield Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config") / "containers" / "auth.json"
    yield Path(os.environ.get("DOCKER_CONFIG") or home / ".docker") / "config.json"


def _in_file(path: Path, registry: str, repository: str) -> Credentials | None:
    try:
        value = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise BadInput("bad-auth-file", f"cannot read it: {error}", where=str(path), remedy="log in again") from error
    if not isinstance(value, dict):
        raise BadInput("bad-auth-file", "not a JSON object", where=str(path), remedy="log in again")
    helpers, auths = _object(value.get("credHelpers")), _object(value.get("auths"))
    for key in _keys(registry, repository):
        if isinstance(helpers.get(key), str):
            return _from_helper(helpers[key], key, path)
        for written in (key, f"https://{key}", f"http://{key}", f"https://{key}/", f"https://{key}/v1/"):
            found = _from_entry(auths.get(written), path)
            if found is not None:
                return found
    store = value.get("credsStore")
    if isinstance(store, str) and store:
        return _from_helper(store, _HUB_KEYS[0] if registry == _HUB else registry, path)
    return None


def _keys(registry: str, repository: str) -> Iterator[str]:
    """The names an entry may have, most specific first: containers-auth.json(5) allows namespaces."""
    parts = repository.split("/")
    for count in range(len(parts), 0, -1):
        yield "/".join([registry, *parts[:count]])
    yield registry
    if registry == _HUB:
        yield from _HUB_KEYS


def _from_entry(entry: Any, path: Path) -> Credentials | None:
    entry = _object(entry)
    token, packed = entry.get("identitytoken"), entry.get("auth")
    if isinstance(token, str) and token:
        return Credentials("", token)
    if isinstance(packed, str) and packed:
        try:
            user, colon, secret = base64.b64decode(packed, validate=True).decode().partition(":")
        except (binascii.Error, ValueError) as error:
            raise BadInput("bad-auth-file", f"a damaged entry: {error}", where=str(path)) from error
        # docker writes user and password with trailing NULs in some versions (docker/cli config/configfile/file.go)
        return Credentials(user, secret.rstrip("\0")) if colon and user else None
    if isinstance(entry.get("username"), str) and isinstance(entry.get("password"), str):
        return Credentials(entry["username"], entry["password"])
    return None


def _from_helper(name: str, server: str, path: Path) -> Credentials | None:
    if not name.replace("-", "").replace("_", "").replace(".", "").isalnum():
        raise BadInput("bad-auth-file", f"{name!r} is no name of a credential helper", where=str(path))
    program = f"docker-credential-{name}"
    try:
        done = subprocess.run(
            [program, "get"], input=server.encode(), capture_output=True, check=False, timeout=_HELPER_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        remedy = f"install {program}, or remove it from {path}"
        raise BadInput("bad-auth-file", f"cannot run {program}: {error}", where=str(path), remedy=remedy) from error
    if done.returncode:
        said = (done.stdout + done.stderr).decode("utf-8", "replace").strip()[:300]
        if "not found" in said:  # the protocol's word for: nobody is logged in
            return None
        raise BadInput("bad-auth-file", f"{program} fails: {said}", where=str(path), remedy="log in again")
    try:
        answer = json.loads(done.stdout)
        user, secret = str(answer["Username"]), str(answer["Secret"])
    except (ValueError, LookupError, TypeError) as error:
        raise BadInput("bad-auth-file", f"{program} gives no proper answer", where=str(path)) from error
    return Credentials("" if user == "<token>" else user, secret) if secret else None


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
