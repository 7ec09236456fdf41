"""Networks, banks and iterations for your own pictures: on a CPU or a GPU, with or without pretrained features."""

from __future__ import annotations

import math

from nogs.data.folder import Survey
from nogs.recipes.choices import Choices

__all__ = ["CPU_SIDE", "SIDES", "for_cpu", "for_gpu", "least_batch"]

SIDES = (32, 48, 64, 96, 128, 224)
"""Sides that pictures are prepared at, in px."""
CPU_SIDE = 64
"""The largest side for a CPU whose speed was not measured."""
_LEAST = 200  # training iterations


def least_batch(pick: Choices) -> int:
    """The least batch of the posterior: one image for each number of glimpses."""
    known = {choice.field: choice.value for choice in pick.made} | pick.given
    return int(max(known["glimpses"], known.get("posterior.train_glimpses") or 0)) + 1


def _batch(pick: Choices, seen: Survey, *, most: int, why: str) -> int:
    """Images in a batch of the posterior: a quarter of the training images, but not too few or more than `most`."""
    quarter, least = seen.training // 4, least_batch(pick)
    batch = min(most, max(16, quarter))
    if batch < least:
        batch, why = least, "one image for each number of glimpses"
    elif batch == 16 > quarter:
        why = "no fewer, though it is more than a quarter of the training images"
    elif batch < most:
        why = "a quarter of the training images"
    return int(pick("posterior.batch", batch, why))


