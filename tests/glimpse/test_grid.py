import dataclasses
import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nogs.glimpse import Grid
from nogs.runtime.errors import InputError


@st.composite
def fields(draw):
    """Fields of a grid; the tests make it, since runtime type checks use randomness that hypothesis forbids here."""
    height, width = draw(st.integers(4, 40)), draw(st.integers(4, 40))
    glimpse = draw(st.integers(1, min(height, width)))
    rows = draw(st.sets(st.integers(0, height - glimpse), min_size=1, max_size=6))
    columns = draw(st.sets(st.integers(0, width - glimpse), min_size=1, max_size=6))
    return height, width, glimpse, tuple(sorted(rows)), tuple(sorted(columns))


def test_celeba_hq_has_the_positions_of_the_release():
    grid = Grid.celeba_hq()
    assert len(grid) == 2500
    assert grid.shape == (50, 50)
    assert grid.rows[:8] == (0, 4, 8, 12, 16, 21, 25, 29)
    assert grid.rows[-2:] == (202, 207)
    # linspace written out in whole numbers
    assert grid.rows == grid.columns == tuple(207 * i // 49 for i in range(50))


@pytest.mark.parametrize(("paper", "count"), [(False, 13), (True, 12)])
def test_cub_has_positions_8_px_apart(paper, count):
    grid = Grid.cub(paper=paper)
    assert grid.shape == (count, count)
    assert grid.rows == grid.columns == tuple(8 * i for i in range(count))
    assert (grid.height, grid.width, grid.glimpse) == (128, 128, 32)


def test_even_grid_reaches_the_last_pixel_that_fits_unless_told_otherwise():
    assert Grid.even(image=10, glimpse=4, count=3).rows == (0, 3, 6)
    assert Grid.even(image=10, glimpse=4, count=3, last=5).rows == (0, 2, 5)
    grid = Grid.even(image=(10, 20), glimpse=4, count=(2, 3))
    assert (grid.rows, grid.columns) == ((0, 6), (0, 8, 16))


def test_indices_are_row_major():
    grid = Grid(10, 20, 4, rows=(0, 6), columns=(1, 5, 16))
    assert grid.pixels.tolist() == [[0, 1], [0, 5], [0, 16], [6, 1], [6, 5], [6, 16]]
    one = Grid(4, 4, 4, rows=(0,), columns=(0,))
    assert one.pixels.tolist() == [[0, 0]]
    assert one.coordinates.tolist() == [[-1, -1]]


@given(fields())
def test_index_pixel_and_normalised_coordinates_name_the_same_location(fields):
    grid = Grid(*fields)
    assert grid.index(grid.pixels).tolist() == list(range(len(grid)))
    span = torch.tensor([max(grid.height - grid.glimpse, 1), max(grid.width - grid.glimpse, 1)])
    assert ((grid.coordinates + 1) / 2 * span).round().long().equal(grid.pixels)
    for i, row in enumerate(grid.rows):
        for j, column in enumerate(grid.columns):
            assert grid.index(torch.tensor([row, column])).item() == i * len(grid.columns) + j


def test_index_keeps_batch_axes():
    grid = Grid.cub()
    index = torch.tensor([[[0, 168], [14, 3]]])
    assert grid.index(grid.pixels[index]).equal(index)
    assert grid.index(torch.empty(0, 2, dtype=torch.long)).shape == (0,)


def test_celeba_hq_normalises_by_208():
    grid = Grid.celeba_hq()
    assert grid.normalise(torch.tensor([104, 0])).tolist() == [0, -1]
    assert grid.coordinates.max().item() == pytest.approx(207 / 208 * 2 - 1)
    assert grid.coordinates.dtype == torch.float32


@given(fields(), st.lists(st.tuples(st.floats(-9, 49), st.floats(-9, 49)), min_size=1, max_size=5))
def test_snapping_finds_the_nearest_position_of_each_axis(fields, points):
    grid = Grid(*fields)
    snapped = grid.snap(torch.tensor(points, dtype=torch.float64)).tolist()
    for point, (row, column) in zip(points, snapped):
        assert row == min(grid.rows, key=lambda position: (abs(position - point[0]), position))
        assert column == min(grid.columns, key=lambda position: (abs(position - point[1]), position))


def test_snapping_leaves_the_grid_alone_and_a_tie_goes_to_the_smaller():
    grid = Grid.cub()
    assert grid.snap(grid.pixels).equal(grid.pixels)
    assert grid.snap(torch.tensor([[4, 12], [5, 13]])).tolist() == [[0, 8], [8, 16]]


def test_off_grid_pixel_is_refused_with_its_nearest_location():
    pixels = torch.tensor([[0, 8], [3, 101]])
    sentence = (
        r"^Location \(row 3, column 101\) is not on the grid of 13 x 13 locations; the nearest one is \[0, 96\]\.$"
    )
    with pytest.raises(InputError, match=sentence):
        Grid.cub().index(pixels)


@given(fields())
def test_grid_survives_json(fields):
    grid = Grid(*fields)
    assert Grid.from_json(json.loads(json.dumps(grid.to_json()))) == grid


def test_json_with_other_fields_is_refused():
    value = Grid.cub().to_json()
    del value["rows"]
    with pytest.raises(
        InputError, match=r"A grid needs the fields \['columns', 'glimpse', 'height', 'rows', 'width'\]"
    ):
        Grid.from_json(value)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"glimpse": 129}, "A glimpse of 129 px does not fit into an image of 128 x 128 px"),
        ({"glimpse": 0}, "A glimpse of 0 px does not fit"),
        ({"rows": ()}, "The grid has no rows; give at least one position"),
        ({"columns": (8, 8)}, r"The grid's columns must increase strictly, but are \[8, 8\]"),
        ({"rows": (-1, 8)}, r"The grid's rows must lie in 0\.\.96 .* but go from -1 to 8"),
        ({"columns": (0, 97)}, r"The grid's columns must lie in 0\.\.96 .* but go from 0 to 97"),
    ],
)
def test_impossible_grid_is_refused_with_one_sentence(change, sentence):
    with pytest.raises(InputError, match=sentence):
        dataclasses.replace(Grid.cub(), **change)


def test_impossible_counts_and_spacings_are_refused():
    with pytest.raises(InputError, match=r"A grid of 8 positions per axis does not fit into 0\.\.6"):
        Grid.even(image=10, glimpse=4, count=8)
    with pytest.raises(InputError, match="spacing must be at least 1 px, but is 0"):
        Grid.spaced(image=10, glimpse=4, spacing=0)
    with pytest.raises(InputError, match="A glimpse of 20 px does not fit"):
        Grid.spaced(image=10, glimpse=20, spacing=1)
    with pytest.raises(InputError, match="A glimpse of 20 px does not fit"):
        Grid.even(image=10, glimpse=20, count=1)
