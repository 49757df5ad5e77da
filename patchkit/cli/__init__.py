"""The command line: one module a command, loaded only when it is called.

Adding a command takes a module ``cli/<name>.py`` (dashes become underscores) that holds a click command named
``command``, and one line in ``COMMANDS``.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import signal
import sys
from typing import Any, NoReturn

import click

from patchkit import __version__
from patchkit.errors import BadInput, PatchkitError, Refused, Unreachable

COMMANDS = {
    "apply": "Patch an image (or a running container), prove it, write overlay and receipt.",
    "status": "Show what each patch would do to an image, and every copy of the package in it.",
    "resolve": "Show where a package lies in an image, which copy wins, and why.",
    "verify": "Prove, level by level, that an image or container runs the patched files.",
    "compose": "Write the compose overlay of an image's patches.",
    "doctor": "Look for everything that can make a patch a silent no-op.",
    "manifest": "Check manifests, and teach them new image digests.",
    "lint": "Look for what keeps a server from being started as it was written.",
    "bench": "Measure a serving model, and compare with honest verdicts.",
    "smoke": "Ask a server a few things, and tell what each failure means.",
    "up": "Serve a model by its recipe: patch, start, prove, smoke.",
    "down": "Stop what up brought up.",
    "recipe": "Show how to serve a model on known hardware.",
    "patch": "Apply, check and merge unified diffs on a plain folder.",
    "init": "Start a catalog: manifest, README, schema for editors, CI workflow.",
    "edit": "Put pristine files into a work folder to change them there.",
    "save": "Make a patch of the work folder: diff, header, hashes, place in the series.",
    "import": "Make patches of a diff, a mail, a quilt series, full files, or a container.",
    "rebase": "Carry the series over to another image or release by a three-way merge.",
    "list": "List the patches of the catalog in the order in which they apply.",
    "show": "Show one patch: why it is there, its variants, where it is in use.",
    "retire": "Take patches that upstream has out of the series, and keep them with the reason.",
    "lock": "Note the images that were looked at, and compare them with what is.",
    "revert": "Undo a delivery, and show that every file is as it was before.",
    "check-update": "Ask the registry for a new image under a name, and tell what is to do.",
    "receipt": "Print a delivery's receipt, as JSON or as an in-toto statement to sign.",
    "survey": "Show what every patch would do to every release on the package index.",
}

#: Commands whose module cannot be called as they are: keywords, builtins (a loaded module becomes a name of this one),
#: and names that are taken.
_MODULES = {"import": "import_", "list": "list_", "show": "show_patch"}


class _LazyGroup(click.Group):
    """A group whose commands are imported when they run: ``--version`` and ``--help`` cost no more than click."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"patchkit.cli.{_MODULES.get(cmd_name, cmd_name.replace('-', '_'))}")
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            from difflib import get_close_matches

            close = get_close_matches(args[0], COMMANDS, n=1)
            hint = f" Did you mean {close[0]}?" if close else ""
            raise click.UsageError(f"No such command {args[0]!r}.{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="patchkit", message="%(prog)s %(version)s")
def root() -> None:
    """Patch Python packages inside container images, provably."""


def main(argv: list[str] | None = None) -> None:
    """Run the command line and exit: 0 done, 1 refused or not proven, 2 wrong call or input, 3 out of reach."""
    arguments = sys.argv[1:] if argv is None else argv
    # By default Python looks for cycles after every few hundred new objects: an eighth of a short run, for nothing.
    gc.set_threshold(100_000)
    # An exit and not an end: what was created for a moment (containers, temporary files) is taken away on the way out.
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
            signal.signal(number, lambda number, _: sys.exit(128 + number))
    try:
        result: Any = root.main(args=arguments, prog_name="patchkit", standalone_mode=False)
    except click.exceptions.Exit as stop:
        sys.exit(stop.exit_code)
    except click.ClickException as raised:
        error = _where_an_image_goes(raised, arguments)
        called = context.command_path if isinstance(error, click.UsageError) and (context := error.ctx) else "patchkit"
        _answer(BadInput("usage", error.format_message(), remedy=f"{called} --help"), arguments)
        error.show()
        sys.exit(2)
    except click.Abort:
        what = "interrupted; what is written is whole, and only what has a receipt was proven"
        _answer(Refused("interrupted", what, remedy="run again"), arguments)
        click.echo(f"patchkit: {what}", err=True)
        sys.exit(130)
    except BrokenPipeError:
        # The reader of a pipe (head, less) has left; Python would complain once more when it flushes at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(128 + signal.SIGPIPE)
    except PatchkitError as error:
        _end(error, arguments)
    except OSError as error:
        place = str(error.filename) if error.filename else None
        _end(
            Unreachable("io-error", error.strerror or str(error), where=place, remedy="see to it, run again"), arguments
        )
    sys.exit(result if isinstance(result, int) else 0)


def _where_an_image_goes(error: click.ClickException, arguments: list[str]) -> click.ClickException:
    """The error; where an image stands as it is, as other programs take it, with the option that it takes here."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    could = context is not None and any("--image" in each.opts for each in context.command.params)
    if not could or "--image" in arguments or not error.message.startswith("Got unexpected extra argument"):
        return error
    return click.UsageError(f"{error.message.removesuffix('.')}. An image is named with --image.", context)


def _end(error: PatchkitError, arguments: list[str]) -> NoReturn:
    _answer(error, arguments)
    show_error(error)
    sys.exit(error.status)


def _answer(error: PatchkitError, arguments: list[str]) -> None:
    """With ``--json`` a failure is one document on standard output too, unless that is what fails."""
    if "--json" in arguments:
        with contextlib.suppress(OSError):
            click.echo(json.dumps(error_document(error), indent=2, sort_keys=True))


def error_document(error: PatchkitError) -> dict[str, Any]:
    """The ``--json`` form of an error: the common envelope with one finding."""
    from patchkit.cli.render import document

    finding = {
        "id": error.code,
        "severity": "error",
        "what": error.what,
        "where": error.where,
        "details": list(error.details),
        "remedy": error.remedy,
    }
    return document("error", findings=[finding])


def show_error(error: PatchkitError) -> None:
    """Tell a person what happened, where, and what to do next."""
    from patchkit.cli.render import clean

    click.echo(clean(f"error: {error}"), err=True)
    for detail in error.details:
        click.echo(clean(f"  {detail}"), err=True)
    if error.remedy:
        click.echo(clean(f"next: {error.remedy}"), err=True)
