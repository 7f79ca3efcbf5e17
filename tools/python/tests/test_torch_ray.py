"""hopfeed.ray, where Ray is installed: nodes of a cluster on one machine, which are lost while they work. KILLS says how
often the last test kills (default 5)."""

import contextlib
import filecmp
import glob
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
import unittest
from unittest import mock

import numpy as np

try:
    import ray
    from ray.cluster_utils import Cluster
except ImportError:
    raise unittest.SkipTest("Ray is not installed") from None

import hopfeed.ray
from buckets import SERVER, bucket, needs_server

JOB = {"hops": 12, "chunk_rows": 100}
NODE = {"num_cpus": 1, "memory": 512 << 20, "object_store_memory": 80 << 20, "resources": {"scratch_bytes": 1 << 30}}
NODE |= {"include_dashboard": False, "include_log_monitor": False}
KILLS = int(os.environ.get("KILLS", "5"))


def running():
    """The processes that do tasks now, by task."""
    found = {}
    for file in glob.glob("/proc/[0-9]*/cmdline"):
        with contextlib.suppress(OSError), open(file) as f:
            kind, _, name = f.read().rstrip("\0 ").partition("::")
            if kind == "ray" and name.startswith(("cut-", "hops-", "write-")):
                found[name] = int(file.split("/")[2])
    return found


def wait_for(kind, seconds):
    """The processes that do tasks of a kind, by task, once there are any; none if there are none for so long."""
    end = time.monotonic() + seconds
    while True:
        found = {name: process for name, process in running().items() if name.startswith(kind)}
        if found or time.monotonic() > end:
            return found
        time.sleep(0.005)


@contextlib.contextmanager
def stopped_hops():
    """Stops a process as soon as it computes hops, so that it does not end before the test sees it; the list gets it."""
    processes, ended = [], threading.Event()

    def stop():
        while not processes and not ended.is_set():
            for process in list(wait_for("hops-", 0.1).values())[:1]:
                os.kill(process, signal.SIGSTOP)
                processes.append(process)

    thread = threading.Thread(target=stop)
    thread.start()
    try:
        yield processes
    finally:
        ended.set()
        thread.join()


