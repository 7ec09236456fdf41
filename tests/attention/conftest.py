import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    """The networks here are so small that threads cost more than they gain."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
