"""Ctrl-C and SIGTERM wait until a training has saved its state."""

import signal
import threading

import pytest

from nogs.runtime.interruption import Interruption


def test_a_signal_waits_until_it_is_delivered(ctrl_c):
    done = []

    def work():
        with Interruption() as interruption:
            assert interruption.asked is None
            ctrl_c()
            assert interruption.asked == signal.SIGINT
            done.append("saved")
            interruption.deliver()
            done.append("never")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["saved"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_signal_after_the_last_step_is_delivered_at_the_end(ctrl_c):
    with pytest.raises(KeyboardInterrupt), Interruption():
        ctrl_c()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_error_comes_before_the_signal(ctrl_c):
    def work():
        with Interruption():
            ctrl_c()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_second_signal_is_delivered_at_once(ctrl_c):
    done = []

    def work():
        with Interruption():
            ctrl_c()
            done.append("first")
            ctrl_c()
            done.append("never")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["first"]


def test_a_termination_is_delivered_to_its_own_handler():
    found = []
    before = signal.signal(signal.SIGTERM, lambda number, _: found.append(number))
    try:
        with Interruption() as interruption:
            signal.raise_signal(signal.SIGTERM)
            assert not found
            interruption.deliver()
            assert found == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("handler", [signal.SIG_DFL, signal.SIG_IGN])
def test_a_signal_that_nothing_handles_is_left_alone(handler):
    before = signal.signal(signal.SIGTERM, handler)
    try:
        with Interruption():
            assert signal.getsignal(signal.SIGTERM) is handler
    finally:
        signal.signal(signal.SIGTERM, before)


def test_other_threads_change_no_handler(ctrl_c):
    found = []

    def look():
        with Interruption():
            found.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found == [signal.default_int_handler]


def test_handlers_that_return_get_every_signal():
    found = []
    before = signal.signal(signal.SIGTERM, lambda number, _: found.append(number))
    try:
        with Interruption() as interruption:
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGTERM)
            assert found == [signal.SIGTERM] * 2
            assert interruption.asked is None
            signal.raise_signal(signal.SIGTERM)
            assert found == [signal.SIGTERM] * 3
    finally:
        signal.signal(signal.SIGTERM, before)
