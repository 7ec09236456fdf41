"""Figures show the numbers that they were given, in the right place."""

import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex

import exact_design
import worlds
from nogs.attention.architecture import Architecture
from nogs.attention.comparison import Learned, compare, learned
from nogs.attention.network import Networks
from nogs.completion import Completions
from nogs.design.entropies import objective
from nogs.glimpse import Grid
from nogs.report import (
    boed_figure,
    completions_figure,
    convergence_figure,
    curves_figure,
    effective_figure,
    epe_figure,
    heatmaps_figure,
    mean_image,
    pixels_figure,
    policy_figure,
    posterior_figure,
    scores_figure,
    sequences_figure,
    stopping_figure,
    walk_through,
)
from nogs.report.drawing import COLOURS, UNSEEN, method_styles, observed_share
from nogs.report.looking import step_shares
from nogs.report.plates import mean_curves
from nogs.report.rollouts import seen_share, trace
from toy_attention import toy_sequences, toy_task

GRID = Grid.spaced(image=24, glimpse=8, spacing=8)


def test_epe_figure_shows_the_maps_the_choice_and_what_is_seen(rng):
    task = toy_task()
    sequences = toy_sequences(task, task.ids[:4])
    maps = rng.random((3, len(task.grid)))
    maps[1, 4] = np.nan
    figure = epe_figure(task, sequences, "2", maps)
    meshes = [ax for ax in figure.axes if ax.get_title().startswith("before glimpse")]
    image, pixels = task.images[2], sequences.by_id("2")
    for t, ax in enumerate(meshes):
        shown = np.ma.filled(ax.collections[0].get_array(), np.nan)
        np.testing.assert_array_equal(shown, maps[t].reshape(task.grid.shape))
        x, y = ax.lines[-1].get_xydata()[0]
        assert [y, x] == (pixels[t] + 3.5).tolist()
    below = [ax for ax in figure.axes if ax.get_title().startswith("after glimpse")]
    assert len(meshes) == len(below) == 3
    for t, ax in enumerate(below):
        expected = np.full_like(image, UNSEEN)
        for row in range(24):
            for column in range(24):
                if any(0 <= row - r < 8 and 0 <= column - c < 8 for r, c in pixels[: t + 1]):
                    expected[row, column] = image[row, column]
        np.testing.assert_array_equal(ax.images[0].get_array(), expected)


def test_walk_through_is_algorithm_1_on_the_exact_world():
    world = worlds.pointer_world()
    task, tools = world.task(), exact_design.tools()
    id = task.splits["annotate"][7]
    pixels = np.array([worlds.A])
    walk = walk_through(tools, task, id, pixels, variables=objective(task.space, None), samples=3)
    image = torch.from_numpy(task.images[task.rows([id])])
    found = tools.completion.complete(image, torch.from_numpy(pixels)[None], ids=[id])
    pictures, weights = found.images(0), found.weights_of(0).double()
    maps = np.empty((len(pictures), len(task.grid)))
    for n, picture in enumerate(pictures):
        for place, where in enumerate(task.grid.pixels.tolist()):
            route = torch.tensor([[worlds.A, where]])
            p = tools.posterior.log_probabilities(picture[None], route)[0, 0].double().exp().numpy()
            maps[n, place] = -sum(share * np.log(share) for share in p if share > 0)
    mean = (weights.numpy()[:, None] * maps).sum(0) / weights.sum().item()
    assert walk.completions == len(pictures)
    np.testing.assert_allclose(walk.epe, mean, atol=1e-5)
    assert walk.chosen == int(np.flatnonzero(mean <= mean.min() + 1e-6)[0])
    order = np.argsort(-weights.numpy(), kind="stable")[:3]
    np.testing.assert_array_equal(walk.samples, pictures.numpy()[order])
    np.testing.assert_allclose(walk.entropies, maps[order], atol=1e-5)
    figure = boed_figure(task, walk)
    last = next(ax for ax in figure.axes if ax.get_title(loc="left").startswith("4"))
    np.testing.assert_array_equal(np.asarray(last.collections[0].get_array()).ravel(), walk.epe)


