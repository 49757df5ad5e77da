"""Every place where a package lies in an image, what each one is, and which launches would import it."""

from __future__ import annotations

from collections.abc import Sequence

from patchkit.images.model import Filesystem
from patchkit.site.model import Copy, Launch


def find_copies(
    fs: Filesystem, launch: Launch, package: str, *, decoys: Sequence[str] = (), everything: bool = False
) -> tuple[Copy, ...]:
    """All copies, the winner first, then by path.

    Looked for on the search path of every kind of launch, below the working folder, in site- and dist-packages, in
    ``/workspace /opt /app /root /home`` to depth 4, and at the known ``decoys``; ``everything`` walks the whole image.
    """
    raise NotImplementedError
