"""Draws the dashboard's graphs without Grafana, from the same queries.

`python -m deploy.monitoring.picture http://127.0.0.1:9090 --minutes 5 dashboard.png`
"""

import argparse
import json
import re
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from deploy.monitoring.dashboard import FILE

RATE_INTERVAL = "20s"
POINTS = 150
COLUMNS = 4
Series = tuple[str, list[float], list[float]]
"""Legend, minutes before now, values."""


def draw(url: str, minutes: float) -> Figure:
    """Every graph of the dashboard that has data in the Prometheus at `url`."""
    drawn = [(panel, found) for panel in _graphs() if (found := _series(url, panel, minutes))]
    rows = -(-len(drawn) // COLUMNS)
    figure = Figure(figsize=(COLUMNS * 4.2, rows * 2.6), layout="constrained")
    for index, (panel, series) in enumerate(drawn, start=1):
        _draw(figure.add_subplot(rows, COLUMNS, index), panel, series)
    return figure


def _graphs() -> Iterator[dict[str, Any]]:
    for panel in json.loads(FILE.read_text())["panels"]:
        if panel["type"] == "timeseries":
            yield panel


def _series(url: str, panel: dict[str, Any], minutes: float) -> list[Series]:
    end = time.time()
    found = []
    for target in panel["targets"]:
        parameters = {
            "query": target["expr"].replace("$__rate_interval", RATE_INTERVAL),
            "start": end - 60 * minutes,
            "end": end,
            "step": 60 * minutes / POINTS,
        }
        address = f"{url}/api/v1/query_range?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(address, timeout=10) as answer:
            result = json.load(answer)["data"]["result"]
        for series in result:
            legend = _legend(target["legendFormat"], series["metric"])
            times, values = zip(*series["values"], strict=True)
            found.append((legend, [(t - end) / 60 for t in times], [float(v) for v in values]))
    return found


def _legend(pattern: str, labels: dict[str, str]) -> str:
    return re.sub(r"\{\{(\w+)\}\}", lambda match: labels.get(match[1], ""), pattern)


def _draw(axes: Axes, panel: dict[str, Any], series: Sequence[Series]) -> None:
    defaults = panel["fieldConfig"]["defaults"]
    unit = {"s": "ms", "percentunit": "%"}.get(defaults["unit"], "")
    scale = {"ms": 1000, "%": 100}.get(unit, 1)
    legends = [legend for legend, *_ in series]
    if defaults.get("custom", {}).get("stacking"):
        moments = sorted({moment for _, times, _ in series for moment in times})
        layers = []
        for _, times, values in series:
            # Where nothing was asked there is no mean, and so no number.
            known = {t: v * scale for t, v in zip(times, values, strict=True) if v == v}
            layers.append([known.get(moment, 0) for moment in moments])
        axes.stackplot(moments, layers, labels=legends)
    else:
        for legend, times, values in series:
            axes.plot(times, [value * scale for value in values], label=legend)
    axes.set_title(f"{panel['title']}{f' ({unit})' if unit else ''}", fontsize=10)
    axes.set_ylim(bottom=0)
    axes.tick_params(labelsize=7)
    axes.legend(fontsize=6, loc="upper left")


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("file", type=Path)
    arguments = parser.parse_args()
    draw(arguments.url, arguments.minutes).savefig(arguments.file, dpi=90)


if __name__ == "__main__":
    main()
