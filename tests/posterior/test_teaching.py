"""A teacher of several networks: which network serves which image, what is refused, and that runs resume."""

from dataclasses import replace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from nogs.data.augment import AugmentConfig
from nogs.glimpse.changes import changed
from nogs.posterior.config import PosteriorConfig
from nogs.posterior.crossfit import CrossFitted, fold_of, fold_task
from nogs.posterior.inputs import training_fields
from nogs.posterior.labels import Head
from nogs.posterior.network import Architecture, NetworkPosterior
from nogs.posterior.queries import fixed_pixels, strata
from nogs.posterior.store import load_posterior, save_posterior
from nogs.posterior.teaching import Teacher
from nogs.posterior.training import Trainer, train_posterior
from nogs.runtime.errors import InputError
from nogs.runtime.fingerprint import file_digest
from nogs.runtime.metrics import read_metrics
from nogs.runtime.tensors import load_tensors

CPU = torch.device("cpu")
T, K = 3, 3
QUICK = PosteriorConfig(width=16, layers=1, heads=2, token=4, batch=32, iterations=6, validate_every=2)


def made(task, number=K):
    """Untrained networks with very different predictions."""
    architecture, members = Architecture.of(QUICK, task=task, glimpses=T), []
    for seed in range(number):
        network = architecture.build(seed=10 + seed)
        with torch.no_grad():
            network.head.weight.mul_(40)
        members.append(NetworkPosterior(network, architecture, precision="float32"))
    return CrossFitted(members, splits=task.fingerprint)


@pytest.fixture
def teacher(task, tmp_path):
    """File of a cross-fitted teacher of the task."""
    path = tmp_path / "teacher.safetensors"
    save_posterior(path, made(task), task=task, about={"task_fingerprint": task.fingerprint})
    return path


@pytest.fixture
def single(task, tmp_path):
    """File of a teacher of one network."""
    path = tmp_path / "single.safetensors"
    save_posterior(path, made(task).members[0], task=task, about={"task_fingerprint": task.fingerprint})
    return path


def trained(task, folder, teacher, *, glimpses=T, **fields):
    config = QUICK.model_copy(update={"teacher": str(teacher), **fields})
    return train_posterior(task, config=config, glimpses=glimpses, folder=folder, device="cpu")


def first_steps(task, folder, teacher, monkeypatch, **fields):
    """Train, and return the inputs, outputs and losses of each network's first iteration."""
    step, losses, found = Trainer.step, Head.losses, []

    def noting(self):
        if self.iteration:
            return step(self)
        read, note = self.network.read, {}

        def reading(images, *query):
            note["query"] = query
            return read(images, *query)

        def losing(head, logits, *rest, **options):
            note["answers"] = torch.log_softmax(logits.detach()[:, : len(task.space.names)], -1)
            return losses(head, logits, *rest, **options)

        self.network.read = reading
        monkeypatch.setattr(Head, "losses", losing)
        step(self)
        monkeypatch.setattr(Head, "losses", losses)
        self.network.read = read
        found.append((note["query"], note["answers"], self.total.item()))
        return None

    monkeypatch.setattr(Trainer, "step", noting)
    trained(task, folder, teacher, teacher_weight=1.0, augment=AugmentConfig(move=2, turn=30, colour=0.2), **fields)
    return found


def slow_loss(task, members, choose, query, answers):
    """The loss, query by query on changed pictures, where `choose` selects the teacher's network for each row."""
    pixels, rows, flip, changes = query
    pictures = changed(torch.from_numpy(task.images.copy()), changes, index=rows, flip=flip)
    assert flip.any()
    total, first = 0.0, 0
    for count, t in strata(len(rows), T):
        for place in range(first, first + count):
            one = members[choose(int(rows[place]))]
            told = one.log_probabilities(pictures[place : place + 1], pixels[place : place + 1, :t])[0, 0].double()
            total -= float((told.exp() * answers[place].double()).sum()) / count / (T + 1)
        first += count
    return total


def test_each_network_is_taught_by_the_one_that_left_out_the_same_images(task, teacher, tmp_path, monkeypatch):
    members, rows = load_posterior(teacher).members, task.rows("posterior").tolist()
    found = first_steps(task, tmp_path / "run", teacher, monkeypatch, folds=K)
    assert len(found) == K
    for fold, (query, answers, loss) in enumerate(found):
        assert not set(query[1].tolist()) & set(rows[fold::K])
        expected = [slow_loss(task, members, lambda _, k=k: k, query, answers) for k in range(K)]
        assert loss == pytest.approx(expected[fold], rel=1e-4)
        assert all(abs(loss - other) > 0.01 for k, other in enumerate(expected) if k != fold)