def test_walk_through_chooses_as_the_design_was_told_to():
    world = worlds.pointer_world(spacing=2)
    task, tools = world.task(), exact_design.tools(spacing=2)
    id, pixels = task.splits["annotate"][7], np.array([worlds.A])
    free = walk_through(tools, task, id, pixels, variables=(0,))
    assert (np.abs(task.grid.pixels[free.chosen].numpy() - worlds.A) >= 4).any()
    crowded = walk_through(tools, task, id, task.grid.pixels[free.chosen][None].numpy() - 2, variables=(0,))
    assert (np.abs(task.grid.pixels[crowded.chosen].numpy() - crowded.pixels[0]) < 4).all()
    apart = walk_through(tools, task, id, crowded.pixels, variables=(0,), overlap=0)
    np.testing.assert_array_equal(apart.epe, crowded.epe)
    gaps = np.abs(task.grid.pixels.numpy() - crowded.pixels[0])
    assert apart.chosen == int(np.where((gaps >= 4).any(1), apart.epe, np.inf).argmin())


def test_walk_through_stops_at_the_evaluations_it_may_take():
    task, tools = worlds.pointer_world().task(), exact_design.tools()
    id, pixels = task.splits["annotate"][0], np.array([worlds.N])
    walk = walk_through(tools, task, id, pixels, variables=(0,), samples=2, evaluations=5 * len(task.grid))
    assert walk.completions == 5


def test_share_of_observed_pixels_is_the_count_of_boxes(rng):
    pixels = np.stack([rng.integers(0, 17, 50), rng.integers(0, 12, 50)], -1)
    counts = np.zeros((24, 19))
    for row, column in pixels:
        counts[row : row + 8, column : column + 8] += 1
    np.testing.assert_allclose(observed_share(pixels, glimpse=8, height=24, width=19), counts / 50)


def test_heatmaps_stand_in_rows_of_methods_and_columns_of_steps(rng):
    looks = {
        name: {method: GRID.pixels.numpy()[rng.integers(0, 9, (6, 2, 3))] for method in ("ram", "ps-nogs")}
        for name in ("Smiling", "Male")
    }
    figure = heatmaps_figure(looks, grid=GRID, mean=mean_image(toy_task()))
    pictures = [ax for ax in figure.axes if ax.images]
    assert len(pictures) == 4 * 3
    assert [ax.get_ylabel() for ax in pictures[::3]] == [
        *("Smiling\nram", "Smiling\nps-nogs", "Male\nram", "Male\nps-nogs")
    ]
    shares = step_shares(looks["Smiling"]["ram"], GRID)
    for step in range(3):
        expected = observed_share(looks["Smiling"]["ram"][:, :, step].reshape(-1, 2), glimpse=8, height=24, width=24)
        np.testing.assert_allclose(shares[step], expected)
        assert shares[step].sum() == pytest.approx(64)  # every trajectory sees one box


def test_mean_image_is_the_mean():
    task = toy_task()
    expected = task.images[task.rows("test")].mean(0)
    np.testing.assert_allclose(mean_image(task), expected, atol=0.51)


def test_sequences_of_the_kinds_stand_below_their_image():
    task = toy_task()
    near, other = toy_sequences(task, task.ids[:4]), toy_sequences(task, task.ids[:2], seed=1)
    figure = sequences_figure(task, {"NOGS": near, "H1": other}, task.ids[:3])
    axes = np.array(figure.axes).reshape(3, 3)
    assert [ax.get_ylabel() for ax in axes[:, 0]] == ["whole", "NOGS", "H1"]
    for n in range(3):
        np.testing.assert_array_equal(axes[0, n].images[0].get_array(), task.images[n])
        corners = [(box.get_y() + 0.5, box.get_x() + 0.5) for box in axes[1, n].patches]
        assert corners == [tuple(pixel) for pixel in near.locations[n].tolist()]
    assert not axes[2, 2].images  # the third image has no H1 sequence


