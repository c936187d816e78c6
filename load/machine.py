"""What a report must say about where it was made."""

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path

from text_pipeline.measure import perf_analyzer
from text_pipeline.server.cores import usable_cores

PACKAGES = ("nvidia-pytriton", "onnxruntime", "transformers", "tokenizers", "torch", "numpy")


def describe() -> dict[str, str]:
    """Name: value, as a report shows it."""
    cpu = [
        line.split(":", 1)[1].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "processor": cpu[0] if cpu else platform.processor(),
        "usable cores": str(usable_cores()),
        "memory": f"{memory:.0f} GiB",
        "system": f"{platform.freedesktop_os_release()['PRETTY_NAME']}, Linux {platform.release()}",
        "Python": platform.python_version(),
        **{name: _version(name) for name in PACKAGES},
        "perf_analyzer": perf_analyzer.VERSION,
        "commit": _commit(),
    }


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _commit() -> str:
    root = Path(__file__).parents[1]
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty"],
            cwd=root, capture_output=True, text=True, check=False,
        )  # fmt: skip
    except OSError:  # no git here
        return "unknown"
    return done.stdout.strip() or "unknown"
