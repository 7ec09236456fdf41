"""`run_recipe`: the stages of a run one after the other, each with a time estimate before it and its numbers after."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from nogs.data.task import Task
from nogs.pipeline import estimates
from nogs.pipeline.ledger import Ledger
from nogs.pipeline.verdict import verdicts
from nogs.recipes import Recipe
from nogs.runtime import progress
from nogs.runtime.device import pick_device, versions
from nogs.runtime.errors import InputError
from nogs.runtime.files import read_json, write_bytes, write_json
from nogs.runtime.fingerprint import file_digest, fingerprint
from nogs.runtime.lock import only_one

__all__ = ["STAGES", "Settings", "run_recipe"]

STAGES = ("data", "posterior", "bank", "sequences", "attention", "report")


@dataclass(frozen=True)
class Settings:
    """What a run needs beside its recipe: where things lie, on what it computes, and which networks it trains."""

    data: Path | None = None
    cache: Path | None = None
    skip_corrupt: bool = False
    source: Path | None = None  # of the bank's generator
    posterior: str | None = None  # a file or a published name, in place of one trained here
    attributes: tuple[str, ...] = ()
    methods: tuple[str, ...] = ("ram", "ps-nogs")
    seeds: tuple[int, ...] = ()
    workers: int | None = None  # processes that annotate
    device: str = "auto"
    until: str = "report"  # the last stage
    estimate: bool = True  # measure before each stage how long it will take


def run_recipe(
    recipe: Recipe,
    task: Task,
    *,
    run: Path,
    settings: Settings | None = None,
    tell: Callable[[str], None] = progress.say,
) -> Path:
    """Do the stages of `recipe` into the folder `run`; returns the report's page, or the last stage's folder.

    `tell` gets a line or a few for each stage: what is to come, how long it will take, and the numbers that came out.
    """
    work = _Run(recipe, task, Path(run), settings or Settings(), tell)
    with only_one(run):
        return work.all()


class _Run:
    """A run in work."""

    def __init__(self, recipe: Recipe, task: Task, run: Path, settings: Settings, tell: Callable[[str], None]) -> None:
        self.recipe, self.task, self.run, self.settings, self.tell = recipe, task, run, settings, tell
        self.device = pick_device(settings.device)
        self.attributes = _attributes(settings.attributes, task)
        if settings.until not in STAGES:
            raise InputError(f"There is no stage {settings.until!r}; choose {', '.join(STAGES)}.")
        if settings.workers is not None and settings.workers < 1:
            raise InputError(f"--workers must be at least 1, not {settings.workers}.")
        if not task.splits["annotate"] and "ps-nogs" in settings.methods:
            raise InputError(f"Task {task.name!r} has no images to annotate; raise data.annotated.")
        self.ledger = Ledger(run)

    def all(self) -> Path:
        """Every stage up to the last that is asked for."""
        end = self.run
        for number, stage in enumerate(STAGES, start=1):
            self.head = f"{number}/{len(STAGES)} {stage}"
            end = getattr(self, f"_{stage}")()
            if stage == self.settings.until:
                break
        return end

    def _data(self) -> Path:
        """The recipe, the splits, and what is in the data."""
        from nogs.data import write_splits
        from nogs.data.inspect import contact_sheet, describe
        from nogs.runtime.stage import Stage

        folder = self.run / "data"
        self._enter("data", {"data": self.recipe.data.model_dump(mode="json"), "from data": self.task.fingerprint})
        stage = Stage(folder, name="data", fingerprint=fingerprint(self.recipe.data, self.task.fingerprint))
        stage.check_folder()
        if not stage.done:
            stage.begin()
            write_splits(self.task, folder)
            write_json(folder / "inspect.json", describe(self.task))
            sheet = contact_sheet(self.task, seed=self.recipe.seed, glimpses=self.recipe.glimpses)
            _save(sheet, folder / "contact-sheet.png")
            stage.finish(images=len(self.task.ids), notes=list(self.task.notes))
        self.recipe.to_yaml(self.run / "recipe.yaml")
        splits = ", ".join(f"{len(self.task.splits[name]):,} {name}" for name in ("train", "validation", "test"))
        labels = f"{len(self.task.space.names)} {'classes' if self.task.space.kind == 'categorical' else 'attributes'}"
        self.tell(
            f"{self.head}: {len(self.task.ids):,} images of {self.task.grid.height} px, {labels} ({splits}); "
            f"{len(self.task.splits['annotate']):,} get sequences."
        )
        return folder

    def _posterior(self) -> Path:
        """What do glimpses say about the label?"""
        from nogs.posterior.training import train_posterior

        folder, config = self.run / "posterior", self.recipe.posterior
        if self.settings.posterior is not None:
            self.ledger.enter("posterior", {"file": _digest(self.settings.posterior)})
            self.tell(f"{self.head}: {self.settings.posterior}, which was trained before.")
            return folder
        fields = config.model_dump(mode="json", exclude={"save_every"})
        self._enter("posterior", {"posterior": fields, **self._common()})
        with self._threads(config.kind == "tokens" and config.width <= 128):
            if not self._skipped(folder):
                seconds = self._measured(estimates.posterior_seconds, self.recipe, self.task, device=self.device)
                self._announce("learns what glimpses say about the label", seconds)
            train_posterior(
                self.task,
                config=config,
                glimpses=self.recipe.glimpses,
                folder=folder,
                seed=self.recipe.seed,
                device=self.settings.device,
            )
        found = read_json(folder / "evaluation.json")
        last = found["tables"]["test, calibrated"][-1]
        self.tell(
            f"  after {last['glimpses']} glimpses at random places it is right on {last['accuracy']:.1%} of the test "
            f"images, its cross-entropy {last['cross_entropy']:.2f} nats ({found['training_seconds']:.0f} s)"
        )
        return folder

    def _bank(self) -> Path:
        """What could the rest of an image be?"""
        from nogs.bank import build_bank

        folder, settings = self.run / "bank", self.settings
        self._enter("bank", {"bank": self.recipe.bank.model_dump(mode="json"), "from data": self.task.fingerprint})
        if not self._skipped(folder):
            seconds = self._measured(
                estimates.bank_seconds, self.recipe, self.task, device=self.device, source=settings.source
            )
            self._announce(f"{self.recipe.bank.count:,} images to complete glimpses with", seconds)
        about = build_bank(
            self.task, config=self.recipe.bank, folder=folder, source=settings.source, device=settings.device
        )
        self.tell(
            f"  {about['images']:,} images of {self.recipe.bank.generator}, {about['near_duplicates_left_out']} "
            f"near-duplicates of held-out ones left out ({about['seconds']:.0f} s)"
        )
        self._completions(folder)
        return folder

    def _completions(self, bank: Path, *, images: int = 32, shown: int = 6) -> None:
        """How good its completions are, with a picture of some."""
        from nogs.bank import load_bank
        from nogs.completion import Retrieval
        from nogs.completion.picture import completion_sheet
        from nogs.completion.quality import evaluate_completion, random_locations

        folder, recipe, task = bank / "evaluation", self.recipe, self.task
        path = folder / "validation.json"
        opened = load_bank(bank, device=self.settings.device, task=task, source=self.settings.source)
        retrieval = Retrieval(opened, config=recipe.completion, glimpse=task.grid.glimpse, seed=recipe.seed)
        if not path.is_file() or read_json(path).get("completion") != retrieval.fingerprint:
            ids = task.splits["validation"][:images]
            table = evaluate_completion(retrieval, task, ids, glimpses=recipe.glimpses, seed=recipe.seed)
            places = random_locations(task, ids[:shown], recipe.glimpses - 1, seed=recipe.seed)
            _save(completion_sheet(retrieval, task, ids[:shown], places), folder / "completions.png")
            record: dict[str, Any] = {"split": "validation", "completion": retrieval.fingerprint, "by_glimpses": table}
            write_json(path, {**record, "bank": opened.about, "versions": versions(opened.device)})
        sizes = " ".join(f"{row['effective_sample_size']:.0f}" for row in read_json(path)["by_glimpses"])
        self.tell(f"  effective number of completions after 0, 1, ... glimpses: {sizes}")

    def _sequences(self) -> Path:
        """Where to look next, so that least is left unknown?"""
        from nogs.design.annotation import annotate, close_tools
        from nogs.design.tools import check_leaks
        from nogs.posterior.store import find_posterior, load_posterior
        from nogs.runtime.executors import LocalExecutor

        recipe, task, ids = self.recipe, self.task, self.task.splits["annotate"]
        home, bank, source = self.run / "sequences", self.run / "bank", self._posterior_file()
        parts = {name: getattr(recipe, name).model_dump(mode="json") for name in ("completion", "design")}
        inputs = {f"from the {stage}": self.ledger.mark(stage) for stage in ("posterior", "bank")}
        self._enter("sequences", {**parts, **inputs, **self._common()})
        check_leaks(task, posterior=source, bank=bank)
        load_posterior(source, task=task)  # one of another task is refused here
        tools, workers = self._tools(source), self.settings.workers or self._places(len(ids))
        digest, bank_mark = file_digest(find_posterior(source)), read_json(bank / "done.json")["fingerprint"]
        for attribute in self.attributes:
            folder = home / (attribute or "")
            if not self._skipped(folder):
                column = None if attribute is None else task.attribute(attribute)
                seconds = self._measured(
                    lambda column=column: estimates.sequences_seconds(
                        recipe, task, ids, tools=tools(), workers=workers, attribute=column
                    )
                )
                what = f"{attribute}, " if attribute else ""
                self._announce(f"{what}near-optimal glimpses for {len(ids):,} images, {workers} at work", seconds)
            found = annotate(
                task,
                ids,
                open_tools=tools,
                marks=(digest, bank_mark, fingerprint(recipe.completion), recipe.posterior.precision),
                config=recipe.design,
                glimpses=recipe.glimpses,
                folder=folder,
                attribute=attribute,
                seed=recipe.seed,
                executor=LocalExecutor(workers),
                provenance={
                    "posterior": find_posterior(source).stem,
                    "posterior_digest": digest,
                    "bank": bank_mark,
                    **parts,
                    "seed": recipe.seed,
                    "nogs": versions()["nogs"],
                },
                device=self.device.type,
            )
            assert found is not None
            assert found.entropy_before is not None
            done = read_json(folder / "done.json")
            left = " ".join(f"{nats:.2f}" for nats in found.entropy_before.mean(0))
            self.tell(
                f"  {len(found):,} sequences; nats left before each glimpse: {left} "
                f"({done['evaluations']:,} evaluations, {done['seconds']:.0f} s)"
            )
        close_tools()
        return home

    def _attention(self) -> Path:
        """Networks that learn where to look, with and without the sequences."""
        from nogs.attention.embedders import find_weights
        from nogs.attention.methods import Inputs, make_members
        from nogs.attention.training import STATE, train

        recipe, task, folder = self.recipe, self.task, self.run / "attention"
        fields = recipe.attention.model_dump(mode="json", exclude={"save_every", "weights", "cache"})
        for method in self.settings.methods:
            inputs = {"from the sequences": self.ledger.mark("sequences")} if method.startswith("ps-") else {}
            if self._enter(f"attention/{method}", {"attention": fields, **inputs, **self._common(seed=False)}):
                (folder / STATE).unlink(missing_ok=True)  # of networks that are not wanted any more
        members = make_members(
            task,
            self.settings.methods,
            seeds=self.settings.seeds or (recipe.seed,),
            attributes=self.attributes,
            config=recipe.attention,
            glimpses=recipe.glimpses,
            inputs=Inputs(sequences=self.run / "sequences", heuristic=self.run / "sequences"),
            seed=recipe.seed,
        )
        with self._threads(recipe.attention.embedder != "vgg" and recipe.attention.hidden <= 256):
            if not all(self._skipped(folder / member.name, say=False) for member in members):
                seconds = self._measured(estimates.attention_seconds, recipe, task, members, device=self.device)
                self._announce(f"{len(members)} networks side by side: {', '.join(self.settings.methods)}", seconds)
            else:
                self.tell(f"{self.head}: done before.")
            folders = train(
                task,
                members,
                config=recipe.attention,
                glimpses=recipe.glimpses,
                folder=folder,
                device=self.settings.device,
                weights=find_weights(recipe.attention.weights, self.settings.data),
            )
        for place in folders:
            found = read_json(place / "evaluation.json")
            self.tell(
                f"  {place.relative_to(folder).as_posix()}: {found['best']['accuracy']['test']['accuracy']:.1%} of the "
                f"test images right (the most common class {found['majority_class_accuracy']:.1%})"
            )
        for verdict in verdicts(folders, out=folder / "verdict.json"):
            self.tell(f"  {verdict}")
        return folder

    def _report(self) -> Path:
        """One page about all of it."""
        from nogs.report import write_report

        page = write_report([self.run], task=self.task, device=self.settings.device)
        self.tell(f"{self.head}: {page}")
        return page

    def _enter(self, stage: str, made_from: dict[str, Any]) -> str | None:
        why = self.ledger.enter(stage, made_from)
        if why:
            self.tell(why)
        return why

    def _common(self, *, seed: bool = True) -> dict[str, Any]:
        out: dict[str, Any] = {"glimpses": self.recipe.glimpses, "from data": self.task.fingerprint}
        return out | ({"seed": self.recipe.seed} if seed else {})

    def _skipped(self, folder: Path, *, say: bool = True) -> bool:
        """Whether a stage is done; whatever changed was moved aside when it was entered."""
        done = (folder / "done.json").is_file()
        if done and say:
            self.tell(f"{self.head}: done before.")
        return done

    def _measured(self, work: Callable[..., float | None], *given: Any, **named: Any) -> float | None:
        return work(*given, **named) if self.settings.estimate else None

    def _announce(self, what: str, seconds: float | None) -> None:
        time = f"; about {estimates.clock(seconds)}" if self.settings.estimate else ""
        self.tell(f"{self.head}: {what}{time}.")

    def _posterior_file(self) -> str:
        from nogs.posterior.training import FILE

        return self.settings.posterior or str(self.run / "posterior" / FILE)

    def _tools(self, source: str) -> Any:
        from nogs.design.tools import Files

        recipe, settings = self.recipe, self.settings
        return Files(
            posterior=source,
            bank=self.run / "bank",
            completion=recipe.completion,
            design=recipe.design,
            task=recipe.data,
            glimpse=self.task.grid.glimpse,
            seed=recipe.seed,
            precision=recipe.posterior.precision,
            device=settings.device,
            data=settings.data,
            cache=settings.cache,
            source=settings.source,
            skip_corrupt=settings.skip_corrupt,
        )

    def _places(self, images: int) -> int:
        """Workers that annotate: one a GPU, or one a core; no more than a few blocks each are worth their start."""
        most = torch.cuda.device_count() if self.device.type == "cuda" else cores()
        return max(1, min(most, images // self.recipe.design.images // 4))

    @contextmanager
    def _threads(self, small: bool) -> Iterator[None]:
        """One thread for small networks on a CPU: more gain little, and where others work they wait for each other."""
        before = torch.get_num_threads()
        if small and self.device.type == "cpu":
            torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(before)


def cores() -> int:
    """Cores that this process may use."""
    allowed: Any = getattr(os, "sched_getaffinity", None)
    return len(allowed(0)) if allowed else os.cpu_count() or 1


def _attributes(names: tuple[str, ...], task: Task) -> tuple[str | None, ...]:
    """The attributes that are asked for; none for a task with one label."""
    if task.space.kind == "categorical":
        if names:
            task.attribute(names[0])  # refused, with the reason
        return (None,)
    if not names:
        raise InputError(
            f"Task {task.name!r} has {len(task.space.names)} attributes; choose some with --attribute, or all of them "
            "with --attribute all."
        )
    if names == ("all",):
        return task.space.names
    for name in names:
        task.attribute(name)
    return names


def _digest(source: str) -> str:
    from nogs.posterior.store import find_posterior

    path = find_posterior(source)
    if not path.is_file():
        raise InputError(f"There is no posterior {path}; check --checkpoint.")
    return file_digest(path)


def _save(figure: Any, path: Path) -> None:
    import warnings

    picture = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing", category=UserWarning)  # it draws a box instead
        figure.savefig(picture, format="png")
    write_bytes(path, picture.getvalue())
