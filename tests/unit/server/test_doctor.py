"""`text-pipeline doctor` says what would stop a start on this machine, and what to do."""

import importlib.metadata
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner

from text_pipeline.cli import commands
from text_pipeline.server import doctor, installation, ports
from text_pipeline.server.doctor import Finding, examine


def found(subject: str, serve_ports: dict[str, int] | None = None) -> Finding:
    [finding] = [f for f in examine(serve_ports or {}) if f.subject == subject]
    return finding


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Puts shell scripts in the place of all programs: a function of name and script."""
    monkeypatch.setenv("PATH", str(tmp_path))

    def add(name: str, script: str) -> None:
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)

    return add


def test_where_the_suite_runs_nothing_stops_a_start() -> None:
    http, grpc, metrics = map(str, ports.free_ports(3))
    options = ["--http-port", http, "--grpc-port", grpc, "--metrics-port", metrics]
    result = CliRunner().invoke(commands, ["doctor", *options])
    assert result.exit_code == 0, result.output
    subjects = [line[7:25].strip() for line in result.stdout.splitlines()]
    assert subjects[:8] == [
        "Python", "C library", "packages", "ports", "shared memory", "memory", "processor",
        "Docker",
    ]  # fmt: skip
    assert "GPU" in subjects


def test_a_taken_port_stops_and_is_the_exit_code() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        result = CliRunner().invoke(commands, ["doctor", "--grpc-port", port])
    assert result.exit_code == 1
    (line,) = [line for line in result.stdout.splitlines() if f"port {port} on" in line]
    assert line.startswith("stops  ports") and "choose others" in line
    assert result.stderr.startswith("error: the server cannot start here: see ports")


def test_a_python_that_cannot_be_embedded_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation.sysconfig, "get_config_var", lambda _: None)
    finding = found("Python")
    assert finding.stops and "apt-get install libpython3." in str(finding.problem)


@pytest.mark.parametrize(
    ("library", "stops", "problem"),
    [
        (("glibc", "2.31"), True, "needs glibc 2.35"),
        (("", "1.2.4"), True, "needs glibc 2.35"),
        (("glibc", "2.36"), False, "perf_analyzer needs glibc 2.38"),
        (("glibc", "2.41"), False, "None"),
    ],
)
def test_an_old_c_library_stops(
    monkeypatch: pytest.MonkeyPatch, library: tuple[str, str], stops: bool, problem: str
) -> None:
    monkeypatch.setattr(doctor.platform, "libc_ver", lambda: library)
    finding = found("C library")
    assert finding.stops == stops and problem in str(finding.problem)


def test_numpy_2_and_missing_packages_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    version = importlib.metadata.version
    monkeypatch.setattr(
        doctor.importlib.metadata, "version", lambda n: "2.1.0" if n == "numpy" else version(n)
    )
    assert found("packages").stops and "numpy<2" in str(found("packages").problem)
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda _: None)
    assert "text-pipeline[server]" in str(found("packages").problem)


def test_too_little_shared_memory_stops(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(doctor, "SHARED_MEMORY_MB", 2**40)
    assert found("shared memory").stops
    assert "--shm-size" in str(found("shared memory").problem)
    monkeypatch.setattr(doctor, "SHARED_MEMORY", tmp_path / "none")
    assert found("shared memory").stops


def test_a_container_has_the_memory_of_its_limit(tmp_path: Path) -> None:
    assert doctor.cgroup_memory_mb(tmp_path) == float("inf")
    (tmp_path / "memory.max").write_text("max\n")
    assert doctor.cgroup_memory_mb(tmp_path) == float("inf")
    (tmp_path / "memory.max").write_text(f"{300 << 20}\n")
    (tmp_path / "memory.current").write_text(f"{100 << 20}\n")
    assert doctor.cgroup_memory_mb(tmp_path) == 200


@pytest.mark.usefixtures("programs")
def test_without_any_program_containers_and_gpus_are_only_notes() -> None:
    for subject in ("Docker", "GPU"):
        finding = found(subject)
        assert finding.found == "none" and "only needed for" in str(finding.problem)
        assert not finding.stops


def test_docker_is_asked_for_its_parts(programs) -> None:
    programs("docker", "exit 1")
    assert "engine does not answer" in str(found("Docker").problem)
    programs("docker", "case $1 in version) echo 28.0.1;; compose) echo 2.32.4;; *) exit 1; esac")
    assert found("Docker").found == "engine 28.0.1, Compose 2.32.4"
    assert "no Buildx" in str(found("Docker").problem)
    programs(
        "docker",
        "case $1 in version) echo 28.0.1;; compose) echo 2.32.4;; "
        "*) echo github.com/docker/buildx v0.21.1 abc; esac",
    )
    assert found("Docker") == Finding("Docker", "engine 28.0.1, Compose 2.32.4, Buildx 0.21.1")


@pytest.mark.parametrize(
    ("gpu", "problem"),
    [
        ("NVIDIA L4, 550.54.15, 8.9", "needs driver 580: update it"),
        ("Tesla P100, 580.65.06, 6.0", "needs compute capability 7.5"),
        ("NVIDIA H200, 590.44, 9.0", None),
    ],
)
def test_a_gpu_is_compared_with_what_the_image_needs(programs, gpu: str, problem: str) -> None:
    programs("nvidia-smi", f"echo '{gpu}'")
    finding = found("GPU")
    assert gpu.split(",")[0] in finding.found
    assert problem in str(finding.problem) if problem else finding.problem is None
    assert "install the NVIDIA Container Toolkit" in str(found("Container Toolkit").problem)
    programs("nvidia-ctk", "echo NVIDIA Container Toolkit CLI version 1.17.4")
    assert found("Container Toolkit") == Finding("Container Toolkit", "1.17.4")


def test_a_driver_that_does_not_answer_is_told_from_none(programs) -> None:
    programs("nvidia-smi", "echo NVIDIA-SMI has failed; exit 9")
    assert "nvidia-smi does not answer" in str(found("GPU").problem)
