"""The floor that everything stands on: it knows nothing of images or glimpses.

`errors` (a user's mistake), `files` (atomic writes, no pickle), `fingerprint` (is this still the same recipe and
input?), `streams` (randomness keyed by seed, purpose, id and step), `device` (where and how precisely to compute),
`progress` and `metrics` (what a person and a plot see), `stage` (a folder that is done, or says why not) and
`executors` (many items over processes). Importing this package imports none of them: a command's help stays quick.
"""
