"""The cores a process may use, with cgroup files as Linux writes them."""

from pathlib import Path

import pytest

from text_pipeline.server import cores


class Cgroups:
    """A cgroup file system and the process's place in it."""

    def __init__(self, directory: Path) -> None:
        self.root = directory / "cgroup"
        self.membership = directory / "self"
        self.root.mkdir()

    def write(self, path: str, content: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content + "\n")

    def usable_cores(self) -> int:
        return cores.usable_cores(self.root, self.membership)


@pytest.fixture
def cgroups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cgroups:
    monkeypatch.setattr(cores.os, "sched_getaffinity", lambda _: set(range(8)))
    return Cgroups(tmp_path)


def test_without_any_limit_the_affinity_counts(cgroups: Cgroups) -> None:
    assert cgroups.usable_cores() == 8


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        ("max 100000", 8),
        ("400000 100000", 4),
        ("250000 100000", 2),  # a third thread would be throttled half of the time
        ("50000 100000", 1),
        ("1600000 100000", 8),  # more than the affinity allows
    ],
)
def test_version_2_quota(cgroups: Cgroups, limit: str, expected: int) -> None:
    cgroups.write("cpu.max", limit)
    assert cgroups.usable_cores() == expected


@pytest.mark.parametrize(("quota", "expected"), [("-1", 8), ("300000", 3), ("50000", 1)])
@pytest.mark.parametrize("mount", ["cpu", "cpu,cpuacct"])
def test_version_1_quota(cgroups: Cgroups, mount: str, quota: str, expected: int) -> None:
    cgroups.write(f"{mount}/cpu.cfs_quota_us", quota)
    cgroups.write(f"{mount}/cpu.cfs_period_us", "100000")
    assert cgroups.usable_cores() == expected


@pytest.mark.parametrize("group", ["system.slice", "system.slice/text.service"])
def test_a_limit_of_the_own_group_or_of_one_above_it_counts(cgroups: Cgroups, group: str) -> None:
    cgroups.membership.write_text("0::/system.slice/text.service\n")
    cgroups.write("cpu.max", "max 100000")
    cgroups.write(f"{group}/cpu.max", "300000 100000")
    assert cgroups.usable_cores() == 3


def test_the_own_group_of_version_1_is_that_of_the_cpu_controller(cgroups: Cgroups) -> None:
    cgroups.membership.write_text("7:cpu,cpuacct:/docker/abc\n3:cpuset:/other\n")
    for group, quota in (("docker/abc", "200000"), ("other", "100000")):
        cgroups.write(f"cpu,cpuacct/{group}/cpu.cfs_quota_us", quota)
        cgroups.write(f"cpu,cpuacct/{group}/cpu.cfs_period_us", "100000")
    assert cgroups.usable_cores() == 2


def test_the_containers_root_counts_where_the_own_path_is_the_hosts(cgroups: Cgroups) -> None:
    cgroups.membership.write_text("0::/docker/abc\n")
    cgroups.write("cpu.max", "300000 100000")
    assert cgroups.usable_cores() == 3
