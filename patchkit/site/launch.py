"""From an image's config to the launch: which interpreter starts what, followed through wrappers and scripts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from patchkit.images.model import Filesystem
from patchkit.site.model import Launch


def launch_of(config: Mapping[str, Any], fs: Filesystem, override: str | None = None) -> Launch:
    """The launch that this config starts.

    Args:
        config: an image's whole config JSON, or only its ``config`` part, or the ``Config`` of a running container:
            Entrypoint, Cmd, Env, WorkingDir and User are read.
        fs: the image's files; nothing is run.
        override: what the person gave with ``--launch``: a command line that stands for entrypoint and command.

    Returns:
        The launch. Where the way is not plain its form is ``unknown`` and ``source`` says why.

    Raises:
        patchkit.errors.BadInput: ``launch-unreadable``, the override is no command line.
    """
    raise NotImplementedError


def service_config(service: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """The image's config as a compose service changes it: entrypoint, command, environment, working_dir, user.

    ``service`` is one service of the effective model (interpolated). A service's entrypoint drops the image's command.
    """
    raise NotImplementedError


def require_known(launch: Launch) -> Launch:
    """The launch itself.

    Raises:
        patchkit.errors.Refused: ``launch-unknown``, with the reason and how to name it.
    """
    raise NotImplementedError
