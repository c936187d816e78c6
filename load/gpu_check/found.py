"""What this machine has of what the check needs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnxruntime

from text_pipeline.server import doctor
from text_pipeline.server.doctor import Finding

DOCKER, GRAPHS = "Docker", "onnxruntime-gpu"
"""The two things a step may need beside a GPU."""
CUDA = "CUDAExecutionProvider"
DRIVER = Path("/dev/nvidiactl")
_FOR_CONTAINERS = ("Docker", "GPU", "Container Toolkit")
_NO_GPU = ("none", "a driver")
"""What `doctor` finds where no GPU can be used."""


@dataclass(frozen=True)
class Found:
    """GPUs, and what is missing."""

    gpus: Sequence[str]
    missing: Mapping[str, str]
    """Of DOCKER and GRAPHS: what stands in the way, and the way out."""

    def describe(self) -> dict[str, str]:
        """Name: value, beside what machine.describe says."""
        providers = ", ".join(onnxruntime.get_available_providers())
        return {
            "GPU": "; ".join(self.gpus),
            "ONNX Runtime": f"{onnxruntime.__version__} with {providers}",
        }

    @property
    def form(self) -> str:
        """Which of the check's two forms can run here, in words."""
        if DOCKER not in self.missing:
            graphs = "not the graphs alone" if GRAPHS in self.missing else "and the graphs alone"
            return f"A: the GPU image under test and load, {graphs}"
        if GRAPHS not in self.missing:
            return "B: the graphs alone, without a server"
        return "none"

    @property
    def problem(self) -> str | None:
        """One line that says why nothing can run, or None."""
        if not self.gpus:
            return (
                "no NVIDIA GPU that can be used here, nothing was run (`text-pipeline doctor` says "
                "what it found, `python -m load gpu --plan` what is needed)"
            )
        if self.form == "none":
            missing = "; ".join(f"{name}: {what}" for name, what in self.missing.items())
            return f"neither containers nor graphs can run on the GPU here: {missing}"
        return None


def look(
    examine: Callable[[], Sequence[Finding]] = doctor.examine,
    providers: Callable[[], Sequence[str]] = onnxruntime.get_available_providers,
    driver: Path = DRIVER,
) -> Found:
    """What there is: by `doctor`, by ONNX Runtime, and by the driver's device file."""
    findings = examine()
    has_cuda = CUDA in providers()
    gpus = [f.found for f in findings if f.subject == "GPU" and f.found not in _NO_GPU]
    if not gpus and has_cuda and driver.exists():
        gpus = ["an NVIDIA GPU (nvidia-smi does not name it)"]
    missing = {}
    problems = [
        f"{f.subject}: {f.problem}" for f in findings if f.subject in _FOR_CONTAINERS and f.problem
    ]
    if problems:
        missing[DOCKER] = "; ".join(problems)
    if not has_cuda:
        missing[GRAPHS] = (
            "the installed onnxruntime has no CUDA: in a copy of the virtual environment "
            "`pip uninstall onnxruntime` and `pip install onnxruntime-gpu[cuda,cudnn]`"
        )
    return Found(gpus, missing)
