"""Soak: random requests, cancellations and reloads; is every answer right, and does memory stay?

`python -m load.soak --seconds 1200` writes soak.csv and soak.png to load/results/soak and ends with
an error if a reply was wrong, a request failed, or something leaked.
"""

import argparse
import asyncio
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import numpy as np
import psutil
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import serialize_byte_tensor

from text_pipeline.client import control, proxies
from text_pipeline.contract import CLASSIFIER, ENSEMBLE, KEY_VARIABLE, STEPS
from text_pipeline.default_model import build, corpus
from text_pipeline.export.gate import pytorch_outputs
from text_pipeline.export.source import load
from text_pipeline.repository.versions import STATIC_REPOSITORY, Repository
from text_pipeline.server.tritonserver import SHARED_MEMORY, EmbeddedServer

POOL = 240
"""Different texts; their lengths are as random as where they are cut."""
WORKERS = 6
LARGEST_REQUEST = 16
CANCELLED = 0.1
"""Share of the requests that their callers give up after a moment."""
TOLERANCE = 1e-3
GROWTH = 1.1
"""Largest usual value of the last third over that of the middle one: what is above is a leak."""
WARM_UP_S = 10.0
RESULTS = Path(__file__).parent / "results" / "soak"
COLUMNS = ("seconds", "server_mb", "stubs_mb", "processes", "descriptors", "shared_memory")


@dataclass
class Record:
    """What happened; `rows` has COLUMNS."""

    rows: list[tuple[float, ...]] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)
    worst: float = 0.0

    def problems(self) -> list[str]:
        """What must not happen, in words."""
        found = [f"{n} requests {what}" for what, n in self.outcomes.items() if what not in _FINE]
        if self.worst > TOLERANCE:
            found.append(f"logits off by {self.worst:.2g}")
        late = [row for row in self.rows if row[0] > WARM_UP_S]
        third = len(late) // 3
        for column in range(1, len(COLUMNS)):
            before = usual([row[column] for row in late[third : 2 * third]])
            after = usual([row[column] for row in late[2 * third :]])
            if after > GROWTH * before:
                found.append(f"{COLUMNS[column]} grew from {before:.0f} to {after:.0f}")
        return found


def usual(values: Sequence[float]) -> float:
    """The lower quartile: while versions change there is more of everything."""
    return float(np.quantile(values, 0.25))


_FINE = ("answered", "cancelled", "reloads")


def pool(seed: int) -> list[str]:
    """Texts from one word to more than the model takes."""
    chance = random.Random(seed)
    texts = [article.text for article in corpus.articles()[:POOL]]
    return [text[: int(2 ** chance.uniform(2, 12))] for text in texts]


def sample(server: EmbeddedServer) -> tuple[float, ...]:
    """The server's memory in MB, its stubs', and counts, as in COLUMNS from the second on."""
    process = psutil.Process(server.pid)
    stubs = process.children(recursive=True)
    megabytes = []
    for one in (process, *stubs):
        try:
            megabytes.append(one.memory_info().rss / 1e6)
        except psutil.NoSuchProcess:  # of a version that is being unloaded
            megabytes.append(0.0)
    regions = sum(1 for _ in SHARED_MEMORY.glob(f"{server.shared_memory_prefix}*"))
    return megabytes[0], sum(megabytes[1:]), 1 + len(stubs), process.num_fds(), regions


async def work(
    url: str, texts: Sequence[str], logits: np.ndarray, end: float, record: Record
) -> None:
    """One caller: random requests until `end`."""
    chance = random.Random()
    async with grpc.aio.insecure_channel(url, options=proxies.grpc_options(url)) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        while time.monotonic() < end:
            rows = [chance.randrange(len(texts)) for _ in range(chance.randint(1, LARGEST_REQUEST))]
            call = stub.ModelInfer(_request([texts[row] for row in rows]))
            if chance.random() < CANCELLED:
                await asyncio.sleep(chance.uniform(0, 0.1))
                call.cancel()
            try:
                reply = await call
            except asyncio.CancelledError:
                record.outcomes["cancelled"] += 1
                continue
            except grpc.aio.AioRpcError as error:
                record.outcomes[f"failed: {error.code().name} {error.details()}"] += 1
                continue
            found = np.frombuffer(reply.raw_output_contents[0], np.float32)
            difference = float(np.abs(found.reshape(len(rows), -1) - logits[rows]).max())
            record.worst = max(record.worst, difference)
            record.outcomes["answered" if difference <= TOLERANCE else "answered wrongly"] += 1


