"""Places that are full, small or read-only: real mounts, which nothing else on the machine sees."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]


def run_in(place: Path, options: str, command: list[str]) -> subprocess.CompletedProcess[str]:
    """Runs a command to which `place` is an empty file system, mounted with these options."""
    mount = f'mount -t tmpfs -o {options} none {place} && exec "$@"'
    return subprocess.run(
        ["unshare", "--map-root-user", "--mount", "sh", "-c", mount, "sh", *command],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=120,
        check=False,
    )
