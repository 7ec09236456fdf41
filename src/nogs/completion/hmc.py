"""Completion by Hamiltonian Monte Carlo in a deep generative model: its latent, given a Gaussian around the glimpses.

As in the paper, the bank's generator is the prior and an observed pixel is normal around the generator's. Discrete
latents (the class of FineGAN) are drawn for each chain and held fixed. It needs the extra `hmc`
(pip install "nogs[hmc]"), and minutes per image where the generator is large.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Bool, Float32, Int64, UInt8
from torch import Tensor

from nogs.bank.bank import Bank
from nogs.bank.generators import Differentiable
from nogs.bank.generators.noise import as_pictures, normal
from nogs.bank.pca import normalise
from nogs.completion.conditional import unweighted
from nogs.completion.config import CompletionConfig
from nogs.completion.prior import prior
from nogs.completion.protocol import Completions
from nogs.glimpse import mask
from nogs.runtime.capture import captured
from nogs.runtime.errors import InputError
from nogs.runtime.fingerprint import fingerprint
from nogs.runtime.streams import bits, key, uniform

__all__ = ["HMC"]

_TOGETHER = 32  # chains that are sampled, and latents that are decoded, at once
_CELLS = 4  # cells per side; their mean colours measure the mixing
_STUCK = 1e6  # R-hat of chains that don't move and lie apart; JSON has no infinity


class HMC:
    """Samples of p(I | y, l), for many images together, or by Pyro's NUTS for one chain at a time. A `Completion`.

    Before the first glimpse, completions are images of the bank.

    `diagnostics` of its completions are the share of accepted moves, and the largest R-hat of the mean colours of 4 x 4
    cells. `effective` is the mean effective sample size of these colours.
    """

    def __init__(
        self, generator: Differentiable, bank: Bank, *, config: CompletionConfig, glimpse: int, seed: int = 0
    ) -> None:
        _pyro()
        if generator.size != bank.pca.size:
            raise InputError(
                f"The generator makes images of {generator.size} px, but the bank's are {bank.pca.size} px."
            )
        self.generator, self.bank, self.config, self.glimpse, self.seed = generator, bank, config, glimpse, seed
        pca, device = bank.pca, bank.device  # on the device before a graph is captured
        self._centre, self._scale = (torch.tensor(x, device=device)[:, None, None] for x in (pca.centre, pca.scale))
        self._mark = fingerprint("hmc", generator.fingerprint, config, bank.fingerprint, glimpse, seed)

    @property
    def fingerprint(self) -> str:
        """Changes with the generator, the bank, the fields, the glimpse size or the seed."""
        return self._mark

    def complete(
        self, images: UInt8[Tensor, "B H W 3"], pixels: Int64[Tensor, "B T 2"], *, ids: Sequence[str]
    ) -> Completions:
        """Completions of `images` seen at the top-left `pixels` only; without glimpses, draws from the bank."""
        number, device, (height, width) = len(images), self.bank.device, self.generator.size
        config = self.config.hmc
        if images.shape[1:3] != (height, width):
            raise InputError(
                f"The images are {tuple(images.shape[1:3])} px, but the generator's are {(height, width)} px; build a "
                "bank for this task."
            )
        if not pixels.shape[1]:
            return prior(self.bank, number, config=self.config, seed=self.seed)
        seen = mask(pixels.to(device), glimpse=self.glimpse, height=height, width=width)
        target = normalise(images.to(device), self.bank.pca.centre, self.bank.pca.scale)
        chain = torch.arange(config.chains, device=device)
        keys = torch.cat([bits(key(self.seed, "completion/hmc", id, pixels.shape[1]), chain) for id in ids])
        observed = seen[..., None].expand(-1, -1, -1, 3).flatten(1).repeat_interleave(config.chains, 0)
        each = -(-self.config.kept // config.chains)
        sample = self._by_nuts if config.nuts else self._by_hmc
        samples, accepted = sample(target.repeat_interleave(config.chains, 0), observed, keys, each)
        pools, sizes, rhats = [], [], []
        for own, streams in zip(samples.split(config.chains), keys.split(config.chains)):
            pictures = self._pictures(own.flatten(0, 1), streams.repeat_interleave(each)).unflatten(0, (-1, each))
            size, rhat = _mixing(pictures)
            sizes.append(size)
            rhats.append(rhat)
            # one sample of each chain in turn, so that those left out are spread over the chains
            pools.append(pictures.transpose(0, 1).flatten(0, 1)[: self.config.kept])
        diagnostics = {"acceptance": accepted.unflatten(0, (number, -1)).mean(1).cpu(), "rhat": torch.tensor(rhats)}
        return replace(
            unweighted(torch.cat(pools), number), effective=torch.tensor(sizes, device=device), diagnostics=diagnostics
        )

    def _by_hmc(
        self,
        target: Float32[Tensor, "M P"],
        observed: Bool[Tensor, "M P"],
        keys: Int64[Tensor, " M"],
        each: int,
    ) -> tuple[Float32[Tensor, "M n latent"], Float32[Tensor, " M"]]:
        """Samples of each chain after its warm-up, and the share of accepted moves; `_TOGETHER` chains at once."""
        config, moves, shares = self.config.hmc, [], []
        spare = -len(keys) % _TOGETHER  # padded, so that a chain doesn't depend on how many there are
        parts = [torch.cat([x, x[-1:].expand(spare, *x.shape[1:])]).split(_TOGETHER) for x in (target, observed, keys)]
        energy = _Energy(self, parts[0][0].clone(), parts[1][0].clone(), parts[2][0].clone())
        for y, seen, own in zip(*parts):
            energy.of(y, seen, own)
            z = normal(own, self.generator.latent)
            kept, accepted = [], torch.zeros(len(own), device=z.device)
            for n in range(config.warmup + each):
                draw = bits(own, torch.full_like(own, n))
                moved, gain = energy.trajectory(z, normal(draw, z.shape[1]), steps=config.steps, size=config.step_size)
                take = uniform(draw, torch.full_like(draw, 2 * z.shape[1])) < gain.exp()  # false where it is NaN
                z = torch.where(take[:, None], moved, z)
                if n >= config.warmup:
                    kept.append(z)
                    accepted += take / each
            moves.append(torch.stack(kept, 1))
            shares.append(accepted)
        return torch.cat(moves)[: len(keys)], torch.cat(shares)[: len(keys)]

    def _by_nuts(
        self,
        target: Float32[Tensor, "M P"],
        observed: Bool[Tensor, "M P"],
        keys: Int64[Tensor, " M"],
        each: int,
    ) -> tuple[Float32[Tensor, "M n latent"], Float32[Tensor, " M"]]:
        """The same by Pyro's no-U-turn sampler, chain by chain."""
        pyro, config = _pyro(), self.config.hmc
        normal_ = pyro.distributions.Normal
        chains, shares = [], []
        for y, seen, own in zip(target, observed, keys.split(1)):
            start = normal(own, self.generator.latent)[0]

            def model(y: Tensor = y, seen: Tensor = seen, own: Tensor = own, start: Tensor = start) -> None:
                z = pyro.sample("z", normal_(torch.zeros_like(start), 1.0).to_event(1))
                shown = self._normalised(z[None], own)[0, seen]
                pyro.sample("y", normal_(shown, config.noise).to_event(1), obs=y[seen])

            run = pyro.infer.MCMC(
                pyro.infer.NUTS(model, step_size=config.step_size),
                num_samples=each,
                warmup_steps=config.warmup,
                initial_params={"z": start},
                disable_progbar=True,
            )
            with torch.random.fork_rng(devices=[start.device] if start.device.type == "cuda" else []):
                torch.manual_seed(int(own[0]) & (2**63 - 1))
                run.run()
            chains.append(run.get_samples()["z"])
            before = torch.cat([start[None], chains[-1]])
            shares.append((before.diff(dim=0).abs().amax(1) > 0).float().mean())
        return torch.stack(chains), torch.stack(shares)

    def _normalised(self, z: Float32[Tensor, "n latent"], keys: Int64[Tensor, " n"]) -> Float32[Tensor, "n P"]:
        """Normalised pixels of the generator's images, as a bank's PCA has them."""
        images = (self.generator.decode(z, keys).float() + 1) / 2
        return ((images - self._centre) / self._scale).permute(0, 2, 3, 1).flatten(1)

    @torch.no_grad()
    def _pictures(self, samples: Float32[Tensor, "n latent"], keys: Int64[Tensor, " n"]) -> UInt8[Tensor, "n H W 3"]:
        parts = zip(samples.split(_TOGETHER), keys.split(_TOGETHER))
        return as_pictures(torch.cat([self.generator.decode(*some) for some in parts]))


