"""compose.yaml and its settings, with the real engine."""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from text_pipeline.server import ports
from text_pipeline.server.tritonserver import EXIT_TIMEOUT_S

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / ".env.example"
PROFILES = ("gpu", "cpu")


def compose(*arguments: str, **settings: object) -> subprocess.CompletedProcess[str]:
    """`docker compose` with these settings in the environment, as a project of its own."""
    return subprocess.run(
        ["docker", "compose", "--project-name", "text-pipeline-test", *arguments],
        cwd=ROOT, capture_output=True, text=True, timeout=240, check=False,
        env=os.environ | {name: str(value) for name, value in settings.items()},
    )  # fmt: skip


def config(*arguments: str, **settings: object) -> dict:
    done = compose(*arguments, "config", **settings)
    assert done.returncode == 0, done.stderr
    return yaml.safe_load(done.stdout)


def test_gpu_is_the_default_and_a_profile_starts_alone() -> None:
    assert set(config()["services"]) == {"gpu-check", "gpu"}
    assert set(config("--profile", "cpu")["services"]) == {"cpu-check", "cpu"}


@pytest.mark.parametrize("profile", PROFILES)
def test_prometheus_and_grafana_find_each_other_and_the_server(profile: str) -> None:
    services = config("--profile", profile, "--profile", "monitoring")["services"]
    assert set(services) == {f"{profile}-check", profile, "prometheus", "grafana"}
    monitoring = ROOT / "deploy" / "monitoring"
    (scrape,) = yaml.safe_load((monitoring / "prometheus/prometheus.yml").read_text())[
        "scrape_configs"
    ]
    (target,) = scrape["static_configs"][0]["targets"]
    name, port = target.split(":")
    assert name in services[profile]["networks"]["default"]["aliases"]
    assert int(port) in [published["target"] for published in services[profile]["ports"]]
    provisioning = monitoring / "grafana/provisioning"
    (source,) = yaml.safe_load((provisioning / "datasources/prometheus.yml").read_text())[
        "datasources"
    ]
    assert source["url"] == f"http://prometheus:{services['prometheus']['ports'][0]['target']}"
    mounts = {v["target"]: Path(v["source"]) for v in services["grafana"]["volumes"]}
    (provider,) = yaml.safe_load((provisioning / "dashboards/text-pipeline.yml").read_text())[
        "providers"
    ]
    dashboards = mounts[provider["options"]["path"]]
    assert [path.name for path in dashboards.glob("*.json")] == ["text-pipeline.json"]
    assert mounts["/etc/grafana/provisioning"] == provisioning


def test_traces_are_sent_where_that_is_asked() -> None:
    settings = config("--profile", "cpu", TRACE_URL="http://there:4318/v1/traces", TRACE_RATE=7)
    environment = settings["services"]["cpu"]["environment"]
    assert environment["TEXT_PIPELINE_SERVE_TRACE_URL"] == "http://there:4318/v1/traces"
    assert environment["TEXT_PIPELINE_SERVE_TRACE_RATE"] == "7"


def test_the_gpu_server_gets_all_gpus() -> None:
    (device,) = config()["services"]["gpu"]["deploy"]["resources"]["reservations"]["devices"]
    assert device == {"driver": "nvidia", "count": -1, "capabilities": ["gpu"]}


@pytest.mark.parametrize("profile", [*PROFILES, "monitoring"])
def test_the_example_states_the_defaults(profile: str) -> None:
    example = config("--env-file", str(EXAMPLE), "--profile", profile)
    assert example == config("--profile", profile)


def test_the_example_names_every_setting() -> None:
    file = (ROOT / "compose.yaml").read_text()
    used = set(re.findall(r"\$\{(\w+)", file)) | {
        "COMPOSE_PROFILES", "CUDA_VISIBLE_DEVICES", "TEXT_PIPELINE_ADMIN_KEY",
    }  # fmt: skip
    assert set(re.findall(r"^#?(\w+)=", EXAMPLE.read_text(), re.MULTILINE)) == used


@pytest.mark.parametrize("profile", PROFILES)
def test_the_grace_period_is_longer_than_what_stopping_takes(profile: str) -> None:
    grace = config("--profile", profile)["services"][profile]["stop_grace_period"]
    assert int(grace.removesuffix("s")) > EXIT_TIMEOUT_S + 4


def test_gpus_are_restricted_only_where_that_is_asked() -> None:
    def visible(**settings: str) -> str | None:
        return config(**settings)["services"]["gpu"]["environment"]["CUDA_VISIBLE_DEVICES"]

    assert visible() is None
    assert visible(CUDA_VISIBLE_DEVICES="1") == "1"


@pytest.fixture
def free_ports() -> Iterator[dict[str, int]]:
    yield dict(zip(("HTTP_PORT", "GRPC_PORT", "METRICS_PORT"), ports.free_ports(3), strict=True))
    compose("--profile", "cpu", "down", "--timeout", "20")


def test_without_a_model_nothing_starts_and_one_line_says_why(
    tmp_path: Path, free_ports: dict[str, int]
) -> None:
    tmp_path.chmod(0o755)
    done = compose("--profile", "cpu", "up", MODEL_REPOSITORY=tmp_path, **free_ports)
    assert done.returncode != 0
    said = [line for line in (done.stdout + done.stderr).splitlines() if "error:" in line]
    assert len(said) == 1
    assert f"{tmp_path} has no model: run `make model`" in said[0]
    running = compose("--profile", "cpu", "ps", "--quiet", "cpu", **free_ports)
    assert running.stdout == ""


def test_a_repository_that_does_not_exist_is_named(
    tmp_path: Path, free_ports: dict[str, int]
) -> None:
    missing = tmp_path / "no-such-folder"
    done = compose("--profile", "cpu", "up", MODEL_REPOSITORY=missing, **free_ports)
    assert done.returncode != 0
    assert str(missing) in done.stderr
    assert not missing.exists()
