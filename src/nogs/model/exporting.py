"""One step of a network as an ONNX file: state, patch and location in; state, labels and next location out.

All shapes are fixed, so every step takes the same memory. The file's metadata has what else a program needs: the grid,
the labels, the first state and the first locations.
"""

from __future__ import annotations

import base64
import json
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from nogs import __version__
from nogs.model.classifier import Model
from nogs.model.cost import Step, example_inputs
from nogs.runtime.errors import InputError
from nogs.runtime.files import write_bytes

if TYPE_CHECKING:
    import onnx

FORMAT = "nogs step 1"
INPUTS = ("state", "patch", "location")
OUTPUTS = ("next_state", "labels", "locations")
OPSET = 18
TOLERANCE = 1e-4
"""Largest tolerated difference of a float32 file to torch, in states and probabilities."""


def export_onnx(model: Model, path: Path, *, precision: str = "float32") -> Path:
    """Write the network's step as float32, or with int8 weights and dynamically scaled activations."""
    if precision not in ("float32", "int8"):
        raise InputError(f"There is no precision {precision!r} to export; choose float32 or int8.")
    graph = _graph(model)
    if precision == "int8":
        graph = _quantised(graph)
    _set_metadata(graph, metadata(model, precision))
    write_bytes(path, graph.SerializeToString())
    return path


def metadata(model: Model, precision: str) -> dict[str, str]:
    """The file's metadata, as strings; arrays are base64 of little-endian float32."""
    networks, architecture = model.networks, model.networks.architecture
    with torch.no_grad():
        state = networks.start(1)
        first = torch.softmax(networks.location_logits(state), -1)
    values: dict[str, Any] = {
        "format": FORMAT,
        "nogs": __version__,
        "task": model.about["task"],
        "labels": list(model.labels),
        "grid": architecture.grid.to_json(),
        "glimpses": architecture.glimpses,
        "fit": model.fit,
        "normalisation": "in the graph: a patch goes in as uint8, as it was read",
        "precision": precision,
    }
    arrays = {"initial_state": state[0, 0], "initial_locations": first[0, 0]}
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in values.items()} | {
        name: base64.b64encode(value.cpu().numpy().astype("<f4").tobytes()).decode() for name, value in arrays.items()
    }


def agreement(model: Model, path: Path, *, steps: int = 32, seed: int = 0) -> float:
    """Largest difference between the file and torch over a look at random patches and locations, in any output."""
    from nogs.model.exported import Exported

    exported = Exported(path)
    random = np.random.default_rng(seed)
    step = Step(model.networks)
    state = model.networks.start(1)[0]
    ours, largest = state.numpy(), 0.0
    shape = tuple(example_inputs(model.networks)[1].shape)
    for _ in range(steps):
        patch = random.integers(0, 256, shape, dtype=np.uint8)
        location = random.integers(0, len(model.grid), 1)
        with torch.no_grad():
            expected = step(state, torch.from_numpy(patch), torch.from_numpy(location))
        found = exported.step(ours, patch[0], int(location[0]))
        largest = max(largest, *(float(np.abs(e.numpy() - f).max()) for e, f in zip(expected, found)))
        state, ours = expected[0], found[0]
    return largest


def needs(package: str) -> None:
    """Raise an error if the extra is not installed."""
    from importlib.util import find_spec

    if find_spec(package) is None:
        raise InputError(f"This needs {package}; install it with pip install 'nogs[onnx]'.")


def _graph(model: Model) -> onnx.ModelProto:
    for package in ("onnx", "onnxscript", "onnxruntime"):
        needs(package)
    from onnxscript import optimizer

    networks = model.networks.to("cpu")
    with warnings.catch_warnings(), torch.no_grad():
        warnings.filterwarnings("ignore", category=FutureWarning)  # of the exporter about itself
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        program = torch.onnx.export(
            Step(networks).eval(),
            example_inputs(networks),
            dynamo=True,
            opset_version=OPSET,
            input_names=INPUTS,
            output_names=OUTPUTS,
            external_data=False,
            verbose=False,
        )
        assert program is not None
        # without size limits, so that every weight becomes a constant that can be quantised
        graph = optimizer.optimize(program.model_proto, input_size_limit=1 << 40, output_size_limit=1 << 40)
    _strip(graph)
    return graph


def _quantised(graph: onnx.ModelProto) -> onnx.ModelProto:
    import tempfile

    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    # this mark says that constants are folded, which they are; without it the quantiser logs a warning
    _set_metadata(graph, {"onnx.quant.pre_process": "onnxruntime.quant"})
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "int8.onnx"
        # 7 bits a weight: CPUs without VNNI overflow with 8
        quantize_dynamic(graph, target, weight_type=QuantType.QInt8, per_channel=True, reduce_range=True)
        return onnx.load(target)


def _strip(graph: onnx.ModelProto) -> None:
    """Remove traces of the exporter and its folders, and shapes of values that folding has changed."""
    del graph.graph.value_info[:]
    graph.doc_string = graph.graph.doc_string = ""
    for node in graph.graph.node:
        node.doc_string = ""
        del node.metadata_props[:]
    for part in (graph.graph, graph):
        del part.metadata_props[:]


def _set_metadata(graph: onnx.ModelProto, values: dict[str, str]) -> None:
    del graph.metadata_props[:]
    for name, value in values.items():
        entry = graph.metadata_props.add()
        entry.key, entry.value = name, value
