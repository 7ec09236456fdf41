"""`run_recipe`: the stages of a run one after the other, each with a time estimate before it and its numbers after."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from nogs.data.task import Task
from nogs.pipeline import estimates
from nogs.pipeline.verdict import verdicts
from nogs.pipeline.work import STAGES, Settings, Work, counted, digest_of, save_figure
from nogs.recipes import Recipe
from nogs.runtime import progress
from nogs.runtime.device import versions
from nogs.runtime.files import read_json, write_json
from nogs.runtime.fingerprint import file_digest, fingerprint
from nogs.runtime.lock import only_one

__all__ = ["run_recipe"]


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


class _Run(Work):
    """The stages."""

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

        folder, config = self.run / "data", self.recipe.data.remembering(False)
        self.enter("data", {"data": config.model_dump(mode="json"), "from data": self.task.fingerprint})
        stage = Stage(folder, name="data", fingerprint=fingerprint(config, self.task.fingerprint))
        stage.check_folder()
        if not stage.done:
            stage.begin()
            write_splits(self.task, folder)
            write_json(folder / "inspect.json", describe(self.task))
            sheet = contact_sheet(self.task, seed=self.recipe.seed, glimpses=self.recipe.glimpses)
            save_figure(sheet, folder / "contact-sheet.png")
            stage.finish(images=len(self.task.ids), notes=list(self.task.notes))
        kept = self.recipe.model_copy(update={"data": config.remembering(bool(self.task.skipped))})
        kept.to_yaml(self.run / "recipe.yaml")
        splits = ", ".join(f"{len(self.task.splits[name]):,} {name}" for name in ("train", "validation", "test"))
        labels = f"{len(self.task.space.names)} {'classes' if self.task.space.kind == 'categorical' else 'attributes'}"
        self.tell(
            f"{self.head}: {len(self.task.ids):,} images of {self.task.grid.height} px, {labels} ({splits}); "
            f"{len(self.task.splits['annotate']):,} get sequences."
        )
        return folder

    def _posterior(self) -> Path:
        """What do glimpses say about the label?"""
        from nogs.posterior.outcome import adopt
        from nogs.posterior.training import train_posterior

        folder, config = self.run / "posterior", self.recipe.posterior
        if self.ready is not None:
            self.enter("posterior", {"file": digest_of(self.ready)})
            if not self.skipped(folder):
                own = "" if self.settings.posterior else "; --published None trains one here"
                self.tell(f"{self.head}: {self.ready}, which was trained before{own}.")
                found = adopt(self.ready, Path(self.posterior_file()), task=self.task)
                if "tables" in found:
                    self.tell(f"  {_scores(found)}")
            return folder
        self.enter("posterior", {"posterior": config.model_dump(mode="json"), **self.common()})
        with self.threads(config.kind == "tokens" and config.width <= 128):
            if not self.skipped(folder):
                seconds = self.measured(estimates.posterior_seconds, self.recipe, self.task, device=self.device)
                self.announce("learns what glimpses say about the label", seconds)
            train_posterior(
                self.task,
                config=config,
                glimpses=self.recipe.glimpses,
                folder=folder,
                seed=self.recipe.seed,
                device=self.settings.device,
                data=self.settings.data,
            )
        found = read_json(folder / "evaluation.json")
        self.tell(f"  {_scores(found)} ({found['training_seconds']:.0f} s)")
        return folder

    def _bank(self) -> Path:
        """What could the rest of an image be?"""
        from nogs.bank import build_bank

        folder, settings, config = self.run / "bank", self.settings, self.recipe.bank
        self.enter("bank", {"bank": config.model_dump(mode="json"), "from data": self.task.fingerprint})
        if not self.skipped(folder):
            seconds = self.measured(
                estimates.bank_seconds, self.recipe, self.task, device=self.device, source=settings.source
            )
            what = f"{config.count:,} images to complete glimpses with"
            if config.generator == "trained" and settings.source is None and config.trained.seconds is not None:
                what += f", by a generator that is trained for {config.trained.seconds:g} s at most"
            self.announce(what, seconds)
        about = build_bank(self.task, config=config, folder=folder, source=settings.source, device=settings.device)
        self.tell(
            f"  {about['images']:,} images of {config.generator}, {about['near_duplicates_left_out']} "
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
            save_figure(completion_sheet(retrieval, task, ids[:shown], places), folder / "completions.png")
            record: dict[str, Any] = {"split": "validation", "completion": retrieval.fingerprint, "by_glimpses": table}
            write_json(path, {**record, "bank": opened.about, "versions": versions(opened.device)})
        sizes = " ".join(f"{row['effective_sample_size']:.0f}" for row in read_json(path)["by_glimpses"])
        self.tell(f"  effective number of completions after 0, 1, ... glimpses: {sizes}")

    def _sequences(self) -> Path:
        """Where to look next, so that least is left unknown?"""
        from nogs.design.annotation import annotate, close_tools
        from nogs.design.confidence import sentence
        from nogs.design.tools import check_leaks
        from nogs.posterior.store import identity, load_posterior
        from nogs.runtime.executors import LocalExecutor

        recipe, task, ids = self.recipe, self.task, self.task.splits["annotate"]
        home, bank, source = self.run / "sequences", self.run / "bank", self.posterior_file()
        parts = {
            "completion": recipe.completion.model_dump(mode="json"),
            "design": recipe.design.model_dump(mode="json"),
        }
        inputs = {f"from the {stage}": self.ledger.mark(stage) for stage in ("posterior", "bank")}
        self.enter("sequences", {**parts, **inputs, **self.common()})
        check_leaks(task, posterior=source, bank=bank)
        load_posterior(source, task=task)  # one of another task is refused here
        tools, workers = self.tools(source), self.settings.workers or self.places(len(ids))
        mark, digest = read_json(bank / "done.json")["fingerprint"], file_digest(source)
        for attribute in self.attributes:
            folder = home / (attribute or "")
            if not self.skipped(folder):
                column = None if attribute is None else task.attribute(attribute)
                seconds = self.measured(
                    lambda column=column: estimates.sequences_seconds(
                        recipe, task, ids, tools=tools(), workers=workers, attribute=column
                    )
                )
                what = f"{attribute}, " if attribute else ""
                self.announce(
                    f"{what}near-optimal glimpses for {counted(len(ids), 'image')}, {counted(workers, 'worker')}",
                    seconds,
                )
            found = annotate(
                task,
                ids,
                open_tools=tools,
                marks=(digest, mark, fingerprint(recipe.completion), recipe.posterior.precision),
                config=recipe.design,
                glimpses=recipe.glimpses,
                folder=folder,
                attribute=attribute,
                seed=recipe.seed,
                executor=LocalExecutor(workers),
                provenance={
                    "posterior": read_json(self.run / "posterior" / "done.json").get("source", "posterior"),
                    "posterior_digest": digest,
                    "posterior_identity": identity(source),
                    "bank": read_json(bank / "done.json")["fingerprint"],
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
                f"  {counted(len(found), 'sequence')}; nats left before each glimpse: {left} "
                f"({done['evaluations']:,} evaluations, {done['seconds']:.0f} s)"
            )
            if "posterior_entropy" in done:
                self.tell(f"  {sentence(done['posterior_entropy'], generator=recipe.bank.generator)}")
        close_tools()
        return home

    def _attention(self) -> Path:
        """Networks that learn where to look, with and without the sequences."""
        from nogs.attention.methods import Inputs, make_members
        from nogs.attention.trainer import telling_fields
        from nogs.attention.training import STATE, train
        from nogs.posterior.imagenet import find_weights

        recipe, task, folder = self.recipe, self.task, self.run / "attention"
        fields = telling_fields(recipe.attention)
        for method in self.settings.methods:
            inputs = {"from the sequences": self.ledger.mark("sequences")} if method.startswith("ps-") else {}
            if self.enter(f"attention/{method}", {"attention": fields, **inputs, **self.common(seed=False)}):
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
        with self.threads(recipe.attention.embedder != "vgg" and recipe.attention.hidden <= 256):
            if not all(self.skipped(folder / member.name, say=False) for member in members):
                seconds = self.measured(estimates.attention_seconds, recipe, task, members, device=self.device)
                self.announce(f"{counted(len(members), 'network')}: {', '.join(self.settings.methods)}", seconds)
            else:
                self.tell(f"{self.head}: done before.")
            folders = train(
                task,
                members,
                config=recipe.attention,
                glimpses=recipe.glimpses,
                folder=folder,
                device=self.settings.device,
                weights=find_weights(
                    recipe.attention.weights, self.settings.data, network=recipe.attention.embedder_network
                ),
            )
        for place in folders:
            found = read_json(place / "evaluation.json")
            self.tell(
                f"  {place.relative_to(folder).as_posix()}: {found['best']['accuracy']['test']['accuracy']:.1%} of the "
                f"test images right (the most common class {found['majority_class_accuracy']:.1%})"
            )
        self._glimpses(folders)
        for verdict in verdicts(folders, out=folder / "verdict.json"):
            self.tell(f"  {verdict}")
        return folder

    def _glimpses(self, folders: Sequence[Path]) -> None:
        """What each network would have answered after fewer glimpses, for those who stop early."""
        from nogs.attention.store import load_network
        from nogs.model.stopping import FILE, accuracy_by_glimpses, write_accuracy_by_glimpses

        for place in folders:
            if (place / FILE).is_file():
                continue
            path = place / "best-accuracy.safetensors"
            networks, about = load_network(path, device=self.device)
            found = accuracy_by_glimpses(networks, about, self.task, trajectories=self.recipe.attention.trajectories)
            write_accuracy_by_glimpses(path, found)

    def _report(self) -> Path:
        """One page about all of it."""
        from nogs.report import write_report

        page = write_report([self.run], task=self.task, device=self.settings.device)
        self.tell(f"{self.head}: {page}")
        return page


def _scores(about: dict[str, Any]) -> str:
    """What a posterior's tables end with."""
    last = about["tables"]["test, calibrated"][-1]
    return (
        f"after {last['glimpses']} glimpses at random places it is right on {last['accuracy']:.1%} of the test images, "
        f"its cross-entropy {last['cross_entropy']:.2f} nats"
    )
