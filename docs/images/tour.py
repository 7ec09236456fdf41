"""Writes the pictures of the tour into tour/ beside it, from a run of the embedded task that has its report.

    python docs/images/tour.py runs/demo

Only the embedded task may be shown here: no photograph of a research dataset is committed.
"""

import sys
from pathlib import Path

from PIL import Image

from nogs.recipes import recipe

FIGURES = ("posterior", "completions", "walk-through", "epe", "sequences", "curves", "where", "pixels")


def main(run: Path) -> None:
    """Copy the figures, with a palette each, which halves them."""
    if recipe(run / "recipe.yaml").data.kind != "digits":
        sys.exit(f"{run} is not a run of the embedded task.")
    place = Path(__file__).with_name("tour")
    place.mkdir(exist_ok=True)
    for name in FIGURES:
        picture = Image.open(run / "report" / f"{name}.png").convert("RGB")
        picture.quantize(256, dither=Image.Dither.NONE).save(place / f"{name}.png", optimize=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
