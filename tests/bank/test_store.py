import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch

from nogs.bank.store import Note, ResidentImages, Shards, resident, stored_blocks
from nogs.runtime.errors import InputError
from nogs.runtime.files import write_sealed


def pictures(number, *, seed=0, size=8):
    return np.random.default_rng(seed).integers(0, 256, (number, size, size, 3), dtype=np.uint8)


@pytest.fixture
def shards(tmp_path):
    store = Shards.create(tmp_path / "images", size=(8, 8))
    store.append(pictures(5, seed=0), Note(next=5, dropped=[]))
    store.append(pictures(3, seed=1), Note(next=9, dropped=[6]))
    return store


def flip_bit(path, *, byte, bit=3):
    data = bytearray(path.read_bytes())
    data[byte] ^= 1 << bit
    path.write_bytes(data)


def test_images_come_back_in_the_order_asked_for(shards):
    everything = np.concatenate([pictures(5, seed=0), pictures(3, seed=1)])
    again = Shards.open(shards.folder)
    assert len(again) == 8
    assert again.size == (8, 8)
    assert again.notes == [Note(next=5, dropped=[]), Note(next=9, dropped=[6])]
    assert [again.rows(n) for n in range(2)] == [range(5), range(5, 8)]
    rows = np.array([7, 0, 4, 5, 0])
    assert np.array_equal(again.read(rows).numpy(), everything[rows])
    assert again.read(np.array([], np.int64)).shape == (0, 8, 8, 3)


def test_a_whole_store_verifies(shards):
    seen = []
    assert Shards.open(shards.folder).verify(advance=seen.append) == []
    assert seen == [5, 3]


@pytest.mark.parametrize("bit", range(8))
def test_a_flipped_bit_is_found_and_refused(shards, bit):
    path = shards.folder / "00001.npy"
    flip_bit(path, byte=path.stat().st_size - 1, bit=bit)  # in the last image
    again = Shards.open(shards.folder)
    (problem,) = again.verify()
    assert problem == f"{path} is damaged: image 7 has changed since the bank was built; build the bank again."
    again.read(np.arange(7))
    with pytest.raises(InputError, match="image 7 has changed"):
        again.read(np.array([2, 7]))
    with pytest.raises(InputError, match="image 7 has changed"):
        resident(again, device=torch.device("cpu"))


def test_a_changed_list_of_checksums_is_refused(shards):
    path = shards.folder / "00000.crc.npy"
    flip_bit(path, byte=path.stat().st_size - 1)
    with pytest.raises(InputError, match=r"00000\.crc\.npy has changed"):
        Shards.open(shards.folder).read(np.array([0]))
    assert len(Shards.open(shards.folder).verify()) == 1


def test_a_truncated_shard_is_named(shards):
    path = shards.folder / "00000.npy"
    path.write_bytes(path.read_bytes()[:-10])
    (problem,) = Shards.open(shards.folder).verify()
    assert "00000.npy is not a whole .npy file" in problem


def test_a_shard_without_its_line_in_the_manifest_is_written_again(shards):
    manifest = (shards.folder / "manifest.json").read_bytes()
    shards.append(pictures(4, seed=2))
    (shards.folder / "manifest.json").write_bytes(manifest)  # as if killed before the manifest was renamed
    again = Shards.create(shards.folder, size=(8, 8))
    assert len(again) == 8
    again.append(pictures(2, seed=3))
    assert len(again) == 10
    assert np.array_equal(again.read(np.array([8, 9])).numpy(), pictures(2, seed=3))
    assert again.verify() == []


def test_another_size_or_format_is_refused(shards, tmp_path):
    with pytest.raises(InputError, match=r"holds images of \(8, 8\) px, not \(9, 9\)"):
        Shards.create(shards.folder, size=(9, 9))
    (tmp_path / "manifest.json").write_text("[]\n")
    with pytest.raises(InputError, match=r"manifest\.json has no field 'seal'"):
        Shards.open(tmp_path)
    write_sealed(tmp_path / "manifest.json", {"format": "nogs bank images 1", "size": [8, 8], "shards": [{}]})
    with pytest.raises(InputError, match=r"manifest\.json is not the manifest of a bank .* 'shards.0.file' is wrong"):
        Shards.open(tmp_path)


def test_blocks_and_residence_cover_all_rows(shards):
    blocks = list(stored_blocks(shards, block=3))
    assert [rows for rows, _ in blocks] == [range(3), range(3, 6), range(6, 8)]
    here = resident(shards, device=torch.device("cpu"), block=3)
    assert isinstance(here, ResidentImages)
    assert here.size == (8, 8)
    assert torch.equal(here.pixels, torch.cat([images for _, images in blocks]))
    assert torch.equal(here.read(np.array([6, 1])), here.pixels[[6, 1]])


def test_a_killed_writer_leaves_whole_shards(tmp_path):
    program = (
        "import sys, numpy as np\nfrom pathlib import Path\nfrom nogs.bank.store import Note, Shards\n"
        "store = Shards.create(Path(sys.argv[1]), size=(64, 64))\n"
        "while True:\n"
        "    store.append(np.random.default_rng(len(store)).integers(0, 256, (16, 64, 64, 3), dtype=np.uint8))\n"
    )
    folder = tmp_path / "images"
    process = subprocess.Popen([sys.executable, "-c", program, str(folder)], env={**os.environ, "OMP_NUM_THREADS": "1"})
    limit = time.monotonic() + 60
    while not (folder / "00003.npy").exists() and time.monotonic() < limit:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    store = Shards.open(folder)
    assert len(store) >= 3 * 16
    assert store.verify() == []
    expected = np.random.default_rng(32).integers(0, 256, (16, 64, 64, 3), dtype=np.uint8)
    assert np.array_equal(store.read(np.arange(32, 48)).numpy(), expected)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
def test_a_disk_that_fills_during_a_shard_is_called_full(shards, monkeypatch):
    monkeypatch.setattr("nogs.runtime.files.secrets.token_hex", lambda _: "x")
    (shards.folder / ".00002.x.part.npy").symlink_to("/dev/full")
    sentence = rf"^Cannot write {shards.folder / '00002.npy'} \(No space left on device\): free some space or choose"
    with pytest.raises(InputError, match=sentence):
        shards.append(pictures(4, seed=2))
    again = Shards.open(shards.folder)
    assert (len(again), again.verify()) == (8, [])