def _iterations(pick: Choices, seen: Survey, iterations: int) -> int:
    """Iterations of the posterior, explained as epochs of the images that train one of its networks."""
    images = max(1, seen.training - min(pick["data.annotated"], seen.training // 2))
    folds = pick.given.get("posterior.folds", 1)
    images = max(1, images - images // folds if folds > 1 else images)
    batch = min(pick["posterior.batch"], images)
    iterations = min(pick.scaled(iterations), _enough(images, batch, epochs=250))
    rounds = iterations * batch // images
    why = f"{_most(pick)}{rounds} rounds of the images that train the posterior"
    return int(pick("posterior.iterations", iterations, why))


def _validations(pick: Choices, iterations: int, *, number: int) -> None:
    """About `number` validations, at most one per iteration."""
    every = max(1, iterations // number)
    count = -(-iterations // every)
    why = f"{_most(pick)}{count} validations, of which the best counts" if count > 1 else "one validation, at the end"
    pick("posterior.validate_every", every, why)


def _enough(images: int, batch: int, *, epochs: int) -> int:
    """Iterations after which few images are overfitted; more time does not help."""
    return max(_LEAST, epochs * images // batch)


def _most(pick: Choices) -> str:
    return "" if pick.given.get("posterior.seconds") is None else "at most "


def for_cpu(pick: Choices, seen: Survey, glimpse: int, features: str | None) -> None:
    """Networks and numbers for which two cores need less than an hour."""
    pick("glimpses", 4, "each glimpse is one more search for every annotated image")
    few = "; features take seconds for each" if features else ""
    annotated = min(400 if features is None else 100, seen.training // 5)
    pick("data.annotated", annotated, f"images that get a sequence{few}; the others train the posterior")
    if features is None:
        pick("posterior.train_glimpses", 8, "small networks learn faster with more glimpses than needed")
        batch = _batch(pick, seen, most=128, why="as much as a core does at once")
        iterations = _iterations(pick, seen, min(max(1500, 150 * seen.training // batch), 6000))
        network = "a small network"
        pick("posterior.stem", "conv", network)
        pick("posterior.token", glimpse, "one token a glimpse")
        pick("posterior.width", 96, network)
        pick("posterior.learning_rate", 1e-3 if pick.given.get("posterior.kind") == "cnn" else 4e-3, network)
    else:
        batch = _batch(pick, seen, most=64, why="features take most of the time, and few pictures need few at once")
        iterations = _iterations(pick, seen, min(max(1000, 60 * seen.training // batch), 4000))
        token = pick("posterior.token", glimpse, "one token a glimpse")
        network = "ImageNet's features as they are, and a small network on top"
        _stem(pick, features, layers=7, scale=_scale(token, 4), why=network)
        pick("posterior.pretrained_rate", 0.0, network)
        pick("posterior.width", 128, network)
        pick("posterior.dropout", 0.2, network)
        pick("posterior.learning_rate", 2e-3, network)
    pick("posterior.layers", 3, network)
    pick("posterior.heads", 4, network)
    pick("posterior.warmup", iterations // 20, "a twentieth of the iterations")
    _validations(pick, iterations, number=20 if features is None else 10)
    generator = pick("bank.generator", "training-images", "a generator wants a GPU; --bank.generator trained makes one")
    trained = generator == "trained"
    count = pick("bank.count", 4_000 if trained else 10_000, "a core makes so many in a few minutes")
    pick("bank.components", max(1, min(128, count // 4)), "enough for a proposal, whose pixels are compared afterwards")
    if trained:
        small = "a small generator"
        if pick.free("bank.trained") and pick["data.image_size"] <= CPU_SIDE:
            small += ", trained in a quarter of an hour"
        elif not pick.free("bank.trained.seconds"):
            pick("bank.trained.seconds", None, "")
        pick("bank.trained.autoencoder_width", 16, small)
        pick("bank.trained.autoencoder_iterations", 1_500, small)
        pick("bank.trained.width", 128, small)
        pick("bank.trained.depth", 4, small)
        pick("bank.trained.iterations", 3_000, small)
        pick("bank.trained.batch", 32, small)
        pick("bank.trained.steps", 16, small)
    kept = pick("completion.kept", 50, "completions of each image and step")
    pick("completion.drawn", 6 * kept, "bank images whose pixels are compared for them")
    pick("completion.exact_reach", 1, "px that a bank image may be shifted")
    pick("design.images", 8, "images annotated together, and lost by a crash")
    seeing = min(pick.scaled(2_000), _enough(seen.training, 64, epochs=100))
    seeing = seeing if features is None else 3_000  # one layer on features takes seconds
    pick("whole.iterations", seeing, "enough for a small classifier of a few thousand images")
    pick("whole.seconds", None, "so that it is as good on a busy machine")
    pick("whole.pretrained_rate", 0, "ImageNet's features of whole images, where they are used, stay as they are")
    pick("attention.hidden", 128, "units of the network")
    pick("attention.embedding", 128, "units of the network")
    pick("attention.learning_rate", 1e-3, "Adam's step size")
    epochs = 60 * seen.training // 64
    pick(
        "attention.iterations",
        pick.scaled(min(max(1_000, epochs), 6_000)),
        "the horizon at which both methods are compared",
    )
    pick("attention.validate_every", 50, "iterations between validations")
    plus = "a few minutes of PS-NOGS+"
    pick("plus.iterations", pick.scaled(400 if features is None else 600), plus)
    pick("plus.batch", 32 if features is None else 64, plus)
    pick("plus.candidates", 3 if features is None else 4, plus)
    pick("plus.core_rate", 1e-3 if features is None else 5e-4, plus)
    pick("plus.learning_rate", 2e-3 if features is None else 1e-3, plus)
    pick("plus.average", 0.0 if features is None else 0.98, plus)
    pick("plus.validate_every", 50, plus)


def _stem(pick: Choices, features: str, *, layers: int, scale: int, why: str) -> None:
    pick("posterior.weights", features, why)
    pick("posterior.stem", "vgg", why)
    pick("posterior.stem_layers", layers, why)
    pick("posterior.stem_scale", scale, why)


def _scale(token: int, stride: int) -> int:
    """How many times a token is enlarged, so that features which are `stride` px apart divide it."""
    return stride // math.gcd(token, stride)


def for_gpu(pick: Choices, seen: Survey, glimpse: int, features: str | None) -> None:
    """Networks and numbers that keep a GPU busy for minutes to an hour."""
    pick("glimpses", 5, "as in the paper")
    pick("data.annotated", min(1_000, seen.training // 5), "images that get a sequence; others train the posterior")
    batch = _batch(pick, seen, most=512 if features is None else 156, why="keeps the GPU busy")
    rounds = seen.training / batch  # iterations per epoch
    most = min(4_000, int((250 if features is None else 100) * rounds))
    iterations = _iterations(pick, seen, min(max(1_500, most, int(60 * rounds)), 40_000))
    halved = glimpse % 2 == 0
    token = pick(
        "posterior.token", glimpse // 2 if halved else glimpse, f"{'four tokens' if halved else 'one token'} a glimpse"
    )
    if features is None:
        pick("posterior.stem", "conv", "convolutions learn edges faster than one matrix")
        own = not pick.free("posterior.width", "posterior.layers", "posterior.kind")
        network = f"{'as for ' if own else ''}a network of some 10 million weights"
        width, layers, heads = 384, 6, 6
    else:
        network = "ImageNet's features and a training that keeps them, as for the recipe cub"
        deep = 2 * token % 16 == 0
        _stem(pick, features, layers=12 if deep else 7, scale=2 if deep else _scale(token, 4), why=network)
        pick("posterior.frozen", 2, network)
        pick("posterior.pretrained_rate", 0.2, network)
        pick("posterior.optimizer", "adam", network)
        pick("posterior.learning_rate", 5e-4, network)
        pick("posterior.dropout", 0.3, network)
        pick("posterior.smoothing", 0.1, network)
        pick("posterior.average", 0.998, network)
        width, layers, heads = 512, 3, 8
    pick("posterior.width", width, network)
    pick("posterior.layers", layers, network)
    pick("posterior.heads", heads, network)
    pick("posterior.warmup", min(500, iterations // 8), "iterations in which the step size rises")
    _validations(pick, iterations, number=40)
    few = seen.training < 2_000
    why = f"{seen.training:,} training images are too few to train a generator" if few else "trained on these images"
    generator = pick("bank.generator", "training-images" if few else "trained", why)
    pick("bank.count", 50_000, "more find closer completions, and cost little on a GPU")
    if generator == "trained":
        many = seen.training >= 20_000
        time = f"ten minutes for {seen.training:,} images" if many else "two to three minutes of training"
        pick("bank.trained.seconds", 600 if many else 150, f"{time}; at most a third of it is the autoencoder's")
        own = not pick.free("bank.trained.width", "bank.trained.depth")
        narrow = f"{'a narrow generator' if own else '22 million weights'}, so that many steps fit in this time"
        pick("bank.trained.width", 384, narrow)
        pick("bank.trained.depth", 8, narrow)
        pick("bank.trained.steps", 16, "from noise to an image; more cost as much time as they have steps")
        pick("bank.batch", 512, "images generated together keep the GPU busy")
    pick("design.images", 64, "images annotated together")
    pick("whole.width", 32, "channels of the classifier of whole images")
    pick("attention.hidden", 256, "units of the network")
    pick("attention.embedding", 256, "units of the network")
    epochs = 150 * seen.training // 64
    pick(
        "attention.iterations",
        pick.scaled(min(max(6_000, epochs), 20_000)),
        "the horizon at which both methods are compared",
    )
    if features is not None:
        pick("plus.core_rate", 0.0, "ImageNet's features stay as they are")
