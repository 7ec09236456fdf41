import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from PIL import Image

from nogs.model.classifier import Model
from nogs.model.cost import cost, multiply_adds
from nogs.model.exported import Exported, accuracy, choose
from nogs.model.exporting import agreement, export_onnx
from nogs.runtime.errors import InputError
from small_runs import GRID, LABELS, about, images, network

EXAMPLE = Path(__file__).parents[2] / "examples" / "classify_onnx.py"


def model():
    return Model(network(), about=about(), fit="pad")


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A network, and its file."""
    folder = tmp_path_factory.mktemp("exported")
    asked = model()
    return asked, export_onnx(asked, folder / "float32.onnx")


def test_file_agrees_with_torch(exported):
    asked, path = exported
    assert agreement(asked, path) < 1e-4
    for image in images(5).numpy():
        answer = asked.classify(image, policy="argmax")
        probabilities, chosen = Exported(path).look(image)
        assert [asked.location(index) for index in chosen] == list(answer.locations)
        assert probabilities == pytest.approx(list(answer.probabilities.values()), abs=1e-4)


def test_shapes_are_fixed_and_the_rest_is_in_the_metadata(exported):
    _, path = exported
    graph = onnx.load(path)
    onnx.checker.check_model(graph, full_check=True)
    for value in (*graph.graph.input, *graph.graph.output):
        assert all(axis.dim_value > 0 for axis in value.type.tensor_type.shape.dim), value.name
    assert [value.name for value in graph.graph.input] == ["state", "patch", "location"]
    assert [value.name for value in graph.graph.output] == ["next_state", "labels", "locations"]
    said = {entry.key: entry.value for entry in graph.metadata_props}
    assert json.loads(said["grid"]) == GRID.to_json()
    assert json.loads(said["labels"]) == list(LABELS)
    assert (said["glimpses"], said["fit"]) == ("3", "pad")
    assert Exported(path).initial_locations.sum() == pytest.approx(1)


def test_file_tells_nothing_of_where_it_was_made(exported):
    content = exported[1].read_bytes()
    for word in (b"site-packages", str(Path.home()).encode(), str(Path(__file__).parents[2]).encode()):
        assert word not in content


def test_int8_multiplies_whole_numbers_and_is_close(exported, tmp_path):
    asked, _ = exported
    small = export_onnx(asked, tmp_path / "int8.onnx", precision="int8")
    kinds = {node.op_type for node in onnx.load(small).graph.node}
    assert {"MatMulInteger", "ConvInteger"} <= kinds
    assert not {"Gemm", "MatMul", "Conv"} & kinds
    assert 1e-6 < agreement(asked, small, steps=3) < 0.3
    assert Exported(small).labels == list(LABELS)


def test_example_runs_without_torch_and_nogs(exported, tmp_path):
    asked, path = exported
    pixels = images(3).numpy()
    names = []
    for n, image in enumerate(pixels):
        names.append(str(tmp_path / f"{n}.png"))
        Image.fromarray(image).save(names[-1])
    blocked = "import sys; sys.modules.update(torch=None, nogs=None, torchvision=None); import runpy; "
    code = f"{blocked}sys.argv[0] = 'example'; runpy.run_path({str(EXAMPLE)!r}, run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", code, str(path), *names], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for line, name, image in zip(done.stdout.splitlines(), names, pixels):
        answer = asked.classify(image, policy="argmax")
        places = [tuple(place) for place in answer.locations]
        assert line == f"{name}: {answer.label}, {answer.probability:.1%}, glimpses at {places}"


@pytest.mark.parametrize("missing", ["model", "picture"])
def test_example_names_what_can_not_be_read(exported, tmp_path, missing):
    words = [str(tmp_path / "no.onnx"), "no.png"] if missing == "model" else [str(exported[1]), "no.png"]
    done = subprocess.run([sys.executable, str(EXAMPLE), *words], capture_output=True, text=True)
    assert done.returncode == 1
    assert f"The {missing} {words[missing == 'picture']} can't be" in done.stderr
    assert "Traceback" not in done.stderr


def test_example_is_short():
    assert EXAMPLE.read_text().count("\n") <= 60


def test_exported_file_runs_where_torch_can_not_be_imported(exported):
    code = (
        "import sys; sys.modules.update(torch=None); import numpy; from nogs.model.exported import Exported;"
        "found = Exported(sys.argv[1]).look(numpy.zeros((24, 24, 3), numpy.uint8)); print(found[0].tolist())"
    )
    done = subprocess.run([sys.executable, "-c", code, str(exported[1])], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    expected = exported[0].classify(np.zeros((24, 24, 3), np.uint8), policy="argmax").probabilities.values()
    assert json.loads(done.stdout) == pytest.approx(list(expected), abs=1e-4)


def test_location_is_drawn_by_its_probability():
    probabilities = np.array([0.25, 0.0, 0.5, 0.25], np.float32)
    assert [choose(probabilities, u) for u in (0, 0.24, 0.25, 0.74, 0.75, 0.999)] == [0, 0, 2, 2, 3, 3]
    assert choose(probabilities, None) == 2


def test_accuracy_counts_right_labels(exported):
    asked, path = exported
    pixels = images(8).numpy()
    said = np.array([LABELS.index(asked.classify(image, policy="argmax").label) for image in pixels])
    rows = np.array([3, 1, 7, 5])
    labels = said[rows]
    labels[0] = (labels[0] + 1) % 3
    assert accuracy(Exported(path), pixels, rows, labels) == 0.75


def test_cost_is_counted_by_hand():
    # glimpse 8: conv1 6 x 6 x 16 from 27, conv2 2 x 2 x 32 from 144, pooled to 32
    step = 36 * 16 * 27 + 4 * 32 * 144 + 32 * 16 + (2 * 8 + 8 * 16) + 2 * 16 * 48 + 16 * 3 + (16 * 8 + 8 * 25)
    found = cost(network())
    assert (found["multiply_adds_per_glimpse"], found["multiply_adds"]) == (step, 3 * step)
    networks = network()
    assert found["parameters"] == sum(p.numel() for p in networks.parameters()) - 17  # the baseline is for training


def test_multiply_adds_of_a_known_layer():
    import torch

    assert multiply_adds(torch.nn.Conv2d(3, 8, 3, padding=1), torch.zeros(1, 3, 10, 10)) == 100 * 8 * 27


def test_what_can_not_be_exported_is_refused(tmp_path):
    with pytest.raises(InputError, match="There is no precision 'int4' to export; choose float32 or int8"):
        export_onnx(model(), tmp_path / "x.onnx", precision="int4")
    assert not (tmp_path / "x.onnx").exists()


def test_other_onnx_file_is_refused(tmp_path):
    value = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1]) for name in "xy"]
    graph = onnx.helper.make_graph([onnx.helper.make_node("Identity", ["x"], ["y"])], "other", value[:1], value[1:])
    opset = [onnx.helper.make_opsetid("", 18)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=10), tmp_path / "other.onnx")
    with pytest.raises(InputError, match=r"other.onnx is not a step that nogs export wrote"):
        Exported(tmp_path / "other.onnx")


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads Linux's count of a process's pages")
def test_steps_take_no_more_memory_than_the_first_ones(exported):
    """Run alone in a process, so that leftovers of other tests don't count."""
    code = """
import sys, numpy
from nogs.model.exported import Exported
def pages():
    return int(open("/proc/self/statm").read().split()[1])
exported = Exported(sys.argv[1])
image = numpy.zeros((24, 24, 3), numpy.uint8)
for _ in range(200):
    exported.look(image)
before = pages()
for _ in range(2000):
    exported.look(image)
print(pages() - before)
"""
    done = subprocess.run([sys.executable, "-c", code, str(exported[1])], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) * 4096 < 2**18
