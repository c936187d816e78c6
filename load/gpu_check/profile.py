"""What ONNX Runtime's profile says of where a graph runs: nodes by provider, copies and waits.

The format is that of onnxruntime/core/common/profiler.cc and core/framework/sequential_executor.cc:
a JSON list of events, each with `cat` (Session, Node, Kernel or Api), `name`, `ts` and `dur` in
microseconds, and `args`. A run is a Session event `model_run`; a node that ran, also one of a
subgraph, is a Node event `<its name>_kernel_time` whose args have `op_name`, `provider` and the
types and shapes of inputs and outputs. Where CUDA is, `dur` is how long the host took: kernels go
on running after that, and have Kernel events of their own where the library was built with CUPTI.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CPU = "CPUExecutionProvider"
TO_HOST, FROM_HOST = "MemcpyToHost", "MemcpyFromHost"
# The nodes that transformer_memcpy.cc (onnxruntime/core/optimizer) puts between devices.
COPIES = (TO_HOST, FROM_HOST)
WAITING = (TO_HOST, "NonZero", "Compress")
"""The host waits for the device to go on: providers/cuda/tensor/nonzero_op.cc and compress.cc copy
the number of their results to pageable host memory, for it is the shape of their output."""
SHAPE_ELEMENTS = 8
"""No tensor of a graph has more dimensions: so few integers are a shape, and ONNX Runtime computes
shapes on the CPU on purpose (GetCpuPreferredNodes), where no device has to be waited for."""
_RAN = "_kernel_time"


@dataclass(frozen=True)
class Node:
    """One node in one run."""

    name: str
    operator: str
    provider: str
    host_us: int
    is_shape: bool
    """Whether it takes and gives nothing but a few integers."""


@dataclass(frozen=True)
class Profile:
    """The last run of a profile."""

    nodes: Sequence[Node]
    run_us: int
    """Of the host, from the call to the results."""
    kernels_us: int
    """Of the device; 0 where the library does not record it."""

    @property
    def by_provider(self) -> Mapping[str, int]:
        """How many nodes each provider ran."""
        return Counter(node.provider for node in self.nodes)

    @property
    def on_cpu(self) -> Sequence[Node]:
        """Nodes that work on the CPU, and not only on shapes."""
        return [node for node in self.nodes if node.provider == CPU and not node.is_shape]

    @property
    def copies(self) -> Mapping[str, tuple[int, int]]:
        """Of COPIES: how many nodes, and their microseconds."""
        return {
            operator: (len(times), sum(times))
            for operator in COPIES
            for times in [[n.host_us for n in self.nodes if n.operator == operator]]
        }

    @property
    def waits(self) -> Sequence[Node]:
        """Nodes of another provider than the CPU's after which the host knows a value."""
        return [n for n in self.nodes if n.operator in WAITING and n.provider != CPU]


def read(path: Path) -> Profile:
    """The last run of a file that a session with enable_profiling wrote; ValueError without one."""
    events = json.loads(path.read_text(encoding="utf-8"))
    runs = [e for e in events if e["cat"] == "Session" and e["name"] == "model_run"]
    if not runs:
        raise ValueError(f"{path.name}: expected the profile of a run, found none")
    last = max(runs, key=lambda event: event["ts"])
    within = [e for e in events if last["ts"] <= e["ts"] <= last["ts"] + last["dur"]]
    return Profile(
        [_node(e) for e in within if e["cat"] == "Node" and e["name"].endswith(_RAN)],
        int(last["dur"]),
        sum(int(event["dur"]) for event in within if event["cat"] == "Kernel"),
    )


def _node(event: Mapping[str, Any]) -> Node:
    arguments = event["args"]
    tensors = [
        (kind, shape)
        for side in ("input_type_shape", "output_type_shape")
        for tensor in arguments.get(side) or []
        for kind, shape in tensor.items()
    ]
    return Node(
        event["name"].removesuffix(_RAN),
        arguments["op_name"],
        arguments.get("provider", ""),
        int(event["dur"]),
        bool(tensors) and all(_is_shape(kind, shape) for kind, shape in tensors),
    )


def _is_shape(kind: str, shape: Sequence[int]) -> bool:
    return (
        kind in ("int32", "int64", "bool")
        and len(shape) <= 1
        and (not shape or shape[0] <= SHAPE_ELEMENTS)
    )


def rows(profile: Profile) -> list[list[str]]:
    """For a table: what, how many nodes, and their milliseconds of the host."""
    groups: dict[str, list[Node]] = {
        provider: [node for node in profile.nodes if node.provider == provider]
        for provider in profile.by_provider
    }
    for title, nodes in (("on the CPU", profile.on_cpu), ("waits for the device", profile.waits)):
        for operator in sorted({node.operator for node in nodes}):
            groups[f"{title}: {operator}"] = [n for n in nodes if n.operator == operator]
    found = [
        [what, str(len(nodes)), _ms(sum(node.host_us for node in nodes))]
        for what, nodes in groups.items()
    ]
    found += [[f"copies: {what}", str(n), _ms(us)] for what, (n, us) in profile.copies.items()]
    found.append(["the whole run", str(len(profile.nodes)), _ms(profile.run_us)])
    if profile.kernels_us:
        found.append(["kernels on the device", "", _ms(profile.kernels_us)])
    return found


def _ms(microseconds: int) -> str:
    return f"{microseconds / 1000:.2f}"
