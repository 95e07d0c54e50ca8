"""Not collected by itself: a test that holds a cluster with a running job until pytest is killed, and shows the folder."""

from __future__ import annotations

import signal
import subprocess


def test_a_cluster_is_held(cluster, capsys):
    job = ["srun", "--nodelist=node2", "sh", "-c", "echo running; exec sleep 600"]
    with subprocess.Popen(job, env=dict(cluster.environment), stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout.readline() == "running\n"
        with capsys.disabled():
            print(f"\nheld in {cluster.folder}", flush=True)
        signal.pause()
