"""The paper's AVP-CNN (figure 3): an image classifier of the observed pixels, with the mask as a fourth channel."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor, nn

from nogs.glimpse import Grid, mask
from nogs.glimpse.changes import Changes, changed
from nogs.posterior.config import PosteriorConfig
from nogs.posterior.imagenet import Normalise, load_into, read_weights
from nogs.posterior.labels import Float32Linear
from nogs.runtime.errors import InputError
from nogs.runtime.spelling import instead


class MaskedCNN(nn.Module):
    """A torchvision backbone whose first layer reads RGB times mask, and the mask, and whose last layer is new."""

    def __init__(self, config: PosteriorConfig, *, grid: Grid, outputs: int) -> None:
        super().__init__()
        self.grid, self.config = grid, config
        self.normalise = Normalise()
        network = _backbone(config.backbone)
        self.original = set(network.state_dict())
        self.first = _replace_first(network)
        self.last = _pool(network, outputs) if config.pooled else _replace_last(network, outputs)
        self.network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._check(outputs)

    def load(self, source: str) -> set[str]:
        """Load ImageNet weights except for the last layer; returns the names of the parameters that were loaded."""

        def adapt(name: str, tensor: Tensor) -> Tensor:
            # the mask's channel starts at zero: the network first gets the input that it was trained on
            return torch.cat([tensor, torch.zeros_like(tensor[:, :1])], 1) if name == f"{self.first}.weight" else tensor

        weights = read_weights(source, architecture=self.config.backbone)
        if self.config.pooled:
            weights = {
                name: t for name, t in weights.items() if name in self.network.state_dict() or name not in self.original
            }
        loaded = load_into(
            self.network,
            weights,
            source=source,
            adapt=adapt,
            free=(f"{self.last}.",),
            partial=self.config.partial,
        )
        return {f"network.{name}" for name in loaded}

    def read(
        self,
        images: UInt8[Tensor, "N H W 3"],
        pixels: Int[Tensor, "Q T 2"],
        index: Int[Tensor, " Q"],
        flip: Bool[Tensor, " Q"] | None = None,
        changes: Changes | None = None,
    ) -> UInt8[Tensor, "Q H W 3"]:
        """The images of the queries, or changed ones; `forward` hides what was not observed."""
        if changes is not None:
            return changed(images, changes, index=index, flip=flip)
        chosen = images.index_select(0, index)
        return chosen if flip is None else torch.where(flip[:, None, None, None], chosen.flip(2), chosen)

    def forward(
        self,
        images: UInt8[Tensor, "Q H W 3"],
        pixels: Int[Tensor, "Q T 2"],
        observed: Bool[Tensor, "Q T"],
        groups: Any = None,
    ) -> Float[Tensor, "Q O"]:
        """Logits from what `read` read; an unseen pixel is 0 after normalisation, the mean of ImageNet."""
        seen = mask(
            pixels, glimpse=self.grid.glimpse, height=self.grid.height, width=self.grid.width, observed=observed
        )
        shown = seen[..., None].float()
        masked = torch.cat([self.normalise(images) * shown, shown], -1)
        return self.network(masked.permute(0, 3, 1, 2))

    def prepare(
        self,
        images: UInt8[Tensor, "N H W 3"],
        pixels: Int[Tensor, "Q P 2"],
        index: Int[Tensor, " Q"],
        flip: Bool[Tensor, " Q"] | None = None,
    ) -> Int[Tensor, " Q"]:
        """Nothing can be shared: one more glimpse changes every feature map."""
        return index

    def extend(
        self,
        prepared: Int[Tensor, " B"],
        images: UInt8[Tensor, "B H W 3"],
        pixels: Int[Tensor, "B P1 2"],
        observed: Bool[Tensor, "B P1"],
    ) -> Float[Tensor, "B O"]:
        """Logits after all of `pixels`."""
        return self.forward(images, pixels, observed)

    def _check(self, outputs: int) -> None:
        """Refuse a backbone that needs larger images, or that is not a plain classifier."""
        blank = torch.zeros(2, 4, self.grid.height, self.grid.width)
        if blank.is_meta:  # only the shapes of the weights are needed
            return
        mode = self.network.training
        try:
            with torch.no_grad():
                found = self.network.eval()(blank)
        except (RuntimeError, AssertionError) as error:
            raise InputError(
                f"The backbone {self.config.backbone!r} can't read images of {self.grid.height} x {self.grid.width} px "
                f"({str(error).splitlines()[0]}); choose another posterior.backbone."
            ) from error
        finally:
            self.network.train(mode)
        if not isinstance(found, Tensor) or found.shape != (2, outputs):
            raise InputError(f"The backbone {self.config.backbone!r} is not a plain classifier; choose another one.")


def _backbone(name: str) -> nn.Module:
    from torchvision.models import get_model, list_models

    known = list_models(include="*", exclude="quantized_*")
    if name not in known:
        meant = instead(name, known, otherwise="it has densenet121, resnet18, vgg16 and others.")
        raise InputError(f"torchvision has no model {name!r} for posterior.backbone; {meant}")
    # these two would warn about their slow initialisation
    options = {"init_weights": True} if name in ("googlenet", "inception_v3") else {}
    return get_model(name, weights=None, **options)


def _replace_first(network: nn.Module) -> str:
    """Give the first convolution a fourth input channel that starts at zero; returns its name."""
    name, old = next((name, m) for name, m in network.named_modules() if isinstance(m, nn.Conv2d))
    new = nn.Conv2d(
        old.in_channels + 1,
        old.out_channels,
        old.kernel_size,  # type: ignore[arg-type]
        stride=old.stride,  # type: ignore[arg-type]
        padding=old.padding,  # type: ignore[arg-type]
        bias=old.bias is not None,
    )
    with torch.no_grad():
        new.weight.copy_(torch.cat([old.weight, torch.zeros_like(old.weight[:, :1])], 1))
        if old.bias is not None and new.bias is not None:
            new.bias.copy_(old.bias)
    network.set_submodule(name, new)
    return name


def _replace_last(network: nn.Module, outputs: int) -> str:
    """Replace the last layer; returns its name."""
    found = [(name, module) for name, module in network.named_modules() if isinstance(module, nn.Linear)]
    if not found:
        raise InputError("This posterior.backbone does not end in a linear layer; choose another one or set pooled.")
    name, old = found[-1]
    network.set_submodule(name, Float32Linear(old.in_features, outputs))
    return name


def _pool(network: nn.Module, outputs: int) -> str:
    """Replace the backbone's classifier by the mean of the last feature map and one new layer; returns its name."""
    features = getattr(network, "features", None)
    if features is None or not hasattr(network, "classifier"):
        raise InputError("posterior.pooled is for backbones with features and a classifier, such as vgg16.")
    channels = [
        m.num_features if isinstance(m, nn.BatchNorm2d) else m.out_channels
        for m in features.modules()
        if isinstance(m, nn.Conv2d | nn.BatchNorm2d)
    ][-1]
    network.classifier = Float32Linear(channels, outputs)
    if hasattr(network, "avgpool"):
        network.avgpool = nn.AdaptiveAvgPool2d(1)
    return "classifier"
