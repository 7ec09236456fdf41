"""Read and write the text files of near-optimal glimpse sequences that the paper's authors released.

`celebhq/<k>/<i>.txt` holds the five locations of image i for attribute k, each as a line `row, col`. `birds/<i>.txt`
has a sixth line that names a picture `.../K.png`, which is the CUB image with id K + 1.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

import nogs
from nogs.glimpse import Grid
from nogs.runtime import files
from nogs.runtime.errors import InputError
from nogs.runtime.reading import read_regular, size
from nogs.sequences.problems import off_grid, refuse, short
from nogs.sequences.sequences import Sequences

# fmt: off
CELEBA_ATTRIBUTES = (
    "5_o_Clock_Shadow", "Arched_Eyebrows", "Attractive", "Bags_Under_Eyes", "Bald", "Bangs", "Big_Lips",
    "Big_Nose", "Black_Hair", "Blond_Hair", "Blurry", "Brown_Hair", "Bushy_Eyebrows", "Chubby", "Double_Chin",
    "Eyeglasses", "Goatee", "Gray_Hair", "Heavy_Makeup", "High_Cheekbones", "Male", "Mouth_Slightly_Open",
    "Mustache", "Narrow_Eyes", "No_Beard", "Oval_Face", "Pale_Skin", "Pointy_Nose", "Receding_Hairline",
    "Rosy_Cheeks", "Sideburns", "Smiling", "Straight_Hair", "Wavy_Hair", "Wearing_Earrings", "Wearing_Hat",
    "Wearing_Lipstick", "Wearing_Necklace", "Wearing_Necktie", "Young",
)
# fmt: on
"""The 40 attributes in the order of the second line of `CelebAMask-HQ-attribute-anno.txt`, which is alphabetical:
folder k of the release is entry k."""

GLIMPSES = 5
CUB_IMAGES = 11_788
SOURCE = "github.com/wsgharvey/ps-nogs, the release of Harvey, Teng and Wood, Near-Optimal Glimpse Sequences"
LICENCE = "The release states no licence; ask its authors before passing these sequences on."

_MOST, _MOST_IN_ALL = 2**12, 2**28
"""Largest size in bytes of one unpacked file of the release, which holds six short lines, and of all of them."""

_FILE = re.compile(r"(?:^|/)(?:celebhq/(?P<attribute>\d{1,9})|birds)/(?P<number>\d{1,9})\.txt$", re.ASCII)
_NAME = re.compile(r"\d{1,9}\.txt", re.ASCII)
_LOCATION = re.compile(r"\s*(\d{1,9})\s*,\s*(\d{1,9})\s*", re.ASCII)
_PICTURE = re.compile(r"(?:.*/)?(\d{1,9})\.png", re.ASCII)


def read_release(source: Path) -> list[Sequences]:
    """The sequences in the authors' zip or unpacked folder: one `Sequences` an attribute of CelebA-HQ, and one of CUB.

    A part of the release is read as well. A malformed file is refused with its path and line.
    """
    groups: dict[int | None, list[tuple[int, str, bytes]]] = {}
    problems: list[str] = []
    for match, shown, data in _texts(source):
        attribute = int(match["attribute"]) if match["attribute"] else None
        if attribute is not None and attribute >= len(CELEBA_ATTRIBUTES):
            problems.append(f"{shown}: there is no attribute number {attribute}; they are 0 to 39.")
            continue
        groups.setdefault(attribute, []).append((int(match["number"]), shown, data))
    if not groups and not problems:
        raise InputError(
            f"{source} holds none of the release's files (celebhq/<attribute>/<image>.txt, birds/<number>.txt); "
            "give the authors' zip, or the folder that it unpacks to."
        )
    found = [
        _group(texts, attribute=attribute, source=source, problems=problems)
        for attribute, texts in sorted(groups.items(), key=lambda group: (group[0] is None, group[0]))
    ]
    refuse(problems, source=source)
    return [sequences for sequences in found if sequences is not None]


def write_release(sequences: Sequences, folder: Path) -> int:
    """Write the release's text files under `folder`, and return how many; only its two tasks have such a layout.

    The folder `birds` or `celebhq/<k>` gets its name once all its files are written, and replaces an earlier export.
    """
    celeba = sequences.task == "celeba-hq" and sequences.attribute in CELEBA_ATTRIBUTES
    bird = sequences.task == "cub" and sequences.attribute is None
    if not celeba and not bird:
        what = sequences.task + (f" ({sequences.attribute})" if sequences.attribute else "")
        raise InputError(
            f"The release's text files exist for the attributes of celeba-hq and for cub, but not for {what}; "
            "export it with --format csv."
        )
    other = next((id for id in sequences.ids if not (id.isascii() and id.isdigit())), None)
    if other is not None or sequences.length != GLIMPSES or sequences.grid != _grid(bird=bird):
        raise InputError(
            f"The release's text files need {GLIMPSES} glimpses on the release's grid, and numbers as image ids, which "
            "these sequences don't have; export them with --format csv."
        )
    texts = ["".join(f"{row}, {column}\n" for row, column in steps) for steps in sequences.locations.tolist()]
    if bird:
        inner, names = folder / "birds", [str(n) for n in range(len(sequences))]
        texts = [f"{text}data/birds/train/images/{int(id) - 1}.png" for id, text in zip(sequences.ids, texts)]
    else:
        inner = folder / "celebhq" / str(CELEBA_ATTRIBUTES.index(sequences.attribute or ""))
        names = list(sequences.ids)
    _replace(inner, {f"{name}.txt": text for name, text in zip(names, texts)})
    return len(names)


def _replace(folder: Path, texts: dict[str, str]) -> None:
    """Write a folder of text files as a whole; a folder that holds any other files is refused."""
    if folder.is_dir():
        other = next((file.name for file in folder.iterdir() if not _NAME.fullmatch(file.name)), None)
        if other is not None:
            raise InputError(f"{folder} holds {other!r}, which is not a file of the release; choose another --out.")
    mark = secrets.token_hex(4)
    made, before = (folder.with_name(f".{folder.name}.{mark}.{what}") for what in ("part", "old"))
    try:
        for name, text in texts.items():
            files.write_text(made / name, text, durable=False)
        made.mkdir(parents=True, exist_ok=True)
        if folder.is_dir():
            folder.rename(before)
        made.rename(folder)
    except OSError as error:
        raise InputError(f"Cannot write {folder} ({error.strerror}); choose another --out.") from error
    finally:
        if before.exists() and not folder.exists():
            before.rename(folder)
        for left in (made, before):
            shutil.rmtree(left, ignore_errors=True)


def _grid(*, bird: bool) -> Grid:
    return Grid.cub() if bird else Grid.celeba_hq()


def _texts(source: Path) -> Iterator[tuple[re.Match[str], str, bytes]]:
    """Every file of the release in a zip or folder: the match of its path, the path to show, the content."""
    if source.is_dir():
        for folder, _, names in os.walk(source):
            # matched by the absolute path, so that `birds` or `celebhq/3` alone works too
            place = Path(folder).resolve().as_posix()
            for name in names:
                if match := _FILE.search(f"{place}/{name}"):
                    yield match, str(Path(folder, name)), _content(Path(folder, name))
        return
    if not source.exists():
        raise InputError(f"There is no {source}; give the authors' zip or the folder that it unpacks to.")
    if not source.is_file():
        raise InputError(f"{source} is not a regular file; give the authors' zip or the folder that it unpacks to.")
    name, left = "", _MOST_IN_ALL
    try:
        with zipfile.ZipFile(source) as archive:
            for name in dict.fromkeys(archive.namelist()):  # of two with the same name the last counts, as in unzip
                if match := _FILE.search(name):
                    if archive.getinfo(name).compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                        raise InputError(
                            f"{source}: {name} is packed in an unusual way; unpack the zip and give the folder."
                        )
                    with archive.open(name) as member:
                        data = member.read(_MOST + 1)  # the unpacked size counts, not the zip's own claim
                    left -= len(data)
                    if len(data) > _MOST or left < 0:
                        most = size(_MOST) if len(data) > _MOST else f"{size(_MOST_IN_ALL)} in all"
                        raise InputError(f"{source}: {name} unpacks to more than {most}; it is not of the release.")
                    yield match, f"{source}: {name}", data
    except InputError:
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError, OSError) as error:
        where = f"{source}: {name}" if name else source
        raise InputError(f"{where} can't be read as part of a zip file ({error}); download it again.") from None


def _content(path: Path) -> bytes:
    try:
        return read_regular(path, most=_MOST)
    except OSError as error:
        raise InputError(f"{path} is not a file of the release ({error.strerror}); remove it.") from error


def _group(
    texts: list[tuple[int, str, bytes]], *, attribute: int | None, source: Path, problems: list[str]
) -> Sequences | None:
    """All files of one attribute, or all birds; None if one of them has a problem, which is added to `problems`."""
    bird = attribute is None
    grid = _grid(bird=bird)
    before = len(problems)
    owner: dict[str, str] = {}
    locations = []
    digest = hashlib.blake2b(digest_size=16)
    for number, path, data in sorted(texts):
        digest.update(data + b"\0")

        def wrong(line: int, what: str, path: str = path) -> None:
            problems.append(f"{path}, line {line}: {what}.")

        sequence, id = _file(data, grid=grid, bird=bird, wrong=wrong)
        if id is None and not bird:
            id = str(number)
        if sequence is None or id is None:
            continue
        if owner.setdefault(id, path) != path:
            wrong(GLIMPSES + 1 if bird else 1, f"image {id!r} has a sequence in {owner[id]} already")
        locations.append(sequence)
    if len(problems) > before:
        return None
    return Sequences(
        task="cub" if bird else "celeba-hq",
        attribute=None if attribute is None else CELEBA_ATTRIBUTES[attribute],
        grid=grid,
        length=GLIMPSES,
        ids=tuple(owner),
        locations=np.array(locations, dtype=np.int64),
        provenance={
            "source": SOURCE,
            "file": source.resolve().name,
            "digest": digest.hexdigest(),
            "command": "nogs sequences import",
            "versions": {"nogs": nogs.__version__},
            "licence": LICENCE,
        },
    )


def _file(
    data: bytes, *, grid: Grid, bird: bool, wrong: Callable[[int, str], None]
) -> tuple[list[tuple[int, int]] | None, str | None]:
    """The locations of one text file, and the image id of a bird; None after calling `wrong` with line and problem."""
    text = data.decode("utf-8", errors="replace").rstrip()
    lines = text.split("\n") if text else []
    locations = []
    for step, line in enumerate(lines[:GLIMPSES], 1):
        match = _LOCATION.fullmatch(line)
        if match is None:
            wrong(step, f'expected "row, col", two whole numbers, but found {short(line)}')
            return None, None
        row, column = int(match[1]), int(match[2])
        if row not in grid.rows or column not in grid.columns:
            wrong(step, off_grid(grid, row, column, step=step))
            return None, None
        locations.append((row, column))
    expected = GLIMPSES + bird
    if len(lines) != expected:
        what = f"{GLIMPSES} locations" + (" and the name of the picture" if bird else "")
        wrong(min(len(lines), expected) + 1, f"expected {expected} lines ({what}), but the file has {len(lines)}")
        return None, None
    if not bird:
        return locations, None
    picture = _PICTURE.fullmatch(lines[-1].strip())
    if picture is None or int(picture[1]) >= CUB_IMAGES:
        wrong(expected, f"expected a picture's name, .../0.png to .../{CUB_IMAGES - 1}.png, not {short(lines[-1])}")
        return None, None
    return locations, str(int(picture[1]) + 1)
