from dataclasses import replace

import numpy as np
import pytest

import miniature
from nogs.data.task import Parts
from nogs.glimpse import Grid
from nogs.runtime.errors import InputError
from nogs.supervision import handcrafted
from toy_attention import toy_task

GRID = Grid.spaced(image=80, glimpse=16, spacing=4)
PLACES = {name: (4 * n + 9.0, 63.0 - 4 * n) for n, name in enumerate(miniature.PARTS)}


def birds(*hidden):
    """A task whose images have the parts at `PLACES`, of which some can't be seen."""
    task = toy_task(count=20, size=80, glimpse=16, spacing=4)
    positions = np.tile(np.array(list(PLACES.values()), dtype=np.float32), (20, 1, 1))
    visible = np.tile(np.array([name not in hidden for name in miniature.PARTS]), (20, 1))
    return replace(task, parts=Parts(miniature.PARTS, positions, visible))


def location(name):
    """The grid's location whose glimpse has its centre nearest to a part, by trying all of them."""
    row, column = PLACES[name]
    return min(GRID.pixels.tolist(), key=lambda p: (p[0] + 8 - row) ** 2 + (p[1] + 8 - column) ** 2)


def sequence(task, id="0", glimpses=5, seed=0):
    return handcrafted(task, [id], glimpses=glimpses, seed=seed).by_id(id).tolist()


def test_beak_eye_forehead_belly_feet_in_that_order():
    names = ("beak", "left eye", "forehead", "belly", "left leg")
    assert sequence(birds()) == [location(name) for name in names]


def test_the_other_eye_or_leg_serves_where_the_left_one_is_hidden():
    names = ("beak", "right eye", "forehead", "belly", "right leg")
    assert sequence(birds("left eye", "left leg")) == [location(name) for name in names]


def test_hidden_part_is_replaced_by_a_visible_one_that_the_sequence_does_not_show():
    shown = {name: tuple(location(name)) for name in miniature.PARTS}
    others = set(shown.values()) - {shown[name] for name in ("left eye", "forehead", "belly", "left leg")}
    chosen = set()
    for seed in range(40):
        first, *rest = sequence(birds("beak"), seed=seed)
        assert rest == [location(name) for name in ("left eye", "forehead", "belly", "left leg")]
        chosen.add(tuple(first))
    assert chosen <= others
    assert len(chosen) > 5


def test_parts_repeat_where_fewer_than_five_are_visible():
    hidden = [name for name in miniature.PARTS if name not in ("tail", "belly")]
    found = sequence(birds(*hidden))
    assert found[3] == location("belly")
    assert {tuple(place) for place in found} == {tuple(location("tail")), tuple(location("belly"))}


def test_image_without_visible_parts_is_looked_at_in_its_centre():
    assert sequence(birds(*miniature.PARTS)) == [[32, 32]] * 5


def test_sequence_depends_on_the_image_and_the_seed_alone():
    task = birds("beak", "belly")
    alone = handcrafted(task, ["3"], glimpses=5, seed=1).by_id("3")
    among = handcrafted(task, ["0", "3", "5"], glimpses=5, seed=1).by_id("3")
    assert (alone == among).all()
    found = {str(sequence(task, seed=seed)) for seed in range(8)}
    assert len(found) > 1


def test_shorter_and_longer_sequences():
    assert sequence(birds(), glimpses=2) == [location("beak"), location("left eye")]
    longer = sequence(birds(), glimpses=8)
    assert longer[:5] == sequence(birds())
    assert len({tuple(place) for place in longer}) > 5


def test_task_without_parts_is_refused():
    with pytest.raises(InputError, match="need the position of each image's beak, which task 'toy' does not have"):
        handcrafted(toy_task(), ["0"], glimpses=5, seed=0)
    task = birds()
    names = tuple("nose" if name == "belly" else name for name in miniature.PARTS)
    with pytest.raises(InputError, match="each image's belly"):
        handcrafted(replace(task, parts=replace(task.parts, names=names)), ["0"], glimpses=5, seed=0)
