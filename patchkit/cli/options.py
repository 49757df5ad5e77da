"""Options that several commands share, spelled and explained once."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from patchkit.api import Options
from patchkit.proof.model import LEVELS

F = TypeVar("F", bound=Callable[..., Any])

image = click.option(
    "--image", required=True, metavar="REF", help="The image, as skopeo spells it; a bare name is docker's."
)
json_output = click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of tables.")
output = click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(".patchkit"),
    show_default=True,
    help="Folder of overlay, receipt and mounted files.",
)
mode = click.option("--mode", type=click.Choice(["image", "bind"]), default="image", show_default=True)
shared_caches = click.option(
    "--shared-caches", is_flag=True, help="Leave the cache folders of compiled kernels as they are."
)
require = click.option(
    "--require", multiple=True, type=click.Choice(LEVELS), help="Fail unless this level passed, too (repeatable)."
)
devices = click.option("--device", "devices", multiple=True, metavar="PATH", help="Pass a device through to the proof.")
gpus = click.option("--gpus", metavar="SPEC", help="Pass GPUs through to the proof, as docker spells it.")
catalog = click.option(
    "--catalog", type=click.Path(path_type=Path, file_okay=False), help="Folder with manifests/ and patches/."
)
index = click.option("--index", "url", metavar="URL", help="Another package index than pip's.")
only = click.option("--only", multiple=True, metavar="PATCH", help="Take only this patch of the series (repeatable).")
launch = click.option(
    "--launch", metavar="COMMAND", help="The serving command, where the image does not tell it plainly."
)
platform = click.option("--platform", metavar="OS/ARCH", help="Which image of a multi-platform one.")
no_run = click.option("--no-run", is_flag=True, help="Never execute anything of the image.")
everything = click.option("--all", "everything", is_flag=True, help="Walk the whole image for copies of the package.")


def refuse_beside(option: str, *names: str) -> None:
    """End with a usage error where one of the parameters ``names`` was given, which ``option`` leaves without effect:
    what a person asks for is never dropped in silence.

    Raises:
        click.UsageError: it names all of them.
    """
    context = click.get_current_context()
    given = [
        each.opts[0]
        for each in context.command.params
        if each.name in names and context.get_parameter_source(each.name) is ParameterSource.COMMANDLINE
    ]
    if given:
        raise click.UsageError(f"{', '.join(given)}: without effect beside {option}, leave it out")


def given_again(command: click.Command, *leave: str) -> str:
    """The options of this call that ``command`` takes too, as they are to be given to it, each behind a blank: what is
    proposed next must not do another thing for want of one. Parameters named in ``leave`` are left out."""
    context = click.get_current_context()
    taken = {opt for each in command.params for opt in each.opts}
    words = []
    for each in context.command.params:
        given = context.get_parameter_source(str(each.name)) is ParameterSource.COMMANDLINE
        if not given or each.name in leave or not isinstance(each, click.Option) or each.opts[0] not in taken:
            continue
        value = context.params[str(each.name)]
        for one in value if each.multiple else (value,):
            words += [each.opts[0]] if each.is_flag else [each.opts[0], str(one)]
    return "".join(f" {shlex.quote(word)}" for word in words)


def looking(function: F) -> F:
    """The options that tell what to look at and how; they arrive as ``options``."""

    @catalog
    @click.option("--manifest", metavar="NAME", help="Use this manifest whatever the image is called.")
    @only
    @click.option(
        "--copy", default="", metavar="PATH", help="Look at this copy of the package, not the one that serves."
    )
    @launch
    @platform
    @no_run
    @everything
    @click.option("--plain-http", is_flag=True, help="Talk to the registry without TLS (loopback needs no leave).")
    @click.option("--ca-file", metavar="FILE", help="A further PEM bundle to trust for the registry.")
    @click.option("--auth-file", metavar="FILE", help="Where the registry's credentials are looked up first.")
    def wrapped(
        *args: Any,
        catalog: Path | None,
        manifest: str | None,
        only: tuple[str, ...],
        copy: str,
        launch: str | None,
        platform: str | None,
        no_run: bool,
        everything: bool,
        plain_http: bool,
        ca_file: str | None,
        auth_file: str | None,
        **kwargs: Any,
    ) -> Any:
        given = Options(
            catalog,
            manifest,
            only,
            copy,
            launch,
            platform,
            not no_run,
            everything,
            plain_http,
            ca_file,
            auth_file,
        )
        return function(*args, options=given, **kwargs)

    # click keeps the parameters that decorators below this one have collected on the function.
    wrapped.__click_params__ = [*getattr(function, "__click_params__", []), *wrapped.__click_params__]  # type: ignore[attr-defined]
    wrapped.__doc__ = function.__doc__
    wrapped.__name__ = function.__name__
    return wrapped  # type: ignore[return-value]
