"""The kinds of panels on the dashboard, in Grafana's own SDK."""

from collections.abc import Mapping

from grafana_foundation_sdk.builders import common, dashboard, heatmap, prometheus, stat, timeseries
from grafana_foundation_sdk.models.common import (
    BigValueTextMode,
    GraphThresholdsStyleMode,
    StackingMode,
)
from grafana_foundation_sdk.models.dashboard import DataSourceRef, Threshold, ThresholdsMode
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

DATASOURCE = DataSourceRef(type_val="prometheus", uid="prometheus")
HEIGHT = 8
AnyPanel = timeseries.Panel | stat.Panel | heatmap.Panel
Queries = Mapping[str, str]
"""Legends and their PromQL."""


def graph(
    title: str,
    unit: str,
    queries: Queries,
    description: str,
    *,
    width: int = 8,
    limit: float | None = None,
    stacked: bool = False,
) -> timeseries.Panel:
    """Lines over time, `width` of 24 wide; red from `limit` on."""
    panel = timeseries.Panel().title(title).description(description).unit(unit).min(0)
    panel.datasource(DATASOURCE).height(HEIGHT).span(width)
    if stacked:
        panel.stacking(common.StackingConfig().mode(StackingMode.NORMAL)).fill_opacity(40)
    if limit is not None:
        steps = [Threshold(value=None, color="green"), Threshold(value=limit, color="red")]
        panel.thresholds(dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps))
        line = common.GraphThresholdsStyleConfig().mode(GraphThresholdsStyleMode.LINE)
        panel.thresholds_style(line)
    _add(panel, queries)
    return panel


def number(title: str, queries: Queries, description: str, *, width: int) -> stat.Panel:
    """What is the case now."""
    panel = stat.Panel().title(title).description(description)
    panel.datasource(DATASOURCE).height(HEIGHT // 2).span(width)
    panel.text_mode(BigValueTextMode.VALUE_AND_NAME)
    _add(panel, queries)
    return panel


def buckets(title: str, query: str, description: str) -> heatmap.Panel:
    """A histogram over time; the query gives its buckets by `le`."""
    panel = heatmap.Panel().title(title).description(description)
    panel.datasource(DATASOURCE).height(HEIGHT).span(8)
    target = prometheus.Dataquery().expr(query).legend_format("{{le}}").ref_id("A")
    return panel.with_target(target.format(PromQueryFormat.HEATMAP))


def _add(panel: timeseries.Panel | stat.Panel, queries: Queries) -> None:
    for index, (legend, query) in enumerate(queries.items()):
        target = prometheus.Dataquery().expr(query).legend_format(legend)
        panel.with_target(target.ref_id("ABCDEF"[index]))
