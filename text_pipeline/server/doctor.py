"""Whether this machine can run the server, and what would stop it.

Only the standard library and what is at hand without any extra: a machine may lack all the rest.
"""

import importlib.metadata
import importlib.util
import platform
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from text_pipeline.contract import PORTS
from text_pipeline.errors import TextPipelineError
from text_pipeline.server import installation, ports
from text_pipeline.server.cores import usable_cores
from text_pipeline.server.tritonserver import SHARED_MEMORY

GLIBC = (2, 35)
"""Of the wheel nvidia-pytriton: manylinux_2_35."""
PERF_ANALYZER_GLIBC = (2, 38)
SHARED_MEMORY_MB = 16
"""Triton takes one for every Python process, and more for large requests."""
MEMORY_MB = 1500
"""The server with the default model and batches of 64 long texts."""
IMAGE_DRIVER = 580
"""tritonserver:26.08 has CUDA 13.4, and CUDA 13.x needs this driver (NVIDIA's CUDA Compatibility,
table 1)."""
IMAGE_COMPUTE_CAPABILITY = (7, 5)
"""Turing: release notes of tritonserver:26.08."""
COMMAND_TIMEOUT_S = 20


@dataclass(frozen=True)
class Finding:
    """What a check found."""

    subject: str
    found: str
    problem: str | None = None
    """What it prevents, and the way out."""
    stops: bool = False
    """Whether `text-pipeline serve` cannot start on CPU."""


def examine(serve_ports: Mapping[str, int] = PORTS) -> list[Finding]:
    """Every check, in the order in which a start would meet it."""
    return [
        _python(),
        _glibc(),
        _packages(),
        _ports(serve_ports),
        _shared_memory(),
        _memory(),
        _processor(),
        _docker(),
        *_gpus(),
    ]


def _python() -> Finding:
    found = platform.python_version()
    try:
        installation.running_python()
    except TextPipelineError as error:
        return Finding("Python", found, str(error), stops=True)
    return Finding("Python", f"{found} with its shared library")


def _glibc() -> Finding:
    library, version = platform.libc_ver()
    found = f"{library or 'another C library'} {version}".strip()
    numbers = _numbers(version) if library == "glibc" else (0,)
    if numbers < GLIBC:
        problem = "the server's wheel needs glibc 2.35 (Debian 12, Ubuntu 22.04): use a container"
        return Finding("C library", found, problem, stops=True)
    if numbers < PERF_ANALYZER_GLIBC:
        problem = "perf_analyzer needs glibc 2.38: load runs take it from a container"
        return Finding("C library", found, problem)
    return Finding("C library", found)


def _packages() -> Finding:
    numpy = importlib.metadata.version("numpy")
    missing = [
        name
        for name, module in (("nvidia-pytriton", "pytriton"), ("onnxruntime", "onnxruntime"),
                             ("transformers", "transformers"))
        if importlib.util.find_spec(module) is None
    ]  # fmt: skip
    if missing:
        problem = f"no {', '.join(missing)}: pip install 'text-pipeline[server]'"
        return Finding("packages", f"numpy {numpy}", problem, stops=True)
    triton = importlib.metadata.version("nvidia-pytriton")
    found = f"nvidia-pytriton {triton}, numpy {numpy}"
    if _numbers(numpy) >= (2,):
        problem = "the wheel's Triton reads texts wrongly with numpy 2: pip install 'numpy<2'"
        return Finding("packages", found, problem, stops=True)
    return Finding("packages", found)


def _ports(serve_ports: Mapping[str, int]) -> Finding:
    found = ", ".join(f"{name} {port}" for name, port in serve_ports.items())
    problem = ports.problem(serve_ports)
    return Finding("ports", found, problem, stops=problem is not None)


def _shared_memory() -> Finding:
    if not SHARED_MEMORY.is_dir():
        return Finding("shared memory", "none", f"mount a tmpfs at {SHARED_MEMORY}", stops=True)
    free = shutil.disk_usage(SHARED_MEMORY).free / 2**20
    found = f"{free:.0f} MB free in {SHARED_MEMORY}"
    if free < SHARED_MEMORY_MB:
        problem = (
            f"{SHARED_MEMORY_MB} MB are needed: mount -o remount,size=256m {SHARED_MEMORY}; in a "
            "container --shm-size 256m"
        )
        return Finding("shared memory", found, problem, stops=True)
    return Finding("shared memory", found)


