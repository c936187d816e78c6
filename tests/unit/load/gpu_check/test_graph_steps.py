"""The graphs alone: form B from end to end on CPU, as far as its kernels go."""

import json
from pathlib import Path

import pytest

from load.gpu_check import check, graph_steps, plan
from load.gpu_check.found import CUDA, DOCKER, GRAPHS, Found
from load.gpu_check.graph_steps import Graphs
from load.gpu_check.profile import CPU
from load.gpu_check.record import Record
from tests import tiny_models
from text_pipeline.errors import TextPipelineError


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Graphs:
    model = tiny_models.architecture(tmp_path_factory.mktemp("model"), "bert")
    return Graphs(
        model=str(model), providers=(CPU,), compared=4, sizes=(1, 64), measured=64, seconds=0.05,
        architectures=("bert",),
    )  # fmt: skip


def test_form_b_from_end_to_end(tmp_path: Path, settings: Graphs) -> None:
    """A padded graph runs on CPU as on GPU; the packed one's attention has no kernel there."""
    names = ("graph padded fp32", "graph packed fp32", "architectures in fp32")
    steps = [step for step in plan.steps(settings) if step.name in names]
    said: list[str] = []
    found = Found(["a GPU"], {DOCKER: "no engine"})
    report = check.run(found, steps, {"processor": "some"}, tmp_path, said.append)

    by_name = {outcome.step.name: outcome.record for outcome in report.outcomes}
    padded = by_name["graph padded fp32"]
    assert padded.error is None
    measured = set(graph_steps.figures("padded", "fp32"))
    assert measured <= set(padded.figures)
    assert padded.figures["padded fp32 difference"] < 1e-4
    assert padded.figures["padded fp32 agreement"] == 1
    # Every node is on the CPU, which waits for no device.
    assert padded.figures["padded fp32 nodes on the CPU"] > 50
    assert padded.figures["padded fp32 waits"] == 0
    assert padded.figures["padded fp32 hundredth run ms"] > 0
    assert [point.x for point in padded.points] == [1, 64, 1, 64]
    for name in ("graph packed fp32", "architectures in fp32"):
        assert "PackedMultiHeadAttention" in str(by_name[name].error)

    content = json.loads((tmp_path / "report.json").read_text())
    outcomes = {claim["name"]: claim["outcome"] for claim in content["claims"]}
    assert outcomes["padded fp32: difference"] == "pass"
    assert outcomes["packed fp32: difference"] == outcomes["GPU memory"] == "not run"
    text = (tmp_path / "report.md").read_text()
    assert "Where the padded fp32 graph runs (64 mixed texts)" in text
    assert (tmp_path / "report.png").exists()
    assert len(said) == len(steps) + 2  # a line a step, and one for each that failed


def test_an_architecture_that_cannot_run_does_not_hide_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def report(name: str, *_: object) -> object:
        if name == "mpnet":
            raise RuntimeError("no kernel")
        return graph_steps.gate.GateReport(4, 1.0, {"logits": 0.01}, 0.05, 0.99, "")

    monkeypatch.setattr(graph_steps, "_tiny_report", report)
    record = Record()
    names = Graphs(architectures=("bert", "mpnet", "llama"))
    with pytest.raises(TextPipelineError, match="1 of 3 architectures cannot run: mpnet: Runtime"):
        graph_steps.check_architectures("fp16", names, record, tmp_path)
    assert [row[0] for row in record.tables[0].rows] == ["bert", "mpnet", "llama"]
    # Not all were measured: no figure says that all are right.
    assert not record.figures


def test_a_fall_back_to_the_cpu_is_an_error(tmp_path: Path, monkeypatch) -> None:
    class Session:
        def __init__(self, _, options, providers) -> None:
            assert providers == [(CUDA, {"use_tf32": "0"}), CPU]
            assert options.intra_op_num_threads == 1

        def get_providers(self) -> list[str]:
            return [CPU]

    monkeypatch.setattr(graph_steps.onnxruntime, "preload_dlls", lambda: None)
    monkeypatch.setattr(graph_steps.onnxruntime, "InferenceSession", Session)
    with pytest.raises(TextPipelineError, match="does not run on CUDAExecutionProvider but on CPU"):
        graph_steps.open_session(tmp_path / "model.onnx", "fp32", (CUDA, CPU))


def test_every_graph_step_needs_onnxruntime_for_gpu() -> None:
    needs = {step.needs for step in plan.steps() if step.name.startswith(("graph", "archi"))}
    assert needs == {GRAPHS}
