"""The embedded task: handwritten digits among clutter, four 12 px glimpses of 48 px, a quarter of the image.

Made for `nogs demo`: every stage takes about a minute on one CPU core. PS-NOGS+ reaches 73 % test accuracy, PS-NOGS
64 % and RAM 57 % (three seeds). The settings were chosen by validation accuracy and training time.
"""

from nogs.attention.config import AttentionConfig
from nogs.bank.config import BankConfig
from nogs.completion.config import CompletionConfig
from nogs.data.config import DataConfig
from nogs.design.config import DesignConfig
from nogs.plus.config import PlusConfig
from nogs.posterior.config import PosteriorConfig
from nogs.recipes.recipe import Recipe
from nogs.whole.config import WholeConfig

RECIPE = Recipe(
    name="digits",
    glimpses=4,
    data=DataConfig(kind="digits", image_size=48, glimpse=12, grid_spacing=4, annotated=400),
    posterior=PosteriorConfig(
        flip=False,  # a mirrored digit is another character
        locations="grid",
        token=12,  # one per glimpse: a quarter of the work of four, and as good after convolutions
        stem="conv",
        width=64,
        layers=2,
        heads=4,
        learning_rate=2e-3,
        weight_decay=0.05,
        schedule="cosine",
        warmup=50,
        train_glimpses=12,  # four glimpses seldom show enough of the digit to learn from
        batch=192,
        iterations=800,
        validate_every=200,
    ),
    bank=BankConfig(
        generator="digits",
        count=10_000,
        components=128,
        pixel_mean=(0.2, 0.2, 0.2),
        pixel_std=(0.25, 0.25, 0.25),
    ),
    completion=CompletionConfig(
        drawn=300,
        kept=50,
        prior=400,
        temperatures=(40.0, 60.0, 80.0),
        proposal="tuned",
        flips=False,
        proposal_reach=0,
        exact_reach=0,
    ),
    design=DesignConfig(images=16, keep_maps=True),
    whole=WholeConfig(iterations=400),
    attention=AttentionConfig(
        flip=False,
        hidden=128,
        embedding=128,
        supervision_weight=16,  # one image in twenty has a sequence
        learning_rate=2e-3,
        iterations=2_500,
        validate_every=125,
        save_every=2,
    ),
    plus=PlusConfig(iterations=700, batch=64, candidates=4, core_rate=1e-3, learning_rate=2e-3, validate_every=100),
)