def test_completions_are_shown_likeliest_first(rng):
    task = toy_task()
    pool = torch.from_numpy(rng.integers(0, 255, (5, 24, 24, 3), dtype=np.uint8))
    weights = torch.tensor([[0.1, 0.0, 0.6, 0.1, 0.2]])
    found = Completions(
        pool=pool,
        index=torch.arange(5)[None],
        flipped=torch.tensor([[False, False, False, False, True]]),
        weights=weights,
        rows=torch.arange(5)[None],
        effective=torch.ones(1),
        proposed=torch.ones(1),
        temperature=torch.ones(1),
    )
    figure = completions_figure(task, ["0"], np.array([[[0, 8], [16, 0]]]), {"one": found, "two": found}, samples=3)
    pictures = [ax.images[0].get_array() for ax in figure.axes]
    assert len(pictures) == 7
    np.testing.assert_array_equal(pictures[0], task.images[0])
    for start in (1, 4):
        np.testing.assert_array_equal(pictures[start], pool[2])
        np.testing.assert_array_equal(pictures[start + 1], pool[4].flip(1))
    assert [ax.get_xlabel() for ax in figure.axes[1:4]] == ["60.0%", "20.0%", "10.0%"]
    np.testing.assert_array_equal(figure.axes[0].images[2].get_array(), task.images[0][16:, :8])  # the close-up


def networks(method, converged, *, attribute, length=5):
    """A network for each seed, whose NLL falls to its best at validation `converged`."""
    return [
        Learned(
            method=method,
            attribute=attribute,
            seed=seed,
            rule="nll",
            iterations=tuple(range(100, 100 * (length + 1), 100)),
            curves={
                name: tuple(1.0 if n < place - 1 else 0.1 for n in range(length))
                for name in ("nll", "accuracy", "balanced_accuracy")
            },
            test={"accuracy": 0.5, "averaged_accuracy": 0.5, "balanced_accuracy": 0.5, "nll": 0.1},
            majority=0.5,
        )
        for seed, place in enumerate(converged)
    ]


