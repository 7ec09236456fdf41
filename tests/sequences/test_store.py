import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from nogs.glimpse import Grid
from nogs.runtime.errors import InputError
from nogs.sequences import Sequences, folders, load, save


def edit(folder, line, change):
    """Rewrite one line (from 1) of the folder's sequences."""
    path = folder / "sequences.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    value = change(json.loads(lines[line - 1]))
    lines[line - 1] = value if isinstance(value, str) else json.dumps(value) + "\n"
    path.write_text("".join(lines))


def set_manifest(folder, **fields):
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def assert_same(left, right):
    assert (left.task, left.attribute, left.grid, left.length) == (
        right.task,
        right.attribute,
        right.grid,
        right.length,
    )
    assert (left.ids, left.provenance) == (right.ids, right.provenance)
    assert (left.locations == right.locations).all()
    assert left.steps().keys() == right.steps().keys()
    for name, numbers in left.steps().items():
        assert (numbers == right.steps()[name]).all()


def test_what_is_saved_is_loaded(sequences, folder):
    assert_same(load(folder), sequences)


def test_absent_numbers_stay_absent(sequences, tmp_path):
    save(replace(sequences, entropy_before=None, epe_error=None, attribute=None), tmp_path)
    loaded = load(tmp_path)
    assert (loaded.entropy_before, loaded.epe_error, loaded.attribute) == (None, None, None)
    assert (loaded.epe == sequences.epe).all()
    assert json.loads((tmp_path / "sequences.jsonl").read_text().splitlines()[0]).keys() == {
        "image",
        "locations",
        "epe",
    }


@given(
    ids=st.lists(st.text(min_size=1), unique=True, max_size=4),
    epe=st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False)),
    data=st.data(),
)
def test_any_id_and_number_survives_the_round_trip(tmp_path_factory, ids, epe, data):
    grid = Grid.even(image=(20, 30), glimpse=7, count=(4, 5))
    places = data.draw(arrays.arrays(np.int64, (len(ids), 3), elements=st.integers(0, len(grid) - 1)))
    sequences = Sequences(
        task="any",
        attribute=None,
        grid=grid,
        length=3,
        ids=tuple(ids),
        locations=grid.pixels.numpy()[places],
        epe=None if epe is None or not ids else np.full((len(ids), 3), epe),
    )
    folder = tmp_path_factory.mktemp("any")
    save(sequences, folder)
    assert_same(load(folder), sequences)


def test_the_same_sequences_give_the_same_bytes(sequences, folder, tmp_path):
    save(load(folder), tmp_path / "again")
    for name in ("sequences.jsonl", "manifest.json"):
        assert (tmp_path / "again" / name).read_bytes() == (folder / name).read_bytes()


def test_a_line_is_plain_json_with_row_and_column(sequences, folder):
    first = json.loads((folder / "sequences.jsonl").read_text().splitlines()[0])
    assert first == {
        "image": "a.png",
        "locations": sequences.locations[0].tolist(),
        "entropy": sequences.entropy_before[0].tolist(),
        "epe": sequences.epe[0].tolist(),
        "epe_error": sequences.epe_error[0].tolist(),
    }


def test_the_manifest_says_what_the_lines_are(sequences, folder):
    manifest = json.loads((folder / "manifest.json").read_text())
    assert "[row, column] of the top-left pixel" in manifest.pop("coordinates")
    assert manifest == {
        "format": "nogs sequences",
        "version": 1,
        "task": "toy",
        "attribute": "Round",
        "glimpses": 2,
        "count": 3,
        "grid": sequences.grid.to_json(),
        "provenance": {"source": "a test", "versions": {"nogs": "0"}},
    }


