import math
from functools import reduce

import pytest
from pydantic import BaseModel, ValidationError

from nogs.recipes import Recipe, names, recipe, validated
from nogs.runtime.errors import InputError


def write(folder, text, name="mine.yaml"):
    path = folder / name
    path.write_text(text)
    return path


@pytest.mark.parametrize("name", names())
def test_built_in_recipe_reads_back_from_its_file(name, tmp_path):
    found = recipe(name)
    assert found.name == found.data.kind == name
    found.to_yaml(tmp_path / "recipe.yaml")
    assert recipe(tmp_path / "recipe.yaml") == found


def test_built_in_grids_are_the_papers():
    assert recipe("celeba-hq").data.grid.shape == (50, 50)
    assert recipe("cub").data.grid.shape == (13, 13)
    assert recipe("digits").data.grid.shape == (10, 10)
    assert recipe("celeba-hq").glimpses == recipe("cub").glimpses == 5


def test_recipe_is_frozen():
    with pytest.raises(ValidationError):
        recipe("digits").seed = 1


def test_file_states_only_what_differs_from_its_base(tmp_path):
    path = write(tmp_path, "base: celeba-hq\nseed: 3\ndata: {annotated: 10}\nattention: {learning_rate: 1e-3}\n")
    found, base = recipe(path), recipe("celeba-hq")
    assert found.name == "mine"
    assert found.seed == 3
    assert found.attention.learning_rate == 1e-3
    assert found.data == base.data.model_copy(update={"annotated": 10})
    assert found.attention.model_copy(update={"learning_rate": 3e-4}) == base.attention


def test_file_without_base_needs_its_data(tmp_path):
    path = write(tmp_path, "name: own\ndata: {kind: folder, image_size: 64, glimpse: 8, grid_count: 5}\n")
    assert recipe(path).data.grid.shape == (5, 5)
    assert isinstance(recipe(str(path)), Recipe)


def test_all_mistakes_of_a_file_are_reported_at_once(tmp_path):
    path = write(
        tmp_path,
        "seed: -1\nglimpses: many\nextra: 1\n"
        "data: {kind: birds, imge_size: 64, image_size: 0, glimpse: 8, grid_count: 5}\n"
        "attention: {learning_rate: 0}\n",
    )
    with pytest.raises(InputError) as error:
        recipe(path)
    assert str(error.value) == (
        f"{path} has 7 mistakes: seed must be at least 0, not -1; glimpses must be a whole number, not 'many'; "
        "data.kind must be 'celeba-hq', 'cub', 'folder' or 'digits', not 'birds'; "
        "data.image_size must be at least 1, not 0; there is no field data.imge_size (did you mean data.image_size?); "
        "attention.learning_rate must be greater than 0, not 0; there is no field extra."
    )


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("name: x\n", "has a mistake: data is missing."),
        ("name: x\ndata: 3\n", "has a mistake: data must be a mapping of fields, not 3."),
        ("- 1\n", "must hold a recipe's fields (name, data, ...), but holds [1]."),
        ("", "must hold a recipe's fields (name, data, ...), but holds None."),
        (
            "base: celeba\n",
            "base is 'celeba' (did you mean 'celeba-hq'?); it must be digits, celeba-hq, cub or folder.",
        ),
        ("base: [cub]\n", "base is ['cub'] (did you mean 'cub'?); it must be digits, celeba-hq, cub or folder."),
        ("a: [", "is not valid YAML"),
        ("seed: 1\nseed: 2\n", "is not valid YAML (line 2, column 1: the key 'seed' a second time); correct it."),
        ("base: cub\ndata: {glimpse: 8, glimpse: 9}\n", "(line 2, column 20: the key 'glimpse' a second time)"),
        ("seed: 2001-13-45\n", "seed must be a whole number, not '2001-13-45'"),
        ("seed: !!timestamp 2001-13-45\n", "(line 1, column 7: this can't be read as timestamp); correct it."),
        ("seed: !!timestamp abc\n", "(line 1, column 7: this can't be read as timestamp); correct it."),
        ("seed: !!map abc\n", "(line 1, column 7: expected a mapping node, but found scalar); correct it."),
        ("seed: !!float abc\n", "(line 1, column 7: this can't be read as float); correct it."),
        ("seed: !!int ''\n", "(line 1, column 7: this can't be read as int); correct it."),
        ("seed: !!bool abc\n", "(line 1, column 7: this can't be read as bool); correct it."),
        ("seed: " + "7" * 5000, "(line 1, column 7: this can't be read as int); correct it."),
        ("seed: " + "7" * 4000, "seed is beyond ±9,223,372,036,854,775,807; give a smaller number."),
        ("seed: " + "[" * 3000, "is not valid YAML (brackets are nested too deeply); correct it."),
        ("seed: " + "[" * 3000 + "]" * 3000, "is not valid YAML (brackets are nested too deeply); correct it."),
        ("a: &a [1, 1]\nb: &b [*a, *a]\n", "(line 2, column 8: a value by its alias; write it out); correct it."),
        ("x" * 1_100_000, "has 1,100,000 characters, more than a recipe needs; give at most 1,048,576."),
        (
            "base: digits\ndata: {glimpse: 80}\n",
            "has a mistake: A glimpse of 80 px does not fit into an image of 48 x 48 px",
        ),
    ],
)
def test_mistake_in_a_file_is_one_sentence(tmp_path, text, sentence):
    path = write(tmp_path, text)
    with pytest.raises(InputError) as error:
        recipe(path)
    assert str(error.value).startswith(str(path))
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 600


