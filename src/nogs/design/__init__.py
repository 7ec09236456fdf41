"""Near-optimal glimpse sequences (section 4, Eqs. 3-6, algorithm 1): where to look next, so that least is left unknown.

In: a `Posterior` and a `Completion`. Out: `EPEMap`, the expected posterior entropy of every location; a `Choice` by one
of several searches; and `Sequences`, T choices for each image of a task, made by many workers and kept in a folder.
"""
