"""A small client of an OpenAI-compatible server: plain requests, and streams with the time of every event."""

from __future__ import annotations

import http.client
import json
import ssl
import time
import urllib.parse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from patchkit.errors import BadInput, PatchkitError, Unreachable

_MAX_ANSWER = 64 * 1024 * 1024
_MAX_LINE = 4 * 1024 * 1024


class ServerError(PatchkitError):
    """The server answered with a refusal, or with something that is no answer. ``http`` is the status, 0 without."""

    status = 1

    def __init__(self, status: int, what: str, *, where: str) -> None:
        super().__init__("server-error", what, where=where, remedy="look into the server's log: docker logs CONTAINER")
        self.http = status


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a stream, and the seconds since the request was sent."""

    seconds: float
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Server:
    """A server at ``url`` (``http://host:8000``, a trailing ``/v1`` is taken off). ``timeout`` is in seconds and counts
    for each wait; ``key`` is sent as bearer token."""

    url: str
    timeout: float = 600.0
    key: str = field(default="", repr=False)

    def get(self, path: str) -> tuple[int, bytes]:
        """Status and body of a GET.

        Raises:
            patchkit.errors.Unreachable: ``server-unreachable``.
        """
        return self._request("GET", path, None)

    def get_json(self, path: str) -> Any:
        """The JSON of a GET that must succeed. Raises as ``post``."""
        return self._json(path, *self.get(path))

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """The JSON that a POST answers.

        Raises:
            ServerError: any status but 200, or no JSON.
            patchkit.errors.Unreachable: ``server-unreachable``.
        """
        return self._json(path, *self._request("POST", path, body))

    def stream(self, path: str, body: Mapping[str, Any]) -> Iterator[Event]:
        """The events of a streamed answer, up to ``[DONE]``.

        Raises:
            ServerError: any status but 200, an event that is no JSON, or a stream that breaks off before its end.
            patchkit.errors.Unreachable: ``server-unreachable``.
        """
        connection = self._connection()
        begin = time.perf_counter()
        try:
            self._send(connection, "POST", path, {**body, "stream": True})
            response = connection.getresponse()
            if response.status != 200:
                raise self._refusal(path, response.status, response.read(_MAX_ANSWER))
            yield from self._events(path, response, begin)
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from None
        finally:
            connection.close()

    def _events(self, path: str, response: http.client.HTTPResponse, begin: float) -> Iterator[Event]:
        while line := response.readline(_MAX_LINE):
            seconds = time.perf_counter() - begin
            name, _, value = line.decode("utf-8", "replace").strip().partition(":")
            if name != "data":
                continue
            if value.strip() == "[DONE]":
                return
            try:
                data = json.loads(value)
            except ValueError:
                raise ServerError(200, "an event of the stream is no JSON", where=self._place(path)) from None
            if "error" in data:
                raise ServerError(200, f"the stream ends in an error: {data['error']}", where=self._place(path))
            yield Event(seconds, data)
        raise ServerError(200, "the stream broke off before its end", where=self._place(path))

    def _request(self, method: str, path: str, body: Mapping[str, Any] | None) -> tuple[int, bytes]:
        connection = self._connection()
        try:
            self._send(connection, method, path, body)
            response = connection.getresponse()
            return response.status, response.read(_MAX_ANSWER)
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from None
        finally:
            connection.close()

    def _send(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: Mapping[str, Any] | None
    ) -> None:
        headers = {"Accept": "*/*"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        connection.request(method, self._parts().path.rstrip("/").removesuffix("/v1") + path, data, headers)

    def _connection(self) -> http.client.HTTPConnection:
        parts = self._parts()
        if parts.scheme == "https":
            return http.client.HTTPSConnection(
                parts.hostname or "", parts.port, timeout=self.timeout, context=ssl.create_default_context()
            )
        return http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=self.timeout)

    def _parts(self) -> urllib.parse.SplitResult:
        parts = urllib.parse.urlsplit(self.url)
        try:
            sound = parts.scheme in ("http", "https") and parts.hostname and (parts.port or 1)
        except ValueError:
            sound = False
        if not sound:
            raise BadInput("bad-url", "no http address", where=self.url, remedy="--url http://localhost:8000")
        return parts

    def _json(self, path: str, status: int, body: bytes) -> Any:
        if status != 200:
            raise self._refusal(path, status, body)
        try:
            return json.loads(body)
        except ValueError:
            raise ServerError(status, "the answer is no JSON", where=self._place(path)) from None

    def _refusal(self, path: str, status: int, body: bytes) -> ServerError:
        said = " ".join(body.decode("utf-8", "replace").split())[:300]
        return ServerError(status, f"the server answered {status}: {said}", where=self._place(path))

    def _unreachable(self, error: Exception) -> Unreachable:
        said = str(error) or type(error).__name__
        return Unreachable(
            "server-unreachable",
            f"the server gives no answer: {said}",
            where=self.url,
            remedy="look whether it runs: docker compose ps, docker logs CONTAINER",
        )

    def _place(self, path: str) -> str:
        return self.url.rstrip("/").removesuffix("/v1") + path


def models(server: Server) -> list[dict[str, Any]]:
    """The models that the server lists. Raises as ``Server.post``, ServerError too where the list is none."""
    answer = server.get_json("/v1/models")
    found = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(found, list) or not all(isinstance(each, dict) and each.get("id") for each in found):
        raise ServerError(200, "the model list is no list of models", where=f"{server.url}/v1/models")
    return found


def pieces(data: Mapping[str, Any]) -> tuple[str, str]:
    """Reasoning and content that one event of a chat stream adds. vLLM calls the first ``reasoning``, older versions
    and others ``reasoning_content``."""
    choices = data.get("choices") or [{}]
    delta = choices[0].get("delta") or {}
    return str(delta.get("reasoning") or delta.get("reasoning_content") or ""), str(delta.get("content") or "")