BAD_LINES = {
    "off the grid": (
        lambda r: r | {"locations": [[0, 4], [4, 5]]},
        r"location 2 \(row 4, column 5\) is not on the grid of 7 x 7 .* the nearest is \(row 4, column 4\)",
    ),
    "outside the image": (lambda r: r | {"locations": [[0, 4], [-4, 400]]}, r"location 2 .* is not on the grid"),
    "enormous": (
        lambda r: r | {"locations": [[0, 4], [10**400, 4]]},
        r"location 2 lies far outside the image of 32 x 32 px\.$",
    ),
    "image twice": (
        lambda r: json.dumps(r).replace("{", '{"image": "z.png", ') + "\n",
        'the field "image" occurs twice',
    ),
    "wrong T": (
        lambda r: r | {"locations": [[0, 4]] * 3},
        '"locations" needs 2 entries, one per glimpse, but has 3',
    ),
    "no list": (lambda r: r | {"epe": 0.5}, '"epe" needs 2 entries, one per glimpse, but is not a list'),
    "wrong number of numbers": (lambda r: r | {"epe": [0.5]}, '"epe" needs 2 entries, one per glimpse, but has 1'),
    "three coordinates": (lambda r: r | {"locations": [[0, 4, 4], [0, 4]]}, r"location 1 must be \[row, column\]"),
    "half pixels": (lambda r: r | {"locations": [[0, 4], [0, 4.0]]}, r"location 2 must be \[row, column\] in whole"),
    "true is no pixel": (lambda r: r | {"locations": [[True, 0], [0, 4]]}, r"location 1 must be \[row, column\]"),
    "duplicate image": (lambda r: r | {"image": "a.png"}, r"image 'a\.png' has a sequence in line 1 already"),
    "numeric id": (lambda r: r | {"image": 7}, '"image" must be an id in quotes, but is 7'),
    "empty id": (lambda r: r | {"image": ""}, '"image" must be an id in quotes'),
    "missing image": (lambda r: {"locations": r["locations"]}, 'the field "image" is missing'),
    "missing locations": (lambda r: {"image": r["image"]}, 'the field "locations" is missing'),
    "missing number": (
        lambda r: {k: v for k, v in r.items() if k != "epe"},
        'lacks "epe", unlike the lines before it',
    ),
    "unknown field": (lambda r: r | {"epes": []}, 'the field "epes" is unknown'),
    "not a number": (lambda r: r | {"entropy": ["high", 0.5]}, 'entry 1 of "entropy" must be a number, but is "high"'),
    "not finite": (lambda r: r | {"entropy": [0.5, float("nan")]}, 'entry 2 of "entropy" must be a number'),
    "not JSON": (lambda r: "image b.png\n", "this is not a JSON object"),
    "not an object": (lambda r: "[1, 2]\n", "this is not a JSON object"),
    "empty line": (lambda r: "\n", "this is not a JSON object"),
}


@pytest.mark.parametrize(("change", "message"), BAD_LINES.values(), ids=BAD_LINES)
def test_a_wrong_line_is_refused_with_its_number(folder, change, message):
    edit(folder, 2, change)
    with pytest.raises(InputError, match=rf"saved/sequences\.jsonl, line 2: {message}"):
        load(folder)


def test_a_torn_last_line_is_called_so(folder):
    path = folder / "sequences.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InputError, match=r"sequences\.jsonl, line 3: this is not a JSON object; .* it was cut off\.$"):
        load(folder)


def test_a_last_line_without_newline_is_whole_if_it_parses(sequences, folder):
    path = folder / "sequences.jsonl"
    path.write_bytes(path.read_bytes()[:-1])
    assert_same(load(folder), sequences)


def test_bytes_that_are_no_text_are_refused_with_their_line(folder):
    path = folder / "sequences.jsonl"
    path.write_bytes(path.read_bytes().replace(b"b.png", b"\xff.png"))
    with pytest.raises(InputError, match=r"sequences\.jsonl, line 2: this is not UTF-8 text"):
        load(folder)


@pytest.mark.parametrize(
    ("kept", "message"), [(0, r"jsonl is empty"), (2, r"jsonl, line 2: the file ends after 2 sequences")]
)
def test_lost_lines_are_noticed(folder, kept, message):
    path = folder / "sequences.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:kept]))
    with pytest.raises(InputError, match=rf"{message}, but manifest\.json counts 3\.$"):
        load(folder)


