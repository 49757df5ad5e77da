"""HTTP to one registry: who we are, what went wrong, and trying again. Distribution's API is spoken in ``registry``.

Challenges: distribution's docs/spec/auth/token.md and oauth2.md. Credentials go to the registry's own origin and to the
token server it names, nowhere else.
"""

from __future__ import annotations

import contextlib
import glob
import ipaddress
import json
import re
import socket
import ssl
import time
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter
from requests.auth import AuthBase

from patchkit.errors import Unreachable
from patchkit.images import Access, auth
from patchkit.images.rawjson import MAX_JSON

_TIMEOUT = (10, 60)
_TRIES = 3
#: A registry that asks us to wait longer is told to the person instead.
_MAX_WAIT = 30.0
_CERTIFICATES = ("/etc/containers/certs.d", "/etc/docker/certs.d")


class Client:
    """A connection to the registry ``host`` (``docker.io`` or ``host[:port]``) that logs in as it is asked to.

    ``requests`` counts what was sent, and ``received`` the body bytes that came; both for telling, and for benchmarks.
    """

    #: Seconds before the second try; the third waits four times as long.
    first_wait = 0.25

    def __init__(self, host: str, repository: str, access: Access) -> None:
        self.host, self._repository, self._access = host, repository, access
        self.requests = self.received = self.sent = 0
        self._server = "registry-1.docker.io" if host == "docker.io" else host
        self._loopback = _is_loopback(self._server)
        self._schemes = ["https", "http"] if access.plain_http or self._loopback else ["https"]
        self._session = requests.Session()
        self._session.mount("https://", _Adapter(_tls(self._server, access)))
        self._session.headers["User-Agent"] = "patchkit"
        self._authorization: str | None = None
        self._scopes: set[str] = set()

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    def widen(self, scopes: Iterable[str]) -> None:
        """Ask for these scopes (``repository:NAME:pull,push``) too from now on: one token for all there is to do."""
        if not set(scopes) <= self._scopes:
            self._scopes |= set(scopes)
            if self._authorization and self._authorization.startswith("Bearer "):
                self._authorization = None

    def send(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        expect: Iterable[int] = (200,),
        again: bool = True,
    ) -> requests.Response:
        """The answer to one request; its body is not read yet. ``url`` is absolute or a path on the registry. Statuses
        of ``expect`` come back, others raise. ``again`` allows to send it once more after a fault in between.

        Raises:
            patchkit.errors.Unreachable: ``registry-denied``, ``registry-busy``, ``registry-error`` or ``no-registry``.
        """
        wait = self.first_wait
        for tries_left in reversed(range(_TRIES if again else 1)):
            try:
                answer = self._authorised(method, url, headers or {}, body)
            except requests.RequestException as error:
                if tries_left:
                    time.sleep(wait)
                    wait *= 4
                    continue
                raise self._gone(error) from error
            if answer.status_code in expect:
                return answer
            if tries_left and (answer.status_code == 429 or answer.status_code >= 500):
                pause = _retry_after(answer, wait)
                if pause <= _MAX_WAIT:
                    answer.close()
                    time.sleep(pause)
                    wait *= 4
                    continue
            raise self._refusal(method, answer)
        raise AssertionError("unreachable")

    def small_body(self, answer: requests.Response) -> bytes:
        """The body of a manifest or config; more than such a thing can have is an error."""
        data = bytearray()
        try:
            with answer:
                for piece in answer.iter_content(64 * 1024):
                    data += piece
                    if len(data) > MAX_JSON:
                        what = f"the answer is larger than {MAX_JSON} bytes"
                        raise Unreachable("registry-error", what, where=self.host)
        except requests.RequestException as error:
            raise self._gone(error) from error
        self.received += len(data)
        return bytes(data)

    def _authorised(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> requests.Response:
        answer = self._one(method, url, headers, body)
        if answer.status_code != 401 or not self._own(answer.url):
            return answer
        before = self._authorization
        self._authorization = self._log_in(answer.headers.get("WWW-Authenticate", ""))
        if self._authorization is None or self._authorization == before:
            return answer
        answer.close()
        return self._one(method, url, headers, body)

    def _one(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> requests.Response:
        while True:
            target = url if "://" in url else f"{self._schemes[0]}://{self._server}{url}"
            try:
                self.requests += 1
                answer = self._session.request(
                    method,
                    target,
                    headers=dict(headers),
                    data=body,
                    auth=_Header(self._authorization if self._own(target) else None),
                    timeout=_TIMEOUT,
                    stream=True,
                    allow_redirects=method in ("GET", "HEAD"),
                )
            except (requests.exceptions.SSLError, requests.exceptions.ConnectionError) as error:
                self.requests -= 1
                if len(self._schemes) > 1 and "://" not in url and not _is_bad_certificate(error):
                    del self._schemes[0]
                    continue
                raise
            self.sent += len(body or b"")
            if answer.history:
                self.requests += len(answer.history)
                if target.startswith("https:") and not answer.url.startswith("https:"):
                    answer.close()
                    what = f"it redirects to an unprotected address: {answer.url}"
                    raise Unreachable("registry-error", what, where=self.host)
            if len(self._schemes) > 1:
                del self._schemes[1]
            return answer

    def _own(self, url: str) -> bool:
        """Whether the URL is of the registry's own origin, so that it may see our credentials."""
        parts = urlsplit(url)
        return parts.netloc == self._server and parts.scheme in self._schemes

    def _log_in(self, challenge: str) -> str | None:
        credentials = auth.find(self.host, self._repository, self._access.auth_file)
        scheme, _, rest = challenge.partition(" ")
        if scheme.lower() == "basic":
            return credentials.basic if credentials and not credentials.is_token else None
        if scheme.lower() != "bearer":
            return None
        fields = dict(re.findall(r'(\w+)="([^"]*)"', rest))
        realm = fields.get("realm", "")
        if not realm.startswith("https://") and self._schemes[0] == "https" and not self._loopback:
            what = f"it sends us for a token to an unprotected address: {realm!r}"
            raise Unreachable("registry-error", what, where=self.host)
        asked = {fields["scope"]} if fields.get("scope") else set()
        query: dict[str, Any] = {"service": fields.get("service", ""), "scope": sorted(self._scopes | asked)}
        self.requests += 1
        try:
            if credentials and credentials.is_token:
                form = {"grant_type": "refresh_token", "refresh_token": credentials.secret, "client_id": "patchkit"}
                form |= {"service": query["service"], "scope": " ".join(query["scope"])}
                answer = self._session.post(realm, data=form, auth=_Header(None), timeout=_TIMEOUT, stream=True)
            else:
                header = _Header(credentials.basic if credentials else None)
                answer = self._session.get(realm, params=query, auth=header, timeout=_TIMEOUT, stream=True)
        except requests.RequestException as error:
            raise self._gone(error) from error
        if answer.status_code != 200:
            raise self._refusal("token", answer)
        try:
            value = json.loads(self.small_body(answer))
            token = value.get("token") or value.get("access_token")
        except (ValueError, AttributeError):
            token = None
        if not isinstance(token, str) or not token.isascii() or not token.isprintable():
            raise Unreachable("registry-error", "its token server gives no proper token", where=self.host)
        return f"Bearer {token}"

    def _refusal(self, method: str, answer: requests.Response) -> Unreachable:
        said = _said(answer)
        status = answer.status_code
        answer.close()
        what = f"{method} was answered {status}" + (f": {said}" if said else "")
        if status in (401, 403):
            return Unreachable("registry-denied", what, where=self.host, remedy=f"docker login {self.host}")
        if status == 429:
            return Unreachable("registry-busy", what, where=self.host, remedy="log in, or try again later")
        return Unreachable("registry-error", what, where=self.host, remedy="try again later")

    def _gone(self, error: Exception) -> Unreachable:
        remedy = "check the name, the network, and for a registry of your own --plain-http or --ca-file"
        return Unreachable("no-registry", f"cannot be reached: {reason(error)}", where=self.host, remedy=remedy)


def reason(error: BaseException) -> str:
    """Why a connection failed, in words: what the lowest error of the chain says, not how the libraries wrap it."""
    lowest = error
    while (inner := _inner(lowest)) is not None:
        lowest = inner
    text = str(error)
    if "NameResolutionError" in text or isinstance(lowest, socket.gaierror):
        return "its name is unknown here (no network, or a wrong name)"
    if isinstance(error, requests.Timeout) or isinstance(lowest, TimeoutError):
        return "it does not answer in time"
    if isinstance(lowest, OSError) and lowest.strerror:
        return lowest.strerror
    said = re.sub(r"^.*Caused by \w+\(|<[^>]*>: |\)+$", "", text.rpartition("Max retries exceeded")[2])
    return said.strip("'\" ") or type(error).__name__


def _inner(error: BaseException) -> BaseException | None:
    hidden = [getattr(error, "reason", None), error.__cause__, error.__context__, *reversed(error.args)]
    return next((each for each in hidden if isinstance(each, BaseException) and each is not error), None)


class _Header(AuthBase):
    """Our own header, or none: without this, requests would look into .netrc."""

    def __init__(self, value: str | None) -> None:
        self._value = value

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if self._value:
            request.headers["Authorization"] = self._value
        return request


class _Adapter(HTTPAdapter):
    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        super().__init__()

    def init_poolmanager(self, *args: Any, **keywords: Any) -> None:
        super().init_poolmanager(*args, ssl_context=self._context, **keywords)


def _tls(server: str, access: Access) -> ssl.SSLContext:
    """The system's trust, and what docker and podman keep for the registry: ``certs.d/HOST/*.crt``, client
    certificates ``*.cert`` with ``*.key`` (containers-certs.d(5))."""
    context = ssl.create_default_context()
    files = [access.ca_file] if access.ca_file else []
    for folder in _CERTIFICATES:
        files += sorted(glob.glob(f"{glob.escape(folder)}/{glob.escape(server)}/*.crt"))  # noqa: PTH207
    try:
        for file in files:
            context.load_verify_locations(file)
        for folder in _CERTIFICATES:
            for file in sorted(glob.glob(f"{glob.escape(folder)}/{glob.escape(server)}/*.cert")):  # noqa: PTH207
                context.load_cert_chain(file, file.removesuffix(".cert") + ".key")
    except (OSError, ssl.SSLError) as error:
        raise Unreachable("bad-certificate", f"cannot read the certificate: {error}", where=server) from error
    return context


def _is_loopback(server: str) -> bool:
    name = urlsplit(f"//{server}").hostname or ""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(name).is_loopback
    return name == "localhost"


def _is_bad_certificate(error: Exception) -> bool:
    """Whether TLS was spoken but not trusted: never a reason to go on without."""
    return "CERTIFICATE_VERIFY_FAILED" in str(error) or "certificate verify failed" in str(error)


def _retry_after(answer: requests.Response, default: float) -> float:
    text = answer.headers.get("Retry-After", "")
    return float(text) if text.isdigit() else default


def _said(answer: requests.Response) -> str:
    """The registry's own words, at most a line of them."""
    with contextlib.suppress(requests.RequestException, ValueError, LookupError, TypeError, AttributeError):
        errors = json.loads(next(answer.iter_content(4096), b""))["errors"]
        return "; ".join(f"{one.get('code')}: {one.get('message')}" for one in errors)[:300]
    return ""
