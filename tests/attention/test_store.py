import pytest
import torch

from nogs.attention.network import Architecture, Networks
from nogs.attention.store import load_network, save_network
from nogs.glimpse import Grid
from nogs.runtime.errors import InputError
from nogs.runtime.files import load_tensors, save_tensors

ARCHITECTURE = Architecture(Grid.spaced(image=24, glimpse=8, spacing=4), glimpses=3, labels=4, hidden=10)
ABOUT = {"task": "toy", "labels": ["a", "ü"], "seed": 3, "attribute": None}


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
