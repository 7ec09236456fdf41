"""The model card of a packed network: front matter that the hub reads, then plain text."""

from __future__ import annotations

from typing import Any

_LICENCES = {
    "celeba-hq": "CelebA-HQ is for non-commercial research; check its terms for whether weights trained on it may be "
    "used otherwise.",
    "cub": "CUB-200-2011 is for non-commercial research, and its photographs belong to their photographers; check its "
    "terms for whether weights trained on it may be used otherwise.",
    "digits": "The digits are made from the UCI Optical Recognition of Handwritten Digits that scikit-learn ships.",
    "folder": "The network was trained on its author's own images, whose terms apply; this card does not state them.",
}
_METRICS = {
    "accuracy": "accuracy, one sampled look",
    "averaged_accuracy": "accuracy, sampled looks averaged",
    "greedy_accuracy": "accuracy, most probable locations",
    "balanced_accuracy": "balanced accuracy",
    "nll": "negative log-likelihood (nats)",
    "pixels_seen": "share of the pixels read",
}


def card(config: dict[str, Any], *, licence: str, title: str | None = None) -> str:
    """README.md of a packed network, from its config.json."""
    import yaml

    test = config["metrics"].get("test") or {}
    scores = {name: test[name] for name in _measures(config) if isinstance(test.get(name), int | float)}
    about = config["attribute"] or config["title"]
    title = title or f"Hard attention for {about}"
    front: dict[str, Any] = {
        "library_name": "nogs",
        "pipeline_tag": "image-classification",
        "tags": ["hard-attention", "glimpses", "nogs"],
        "license": licence,
    }
    if "accuracy" in scores:
        result = {
            "task": {"type": "image-classification"},
            "dataset": {"name": config["title"], "type": config["title"]},
            "metrics": [{"type": "accuracy", "value": round(scores["accuracy"], 4), "name": "test accuracy"}],
        }
        front["model-index"] = [{"name": title, "results": [result]}]
    parts = [
        f"---\n{yaml.safe_dump(front, sort_keys=False, allow_unicode=True)}---\n",
        f"# {title}\n",
        _what(config),
        _table(scores, config),
        _use(config),
        "## Licence\n",
        f"Weights: {licence if licence != 'other' else 'no licence was stated'}. "
        + _LICENCES.get(str(config["data"].get("kind")), "The terms of the images that it was trained on apply.")
        + " The software, nogs, is under the MIT licence.\n",
    ]
    return "\n".join(parts)


def _what(config: dict[str, Any]) -> str:
    a = config["architecture"]
    grid = a["grid"]
    labels = list(config["label2id"])
    shown = ", ".join(labels[:12]) + (f" and {len(labels) - 12} more" if len(labels) > 12 else "")
    what = "A recurrent network" if "hidden" in a else "A transformer over glimpse tokens"
    several = config.get("attributes")
    says = "names its class"
    if several:
        says = f"says whether each of {len(labels)} attributes is there"
    iteration = f", iteration {config['iteration']:,}" if config["iteration"] else ""
    kept = ""
    if config["locations"].startswith("fixed") and config["method"] == "ps-nogs+":
        kept = " No learned choice of locations beat the fixed order on the validation images."
    return (
        f"{what} that looks at {a['glimpses']} glimpses of {grid['glimpse']} px of an image of "
        f"{grid['height']} x {grid['width']} px, {_where(config)}, and {says}: {shown}. Trained with the method "
        f"`{config['method']}` on the task `{config['task']}` (seed {config['seed']}{iteration}).{kept}\n"
    )


def _where(config: dict[str, Any]) -> str:
    """How its locations are chosen."""
    grid = config["architecture"]["grid"]
    places = f"{len(grid['rows']) * len(grid['columns'])} locations"
    if config["locations"].startswith("fixed"):
        own = ", one for each attribute," if config["locations"] == "fixed for each attribute" else ""
        return f"in the same fixed order of locations{own} for every image, of {places}"
    return f"which {'are drawn at random from' if config['locations'] == 'random' else 'it chooses among'} {places}"


def _measures(config: dict[str, Any]) -> dict[str, str]:
    """Words for each measure; all looks at an image are the same if no locations are drawn."""
    if config["policy"] == "sample":
        return _METRICS
    every = {**_METRICS, "accuracy": "accuracy"}
    return {name: words for name, words in every.items() if name not in ("averaged_accuracy", "greedy_accuracy")}


def _table(scores: dict[str, float], config: dict[str, Any]) -> str:
    if not scores:
        return "No test scores were recorded.\n"
    measures = _measures(config)
    images, validation, best = config.get("test_images"), config["metrics"].get("validation"), config.get("best")
    many = "" if images is None else f"{images:,} "
    lines = ["## Scores\n", f"On the task's {many}test images:\n", "| measure | value |", "|---|---|"]
    lines += [
        f"| {measures[name]} | {value:z.3f} |" if name == "nll" else f"| {measures[name]} | {value:.1%} |"
        for name, value in scores.items()
    ]
    if validation is not None and best:
        measure = f"validation {best.replace('_', ' ')}"
        of_all = f"Of all its iterations, the best by {measure}" if config["iteration"] else measure.capitalize()
        lines.append(f"\n{of_all} ({validation:z.3f}).")
    return "\n".join(lines) + "\n"


def _use(config: dict[str, Any]) -> str:
    kind = config["data"].get("kind")
    asked = (
        'answers = model.classify("photo.jpg")\nprint(answers.present, answers["{}"].locations)\n```\n\n'
        if config.get("attributes")
        else 'answer = model.classify("photo.jpg")\nprint(answer.label, answer.probability, answer.locations)\n```\n\n'
    ).replace("{}", next(iter(config["label2id"])))
    prepared = {
        "celeba-hq": "Give it aligned, square faces as in CelebA-HQ.",
        "cub": "It was trained on birds cropped to 1.5 times their bounding box; crop pictures likewise.",
    }.get(str(kind), "Pictures are made square and resized as its training images were.")
    return (
        "## Use\n\n```python\nimport nogs\n\n"
        'model = nogs.load("hf://user/repository")  # or the folder that holds this file\n'
        f"{asked}{prepared} It answers with one of its classes for any picture.\n"
    )