def test_all_problems_are_told_at_once(folder):
    for line in (1, 3):
        edit(folder, line, lambda record: record | {"locations": [[1, 1], [0, 0]]})
    with pytest.raises(InputError, match=r"saved has 2 problems:\n.*line 1: location 1.*\n.*line 3: location 1"):
        load(folder)


BAD_MANIFESTS = {
    "version": ({"version": 2}, "format version 2, but this nogs reads version 1"),
    "other format": ({"format": "bank"}, "does not describe glimpse sequences"),
    "task": ({"task": ""}, 'field "task" of .*manifest.json must be a task'),
    "attribute": ({"attribute": 3}, 'field "attribute" of .*manifest.json must be an attribute'),
    "glimpses": ({"glimpses": 0}, 'field "glimpses" of .*manifest.json must be a whole number of at least 1, but is 0'),
    "count": ({"count": "3"}, 'field "count" of .*manifest.json must be a whole number'),
    "provenance": ({"provenance": None}, 'field "provenance" of .*manifest.json must be an object'),
    "grid": ({"grid": {"rows": [1]}}, 'field "grid" of .*manifest.json is wrong: A grid needs the fields'),
    "grid numbers": (
        {"grid": {"height": 32, "width": 32, "glimpse": 8, "rows": None, "columns": [0.5]}},
        'field "grid" of .*manifest.json is wrong: ',
    ),
}


@pytest.mark.parametrize(("fields", "message"), BAD_MANIFESTS.values(), ids=BAD_MANIFESTS)
def test_a_wrong_manifest_is_refused(folder, fields, message):
    set_manifest(folder, **fields)
    with pytest.raises(InputError, match=message):
        load(folder)


def test_a_folder_without_manifest_is_not_finished(folder):
    (folder / "manifest.json").unlink()
    with pytest.raises(InputError, match=r"saved has no manifest\.json, so it is not a finished folder"):
        load(folder)


def test_a_folder_without_lines_is_refused(folder):
    (folder / "sequences.jsonl").unlink()
    with pytest.raises(InputError, match=r"saved/sequences\.jsonl can't be read"):
        load(folder)


def test_other_sequences_are_replaced_only_if_asked(sequences, folder):
    save(sequences, folder)  # the same ones: nothing to do
    other = sequences.subset(["b.png"])
    with pytest.raises(InputError, match=r"saved holds other sequences already; .* --overwrite"):
        save(other, folder)
    assert_same(load(folder), sequences)
    save(other, folder, overwrite=True)
    assert_same(load(folder), other)


def test_a_crash_between_the_two_files_leaves_no_finished_folder(sequences, folder, monkeypatch):
    from nogs.runtime import files

    def crash(path, obj):
        raise KeyboardInterrupt

    monkeypatch.setattr(files, "write_json", crash)
    with pytest.raises(KeyboardInterrupt):
        save(sequences.subset(["b.png"]), folder, overwrite=True)
    with pytest.raises(InputError, match="not a finished folder"):
        load(folder)


def test_a_write_that_fails_keeps_what_was_there(sequences, folder, monkeypatch):
    from pathlib import Path

    def full(self, data):
        raise OSError(28, "No space left on device", str(self))

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(InputError, match="No space left on device"):
        save(sequences.subset(["b.png"]), folder, overwrite=True)
    assert_same(load(folder), sequences)


def test_folders_of_a_tree_are_found_in_order(sequences, tmp_path):
    for name in ("b/x", "a", "b/c"):
        save(sequences, tmp_path / name)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "manifest.json").write_text('{"format": "bank"}')
    (tmp_path / "b" / "c" / "sequences.jsonl").unlink()  # damaged, but still ours
    assert list(folders(tmp_path)) == [tmp_path / "a", tmp_path / "b" / "c", tmp_path / "b" / "x"]