def test_one_network_is_taught_about_an_image_by_the_one_that_has_not_seen_it(task, teacher, tmp_path, monkeypatch):
    shuffled = tuple(sorted(task.splits["posterior"], key=lambda id: id[::-1]))  # ranks are not rows
    task = replace(task, splits={**task.splits, "posterior": shuffled})
    members = load_posterior(teacher).members
    [(query, answers, loss)] = first_steps(task, tmp_path / "run", teacher, monkeypatch)
    right = slow_loss(task, members, lambda row: shuffled.index(task.ids[row]) % K, query, answers)
    assert loss == pytest.approx(right, rel=1e-4)
    for shift in (1, 2):
        wrong = slow_loss(task, members, lambda row, s=shift: (shuffled.index(task.ids[row]) + s) % K, query, answers)
        assert abs(loss - wrong) > 0.01


def test_an_image_that_no_network_left_out_has_no_answer(task, teacher):
    found = Teacher.of(str(teacher), task=task, device=CPU, precision="float32")
    with pytest.raises(IndexError):
        ask(task, found, torch.from_numpy(task.rows("validation")[:8]))


class NothingFromTheHost(TorchDispatchMode):
    """Refuses what is forbidden while a graph is captured: reading values, or copying some from the host."""

    refused = ("_local_scalar_dense", "nonzero", "lift_fresh", "masked_select", "unique")

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        assert not any(name in str(func) for name in self.refused), func
        if "aten.index.Tensor" in str(func):
            assert all(one is None or one.dtype != torch.bool for one in args[1]), "a shape that depends on values"
        return func(*args, **(kwargs or {}))


def ask(task, teacher, rows):
    pixels = fixed_pixels(len(rows), glimpses=T, grid=task.grid, locations="grid", seed=0, purpose="ask", device=CPU)
    observed, groups = torch.ones(len(rows), T, dtype=torch.bool), strata(len(rows), T)
    images = torch.from_numpy(task.images.copy())
    with NothingFromTheHost():
        return teacher.answers(images, pixels, index=rows, observed=observed, groups=groups, flip=rows % 2 == 0)


def test_teacher_of_several_networks_can_be_captured_in_a_graph(task, teacher):
    found = Teacher.of(str(teacher), task=task, device=CPU, precision="float32")
    assert len(found.members) == K
    assert ask(task, found, torch.from_numpy(task.rows("posterior")[:8])).shape == (8, 1, 3)
    with pytest.raises(AssertionError, match="_local_scalar_dense"), NothingFromTheHost():
        bool(torch.ones(()) > 0)


def test_fold_of_a_task_is_told_by_its_fingerprint(task):
    part = fold_task(task, fold=1, folds=K)
    assert fold_of(part, splits=task.fingerprint, folds=K) == 1
    assert fold_of(part, splits=task.fingerprint, folds=K + 1) is None
    assert fold_of(part, splits="other", folds=K) is None
    assert fold_of(task, splits=task.fingerprint, folds=K) is None


def test_teacher_of_another_number_of_folds_is_refused_before_anything_starts(task, teacher, tmp_path, capsys):
    sentence = (
        r"The teacher .*teacher.safetensors has 3 networks, none of which is known to have left out the same images "
        r"as a network of this posterior; train both with --posterior.folds 3 on the same data and splits, or give "
        r"another --posterior.teacher\.$"
    )
    with pytest.raises(InputError, match=sentence):
        trained(task, tmp_path / "run", teacher, folds=2)
    assert not (tmp_path / "run").exists()
    save_posterior(teacher, made(task), task=task)  # does not say on which splits
    with pytest.raises(InputError, match=sentence):
        trained(task, tmp_path / "run", teacher, folds=3)
    assert "Network 1" not in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["single", "teacher"])
