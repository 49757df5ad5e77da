"""Every option that an image's vLLM knows: asked from its parser, or read in its source."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping

#: Where the options are defined, relative to the package's base; the front end's file moved in 0.31.
SOURCES = (
    "vllm/engine/arg_utils.py",
    "vllm/entrypoints/common/cli_args.py",
    "vllm/entrypoints/openai/cli_args.py",
)

_MARK = "patchkit-options:"

#: A program that prints the options as the parser itself tells them; for ``python -c`` inside the image.
PROBE = f"""
import json
from vllm.utils.argparse_utils import FlexibleArgumentParser
try:
    from vllm.entrypoints.common.cli_args import make_arg_parser
except ImportError:
    from vllm.entrypoints.openai.cli_args import make_arg_parser
parser = make_arg_parser(FlexibleArgumentParser())
print({_MARK!r} + json.dumps(sorted(parser._option_string_actions)))
"""


def from_probe(output: str) -> frozenset[str] | None:
    """The options out of the probe's output, None where it did not come to print them."""
    for line in output.splitlines():
        if line.startswith(_MARK):
            return frozenset(json.loads(line.removeprefix(_MARK)))
    return None


def from_source(files: Mapping[str, bytes]) -> frozenset[str]:
    """The options that the source defines: the names in ``add_argument`` calls, and the fields of the front end's
    argument classes, each of which becomes an option (``BaseFrontendArgs.add_cli_args``)."""
    found: set[str] = set()
    for path, data in files.items():
        try:
            tree = ast.parse(data)
        except (SyntaxError, ValueError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
                found.update(_strings(node))
            elif isinstance(node, ast.ClassDef) and path.endswith("cli_args.py") and node.name.endswith("Args"):
                found.update(_fields(node))
    return frozenset(found)


def _strings(call: ast.Call) -> Iterator[str]:
    for each in call.args:
        if isinstance(each, ast.Constant) and isinstance(each.value, str) and each.value.startswith("-"):
            yield each.value


def _fields(node: ast.ClassDef) -> Iterator[str]:
    for each in node.body:
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            yield "--" + each.target.id.replace("_", "-")
