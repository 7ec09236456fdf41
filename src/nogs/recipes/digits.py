"""The embedded task: which handwritten digit lies among the clutter? Four 12 px glimpses of 64 px.

RAM tells about two thirds of the test digits after a minute and a half on two CPU cores, against a tenth by guessing.
"""

from nogs.attention.config import AttentionConfig
from nogs.data.config import DataConfig
from nogs.posterior.config import PosteriorConfig
from nogs.recipes.recipe import Recipe

RECIPE = Recipe(
    name="digits",
    glimpses=4,
    data=DataConfig(kind="digits", image_size=64, glimpse=12, grid_spacing=4),
    posterior=PosteriorConfig(
        flip=False,
        locations="grid",
        width=64,
        layers=3,
        heads=4,
        learning_rate=2e-3,
        weight_decay=0.05,
        schedule="cosine",
        warmup=50,
        batch=256,
        iterations=1000,
        validate_every=100,
    ),
    attention=AttentionConfig(
        flip=False,  # a mirrored digit is another character
        scales=2,  # the surroundings at half resolution tell strokes of the digit from clutter, and where to go on
        learning_rate=2e-3,
        iterations=2500,
        validate_every=250,
        save_every=2,
    ),
)
