"""The wheel's files in the layout that tritonserver expects, and the child's environment."""

import importlib.util
import os
import shutil
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from text_pipeline.client import proxies
from text_pipeline.errors import TextPipelineError
from text_pipeline.server.places import ServerFolder

OWN_BACKENDS = Path(__file__).parents[1] / "onnx_backend" / "backends"
SUPPORTED_PYTHONS = ((3, 10), (3, 12))
"""First and last Python whose stub in the wheel works with the packages that there are for it.

Of all stubs numpy must be below 2: with numpy 2 every byte of a STRING input is the first one (a
length of 5 becomes 0x05050505), as if their pybind11, older than numpy 2, took its item size for 0;
the stub dies. The stub for 3.13 loads a libpython from the wheel as well, in which `math` and
`datetime` are not built in, as they are in Debian's: numpy cannot be imported. With a link of that
one's name to the system's libpython, first in LD_LIBRARY_PATH, it answers. But numpy 1.26 has no
wheel for 3.13, only sources to compile, and ml_dtypes, for onnx, asks for numpy 2.1 there.
So scripts/create-venv gets a Python 3.11.
"""


@dataclass(frozen=True)
class Installation:
    """Where the server's parts are."""

    binary: Path
    backends: Path
    environment: dict[str, str]


def create(folder: ServerFolder) -> Installation:
    """Copies the backends into `folder`: Triton refuses links that leave a backend's folder.

    `python/` is the wheel's Python backend with the stub of the running Python, `onnxruntime/` the
    Python-based backend of this package, which serves what says `platform: "onnxruntime_onnx"`.
    """
    wheel = _wheel()
    server = wheel / "pytriton" / "tritonserver"
    version, library = running_python()
    backends = folder.path / "backends"
    python = backends / "python"
    python.mkdir(parents=True)
    for source in (
        server / "backends" / "python" / "libtriton_python.so",
        server / "backends" / "python" / "triton_python_backend_utils.py",
        server / "python_backend_stubs" / version / "triton_python_backend_stub",
    ):
        shutil.copy(source, python)
    if not os.access(python / "triton_python_backend_stub", os.X_OK):
        raise TextPipelineError(
            f"{folder.path.parent} is mounted such that no program can be run from it: "
            "set TMPDIR to another folder"
        )
    shutil.copytree(OWN_BACKENDS, backends, dirs_exist_ok=True)
    libraries = [wheel / "nvidia_pytriton.libs", library.parent]
    programs = _python_environment(folder, version)
    return Installation(
        server / "bin" / "tritonserver", backends, _environment(folder, libraries, programs)
    )


def installed(triton: Path, folder: ServerFolder) -> Installation:
    """A Triton with its own bin/, lib/ and backends/, as in its containers' /opt/tritonserver."""
    binary = triton / "bin" / "tritonserver"
    if not os.access(binary, os.X_OK):
        raise TextPipelineError(f"{binary} is not a program: expected an installed Triton there")
    backends = folder.link("backends", triton / "backends")
    environment = _environment(folder, [triton / "lib"], Path(sys.executable).parent)
    return Installation(binary, backends, environment)


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


def _python_environment(folder: ServerFolder, version: str) -> Path:
    """The programs of a virtual environment that imports what this process does, through links.

    The stub's Python takes its packages from where the first python3 on the PATH has them, and
    reads names in .pth files as ASCII: those of an editable installation among them.
    """
    environment = folder.path / "environment"
    programs = environment / "bin"
    packages = environment / "lib" / f"python{version}" / "site-packages"
    for directory in (programs, packages):
        directory.mkdir(parents=True)
    base = folder.link("base", Path(sys.base_prefix))
    (programs / "python3").symlink_to(base / "bin" / "python3")
    (environment / "pyvenv.cfg").write_text(f"home = {base / 'bin'}\n")
    links = [folder.link(f"packages-{n}", path) for n, path in enumerate(_package_folders())]
    (packages / "links.pth").write_text("".join(f"{link}\n" for link in links))
    return programs


def _package_folders() -> list[Path]:
    """What comes behind Python's own library on this process's path: where packages are."""
    own = {Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")}
    own |= {path / "lib-dynload" for path in own}
    paths = [Path(entry) for entry in sys.path]
    first = max((n for n, path in enumerate(paths) if path in own), default=-1) + 1
    return [path for path in paths[first:] if path.is_dir()]


def _environment(folder: ServerFolder, libraries: list[Path], programs: Path) -> dict[str, str]:
    """The child's environment: Triton's libraries, the Python in `programs`, no network."""
    inherited = os.environ.get("LD_LIBRARY_PATH")
    # The dynamic loader takes : and ; for separators and $LIB for a name of its own.
    links = [folder.link(f"libraries-{n}", path) for n, path in enumerate(libraries)]
    return os.environ | {
        "LD_LIBRARY_PATH": ":".join([*map(str, links), *([inherited] if inherited else [])]),
        "PATH": f"{programs}:{os.environ.get('PATH', os.defpath)}",
        "HF_HUB_OFFLINE": "1",
        "ORT_DISABLE_TELEMETRY": "1",
        # Traces for a collector on this machine.
        "no_proxy": proxies.excepted(os.environ),
    }
