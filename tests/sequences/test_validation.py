from dataclasses import replace

import pytest

from nogs.glimpse import Grid
from nogs.runtime.errors import InputError
from nogs.sequences import Expected, load_for, save, validate


def renamed(sequences, old, new):
    return replace(sequences, ids=tuple(new if id == old else id for id in sequences.ids))


def test_a_tree_of_right_folders_is_counted(sequences, task, tmp_path):
    save(sequences, tmp_path / "toy" / "Round")
    save(replace(sequences.subset(["b.png"]), attribute="Red"), tmp_path / "toy" / "Red")
    for report in (validate(tmp_path), validate(tmp_path, task=task)):
        assert report.folders == {tmp_path / "toy" / "Red": (1, 2), tmp_path / "toy" / "Round": (3, 2)}
        assert report.sequences == 4


def test_one_folder_is_a_tree_too(folder):
    assert validate(folder).folders == {folder: (3, 2)}


def test_the_problems_of_all_folders_are_gathered(sequences, folder, tmp_path):
    save(sequences, tmp_path / "other")
    for place, line in ((folder, 2), (tmp_path / "other", 3)):
        path = place / "sequences.jsonl"
        lines = path.read_text().splitlines(keepends=True)
        lines[line - 1] = "{}\n"
        path.write_text("".join(lines))
    with pytest.raises(InputError) as caught:
        validate(tmp_path)
    first, *others = str(caught.value).splitlines()
    assert first == f"{tmp_path} has 2 problems:"
    assert others == [
        f'  {tmp_path}/other/sequences.jsonl, line 3: the field "image" is missing.',
        f'  {folder}/sequences.jsonl, line 2: the field "image" is missing.',
    ]


def test_at_most_ten_problems_are_listed(folder):
    (folder / "sequences.jsonl").write_text("{}\n" * 25)
    with pytest.raises(InputError, match=r"saved has 26 problems:(\n.*, line \d+: .*){10}\n  and 16 more\.$"):
        validate(folder)


def test_a_tree_without_sequences_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"holds no sequences: no folder in it has a sequences\.jsonl"):
        validate(tmp_path)
    with pytest.raises(InputError, match=r"There is no folder .*absent"):
        validate(tmp_path / "absent")


def test_an_unfinished_folder_is_refused(folder):
    (folder / "manifest.json").unlink()
    with pytest.raises(InputError, match=r"saved has no manifest\.json"):
        validate(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: renamed(s, "b.png", "z.png"), r"sequences\.jsonl, line 2: the task 'toy' has no image 'z\.png'"),
        (
            lambda s: renamed(s, "a.png", "d.png"),
            r"sequences\.jsonl, line 1: image 'd\.png' is in the validation split",
        ),
        (lambda s: renamed(s, "ü/c.png", "e.png"), r"sequences\.jsonl, line 3: image 'e\.png' is in the test split"),
        (
            lambda s: replace(s, task="cub"),
            r"manifest\.json: the sequences are for the task 'cub', but the data is for 'toy'",
        ),
        (lambda s: replace(s, attribute="Blue"), r"manifest\.json: the task 'toy' has no attribute 'Blue'"),
        (
            lambda s: replace(s, grid=Grid.spaced(image=32, glimpse=8, spacing=1)),
            r"manifest\.json: the sequences are for a grid of 25 x 25 .* px, but the task 'toy' has a grid of 7 x 7 ",
        ),
        (
            lambda s: replace(s, length=1, locations=s.locations[:, :1], entropy_before=None, epe=None, epe_error=None),
            r"manifest\.json: the sequences have 1 glimpses, but the recipe wants 2",
        ),
    ],
    ids=["unknown", "validation", "test", "task", "attribute", "grid", "T"],
)
def test_sequences_that_do_not_fit_their_task_are_refused(sequences, task, tmp_path, change, message):
    save(change(sequences), tmp_path / "toy")
    assert validate(tmp_path).sequences == 3  # right on their own
    with pytest.raises(InputError, match=message):
        validate(tmp_path, task=Expected.of(task, grid=task.grid, glimpses=2))
    with pytest.raises(InputError, match=message):
        load_for(tmp_path / "toy", task=task, attribute=change(sequences).attribute, glimpses=2)


def test_each_task_of_a_tree_is_checked_against_its_own_data(sequences, task, tmp_path):
    save(sequences, tmp_path / "toy")
    save(replace(sequences, task="play"), tmp_path / "play")
    toy = Expected.of(task, grid=task.grid)
    assert validate(tmp_path, task={"toy": toy, "play": replace(toy, task="play")}).sequences == 6
    with pytest.raises(InputError, match=r"play/sequences\.jsonl, line 1: the task 'play' has no image 'a\.png'"):
        validate(tmp_path, task={"toy": toy, "play": replace(toy, task="play", ids=toy.ids - {"a.png"})})


@pytest.mark.parametrize("place", ["", "Round", "toy/Round"])
def test_sequences_of_an_attribute_are_found_in_a_tree(sequences, task, tmp_path, place):
    save(sequences, tmp_path / place)
    assert load_for(tmp_path, task=task, attribute="Round", glimpses=2).ids == sequences.ids


def test_sequences_of_the_whole_task_serve_an_attribute_without_its_own(sequences, task, tmp_path):
    save(replace(sequences, attribute=None), tmp_path / "toy")
    save(sequences.subset(["b.png"]), tmp_path / "toy" / "Round")
    assert len(load_for(tmp_path, task=task, attribute="Round")) == 1
    assert len(load_for(tmp_path, task=task, attribute="Red")) == 3
    assert len(load_for(tmp_path, task=task)) == 3


def test_sequences_of_another_attribute_are_refused(folder, task, tmp_path):
    with pytest.raises(InputError, match=r"manifest\.json: the sequences are for 'Round', not for 'Red'"):
        load_for(folder, task=task, attribute="Red")
    with pytest.raises(InputError, match=r"holds no sequences for toy / Red; import or annotate them first"):
        load_for(tmp_path, task=task, attribute="Red")
