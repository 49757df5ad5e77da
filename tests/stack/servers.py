"""Servers for the tests: llama.cpp's own with a tiny random model, a proxy that slows it, and a double with faults."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import socketserver
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Json = dict[str, Any]

_TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + (m['content'] or '') + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
_SERVE = """
import sys, threading, xllamacpp
params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.model_alias = {"tiny"}
params.hostnames = ["127.0.0.1"]
params.port = int(sys.argv[2])
params.n_ctx = 16384
params.n_parallel = 4
params.cpuparams.n_threads = 1
params.cpuparams_batch.n_threads = 1
params.warmup = False
server = xllamacpp.Server(params)
sys.stdin.read()
"""


def write_tiny_model(path: Path) -> None:
    """A llama of 2 layers with random weights and a vocabulary of bytes, letters and a few words, 0.5 MB."""
    import numpy
    from gguf import GGUFWriter, TokenType

    width, layers, inner = 64, 2, 128
    tokens = ["<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>", *(f"<0x{code:02X}>" for code in range(256))]
    kinds = [TokenType.UNKNOWN, *[TokenType.CONTROL] * 4, *[TokenType.BYTE] * 256]
    words = [
        "\u2581",
        *(chr(code) for code in range(33, 127)),
        *(f"\u2581{word}" for word in ("the", "of", "and", "to")),
    ]
    tokens += words
    kinds += [TokenType.NORMAL] * len(words)

    writer = GGUFWriter(path, "llama")
    writer.add_context_length(16384)
    writer.add_embedding_length(width)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(4)
    writer.add_head_count_kv(4)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(width // 4)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * len(tokens))
    writer.add_token_types(kinds)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(4)
    writer.add_chat_template(_TEMPLATE)

    chance = numpy.random.default_rng(1)

    def add(name: str, *shape: int) -> None:
        writer.add_tensor(name, (chance.standard_normal(shape) * 0.2).astype(numpy.float32))

    ones = numpy.ones(width, dtype=numpy.float32)
    add("token_embd.weight", len(tokens), width)
    writer.add_tensor("output_norm.weight", ones)
    output = (chance.standard_normal((len(tokens), width)) * 0.2).astype(numpy.float32)
    output[: len(tokens) - len(words)] = 0  # what it says is readable text
    writer.add_tensor("output.weight", output)
    for layer in range(layers):
        block = f"blk.{layer}."
        writer.add_tensor(f"{block}attn_norm.weight", ones)
        writer.add_tensor(f"{block}ffn_norm.weight", ones)
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            add(f"{block}{name}.weight", width, width)
        add(f"{block}ffn_gate.weight", inner, width)
        add(f"{block}ffn_up.weight", inner, width)
        add(f"{block}ffn_down.weight", width, inner)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def free_port() -> int:
    """A port of the loopback that nobody has right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def llama(folder: Path) -> Iterator[str]:
    """llama.cpp's server with the tiny model; yields its URL."""
    model = folder / "tiny.gguf"
    write_tiny_model(model)
    port = free_port()
    with (folder / "llama.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", _SERVE, str(model), str(port)], stdin=subprocess.PIPE, stdout=log, stderr=log
        )
        try:
            url = f"http://127.0.0.1:{port}"
            _wait(url, process)
            yield url
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.terminate()
            process.wait(20)


def _wait(url: str, process: subprocess.Popen[bytes]) -> None:
    for _ in range(600):
        with contextlib.suppress(OSError):
            if urllib.request.urlopen(f"{url}/health", timeout=5).status == 200:
                return
        assert process.poll() is None, "llama.cpp's server ended at its start"
        time.sleep(0.1)
    raise AssertionError("llama.cpp's server did not come up")


@contextlib.contextmanager
def slowed(url: str, *, first: float = 0.0, each: float = 0.0) -> Iterator[str]:
    """A proxy in front of a server that holds the first bytes of a streamed answer back by ``first`` seconds and every
    event after it by ``each``; yields its URL."""
    host, port = url.removeprefix("http://").split(":")

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with socket.create_connection((host, int(port))) as upstream:
                sender = threading.Thread(target=self._send, args=(upstream,), daemon=True)
                sender.start()
                begun = False
                while data := upstream.recv(1 << 16):
                    for part in re.split(rb"(?=data: )", data):
                        if part.startswith(b"data: "):
                            time.sleep(each if begun else first)
                            begun = True
                        with contextlib.suppress(OSError):
                            self.request.sendall(part)

        def _send(self, upstream: socket.socket) -> None:
            with contextlib.suppress(OSError):
                while data := self.request.recv(1 << 16):
                    upstream.sendall(data)
                upstream.shutdown(socket.SHUT_WR)

    class Proxy(socketserver.ThreadingTCPServer):
        daemon_threads = True

    with Proxy(("127.0.0.1", 0), Handler) as proxy:
        threading.Thread(target=proxy.serve_forever, args=(0.05,), daemon=True).start()
        yield f"http://127.0.0.1:{proxy.server_address[1]}"
        proxy.shutdown()