def test_convergence_is_sorted_by_the_reference_with_the_range_over_seeds():
    found = [
        *networks("ram", (4, 5), attribute="Male"),
        *networks("ram", (1, 3), attribute="Smiling"),
        *networks("ps-nogs", (2, 2), attribute="Male"),
        *networks("ps-nogs", (1, 2), attribute="Smiling"),
    ]
    axes = convergence_figure(compare(found, resamples=10), found).axes[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["Smiling", "Male"]
    bars = {part.get_label().split(":")[0]: part for part in axes.containers}
    for method, values, ends in (
        ("RAM", [200, 450], [(100, 300), (400, 500)]),
        ("PS-NOGS", [150, 200], [(100, 200), (200, 200)]),
    ):
        line, _, (spread,) = bars[method]
        np.testing.assert_allclose(line.get_ydata(), values)
        assert [tuple(segment[:, 1]) for segment in spread.get_segments()] == ends


def test_curves_are_means_over_tasks_with_the_range_over_seeds():
    found = [*networks("ram", (2, 4), attribute="a"), *networks("ram", (2, 2), attribute="b")]
    axes = curves_figure(found).axes[0]
    np.testing.assert_allclose(axes.lines[0].get_ydata(), [1, (0.1 + 0.55) / 2, (0.1 + 0.55) / 2, 0.1, 0.1])
    np.testing.assert_allclose(axes.lines[0].get_xdata(), [100, 200, 300, 400, 500])


def on_posterior(method, *, validations, kept=0):
    """A network with the posterior as classifier, of validations (NLL, accuracy) every 50 iterations."""
    steps = [
        {"step": 50 * n, "validation_nll": nll, "validation_accuracy": share, "validation_balanced_accuracy": share}
        for n, (nll, share) in enumerate(validations)
    ]
    test = dict.fromkeys(("accuracy", "averaged_accuracy", "balanced_accuracy", "nll"), 0.5)
    best = {
        name: {"iteration": 50 * kept, "validation": steps[kept][f"validation_{name}"], "test": test}
        for name in ("nll", "accuracy", "balanced_accuracy")
    }
    member = {"method": method, "attribute": None, "seed": 0, "weight": None}
    evaluation = {"member": member, "convergence": None, "majority_class_accuracy": 0.2, "best": best}
    return learned(evaluation, steps, embedder=None)


def test_network_on_a_posterior_is_drawn_at_the_version_that_was_kept():
    # a new user's birds: a rejected version was right on more validation pictures
    found = [*networks("ram", (2,), attribute=None), on_posterior("ps-nogs+", validations=[(1.3, 0.444), (1.2, 0.472)])]
    levels = [
        line.get_ydata()[0] for axes in curves_figure(found).axes for line in axes.lines if line.get_linestyle() == ":"
    ]
    assert levels == pytest.approx([1.3, 44.4])


def test_equal_curves_are_drawn_once_and_named_together():
    policy = {"accuracy": [0.2, 0.4], "stopping": [{"stop_at": 0.5, "accuracy": 0.3, "mean_glimpses": 1.5}]}
    other = {**policy, "accuracy": [0.2, 0.5]}
    figure = stopping_figure({"ps-nogs+": policy, "ram": other, "fixed": dict(policy)})
    names = ["PS-NOGS+ = one fixed order", "RAM"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == names
    assert len(figure.axes[0].lines) == 2
    curve = [(0.1, 0.2), (0.2, 0.4)]
    axes = pixels_figure({"ps-nogs+": curve, "ram": [(0.1, 0.2), (0.2, 0.5)], "fixed": list(curve)}).axes[0]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == names
    same = [on_posterior(method, validations=[(1.3, 0.444)]) for method in ("ps-nogs+", "fixed")]
    figure = curves_figure([*same, *networks("ram", (2,), attribute=None)])
    assert [text.get_text() for text in figure.legends[0].get_texts()] == names


def test_curve_of_a_network_that_failed_ends_there():
    found = [*networks("ram", (2,), attribute="a"), *networks("ram", (2,), attribute="b", length=3)]
    shown = curves_figure(found).axes[0].lines[0].get_ydata()
    assert np.isfinite(shown[:3]).all()
    assert np.isnan(shown[3:]).all()


def test_small_plots_draw_what_they_are_given():
    rows = [
        {"glimpses": t, "accuracy": t / 4, "cross_entropy": 1.0, "entropy": 2.0, "calibration_error": 0.1}
        for t in range(3)
    ]
    lines = posterior_figure({"test": rows}).axes[0].lines
    np.testing.assert_allclose(lines[0].get_xydata(), [[0, 0], [1, 25], [2, 50]])
    lines = effective_figure({"bank": [(0, None), (1, 30.0), (2, 4.0)]}).axes[0].lines
    np.testing.assert_allclose(lines[0].get_xydata(), [[1, 30], [2, 4]])
    axes = policy_figure({"ram": [[1.0, 2.0], [3.0, 2.0]]}, locations=9).axes[0]
    np.testing.assert_allclose(axes.lines[0].get_xydata(), [[1, 2], [2, 2]])
    axes = pixels_figure({"ram": [(0.0, 0.1), (0.03, 0.6)]}, levels={"majority class": 0.2}, trained=["ram"]).axes[0]
    np.testing.assert_allclose(axes.lines[0].get_xydata(), [[0, 10], [3, 60]])
    ways = {
        "ours": {
            "measures": {
                n: {"mean": [2, 1], "low": [2, 0.5], "high": [2, 1.5]} for n in ("entropy", "cross_entropy", "accuracy")
            }
        }
    }
    np.testing.assert_allclose(scores_figure(ways).axes[0].lines[0].get_ydata(), [2, 1])


def test_stopping_early_is_drawn_by_glimpses_and_by_confidence():
    policies = [
        {
            "accuracy": [0.2, 0.4, 0.6 + seed / 10],
            "stopping": [
                {"stop_at": at, "accuracy": at / 2 + seed / 5, "mean_glimpses": 1 + at + seed} for at in (0.8, 0.5)
            ],
        }
        for seed in (0, 1)
    ]
    policies[1]["stopping"].append({"stop_at": 0.99, "accuracy": 1.0, "mean_glimpses": 3.0})
    left, right = stopping_figure({"ram": mean_curves(policies)}).axes
    np.testing.assert_allclose(left.lines[0].get_xydata(), [[1, 20], [2, 40], [3, 65]])
    np.testing.assert_allclose(right.lines[0].get_xydata(), [[2, 35], [2.3, 50]])
    np.testing.assert_allclose(right.lines[1].get_xydata(), [[3, 65]])
    assert [text.get_text() for text in right.texts] == ["0.5", "0.8"]


def test_words_beside_points_do_not_lie_on_each_other():
    def policy(accuracy):
        stopping = [
            {"stop_at": at, "accuracy": accuracy + at / 20, "mean_glimpses": 3 + at / 10}
            for at in (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
        ]
        return {"accuracy": [0.25, 0.5, 0.5], "stopping": stopping}

    figure = stopping_figure({"ram": policy(0.5), "fixed": policy(0.51), "random": policy(0.51)})
    figure.canvas.draw()
    boxes = [text.get_window_extent() for text in figure.axes[1].texts]
    assert len(boxes) > 1
    assert not any(a.overlaps(b) for n, a in enumerate(boxes) for b in boxes[:n])


@pytest.mark.parametrize("columns", [1, 2])
def test_words_beside_points_do_not_lie_on_rings(columns):
    def policy(last):
        stopping = [
            {"stop_at": at, "accuracy": last + share, "mean_glimpses": glimpses}
            for at, share, glimpses in ((0.5, 0.07, 3.2), (0.8, 0.0, 3.96), (0.95, 0.0, 4.0))
        ]
        return {"accuracy": [0.3, 0.4, 0.5, last], "stopping": stopping}

    figure = stopping_figure(
        {"fixed": policy(0.425), "random": policy(0.405), "centre-out": policy(0.48)}, columns=columns
    )
    figure.canvas.draw()
    axes = figure.axes[1]
    words = [text.get_window_extent() for text in axes.texts]
    assert words
    rings = [line for line in axes.lines if line.get_marker() == "o" and line.get_markersize() == 9]
    assert len(rings) == 3
    for ring in rings:
        x, y = axes.transData.transform(ring.get_xydata()[0])
        side = 4.5 * figure.dpi / 72
        assert not any(
            box.x0 < x + side and x - side < box.x1 and box.y0 < y + side and y - side < box.y1 for box in words
        )


def test_methods_keep_their_colours_whoever_stands_beside_them():
    alone, beside = method_styles(["ps-nogs, weight 1"]), method_styles(["ram", "own", "ps-nogs, weight 64"])
    assert alone["ps-nogs, weight 1"]["color"] == beside["ps-nogs, weight 64"]["color"]
    many = method_styles([f"m{n}" for n in range(6)] + ["ram", "ps-nogs"])
    assert len({style["color"] for style in many.values()}) == len(COLOURS) == 8


def test_palette_is_told_apart_in_grey_and_with_red_green_blindness():
    """Neighbours differ by lightness or, as a deuteranope sees them (Viénot, 1999), by colour."""
    rgb = np.array([[int(to_hex(c)[n : n + 2], 16) / 255 for n in (1, 3, 5)] for c in COLOURS[:6]]) ** 2.2
    seen = rgb @ np.array([[0.292, 0.708, 0], [0.292, 0.708, 0], [-0.022, 0.022, 1]]).T
    seen = np.clip(seen, 0, 1) ** (1 / 2.2)
    apart = np.linalg.norm(seen[:, None] - seen[None], axis=-1)[~np.eye(6, dtype=bool)]
    assert apart.min() > 0.08


@pytest.fixture
def network():
    return Networks(Architecture(GRID, glimpses=3, labels=4, hidden=8), seeds=[3])


def test_trace_is_the_forward_pass_laid_open(network):
    task = toy_task()
    images, ids = task.images[:7], task.ids[:7]
    found = trace(network, images, ids, batch=3)
    rollout = network(
        torch.from_numpy(images), torch.arange(7)[None], forced=torch.from_numpy(found.locations)[None], entropies=True
    )
    torch.testing.assert_close(torch.from_numpy(found.answers[:, -1]), rollout.logits[0].softmax(-1))
    chosen = np.take_along_axis(found.policies, found.locations[..., None], -1)[..., 0]
    np.testing.assert_allclose(chosen, rollout.log_probabilities[0].exp().detach().numpy(), rtol=1e-4)
    again = trace(network, images[2:3], ids[2:3])
    np.testing.assert_array_equal(again.locations[0], found.locations[2])
    forced = trace(network, images, ids, locations=found.locations[::-1].copy())
    np.testing.assert_array_equal(forced.locations, found.locations[::-1])


def test_accuracy_and_pixels_by_glimpse_are_counted(network):
    task = toy_task()
    found = trace(network, task.images[:5], task.ids[:5])
    for t in range(1, 4):
        each = [len(set(found.locations[n, :t])) * 64 / 24**2 for n in range(5)]  # cells of this grid don't overlap
        share = seen_share(GRID.pixels[torch.from_numpy(found.locations[:, :t])], GRID)
        assert share == pytest.approx(np.mean(each))
