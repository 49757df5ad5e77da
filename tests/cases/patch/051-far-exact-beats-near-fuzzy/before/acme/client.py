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

    def _read(self, sock):
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


# filler 0
# filler 1
# filler 2
# filler 3
# filler 4
# filler 5
# filler 6
# filler 7
# filler 8
# filler 9
# filler 10
# filler 11
# filler 12
# filler 13
# filler 14
# filler 15
# filler 16
# filler 17
# filler 18
# filler 19
# filler 20
# filler 21
# filler 22
# filler 23
# filler 24
# filler 25
# filler 26
# filler 27
# filler 28
# filler 29
# filler 30
# filler 31
# filler 32
# filler 33
# filler 34
# filler 35
# filler 36
# filler 37
# filler 38
# filler 39
# filler 40
# filler 41
# filler 42
# filler 43
# filler 44
# filler 45
# filler 46
# filler 47
# filler 48
# filler 49
# filler 50
# filler 51
# filler 52
# filler 53
# filler 54
# filler 55
# filler 56
# filler 57
# filler 58
# filler 59
    def call(self, method, payload):
        body = json.dumps(payload).encode("utf-8")
        for attempt in range(RETRIES):
            try:
                sock = self.connect()
                sock.sendall(body)
                return self._read(sock)
            except OSError:
                self.close()
                time.sleep(attempt)
        raise ClientError(method)

    def _read(self, sock):
        chunks = []
        while True:
            chunk = sock.recv(4096)
            if not chunk:
                break
            chunks.append(chunk)
        return json.loads(b"".join(chunks))


