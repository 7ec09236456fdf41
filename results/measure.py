"""The measurements of `results/` that need a GPU: their commands, and a way to run them in limited time.

    python results/measure.py --list
    python results/measure.py faces-release birds --data DATA --work WORK --out numbers.tar.gz --minutes 25 --abreast 2

DATA holds the folders celeba-hq and cub, laid out as the manual says, and released-sequences.zip. A measurement's
prerequisites run before it. Given again, the command resumes: finished measurements are skipped, and nogs resumes the
rest. After each measurement, and when the minutes are over, results and logs are packed into the archive.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))


@dataclass(frozen=True)
class Job:
    """Commands, one per line; the jobs that must run before; and patterns of the result files in WORK."""

    commands: str
    after: Sequence[str] = ()
    keep: Sequence[str] = ()

    def lines(self, data: Path, work: Path) -> list[str]:
        """The commands with these two folders."""
        text = self.commands.replace("DATA", shlex.quote(str(data))).replace("WORK", shlex.quote(str(work)))
        return [" ".join(line.split()) for line in text.replace("\\\n", " ").splitlines() if line.strip()]


def _search(attribute: str) -> Job:
    """The search itself as the policy, on every tenth test image."""
    return Job(
        f"""
        nogs annotate celeba-hq --attribute {attribute} --data DATA/celeba-hq --bank WORK/faces --posterior celeba-hq \\
            --split test --subset 0::10 --out WORK/search-{attribute}
        nogs sequences score celeba-hq --attribute {attribute} --data DATA/celeba-hq --judge celeba-hq --own \\
            --sequences search=WORK/search-{attribute}/sequences-test --out WORK/search-{attribute}/score.json
        """,
        after=("faces-bank",),
        keep=(f"search-{attribute}/score.json",),
    )


def _completions(recipe: str, more: str = "") -> Job:
    """Every kind of completion: trained, annotating a few images, and compared on the same glimpses."""
    run = f"WORK/completions-{recipe}"
    build = f"nogs bank build {recipe} --data DATA/{recipe} --out {run}"
    annotate = f"nogs annotate {recipe} --data DATA/{recipe} --bank {run} --posterior {recipe} {more}"
    return Job(
        f"""
        {build} --bank.generator trained --bank.trained.seconds 150 --bank.count 20000
        {build} --completion.kind cgan --completion.network.seconds 100
        {build} --completion.kind flow --completion.network.seconds 100
        {annotate} --completion.kind corrected --subset 0:8 --out {run}-corrected
        {annotate} --completion.kind cgan --subset 0:8 --out {run}-cgan
        {annotate} --completion.kind flow --subset 0:8 --out {run}-flow
        {annotate} --completion.kind hmc --subset 0:2 --completion.kept 40 --out {run}-hmc
        nogs bank compare {recipe} --data DATA/{recipe} --out {run} --kinds retrieval corrected cgan flow --images 48
        """,
        keep=(f"completions-{recipe}/**/compare.*",),
    )


def _faces(out: str, flags: str) -> Job:
    """A posterior for faces from scratch, and one order of locations for each attribute."""
    return Job(
        f"""
        nogs posterior train celeba-hq --data DATA/celeba-hq --out WORK/{out} --published None {flags}
        nogs train celeba-hq --data DATA/celeba-hq --out WORK/{out} --attribute all --method fixed centre-out random
        """,
        keep=(f"{out}/attention/**/evaluation.json", f"{out}/posterior/evaluation.json"),
    )


JOBS = {
    "sequences": Job("nogs sequences import DATA/released-sequences.zip --out WORK/sequences"),
    "heuristic": Job("nogs sequences heuristic cub --data DATA/cub --posterior cub --out WORK/heuristic"),
    "faces-bank": Job("nogs bank build celeba-hq --data DATA/celeba-hq --bank.count 30000 --out WORK/faces"),
    "faces-release": Job(
        """
        nogs compare celeba-hq --method ram ps-nogs --weights 1 64 --attribute all --seeds 0 --data DATA/celeba-hq \\
            --sequences WORK/sequences --attention.embedder release --attention.save-every 1000 --out WORK/faces-release
        """,
        after=("sequences",),
        keep=("faces-release/comparison/*",),
    ),
    "birds": Job(
        """
        nogs compare cub --seeds 0 1 2 --data DATA/cub --sequences WORK/sequences --heuristic WORK/heuristic \\
            --attention.pretrain-abreast 3 --out WORK/birds
        """,
        after=("sequences", "heuristic"),
        keep=("birds/comparison/*",),
    ),
    "birds-rate-1": Job(
        """
        nogs compare cub --method ram+ ps-nogs --seeds 0 1 2 --data DATA/cub --sequences WORK/sequences \\
            --heuristic WORK/heuristic --attention.pretrain-abreast 3 --attention.location-rate 1 \\
            --out WORK/birds-rate-1
        """,
        after=("sequences", "heuristic"),
        keep=("birds-rate-1/comparison/*",),
    ),
    "birds-ten-layers": Job(
        """
        nogs compare cub --method ram+ ps-nogs --seeds 0 1 2 --data DATA/cub --sequences WORK/sequences \\
            --heuristic WORK/heuristic --attention.pretrain-abreast 3 --attention.embedder-layers 10 \\
            --out WORK/birds-ten-layers
        """,
        after=("sequences", "heuristic"),
        keep=("birds-ten-layers/comparison/*",),
    ),
    "birds-seed-2": Job(
        """
        nogs posterior train cub --data DATA/cub --out WORK/birds-seed-2 --seed 2 --published None \\
            --posterior.split train
        nogs train cub --data DATA/cub --out WORK/birds-seed-2 --seed 2 --method ps-nogs+ fixed centre-out random
        """,
        keep=("birds-seed-2/attention/**/evaluation.json",),
    ),
    "faces-plus": Job(
        "nogs train celeba-hq --data DATA/celeba-hq --attribute all --method fixed ps-nogs+ --out WORK/faces-plus",
        keep=("faces-plus/attention/**/evaluation.json",),
    ),
    "faces-shared": Job(
        """
        nogs train celeba-hq --data DATA/celeba-hq --attribute all --method fixed ps-nogs+ --plus.shared \\
            --out WORK/faces-shared
        """,
        keep=("faces-shared/attention/**/evaluation.json",),
    ),
    **{f"faces-seed-{seed}": _faces(f"faces-seed-{seed}", f"--seed {seed}") for seed in (1, 2)},
    "faces-imagenet": _faces(
        "faces-imagenet",
        "--posterior.stem vgg --posterior.stem-layers 10 --posterior.stem-scale 2 --posterior.frozen 2 "
        "--posterior.weights imagenet --posterior.pretrained-rate 0.05 --posterior.layers 4 --posterior.dropout 0.1 "
        "--posterior.batch 768 --posterior.seconds 240",
    ),
    **{f"search-{attribute}": _search(attribute) for attribute in ("Male", "Smiling", "Young")},
    "completions-celeba-hq": _completions("celeba-hq", "--attribute Smiling"),
    "completions-cub": _completions("cub"),
    "growth": Job(
        "python benchmarks/annotate.py --task cub --device cuda --images 128 --bank 16000 --parts growth \\\n"
        "    --out WORK/growth/annotate-cub-growth.json",
        keep=("growth/*",),
    ),
}


def ordered(names: Sequence[str]) -> list[str]:
    """The jobs, each after its prerequisites."""
    out: list[str] = []
    for name in names:
        for each in (*ordered(JOBS[name].after), name):
            if each not in out:
                out.append(each)
    return out


def run(names: Sequence[str], *, data: Path, work: Path, out: Path, minutes: float, abreast: int) -> list[str]:
    """Run the jobs that are not done; returns the names of those that failed or were stopped."""
    from provenance import provenance

    ends = time.monotonic() + 60 * minutes
    work.mkdir(parents=True, exist_ok=True)
    (work / "provenance.json").write_text(json.dumps(provenance(), indent=2) + "\n")
    waiting = [name for name in ordered(names) if not (work / f"{name}.done").exists()]
    failed: list[str] = []
    running: dict[str, subprocess.Popen[bytes]] = {}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    while (waiting or running) and time.monotonic() < ends:
        for name in [each for each in waiting if not set(JOBS[each].after) & {*waiting, *running}]:
            if set(JOBS[name].after) & {*failed}:
                waiting.remove(name)
                failed.append(name)
            elif len(running) < abreast:
                waiting.remove(name)
                script = " && ".join(JOBS[name].lines(data, work))
                with open(work / f"{name}.log", "ab") as log:
                    running[name] = subprocess.Popen(
                        ["bash", "-c", script], cwd=ROOT, stdout=log, stderr=log, start_new_session=True,
                        env={**os.environ, "PATH": path},
                    )  # fmt: skip
        time.sleep(0.2)
        for name, process in list(running.items()):
            if process.poll() is not None:
                del running[name]
                if process.returncode:
                    failed.append(name)
                else:
                    (work / f"{name}.done").touch()
                print(f"{name}: {'failed, see its log' if process.returncode else 'done'}", flush=True)
                pack(names, work=work, out=out)
    for process in running.values():
        os.killpg(process.pid, signal.SIGINT)  # nogs then saves its state
    for process in running.values():
        process.wait()
    pack(names, work=work, out=out)
    return [*failed, *running, *waiting]


def pack(names: Sequence[str], *, work: Path, out: Path) -> None:
    """The results so far, and the logs, in one archive."""
    files = [work / "provenance.json", *work.glob("*.log")]
    for name in names:
        files += [path for pattern in JOBS[name].keep for path in work.glob(pattern) if path.is_file()]
    part = out.with_name(f"{out.name}.part")
    with tarfile.open(part, "w:gz") as archive:
        for path in files:
            archive.add(path, path.relative_to(work))
    part.replace(out)


def main() -> int:
    """List the measurements, or run some."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[[], *JOBS], metavar="NAME")
    parser.add_argument("--list", action="store_true", help="print all measurements with their commands")
    parser.add_argument("--data", type=Path, default=Path("DATA"))
    parser.add_argument("--work", type=Path, default=Path("WORK"))
    parser.add_argument("--out", type=Path, default=Path("numbers.tar.gz"))
    parser.add_argument("--minutes", type=float, default=25)
    parser.add_argument("--abreast", type=int, default=2, help="jobs at once")
    options = parser.parse_args()
    if options.list:
        for name in options.names or JOBS:
            print(f"# {name}", *JOBS[name].lines(options.data, options.work), "", sep="\n")
        return 0
    places = {name: getattr(options, name).resolve() for name in ("data", "work", "out")}
    left = run(options.names or list(JOBS), **places, minutes=options.minutes, abreast=options.abreast)
    print(f"not done: {', '.join(left)}" if left else "all done")
    return len(left)


if __name__ == "__main__":
    sys.exit(main())
