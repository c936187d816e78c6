"""`scripts/create-venv` where the system's Python does not fit, with the real uv."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path

import pytest
import uv

from text_pipeline.server.installation import running_python

SCRIPT = Path(__file__).parents[2] / "scripts" / "create-venv"
TOOLS = ("sh", "cat", "dirname", "env", "id", "mktemp", "rm")
LEFT_OUT = {"site-packages", "test", "idlelib", "tkinter"}

pytestmark = pytest.mark.skipif(
    sys.version_info[:2] != (3, 11), reason="uv's download is made here of a running Python 3.11"
)


@pytest.fixture
def machine(tmp_path: Path) -> dict[str, str]:
    """The environment of a machine whose only Python is 3.13, without uv and Debian's packages."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in TOOLS:
        (programs / name).symlink_to(str(shutil.which(name)))
    # Fails in every use, as in the checks of a Python that does not fit.
    (programs / "python3").write_text("#!/bin/sh\nexit 1\n")
    (programs / "python3").chmod(0o755)
    return {
        "PATH": str(programs), "HOME": str(tmp_path / "home"),
        "UV_PYTHON_DOWNLOADS_JSON_URL": str(tmp_path / "downloads.json"),
        "UV_CACHE_DIR": str(tmp_path / "cache"),
    }  # fmt: skip


def create(folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SCRIPT, folder], env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def offer_python(folder: Path) -> None:
    """Writes uv's list of downloads with one: this Python, laid out as those are."""

    def kept(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        return None if LEFT_OUT.intersection(member.name.split("/")) else member

    _, library = running_python()
    archive = folder / "cpython.tar.gz"
    with tarfile.open(archive, "w:gz", compresslevel=1) as file:
        file.add(os.path.realpath(sys.executable), "python/bin/python3.11")
        file.add(sysconfig.get_path("stdlib"), "python/lib/python3.11", filter=kept)
        file.add(library.resolve(), f"python/lib/{library.name}")
    family = os.uname().machine
    download = {
        "name": "cpython", "arch": {"family": family, "variant": None}, "os": "linux",
        "libc": "gnu", "major": 3, "minor": 11, "patch": sys.version_info[2], "prerelease": "",
        "url": archive.as_uri(), "sha256": None, "variant": None, "build": None,
    }  # fmt: skip
    version = ".".join(map(str, sys.version_info[:3]))
    listed = {f"cpython-{version}-linux-{family}-gnu": download}
    (folder / "downloads.json").write_text(json.dumps(listed))


def test_uv_brings_a_python_where_none_fits(tmp_path: Path, machine: dict[str, str]) -> None:
    offer_python(tmp_path)
    (tmp_path / "bin" / "uv").symlink_to(uv.find_uv_bin())
    done = create(tmp_path / "venv", machine)
    assert done.returncode == 0, done.stderr
    assert "No fit Python found: getting Python 3.11 with uv" in done.stderr
    python = tmp_path / "venv" / "bin" / "python"
    assert python.resolve().is_relative_to(tmp_path / "home")
    asked = [python, "-c", "import sys; print(sys.version_info[:2])"]
    assert subprocess.check_output(asked, text=True) == "(3, 11)\n"
    assert not (tmp_path / "home" / ".local" / "bin" / "python3.11").exists()


def test_without_uv_and_venv_one_line_says_what_to_type(
    tmp_path: Path, machine: dict[str, str]
) -> None:
    done = create(tmp_path / "venv", machine)
    assert done.returncode == 1
    line = done.stderr.splitlines()[-1]
    assert line.startswith("error: no Python 3.10 to 3.12 with venv and its shared library")
    assert line.endswith(": make serve PYTHON=/path/to/python3.11")
    assert not (tmp_path / "venv").exists()


def test_a_python_that_was_named_is_not_replaced(tmp_path: Path, machine: dict[str, str]) -> None:
    done = create(tmp_path / "venv", machine | {"PYTHON": "python3"})
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
