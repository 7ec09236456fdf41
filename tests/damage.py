"""A tiny run with every kind of file that a run reads back, and for each file a function that reads it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

import miniature
import nogs
from nogs.attention.cohort import Member
from nogs.attention.config import AttentionConfig
from nogs.attention.training import Trainer as AttentionTrainer
from nogs.attention.training import train
from nogs.bank import BankConfig, TrainedConfig, build_bank, load_bank
from nogs.bank.generators.steps import Done
from nogs.completion import CompletionConfig
from nogs.data import load_task, read_splits, write_splits
from nogs.design.annotation import annotate
from nogs.design.blocks import Block, blocks, read_block, read_first, read_maps
from nogs.design.config import DesignConfig
from nogs.design.tools import Files
from nogs.model.finding import find
from nogs.model.hub import pack
from nogs.posterior.config import PosteriorConfig
from nogs.posterior.store import about_posterior, load_posterior
from nogs.posterior.training import Trainer as PosteriorTrainer
from nogs.posterior.training import train_posterior
from nogs.recipes import Recipe, recipe
from nogs.report.contents import read_run
from nogs.runtime.files import write_sealed
from nogs.runtime.fingerprint import fingerprint
from nogs.runtime.metrics import Metrics
from nogs.runtime.stage import Stage
from nogs.sequences import load as load_sequences
from nogs.stages.ledger import Ledger
from nogs.stages.settings import LOCAL, Settings, remembered
from nogs.supervision.heuristic import Heuristic, load_heuristic, save_heuristic
from nogs.whole import WholeConfig, train_whole, whole_scores
from nogs.whole.evaluation import FOLDER

CPU = torch.device("cpu")
POSTERIOR = PosteriorConfig(width=8, layers=1, heads=1, batch=8, iterations=4, validate_every=2)
ATTENTION = AttentionConfig(hidden=6, embedding=8, batch=4, iterations=4, validate_every=2, trajectories=2)
TRAINED = TrainedConfig(
    autoencoder_width=8, autoencoder_iterations=2, width=32, depth=1, iterations=2, batch=8, steps=2
)
BANK = BankConfig(count=24, components=4, duplicate_rms=0, shift=1)
DESIGN = DesignConfig(images=4, batch=64, keep_maps=True, search="grid")
GLIMPSES, SEED = 3, 0


@dataclass(frozen=True)
class Target:
    """A file, what reads it (the result is compared), and whether people may edit it."""

    path: Path
    read: Callable[[], Any]
    editable: bool = False


class World:
    """The run, made once."""

    def __init__(self, folder: Path) -> None:
        self.run, self.cache, self.pictures = folder / "run", folder / "cache", folder / "pictures"
        miniature.folder(self.pictures, per_class=20)
        self.task = self.load_task()
        data = Stage(self.run / "data", name="data", fingerprint="data")
        data.begin()
        write_splits(self.task, self.run / "data")
        data.finish()
        Recipe(name="tiny", data=miniature.FOLDER, posterior=POSTERIOR).to_yaml(self.run / "recipe.yaml")
        self.train_posterior()
        build_bank(self.task, config=BANK, folder=self.run / "bank", device="cpu")
        trained = BANK.model_copy(update={"generator": "trained", "trained": TRAINED})
        build_bank(self.task, config=trained, folder=self.run / "trained", device="cpu")
        self.annotate()
        sequences = load_sequences(self.run / "sequences")
        self.members = [Member("ram"), Member("ps-nogs", sequences=sequences)]
        self.train_networks()
        self.train_whole()
        self.keep_states()
        epe = np.linspace(0, 1, len(self.task.grid))[None]
        save_heuristic(Heuristic(epe, epe, {"from": "nothing"}), self.run / "heuristic", task=self.task)
        Ledger(self.run).enter("bank", {"seed": SEED, "data": {"size": 32}}, redo=False)
        write_sealed(self.run / LOCAL, {"data": str(self.pictures), "cache": str(self.cache)})
        pack(find(self.run, network="ram"), folder / "packed")
        self.packed = folder / "packed"

    def load_task(self):
        return load_task(miniature.FOLDER, data=self.pictures, cache=self.cache, workers=1)

    def train_posterior(self):
        return train_posterior(
            self.task, config=POSTERIOR, glimpses=GLIMPSES, folder=self.run / "posterior", seed=SEED, device="cpu"
        )

    def train_networks(self):
        folder = self.run / "attention"
        return train(self.task, self.members, config=ATTENTION, glimpses=GLIMPSES, folder=folder, device="cpu")

    def train_whole(self) -> None:
        config, folder = WholeConfig(iterations=2, batch=8, width=4), self.run / FOLDER
        train_whole(self.task, config=config, posterior=POSTERIOR, folder=folder, seed=SEED, device="cpu")

    def annotate(self):
        tools = Files(
            posterior=str(self.run / "posterior" / "posterior.safetensors"),
            bank=self.run / "bank",
            completion=CompletionConfig(drawn=10, kept=6),
            design=DESIGN,
            task=miniature.FOLDER,
            glimpse=miniature.FOLDER.glimpse,
            seed=SEED,
            precision="float32",
            device="cpu",
        )
        ids, out = self.task.splits["annotate"], self.run / "sequences"
        fixed = {"inputs": ("tiny",), "config": DESIGN, "glimpses": GLIMPSES, "seed": SEED}
        with mock.patch("nogs.design.annotation.shutil.rmtree"):  # the blocks stay
            return annotate(self.task, ids, open_tools=tools, folder=out, **fixed)

    def keep_states(self) -> None:
        """States of trainings in the middle, with the metrics so far."""
        self.states = self.run / "states"
        self.posterior_trainer = PosteriorTrainer(self.task, config=POSTERIOR, glimpses=GLIMPSES, seed=SEED, device=CPU)
        self.attention_trainer = AttentionTrainer(
            self.task, self.members, config=ATTENTION, glimpses=GLIMPSES, device=CPU
        )
        with Metrics(self.states, tensorboard=False) as metrics:
            for step in (2, 4):
                metrics.log(step, loss=1 / step)
        self.posterior_trainer.iteration, self.posterior_trainer.logged = 4, metrics.digest
        self.posterior_trainer.save(self.states / "posterior.safetensors")
        self.attention_trainer.save(self.states / "attention.safetensors")
        done = Done(self.states / "generator.safetensors", first="autoencoder", mark="x")
        done.kept["work"] = {"network.weight": torch.ones(3)}
        done.save(now=True)

    def read_posterior(self):
        found = self.train_posterior()  # which is done
        return fingerprint(found.network.state_dict(), found.inverse_temperature, about_posterior(self.posterior))

    @property
    def posterior(self) -> Path:
        return self.run / "posterior" / "posterior.safetensors"

    def read_posterior_alone(self):
        found = load_posterior(self.posterior, task=self.task)
        return fingerprint(found.network.state_dict(), found.inverse_temperature)

    def read_bank(self, name: str):
        bank = load_bank(self.run / name, device="cpu")
        pixels = bank.images.read(np.arange(len(bank)))
        return fingerprint(bank.codes, pixels, bank.sources, vars(bank.pca), bank.fingerprint)

    def read_sequences(self):
        found = self.annotate()  # which is done
        return fingerprint(found.ids, found.locations, found.epe, found.provenance)

    def read_block(self):
        block: Block = blocks(self.task.splits["annotate"], DESIGN.images)[0]
        folder, locations = self.run / "sequences" / "blocks", len(self.task.grid)
        return fingerprint(
            read_block(folder, block, glimpses=GLIMPSES, locations=locations),
            read_maps(folder / "00000.safetensors", (len(block.ids), GLIMPSES, locations)),
        )

    def read_first(self):
        first = read_first(self.run / "sequences" / "first.safetensors")
        return fingerprint(first.location, first.map, first.evaluations)

    def read_heuristic(self):
        found = load_heuristic(self.run / "heuristic", task=self.task)
        return fingerprint(found.epe, found.error, found.provenance)

    def read_networks(self):
        model = nogs.load(self.run, network="ram")
        return self.train_networks(), fingerprint(model.networks.state_dict(), model.about)

    def read_whole(self):
        self.train_whole()  # which is done
        return whole_scores(self.run, None)

    def read_packed(self):
        model = nogs.load(self.packed)
        return fingerprint(model.networks.state_dict(), model.about, model.fit)

    def read_report(self):
        """Everything that a report shows."""
        found = read_run(self.run)
        sets = [(one.maps(), one.first_map(None), one.done) for one in found.sequences]
        networks = [(one.evaluation, one.locations(), one.splits(), vars(one.learned)) for one in found.networks]
        return fingerprint(sets, networks, found.posterior, found.bank, list(found.stages.values()))

    def read_states(self):
        """Go on with each of the trainings."""
        self.posterior_trainer.load(self.states / "posterior.safetensors")
        self.attention_trainer.load(self.states / "attention.safetensors")
        trainer = self.posterior_trainer
        with Metrics(self.states, resume_after=trainer.iteration, digest=trainer.logged, tensorboard=False) as metrics:
            pass
        done, weight = Done(self.states / "generator.safetensors", first="autoencoder", mark="x"), torch.zeros(3)
        done.restore("work", {"network.weight": weight})
        tensors = {**trainer.tensors(), **{f"a.{k}": v for k, v in self.attention_trainer.tensors().items()}}
        counters = (trainer.iteration, trainer.best_loss, self.attention_trainer.failed, done.iteration, done.seconds)
        return fingerprint(tensors, counters, weight, metrics.digest)

    def read_cache(self):
        task = self.load_task()
        return fingerprint(task.images, task.ids, task.fingerprint)

    def read_splits(self):
        return read_splits(self.task, self.run / "data").fingerprint

    def read_ledger(self):
        return Ledger(self.run).entries

    def read_settings(self):
        return remembered(Settings(), run=self.run)

    def read_recipe(self):
        return recipe(self.run / "recipe.yaml").model_dump(mode="json")

    def targets(self) -> Iterator[Target]:
        """Every file that is read back, with each of its readers."""
        run = self.run
        for name in ("posterior.safetensors", "done.json", "stage.json"):
            yield Target(run / "posterior" / name, self.read_posterior)
        yield Target(self.posterior, self.read_posterior_alone)
        for bank in ("bank", "trained"):
            for path in sorted((run / bank).rglob("*")):
                unread = path.name in ("stage.json", "generator.json")
                if path.is_file() and not unread:
                    yield Target(path, lambda bank=bank: self.read_bank(bank))
        for name in ("sequences.jsonl", "manifest.json", "done.json", "stage.json"):
            yield Target(run / "sequences" / name, self.read_sequences)
        for path in sorted((run / "sequences" / "blocks").glob("00000.*")):
            yield Target(path, self.read_block)
        yield Target(run / "sequences" / "first.safetensors", self.read_first)
        yield Target(run / "heuristic" / "heuristic.safetensors", self.read_heuristic)
        ram = run / "attention" / "ram" / "seed-0"
        for name in ("best-accuracy.safetensors", "done.json", "stage.json"):
            yield Target(ram / name, self.read_networks)
        for path in (
            *(
                ram / name
                for name in ("best-accuracy.safetensors", "metrics.jsonl", "evaluation.json", "locations.npy")
            ),
            *(run / "sequences" / name for name in ("maps.safetensors", "first.safetensors", "sequences.jsonl")),
            *(run / stage / "done.json" for stage in ("posterior", "bank", "data", "sequences")),
            run / "posterior" / "evaluation.json",
        ):
            yield Target(path, self.read_report)
        for name in ("evaluation.json", "done.json", "stage.json"):
            yield Target(run / FOLDER / name, self.read_whole)
        for path in sorted(self.states.iterdir()):
            yield Target(path, self.read_states)
        for name in ("model.safetensors", "config.json"):
            yield Target(self.packed / name, self.read_packed)
        for path in sorted(self.cache.rglob("*.*")):
            yield Target(path, self.read_cache)
        yield Target(run / "data" / "splits.json", self.read_splits)
        yield Target(run / "run.json", self.read_ledger)
        yield Target(run / "local.json", self.read_settings)
        yield Target(run / "recipe.yaml", self.read_recipe, editable=True)
