"""The offline benchmark writes what it says."""

import csv
from pathlib import Path

from click.testing import CliRunner

from load import graphs


def test_table_csv_and_plot_hold_every_way(tmp_path: Path) -> None:
    sizes = ["--texts", "6", "--repeats", "1", "--batch-size", "4", "--threads", "1"]
    done = CliRunner().invoke(
        graphs.main, [*sizes, "--results", str(tmp_path)], catch_exceptions=False
    )
    assert done.exit_code == 0
    with (tmp_path / "graphs.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {(row["workload"], row["way"]) for row in rows} == {
        (workload, way) for workload in graphs.WORKLOADS for way in graphs.WAYS
    }
    assert all(float(row["tokens_per_s"]) > float(row["texts_per_s"]) > 0 for row in rows)
    table = (tmp_path / "graphs.md").read_text()
    assert table.count("\n| ") == len(graphs.WORKLOADS)
    assert (tmp_path / "graphs.png").read_bytes().startswith(b"\x89PNG")
