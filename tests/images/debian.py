"""A small Debian root with Python 3.11 and busybox, from Debian's own packages: no image registry is needed.

apt works in a state folder of its own, so nothing of the machine's package lists is used or changed, and no
privilege is needed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from pathlib import Path

from tests.images.tree import MTIME

_PACKAGES = ("python3.11-minimal", "libpython3.11-stdlib", "busybox-static", "tini")
# Needed to install packages, not to run Python: dpkg and what only it needs.
_LEFT_OUT = frozenset(("dpkg", "tar", "libacl1", "libmd0", "libpcre2-8-0", "libselinux1", "libzstd1"))
_APPLETS = (
    "sh ash cat chmod cp cut date dirname echo env false find grep head hostname id kill ln ls mkdir mktemp mount mv "
    "nice nohup ps pwd readlink realpath rm sed sha256sum sleep sort stat tail tar test touch tr true uname wc which "
    "xargs"
)
_PASSWD = """root:x:0:0:root:/root:/bin/sh
daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin
nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
app:x:1000:1000:app:/home/app:/bin/sh
"""
_GROUP = "root:x:0:\ndaemon:x:1:\nnogroup:x:65534:\napp:x:1000:\n"


def write_root(tar: Path, work: Path) -> None:
    """Write the root as a tar to ``tar``, using ``work`` for downloads and unpacking.

    Raises:
        subprocess.CalledProcessError: apt or dpkg-deb failed.
        FileNotFoundError: this is no Debian-like machine.
    """
    for tool in ("apt-get", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise FileNotFoundError(f"{tool}: the fixture images are made from Debian packages")
    root = work / "root"
    shutil.rmtree(root, ignore_errors=True)
    for name in ("bin", "lib", "lib64", "sbin"):  # the merged /usr that Debian has
        (root / "usr" / name).mkdir(parents=True)
        (root / name).symlink_to(f"usr/{name}")
    for package in _download(work):
        content = subprocess.run(["dpkg-deb", "--fsys-tarfile", package], check=True, capture_output=True).stdout
        # Not dpkg-deb -x: it replaces the links of the merged /usr by folders.
        subprocess.run(["tar", "-x", "--keep-directory-symlink", "-C", root], input=content, check=True)
    for useless in (
        "usr/share/doc",
        "usr/share/man",
        "usr/share/locale",
        "usr/share/lintian",
        "usr/lib/x86_64-linux-gnu/gconv",
        "usr/bin/tini-static",
    ):
        subprocess.run(["rm", "-rf", root / useless], check=True)
    (root / "usr/bin/python3").symlink_to("python3.11")
    for applet in _APPLETS.split():
        (root / "usr/bin" / applet).symlink_to("busybox")
    for folder in ("etc", "dev", "proc", "sys", "run", "var/tmp", "root", "tmp", "home/app", "opt"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    (root / "etc/passwd").write_text(_PASSWD)
    (root / "etc/group").write_text(_GROUP)
    _compile(root)
    _write_tar(root, tar)
    shutil.rmtree(root)


def _download(work: Path) -> list[Path]:
    state, archive = work / "apt", work / "debs"
    for folder in ("lists/partial", "archives/partial"):
        (state / folder).mkdir(parents=True, exist_ok=True)
    (state / "status").touch()
    (state / "sources.list").write_text("deb http://deb.debian.org/debian bookworm main\n")
    archive.mkdir(parents=True, exist_ok=True)
    options = {
        "Dir::Etc::sourcelist": state / "sources.list",
        "Dir::Etc::sourceparts": os.devnull,
        "Dir::State": state,
        "Dir::State::status": state / "status",
        "Dir::Cache": state,
        "Acquire::Languages": "none",
        "Acquire::Retries": "3",
        "APT::Architecture": "amd64",
        "APT::Sandbox::User": "",
        "Debug::NoLocking": "1",
    }
    apt = ["apt-get", "-q", *(part for name, value in options.items() for part in ("-o", f"{name}={value}"))]
    subprocess.run([*apt, "update"], check=True, capture_output=True)
    plan = subprocess.run(
        [*apt, "install", "--no-install-recommends", "-y", "--print-uris", *_PACKAGES],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    # 'URI' FILE SIZE HASH
    files = [line.split()[1] for line in plan.splitlines() if line.startswith("'")]
    names = [name for file in files if (name := file.partition("_")[0]) not in _LEFT_OUT]
    subprocess.run([*apt, "download", *names], check=True, capture_output=True, cwd=archive)
    return [next(archive.glob(f"{name}_*.deb")) for name in sorted(names)]


def _compile(root: Path) -> None:
    """Compile the standard library as an installed Debian has it; else each start of Python would. Done by the root's
    own Python, and left out where nobody may run it."""
    for file in (root / "usr/lib/python3.11").rglob("*.py"):
        os.utime(file, (MTIME, MTIME))  # a pyc holds its source's time
    run = ["/usr/bin/python3.11", "-I", "-m", "compileall", "-q", "/usr/lib/python3.11"]
    if os.geteuid() == 0:
        subprocess.run(["chroot", root, *run], check=True)
    elif shutil.which("bwrap"):
        subprocess.run(["bwrap", "--bind", root, "/", "--dev", "/dev", "--unshare-all", *run], check=True)


def _write_tar(root: Path, tar: Path) -> None:
    modes = {"tmp": 0o1777, "var/tmp": 0o1777, "root": 0o700, "home/app": 0o750}
    with tarfile.open(tar, "w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(root.rglob("*")):
            name = str(path.relative_to(root))
            info = archive.gettarinfo(path, name)
            owner = 1000 if name == "home/app" else 0
            info.uid = info.gid = owner
            info.uname = info.gname = ""
            info.mtime = MTIME
            info.mode = modes.get(name, info.mode)
            if info.isreg():
                with path.open("rb") as stream:
                    archive.addfile(info, stream)
            else:
                archive.addfile(info)