class _Energy:
    """Minus the log density of M latents and glimpses, up to a constant, and trajectories of its Hamiltonian."""

    def __init__(
        self, hmc: HMC, target: Float32[Tensor, "M P"], observed: Bool[Tensor, "M P"], keys: Int64[Tensor, " M"]
    ) -> None:
        self.hmc, self.target, self.observed, self.keys = hmc, target, observed, keys
        self.position = torch.zeros(len(keys), hmc.generator.latent, device=keys.device)
        self.momentum, self.slope = torch.zeros_like(self.position), torch.zeros_like(self.position)
        self.value, self.kick = torch.zeros_like(self.position[:, 0]), torch.zeros((), device=keys.device)
        changes = (self.position, self.momentum, self.slope, self.value)
        self._step = captured(self._leap, keys.device, changes=changes)

    def of(self, target: Tensor, observed: Tensor, keys: Tensor) -> None:
        """Replace the glimpses."""
        self.target.copy_(target)
        self.observed.copy_(observed)
        self.keys.copy_(keys)

    def trajectory(
        self, z: Float32[Tensor, "M latent"], momentum: Float32[Tensor, "M latent"], *, steps: int, size: float
    ) -> tuple[Float32[Tensor, "M latent"], Float32[Tensor, " M"]]:
        """The end of the leapfrog trajectory from z, and the log of its acceptance ratio."""
        self.position.copy_(z)
        self.momentum.copy_(momentum)
        self.kick.zero_()
        self._step()  # moves nothing yet: value and gradient at z
        before = self.value + momentum.square().sum(1) / 2
        self.momentum.sub_(self.slope * (size / 2))
        self.kick.fill_(size)
        for _ in range(steps):
            self._step()
        self.momentum.add_(self.slope * (size / 2))
        return self.position.clone(), before - self.value - self.momentum.square().sum(1) / 2

    def _leap(self) -> None:
        """Move, then update the momentum with the gradient there."""
        self.position.add_(self.momentum * self.kick)
        with torch.enable_grad():
            z = self.position.detach().requires_grad_()
            off = (self.hmc._normalised(z, self.keys) - self.target) * self.observed
            value = z.square().sum(1) / 2 + off.square().sum(1) / (2 * self.hmc.config.hmc.noise**2)
            (slope,) = torch.autograd.grad(value.sum(), z)
        self.value.copy_(value.detach())
        self.slope.copy_(slope)
        self.momentum.sub_(self.slope * self.kick)


def _mixing(pictures: UInt8[Tensor, "C n H W 3"]) -> tuple[float, float]:
    """Effective sample size and R-hat of the chains; R-hat is NaN where the chains are too short to tell."""
    stats = _pyro().ops.stats
    chains, each = pictures.shape[:2]
    flat = pictures.flatten(0, 1).permute(0, 3, 1, 2).float()
    cells = torch.nn.functional.adaptive_avg_pool2d(flat, _CELLS).reshape(chains, each, -1).double()
    total = chains * each
    size, rhat = float(chains), float("nan")
    if each >= 4:
        sizes = stats.effective_sample_size(cells)
        size = float(torch.where(sizes.isfinite(), sizes, chains).clamp(1, total).mean())
        # NaN: nothing moves, as in a cell of one colour; infinite: chains that don't move lie apart
        rhat = float(stats.split_gelman_rubin(cells).nan_to_num(nan=1.0, posinf=_STUCK).max())
    return min(size, float(total)), rhat


def _pyro() -> Any:
    try:
        import pyro
        import pyro.infer
        import pyro.ops.stats
    except ImportError:
        raise InputError('The completion hmc needs Pyro; install it with pip install "nogs[hmc]".') from None
    return pyro
