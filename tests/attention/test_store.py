import resource
import time

import pytest
import torch

from nogs.attention.architecture import Architecture
from nogs.attention.network import Networks
from nogs.attention.store import load_network, save_network
from nogs.glimpse import Grid
from nogs.runtime.errors import InputError
from nogs.runtime.tensors import load_tensors, save_tensors

ARCHITECTURE = Architecture(Grid.spaced(image=24, glimpse=8, spacing=4), glimpses=3, labels=4, hidden=10)
ABOUT = {"task": "toy", "method": "ram", "labels": ["a", "b", "c", "ü"], "seed": 3, "attribute": None}


@pytest.fixture
def path(tmp_path):
    parameters = {name: value[1] for name, value in Networks(ARCHITECTURE, seeds=[0, 7]).state_dict().items()}
    save_network(tmp_path / "network.safetensors", parameters, architecture=ARCHITECTURE, about=ABOUT)
    return tmp_path / "network.safetensors"


def test_file_gives_back_the_network_and_what_is_said_about_it(path):
    network, about = load_network(path)
    assert about == ABOUT
    assert network.architecture == ARCHITECTURE
    expected = Networks(ARCHITECTURE, seeds=[7]).state_dict()
    assert network.state_dict().keys() == expected.keys()
    assert all(torch.equal(value, expected[name]) for name, value in network.state_dict().items())


def test_same_network_is_the_same_file(path, tmp_path):
    network, _ = load_network(path)
    parameters = {name: value[0] for name, value in network.state_dict().items()}
    for n in range(5):
        save_network(tmp_path / f"{n}.safetensors", parameters, architecture=ARCHITECTURE, about=ABOUT)
        assert (tmp_path / f"{n}.safetensors").read_bytes() == path.read_bytes()


def test_other_tensors_are_refused(tmp_path):
    save_tensors(tmp_path / "other.safetensors", {"x": torch.zeros(2)}, {"about": "something else"})
    with pytest.raises(InputError, match=r"other.safetensors is not a hard-attention network of this version"):
        load_network(tmp_path / "other.safetensors")


@pytest.mark.parametrize("change", ["missing", "unknown", "misshapen"])
def test_network_that_does_not_fit_its_architecture_is_refused(path, change):
    tensors, metadata = load_tensors(path)
    name = "core_parameters.initial_state"
    if change == "missing":
        del tensors[name]
    else:
        tensors["extra" if change == "unknown" else name] = torch.zeros(3)
    save_tensors(path, tensors, metadata)
    wrong = "extra" if change == "unknown" else name
    with pytest.raises(InputError, match=f"does not fit its own architecture: tensor '{wrong}' is missing, unknown or"):
        load_network(path)


def test_torn_file_is_refused(path):
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InputError, match="is not a whole safetensors file"):
        load_network(path)


def test_weights_that_are_not_finite_are_refused(path):
    tensors, metadata = load_tensors(path)
    tensors["core_parameters.initial_state"][0] = torch.nan
    save_tensors(path, tensors, metadata)
    with pytest.raises(InputError, match=r"holds numbers that are not finite .* train it again"):
        load_network(path)


HOSTILE = {
    "no architecture": (["architecture"], ...),
    "architecture in a string": (["architecture"], "{}"),
    "no hidden": (["architecture", "hidden"], "many"),
    "ten million hidden": (["architecture", "hidden"], 10**7),
    "a million hidden": (["architecture", "hidden"], 2**20),
    "a million labels": (["architecture", "labels"], 2**20),
    "no labels": (["architecture", "labels"], ...),
    "no end of glimpses": (["architecture", "glimpses"], 10**6),
    "unknown embedder": (["architecture", "embedder"], "transformer"),
    "unknown network of the embedder": (["architecture", "embedder_network"], 3),
    "a thousand million layers": (["architecture", "embedder_layers"], 10**9),
    "unknown field": (["architecture", "scales"], 2),
    "no grid": (["architecture", "grid"], ...),
    "another grid": (["architecture", "grid", "rows"], [0, 4]),
    "huge grid": (["architecture", "grid", "columns"], list(range(2**20))),
    "no about": (["about"], ...),
    "labels of numbers": (["about", "labels"], [1, 2, 3, 4]),
    "fewer labels": (["about", "labels"], ["a"]),
    "score in words": (["about", "validation"], "good"),
    "no method": (["about", "method"], ...),
    "no seed": (["about", "seed"], ...),
    "trunk of a number": (["trunk"], 3),
    "trunk elsewhere": (["trunk"], "../../network.safetensors"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_header_of_a_stranger_is_refused_before_anything_is_built(path, case):
    tensors, header = load_tensors(path)
    place, new = HOSTILE[case]
    inner = header if len(place) == 1 else header[place[0]] if len(place) == 2 else header[place[0]][place[1]]
    if new is ...:
        del inner[place[-1]]
    else:
        inner[place[-1]] = new
    save_tensors(path, tensors, header)
    began = time.monotonic()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(InputError) as refused:
        load_network(path)
    assert str(path) in str(refused.value)
    assert time.monotonic() - began < 10
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 << 10, "KiB"


def test_flipped_bit_of_a_weight_is_refused(path):
    content = bytearray(path.read_bytes())
    content[-10] ^= 1
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"network\.safetensors has changed since it was written"):
        load_network(path)
