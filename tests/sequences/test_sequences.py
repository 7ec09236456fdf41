from dataclasses import replace

import numpy as np
import pytest

from nogs.runtime.errors import InputError


def test_indices_are_row_major_places_on_the_grid(sequences):
    by_hand = [[(row // 4) * 7 + column // 4 for row, column in steps] for steps in sequences.locations.tolist()]
    assert sequences.indices().tolist() == by_hand
    assert sequences.indices().dtype == np.int64


def test_locations_are_looked_up_by_image(sequences):
    assert len(sequences) == 3
    assert (sequences.by_id("b.png") == sequences.locations[1]).all()
    assert sequences.rows(["ü/c.png", "a.png"]).tolist() == [2, 0]
    with pytest.raises(InputError, match=r"Image 'z\.png' of task 'toy' has no glimpse sequence"):
        sequences.by_id("z.png")


def test_subset_keeps_what_belongs_to_each_image_in_the_order_asked_for(sequences):
    part = sequences.subset(["ü/c.png", "a.png"])
    assert part.ids == ("ü/c.png", "a.png")
    for name in ("locations", "entropy_before", "epe", "epe_error"):
        assert (getattr(part, name) == getattr(sequences, name)[[2, 0]]).all()
    assert (part.task, part.attribute, part.grid, part.provenance) == (
        sequences.task,
        sequences.attribute,
        sequences.grid,
        sequences.provenance,
    )


def test_arrays_that_contradict_each_other_are_refused(sequences):
    with pytest.raises(InputError, match="not on the grid"):
        replace(sequences, locations=sequences.locations + 1)
    with pytest.raises(ValueError, match="Locations must be int64"):
        replace(sequences, length=3)
    with pytest.raises(ValueError, match="'epe' must hold finite floats"):
        replace(sequences, epe=np.full((3, 2), np.nan))
    with pytest.raises(ValueError, match="1 ids name an image"):
        replace(sequences, ids=("a.png", "a.png", "b.png"))
