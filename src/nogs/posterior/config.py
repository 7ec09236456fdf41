"""The fields of a posterior: which network, its size, its training."""

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
    """cnn: classify the mean of the last feature map; else the backbone's own classifier with its last layer new."""
    weights: str = "none"
    """Weights to start from: none, imagenet (torchvision downloads them), or a safetensors file with torchvision's
    names; for the backbone of a cnn, or for the vgg stem of tokens."""
    partial: bool = False
    """cnn: accept a file of weights that lacks some layers, which then start at random."""

    token: int | None = Field(None, ge=1)
    """tokens: side of a token in pixels, which divides the glimpse; by default half a glimpse (four tokens each)."""
    stem: Literal["linear", "conv", "vgg"] = "linear"
    """tokens: how a glimpse becomes tokens: one matrix, a few convolutions, or VGG-16's first layers."""
    stem_scale: int = Field(1, ge=1, le=4)
    """tokens: the vgg stem sees the glimpse enlarged so many times. ImageNet's objects fill 224 px: features of a small
    glimpse are better where its parts are as large as theirs."""
    stem_layers: int = Field(10, ge=1, le=13)
    """tokens: convolutions of the vgg stem."""
    frozen: int = Field(0, ge=0, le=13)
    """tokens: so many first convolutions of the vgg stem keep the weights that were loaded. Early ones fit any
    photograph, and are the dearest to train."""
    width: int = Field(512, ge=8)
    """tokens: numbers a token."""
    layers: int = Field(8, ge=1)
    """tokens: transformer layers that see all glimpses."""
    heads: int = Field(8, ge=1)
    """tokens: attention heads."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """tokens: share of the residual branches' numbers that are dropped in training."""

    split: Literal["posterior", "train"] = "posterior"
    """Images that train it: those that get no sequence, or all training images. nogs annotate refuses a posterior that
    was trained on all of them."""
    locations: Literal["anywhere", "grid"] = "anywhere"
    """Where glimpses lie: at any pixel, or on the grid alone."""
    spread: float | None = Field(None, gt=0)
    """Standard deviation, in shares of the image's side, of a Gaussian around the centre from which training glimpses
    are drawn; by default they are uniform. For images with their object in the middle."""
    overlapping: float = Field(0.0, ge=0, le=1)
    """Share of the training glimpses, from the second on, that are drawn where they overlap an earlier one. Uniform
    ones (0, the paper's) seldom do on large images, and a network that knows no overlaps takes what it sees twice for
    evidence."""
    train_glimpses: int | None = Field(None, ge=1)
    """Largest number of glimpses in training; by default the recipe's T. With more, small networks learn sooner."""
    attributes: bool = True
    """Learn the auxiliary attributes of the images beside their labels, where a task has some."""
    flip: bool = True
    """Mirror half of the training images."""
    augment: AugmentConfig = AugmentConfig()
    """Random changes of the training images."""
    smoothing: float = Field(0.0, ge=0, lt=1)
    """Share of a label's probability that training spreads over all values (label smoothing)."""
    teacher: str | None = None
    """A trained posterior of the same data and splits (file or published name) whose answers are learned as well as the
    labels. One that is itself cross-fitted with K folds teaches a posterior of K folds network by network, so that what
    a network leaves out its teacher has not seen either; a single network it teaches about each image through the one
    of its K that has not seen it, for which all K are asked: K times the teacher's cost."""
    teacher_weight: float = Field(0.5, ge=0, le=1)
    """Share of the loss that the teacher's answers have."""
    start: str | None = None
    """A trained posterior of the same architecture (file or published name) whose weights training begins with."""
    folds: int = Field(1, ge=1)
    """Networks to train, each without its share of the images, so that the design asks about an image of the bank one
    that has not seen it: the remedy where a bank of training images is known by heart."""

    batch: int = Field(64, ge=1)
    """Images an iteration; each number of glimpses 0..T has its equal part of them."""
    iterations: int = Field(100_000, ge=1)
    """Training iterations, which the learning rate's schedule spans."""
    seconds: float | None = Field(None, gt=0)
    """Train for so many seconds at most; a falling step size reaches zero by then. Such a run can't be repeated to the
    bit."""
    optimizer: Literal["adam", "muon"] = "adam"
    """Adam for all weights, or Muon for the matrices of the transformer's layers, which learn sooner."""
    learning_rate: float = Field(1e-4, gt=0)
    """Adam's largest step size; Muon's steps are as long."""
    pretrained_rate: float = Field(1.0, ge=0)
    """Factor on the step size of weights that were loaded; 0 leaves them as they are."""
    schedule: Literal["constant", "cosine"] = "constant"
    """Step size after the warm-up: constant, or falling to zero as a cosine."""
    warmup: int = Field(0, ge=0)
    """Iterations in which the step size rises from zero."""
    weight_decay: float = Field(0.0, ge=0)
    """Decoupled weight decay (AdamW) of matrices; biases, norms and embeddings are left alone."""
    average: float = Field(0.0, ge=0, lt=1)
    """Decay of a running average of the weights, which is validated after calibration and kept in place of the weights
    themselves; 0 averages nothing."""
    clip: float | None = Field(None, gt=0)
    """Largest norm of the gradient; by default any."""
    validate_every: int | None = Field(None, ge=1)
    """Iterations between validations; by default an epoch."""
    precision: Literal["auto", "float32", "tf32", "bfloat16"] = "auto"
    """Arithmetic of matrix products; auto is bfloat16 on modern GPUs and float32 elsewhere. Losses are float32."""
    compile: bool = False
    """Compile the network (torch.compile); worth its minute on a GPU, and left out on a CPU."""
    temperature: Literal["none", "glimpses"] = "glimpses"
    """Calibration on validation images: none (the paper's), or one temperature a number of glimpses."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.kind == "tokens" and self.width % self.heads:
            raise ValueError(f"width {self.width} must be a multiple of heads {self.heads}.")
        if self.folds > 1 and self.start is not None:
            raise ValueError(
                "start can't be had with folds: it may have seen the images that a fold leaves out; give only one."
            )
        if self.spread is not None and self.locations == "grid":
            raise ValueError("spread draws from all pixel positions, so locations must be anywhere.")
        if self.folds > 1 and self.split == "train":
            raise ValueError("split train can't be had with folds, which are for annotation; give only one.")
        return self
