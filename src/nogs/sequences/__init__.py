"""Glimpse sequences: the paper's supervision sequences (the set `sup` of eq. 8), however they were made.

In: the authors' released text files, or a table of locations such as recorded gaze. Out: `Sequences`, kept in folders
of `sequences.jsonl` and `manifest.json` that are checked line by line when they are read.
"""

from nogs.sequences.release import CELEBA_ATTRIBUTES, read_release, write_release
from nogs.sequences.sequences import Sequences
from nogs.sequences.store import folders, header, load, save
from nogs.sequences.table import Columns, read_csv, write_csv
from nogs.sequences.validation import Expected, Report, load_for, validate

__all__ = [
    "CELEBA_ATTRIBUTES",
    "Columns",
    "Expected",
    "Report",
    "Sequences",
    "folders",
    "header",
    "load",
    "load_for",
    "read_csv",
    "read_release",
    "save",
    "validate",
    "write_csv",
    "write_release",
]
