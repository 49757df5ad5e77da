"""Tiny HTTP client used by the acme tools."""
import json
import socket
import time

DEFAULT_TIMEOUT = 30
RETRIES = 3


class ClientError(Exception):
    """Raised when a call cannot be completed."""


class Client:
    def __init__(self, host, port=443, timeout=DEFAULT_TIMEOUT):
        self.host = host
        self.port = port
        self.timeout = timeout
        self._sock = None

    def connect(self):
        if self._sock is None:
            self._sock = socket.create_connection((self.host, self.port), self.timeout)
        return self._sock

    def close(self):
        if self._sock is not None:
            self._sock.close()
            self._sock = None

    def call(self, method, payload):
        body = json.dumps(payload).encode("utf-8")
        for attempt in range(RETRIES):
            try:
                sock = self.connect()
                sock.sendall(body)
                return self._read_all(sock)
            except OSError:
                self.close()
                time.sleep(attempt)
        raise ClientError(method)

    def _read(self, sock, limit=None):
        chunks = []
        while True:
            chunk = sock.recv(4096)
            if not chunk:
                break
            chunks.append(chunk)
        return json.loads(b"".join(chunks))


def main():
    client = Client("localhost")
    print(client.call("ping", {}))


if __name__ == "__main__":
    main()
