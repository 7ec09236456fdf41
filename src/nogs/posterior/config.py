"""The fields of a posterior: the type of its network, its size, its training."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from nogs.data.augment import AugmentConfig


class PosteriorConfig(BaseModel):
    """The posterior and its training; schedule, batch and learning rate are the paper's by default."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    kind: Literal["cnn", "tokens"] = "tokens"
    """The paper's masked CNN, or a transformer over tokens of the glimpses."""

    backbone: str = "densenet121"
    """cnn: a torchvision classifier, such as densenet121, vgg16, resnet18, resnet50 or mobilenet_v2."""
    pooled: bool = False
    """cnn: classify the mean of the last feature map; by default the backbone's own classifier with a new last
    layer."""
    weights: str = "none"
    """Initial weights of a cnn's backbone or of the vgg stem of tokens: none, imagenet (torchvision downloads them), or
    a safetensors file with torchvision's names."""
    partial: bool = False
    """cnn: accept a file of weights without some layers, which then start at random."""

    token: int | None = Field(None, ge=1)
    """tokens: side of a token in pixels, a divisor of the glimpse's; by default half of it (four tokens each)."""
    stem: Literal["linear", "conv", "vgg"] = "linear"
    """tokens: how a glimpse becomes tokens: one matrix, a few convolutions, or VGG-16's first layers."""
    stem_scale: int = Field(1, ge=1, le=4)
    """tokens: factor by which the glimpse is enlarged for the vgg stem. ImageNet's objects fill 224 px, so features of
    a small glimpse are better if its parts are as large."""
    stem_layers: int = Field(10, ge=1, le=13)
    """tokens: convolutions of the vgg stem."""
    frozen: int = Field(0, ge=0, le=13)
    """tokens: number of first convolutions of the vgg stem that keep their loaded weights. Early ones suit any
    photograph and cost the most to train."""
    width: int = Field(512, ge=8)
    """tokens: width of a token."""
    layers: int = Field(8, ge=1)
    """tokens: number of transformer layers."""
    heads: int = Field(8, ge=1)
    """tokens: number of attention heads."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """tokens: dropout of the residual branches in training."""

    split: Literal["posterior", "train"] = "posterior"
    """Images that train it: those without a sequence, or all training images. nogs annotate refuses a posterior that
    was trained on all."""
    locations: Literal["anywhere", "grid"] = "anywhere"
    """Locations of training glimpses: any pixel, or only the grid."""
    spread: float | None = Field(None, gt=0)
    """Draw training glimpses from a Gaussian around the centre with this standard deviation, in shares of the image's
    side; by default they are uniform. For images with a centred object."""
    overlapping: float = Field(0.0, ge=0, le=1)
    """Share of the training glimpses, from the second on, that are drawn so that they overlap an earlier one. Uniform
    ones (0, as in the paper) seldom overlap on large images, and the network then counts pixels seen twice as more
    evidence."""
    train_glimpses: int | None = Field(None, ge=1)
    """Largest number of glimpses in training; by default the recipe's T. With more, small networks learn faster."""
    attributes: bool = True
    """Learn the images' auxiliary attributes too, if the task has some."""
    flip: bool = True
    """Mirror half of the training images."""
    augment: AugmentConfig = AugmentConfig()
    """Random changes of the training images."""
    smoothing: float = Field(0.0, ge=0, lt=1)
    """Share of a label's probability that training spreads over all values (label smoothing)."""
    teacher: str | None = None
    """A trained posterior of the same data and splits (file or published name) whose predictions are learned as well as
    the labels (distillation). A teacher with K folds teaches a posterior of K folds network by network, so that both
    leave out the same images. It teaches a single network about each image by the member that was not trained on the
    image. All K members are evaluated then, at K times the cost."""
    teacher_weight: float = Field(0.5, ge=0, le=1)
    """Share of the teacher's predictions in the loss."""
    start: str | None = None
    """A trained posterior of the same architecture (file or published name) that provides the initial weights."""
    folds: int = Field(1, ge=1)
    """Number of networks to train, each without its share of the images (cross-fitting). The design then evaluates an
    image of the bank with the network that was not trained on it. Use it with a bank of training images, which a single
    network would overfit."""

    batch: int = Field(64, ge=1)
    """Images per iteration, divided equally among the numbers of glimpses 0..T."""
    iterations: int = Field(100_000, ge=1)
    """Training iterations; the schedule of the step size spans them."""
    seconds: float | None = Field(None, gt=0)
    """Limit of the training time in seconds; a cosine schedule reaches zero by then. Such a run is not reproducible bit
    for bit."""
    optimizer: Literal["adam", "muon"] = "adam"
    """Adam for all weights, or Muon for the matrices of the transformer's layers, which then learn faster."""
    learning_rate: float = Field(1e-4, gt=0)
    """Largest step size of Adam; Muon's steps are scaled to the same size."""
    pretrained_rate: float = Field(1.0, ge=0)
    """Factor on the step size of loaded weights; 0 freezes them."""
    schedule: Literal["constant", "cosine"] = "constant"
    """Step size after the warm-up: constant, or a cosine to zero."""
    warmup: int = Field(0, ge=0)
    """Iterations in which the step size rises from zero."""
    weight_decay: float = Field(0.0, ge=0)
    """Decoupled weight decay (AdamW) of matrices; biases, norms and embeddings don't decay."""
    average: float = Field(0.0, ge=0, lt=1)
    """Decay of a running average of the weights, which is validated after calibration and kept instead of the weights;
    0 means no average."""
    clip: float | None = Field(None, gt=0)
    """Largest norm of the gradient; by default no limit."""
    validate_every: int | None = Field(None, ge=1)
    """Iterations between validations; by default an epoch."""
    precision: Literal["auto", "float32", "tf32", "bfloat16"] = "auto"
    """Precision of matrix products; auto is bfloat16 on modern GPUs and float32 elsewhere. Losses are float32."""
    compile: bool = False
    """Compile the network with torch.compile, which takes a minute; only on a GPU."""
    temperature: Literal["none", "glimpses"] = "glimpses"
    """Calibration on validation images: none (as in the paper), or a temperature for each number of glimpses."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.kind == "tokens" and self.width % self.heads:
            raise ValueError(f"width {self.width} must be a multiple of heads {self.heads}.")
        if self.folds > 1 and self.start is not None:
            raise ValueError(
                "start can't be used with folds: it may have seen the images that a fold leaves out; give only one."
            )
        if self.spread is not None and self.locations == "grid":
            raise ValueError("spread draws from all pixel positions, so locations must be anywhere.")
        if self.folds > 1 and self.split == "train":
            raise ValueError("split train can't be used with folds, which are for annotation; give only one.")
        return self
