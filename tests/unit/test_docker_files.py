"""What several files state says the same in all of them."""

import re
from pathlib import Path

import text_pipeline
from text_pipeline.measure import perf_analyzer

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "docker" / "Dockerfile").read_text()
PROJECT = (ROOT / "pyproject.toml").read_text()


def argument(name: str) -> str:
    """The default of a build argument."""
    found = re.search(rf"^ARG {name}=(.*)$", DOCKERFILE, re.MULTILINE)
    assert found is not None
    return found[1]


def test_the_images_have_the_version_of_the_package() -> None:
    assert f'\nversion = "{argument("VERSION")}"\n' in PROJECT
    assert argument("VERSION") == text_pipeline.__version__


def test_the_images_build_the_package_with_its_own_build_system() -> None:
    requirement = re.search(r'^requires = \["(.*)"\]$', PROJECT, re.MULTILINE)
    assert requirement is not None
    assert f"pip install --target /tools {requirement[1]}\n" in DOCKERFILE


def test_compose_and_dockerfile_take_the_same_triton() -> None:
    compose = (ROOT / "compose.yaml").read_text()
    tag = re.search(r"\$\{TRITON_TAG:-([\d.]+)\}", compose)
    assert tag is not None
    assert tag[1] == argument("TRITON_TAG")
    # Below it, readiness does not show a dead Python stub.
    assert tuple(map(int, tag[1].split("."))) >= (26, 4)


def test_perf_analyzer_is_the_same_with_and_without_a_container() -> None:
    dockerfile = perf_analyzer.DOCKERFILE.read_text()
    assert f"perf-analyzer=={perf_analyzer.VERSION}\n" in dockerfile
    assert f'image.version="{perf_analyzer.VERSION}"' in dockerfile
    assert f'"perf-analyzer=={perf_analyzer.VERSION}"' in PROJECT
    assert f"perf-analyzer=={perf_analyzer.VERSION}\n" in (ROOT / "requirements.lock").read_text()