@unittest.skipUnless(sys.platform == "linux", "it looks for processes in /proc")
class RayTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        stack = contextlib.ExitStack()
        cls.addClassCleanup(stack.close)
        cls.folder = stack.enter_context(tempfile.TemporaryDirectory())
        environment = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DISABLE_MEMORY_MONITOR": "1", "RAY_worker_niceness": "0"}
        environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)  # workers begin with hopfeed, too
        if SERVER:
            cls.url, own = stack.enter_context(bucket(os.path.join(cls.folder, "server")))
            environment.update(own)
        stack.enter_context(mock.patch.dict(os.environ, environment))
        cls.graph, cls.alone = os.path.join(cls.folder, "graph"), os.path.join(cls.folder, "alone")
        hopfeed.generate("rmat", cls.graph, nodes=100_000, edges=3_000_000, features=64, labeled=0.02, progress=False)
        hopfeed.propagate(cls.graph, cls.alone, progress=False, **JOB)
        sessions = tempfile.mkdtemp(dir="/tmp")  # short, since sockets are in it
        stack.callback(shutil.rmtree, sessions, ignore_errors=True)
        cls.cluster = Cluster(initialize_head=True, head_node_args={**NODE, "num_cpus": 0, "temp_dir": sessions})
        stack.callback(cls.cluster.shutdown)
        ray.init(cls.cluster.address, log_to_driver=False, logging_level="ERROR")
        stack.callback(ray.shutdown)
        cls.nodes = []

    def have(self, nodes):
        """Adds or removes nodes until there are so many; 0: they are killed."""
        while len(self.nodes) < nodes:
            self.nodes.append(self.cluster.add_node(wait=True, **NODE))
        while len(self.nodes) > nodes:
            self.cluster.remove_node(self.nodes.pop(), allow_graceful=nodes > 0)

    def propagate(self, name, **options):
        store = os.path.join(self.folder, name)
        options = {"tasks": 4, "progress": False, **JOB, **options}
        return store, hopfeed.ray.propagate(self.graph, store, **options)

    def same(self, store, alone=None):
        """A store has the files and bytes of that of one process, and nothing else."""
        alone = alone or self.alone
        files = {os.path.relpath(os.path.join(at, f), alone) for at, _, names in os.walk(alone) for f in names}
        there = {os.path.relpath(os.path.join(at, f), store) for at, _, names in os.walk(store) for f in names}
        self.assertEqual(there, files)
        self.assertEqual(filecmp.cmpfiles(alone, store, files, shallow=False)[1:], ([], []))

    def test_1_2_and_4_nodes_make_the_store_of_one_process(self):
        for nodes in (1, 2, 4):
            self.have(nodes)
            store, result = self.propagate(f"by-{nodes}")
            self.same(store)
            self.assertEqual([task["task"] for task in result["tasks"] if task["task"] == "publish"], ["publish"])
            self.assertEqual(len(result["tasks"]), 1 + 4 + 4 + 4 + 1)
            self.assertLessEqual(len({task["node"] for task in result["tasks"]}), nodes)
        self.assertEqual(self.propagate(f"by-{nodes}")[1]["tasks"], [], "it is complete")

    def test_a_typed_graph_and_a_task_that_is_killed(self):
        self.have(2)
        rng, arrays = np.random.default_rng(1), os.path.join(self.folder, "arrays")
        papers, authors = 50_000, 30_000
        made = {
            "nodes/paper/node_feat": rng.random((papers, 32), dtype=np.float32),
            "nodes/author/node_feat": rng.random((authors, 64), dtype=np.float32),
            "nodes/paper/node_label": rng.integers(0, 7, papers, dtype=np.int32),
            "nodes/paper/splits": rng.integers(0, 3, (1, papers), dtype=np.int8),
            "edges/author__paper/edge_index": np.stack([rng.integers(0, authors, 10**6), rng.integers(0, papers, 10**6)]),
        }
        for name, array in made.items():
            os.makedirs(os.path.dirname(os.path.join(arrays, name)), exist_ok=True)
            np.save(os.path.join(arrays, name + ".npy"), array)
        with open(os.path.join(arrays, "meta.json"), "w") as f:
            json.dump({"node_types": {"paper": papers, "author": authors}, "target": "paper"}, f)
        graph, alone = os.path.join(self.folder, "typed"), os.path.join(self.folder, "typed-alone")
        hopfeed.import_npy(arrays, graph, progress=False)
        hopfeed.propagate(graph, alone, hops=3, label_hops=2, progress=False)
        killed = []

        def progress(_):
            if stopped and not killed:
                os.kill(stopped[0], signal.SIGKILL)
                killed.append(stopped[0])

        store = os.path.join(self.folder, "typed-store")
        with stopped_hops() as stopped:
            result = hopfeed.ray.propagate(graph, store, tasks=4, hops=3, label_hops=2, progress=progress)
        self.same(store, alone)
        self.assertEqual(len(killed), 1)
        self.assertEqual({task["task"] for task in result["tasks"] if task["task"].startswith("hops")}, {f"hops-{i}" for i in range(4)})

    @needs_server
    def test_a_bucket_and_tasks_with_scratch_files(self):
        self.have(2)
        options = {"tasks": 3, "memory": "80MiB", "threads": 1, "progress": False, **JOB}
        listed = hopfeed.propagate(self.graph, self.url + "/store", **options)["tasks"]
        self.assertTrue(any(task["planned_scratch_bytes"] for task in listed))
        hopfeed.propagate(self.graph, self.url + "/alone", progress=False, **JOB)
        hopfeed.ray.propagate(self.graph, self.url + "/store", **options)
        data = os.path.join(self.folder, "server/data/bucket")
        self.same(os.path.join(data, "store"))
        self.same(os.path.join(data, "alone"))

    def test_a_node_that_is_lost_in_mid_task(self):
        self.have(1)
        lost = []

        def progress(_):
            if stopped and not lost:
                lost.append(next(node["NodeID"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")))
                self.have(0)
                self.have(1)

        with stopped_hops() as stopped:
            store, result = self.propagate("lost", progress=progress)
        self.same(store)
        after = {task["task"] for task in result["tasks"] if task["node"] != lost[0]}
        self.assertLessEqual({"write-0", "publish"}, after)

    def test_ctrl_c_and_the_same_call_again(self):
        self.have(2)
        states = []

        def progress(state):
            states.append(state["tasks"][0])
            if stopped:
                os.kill(stopped[0], signal.SIGCONT)
                signal.raise_signal(signal.SIGINT)

        with stopped_hops() as stopped, self.assertRaises(KeyboardInterrupt):
            self.propagate("stopped", progress=progress)
        self.assertEqual(running(), {}, "all tasks have been cancelled")
        self.assertEqual(states[-1]["total"], 14)
        store, result = self.propagate("stopped")
        self.same(store)
        self.assertEqual({task["task"][:3] for task in result["tasks"]}, {"hop", "wri", "pub"}, "rows and cuts were done")

    def test_what_fails_is_named(self):
        self.have(2)
        store = os.path.join(self.folder, "none")
        with self.assertRaisesRegex(hopfeed.OptionError, "(?s)task (cut|hops|rows).*scratch"):
            self.propagate("none", scratch=os.path.join(store, "within"))
        with self.assertRaises(FileNotFoundError):
            hopfeed.ray.propagate(store + "/graph", store, tasks=2)

    def test_tasks_that_are_killed_and_paused(self):
        self.have(2)
        rng, killed, paused = random.Random(int(os.environ.get("SEED", "1"))), [], []

        def progress(_):
            time.sleep(rng.uniform(0, 0.5))
            while paused:
                os.kill(paused.pop(), signal.SIGCONT)
            tasks = sorted(wait_for(("cut-", "hops-", "write-"), 0.5).items())
            if not tasks or len(killed) >= KILLS or rng.random() < 0.3:
                return
            name, process = rng.choice(tasks)
            with contextlib.suppress(ProcessLookupError):
                if rng.random() < 0.2:
                    os.kill(process, signal.SIGSTOP)
                    paused.append(process)
                elif rng.random() < 0.2:
                    killed.append("a node")
                    self.cluster.remove_node(self.nodes.pop(0), allow_graceful=False)
                    self.have(2)
                else:
                    os.kill(process, signal.SIGKILL)
                    killed.append(name)

        runs = 0
        while len(killed) < KILLS:
            store, _ = self.propagate(f"killed-{runs}", retries=1000, progress=progress)
            self.same(store)
            shutil.rmtree(store)
            runs += 1
        print(f"{len(killed)} kills in {runs} runs: {', '.join(killed)}")


if __name__ == "__main__":
    unittest.main()