def _memory() -> Finding:
    lines = Path("/proc/meminfo").read_text().splitlines()
    values = {name: int(rest.split()[0]) for name, rest in (line.split(":") for line in lines)}
    free = min(values["MemAvailable"] / 2**10, cgroup_memory_mb())
    found = f"{free:.0f} MB free"
    if free < MEMORY_MB:
        problem = f"the default model needs about {MEMORY_MB} MB with full batches: end other work"
        return Finding("memory", found, problem)
    return Finding("memory", found)


def cgroup_memory_mb(group: Path = Path("/sys/fs/cgroup")) -> float:
    """What a container may still take; infinite without a limit."""
    limit, used = group / "memory.max", group / "memory.current"
    if not limit.is_file() or limit.read_text().strip() == "max":
        return float("inf")
    return (int(limit.read_text()) - int(used.read_text())) / 2**20


def _processor(cpuinfo: Path = Path("/proc/cpuinfo")) -> Finding:
    flags = cpuinfo.read_text()
    found = f"{usable_cores()} usable cores"
    if not re.search(r"\bavx512_vnni\b|\bavx_vnni\b", flags):
        problem = "no VNNI instructions: --precision int8 gains less"
        return Finding("processor", found, problem)
    return Finding("processor", f"{found}, VNNI for int8")


def _docker() -> Finding:
    engine = _output("docker", "version", "--format", "{{.Server.Version}}")
    if engine is None:
        has_client = shutil.which("docker") is not None
        problem = (
            "the engine does not answer: start it, or join its group (usermod -aG docker $USER)"
            if has_client
            else "not installed: only needed for containers"
        )
        return Finding("Docker", "a client" if has_client else "none", problem)
    plugins = {
        "Compose": _output("docker", "compose", "version", "--short"),
        "Buildx": _output("docker", "buildx", "version"),
    }
    found = [f"engine {engine}", *(f"{n} {_version(text)}" for n, text in plugins.items() if text)]
    missing = [name for name, text in plugins.items() if text is None]
    lacks = f"no {' and '.join(missing)}: install Docker's plugins" if missing else None
    return Finding("Docker", ", ".join(found), lacks)


def _gpus() -> list[Finding]:
    listed = _output(
        "nvidia-smi", "--query-gpu=name,driver_version,compute_cap", "--format=csv,noheader"
    )
    if not listed and shutil.which("nvidia-smi"):
        silent = f"nvidia-smi does not answer: load the driver, {IMAGE_DRIVER} or later"
        return [Finding("GPU", "a driver", silent)]
    if not listed:
        return [Finding("GPU", "none", "only needed for `docker compose up` with the GPU image")]
    findings = []
    for line in listed.splitlines():
        name, driver, capability = (field.strip() for field in line.rsplit(",", 2))
        problem: str | None = None
        if _numbers(driver) < (IMAGE_DRIVER,):
            problem = (
                f"CUDA 13 of the GPU image needs driver {IMAGE_DRIVER}: update it; a data-center "
                "GPU may do with an older one (NVIDIA's CUDA forward compatibility)"
            )
        elif _numbers(capability) < IMAGE_COMPUTE_CAPABILITY:
            problem = "too old for the GPU image, which needs compute capability 7.5 (Turing)"
        findings.append(
            Finding("GPU", f"{name}, driver {driver}, compute capability {capability}", problem)
        )
    toolkit = _output("nvidia-ctk", "--version")
    if toolkit is None:
        lacks = "Docker cannot hand on the GPU: install the NVIDIA Container Toolkit"
        return [*findings, Finding("Container Toolkit", "none", lacks)]
    return [*findings, Finding("Container Toolkit", _version(toolkit))]


def _output(*command: str) -> str | None:
    """What a program prints; None if it is not there or fails."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None


def _version(text: str) -> str:
    """The first version number in a text."""
    found = re.search(r"\d+(\.\d+)+", text)
    return found[0] if found else text.splitlines()[0]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version))
