"""The loop that trains PS-NOGS+: core and location head together, from the posterior and its fixed order.

At each step the network looks where it predicts the least loss. The head learns to predict the posterior's
cross-entropy on the true image, after that location and after some others. The core learns to lower it. The first
version is the fixed order. Of those that beat it by two standard errors on the validation images, the one with the
least cross-entropy is kept: of many versions, one is better by chance.

A killed run resumes from its last saved state, since random numbers are functions of the iteration.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float, Float32, Int, UInt8
from torch import Tensor, nn
from torch.nn import functional as F

from nogs.data.augment import AugmentConfig
from nogs.data.task import LabelSpace, Task
from nogs.glimpse.changes import Changes
from nogs.plus.config import PlusConfig
from nogs.plus.encoded import Encoded, encodes
from nogs.plus.looks import TEMPERATURE, Looks
from nogs.plus.network import TokenNetwork
from nogs.plus.together import look_together
from nogs.posterior.calibration import fit_inverse_temperature
from nogs.posterior.labels import Head, label_table
from nogs.posterior.queries import resident
from nogs.runtime import streams
from nogs.runtime.capture import captured
from nogs.runtime.device import Precision
from nogs.runtime.rates import adam_state, adam_tensors, falling, follow, set_rate
from nogs.runtime.training import Training

__all__ = ["Trainer"]

_ELSEWHERE = 0.1  # share of looks at random locations, so that states off the policy's path are trained too
_WARMUP = 30  # iterations
_DECAY = 0.01
_SURE = 2.0  # standard errors by which a version must be better than the fixed order
_LEVEL = 0.1  # weight of the error that all candidates of an image have in common


class Trainer(Training):
    """The network with its optimiser, counters and best version; the first version is the fixed order."""

    network: TokenNetwork
    title, validates_first = "training ps-nogs+", True

    def __init__(
        self,
        task: Task,
        network: TokenNetwork,
        *,
        config: PlusConfig,
        seed: int,
        precision: Precision,
        mark: str,
        training: Int[Tensor, " n"],
        validation: Int[Tensor, " m"],
        flip: bool = False,
        augment: AugmentConfig | None = None,
        frozen_stem: bool = False,
    ) -> None:
        """`training` and `validation` are rows of the images to learn from, and to compare versions on. Glimpses that a
        frozen stem encodes once are those of the images and their mirror images, without other changes."""
        self.config, self.seed, self.mark = config, seed, mark
        self.training, self.validation = training, validation
        self.device, self.flip, self.augment = network.pixels.device, flip, augment
        table = network.looks.table.detach()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(streams.key(seed, "plus weights"))
            network.looks = Looks(network.core, table, learned=True).to(self.device)
        super().__init__(
            network, iterations=config.iterations, validate_every=config.validate_every, precision=precision
        )
        self.images = resident(task.images, self.device)
        self.labels = torch.from_numpy(label_table(task)).to(self.device)[:, list(network.variables)]
        self.batch = min(config.batch, len(self.training))
        self.encoded: Encoded | None = None
        self.encodes = frozen_stem and encodes(config, network, len(training), flip=flip)
        for part in (network.core.stem, network.core.place) if frozen_stem else ():
            part.requires_grad_(False)
        core = [p for p in network.core.parameters() if p.requires_grad]
        for parameter in core:
            parameter.requires_grad_(config.core_rate > 0)
        looks = dict(network.looks.named_parameters())
        if not config.core_rate:  # then the table stays as measured
            for name in ("table", "head.last.bias"):
                looks.pop(name).requires_grad_(False)
        groups = [(config.learning_rate, list(looks.values()))]
        groups += [(config.core_rate, core)] if config.core_rate else []
        self.parameters = [p for _, members in groups for p in members]
        self.average = deepcopy(network) if config.average else None
        on_gpu = self.device.type == "cuda"  # where a captured graph reads the step sizes from memory
        self.optimizer = torch.optim.AdamW(
            [
                {"params": members, "factor": rate, "lr": torch.zeros((), device=self.device) if on_gpu else 0.0}
                for rate, members in groups
            ],
            weight_decay=_DECAY,
            fused=True,
            capturable=on_gpu,
        )
        for parameter in self.parameters:
            self.optimizer.state[parameter] = adam_state(parameter)
        self.clock = torch.zeros((), dtype=torch.int64, device=self.device)
        """The iteration, as the device counts it."""
        self.work: Callable[[], None] | None = None
        self.losses = torch.zeros(len(validation), device=self.device)
        """Cross-entropy of each validation image, the mean over attributes; `fixed` is the fixed order's."""
        self.fixed = self.losses.clone()

    def encode(self, advance: Callable[[int], object] = lambda _: None) -> None:
        """Encode the glimpses of the training images once; before `run`, since an interruption would wait for it."""
        with self.precision.active():
            self.encoded = Encoded(self.network, self.images, self.training, flip=self.flip, advance=advance)

    def step(self) -> None:
        """One iteration, on a GPU as a captured graph."""
        rise = min(1.0, (self.iteration + 1) / _WARMUP)
        set_rate(self.optimizer, rise * falling(self.iteration, self.config.iterations))
        if self.work is None:
            changes = [*self.tensors().values(), self.total, self.clock]
            self.work = captured(self._work, self.device, changes=changes)
        torch.manual_seed(streams.key(self.seed, "plus", step=self.iteration))
        self.work()
        self.iteration += 1

    def _work(self) -> None:
        """The computation of an iteration: batch, loss, gradient, step."""
        self.clock += 1
        loss = self.loss()
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        if self.average is not None:
            now, decay = self.network.state_dict().values(), self.config.average
            follow(self.average.state_dict().values(), now, decay=decay, iteration=self.clock)
        self.total += loss.detach()

    def loss(self) -> Float32[Tensor, ""]:
        """Loss of a batch: cross-entropy along the network's own looks and after candidates, and the head's error."""
        network, device, batch = self.network, self.device, self.batch
        rows = self.training[torch.randint(len(self.training), (batch,), device=device)]
        attribute = torch.randint(len(network.variables), (batch,), device=device)
        flip = torch.rand(batch, device=device) < 0.5 if self.flip else None
        changes = None
        if self.augment is not None and self.encoded is None:
            key = streams.key(self.seed, "plus changes")
            changes = self.augment.draw(key, self.clock * batch + torch.arange(batch, device=device))
        truth = self.labels[rows]
        network.eval()
        candidates = self._candidates(rows, attribute, flip, changes)
        network.train()
        learns = self.config.core_rate > 0
        network.core.train(learns)  # a fixed core has no dropout
        glimpses, each = candidates.shape[1:]
        with torch.set_grad_enabled(learns):
            tokens = self._read(rows, candidates.flatten(1), flip, changes)
        tokens = tokens.unflatten(1, (glimpses, each))
        loss = torch.zeros((), device=device)
        for step in range(glimpses):
            before = tokens[:, :step, 0]  # the chosen ones
            with torch.set_grad_enabled(learns):
                shared = before[:, None].expand(-1, each, -1, -1, -1)
                after = network.states(torch.cat([shared, tokens[:, step, :, None]], 2).flatten(0, 1))
                found = network.all_answers(after, None if learns else step + 1).unflatten(0, (batch, each))
                losses = -found.gather(-1, truth[:, None, :, None].expand(-1, each, -1, -1))[..., 0]
            with torch.no_grad():
                state = network.states(before)
            scores = network.looks.of_all(state, before.flatten(1, 2), step)
            expected = scores.gather(2, candidates[:, None, step].expand(-1, scores.shape[1], -1)).mT
            # the score of a location that was seen before is no prediction
            new = (candidates[:, :step, 0, None] != candidates[:, step, None]).all(1)
            learned = losses.detach().mean(2, keepdim=True) if network.looks.shared else losses.detach()
            loss = loss + _error(expected, learned, new[..., None])
            if learns:
                loss = loss + losses[:, 0].mean() + losses.mean()
        return loss / glimpses

    @torch.no_grad()
    def _candidates(
        self, rows: Tensor, attribute: Tensor, flip: Tensor | None, changes: Changes | None
    ) -> Int[Tensor, "B T C"]:
        """Locations for each step: the chosen one, half of the others drawn by the scores, the rest at random."""
        network, device, number = self.network, self.device, self.config.candidates
        locations, good = len(network.pixels), max(1, (number - 1) // 2)
        seen = rows.new_zeros(len(rows), 0)
        tokens = self._read(rows, seen, flip, changes)
        out = []
        for step in range(network.architecture.glimpses):
            scores = network.scores(tokens, attribute, seen)
            anywhere = torch.rand(len(rows), device=device) < _ELSEWHERE
            chosen = torch.where(anywhere, torch.randint(locations, anywhere.shape, device=device), scores.argmin(1))
            noise = -torch.rand_like(scores).log().neg().log()  # Gumbel noise: the largest sums are drawn by the scores
            likely = (noise - scores / TEMPERATURE).topk(good).indices
            rest = torch.randint(locations, (len(rows), number - 1 - good), device=device)
            out.append(torch.cat([chosen[:, None], likely, rest], 1))
            seen = torch.cat([seen, chosen[:, None]], 1)
            if step + 1 < network.architecture.glimpses:
                tokens = torch.cat([tokens, self._read(rows, chosen[:, None], flip, changes)], 1)
        return torch.stack(out, 1)

    def _read(
        self, rows: Int[Tensor, " B"], locations: Int[Tensor, "B k"], flip: Tensor | None, changes: Changes | None
    ) -> Float[Tensor, "B k n D"]:
        """Tokens of the glimpses at k locations of each image."""
        if self.encoded is not None:
            return self.encoded.read(rows, locations, flip)
        return self.network.read(self.images, rows, locations, flip=flip, changes=changes)

    @property
    def kept(self) -> TokenNetwork:
        """The average of the weights, or the network itself."""
        return self.network if self.average is None else self.average

    @torch.no_grad()
    def validate(self) -> dict[str, Any]:
        """Fit the temperatures; NLL, accuracy and balanced accuracy after all glimpses, as means over attributes."""
        self.kept.eval()
        truth, found, losses = self.labels[self.validation], [], []
        for answers, true in zip(calibrate(self.kept, self.images, truth, self.validation)[:, :, -1], truth.T):
            right = (answers.argmax(-1) == true).float()
            classes = [right[true == value].mean() for value in true.unique()]
            losses.append(F.nll_loss(answers, true, reduction="none"))
            found.append(torch.stack([losses[-1].mean(), right.mean(), torch.stack(classes).mean()]))
        self.network.inverse_temperature.copy_(self.kept.inverse_temperature)
        self.losses.copy_(torch.stack(losses).mean(0))
        if not self.iteration:
            self.fixed.copy_(self.losses)
        names = ("nll", "accuracy", "balanced_accuracy")
        return {f"validation_{name}": value for name, value in zip(names, torch.stack(found).mean(0).tolist())}

    def better(self, loss: float) -> bool:
        """A version is kept only if the images' paired differences show that it beats the fixed order."""
        gains = self.fixed - self.losses
        error = gains.std(correction=0) / max(1, len(gains) - 1) ** 0.5
        sure = bool(gains.mean() > _SURE * error)
        return super().better(loss) and (not self.iteration or sure)

    def tensors(self) -> dict[str, Tensor]:
        """Everything that training changes, by name."""
        parts = {"network": self.network.state_dict(), "best": self.best}
        if self.average is not None:
            parts["average"] = self.average.state_dict()
        out = {"fixed": self.fixed}
        out |= {f"{part}.{name}": value for part, values in parts.items() for name, value in values.items()}
        out.update(adam_tensors(self.optimizer, dict(self.network.named_parameters())))
        return out

    def fingerprint(self) -> str:
        """Digest of what a state must come from to be continued here."""
        return self.mark

    def load(self, path: Path) -> None:
        """Continue from a state of the same training."""
        super().load(path)
        self.clock.fill_(self.iteration)


def _error(
    expected: Float32[Tensor, "B C A"], losses: Float32[Tensor, "B C A"], new: Bool[Tensor, "B C 1"]
) -> Float32[Tensor, ""]:
    """Mean squared error of the head, mainly of the differences between candidates, by which it chooses. An image's
    difficulty shifts all candidates alike, and would dominate the error."""
    count = new.sum(1, keepdim=True).clamp(min=1)
    error = torch.where(new, expected - losses, 0)
    level = error.sum(1, keepdim=True) / count
    apart = torch.where(new, error - level, 0)
    return (apart.square() / count).sum(1).mean() + _LEVEL * level.square().mean()


@torch.no_grad()
def calibrate(
    network: TokenNetwork,
    images: UInt8[Tensor, "N H W 3"],
    truth: Int[Tensor, "n V"],
    rows: Int[Tensor, " n"],
) -> Float32[Tensor, "V n T C"]:
    """Fit the temperatures after 1..T glimpses along the network's own looks at the images `rows`.

    All attributes share them, since a few hundred images are too few for one each. Returns the answers.
    """
    network.inverse_temperature[1:] = 1
    uniforms, steps = None, torch.arange(network.architecture.glimpses, device=rows.device)
    if network.looks.sampled:
        uniforms = streams.uniform(streams.key(0, "plus calibration"), rows[:, None] * len(steps) + steps)
    answers = look_together(network, images, rows, uniforms=uniforms).answers
    # log-probabilities are logits too, of two values as of many
    head = Head(LabelSpace("categorical", tuple(map(str, range(answers.shape[-1])))))
    for step in range(len(steps)):
        factor = fit_inverse_temperature(answers[:, :, step].flatten(0, 1), truth.T.reshape(-1, 1), head=head)
        network.inverse_temperature[step + 1] = factor
        answers[:, :, step] = (answers[:, :, step] * factor).log_softmax(-1)
    return answers
