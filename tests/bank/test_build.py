import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from nogs.bank import BankConfig, TrainedConfig, build_bank, load_bank, verify_bank
from nogs.bank.generators.training import STATE
from nogs.data import DataConfig, load_task
from nogs.recipes import recipe, validated
from nogs.runtime.errors import InputError
from nogs.runtime.files import write_sealed

CONFIG = BankConfig(generator="digits", count=700, components=16, batch=50)
TINY_GENERATOR = TrainedConfig(
    autoencoder_width=8, autoencoder_iterations=2, width=32, depth=1, iterations=2, batch=8, steps=2
)


@pytest.fixture(autouse=True, scope="module")
def small_shards():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("nogs.bank.build.SHARD", 1 << 20)
        yield


@pytest.fixture(scope="module")
def task():
    return load_task(
        DataConfig(kind="digits", image_size=32, glimpse=8, grid_spacing=4, count=200, annotated=20, fragments=2)
    )


@pytest.fixture(scope="module")
def built(task, tmp_path_factory):
    folder = tmp_path_factory.mktemp("bank")
    build_bank(task, config=CONFIG, folder=folder, device="cpu")
    return folder


def test_a_bank_reads_back_with_codes_of_its_images(built):
    bank = load_bank(built, device="cpu")
    assert len(bank) == len(bank.images) == 700
    assert len(list((built / "images").glob("0000?.npy"))) == 3  # 341 images in a MiB
    images = bank.images.read(np.arange(700))
    assert torch.allclose(bank.codes, bank.pca.encode(images), atol=0.02, rtol=2e-3)
    assert bank.codes.dtype == torch.float32  # as the CPU multiplies fastest; float16 on disk
    assert np.load(built / "codes" / "00000.npy").dtype == np.float16
    assert verify_bank(built) == []


def test_building_again_changes_nothing(task, built):
    before = {path: path.stat().st_mtime_ns for path in built.rglob("*.*")}
    about = build_bank(task, config=CONFIG, folder=built, device="cpu")
    assert about["images"] == 700
    assert {path: path.stat().st_mtime_ns for path in built.rglob("*.*")} == before
    with pytest.raises(InputError, match=r"holds bank of another recipe or other inputs \(bank.count = 700, not 800\)"):
        build_bank(task, config=CONFIG.model_copy(update={"count": 800}), folder=built, device="cpu")


def test_near_duplicates_are_replaced_by_other_images(task, tmp_path):
    """The held-out images of this task are themselves images of the generator."""
    from nogs.bank.generators.pictures import Digits

    stolen = Digits(image_size=32).generate(np.array([3, 60, 61]), seed=0).numpy()
    images = task.images.copy()
    images[task.rows(task.splits["annotate"][:3])] = stolen
    leaky = replace(task, images=images, fingerprint="leaky")
    config = CONFIG.model_copy(update={"count": 100})
    about = build_bank(leaky, config=config, folder=tmp_path, device="cpu")
    assert about["near_duplicates_left_out"] == 3
    found = load_bank(tmp_path, device="cpu").images.read(np.arange(100)).numpy()
    assert len(found) == 100
    for image in stolen:
        assert not (found == image).all((1, 2, 3)).any()
    expected = [n for n in range(103) if n not in (3, 60, 61)]
    assert np.array_equal(found, Digits(image_size=32).generate(np.array(expected), seed=0).numpy())


def test_a_bank_of_training_images_says_which_one_each_image_shows(task, tmp_path, monkeypatch):
    """Some copies are left out as near-duplicates of held-out images, and some sources train nothing."""
    from nogs.bank.generators import make_generator

    monkeypatch.setattr("nogs.bank.generators.pictures.COLOUR", 0.02)
    fewer = {**task.splits, "posterior": task.splits["posterior"][3:]}
    small = {"count": 250, "components": 8, "batch": 50, "shift": 1}
    config = BankConfig(generator="training-images", **small)
    rows = make_generator(config, task=task).rows
    images = task.images.copy()
    copies = make_generator(config, task=task).generate(np.array([len(rows) + 4, len(rows) + 9]), seed=0)
    images[task.rows(task.splits["annotate"][:2])] = copies.numpy()
    leaky = replace(task, images=images, splits=fewer, fingerprint="leaky")
    about = build_bank(leaky, config=config, folder=tmp_path, device="cpu")
    bank = load_bank(tmp_path, device="cpu")
    shown = make_generator(config, task=leaky).rows
    assert about["near_duplicates_left_out"] > 0
    assert bank.sources.shape == (250,)
    pictures = bank.images.read(np.arange(250)).numpy()
    trained = leaky.rows("posterior")
    rows = [*trained, *(row for row in leaky.rows("train") if row not in trained)]
    assert (bank.sources >= len(trained)).any()
    for row in range(len(shown)):  # the first round, as they are
        (same,) = [n for n in shown if (leaky.images[n] == pictures[row]).all()]
        assert same == rows[bank.sources[row]]
    for row in range(len(shown), 250):  # changed copies are nearest to their source, mirrored or not
        away = [_distance(leaky.images[n], pictures[row], config.shift) for n in shown]
        assert shown[int(np.argmin(away))] == rows[bank.sources[row]], row

    whole = (tmp_path / "sources.npy").read_bytes()
    flipped = whole[:-8] + bytes([whole[-8] ^ 1]) + whole[-7:]
    for damaged in (b"", whole[:60], whole[:-1], whole.replace(b"}", b"{"), flipped):
        (tmp_path / "sources.npy").write_bytes(damaged)
        with pytest.raises(InputError, match=r"sources.npy has changed since it was made"):
            load_bank(tmp_path, device="cpu")
        (problem,) = verify_bank(tmp_path)
        assert "sources.npy has changed since it was made" in problem
    (tmp_path / "sources.npy").unlink()
    with pytest.raises(InputError, match=r"sources.npy is missing; bring it back from a copy"):
        load_bank(tmp_path, device="cpu")


