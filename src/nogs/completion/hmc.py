"""Completion by Hamiltonian Monte Carlo in a deep generative model: its latent, given a Gaussian around the glimpses.

As in the paper, the bank's generator is the prior and an observed pixel is normal around the generator's. What is
discrete (the class of FineGAN) is drawn for each chain and held fixed. It needs the extra `hmc`
(pip install "nogs[hmc]"), and minutes an image where the generator is large.
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
from nogs.runtime.errors import InputError
from nogs.runtime.fingerprint import fingerprint
from nogs.runtime.streams import bits, key

__all__ = ["HMC"]

_TOGETHER = 32  # latents that are decoded at once
_CELLS = 4  # mixing is judged by the mean colours of so many cells a side


class HMC:
    """Samples of p(I | y, l) by Pyro; before the first glimpse, images of the bank. A `Completion`.

    `diagnostics` of its completions: the share of accepted moves, and the largest R-hat of the mean colours of 4 x 4
    cells between and within chains; their mean effective sample size is `effective`.
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
        if images.shape[1:3] != (height, width):
            raise InputError(
                f"The images are {tuple(images.shape[1:3])} px, but the generator's are {(height, width)} px; build a "
                "bank for this task."
            )
        if not pixels.shape[1]:
            return prior(self.bank, number, config=self.config, seed=self.seed)
        images = images.to(device)
        seen = mask(pixels.to(device), glimpse=self.glimpse, height=height, width=width)
        parts = [self._of(images[b], seen[b], id=id, step=pixels.shape[1]) for b, id in enumerate(ids)]
        pools, sizes, accepted, rhat = zip(*parts)
        told = {"acceptance": torch.tensor(accepted), "rhat": torch.tensor(rhat)}
        size = torch.tensor(sizes, device=device)
        return replace(unweighted(torch.cat(pools), number), effective=size, diagnostics=told)

    def _of(
        self, image: UInt8[Tensor, "H W 3"], seen: Bool[Tensor, "H W"], *, id: str, step: int
    ) -> tuple[UInt8[Tensor, "N H W 3"], float, float, float]:
        """Completions of one image, their effective number, the share of accepted moves, and R-hat."""
        config, device = self.config.hmc, image.device
        keys = bits(key(self.seed, "completion/hmc", id, step), torch.arange(config.chains, device=device))
        each = -(-self.config.kept // config.chains)
        observed = seen[..., None].expand(image.shape).flatten()
        target = normalise(image[None], self.bank.pca.centre, self.bank.pca.scale)[0, observed]
        chains, moved = [], []
        for own in keys.split(1):
            start = normal(own, self.generator.latent)[0]
            samples = self._chain(own, start, observed, target, samples=each)
            before = torch.cat([start[None], samples])
            moved.append(float((before.diff(dim=0).abs().amax(1) > 0).float().mean()))
            chains.append(self._pictures(samples, own))
        pictures = torch.stack(chains)  # chains, each, H W 3
        size, rhat = _mixing(pictures)
        # one of each chain in turn, so that those that are left out are not all of one
        return pictures.transpose(0, 1).flatten(0, 1)[: self.config.kept], size, sum(moved) / len(moved), rhat

    def _chain(
        self,
        own: Int64[Tensor, 1],
        start: Float32[Tensor, " latent"],
        observed: Bool[Tensor, " P"],
        target: Float32[Tensor, " o"],
        *,
        samples: int,
    ) -> Float32[Tensor, "n latent"]:
        """Samples of one chain, after its warm-up."""
        pyro, config, device = _pyro(), self.config.hmc, start.device
        normal_ = pyro.distributions.Normal

        def model() -> None:
            z = pyro.sample("z", normal_(torch.zeros_like(start), 1.0).to_event(1))
            shown = self._normalised(z[None], own)[0, observed]
            pyro.sample("y", normal_(shown, config.noise).to_event(1), obs=target)

        if config.nuts:
            kernel = pyro.infer.NUTS(model, step_size=config.step_size)
        else:
            fixed = {"adapt_step_size": False, "adapt_mass_matrix": False}
            kernel = pyro.infer.HMC(model, step_size=config.step_size, num_steps=config.steps, **fixed)
        run = pyro.infer.MCMC(
            kernel, num_samples=samples, warmup_steps=config.warmup, initial_params={"z": start}, disable_progbar=True
        )
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.manual_seed(int(own[0]) & (2**63 - 1))
            run.run()
        return run.get_samples()["z"]

    def _normalised(self, z: Float32[Tensor, "n latent"], keys: Int64[Tensor, " n"]) -> Float32[Tensor, "n P"]:
        """Normalised pixels of the generator's images, as a bank's PCA has them."""
        pca = self.bank.pca
        centre, scale = (torch.tensor(values, device=z.device)[:, None, None] for values in (pca.centre, pca.scale))
        images = (self.generator.decode(z, keys).float() + 1) / 2
        return ((images - centre) / scale).permute(0, 2, 3, 1).flatten(1)

    @torch.no_grad()
    def _pictures(self, samples: Float32[Tensor, "n latent"], own: Int64[Tensor, 1]) -> UInt8[Tensor, "n H W 3"]:
        parts = [self.generator.decode(some, own.expand(len(some))) for some in samples.split(_TOGETHER)]
        return as_pictures(torch.cat(parts))


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
        within = stats.split_gelman_rubin(cells)
        rhat = float(torch.where(within.isnan(), 1.0, within).max())  # NaN: nothing moves, as in a cell of one colour
    return min(size, float(total)), rhat


def _pyro() -> Any:
    try:
        import pyro
        import pyro.infer
        import pyro.ops.stats
    except ImportError:
        raise InputError('The completion hmc needs Pyro; install it with pip install "nogs[hmc]".') from None
    return pyro
