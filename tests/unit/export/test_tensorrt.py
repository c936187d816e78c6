"""configs/tensorrt.pbtxt and the body for trtexec, as far as a machine without a GPU can tell."""

import re
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

from deploy.tensorrt import body
from tests import tiny_models
from text_pipeline.contract import CLASSIFIER, TENSOR_OUTPUTS
from text_pipeline.default_model import corpus
from text_pipeline.errors import TextPipelineError
from text_pipeline.export import gate, graph, source
from text_pipeline.export.exporter import quiet_libraries
from text_pipeline.repository import configuration
from text_pipeline.repository.versions import STATIC_REPOSITORY, Repository
from text_pipeline.server.tritonserver import EmbeddedServer

README = Path(body.__file__).with_name("README.md").read_text(encoding="utf-8")
TEXTS = [*corpus.short(6, seed=3), "a", "word " * 60]
TOLERANCE = 0.05  # of fp16, as in test_gpu_graph.py
# TensorRT 11 has neither precisions of builders and layers nor calibration: a network is of its
# graph's types (NVIDIA's migration guide from 10 to 11). ONNX Runtime's pull request 28611, of May
# 2026, leaves out what set them.
GONE_IN_TENSORRT_11 = {
    "precision_mode", "int8_calibration_table_name", "int8_use_native_calibration_table",
    "trt_layer_norm_fp32_fallback",
}  # fmt: skip


def parameters() -> dict[str, str]:
    config = configuration.read(STATIC_REPOSITORY, CLASSIFIER, "tensorrt")
    tensorrt, cuda = config.optimization.execution_accelerators.gpu_execution_accelerator
    assert (tensorrt.name, cuda.name) == ("tensorrt", "cuda")
    return dict(tensorrt.parameters)


def shapes(text: str) -> dict[str, list[int]]:
    """ "name:1x2,other:3", as ONNX Runtime and trtexec have it, -> {"name": [1, 2], ...}."""
    pairs = (entry.split(":") for entry in text.split(","))
    return {name: [int(size) for size in shape.split("x")] for name, shape in pairs}


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> source.Source:
    folder = tmp_path_factory.mktemp("model")
    return source.load(str(tiny_models.bert(folder, num_hidden_layers=1)))


