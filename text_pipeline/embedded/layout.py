"""The wheel's files in the layout that tritonserver expects, and the child's environment."""

import importlib.util
import os
import shutil
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from text_pipeline.errors import TextPipelineError

OWN_BACKENDS = Path(__file__).parent / "backends"
SUPPORTED_PYTHONS = ((3, 10), (3, 12))
"""First and last Python whose stub in the wheel works with numpy 1.x."""


@dataclass(frozen=True)
class Layout:
    """Where the server's parts are."""

    binary: Path
    backends: Path
    environment: dict[str, str]


def create(directory: Path) -> Layout:
    """Copies the backends into `directory`: Triton refuses links that leave a backend's folder.

    `python/` is the wheel's Python backend with the stub of the running Python, `onnxruntime/` the
    Python-based backend of this package, which serves what says `platform: "onnxruntime_onnx"`.
    """
    wheel = _wheel()
    server = wheel / "pytriton" / "tritonserver"
    version, library = running_python()
    python = directory / "python"
    python.mkdir(parents=True)
    for source in (
        server / "backends" / "python" / "libtriton_python.so",
        server / "backends" / "python" / "triton_python_backend_utils.py",
        server / "python_backend_stubs" / version / "triton_python_backend_stub",
    ):
        shutil.copy(source, python)
    shutil.copytree(OWN_BACKENDS, directory, dirs_exist_ok=True)
    libraries = [wheel / "nvidia_pytriton.libs", library.parent]
    return Layout(server / "bin" / "tritonserver", directory, _environment(libraries))


def installed(triton: Path) -> Layout:
    """A Triton with its own bin/, lib/ and backends/, as in its containers' /opt/tritonserver."""
    binary = triton / "bin" / "tritonserver"
    if not os.access(binary, os.X_OK):
        raise TextPipelineError(f"{binary} is not a program: expected an installed Triton there")
    return Layout(binary, triton / "backends", _environment([triton / "lib"]))


def running_python() -> tuple[str, Path]:
    """This Python's version, "3.x", and its shared library; raises if the stub cannot embed it."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    if not SUPPORTED_PYTHONS[0] <= sys.version_info[:2] <= SUPPORTED_PYTHONS[1]:
        raise TextPipelineError(
            f"Python {version} cannot run the wheel's Triton server: use Python 3.10 to 3.12"
        )
    name = f"libpython{version}.so.1.0"
    for key in ("LIBDIR", "LIBPL"):
        directory = Path(sysconfig.get_config_var(key) or "/nonexistent")
        for candidate in (
            directory / name,
            directory / (sysconfig.get_config_var("MULTIARCH") or "") / name,
        ):
            if candidate.exists():
                return version, candidate
    raise TextPipelineError(
        f"{name} not found: the server's Python models need this Python's shared library "
        f"(Debian and Ubuntu: apt-get install libpython{version})"
    )


def _wheel() -> Path:
    spec = importlib.util.find_spec("pytriton")
    if spec is None or not spec.submodule_search_locations:
        raise TextPipelineError(
            "the package nvidia-pytriton is not installed: pip install 'text-pipeline[server]'"
        )
    return Path(spec.submodule_search_locations[0]).parent


def _environment(libraries: list[Path]) -> dict[str, str]:
    """The child's environment: the wheel's libraries, this virtual environment, no network."""
    inherited = os.environ.get("LD_LIBRARY_PATH")
    return os.environ | {
        "LD_LIBRARY_PATH": ":".join([*map(str, libraries), *([inherited] if inherited else [])]),
        # The stub's embedded Python takes its packages from the first python3 on the PATH.
        "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}",
        "HF_HUB_OFFLINE": "1",
        "ORT_DISABLE_TELEMETRY": "1",
    }
