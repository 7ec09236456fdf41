"""A folder of pictures of your own: class folders, or images and a CSV of labels; five 24 px glimpses of 128 px."""

from nogs.attention.config import AttentionConfig
from nogs.bank.config import BankConfig
from nogs.completion.config import CompletionConfig
from nogs.data.config import DataConfig
from nogs.design.config import DesignConfig
from nogs.posterior.config import PosteriorConfig
from nogs.recipes.recipe import Recipe

RECIPE = Recipe(
    name="folder",
    glimpses=5,
    data=DataConfig(kind="folder", image_size=128, glimpse=24, grid_spacing=8),
    posterior=PosteriorConfig(
        token=8,
        width=256,
        layers=6,
        dropout=0.1,
        learning_rate=5e-4,
        weight_decay=0.05,
        clip=1,
        schedule="cosine",
        warmup=500,
        batch=256,
        iterations=20_000,
    ),
    bank=BankConfig(count=20_000),
    completion=CompletionConfig(proposal="tuned", temperatures=(40.0, 80.0), proposal_reach=0, exact_reach=2),
    design=DesignConfig(),
    attention=AttentionConfig(),
)
