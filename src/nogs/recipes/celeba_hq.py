"""CelebA-HQ, as in section 5 of the paper: 40 attributes, one network for each, five 16 px glimpses of 224 px."""

from nogs.attention.config import AttentionConfig
from nogs.bank.config import BankConfig
from nogs.completion.config import CompletionConfig
from nogs.data.augment import AugmentConfig
from nogs.data.config import CELEBA_HQ
from nogs.design.config import DesignConfig
from nogs.plus.config import PlusConfig
from nogs.posterior.config import PosteriorConfig
from nogs.recipes.recipe import Recipe
from nogs.whole.config import WholeConfig

RECIPE = Recipe(
    name="celeba-hq",
    glimpses=5,
    published="celeba-hq",
    data=CELEBA_HQ,
    posterior=PosteriorConfig(
        token=8,
        stem="conv",
        width=256,
        layers=9,
        heads=4,
        dropout=0.05,
        overlapping=0.2,
        augment=AugmentConfig(colour=0.15),  # it overfits to colours
        optimizer="muon",
        learning_rate=2e-3,
        weight_decay=0.05,
        clip=1,
        schedule="cosine",
        warmup=200,
        batch=2_304,
        iterations=10_000,
        validate_every=400,
    ),
    # the faces are aligned: shifted ones lose what a location means
    bank=BankConfig(count=100_000, shift=0),
    # with the paper's v alone, a bank of this size gives a handful of completions
    completion=CompletionConfig(proposal="tuned", least_effective=80),
    design=DesignConfig(images=120, stride=4, slack=1, batch=8064),
    whole=WholeConfig(iterations=3_000, batch=256, width=32),
    attention=AttentionConfig(),
    # further training overfits the core, and no head beat the fixed order, so little time is spent on one
    plus=PlusConfig(iterations=200, batch=64, candidates=16, core_rate=0, learning_rate=3e-4, validate_every=100),
)
