"""Two real Ray nodes of one core each on this computer, as a process of their own that a test talks to.

It prints the address and the two nodes' ids. "remove" on its input kills the second node, as a power cut would; the end
of the input ends it all. `running` starts it; nothing of Ray happens in the process of the test itself.
"""

import contextlib
import os
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0", "OMP_NUM_THREADS": "1"}
STORE = 96 << 20


@dataclass(frozen=True)
class Nodes:
    """A running cluster."""

    process: subprocess.Popen
    address: str
    head: str
    second: str
    environment: dict[str, str]

    def remove(self) -> None:
        """Kill the second node."""
        self.process.stdin.write("remove\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "removed\n"


@contextlib.contextmanager
def running():
    """The cluster, for as long as the block lasts."""
    tests = str(Path(__file__).parent)
    environment = {**os.environ, **QUIET, "PYTHONPATH": os.pathsep.join([tests, os.environ.get("PYTHONPATH", "")])}
    process = subprocess.Popen(
        [sys.executable, __file__],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    watch = threading.Timer(500, process.kill)
    watch.daemon = True
    watch.start()
    try:
        yield Nodes(process, *process.stdout.readline().split(), environment)
    finally:
        watch.cancel()
        process.stdin.close()
        try:
            process.wait(40)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def main() -> None:
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 1, "num_gpus": 0, "object_store_memory": STORE}
    # a lost node is missed after a second or two, not after half a minute
    health = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500, "health_check_failure_threshold": 3}
    out, sys.stdout = sys.stdout, sys.stderr  # Ray prints at will
    cluster = Cluster(
        initialize_head=True, head_node_args={**node, "include_dashboard": False, "_system_config": health}
    )
    try:
        second = cluster.add_node(**node)
        cluster.wait_for_nodes()
        print(cluster.address, cluster.head_node.node_id, second.node_id, file=out, flush=True)
        for line in sys.stdin:
            if line.strip() == "remove":
                cluster.remove_node(second, allow_graceful=False)
                print("removed", file=out, flush=True)
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    main()
