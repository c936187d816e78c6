"""A server where every path holds what shells and an ASCII Python stumble over."""

import os
import subprocess
import sysconfig
import venv
from pathlib import Path

from tests.unit.onnx_backend import ragged_model

ROOT = Path(__file__).parents[3]
NAME = "a b$HOME;&$LIB('\"`é漢\\\n)"
SERVE = """
import sys
from pathlib import Path
import numpy as np
import tritonclient.grpc as triton
from tests.unit.onnx_backend import ragged_model
from tests.unit.server.test_tritonserver import infer, make_server
from text_pipeline.errors import TextPipelineError

repository = Path(sys.argv[1])
with make_server(repository, host="localhost") as server:
    with triton.InferenceServerClient(server.grpc_url) as client:
        print(infer(client, np.ones((1, 3))).as_numpy("total").item())
graph = repository / ragged_model.NAME / "1" / "model.onnx"
graph.unlink()
try:
    make_server(repository).__enter__()
except TextPipelineError as error:
    print(str(graph) in str(error))
"""


def awkward_python(folder: Path) -> Path:
    """A Python that finds this project and its packages in `folder`."""
    environment = folder / "venv"
    venv.create(environment, symlinks=True)
    (folder / "source").symlink_to(ROOT)
    (folder / "packages").symlink_to(sysconfig.get_path("purelib"))
    (packages,) = environment.glob("lib/python3*/site-packages")
    # A name with a newline fits into no .pth file, and Python reads it by the locale.
    links = [folder.parent / "é source", folder.parent / "é packages"]
    links[0].symlink_to(folder / "source")
    links[1].symlink_to(folder / "packages")
    paths = "".join(f"{link}\n" for link in links)
    (packages / "project.pth").write_text(paths, encoding="utf-8")
    return environment / "bin" / "python"


def test_any_path_of_repository_temporary_folder_and_installation_serves(tmp_path: Path) -> None:
    folder = tmp_path / NAME
    temporary = folder / "temporary"
    temporary.mkdir(parents=True)
    repository = ragged_model.write(folder / "models", ragged_model.config())
    done = subprocess.run(
        [awkward_python(folder), "-c", SERVE, repository],
        env={**os.environ, "TMPDIR": str(temporary), "LANG": "C", "LC_ALL": ""},
        capture_output=True, text=True, timeout=120, check=False, cwd="/",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["3.0", "True"]
    assert list(temporary.iterdir()) == [], "nothing is left of servers that stopped"
