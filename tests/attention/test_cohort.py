from dataclasses import replace

import numpy as np
import pytest
import torch

from nogs.attention.cohort import Cohort, Member, member_labels
from nogs.runtime.errors import InputError
from toy_attention import toy_sequences, toy_task

CPU = torch.device("cpu")


def cohort(task, *members, batch=6, flip=True, glimpses=3):
    return Cohort(task, members, glimpses=glimpses, batch=batch, flip=flip, device=CPU)


def batches(made, iterations):
    out = []
    for iteration in iterations:
        made.start_epoch(iteration)
        out.append(made.draw(torch.tensor(iteration)))
    return out


def same(a, b):
    return all((x is None and y is None) or torch.equal(x, y) for x, y in zip(vars(a).values(), vars(b).values()))


def test_batch_is_a_function_of_the_iteration_alone():
    task = toy_task()
    member = Member("ps-nogs", seed=3, sequences=toy_sequences(task, task.splits["train"][::2]))
    forwards = batches(cohort(task, member), range(10))
    backwards = batches(cohort(task, member), reversed(range(10)))
    for one, other in zip(forwards, reversed(backwards)):
        assert same(one, other)
    assert not same(forwards[0], forwards[4])


def test_epoch_shows_each_training_image_once_in_an_order_of_its_own():
    task = toy_task()  # 24 training images, 4 iterations an epoch
    made = cohort(task, Member("ram"))
    assert made.per_epoch == 4
    epochs = []
    for epoch in range(3):
        made.start_epoch(4 * epoch)  # once an epoch, as training does
        rows = [made.draw(torch.tensor(4 * epoch + n)).rows[0].tolist() for n in range(4)]
        epochs.append([row for batch in rows for row in batch])
        assert sorted(epochs[-1]) == task.rows("train").tolist()
    assert epochs[0] != epochs[1] != epochs[2]
    assert epochs[0] != sorted(epochs[0])


def test_remainder_of_an_epoch_is_left_for_the_next():
    task = toy_task()
    made = cohort(task, Member("ram"), batch=7)
    assert made.per_epoch == 3
    rows = torch.cat([batch.rows[0] for batch in batches(made, range(3))]).tolist()
    assert len(set(rows)) == 21


def test_batch_is_never_larger_than_the_training_set():
    made = cohort(toy_task(), Member("ram"), batch=1000)
    assert (made.batch, made.per_epoch) == (24, 1)
    assert len(set(made.draw(torch.tensor(0)).rows[0].tolist())) == 1  # before its first epoch there is no order
    assert len(set(batches(made, [5])[0].rows[0].tolist())) == 24


def test_networks_of_one_seed_see_the_same_images_and_numbers_and_of_another_seed_others():
    task = toy_task(attributes=("Round", "Red"))
    sequences = toy_sequences(task, task.splits["train"][:8])
    made = cohort(
        task,
        Member("ram", seed=1, attribute="Round"),
        Member("ps-nogs", seed=1, attribute="Red", sequences=sequences),
        Member("ram", seed=2, attribute="Round"),
    )
    batch = batches(made, [7])[0]
    assert torch.equal(batch.rows[0], batch.rows[1])
    assert not torch.equal(batch.rows[0], batch.rows[2])
    assert torch.equal(batch.uniforms[0], batch.uniforms[1])
    assert not torch.equal(batch.uniforms[0], batch.uniforms[2])
    assert torch.equal(batch.flip[0] & ~batch.supervised[1], batch.flip[1])
    for m, column in enumerate([0, 1, 0]):
        assert batch.labels[m].tolist() == task.labels[batch.rows[m].numpy(), column].tolist()


def test_network_sees_the_same_alone_and_among_others():
    task = toy_task(attributes=("Round", "Red"))
    members = [
        Member("ram", seed=1, attribute="Round"),
        Member("ps-nogs", seed=2, attribute="Red", sequences=toy_sequences(task, task.splits["train"][:8])),
        Member("ps-nogs", seed=0, attribute="Red", sequences=toy_sequences(task, task.splits["train"][5:], seed=1)),
    ]
    together = batches(cohort(task, *members), [11])[0]
    for m, member in enumerate(members):
        alone = batches(cohort(task, member), [11])[0]
        for name in ("rows", "labels", "uniforms", "flip"):
            assert torch.equal(getattr(together, name)[m], getattr(alone, name)[0]), name
        if alone.supervised is None:
            assert not together.supervised[m].any()
            assert (together.forced[m] == -1).all()
        else:
            assert torch.equal(together.supervised[m], alone.supervised[0])
            assert torch.equal(together.forced[m], alone.forced[0])


