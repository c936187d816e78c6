"""A real Prometheus with this project's configuration, and promtool (scripts/get-prometheus)."""

import json
import math
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import yaml

from text_pipeline.server import ports

CONFIGURATION = Path(__file__).parents[2] / "deploy" / "monitoring" / "prometheus"
BIN = Path(sys.executable).parent
SCRAPE_INTERVAL_S = 1


def promtool(*arguments: str | Path) -> str:
    """What promtool prints; fails if it does."""
    done = subprocess.run(
        [BIN / "promtool", *arguments], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class Prometheus:
    """Asks the one at `url`."""

    def __init__(self, url: str) -> None:
        self.url = url

    def get(self, path: str, **parameters: str) -> dict:
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"http://{self.url}/api/v1/{path}?{query}", timeout=10) as got:
            return json.load(got)["data"]

    def values(self, query: str) -> list[float]:
        """The numbers that PromQL gives now; those that are none (0 / 0) are left out."""
        found = self.get("query", query=query)["result"]
        return [value for series in found if not math.isnan(value := float(series["value"][1]))]


@contextmanager
def running(folder: Path, targets: Sequence[str], history: str = "") -> Iterator[Prometheus]:
    """One that reads `targets` every second; `history` (OpenMetrics) it has read before."""
    if history:
        (folder / "history").write_text(history)
        promtool("tsdb", "create-blocks-from", "openmetrics", folder / "history", folder / "data")
    config = yaml.safe_load((CONFIGURATION / "prometheus.yml").read_text())
    config["global"] = {
        "scrape_interval": f"{SCRAPE_INTERVAL_S}s",
        "evaluation_interval": f"{SCRAPE_INTERVAL_S}s",
    }
    config["rule_files"] = [str(CONFIGURATION / "rules.yml")]
    config["scrape_configs"][0]["static_configs"][0]["targets"] = list(targets)
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    (port,) = ports.free_ports(1)
    prometheus = Prometheus(f"127.0.0.1:{port}")
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [BIN / "prometheus", f"--config.file={folder}/prometheus.yml",
             f"--storage.tsdb.path={folder}/data", f"--web.listen-address={prometheus.url}"],
            stdout=log, stderr=subprocess.STDOUT,
        )  # fmt: skip
    try:
        deadline = time.monotonic() + 30
        while not _reads(prometheus, len(targets)):
            assert process.poll() is None and time.monotonic() < deadline, (
                folder / "log"
            ).read_text()
            time.sleep(0.1)
        yield prometheus
    finally:
        process.terminate()
        process.wait(30)


def _reads(prometheus: Prometheus, targets: int) -> bool:
    try:
        return prometheus.values("sum(up)") == [targets]
    except OSError:
        return False
