import subprocess
import sys
import threading

import pytest
import torch

from nogs import __version__
from nogs.runtime.device import Precision, one_thread, pick_device, pick_precision, versions
from nogs.runtime.errors import InputError

CPU = torch.device("cpu")


def test_blocks_of_one_thread_in_several_threads_restore_the_number():
    before, begun, ended, found = torch.get_num_threads(), threading.Event(), threading.Event(), {}

    def first():
        with one_thread():
            begun.set()
            assert ended.wait(10)
        found["first"] = torch.get_num_threads()

    def second():
        with one_thread(), one_thread():
            found["inside"] = torch.get_num_threads()
        found["second"] = torch.get_num_threads()

    def later():
        found["later"] = torch.get_num_threads()

    try:
        torch.set_num_threads(2)
        (one := threading.Thread(target=first)).start()
        assert begun.wait(10)
        for work in (second, later):
            (other := threading.Thread(target=work)).start()
            other.join()
            ended.set()
            one.join()
        assert found == {"first": 2, "inside": 1, "second": 2, "later": 2}
    finally:
        torch.set_num_threads(before)


def test_auto_takes_the_first_device_that_is_there(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert pick_device() == CPU
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert pick_device("auto") == torch.device("mps")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert pick_device("auto") == torch.device("cuda")
    assert pick_device("cuda:1") == torch.device("cuda:1")


@pytest.mark.parametrize("name", ["gpu", "cpu:0", "cuda:", "cuda:x", "cuda:-1", ""])
def test_unknown_device_is_refused(name):
    with pytest.raises(InputError, match=f"^There is no device '{name}'; choose auto, cpu, cuda, cuda:N or mps\\.$"):
        pick_device(name)


def test_absent_device_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(
        InputError, match=r"^Device 'cuda:1' was asked for, but this machine shows 1 CUDA devices; choose"
    ):
        pick_device("cuda:1")
    with pytest.raises(InputError, match=r"^Device 'mps' was asked for, but this machine has none; choose auto or cpu"):
        pick_device("mps")


def test_automatic_precision_is_bfloat16_where_the_device_has_it(monkeypatch):
    assert pick_precision("auto", CPU).name == "float32"
    for capability, expected in (((9, 0), "bfloat16"), ((7, 5), "float32")):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _, found=capability: found)
        assert pick_precision("auto", torch.device("cuda")).name == expected


def test_impossible_precision_is_refused():
    with pytest.raises(InputError, match=r"^There is no precision 'half'; choose auto, float32, tf32 or bfloat16"):
        pick_precision("half", CPU)
    with pytest.raises(InputError, match=r"^Precision 'tf32' needs a CUDA device .* not cpu; choose float32"):
        pick_precision("tf32", CPU)


@pytest.mark.parametrize(("name", "dtype"), [("float32", torch.float32), ("bfloat16", torch.bfloat16)])
def test_active_precision_rounds_products_and_is_restored(name, dtype):
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    precision = pick_precision(name, CPU)
    with precision.active():
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == precision.dtype == dtype
        assert torch.backends.cudnn.allow_tf32 == (name != "float32")
        assert torch.get_float32_matmul_precision() == ("highest" if name == "float32" else "high")
    assert (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32) == before
    assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32


def test_precision_is_restored_after_a_failure():
    with pytest.raises(ZeroDivisionError), Precision("bfloat16", CPU).active():
        _ = 1 // 0
    assert not torch.is_autocast_enabled("cpu")


def test_versions_say_what_made_a_result():
    found = versions(CPU)
    assert found["nogs"] == __version__
    assert found["torch"] == torch.__version__
    assert found["cuda"] is None
    assert found["device"].startswith("cpu")


def test_runtime_and_its_files_import_without_torch():
    program = (
        "import sys\n"
        "from nogs.runtime import executors, files, metrics, progress, stage\n"
        "sys.exit(' '.join({'torch', 'rich', 'tensorboard', 'yaml'} & sys.modules.keys()))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.stderr.strip() == ""
