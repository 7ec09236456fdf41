"""An exported network against classifiers that read the whole image, on one CPU core in onnxruntime; JSON out.

    python benchmarks/export.py --out results/benchmarks/export.json
    python benchmarks/export.py --run runs/demo --out ...

Without --run the network is the paper's for CelebA-HQ (224 px, five glimpses of 16 px, 2,500 locations) with initial
weights, and MobileNetV2 and DenseNet-121 read 224 px. Neither cost nor latency depends on the weights' values; `nogs
export` measures accuracy. Each file runs in a session with one thread, interleaved with the others. The shortest time
counts: on a shared machine the median of longer runs is disturbed more, which would favour the exported network.
"""

import argparse
import json
import statistics
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import onnxruntime
import torch
import torchvision

from nogs.attention.architecture import Architecture
from nogs.attention.network import Networks
from nogs.glimpse import Grid
from nogs.model.classifier import Model
from nogs.model.cost import cost, multiply_adds
from nogs.model.exported import Exported
from nogs.model.exporting import OPSET, agreement, export_onnx
from nogs.model.loading import load
from nogs.runtime.files import read_json, write_json
from provenance import provenance

WHOLE_IMAGE = ("mobilenet_v2", "densenet121")


def paper_model() -> Model:
    """CelebA-HQ's network, one attribute."""
    networks = Networks(Architecture(Grid.celeba_hq(), 5, 2))
    about = {"task": "celeba-hq", "labels": ["not Smiling", "Smiling"], "attribute": "Smiling"}
    return Model(networks, about=about, name="the paper's for CelebA-HQ, initial weights")


def whole_image(name: str, size: int, folder: Path) -> tuple[Path, dict[str, object]]:
    """A torchvision classifier of the whole image as an ONNX file, and its cost."""
    network = getattr(torchvision.models, name)(weights=None, num_classes=2).eval()
    image = torch.zeros(1, 3, size, size)
    path = folder / f"{name}.onnx"
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # the exporter's own
        program = torch.onnx.export(network, (image,), dynamo=True, opset_version=OPSET, verbose=False)
        program.save(path)
    parameters = sum(p.numel() for p in network.parameters())
    return path, {"parameters": parameters, "multiply_adds": multiply_adds(network, image), "pixels_read_at_most": 1.0}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", help="a run whose network to measure, instead of the paper's with initial weights")
    parser.add_argument("--repeats", type=int, default=100, help="measurements of each, interleaved")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = load(options.run) if options.run else paper_model()
    size = model.grid.height
    random = np.random.default_rng(0)
    image = random.integers(0, 256, (size, size, 3), dtype=np.uint8)
    uniforms = random.random((options.repeats, model.glimpses), dtype=np.float32)
    ways, rows = {}, {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for precision in ("float32", "int8"):
            path = export_onnx(model, folder / f"{precision}.onnx", precision=precision)
            exported = Exported(path)
            share = model.glimpses * model.grid.glimpse**2 / size**2
            rows[f"glimpses, {precision}"] = {
                **cost(model.networks),
                "bytes": path.stat().st_size,
                "pixels_read_at_most": share,
            }
            rows[f"glimpses, {precision}"]["largest_difference_to_torch"] = agreement(model, path)
            ways[f"glimpses, {precision}"] = lambda n, e=exported: e.look(image, uniforms[n])
        for name in WHOLE_IMAGE:
            path, rows[name] = whole_image(name, size, folder)
            rows[name]["bytes"] = sum(file.stat().st_size for file in folder.glob(f"{name}.onnx*"))
            settings = onnxruntime.SessionOptions()
            settings.intra_op_num_threads = settings.inter_op_num_threads = 1
            session = onnxruntime.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])
            pixels = random.random((1, 3, size, size), dtype=np.float32)
            feed = {session.get_inputs()[0].name: pixels}
            ways[name] = lambda n, s=session, f=feed: s.run(None, f)
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        for n in range(options.repeats):
            for name, way in ways.items():
                began = time.perf_counter()
                way(n)
                seconds[name].append(time.perf_counter() - began)
    for name, row in rows.items():
        row["milliseconds_an_image"] = round(1e3 * min(seconds[name]), 4)
        row["milliseconds_an_image_median"] = round(1e3 * statistics.median(seconds[name]), 4)
    result = {
        "benchmark": "exported network against whole images, one CPU core",
        "network": model.name,
        "image_px": size,
        "models": rows,
        "onnxruntime": onnxruntime.__version__,
        "provenance": provenance(),
    }
    if options.run and (Path(options.run) / "export" / "export.json").exists():
        result["accuracy"] = read_json(Path(options.run) / "export" / "export.json")["files"]
    print(json.dumps(result, indent=2))
    if options.out:
        write_json(options.out, result)


if __name__ == "__main__":
    main()
