"""The fields of a hard-attention experiment: architecture, objective, schedule."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from nogs.data.augment import AugmentConfig


class AttentionConfig(BaseModel):
    """Hard-attention network and its training; the defaults are the paper's for CelebA-HQ."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    embedder: Literal["paper", "release", "vgg"] = "paper"
    """Glimpse embedder: the paper's for CelebA-HQ, the network of the authors' code, or the paper's for CUB, which is
    the first layers of a VGG."""
    embedder_network: Literal["vgg16", "vgg19"] = "vgg16"
    """vgg: which VGG."""
    embedder_layers: Literal[10, 12] = 12
    """vgg: how many of its first convolutions. If a block ends with them, its pool is used too: block 4 ends after 10
    in VGG-16 and after 12 in VGG-19."""
    weights: str = "imagenet"
    """vgg: imagenet (a file in the data folder, else torchvision's), a safetensors file with torchvision's names, or
    none."""
    hidden: int = Field(64, ge=1)
    """Units of the GRU."""
    embedding: int = Field(64, ge=1)
    """Size of the RNN's input."""
    initial_state: Literal["normal", "zeros"] = "normal"
    """Initial value of the GRU's learned first state: a standard normal draw, or zeros, from which the first location
    hardly learns."""

    supervision_weight: float = Field(1.0, ge=0)
    """Weight of the supervised sequences' log-likelihood: 1 is the paper's objective, 64 the release's."""

    learning_rate: float = Field(3e-4, gt=0)
    """Adam's step size."""
    location_rate: float = Field(1.0, gt=0)
    """Step size of the location network and the baseline, as a multiple of `learning_rate`: 1 is the paper's. With
    small initial states, a policy hardly moves at a small step size."""
    batch: int = Field(64, ge=1)
    """Images per iteration."""
    iterations: int = Field(30_000, ge=1)
    """Training iterations, the same for all methods that are compared."""
    flip: bool = True
    """Mirror half of the images, except those that have a sequence."""
    validate_every: int = Field(100, ge=1)
    """Iterations between validations."""
    trajectories: int = Field(5, ge=1)
    """Sampled glimpse sequences per image at evaluation."""
    convergence: Literal["nll", "accuracy"] = "nll"
    """Rule for iterations to convergence: first NLL within 0.01 nats of the best, or accuracy within 1 % of it."""
    save_every: int = Field(10, ge=1)
    """Validations between two saved states to resume from."""
    precision: Literal["auto", "float32"] = "auto"
    """Arithmetic on GPUs; auto is TF32 for matrix products and bfloat16 for the convolutions of vgg."""

    pretrain_epochs: int = Field(0, ge=0)
    """Epochs of pretraining of embedder, RNN and classifier, with locations of a fixed distribution (uniform for ram,
    the heuristic for most others). Their best version is then frozen while the location network learns. 0: no
    pretraining, all parts learn together."""
    pretrain_patience: int | None = Field(None, ge=1)
    """Validations without a better accuracy after which pretraining ends; by default it runs to its last epoch."""
    pretrain_seconds: float | None = Field(None, gt=0)
    """Limit of each pretraining in seconds. Such a run can't be repeated to the bit."""
    pretrain_learning_rate: float | None = Field(None, gt=0)
    """Adam's step size in pretraining; by default `learning_rate`."""
    pretrain_schedule: Literal["constant", "cosine"] = "constant"
    """Step size of pretraining: constant, or a cosine to zero over `pretrain_epochs` or `pretrain_seconds`, whichever
    ends sooner."""
    pretrain_dropout: float = Field(0.0, ge=0, lt=1)
    """Share of each glimpse embedding's numbers that are dropped in pretraining."""
    pretrain_smoothing: float = Field(0.0, ge=0, lt=1)
    """Share of a label's probability that pretraining spreads over all labels (label smoothing)."""
    pretrain_average: float = Field(0.0, ge=0, lt=1)
    """Decay of a running average of the weights, which is validated and kept instead of the weights; 0: no average."""
    pretrain_augment: AugmentConfig = AugmentConfig()
    """Random changes of the images in pretraining."""
    pretrain_abreast: int = Field(1, ge=1)
    """Networks that are pretrained at once, each on its own CUDA stream; this does not change the result."""
    cache: Literal["auto", "always", "never"] = "auto"
    """After pretraining, keep the embedding of every glimpse of every image in memory: never, always, or if they fit
    and training looks at more glimpses than there are."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        part = (self.embedder_network, self.embedder_layers)
        if self.embedder != "vgg" and part != ("vgg16", 12):
            raise ValueError(
                f"attention.embedder_network and attention.embedder_layers are for the vgg embedder, but "
                f"attention.embedder is {self.embedder}; set it to vgg or leave them out."
            )
        if part == ("vgg19", 10):
            raise ValueError(
                "attention.embedder_layers 10 ends inside a block of VGG-19; set it to 12, or "
                "attention.embedder_network to vgg16."
            )
        return self