def test_sequences_are_forced_on_their_own_images_which_are_not_flipped():
    task = toy_task()
    sequences = toy_sequences(task, task.splits["train"][::3])
    made = cohort(task, Member("ps-nogs", sequences=sequences))
    flipped = 0
    for batch in batches(made, range(8)):
        for b, row in enumerate(batch.rows[0].tolist()):
            id = task.ids[row]
            if id in sequences.position:
                assert batch.supervised[0, b]
                assert not batch.flip[0, b]
                pixels = task.grid.pixels[batch.forced[0, b]]
                assert pixels.tolist() == sequences.by_id(id).tolist()
            else:
                assert not batch.supervised[0, b]
                assert (batch.forced[0, b] == -1).all()
                flipped += int(batch.flip[0, b])
    assert 16 * 2 * 0.25 < flipped < 16 * 2 * 0.75


def test_flips_only_where_the_recipe_allows_them():
    assert batches(cohort(toy_task(), Member("ram"), flip=False), [0])[0].flip is None


def test_nothing_is_drawn_when_every_training_image_has_a_sequence():
    task = toy_task()
    made = cohort(task, Member("ps-nogs", sequences=toy_sequences(task, task.splits["train"])))
    batch = batches(made, [3])[0]
    assert batch.uniforms is None
    assert (batch.forced >= 0).all()
    beside = cohort(task, *made.members, Member("ram"))
    assert batches(beside, [3])[0].uniforms is not None


@pytest.mark.parametrize("split", ["validation", "test"])
def test_sequence_of_a_held_out_image_is_refused(split):
    task = toy_task()
    stranger = task.splits[split][1]
    sequences = toy_sequences(task, (*task.splits["train"][:3], stranger))
    with pytest.raises(InputError, match=f"'ps-nogs/seed-0' supervise image {stranger!r}, which is not a training"):
        cohort(task, Member("ps-nogs", sequences=sequences))


def test_sequence_of_an_unknown_image_is_refused():
    task = toy_task()
    sequences = toy_sequences(task, ("no such image",))
    with pytest.raises(
        InputError, match="supervise image 'no such image', which is not a training image of task 'toy'"
    ):
        cohort(task, Member("ps-nogs", sequences=sequences))


def test_sequences_of_another_length_are_refused_with_the_flag_to_set():
    task = toy_task()
    sequences = toy_sequences(task, task.splits["train"], glimpses=4)
    with pytest.raises(InputError, match="have 4 glimpses, but the recipe asks for 3; set --glimpses 4"):
        cohort(task, Member("ps-nogs", sequences=sequences))


def test_sequences_of_another_grid_are_refused():
    task = toy_task()
    sequences = toy_sequences(toy_task(spacing=4), task.splits["train"])
    with pytest.raises(InputError, match="are for another grid than task 'toy' has"):
        cohort(task, Member("ps-nogs", sequences=sequences))


def test_labels_of_a_network():
    categorical, attributes = toy_task(), toy_task(attributes=("Round", "Red"))
    assert member_labels(categorical, Member("ram")).tolist() == categorical.labels.tolist()
    assert member_labels(attributes, Member("ram", attribute="Red")).tolist() == attributes.labels[:, 1].tolist()
    assert cohort(categorical, Member("ram")).classes == 3
    assert cohort(attributes, Member("ram", attribute="Red")).classes == 2
    with pytest.raises(InputError, match="has 2 attributes; choose some with --attribute"):
        member_labels(attributes, Member("ram"))
    with pytest.raises(InputError, match="no attribute 'Blue'; it has Round, Red"):
        member_labels(attributes, Member("ram", attribute="Blue"))
    with pytest.raises(InputError, match="one categorical label and no attributes"):
        member_labels(categorical, Member("ram", attribute="Red"))


def test_images_that_may_not_be_written_are_used_without_a_copy():
    task = toy_task()
    task.images.setflags(write=False)
    made = cohort(task, Member("ram"))
    assert made.images.data_ptr() == task.images.ctypes.data
    assert np.array_equal(made.images.numpy(), task.images)


def test_name_and_fingerprint_tell_networks_apart():
    task = toy_task()
    member = Member("ps-nogs", seed=4, attribute="Red", sequences=toy_sequences(task, task.splits["train"]))
    assert member.name == "ps-nogs/Red/seed-4"
    assert Member("ram").name == "ram/seed-0"
    others = [
        replace(member, seed=5),
        replace(member, weight=2.0),
        replace(member, attribute="Round"),
        replace(member, sequences=None),
        replace(member, sequences=toy_sequences(task, task.splits["train"], seed=1)),
        replace(member, sequences=toy_sequences(task, task.splits["train"][1:])),
    ]
    assert len({member.fingerprint(), *(other.fingerprint() for other in others)}) == 7
    assert replace(member).fingerprint() == member.fingerprint()