def test_a_date_is_a_name(tmp_path):
    assert recipe(write(tmp_path, "base: digits\nname: 2026-01-31\n")).name == "2026-01-31"


def test_unknown_recipe_names_the_closest():
    with pytest.raises(InputError) as error:
        recipe("celebahq")
    assert str(error.value) == (
        "There is no recipe 'celebahq' (did you mean 'celeba-hq'?); "
        "choose digits, celeba-hq, cub or folder, or a .yaml file."
    )


def test_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match=r"nothing\.yaml"):
        recipe(tmp_path / "nothing.yaml")


def float_fields(model, prefix=""):
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from float_fields(field.annotation, f"{prefix}{name}.")
        elif "float" in str(field.annotation):
            yield prefix + name


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_no_field_takes_a_number_that_is_none(value):
    names = list(float_fields(Recipe))
    assert len(names) > 10
    for name in names:
        values = recipe("digits").model_dump()
        *above, last = name.split(".")
        part = reduce(dict.__getitem__, above, values)
        part[last] = [value] * len(part[last]) if isinstance(part[last], tuple) else value
        with pytest.raises(InputError, match=rf"has a mistake: {name} must be .*, not {value}"):
            validated(values, source="It")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("base: digits\nbank: {pixel_std: [0, 0, 0]}", "bank.pixel_std must be greater than 0, not 0."),
        ("base: digits\nbank: {pixel_std: [.nan, 1, 1]}", "bank.pixel_std must be a finite number, not nan."),
        ("base: digits\nbank: {count: 100000000000}", "bank.count must be at most 100000000, not 100000000000."),
        ("base: digits\ncompletion: {temperatures: [0]}", "completion.temperatures must be greater than 0, not 0."),
        ("base: digits\ncompletion: {temperatures: [-1]}", "completion.temperatures must be greater than 0, not -1."),
        (
            "base: digits\ncompletion: {temperatures: [.nan]}",
            "completion.temperatures must be a finite number, not nan.",
        ),
        ("base: digits\ndata: {count: 100000000000}", "data.count must be at most 10000000, not 100000000000."),
        (
            "base: folder\nbank: {generator: digits}",
            "bank.generator is digits, which draws images of the task digits, but the data is folder; choose another, "
            "such as training-images.",
        ),
    ],
)
def test_a_value_that_would_fail_later_is_refused_at_once(tmp_path, text, sentence):
    path = write(tmp_path, text)
    with pytest.raises(InputError) as error:
        recipe(path)
    assert str(error.value) == f"{path} has a mistake: {sentence}"
