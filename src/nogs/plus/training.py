"""Networks that stand on a trained posterior, as a stage of a run: ps-nogs+, and the plain ways to look beside it.

| method | where it looks |
|---|---|
| ps-nogs+ | where its head expects the least loss of label, by what it has seen; at first in the fixed order |
| fixed | in the one order that is best for all images that did not train the posterior together |
| centre-out | from the centre outwards |
| random | anywhere |

All but the first are the posterior as it is, with temperatures fitted to where they look.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float32, Int
from torch import Tensor

from nogs.attention.cohort import Cohort, Member
from nogs.attention.evaluation import Evaluator, pixel_locations, summaries
from nogs.attention.store import splits_mark
from nogs.data.task import Task
from nogs.design.baselines import centre_out
from nogs.plus.config import PlusConfig
from nogs.plus.looks import Looks
from nogs.plus.network import TokenNetwork
from nogs.plus.store import save_network, save_view, token_posterior
from nogs.plus.trainer import Trainer, calibrate
from nogs.posterior.config import PosteriorConfig
from nogs.posterior.crossfit import whole_task
from nogs.posterior.labels import label_table
from nogs.posterior.network import NetworkPosterior
from nogs.posterior.queries import resident
from nogs.posterior.store import about_posterior, identity
from nogs.runtime import progress
from nogs.runtime.device import pick_device
from nogs.runtime.errors import InputError
from nogs.runtime.files import save_array, write_json
from nogs.runtime.fingerprint import fingerprint
from nogs.runtime.lock import only_one
from nogs.runtime.metrics import Metrics
from nogs.runtime.stage import Stage
from nogs.supervision.fixed import order_of, strangers

__all__ = ["train"]

NETWORK = "best-accuracy.safetensors"


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
    """Make the networks `members` of a posterior; what is done is skipped. Returns each one's folder.

    `how` says how the posterior was trained, which goes on here: mirrored and changed images, the arithmetic. The
    attributes of one method and seed share one network.
    """
    mark = identity(posterior)
    stages = {member.name: _stage(member, task, config, glimpses, folder, mark) for member in members}
    for stage in stages.values():
        stage.check_folder()
    waiting = [member for member in members if not stages[member.name].done]
    together: dict[tuple[str, int], list[Member]] = {}
    for member in waiting:
        together.setdefault((member.method, member.seed), []).append(member)
    job = None
    for group in together.values():
        job = job or _Job(task, posterior, config, how, glimpses, folder, trajectories, pick_device(device))
        for member in group:
            stages[member.name].begin()
        with only_one(folder):
            job.make(group)
        for member in group:
            stages[member.name].finish()
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
        self.tables: dict[int, Float32[Tensor, "T L"]] = {}

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
            for n, variable in enumerate(variables):
                calibrate(network, n, self.images, self.labels[self.validation, variable], self.validation)
        for parameter in network.parameters():
            parameter.requires_grad_(False)
        with posterior.precision.active():
            outcomes = [self._judge(network, n, member, iteration) for n, member in enumerate(group)]
        self._write(network, posterior, group, outcomes, went_on=_mark(network) != before)

    def _train(self, network: TokenNetwork, posterior: NetworkPosterior, member: Member, folder: Path) -> int:
        """Train and keep the best version; the iteration that it is from, 0 where the fixed order is not beaten."""
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
        )
        table = network.looks.table.detach().clone()
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

        Where the posterior stays as it is, the head learns from images that the posterior has not seen: on others every
        location looks good. If these are the validation images alone, it learns from half of them.
        """
        if self.config.core_rate:
            return torch.from_numpy(self.task.rows("train")).to(self.device), self.validation
        known = {*self.task.splits["validation"]}
        others = [id for id in strangers(self.task, self.source) if id not in known]
        if not others:
            return self.validation[::2], self.validation[1::2]
        return torch.from_numpy(self.task.rows(others)).to(self.device), self.validation

    def _table(self, method: str, posterior: NetworkPosterior, variables: Sequence[int]) -> Float32[Tensor, "A T L"]:
        """Scores of the locations before anything is learned."""
        grid = self.task.grid
        if method == "random":
            return torch.zeros(len(variables), self.glimpses, len(grid))
        if method == "centre-out":
            table = torch.ones(self.glimpses, len(grid))
            table[torch.arange(self.glimpses), centre_out(grid, glimpses=self.glimpses)] = 0
            return table.expand(len(variables), -1, -1)
        missing = [variable for variable in variables if variable not in self.tables]
        if missing:
            found = order_of(
                self.task,
                posterior,
                source=self.source,
                images=self.images,
                labels=self.labels,
                glimpses=self.glimpses,
                variables=missing,
            )
            self.tables.update(zip(missing, found.losses))
        return torch.stack([self.tables[variable] for variable in variables])

    def _judge(self, network: TokenNetwork, attribute: int, member: Member, iteration: int) -> dict[str, Any]:
        """Scores on validation and test images, and where it looked at the latter."""
        network.attribute = attribute
        cohort = Cohort(self.task, [member], glimpses=self.glimpses, batch=1, flip=False, device=self.device)
        found = {}
        for split in ("validation", "test"):
            sampled = Evaluator(network, cohort, split, trajectories=network.enough(self.trajectories), once=True)()
            given = network.looks.head is None  # one order for all is then what is meant
            found[split] = summaries(sampled, sampled, self.task.grid, given=given)[0]
        locations = pixel_locations(sampled, self.task.grid, 0)
        truth = cohort.labels[0, self.task.rows("test")]
        return {
            "locations": locations,
            "validation": found["validation"],
            "evaluation": {
                "member": {"method": member.method, "attribute": member.attribute, "seed": member.seed, "weight": None},
                "iterations": self.config.iterations if member.method == "ps-nogs+" else 0,
                "convergence": None,
                "majority_class_accuracy": truth.bincount().max().item() / len(truth),
                "whole_image_accuracy": None,
                "best": {
                    kind: {"iteration": iteration, "validation": found["validation"][kind], "test": found["test"]}
                    for kind in ("accuracy", "balanced_accuracy", "nll")
                },
            },
        }

    def _write(
        self,
        network: TokenNetwork,
        posterior: NetworkPosterior,
        group: Sequence[Member],
        outcomes: Sequence[dict[str, Any]],
        *,
        went_on: bool,
    ) -> None:
        """Each member's files; a network of several attributes lies beside them. `went_on`: the core was trained too,
        on images that the posterior may not have seen."""
        task, about = self.task, {}
        for member, outcome in zip(group, outcomes):
            best = outcome["evaluation"]["best"]["accuracy"]
            about[member.attribute or ""] = {
                "task": task.name,
                "labels": list(task.space.names)
                if member.attribute is None
                else [f"not {member.attribute}", member.attribute],
                "method": member.method,
                "attribute": member.attribute,
                "seed": member.seed,
                "splits": splits_mark(task.splits),
                "best": "accuracy",
                **best,
            }
        trained = about_posterior(self.source)
        if went_on:
            seen = [*trained.get("started_from", ()), whole_task(task).fingerprint]
            trained |= {"started_from": seen, "went_on": "train"}
        shared = group[0].attribute is not None
        path = self.folder / group[0].name / NETWORK
        if shared:
            path = self.folder / group[0].method / f"seed-{group[0].seed}.safetensors"
        save_network(path, network, posterior, task=task, about=about, trained=trained)
        for member, outcome in zip(group, outcomes):
            own = self.folder / member.name
            if shared:
                save_view(own / NETWORK, f"../../{path.name}", attribute=str(member.attribute))
            save_array(own / "locations.npy", outcome["locations"])
            if not (own / "metrics.jsonl").exists():
                with Metrics(own) as metrics:
                    values = {name: outcome["validation"][name] for name in ("nll", "accuracy", "balanced_accuracy")}
                    metrics.log(0, **{f"validation_{name}": value for name, value in values.items()})
            write_json(own / "evaluation.json", outcome["evaluation"])


def _mark(network: TokenNetwork) -> str:
    """Names the weights of a network's core."""
    return fingerprint({name: value.cpu() for name, value in network.core.state_dict().items()})


def _stage(member: Member, task: Task, config: PlusConfig, glimpses: int, folder: Path, posterior: str) -> Stage:
    fields = config.model_dump() if member.method == "ps-nogs+" else {}
    mark = fingerprint(fields, task.fingerprint, glimpses, member.fingerprint(), posterior)
    return Stage(folder / member.name, name=f"network {member.name}", fingerprint=mark)
