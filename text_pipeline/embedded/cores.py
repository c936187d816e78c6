"""How many cores this process may use. Standard library only: the backend imports it, too."""

import os
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")


def usable_cores(cgroup: Path = CGROUP) -> int:
    """The smaller of the CPU affinity (cpusets included) and the cgroup's CPU quota, at least 1.

    A quota of 2.5 cores counts as 2: a third thread would be throttled half of the time.
    """
    cores = len(os.sched_getaffinity(0))
    if (quota := _quota(cgroup)) is not None:
        cores = min(cores, int(quota))
    return max(1, cores)


def _quota(root: Path) -> float | None:
    """The CPU quota in cores of cgroup v2 (cpu.max) or v1 (cpu.cfs_*); None for no limit."""
    try:
        quota, period = (root / "cpu.max").read_text().split()
    except (FileNotFoundError, ValueError):
        try:
            quota = (root / "cpu" / "cpu.cfs_quota_us").read_text().strip()
            period = (root / "cpu" / "cpu.cfs_period_us").read_text().strip()
        except FileNotFoundError:
            return None
    if quota in ("max", "-1"):
        return None
    return int(quota) / int(period)
