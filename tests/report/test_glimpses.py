import matplotlib
import numpy as np
import pytest
import torch
from matplotlib.patches import Rectangle

from nogs.attention.evaluation import Evaluation
from nogs.report import glimpses_figure
from toy_attention import toy_task


def evaluated(task, *, images=8, samples=2, glimpses=3, labels=3):
    stream = torch.Generator().manual_seed(0)
    return Evaluation(
        torch.randn(1, images, samples, labels, generator=stream).log_softmax(-1),
        torch.randint(len(task.grid), (1, images, samples, glimpses), generator=stream),
        torch.rand(1, glimpses, generator=stream),
        torch.from_numpy(task.labels[task.rows("test")])[None, :images],
    )


def panels(figure):
    """Axes with a frame, without colour bars: images first, then heatmaps."""
    images = [ax for ax in figure.axes if ax.images]
    maps = [ax for ax in figure.axes if ax.get_title().startswith("glimpse ")]
    return images, maps


def test_boxes_lie_where_the_network_looked():
    task = toy_task()
    evaluation = evaluated(task)
    figure = glimpses_figure(task, evaluation, labels=task.space.names, count=5)
    images, _ = panels(figure)
    assert len(images) == 5
    for n, ax in enumerate(images):
        assert np.array_equal(ax.images[0].get_array(), task.images[task.rows("test")[n]])
        boxes = [patch for patch in ax.patches if isinstance(patch, Rectangle)]
        assert len(boxes) == 3
        for box, location in zip(boxes, evaluation.locations[0, n, 0]):
            row, column = task.grid.pixels[location].tolist()
            assert (box.get_x(), box.get_y()) == (column - 0.5, row - 0.5)
            assert (box.get_width(), box.get_height()) == (task.grid.glimpse, task.grid.glimpse)
        assert [text.get_text() for text in ax.texts] == ["1", "2", "3"]


def test_titles_tell_right_from_wrong():
    task = toy_task()
    evaluation = evaluated(task)
    images, _ = panels(glimpses_figure(task, evaluation, labels=task.space.names))
    for n, ax in enumerate(images):
        p = evaluation.log_probabilities[0, n, 0].exp()
        said, truth = int(p.argmax()), int(evaluation.labels[0, n])
        sure = f"{p[said]:.0%}"
        right, wrong = f"✓ class {said} ({sure})", f"✗ says class {said} ({sure}), is class {truth}"
        assert ax.get_title() == (right if said == truth else wrong)
    assert len({ax.get_title()[0] for ax in images}) == 2


def test_heatmaps_show_the_share_of_each_location():
    task = toy_task()
    evaluation = evaluated(task)
    _, maps = panels(glimpses_figure(task, evaluation, labels=task.space.names))
    assert len(maps) == 3
    for step, ax in enumerate(maps):
        shown = np.asarray(ax.collections[0].get_array())
        assert shown == pytest.approx(evaluation.usage(len(task.grid))[0, step].view(task.grid.shape).numpy())


@pytest.mark.parametrize("glimpses", [1, 4, 7])
@pytest.mark.parametrize("count", [1, 30])
def test_any_number_of_glimpses_and_images_without_global_state(glimpses, count):
    task = toy_task(spacing=16)
    backend = matplotlib.get_backend(auto_select=False)
    figure = glimpses_figure(task, evaluated(task, glimpses=glimpses), labels=task.space.names, count=count)
    images, maps = panels(figure)
    assert (len(images), len(maps)) == (min(count, 8), glimpses)
    figure.canvas.draw()
    assert matplotlib.get_backend(auto_select=False) == backend


def test_grid_with_one_column_has_a_heatmap_too():
    from dataclasses import replace

    from nogs.glimpse import Grid

    task = replace(toy_task(), grid=Grid.even(image=24, glimpse=8, count=(3, 1)))
    _, maps = panels(glimpses_figure(task, evaluated(task), labels=task.space.names))
    assert np.asarray(maps[0].collections[0].get_array()).shape == (3, 1)
