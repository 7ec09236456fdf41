import os
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nogs.glimpse import Grid
from nogs.runtime.errors import InputError
from nogs.sequences import Columns, Sequences, read_csv, write_csv

GRID = Grid.spaced(image=32, glimpse=8, spacing=4)


def table(path, text):
    path.write_text(text)
    return path


def read(path, **options):
    return read_csv(path, **({"task": "toy", "grid": GRID} | options))


def test_rows_may_come_in_any_order(tmp_path):
    path = table(tmp_path / "t.csv", "step,row,image,column\n1,8,b,12\n0,4,a,0\n0,24,b,20\n1,0,a,16\n")
    found = read(path)
    assert found.ids == ("b", "a")
    assert found.length == 2
    assert found.by_id("a").tolist() == [[4, 0], [0, 16]]
    assert found.by_id("b").tolist() == [[24, 20], [8, 12]]
    assert (found.task, found.attribute, found.grid) == ("toy", None, GRID)
    assert (found.provenance["source"], found.provenance["snapped"]) == ("t.csv", 0)


def test_steps_count_from_0_or_from_1(tmp_path):
    zero = read(table(tmp_path / "0.csv", "image,step,row,column\na,0,4,0\na,1,8,0\n"))
    one = read(table(tmp_path / "1.csv", "image,step,row,column\na,1,4,0\na,2.0,8.0,0\n"))
    assert zero.locations.tolist() == one.locations.tolist() == [[[4, 0], [8, 0]]]
    with pytest.raises(InputError, match=r"2\.csv, line 3: the steps start at 2; count them from 0 or from 1"):
        read(table(tmp_path / "2.csv", "image,step,row,column\na,3,4,0\na,2,8,0\n"))


def test_columns_have_any_names_and_order(tmp_path):
    text = "\ufeffx, y, subject, fixation, picture\n12,4,s1,1,a\n16,8,s1,2,a\n"
    found = read(
        table(tmp_path / "t.csv", text), columns=Columns(image="picture", step="fixation", row="y", column="x")
    )
    assert found.locations.tolist() == [[[4, 12], [8, 16]]]


def test_a_tsv_has_tabs(tmp_path):
    found = read(table(tmp_path / "t.tsv", "image\tstep\trow\tcolumn\na, b\t0\t4\t12\n"))
    assert found.ids == ("a, b",)


def test_a_centre_is_moved_to_the_top_left_pixel(tmp_path):
    path = table(tmp_path / "t.csv", "image,step,row,column\na,0,8,16\n")
    assert read(path, anchor="centre").locations.tolist() == [[[4, 12]]]


def test_gaze_is_snapped_to_the_nearest_location_and_clamped_to_the_grid(tmp_path):
    stream = np.random.default_rng(0)
    gaze = stream.uniform(-20, 60, (40, 3, 2))
    rows = "".join(f"{n},{t},{r},{c}\n" for n in range(40) for t, (r, c) in enumerate(gaze[n]))
    path = table(tmp_path / "gaze.csv", "image,step,row,column\n" + rows)
    found = read(path, anchor="centre", snap=True)
    places = range(0, 25, 4)
    by_hand = [[[min(places, key=lambda p: abs(x - 4 - p)) for x in point] for point in steps] for steps in gaze]
    assert found.locations.tolist() == by_hand
    assert found.provenance["snapped"] == 120
    with pytest.raises(
        InputError, match=r"(?s)gaze\.csv has 120 problems:.*line 2: location 1 .*; --snap moves it there\."
    ):
        read(path, anchor="centre")


WRONG_ROWS = {
    "off the grid": (
        "a,1,8,13",
        r"line 3: location 2 \(row 8, column 13\) is not on the grid .* nearest is \(row 8, column 12\)",
    ),
    "between pixels": ("a,1,8,12.5", r"line 3: location 2 \(row 8, column 12.5\) is not on the grid"),
    "enormous": ("a,1,8,1e30", r"line 3: location 2 lies far outside the image of 32 x 32 px; --snap"),
    "duplicate step": ("a,0,8,12", r"line 3: step 0 of image 'a' is in line 2 already"),
    "missing step": ("a,2,8,12", r"line 2: image 'a' has no step 1; it needs the steps 0 to 1"),
    "missing step of one image": ("a,1,8,12\nb,0,0,0", r"line 4: image 'b' has no step 1; it needs"),
    "not a number": ("a,1,left,12", r"line 3: the column 'row' must hold a number, but is 'left'"),
    "lost gaze": ("a,1,nan,12", r"line 3: the column 'row' must hold a number, but is 'nan'"),
    "empty cell": ("a,1,,12", r"line 3: the column 'row' must hold a number, but is ''"),
    "half a step": ("a,0.5,8,12", r"line 3: the step must be a whole number of at least 0, but is '0.5'"),
    "negative step": ("a,-1,8,12", r"line 3: the step must be a whole number of at least 0, but is '-1'"),
    "enormous step": ("a,1e300,8,12", r"line 2: image 'a' has no step 1"),
    "no image": (",1,8,12", r"line 3: the column 'image' is empty"),
    "too few cells": ("a,1,8", r"line 3: expected 4 cells as in the heading, but found 3"),
}


@pytest.mark.parametrize(("row", "message"), WRONG_ROWS.values(), ids=WRONG_ROWS)
def test_a_wrong_row_is_refused_with_its_line(tmp_path, row, message):
    path = table(tmp_path / "t.csv", f"image,step,row,column\na,0,4,0\n{row}\n")
    with pytest.raises(InputError, match=rf"t\.csv, {message}"):
        read(path)