@pytest.mark.parametrize("folds", [1, K])
def test_teacher_for_fewer_glimpses_is_refused(task, tmp_path, request, kind, folds):
    path = request.getfixturevalue(kind)
    sentence = (
        rf"^The teacher {path} was trained for up to {T} glimpses, not the {T + 2} of this posterior; "
        r"lower --glimpses, or give another --posterior.teacher\.$"
    )
    with pytest.raises(InputError, match=sentence):
        trained(task, tmp_path / "run", path, glimpses=T + 2, folds=folds)
    assert not (tmp_path / "run").exists()
    trained(task, tmp_path / "run", path, glimpses=T - 1, folds=folds, iterations=2)


@pytest.mark.parametrize("folds", [1, K])
@pytest.mark.parametrize("about", [{"task_fingerprint": "other"}, {"started_from": ["other"]}])
@pytest.mark.parametrize("number", [1, K])
def test_teacher_of_other_splits_is_refused(task, tmp_path, folds, about, number):
    path, several = tmp_path / "teacher.safetensors", made(task)
    about = {"task_fingerprint": task.fingerprint, **about}
    home = replace(task, fingerprint=about["task_fingerprint"])
    save_posterior(path, several if number > 1 else several.members[0], task=home, about=about)
    sentence = (
        rf"The teacher {path} was trained for other data or splits than these \(other, not pointer world .*\), "
        "so it may have seen images to validate or to annotate; train it again on these, "
        "or give another --posterior.teacher"
    )
    with pytest.raises(InputError, match=sentence):
        trained(task, tmp_path / "run", path, folds=folds)
    assert not (tmp_path / "run").exists()


def test_one_network_of_a_cross_fitted_posterior_may_teach(task, tmp_path):
    path, about = tmp_path / "part.safetensors", {"task_fingerprint": fold_task(task, fold=2, folds=4).fingerprint}
    save_posterior(path, made(task).members[0], task=task, about=about)
    trained(task, tmp_path / "run", path, iterations=2)
    assert (tmp_path / "run" / "done.json").exists()


def test_teacher_that_has_seen_what_the_folds_leave_out_is_named_once(task, single, teacher, tmp_path, capsys):
    told = f"The teacher {single} may have seen the images that each network leaves out; to avoid that, train it with "
    trained(task, tmp_path / "a", single, folds=2, iterations=2)
    assert " ".join(capsys.readouterr().err.split()).count(told + "--posterior.folds 2 too.") == 1
    trained(task, tmp_path / "b", single, iterations=2)
    trained(task, tmp_path / "c", teacher, folds=K, iterations=2)
    assert "may have seen" not in capsys.readouterr().err


@pytest.mark.parametrize("folds", [1, K])
def test_interrupted_teaching_goes_on_to_the_same_bits(task, teacher, tmp_path, monkeypatch, ctrl_c, folds):
    trained(task, tmp_path / "whole", teacher, folds=folds)
    step, networks = Trainer.step, []

    def dies(self):
        if self not in networks:
            networks.append(self)
        if len(networks) == min(2, folds) and self.iteration == 4:
            ctrl_c()
        step(self)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "step", dies)
        with pytest.raises(KeyboardInterrupt):
            trained(task, tmp_path / "parts", teacher, folds=folds)
    iterations = []
    monkeypatch.setattr(Trainer, "step", lambda self: (iterations.append(self.iteration), step(self))[1])
    trained(task, tmp_path / "parts", teacher, folds=folds)
    assert iterations[0] == 5
    whole, parts = (load_tensors(tmp_path / name / "posterior.safetensors")[0] for name in ("whole", "parts"))
    assert whole.keys() == parts.keys()
    assert all(whole[name].numpy().tobytes() == parts[name].numpy().tobytes() for name in whole)
    own = "" if folds == 1 else "fold-1"
    assert read_metrics(tmp_path / "whole" / own) == read_metrics(tmp_path / "parts" / own)


def test_training_is_known_by_all_that_its_teachers_file_holds(task, teacher, tmp_path):
    config = QUICK.model_copy(update={"teacher": str(teacher), "folds": K})
    before = training_fields(config)
    assert before["teacher"] == file_digest(teacher)
    trained(task, tmp_path / "run", teacher, folds=K, iterations=2)
    other = made(task)
    with torch.no_grad():
        other.members[K - 1].network.head.weight.mul_(2)
    save_posterior(teacher, other, task=task, about={"task_fingerprint": task.fingerprint})
    assert training_fields(config) != before
    with pytest.raises(InputError, match="another recipe or other inputs"):
        trained(task, tmp_path / "run", teacher, folds=K, iterations=2)