def _request(texts: Sequence[str]) -> service_pb2.ModelInferRequest:
    request = service_pb2.ModelInferRequest(model_name=ENSEMBLE)
    request.inputs.add(name="text", datatype="BYTES", shape=[len(texts), 1])
    column = np.array([text.encode() for text in texts], dtype=np.object_)
    request.raw_input_contents.append(serialize_byte_tensor(column).item())
    request.outputs.add(name="logits")
    return request


async def soak(repository: Repository, seconds: float, reload_s: float, seed: int) -> Record:
    """Runs a server for `seconds` under load, with a reload every `reload_s`."""
    record = Record()
    texts = pool(seed)
    with tempfile.TemporaryDirectory() as model:
        source = load(str(build.build(Path(model))))
        logits = np.stack([outputs["logits"] for outputs in pytorch_outputs(source, texts)])
    with EmbeddedServer(repository.path, model_control="explicit") as server:
        start = time.monotonic()
        end = start + seconds
        tasks = [
            asyncio.create_task(work(server.grpc_url, texts, logits, end, record))
            for _ in range(WORKERS)
        ]
        next_reload = start + reload_s
        while (now := time.monotonic()) < end:
            record.rows.append((now - start, *sample(server)))
            if now > next_reload:
                # Touched, so that tokenizer and classifier load again, as for a new version.
                for model in STEPS:
                    (repository.path / model / "config.pbtxt").touch()
                version = 3 - (repository.version_in_use() or 1)
                await asyncio.to_thread(control.use, repository, version, http_url=server.http_url)
                record.outcomes["reloads"] += 1
                next_reload = now + reload_s
            await asyncio.sleep(1)
        await asyncio.gather(*tasks)
    return record


def two_versions(folder: Path) -> Repository:
    """The default model twice, both loaded, so that reloads do not add to memory."""
    shutil.copytree(STATIC_REPOSITORY, folder)
    for model in STEPS:
        shutil.copytree(folder / model / "1", folder / model / "2")
    repository = Repository(folder)
    if not (folder / CLASSIFIER / "1" / "model.onnx").is_file():
        raise SystemExit("no default model: run `make model`")
    control.use(repository, 2)
    return repository


def write(record: Record, results: Path) -> None:
    """soak.csv and soak.png."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    results.mkdir(parents=True, exist_ok=True)
    lines = [",".join(COLUMNS), *(",".join(f"{v:.1f}" for v in row) for row in record.rows)]
    (results / "soak.csv").write_text("\n".join(lines) + "\n")
    columns = list(zip(*record.rows, strict=True))
    figure, (memory, counts) = plt.subplots(2, 1, sharex=True, figsize=(8, 6), tight_layout=True)
    for index in (1, 2):
        memory.plot(columns[0], columns[index], label=COLUMNS[index])
    for index in (3, 4, 5):
        counts.plot(columns[0], columns[index], label=COLUMNS[index])
    memory.set(ylabel="resident MB", ylim=(0, None))
    counts.set(xlabel="s", ylim=(0, None))
    memory.legend()
    counts.legend()
    figure.savefig(results / "soak.png", dpi=100)


def main() -> None:
    """The entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=1200)
    parser.add_argument("--reload-seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    os.environ.setdefault(KEY_VARIABLE, "soak")
    with tempfile.TemporaryDirectory() as folder:
        repository = two_versions(Path(folder) / "repository")
        record = asyncio.run(
            soak(repository, options.seconds, options.reload_seconds, options.seed)
        )
    write(record, options.results)
    print(dict(record.outcomes), f"largest difference {record.worst:.2g}")
    if problems := record.problems():
        sys.exit("; ".join(problems))


if __name__ == "__main__":
    main()