@contextlib.contextmanager
def double(*faults: str) -> Iterator[str]:
    """A server that answers as a faultless model would, but for the faults named; yields its URL."""

    class Handler(_Double):
        wrong = frozenset(faults)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def serve(address: tuple[str, int], faults: list[str]) -> None:
    """Serve as the double until the process is ended; for a container, where only Python's own library is."""

    class Handler(_Double):
        wrong = frozenset(faults)

    ThreadingHTTPServer(address, Handler).serve_forever()


class _Double(BaseHTTPRequestHandler):
    wrong: frozenset[str] = frozenset()

    def log_message(self, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        if self.path == "/health":
            self._send(503 if "sick" in self.wrong else 200, b"")
        elif self.path == "/v1/models":
            listed = [] if "no-models" in self.wrong else [{"id": "flint", "root": "RecursiveSI/flint"}]
            self._send(200, json.dumps({"data": listed}).encode())
        else:
            self._send(404, b"{}")

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "refuses" in self.wrong:
            self._send(500, b'{"error": "engine core died"}')
        elif "no-json" in self.wrong:
            self._send(200, b"<html>")
        elif body.get("stream"):
            self._stream(self._message(body))
        else:
            message = self._message(body)
            reason = "tool_calls" if message.get("tool_calls") else "stop"
            answer = {"choices": [{"message": message, "finish_reason": reason}]}
            self._send(200, json.dumps(answer).encode())

    def _message(self, body: Json) -> Json:
        talk = body["messages"]
        asked = talk[0]["content"]
        results = [turn for turn in talk if turn["role"] == "tool"]
        may_call = body.get("tools") and (body.get("tool_choice") != "none" or "calls-under-none" in self.wrong)
        calls = self._wanted(asked) if may_call else []
        if "Do not use tools" in asked and "calls-under-none" not in self.wrong:
            calls = []
        if results and "calls-again" not in self.wrong:
            calls = []
        if calls and "no-parser" in self.wrong:
            text = f"<tool_call>{calls[0][0]}<arg_key>city</arg_key></tool_call>"
            return {"role": "assistant", "content": text}
        if calls and "never-calls" not in self.wrong:
            return {"role": "assistant", "content": None, "tool_calls": [self._call(n, c) for n, c in enumerate(calls)]}
        content = "It is 21 degrees." if "Paris" in asked else "391"
        if "tags" in self.wrong:
            content = f"<think>17*23 is 391</think>{content}"
        if "all-reasoning" in self.wrong:
            content = ""
        if "deaf" in self.wrong:
            content = "I cannot know."
        message: Json = {"role": "assistant", "content": content}
        if "no-reasoning" not in self.wrong:
            message["reasoning"] = "17*20 is 340, 17*3 is 51"
        return message

    def _wanted(self, asked: str) -> list[tuple[str, Json]]:
        if "Save exactly" in asked:
            found = re.search(r">>>(.*)<<<", asked, re.DOTALL)
            assert found is not None
            text = found[1]
            return [("save_text", {"text": text.replace("\\", "") if "loses-backslash" in self.wrong else text})]
        if "Book" in asked:
            people: object = "4" if "text-numbers" in self.wrong else 4
            wanted = {"restaurant": "Roma", "people": people, "outdoors": True, "slot": "evening"}
            return [("book_table", {**wanted, "notes": ["birthday", "window"]})]
        if "euros" in asked:
            name = "get_weather" if "wrong-tool" in self.wrong else "convert_currency"
            return [(name, {"amount": 12, "source": "EUR", "target": "USD"})]
        cities = [city for city in ("Paris", "Rome", "Oslo") if city in asked]
        if "one-at-a-time" in self.wrong:
            cities = cities[:1]
        return [("get_weather", {"city": city}) for city in cities]

    def _call(self, number: int, call: tuple[str, Json]) -> Json:
        text = json.dumps(call[1], ensure_ascii=False)
        if "broken-arguments" in self.wrong:
            text = text[:-2]
        return {"id": f"call-{number}", "type": "function", "function": {"name": call[0], "arguments": text}}

    def _stream(self, message: Json) -> None:
        deltas: list[Json] = [{"role": "assistant", "content": ""}]
        deltas += [{"reasoning": part} for part in _parts(message.get("reasoning") or "")]
        deltas += [{"content": part} for part in _parts(message.get("content") or "")]
        for number, call in enumerate(message.get("tool_calls") or ()):
            function = call["function"]
            deltas.append({"tool_calls": [{"index": number, "id": call["id"], "function": {"name": function["name"]}}]})
            for part in _parts(function["arguments"]):
                deltas.append({"tool_calls": [{"index": number, "function": {"arguments": part}}]})
        events = [{"choices": [{"delta": delta}]} for delta in deltas]
        if "no-finish" not in self.wrong:
            events.append({"choices": [{"delta": {}, "finish_reason": "stop"}]})
        self.send_response(200)
        self.end_headers()
        for number, event in enumerate(events):
            if "breaks-off" in self.wrong and number == 2:
                return
            self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
        self.wfile.write(b"data: [DONE]\n\n")

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _parts(text: str) -> list[str]:
    return [text[at : at + 5] for at in range(0, len(text), 5)]
