"""How many cores this process may use. Standard library only: the backend imports it, too."""

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

CGROUPS = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")


def usable_cores(cgroups: Path = CGROUPS, membership: Path = MEMBERSHIP) -> int:
    """The smaller of the CPU affinity (cpusets included) and the cgroups' CPU quotas, at least 1.

    A quota of 2.5 cores counts as 2: a third thread would be throttled half of the time.
    """
    cores = float(len(os.sched_getaffinity(0)))
    for directory in _directories(cgroups, membership):
        cores = min(cores, _quota(directory))
    return max(1, int(cores))


def _directories(cgroups: Path, membership: Path) -> Iterator[Path]:
    """The directories that may limit this process: of its own cgroup and of all those above it.

    In a container without a cgroup namespace the paths are the host's and do not exist here; the
    container's own limits are then at the root.
    """
    try:
        lines = membership.read_text().splitlines()
    except FileNotFoundError:
        lines = []
    # hierarchy:controllers:path; version 2 has no controllers there.
    own = {tuple(line.split(":", 2)[1:]) for line in lines}
    paths = {path for controllers, path in own if controllers == ""}
    paths_v1 = {path for controllers, path in own if "cpu" in controllers.split(",")}
    mounts = ((cgroups, paths), (cgroups / "cpu", paths_v1), (cgroups / "cpu,cpuacct", paths_v1))
    for mount, found in mounts:
        for path in found | {"/"}:
            inside = PurePosixPath(path.lstrip("/"))
            yield from (mount / part for part in (inside, *inside.parents))


def _quota(directory: Path) -> float:
    """The CPU quota in cores of cgroup v2 (cpu.max) or v1 (cpu.cfs_*); infinite for no limit."""
    try:
        if (limit := directory / "cpu.max").exists():
            quota, period = limit.read_text().split()
        else:
            quota = (directory / "cpu.cfs_quota_us").read_text().strip()
            period = (directory / "cpu.cfs_period_us").read_text().strip()
    except FileNotFoundError:
        return float("inf")
    if quota in ("max", "-1"):
        return float("inf")
    return int(quota) / int(period)
