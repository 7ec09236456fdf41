"""Classify pictures with a file of `nogs export`: numpy, onnxruntime and Pillow, no torch and no nogs.

python classify_onnx.py float32.onnx photo.jpg ... [--sample SEED] [--stop-at 0.95]
"""

import argparse
import base64
import json

import numpy as np
import onnxruntime
from PIL import Image, ImageOps

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("model")
parser.add_argument("pictures", nargs="+")
parser.add_argument("--sample", type=int, metavar="SEED", help="draw locations instead of taking the most probable")
parser.add_argument("--stop-at", type=float, default=2.0, metavar="P", help="stop once a label is so probable")
arguments = parser.parse_args()

options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
try:
    session = onnxruntime.InferenceSession(arguments.model, options, providers=["CPUExecutionProvider"])
    about = session.get_modelmeta().custom_metadata_map
    grid, labels = json.loads(about["grid"]), json.loads(about["labels"])
except Exception as error:  # onnxruntime's have no class in common
    raise SystemExit(f"The model {arguments.model} can't be used ({error}); give a file of nogs export.") from None
side, size = grid["glimpse"], (grid["width"], grid["height"])
first = [np.frombuffer(base64.b64decode(about[f"initial_{name}"]), "<f4")[None] for name in ("state", "locations")]
random = None if arguments.sample is None else np.random.default_rng(arguments.sample)


def read(image, row, column):
    """The sensor: the glimpse at a pixel."""
    return np.asarray(image.crop((column, row, column + side, row + side)))[None]


for name in arguments.pictures:
    try:
        upright = ImageOps.exif_transpose(Image.open(name)).convert("RGB")
    except OSError as error:
        raise SystemExit(f"The picture {name} can't be read ({error}); check its path.") from None
    fit = {"crop": ImageOps.fit, "pad": ImageOps.pad, "stretch": Image.Image.resize}[about["fit"]]
    image = fit(upright, size, Image.Resampling.LANCZOS)
    state, locations, looked = *first, []
    for _ in range(int(about["glimpses"])):
        p = locations[0].astype(float)
        index = int(p.argmax() if random is None else random.choice(len(p), p=p / p.sum()))
        looked.append((grid["rows"][index // len(grid["columns"])], grid["columns"][index % len(grid["columns"])]))
        inputs = {"state": state, "patch": read(image, *looked[-1]), "location": np.array([index])}
        state, said, locations = session.run(["next_state", "labels", "locations"], inputs)
        if said.max() >= arguments.stop_at:
            break
    print(f"{name}: {labels[int(said.argmax())]}, {said.max():.1%}, glimpses at {looked}")
