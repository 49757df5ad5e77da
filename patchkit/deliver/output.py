"""The output folder (``./.patchkit/`` unless told otherwise): overlay, receipt, content-addressed patched files.

Every file is written under a temporary name, flushed and renamed, so a killed run leaves the old state or the new one.
Folders are 0755 and files 0644 whatever the umask: the container's user must be able to read what is mounted.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from patchkit.deliver.receipt import load
from patchkit.errors import PatchkitError, Unreachable

OVERLAY_NAME = "compose.patchkit.yaml"
RECEIPT_NAME = "receipt.json"
EVIDENCE_NAME = "evidence.json"

#: The modification time of a patched file that is mounted. It must differ from the original's, or Python runs the stale
#: .pyc when the sizes are equal too (https://github.com/python/cpython/issues/121376), and must not follow the clock.
#: Spread over a year by the content's hash, so that two patched versions of one file differ as well.
_MTIME_BASE = 978_307_200
_MTIME_SPAN = 365 * 24 * 3600

_HEX = 64  # digits of a sha256


def content_mtime(sha256: str) -> int:
    """The deterministic mtime, in seconds, of a mounted file whose content has this hash (hex)."""
    return _MTIME_BASE + int(sha256[:12], 16) % _MTIME_SPAN


def make_folder(path: Path) -> None:
    """Make the folder and its missing parents, each 0755.

    Raises:
        patchkit.errors.Unreachable: ``output-not-writable``.
    """
    try:
        missing = [folder for folder in (path, *path.parents) if not folder.exists()]
        path.mkdir(parents=True, exist_ok=True)
        for folder in missing:
            folder.chmod(0o755)
    except OSError as error:
        raise _not_writable(path, error) from None


def write_file(path: Path, data: bytes, *, mtime: int | None = None, mode: int = 0o644) -> None:
    """Write the file whole or not at all, with this mode whatever the umask.

    Raises:
        patchkit.errors.Unreachable: ``output-not-writable``; the old file is untouched and no temporary one is left.
    """
    temporary = None
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        temporary = Path(name)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        if mtime is not None:
            os.utime(temporary, (mtime, mtime))
        temporary.replace(path)
    except OSError as error:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        raise _not_writable(path, error) from None


def refuse_unwritable(path: Path) -> None:
    """Raise ``output-not-writable`` where ``write_file`` could not write: before long work, not after it."""
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}."):
            pass
    except OSError as error:
        raise _not_writable(path, error) from None


def store_file(output: Path, name: str, data: bytes, *, executable: bool = False) -> Path:
    """Put a patched file at ``files/<sha256>/<name>`` and return its absolute path. An ``executable`` one is 0755.

    A file that already lies there with these bytes is left alone: a container may have its inode mounted, and a file
    mount keeps the inode (https://github.com/moby/moby/issues/15793).
    """
    sha256 = hashlib.sha256(data).hexdigest()
    path = output.absolute() / "files" / sha256 / name
    mtime = content_mtime(sha256)
    mode = 0o755 if executable else 0o644
    make_folder(path.parent)
    if not (path.is_file() and path.read_bytes() == data and _metadata(path) == (mode, mtime)):
        write_file(path, data, mtime=mtime, mode=mode)
    return path


def stored_files(output: Path) -> list[Path]:
    """The files that ``store_file`` put there, known by their hash: the folder may be a person's own, and hold a
    ``files`` of theirs."""
    return sorted(
        path
        for path in output.glob("files/*/*")
        if len(path.parent.name) == _HEX
        and not path.is_symlink()
        and path.is_file()
        and hashlib.sha256(path.read_bytes()).hexdigest() == path.parent.name
    )


def write_delivery(output: Path, receipt: bytes, others: Mapping[str, bytes], overlay: bytes | None) -> None:
    """Write a finished delivery into the folder, which the caller holds, so that what lies there is of this one alone:
    an overlay or a receipt that an earlier delivery left would start, or prove, what is gone.

    Args:
        output: the folder.
        receipt: of the platform that the overlay is for, or of the only one.
        others: the receipts of further platforms, by platform (``os/arch``).
        overlay: the overlay's text, None where this delivery has none.

    Raises:
        patchkit.errors.Unreachable: ``output-not-writable``.
    """
    written = {output / f"receipt.{platform.replace('/', '-')}.json": data for platform, data in others.items()}
    written[output / RECEIPT_NAME] = receipt
    if overlay is not None:
        written[output / OVERLAY_NAME] = overlay
    for stale in {*platform_receipts(output), output / OVERLAY_NAME} - written.keys():
        try:
            stale.unlink(missing_ok=True)
        except OSError as error:
            raise _not_writable(stale, error) from None
    for place, data in written.items():
        write_file(place, data)


def platform_receipts(output: Path) -> list[Path]:
    """The receipts of a delivery's further platforms, known by what they hold: the folder may be a person's own."""
    return [path for path in sorted(output.glob("receipt.*-*.json")) if not path.is_symlink() and _is_receipt(path)]


@contextlib.contextmanager
def locked(output: Path) -> Iterator[None]:
    """Hold the output folder: of two runs at once the second waits, so overlay and receipt belong to one run."""
    make_folder(output)
    try:
        handle = os.open(output / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise _not_writable(output, error) from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _is_receipt(path: Path) -> bool:
    try:
        load(path)
    except PatchkitError:
        return False
    return True


def _metadata(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_mode & 0o7777, int(status.st_mtime)


def _not_writable(path: Path, error: OSError) -> Unreachable:
    return Unreachable(
        "output-not-writable",
        f"cannot write: {error.strerror or error}",
        where=str(path),
        remedy="give another folder with --output DIR, or make room and run again",
    )
