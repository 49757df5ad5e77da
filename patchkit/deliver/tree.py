"""A plain folder as the place that patches are delivered to.

Reading and writing go from the root down, folder by folder, by file descriptors that never follow a symbolic link: a
link that somebody swaps in while we work leads nowhere. Writing is all or nothing: new files are complete, with the
mode and owner of the old ones, before the first old file is replaced; and when anything fails, what was replaced is put
back as it was, the very same inode.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from patchkit.errors import Refused

#: Larger files are no source code.
MAX_FILE = 64 * 1024 * 1024

# O_PATH: to pass through a folder takes no right to list it.
_ROOT = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
_FOLDER = _ROOT | os.O_NOFOLLOW


class Tree:
    """One folder. Paths are relative to it, ``/``-separated, without ``.`` and ``..`` components.

    Raises:
        patchkit.errors.Refused: ``no-such-folder``.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._seen: dict[str, tuple[int, ...] | None] = {}
        if not root.is_dir():
            raise Refused("no-such-folder", "there is no such folder", where=str(root), remedy="give another folder")

    def read(self, path: str) -> bytes | None:
        """The bytes of the regular file at ``path``; None where there is nothing, or a folder.

        Raises:
            patchkit.errors.Refused: ``symlink``: the file or a folder on the way is a symbolic link; ``not-a-file``: a
                device, pipe or socket; ``file-too-large``; ``unreadable``.
        """
        entry = self._lstat(path)
        self._seen[path] = _identity(entry)
        if entry is None or stat.S_ISDIR(entry.st_mode):
            return None
        self._refuse_special(path, entry)
        if entry.st_size > MAX_FILE:
            raise Refused("file-too-large", f"the file is larger than {MAX_FILE} bytes", where=path)
        with self._parent(path) as (folder, name), _told(path):
            handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            with os.fdopen(handle, "rb") as file:
                return file.read()

    def mode(self, path: str) -> int | None:
        """The permission bits of the regular file at ``path``; None where there is none."""
        entry = self._lstat(path)
        return stat.S_IMODE(entry.st_mode) if entry is not None and stat.S_ISREG(entry.st_mode) else None

    def write(
        self, changes: Mapping[str, bytes | None], modes: Mapping[str, str], like: Mapping[str, str], *, dry_run: bool
    ) -> None:
        """Make all of ``changes`` (path -> new bytes, None to remove), or none.

        Args:
            changes: the new bytes. Folders that are missing are made, and folders that end up empty are removed.
            modes: git modes to set, ``100644`` or ``100755``. Otherwise a file keeps its mode; a new one gets 0644.
            like: path of a new file -> the file whose mode and owner it takes (a rename's source).
            dry_run: look whether everything could be written, and write nothing.

        Raises:
            patchkit.errors.Refused: as for ``read``; ``folder-in-the-way``, ``file-in-the-way`` where a file is to
                stand where a folder is, or the other way round; ``changed-meanwhile`` for a file that is not as it was
                when ``read`` read it; ``not-written`` for any failure of the system. Every
                file is as it was.
        """
        edits = [self._edit(path, data, modes, like) for path, data in sorted(changes.items())]
        edits += [self._edit(path, self.read(path), modes, like) for path in sorted(modes) if path not in changes]
        if not dry_run:
            _Writing(self, [edit for edit in edits if edit.data is not None or edit.old is not None]).run()

    def _edit(self, path: str, data: bytes | None, modes: Mapping[str, str], like: Mapping[str, str]) -> _Edit:
        old = self._lstat(path)
        folder = path
        while "/" in folder:
            folder = folder.rpartition("/")[0]
            above = self._lstat(folder)
            if above is not None and not stat.S_ISDIR(above.st_mode):
                raise Refused("file-in-the-way", "the patch needs a folder here, and a file is there", where=folder)
        if old is not None:
            if stat.S_ISDIR(old.st_mode):
                raise Refused("folder-in-the-way", "the patch writes a file here, and a folder is there", where=path)
            self._refuse_special(path, old)
        if path in self._seen and self._seen[path] != _identity(old):
            raise Refused(
                "changed-meanwhile", "somebody else has changed the file since it was read", where=path,
                remedy="run the same command again",
            )  # fmt: skip
        model = old or (self._lstat(like[path]) if path in like else None)
        mode = stat.S_IMODE(model.st_mode) if model is not None else 0o644
        if path in modes:
            executable = modes[path].endswith("755")
            if executable != bool(mode & 0o100):
                mode = mode | ((mode & 0o444) >> 2) if executable else mode & ~0o111
        return _Edit(path, data, old, mode, (model.st_uid, model.st_gid) if model is not None else None)

    def _refuse_special(self, path: str, entry: os.stat_result) -> None:
        if stat.S_ISLNK(entry.st_mode):
            raise Refused(
                "symlink", "the file is a symbolic link, and patches do not write through links", where=path,
                remedy="patch the file that the link leads to",
            )  # fmt: skip
        if not stat.S_ISREG(entry.st_mode):
            raise Refused("not-a-file", "this is a device, pipe or socket, not a file", where=path)

    def _lstat(self, path: str) -> os.stat_result | None:
        try:
            with self._parent(path) as (folder, name):
                return os.stat(name, dir_fd=folder, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise _unreadable(path, error) from error

    @contextmanager
    def _parent(self, path: str) -> Iterator[tuple[int, str]]:
        """The open folder that holds ``path``, and the name in it."""
        with ExitStack() as stack:
            folder, name = self.open_parent(path, stack, made=None)
            yield folder, name

    def open_parent(self, path: str, stack: ExitStack, made: Callable[[int, str], None] | None) -> tuple[int, str]:
        """Open the folder that holds ``path``, step by step from the root. With ``made``, missing folders are made and
        told to it."""
        *folders, name = path.split("/")
        folder = os.open(self.root, _ROOT)
        stack.callback(os.close, folder)
        for depth, part in enumerate(folders, 1):
            try:
                child = os.open(part, _FOLDER, dir_fd=folder)
            except FileNotFoundError:
                if made is None:
                    raise
                os.mkdir(part, 0o755, dir_fd=folder)
                made(folder, part)
                os.chmod(part, 0o755, dir_fd=folder)  # noqa: S103 - readable for every user, whatever the umask
                child = os.open(part, _FOLDER, dir_fd=folder)
            except OSError as error:
                if error.errno in (errno.ELOOP, errno.ENOTDIR) and _is_link(part, folder):
                    raise Refused(
                        "symlink",
                        "a folder on the way to the file is a symbolic link, and patches follow none",
                        where="/".join(folders[:depth]),
                        remedy="give the folder that the link leads to",
                    ) from error
                raise
            stack.callback(os.close, child)
            folder = child
        return folder, name


@dataclass(frozen=True, slots=True)
class _Edit:
    path: str
    data: bytes | None
    old: os.stat_result | None
    mode: int
    owner: tuple[int, int] | None


class _Writing:
    """One run of ``Tree.write``. ``undo`` holds, last first, what brings the tree back."""

    def __init__(self, tree: Tree, edits: list[_Edit]) -> None:
        self.tree = tree
        self.edits = edits
        self.undo: list[Callable[[], None]] = []
        self.leftovers: list[tuple[int, str]] = []
        self.stack = ExitStack()

    def run(self) -> None:
        with self.stack:
            at = ""
            try:
                ready = []
                for edit in self.edits:
                    at = edit.path
                    ready.append(self.prepare(edit))
                for edit, folder, name, new in ready:
                    at = edit.path
                    self.replace(edit, folder, name, new)
            except BaseException as error:
                for step in reversed(self.undo):
                    with suppress(OSError):
                        step()
                if isinstance(error, OSError):
                    raise Refused(
                        "not-written", f"{error.strerror}; every file is as it was", where=at,
                        remedy="mend that, then run the same command again",
                    ) from error  # fmt: skip
                raise
            for folder, name in self.leftovers:
                with suppress(OSError):
                    os.unlink(name, dir_fd=folder)
            for edit in self.edits:
                if edit.data is None:
                    self.remove_empty_folders(edit.path)

    def prepare(self, edit: _Edit) -> tuple[_Edit, int, str, str]:
        """Write the whole new file under a temporary name beside the old one."""
        folder, name = self.tree.open_parent(edit.path, self.stack, made=self.made_folder)
        if edit.data is None:
            return edit, folder, name, ""
        new = f".patchkit-{secrets.token_hex(8)}"
        handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)
        self.undo.append(lambda: os.unlink(new, dir_fd=folder))
        with os.fdopen(handle, "wb") as file:
            file.write(edit.data)
            file.flush()
            mine = os.fstat(file.fileno())
            if edit.owner is not None and edit.owner != (mine.st_uid, mine.st_gid):
                os.fchown(file.fileno(), *edit.owner)
            os.fchmod(file.fileno(), edit.mode)
            os.fsync(file.fileno())
        return edit, folder, name, new

    def replace(self, edit: _Edit, folder: int, name: str, new: str) -> None:
        """Put the new file in the old one's place, keeping the old one beside it until all is done."""
        if edit.old is None:
            os.link(new, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)  # fails where a file is
            self.undo.append(lambda: os.unlink(name, dir_fd=folder))
            self.leftovers.append((folder, new))
            return
        kept = f".patchkit-{secrets.token_hex(8)}"
        self.undo.append(lambda: self.put_back(folder, name, kept))
        self.leftovers.append((folder, kept))
        if edit.data is None:
            os.rename(name, kept, src_dir_fd=folder, dst_dir_fd=folder)
            return
        try:
            os.link(name, kept, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
        except OSError:  # a file system without hard links
            os.rename(name, kept, src_dir_fd=folder, dst_dir_fd=folder)
        os.rename(new, name, src_dir_fd=folder, dst_dir_fd=folder)

    def put_back(self, folder: int, name: str, kept: str) -> None:
        os.rename(kept, name, src_dir_fd=folder, dst_dir_fd=folder)
        with suppress(FileNotFoundError):  # it is still there when the two were links to one file
            os.unlink(kept, dir_fd=folder)

    def made_folder(self, folder: int, name: str) -> None:
        self.undo.append(lambda: os.rmdir(name, dir_fd=folder))

    def remove_empty_folders(self, path: str) -> None:
        """A folder that the patch has emptied goes too, as git and GNU patch do it."""
        while "/" in path:
            path = path.rpartition("/")[0]
            try:
                with ExitStack() as stack:
                    folder, name = self.tree.open_parent(path, stack, made=None)
                    os.rmdir(name, dir_fd=folder)
            except OSError:
                return


def _identity(entry: os.stat_result | None) -> tuple[int, ...] | None:
    """What tells that a file has been changed or replaced."""
    return None if entry is None else (entry.st_ino, entry.st_size, entry.st_mtime_ns, entry.st_ctime_ns)


def _is_link(name: str, folder: int) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except OSError:
        return False


@contextmanager
def _told(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: str, error: OSError) -> Refused:
    return Refused("unreadable", f"cannot be read: {error.strerror}", where=path)
