"""vLLM's own benchmark client, as its wheel ships it, without torch: the rest of the package is stood in for.

``install`` puts the real files of ``vllm/benchmarks`` and the real argument parser under a folder, and a command
``vllm`` that knows ``bench serve``. Everything else that they import answers to any name; the tokenizer counts letters.
"""

from __future__ import annotations

import fnmatch
import sys
from pathlib import Path

from patchkit import index

VERSION = "0.33.0"
_REAL = (
    "vllm/benchmarks/__init__.py",
    "vllm/benchmarks/serve.py",
    "vllm/benchmarks/lib/*.py",
    "vllm/benchmarks/datasets/__init__.py",
    "vllm/benchmarks/datasets/datasets.py",
    "vllm/benchmarks/datasets/utils.py",
    "vllm/utils/argparse_utils.py",
)

_MAIN = """
import argparse, asyncio, importlib.abc, importlib.machinery, importlib.util, logging, os, sys, types
from unittest.mock import MagicMock

root = sys.argv.pop(1)
sys.path.insert(0, root)


class Anything(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


class Letters:
    vocab_size, all_special_ids, chat_template = 26, [], None

    def num_special_tokens_to_add(self): return 0
    def get_vocab(self): return {chr(97 + each): each for each in range(26)}
    def encode(self, text, **_): return [ord(each) % 26 for each in text]
    def decode(self, tokens, **_): return "".join(chr(97 + each % 26) for each in tokens)
    def __call__(self, text, **_): return types.SimpleNamespace(input_ids=self.encode(text))


class Rest(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        file = os.path.join(root, *name.split("."))
        if not name.startswith("vllm") or os.path.isfile(file + ".py") or os.path.isfile(file + "/__init__.py"):
            return None
        spec = importlib.machinery.ModuleSpec(name, self, is_package=True)
        spec.submodule_search_locations = [file]
        return spec

    def create_module(self, spec): return Anything(spec.name)

    def exec_module(self, module):
        name = module.__name__
        if name == "vllm.logger":
            module.init_logger = lambda name: MagicMock()
        elif name == "vllm.tokenizers":
            module.get_tokenizer = lambda *_, **__: Letters()
        elif name == "vllm.utils.gc_utils":
            module.freeze_gc_heap = lambda: None
        elif name == "vllm.utils.network_utils":
            module.join_host_port = lambda host, port: f"{host}:{port}"
        elif name == "vllm.utils.mistral":
            module.is_mistral_tokenizer = lambda _: False
        elif name == "vllm.utils.import_utils":
            module.PlaceholderModule = lambda *_, **__: MagicMock()


sys.meta_path.insert(0, Rest())
assert sys.argv[1:3] == ["bench", "serve"], sys.argv
from vllm.benchmarks import serve
from vllm.utils.argparse_utils import FlexibleArgumentParser
parser = FlexibleArgumentParser(prog="vllm bench serve")
serve.add_cli_args(parser)
serve.main(parser.parse_args(sys.argv[3:]))
"""


def install(folder: Path, python: str = sys.executable) -> Path:
    """Put the client under ``folder`` and return the folder with the command ``vllm``."""
    package = folder / "package"
    with index.configured().wheel("vllm", VERSION) as wheel:
        for path in [name for pattern in _REAL for name in fnmatch.filter(wheel.record(), pattern)]:
            file = package / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(wheel.read(path))
    (folder / "main.py").write_text(_MAIN)
    commands = folder / "bin"
    commands.mkdir()
    command = commands / "vllm"
    command.write_text(f'#!/bin/sh\nexec "{python}" "{folder}/main.py" "{package}" "$@"\n')
    command.chmod(0o755)
    return commands
