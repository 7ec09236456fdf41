"""Functions for worker processes, which import them by name; they need nothing but the standard library."""

import os
import signal
import time


def square(item):
    return item * item


def scale(item, factor):
    return item * factor


def process_id(item):
    time.sleep(0.05)
    return os.getpid()


def fail_at_three(item):
    if item == 3:
        raise KeyError(f"nothing for {item}")
    return item


def die_at_three(item):
    if item == 3:
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGKILL)
    return item


def nap(item):
    time.sleep(item)
    return item


def add_first(item, stored):
    return item + int(stored()[0])