@pytest.fixture(scope="module")
def padded(loaded: source.Source, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("graph") / "model.onnx"
    with quiet_libraries():
        graph.save(graph.build(loaded, "padded", "gpu", "fp16"), path)
    return path


def test_accelerator_items_and_instances_differ_from_the_gpu_configuration() -> None:
    gpu, tensorrt = (
        configuration.read(STATIC_REPOSITORY, CLASSIFIER, name) for name in ("gpu", "tensorrt")
    )
    most = shapes(parameters()["trt_profile_max_shapes"])
    assert [tensorrt.max_batch_size] == most["item_length"]
    assert [group.count for group in tensorrt.instance_group] == [1], "one builds the engines"
    (cuda,) = gpu.optimization.execution_accelerators.gpu_execution_accelerator
    assert cuda == tensorrt.optimization.execution_accelerators.gpu_execution_accelerator[1]
    for config in (gpu, tensorrt):
        for field in ("optimization", "max_batch_size", "instance_group"):
            config.ClearField(field)
    assert tensorrt == gpu


def test_tensorrt_11_takes_every_parameter() -> None:
    assert not parameters().keys() & GONE_IN_TENSORRT_11


def test_profiles_name_the_inputs_of_the_padded_graph(padded: Path) -> None:
    values = parameters()
    least, best, most = (shapes(values[f"trt_profile_{n}_shapes"]) for n in ("min", "opt", "max"))
    model = ir.load(padded)
    ranks = {value.name: len(value.shape) for value in model.graph.inputs}
    ranks |= {o.name: 2 for node in model.graph for o in node.outputs if "padded_" in o.name}
    assert {name: len(shape) for name, shape in best.items()} == ranks
    for name in ranks:
        assert all(a <= b <= c for a, b, c in zip(least[name], best[name], most[name], strict=True))
    assert most["padded_input_ids"] == [64, 512] and most["input_ids"] == [64 * 512]
    assert most["item_length"] == [64]


def test_the_best_shape_is_a_batch_of_the_mixed_workload(reference: source.Source) -> None:
    best = shapes(parameters()["trt_profile_opt_shapes"])
    feed = gate.ragged_feed(reference.tokenizer, corpus.mixed(960), reference.max_tokens)
    batches = feed["item_length"].reshape(-1, 32)
    assert best["item_length"] == [32]
    assert best["input_ids"][0] == pytest.approx(batches.sum(1).mean(), rel=0.01)
    assert best["padded_input_ids"] == [32, np.median(batches.max(1))]


def test_triton_reads_it_and_asks_for_its_gpu(padded: Path, tmp_path: Path) -> None:
    repository = Repository(tmp_path / "models")
    with repository.publish(1) as staged:
        (staged.classifier / "model.onnx").write_bytes(padded.read_bytes())
    # Without a GPU Triton's own words, with one those of the embedded backend.
    refusals = r"unsupported gpu id 0|execution_accelerators are not supported"
    server = EmbeddedServer(repository.path, model_config_name="tensorrt")
    with pytest.raises(TextPipelineError, match=refusals), server:
        pass


def test_the_body_for_trtexec_answers_as_pytorch(loaded: source.Source, tmp_path: Path) -> None:
    tokenizer = loaded.tokenizer
    tokenizer.save_pretrained(tmp_path)
    loaded.model.save_pretrained(tmp_path)
    body.main(str(tmp_path), str(tmp_path / "body.onnx"))
    model = onnx.load(tmp_path / "body.onnx")
    assert {node.domain for node in model.graph.node} == {""}
    assert onnx.TensorProto.STRING not in {o.type.tensor_type.elem_type for o in model.graph.output}
    encoded = tokenizer(TEXTS, padding=True, return_tensors="np")
    session = onnxruntime.InferenceSession(tmp_path / "body.onnx")
    feed = {f"padded_{name}": encoded[name] for name in ("input_ids", "attention_mask",
            "token_type_ids")}  # fmt: skip
    assert_near_pytorch(loaded, session.run(list(TENSOR_OUTPUTS), feed))
    for kind, name in (("min", "minShapes"), ("opt", "optShapes"), ("max", "maxShapes")):
        given = shapes(re.search(rf"--{name}=(\S+)", README)[1])
        profile = shapes(parameters()[f"trt_profile_{kind}_shapes"])
        assert given == {name: profile[name] for name in feed}


@pytest.mark.gpu
def test_an_engine_is_built_and_answers_as_pytorch(
    loaded: source.Source, padded: Path, tmp_path: Path
) -> None:
    names = {"max_workspace_size_bytes": "trt_max_workspace_size"}
    options = {names.get(key, key): value for key, value in parameters().items()}
    options |= {"trt_engine_cache_path": str(tmp_path), "trt_timing_cache_path": str(tmp_path)}
    session = onnxruntime.InferenceSession(
        padded, providers=[("TensorrtExecutionProvider", options), "CUDAExecutionProvider"]
    )
    assert "TensorrtExecutionProvider" in session.get_providers()
    feed = gate.ragged_feed(loaded.tokenizer, TEXTS, loaded.max_tokens)
    assert_near_pytorch(loaded, session.run(list(TENSOR_OUTPUTS), feed))
    assert list(tmp_path.glob("*.engine"))


def assert_near_pytorch(loaded: source.Source, outputs: list[np.ndarray]) -> None:
    for row, expected in enumerate(gate.pytorch_outputs(loaded, TEXTS)):
        for name, found in zip(TENSOR_OUTPUTS, outputs, strict=True):
            limit = TOLERANCE * max(1, np.abs(expected[name]).max())
            assert np.abs(found[row] - expected[name]).max() <= limit