def _distance(source, copy, shift):
    """Least squared distance of a copy to its source, over shifts and mirroring, inside the border."""
    inner = copy[shift:-shift, shift:-shift].astype(float)
    side, moves = len(inner), range(2 * shift + 1)
    return min(
        np.square(one[row : row + side, column : column + side] - inner).mean()
        for one in (source.astype(float), source[:, ::-1].astype(float))
        for row in moves
        for column in moves
    )


def test_a_generator_of_ones_own_fills_the_bank(task, tmp_path):
    class Noise:
        size, count, fingerprint = (32, 32), 40, "noise"

        def generate(self, numbers, *, seed):
            images = [np.random.default_rng((seed, n)).integers(0, 256, (32, 32, 3), np.uint8) for n in numbers]
            return torch.from_numpy(np.stack(images))

    config = BankConfig(generator="training-images", count=40, components=4, duplicate_rms=0)
    about = build_bank(task, config=config, folder=tmp_path, generator=Noise(), device="cpu")
    assert (about["generator"], about["images"]) == ("Noise", 40)
    bank = load_bank(tmp_path, device="cpu")
    assert torch.equal(bank.images.read(np.array([7])), Noise().generate(np.array([7]), seed=0))


def test_images_of_other_generators_have_no_source(built):
    assert load_bank(built, device="cpu").sources is None


def test_a_folder_of_few_pictures_gives_a_small_bank(task, tmp_path):
    from PIL import Image

    rng = np.random.default_rng(0)
    for n in range(30):
        picture = rng.integers(0, 256, (4, 4, 3), dtype=np.uint8).repeat(8, 0).repeat(8, 1)
        (tmp_path / "pictures").mkdir(exist_ok=True)
        Image.fromarray(picture).save(tmp_path / "pictures" / f"{n:02}.png")
    config = BankConfig(generator="folder", count=500, components=8)
    about = build_bank(
        task, config=config, folder=tmp_path / "bank", generator_path=tmp_path / "pictures", device="cpu"
    )
    assert about["images"] == 30
    with pytest.raises(InputError, match=r"too few for bank\.components = 64"):
        build_bank(
            task,
            config=BankConfig(generator="folder", count=500, components=64),
            folder=tmp_path / "other",
            generator_path=tmp_path / "pictures",
            device="cpu",
        )


def test_a_generator_is_trained_once_and_fills_the_bank(task, tmp_path, capsys):
    config = BankConfig(generator="trained", count=40, components=4, duplicate_rms=0, trained=TINY_GENERATOR)
    build_bank(task, config=config, folder=tmp_path, device="cpu")
    assert len(load_bank(tmp_path, device="cpu")) == 40
    capsys.readouterr()
    build_bank(task, config=config, folder=tmp_path, device="cpu")
    assert "autoencoder" not in capsys.readouterr().err
    assert not (tmp_path / STATE).exists()
    longer = config.model_copy(update={"trained": TINY_GENERATOR.model_copy(update={"seconds": 60.0})})
    with pytest.raises(InputError, match="was trained with other fields or images"):
        build_bank(task, config=longer, folder=tmp_path, device="cpu")


def test_seconds_of_a_bank_are_those_of_its_generator_too(task, tmp_path):
    config = BankConfig(generator="trained", count=40, components=4, duplicate_rms=0, trained=TINY_GENERATOR)
    build_bank(task, config=config, folder=tmp_path, device="cpu")
    write_sealed(tmp_path / "generator.json", {"training": 1000.0, "encoding": 200.0})
    (tmp_path / "done.json").unlink()  # killed after the generator was trained
    assert 1200 < build_bank(task, config=config, folder=tmp_path, device="cpu")["seconds"] < 1260


