import pytest
from pydantic import ValidationError

from nogs.data import CELEBA_HQ, CUB, DataConfig
from nogs.glimpse import Grid
from nogs.runtime.fingerprint import fingerprint


def test_grids_of_the_paper() -> None:
    assert CELEBA_HQ.grid == Grid.celeba_hq()
    assert CUB.grid == Grid.cub()
    assert CUB.model_copy(update={"grid_count": 12}).grid == Grid.cub(paper=True)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({}, "needs grid_count or grid_spacing"),
        ({"grid_spacing": 4, "grid_last": 10}, "grid_last and grid_spacing exclude each other"),
        ({"grid_count": 5, "glimpse": 40}, "A glimpse of 40 px does not fit into an image of 32 x 32 px"),
        ({"grid_count": 5, "test_share": 0.6, "validation_share": 0.4}, "must leave images for training"),
        ({"grid_count": 5, "colour": "red"}, "Extra inputs are not permitted"),
    ],
)
def test_contradictory_fields_are_refused(fields: dict, sentence: str) -> None:
    with pytest.raises(ValidationError, match=sentence):
        DataConfig.model_validate({"kind": "folder", "image_size": 32, "glimpse": 8} | fields)


def test_left_out_pictures_are_remembered_and_change_nothing_where_there_are_none() -> None:
    remembered = CUB.remembering(True)
    assert DataConfig.model_validate(remembered.model_dump(mode="json")) == remembered
    assert remembered.model_dump() == CUB.model_dump()  # as runs compare recipes
    assert fingerprint(remembered.remembering(False)) == fingerprint(CUB)