def test_blank_lines_count_but_say_nothing(tmp_path):
    path = table(tmp_path / "t.csv", "image,step,row,column\n\na,0,4,0\n\na,0,4,0\n")
    with pytest.raises(InputError, match="line 5: step 0 of image 'a' is in line 3 already"):
        read(path)


def test_a_missing_column_is_named_with_its_flag(tmp_path):
    with pytest.raises(
        InputError, match=r"line 1: there is no column 'step' among image, t, row, column; .* with --step"
    ):
        read(table(tmp_path / "t.csv", "image,t,row,column\n"))
    with pytest.raises(InputError, match=r"there is more than one column 'row' .* with --row"):
        read(table(tmp_path / "u.csv", "image,step,row,row,column\n"))
    with pytest.raises(InputError, match="no columns at all"):
        read(table(tmp_path / "v.csv", ""))


def test_a_table_without_glimpses_or_file_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"t\.csv holds no glimpses"):
        read(table(tmp_path / "t.csv", "image,step,row,column\n"))
    with pytest.raises(InputError, match=r"absent\.csv can't be read"):
        read(tmp_path / "absent.csv")
    (tmp_path / "latin.csv").write_bytes(b"image,step,row,column\n\xe9,0,0,0\n")
    with pytest.raises(InputError, match=r"latin\.csv is not UTF-8 text"):
        read(tmp_path / "latin.csv")


def test_longer_sequences_are_cut_only_if_asked(tmp_path):
    path = table(tmp_path / "t.csv", "image,step,row,column\na,0,4,0\na,1,8,0\na,2,12,0\nb,0,0,0\nb,1,4,4\n")
    with pytest.raises(InputError, match=r"line 4: step 2 of image 'a' comes after the last one, 1; --cut leaves"):
        read(path, length=2)
    assert read(path, length=2, cut=True).locations.tolist() == [[[4, 0], [8, 0]], [[0, 0], [4, 4]]]
    with pytest.raises(InputError, match="line 5: image 'b' has no step 2"):
        read(path)
    with pytest.raises(InputError, match="must be at least 1 glimpse, but is 0"):
        read(path, length=0)


def test_images_with_too_few_steps_are_left_out_only_if_asked(tmp_path):
    path = table(tmp_path / "t.csv", "image,step,row,column\na,0,4,0\na,1,8,0\nb,0,0,0\nc,0,0,0\nc,1,4,4\n")
    with pytest.raises(InputError, match=r"line 4: image 'b' has no step 1; .*; --drop-short leaves out images"):
        read(path, length=2)
    found = read(path, length=2, drop_short=True)
    assert (found.ids, found.provenance["images_left_out"]) == (("a", "c"), 1)
    assert found.locations.tolist() == [[[4, 0], [8, 0]], [[0, 0], [4, 4]]]
    assert "images_left_out" not in read(path, length=1, cut=True, drop_short=True).provenance
    with pytest.raises(InputError, match=r"t\.csv has no image with 3 steps; choose a smaller --length"):
        read(path, length=3, drop_short=True)


def test_a_gap_is_no_short_sequence(tmp_path):
    path = table(tmp_path / "t.csv", "image,step,row,column\na,0,4,0\na,1,8,0\nb,0,0,0\nb,2,0,0\n")
    with pytest.raises(InputError, match=r"line 4: image 'b' has no step 1"):
        read(path, length=2, cut=True, drop_short=True)


def test_an_export_is_a_plain_table(sequences, tmp_path):
    write_csv(replace(sequences, entropy_before=None, epe_error=None).subset(["a.png"]), tmp_path / "t.csv")
    (first, second), epe = sequences.by_id("a.png").tolist(), sequences.epe[0].tolist()
    assert (tmp_path / "t.csv").read_text() == (
        f"image,step,row,column,epe\na.png,0,{first[0]},{first[1]},{epe[0]}\na.png,1,{second[0]},{second[1]},{epe[1]}\n"
    )


@given(
    ids=st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), unique=True, min_size=1, max_size=4),
    epe=st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False)),
    seed=st.integers(0, 99),
)
def test_what_is_exported_is_imported(tmp_path_factory, ids, epe, seed):
    places = np.random.default_rng(seed).integers(0, len(GRID), (len(ids), 3))
    sequences = Sequences(
        task="toy",
        attribute="Round",
        grid=GRID,
        length=3,
        ids=tuple(ids),
        locations=GRID.pixels.numpy()[places],
        epe=None if epe is None else np.full((len(ids), 3), epe),
    )
    path = tmp_path_factory.mktemp("table") / "t.csv"
    write_csv(sequences, path)
    again = read(path, attribute="Round")
    assert (again.ids, again.attribute) == (sequences.ids, "Round")
    assert (again.locations == sequences.locations).all()
    assert again.steps().keys() == sequences.steps().keys()
    assert epe is None or (again.epe == sequences.epe).all()


def test_cells_no_table_has_are_refused_with_their_line(tmp_path):
    def refused(row, message):
        (tmp_path / "t.csv").write_text(f"image,step,row,column\n{row}\n")
        with pytest.raises(InputError, match=message) as error:
            read_csv(tmp_path / "t.csv", task="cub", grid=Grid.cub())
        assert len(str(error.value)) < 400

    refused("a" * 140_000 + ",0,8,8", r"line 2: field larger than field limit")
    refused("a," + "1" * 5000 + ",8,8", r"line 2: .*'step' must hold a number, but is '1{57}\.\.\.'")
    refused("a,0," + "9" * 5000 + ",8", r"line 2: the column 'row' must hold a number")


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "t.csv")
    with pytest.raises(InputError, match=r"t\.csv can't be read \(not a regular file\)"):
        read_csv(tmp_path / "t.csv", task="cub", grid=Grid.cub())
