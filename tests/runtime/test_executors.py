import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

import executor_tasks
from nogs.runtime.errors import InputError
from nogs.runtime.executors import Executor, LocalExecutor

BOTH = pytest.mark.parametrize("workers", [1, 2])


@BOTH
def test_each_result_comes_with_the_index_of_its_item(workers):
    executor: Executor = LocalExecutor(workers)
    results = list(executor.map(executor_tasks.square, range(20, 50)))
    assert sorted(results) == [(n, (n + 20) ** 2) for n in range(30)]


@BOTH
def test_shared_value_reaches_every_item(workers):
    assert sorted(LocalExecutor(workers).map(executor_tasks.scale, iter([1, 2, 3]), shared=10)) == [
        (0, 10),
        (1, 20),
        (2, 30),
    ]


@BOTH
def test_nothing_to_do_is_done_at_once(workers):
    assert list(LocalExecutor(workers).map(executor_tasks.square, [])) == []


def test_one_worker_runs_here_and_many_elsewhere():
    assert next(LocalExecutor(0).map(executor_tasks.process_id, [0]))[1] == os.getpid()
    processes = {process for _, process in LocalExecutor(2).map(executor_tasks.process_id, range(8))}
    assert len(processes) == 2
    assert os.getpid() not in processes


@BOTH
def test_exception_of_a_worker_names_its_item(workers):
    with pytest.raises(KeyError, match="nothing for 3") as caught:
        list(LocalExecutor(workers).map(executor_tasks.fail_at_three, [5, 4, 3, 2]))
    assert caught.value.__notes__ == ["while working on item 2: 3"]


def test_results_come_as_they_finish():
    order = [index for index, _ in LocalExecutor(2).map(executor_tasks.nap, [1.0, 0.0, 0.0])]
    assert order[-1] == 0


def test_killed_worker_is_told_after_the_results_so_far():
    results = []
    sentence = r"^A worker process was killed .* with \d+ items unfinished; .* run again with fewer than 2 workers\.$"
    with pytest.raises(InputError, match=sentence):
        keep(LocalExecutor(2).map(executor_tasks.die_at_three, [0, 1, 2, 3, 4]), results)
    assert {(0, 0), (1, 1), (2, 2)} <= set(results)
    assert (3, 3) not in results


def keep(iterator, results):
    for result in iterator:
        results.append(result)


def test_items_are_taken_as_they_are_needed():
    taken = []

    def items():
        for n in range(1000):
            taken.append(n)
            yield n

    results = LocalExecutor(2).map(executor_tasks.square, items())
    next(results)
    results.close()
    assert len(taken) <= 16


def test_workers_end_with_a_killed_parent():
    program = textwrap.dedent(
        """
        import executor_tasks
        from nogs.runtime.executors import LocalExecutor
        if __name__ == "__main__":
            for _, process in LocalExecutor(2).map(executor_tasks.process_id, range(10**9)):
                print(process, flush=True)
        """
    )
    folder = os.path.dirname(executor_tasks.__file__)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([folder, *sys.path])}
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=environment)
    workers = {int(parent.stdout.readline()) for _ in range(6)}
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 20
    while any(map(alive, workers)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(map(alive, workers))


def alive(process):
    """Whether the process runs; an orphan that exited may remain as a zombie."""
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


INTERRUPTED = """
import sys
import executor_tasks
from nogs.runtime.executors import LocalExecutor
if __name__ == "__main__":
    import signal
    def end(*_):
        raise KeyboardInterrupt
    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which a job in the background inherits as ignored
    print("begun", flush=True)
    try:
        for index, _ in LocalExecutor(2).map(executor_tasks.nap, [float(word) for word in sys.argv[1:]]):
            print("done", index, flush=True)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""


def started(tmp_path, *naps):
    """A process with two workers in its own process group, as in a terminal."""
    script = tmp_path / "script.py"
    script.write_text(INTERRUPTED)
    return subprocess.Popen(
        [sys.executable, str(script), *naps],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_a_scheduler_that_ends_a_command_does_not_wait_for_its_items(tmp_path):
    process = started(tmp_path, "0", "60", "60", "60")
    assert process.stdout.readline() == "begun\n"
    assert process.stdout.readline() == "done 0\n"
    asked = time.monotonic()
    process.terminate()
    out, errors = process.communicate(timeout=30)
    assert time.monotonic() - asked < 5
    assert (out, errors) == ("interrupted\n", "")


@pytest.mark.parametrize("wait", [0.0, 0.1, 0.3])
def test_ctrl_c_while_workers_import_shows_no_tracebacks(tmp_path, wait):
    process = started(tmp_path, "60", "60")
    assert process.stdout.readline() == "begun\n"
    time.sleep(wait)
    os.killpg(process.pid, signal.SIGINT)
    out, errors = process.communicate(timeout=30)
    assert (out, errors) == ("interrupted\n", "")