def test_a_bank_of_fewer_images_than_components_is_refused_at_once():
    sentence = "bank.count is 100, too few images for bank.components = 256; raise bank.count or lower bank.components"
    with pytest.raises(ValidationError, match=sentence):
        BankConfig(count=100)
    values = recipe("digits").model_dump(mode="json")
    values["bank"].update(count=100, components=256)
    with pytest.raises(InputError, match=f"has a mistake: {sentence}.$"):
        validated(values, source="It")


def test_a_flipped_bit_is_found_by_verify_and_refused_by_use(task, tmp_path):
    from nogs.completion import CompletionConfig, Retrieval

    build_bank(task, config=CONFIG.model_copy(update={"count": 60}), folder=tmp_path, device="cpu")
    path = tmp_path / "images" / "00000.npy"
    data = bytearray(path.read_bytes())
    data[-100] ^= 4
    path.write_bytes(data)
    (problem,) = verify_bank(tmp_path)
    assert problem == f"{path} is damaged: image 59 has changed since the bank was built; build the bank again."
    bank = load_bank(tmp_path, device="cpu")
    retrieval = Retrieval(bank, config=CompletionConfig(kept=60), glimpse=8)
    with pytest.raises(InputError, match="image 59 has changed"):
        retrieval.complete(torch.from_numpy(task.images[:1]), torch.empty(1, 0, 2, dtype=torch.int64), ids=["0"])


@pytest.mark.parametrize("name", ["codes/00000.npy", "pca.safetensors"])
def test_changed_codes_or_components_are_refused(task, tmp_path, name):
    build_bank(task, config=CONFIG.model_copy(update={"count": 60}), folder=tmp_path, device="cpu")
    path = tmp_path / name
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    (problem,) = verify_bank(tmp_path)
    assert "has changed since" in problem
    with pytest.raises(InputError, match="has changed since"):
        load_bank(tmp_path, device="cpu")


def test_a_changed_generator_is_found_by_verify(task, tmp_path):
    config = BankConfig(generator="trained", count=40, components=4, duplicate_rms=0, trained=TINY_GENERATOR)
    build_bank(task, config=config, folder=tmp_path, device="cpu")
    path = tmp_path / "generator.safetensors"
    assert verify_bank(tmp_path) == []
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[-100] ^= 4
    for damaged in (bytes(flipped), whole[:50] + b"\xff" + whole[51:]):
        path.write_bytes(damaged)
        (problem,) = verify_bank(tmp_path)
        assert problem.startswith(f"{path} has changed since it was made")
    path.write_bytes(whole)
    assert verify_bank(tmp_path) == []
    path.unlink()
    assert verify_bank(tmp_path) == [f"{path} is missing; bring it back from a copy, or build the bank again."]


def test_a_generator_beside_a_bank_of_another_source_is_not_the_banks(task, tmp_path):
    config = BankConfig(generator="trained", count=40, components=4, duplicate_rms=0, trained=TINY_GENERATOR)
    build_bank(task, config=config, folder=tmp_path / "first", device="cpu")
    path = tmp_path / "first" / "generator.safetensors"
    build_bank(task, config=config, folder=tmp_path / "second", generator_path=path, device="cpu")
    (tmp_path / "second" / "generator.safetensors").write_bytes(b"of a build that was given up")
    assert verify_bank(tmp_path / "second") == []


def test_a_folder_without_a_finished_bank_is_named(tmp_path):
    with pytest.raises(InputError, match="holds no finished bank; run nogs bank build"):
        load_bank(tmp_path)


PROGRAM = """
import sys
from pathlib import Path
import torch
torch.set_num_threads(1)
from nogs.bank import BankConfig, build, build_bank
from nogs.data import DataConfig, load_task
build.SHARD = 1 << 20
data = DataConfig(kind="digits", image_size=32, glimpse=8, grid_spacing=4, count=200, annotated=20, fragments=2)
task = load_task(data)
config = BankConfig(generator="digits", count=3000, components=16, batch=50)
build_bank(task, config=config, folder=Path(sys.argv[1]), device="cpu")
"""


@pytest.mark.slow
def test_a_killed_build_goes_on_to_the_same_bank(task, tmp_path):
    """kill -9 after the first shards; the resumed build must equal an uninterrupted one."""
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(killed)],
        stderr=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    limit = time.monotonic() + 60
    manifest = killed / "images" / "manifest.json"
    while time.monotonic() < limit:
        if manifest.exists() and len(json.loads(manifest.read_text())["shards"]) >= 2:
            break
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (killed / "done.json").exists()
    before = (killed / "images" / "00000.npy").stat().st_mtime_ns
    config = BankConfig(generator="digits", count=3000, components=16, batch=50)
    build_bank(task, config=config, folder=killed, device="cpu")
    build_bank(task, config=config, folder=whole, device="cpu")
    assert (killed / "images" / "00000.npy").stat().st_mtime_ns == before  # kept, not made again
    for path in sorted(whole.rglob("*.npy")):
        assert (killed / path.relative_to(whole)).read_bytes() == path.read_bytes(), path.name
    assert verify_bank(killed) == []
