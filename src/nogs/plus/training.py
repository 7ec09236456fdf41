"""Networks that use a trained posterior as classifier, as a stage of a run: ps-nogs+, and the plain ways to look.

| method | where it looks |
|---|---|
| ps-nogs+ | where its head predicts the least cross-entropy, given the glimpses so far; initially the fixed order |
| fixed | in one order, the best on average over images that did not train the posterior |
| centre-out | from the centre outwards |
| random | at random locations |

All but ps-nogs+ use the posterior as it is, with temperatures fitted to where they look.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float32, Int
from torch import Tensor

from nogs.attention.cohort import Member
from nogs.data.task import Task
from nogs.design.baselines import centre_out
from nogs.plus.config import PlusConfig
from nogs.plus.looks import Looks
from nogs.plus.network import TokenNetwork
from nogs.plus.outcome import judge, write_outcomes
from nogs.plus.store import token_posterior
from nogs.plus.trainer import Trainer, calibrate
from nogs.posterior.config import PosteriorConfig
from nogs.posterior.crossfit import whole_task
from nogs.posterior.labels import label_table
from nogs.posterior.network import NetworkPosterior
from nogs.posterior.queries import resident
from nogs.posterior.stems import VGGStem
from nogs.posterior.store import about_posterior, identity
from nogs.posterior.tokens import GlimpseTokens
from nogs.runtime import progress
from nogs.runtime.device import pick_device
from nogs.runtime.errors import InputError
from nogs.runtime.fingerprint import fingerprint
from nogs.runtime.lock import only_one
from nogs.runtime.stage import Stage
from nogs.supervision.fixed import order_of, strangers

__all__ = ["frozen_stem", "train"]


def train(
    task: Task,
    members: Sequence[Member],
    *,
    posterior: str,
    config: PlusConfig,
    how: PosteriorConfig,
    glimpses: int,
    folder: Path,
    trajectories: int = 5,
    device: str = "auto",
) -> list[Path]:
    """Make the networks `members` of a posterior; finished ones are skipped. Returns each one's folder.

    `how` is the configuration of the posterior's training, whose augmentation and arithmetic are used here too. The
    attributes of one method and seed share one network.
    """
    mark = identity(posterior)
    together: dict[tuple[str, int], list[Member]] = {}
    for member in members:
        together.setdefault((member.method, member.seed), []).append(member)
    stages: dict[str, Stage] = {}
    for (method, _), group in together.items():
        fields = config.made_from(method, [member.attribute for member in group])
        stages |= {member.name: _stage(member, task, fields, glimpses, folder, mark) for member in group}
    for stage in stages.values():
        stage.check_folder()
    job = None
    for group in together.values():
        waiting = [member for member in group if not stages[member.name].done]
        if not waiting:
            continue
        group = group if config.shared else waiting
        job = job or _Job(task, posterior, config, how, glimpses, folder, trajectories, pick_device(device))
        for member in group:
            stages[member.name].begin()
        with only_one(folder):
            job.make(group)
        for member in group:
            stages[member.name].finish(device=job.device)
        (folder / group[0].name / "state.safetensors").unlink(missing_ok=True)
    return [folder / member.name for member in members]


class _Job:
    """What the networks of one run share: the posterior, the images on the device, and the fixed order once known."""

    def __init__(
        self,
        task: Task,
        posterior: str,
        config: PlusConfig,
        how: PosteriorConfig,
        glimpses: int,
        folder: Path,
        trajectories: int,
        device: torch.device,
    ) -> None:
        self.task, self.source, self.config, self.how = task, posterior, config, how
        self.glimpses, self.folder, self.trajectories, self.device = glimpses, folder, trajectories, device
        self.images = resident(task.images, device)
        self.labels = torch.from_numpy(label_table(task)).to(device)
        self.validation = torch.from_numpy(task.rows("validation")).to(device)
        self.tables: dict[tuple[int, ...], Float32[Tensor, "T L"]] = {}

    def make(self, group: Sequence[Member]) -> None:
        """The network of one method and seed, for all its attributes: trained where there is something to train."""
        task, first = self.task, group[0]
        posterior = token_posterior(self.source, task=task, device=self.device, precision=self.how.precision)
        if posterior.glimpses < self.glimpses:
            raise InputError(
                f"The posterior {self.source} was trained for up to {posterior.glimpses} glimpses, not "
                f"{self.glimpses}; train one for so many, or give another --posterior."
            )
        variables = [0 if member.attribute is None else task.attribute(member.attribute) for member in group]
        table = self._table(first.method, posterior, variables)
        network = TokenNetwork.on(posterior, table, variables=variables, sampled=first.method == "random")
        folder = self.folder / first.name
        iteration, before = 0, _mark(network)
        with posterior.precision.active():
            if first.method == "ps-nogs+":
                iteration = self._train(network, posterior, first, folder)
            network.eval()
            calibrate(network, self.images, self.labels[self.validation][:, variables], self.validation)
        for parameter in network.parameters():
            parameter.requires_grad_(False)
        with posterior.precision.active():
            outcomes = judge(
                network,
                group,
                task,
                images=self.images,
                labels=self.labels[:, variables],
                trajectories=self.trajectories,
                iteration=iteration,
                iterations=self.config.iterations if first.method == "ps-nogs+" else 0,
            )
        trained = about_posterior(self.source)
        if _mark(network) != before:  # trained further, on images that the posterior may not have seen
            seen = [*trained.get("started_from", ()), whole_task(task).fingerprint]
            trained |= {"started_from": seen, "went_on": "train"}
        write_outcomes(network, posterior, group, outcomes, task=task, folder=self.folder, trained=trained)

    def _train(self, network: TokenNetwork, posterior: NetworkPosterior, member: Member, folder: Path) -> int:
        """Train and keep the best version; returns its iteration, 0 if the fixed order is not beaten."""
        mark = fingerprint(
            self.config.model_dump(), identity(self.source), self.task.fingerprint, network.variables, member.seed
        )
        training, validation = self._images()
        trainer = Trainer(
            self.task,
            network,
            config=self.config,
            seed=member.seed,
            precision=posterior.precision,
            mark=mark,
            training=training,
            validation=validation,
            flip=self.how.flip,
            augment=self.how.augment,
            frozen_stem=frozen_stem(posterior, self.how),
        )
        table = network.looks.table.detach().clone()
        if trainer.encodes:
            total = (1 + self.how.flip) * len(training)
            with progress.track("encoding glimpses", total=total, unit="images") as bar:
                trainer.encode(bar.advance)
        trainer.run(folder)
        if trainer.failed is not None:
            progress.say(
                f"The loss was not a finite number by iteration {trainer.failed}; the best network before that is kept."
            )
        network.load_state_dict(trainer.best)
        if not trainer.best_iteration:
            network.looks = Looks(network.core, table).to(self.device)
        return trainer.best_iteration

    def _images(self) -> tuple[Int[Tensor, " n"], Int[Tensor, " m"]]:
        """Rows to learn from and to compare versions on.

        If the posterior stays as it is, the head learns from images that the posterior was not trained on, since on
        others every location looks good. If these are the validation images alone, it learns from half of them.
        """
        if self.config.core_rate:
            return torch.from_numpy(self.task.rows("train")).to(self.device), self.validation
        known = {*self.task.splits["validation"]}
        others = [id for id in strangers(self.task, self.source) if id not in known]
        if not others:
            return self.validation[::2], self.validation[1::2]
        return torch.from_numpy(self.task.rows(others)).to(self.device), self.validation

    def _table(self, method: str, posterior: NetworkPosterior, variables: Sequence[int]) -> Float32[Tensor, "A T L"]:
        """Initial scores of the locations, for one policy or for one per attribute."""
        grid = self.task.grid
        if method == "random":
            return torch.zeros(1, self.glimpses, len(grid))
        if method == "centre-out":
            table = torch.ones(1, self.glimpses, len(grid))
            table[0, torch.arange(self.glimpses), centre_out(grid, glimpses=self.glimpses)] = 0
            return table
        objectives = [tuple(variables)] if self.config.shared else [(variable,) for variable in variables]
        missing = [objective for objective in objectives if objective not in self.tables]
        if missing:
            found = order_of(
                self.task,
                posterior,
                source=self.source,
                images=self.images,
                labels=self.labels,
                glimpses=self.glimpses,
                objectives=missing,
            )
            self.tables.update(zip(missing, found.losses))
        return torch.stack([self.tables[objective] for objective in objectives])


def frozen_stem(posterior: NetworkPosterior, how: PosteriorConfig) -> bool:
    """Whether the recipe keeps ImageNet's features as they are; PS-NOGS+ then keeps the posterior's whole stem."""
    core = posterior.network
    features = isinstance(core, GlimpseTokens) and isinstance(core.stem, VGGStem) and how.weights != "none"
    return features and not how.pretrained_rate


def _mark(network: TokenNetwork) -> str:
    """Digest of the weights of a network's core."""
    return fingerprint({name: value.cpu() for name, value in network.core.state_dict().items()})


def _stage(member: Member, task: Task, fields: Mapping[str, Any], glimpses: int, folder: Path, posterior: str) -> Stage:
    mark = fingerprint(fields, task.fingerprint, glimpses, member.fingerprint(), posterior)
    return Stage(folder / member.name, name=f"network {member.name}", fingerprint=mark)
