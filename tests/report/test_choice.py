from collections import Counter

import numpy as np
import pytest

from nogs.report.choice import class_of, spread
from toy_attention import toy_task


@pytest.fixture(scope="module")
def task():
    return toy_task()


def test_every_class_is_there_before_any_is_twice(task):
    by_class = Counter(class_of(task, id) for id in task.ids)
    names = list(by_class)
    assert len(names) > 2
    for number in (len(names), len(names) + 1, 2 * len(names)):
        found = Counter(class_of(task, id) for id in spread(task, sorted(task.ids, key=task.position.get), number))
        assert sum(found.values()) == number
        assert set(found) == set(names)
        assert max(found.values()) - min(found.values()) <= 1


def test_right_and_wrong_ones_take_turns(task):
    right = {id: n % 2 == 0 for n, id in enumerate(task.ids)}
    classes = len(task.space.names)
    for number in (classes, 2 * classes):
        shown = [right[id] for id in spread(task, task.ids, number, right=right)]
        assert abs(2 * np.sum(shown) - number) <= 1


def test_few_places_go_to_classes_far_apart(task):
    (one,) = spread(task, task.ids, 1)
    assert one in task.ids
    assert spread(task, task.ids, 0) == []
    assert sorted(spread(task, task.ids, 10_000)) == sorted(task.ids)
