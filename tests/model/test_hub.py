import json
import os
import subprocess
import sys
from pathlib import Path

import huggingface_hub
import pytest
import yaml

import nogs
from nogs.model.finding import find
from nogs.model.hub import pack, push
from nogs.runtime.errors import InputError
from small_runs import LABELS, images, write_run

IMAGE = images(1)[0].numpy()


@pytest.fixture
def packed(tmp_path):
    run = write_run(
        tmp_path / "run", {"ram/seed-0": 0.5, "ram/seed-1": 0.75}, data={"fit": "stretch", "labels": "x.csv"}
    )
    return pack(find(run), tmp_path / "packed", licence="cc-by-nc-4.0")


def test_packed_network_answers_as_in_its_run(packed):
    here, there = nogs.load(packed), nogs.load(packed.parent / "run")
    assert here.classify(IMAGE) == there.classify(IMAGE)
    assert (here.name, here.fit, here.labels) == (there.name, "stretch", LABELS)
    assert sorted(path.name for path in packed.iterdir()) == ["README.md", "config.json", "model.safetensors"]


def test_config_has_what_other_programs_need(packed):
    config = json.loads((packed / "config.json").read_text())
    assert config["id2label"] == {"0": "red", "1": "green", "2": "blue"}
    assert config["network"] == "ram/seed-1"
    assert config["architecture"]["glimpses"] == 3
    assert config["data"] == {"kind": "folder", "image_size": 24, "glimpse": 8, "fit": "stretch"}
    assert config["metrics"]["validation"] == 0.75


def test_card_has_scores_licence_and_front_matter(packed):
    text = (packed / "README.md").read_text()
    _, front, body = text.split("---\n", 2)
    said = yaml.safe_load(front)
    assert (said["library_name"], said["license"], said["pipeline_tag"]) == (
        "nogs",
        "cc-by-nc-4.0",
        "image-classification",
    )
    assert said["model-index"][0]["results"][0]["metrics"][0]["value"] == 0.625
    assert "| accuracy, one sampled look | 62.5% |" in body
    assert "Weights: cc-by-nc-4.0. The network was trained on its author's own images" in body
    huggingface_hub.ModelCard(text).data.to_dict()  # as the hub itself reads it


def test_network_without_scores_or_licence_has_a_card_too(tmp_path):
    from nogs.model.card import card

    config = json.loads((pack(find(write_run(tmp_path / "run")), tmp_path / "p") / "config.json").read_text())
    text = card({**config, "metrics": {"validation": None, "test": None}, "data": {}}, licence="other")
    assert "No test scores were recorded." in text
    assert "no licence was stated" in text
    assert "model-index" not in text


def test_folder_of_something_else_is_not_overwritten(packed, tmp_path):
    found = find(tmp_path / "run")
    pack(found, packed)  # again is fine
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="is not empty and holds no packed network; choose another --out"):
        pack(found, tmp_path / "other")


def cached(packed, home):
    """The hub's cache as if the repository had been fetched before."""
    repository = home / "hub" / "models--someone--faces"
    snapshot = repository / "snapshots" / ("a" * 40)
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("a" * 40)
    for path in packed.iterdir():
        (snapshot / path.name).write_bytes(path.read_bytes())
    return home


def test_repository_in_the_cache_is_used_offline(packed, tmp_path):
    from PIL import Image

    home = cached(packed, tmp_path / "home")
    Image.fromarray(IMAGE).save(tmp_path / "image.png")
    command = [sys.executable, "-m", "nogs", "predict", "hf://someone/faces", str(tmp_path / "image.png"), "--json"]
    done = subprocess.run(
        command, env={**os.environ, "HF_HOME": str(home), "HF_HUB_OFFLINE": "1"}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    expected = nogs.load(packed).classify(IMAGE)
    assert found["label"] == expected.label
    assert found["probability"] == pytest.approx(expected.probability, abs=1e-6)


def test_repository_that_is_not_there_is_one_sentence(monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(InputError, match=r"could not fetch hf://no/where \(.*\); check its name and the connection\.$"):
        nogs.load("hf://no/where")
    with pytest.raises(InputError, match=r"hf://where must name a user and a repository: hf://user/repository"):
        nogs.load("hf://where")


def test_push_makes_the_repository_and_uploads_the_three_files(packed, monkeypatch):
    calls = []

    class Api:
        def __init__(self, **_):
            pass

        def create_repo(self, name, *, private, exist_ok):
            calls.append(("create", name, private, exist_ok))
            return f"https://huggingface.co/{name}"

        def upload_folder(self, *, repo_id, folder_path, commit_message, allow_patterns):
            calls.append(
                ("upload", repo_id, sorted(allow_patterns) == sorted(p.name for p in Path(folder_path).iterdir()))
            )

    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    assert push(packed, "me/faces", private=True) == "https://huggingface.co/me/faces"
    assert calls == [("create", "me/faces", True, True), ("upload", "me/faces", True)]


def test_failed_push_is_one_sentence(packed, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(InputError, match=r"could not push to 'me/faces' \(.*\); log in with `hf auth login`"):
        push(packed, "me/faces")
