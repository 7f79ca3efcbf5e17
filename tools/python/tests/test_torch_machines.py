"""Trainings by the processes of several machines, from a bucket, of which one is killed. A test is skipped where its
package is not installed."""

import collections
import contextlib
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import unittest

import numpy as np

from buckets import bucket, needs_server
from stores import write_arrays
from test_torch import EXAMPLES, hopfeed, module

BATCH, EPOCHS, KILLED = 64, 6, (1, 1, 4)  # rank, epoch and batch at which it dies, once

# Python imports this first, in all processes: it notes the nodes of each batch of a share, and kills one process, where
# SAVED names a file once that tells of a state of the epoch.
RECORDER = """
import json, os, signal, time
from hopfeed import _batches

def saved(epoch):
    file = os.environ.get("SAVED")
    return not file or os.path.exists(file) and f'"epoch":{epoch},' in open(file).read().replace(" ", "")

iterate = _batches.Batches.__iter__

def recorded(self):
    for batch in iterate(self):
        if self._world > 1:
            epoch, index = self._at[0] - (self._at[1] == 0), batch.index
            if [self._rank, epoch, index] == json.loads(os.environ["KILL"]) and not os.path.exists(os.environ["RECORDS"] + "/killed"):
                while not saved(epoch):
                    time.sleep(0.1)
                open(os.environ["RECORDS"] + "/killed", "w").close()
                os.kill(os.getpid(), signal.SIGKILL)
            with open(os.environ["RECORDS"] + f"/{os.getpid()}.jsonl", "a") as file:
                print(json.dumps([self._rank, epoch, index, batch.n_id.tolist()]), file=file)
        yield batch

_batches.Batches.__iter__ = recorded
"""

# Runs a script on a cluster of two nodes with a processor each.
CLUSTER = """
import os, runpy, sys
import ray
from ray.cluster_utils import Cluster

cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False, "object_store_memory": 1 << 27})
cluster.add_node(num_cpus=1, object_store_memory=1 << 27)
ray.init(cluster.address)
sys.argv = sys.argv[1:]
sys.path.insert(0, os.getcwd())
runpy.run_path(sys.argv[0], run_name="__main__")
ray.shutdown()
cluster.shutdown()
"""


@needs_server
class Machines(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        stack = contextlib.ExitStack()
        cls.addClassCleanup(stack.close)
        at = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        cls.log = at / "server/access.log"
        url, cls.environment = stack.enter_context(bucket(at / "server"))
        arrays = write_arrays(at / "arrays")
        np.save(at / "arrays/node_feat.npy", np.random.default_rng(2).standard_normal((len(arrays["splits"]), 64), np.float32))
        cls.store = url.replace("bucket?", "bucket/store?")
        make = "import sys, hopfeed; hopfeed.import_npy(*sys.argv[1:3], progress=False)\nfor store in sys.argv[3:]: "
        make += "hopfeed.propagate(sys.argv[2], store, hops=2, chunk_rows=16, progress=False)"
        places = [str(at / "arrays"), str(at / "graph"), str(at / "store"), cls.store]
        subprocess.run([sys.executable, "-c", make, *places], env=cls.environment, check=True)
        cls.chunks = {part: 3 * -(-rows // 16) for part, rows in hopfeed.open(at / "store").regions.items()}
        cls.plan = []
        with hopfeed.Loader(at / "store", BATCH) as loader:
            for _ in range(EPOCHS):
                cls.plan.append([batch.n_id.tolist() for batch in loader])

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.work = pathlib.Path(folder.name)
        for name in ("records", "site"):
            (self.work / name).mkdir()
        (self.work / "site/sitecustomize.py").write_text(RECORDER)
        path = os.pathsep.join([str(self.work / "site"), *(p for p in sys.path if p)])
        own = {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "RECORDS": str(self.work / "records"), "KILL": json.dumps(KILLED)}
        self.environment = {**self.environment, **own}
        self.before = self.reads()

    def reads(self):
        """How many reads of features the server has answered."""
        return self.log.read_text().count("s3_GetObject store/features/")

    def check(self, world, least):
        """All ranks had each row once an epoch, in the order of the plan, and those after the kill went on from a batch of its epoch."""
        self.assertTrue((self.work / "records/killed").exists())
        shares, begun = collections.defaultdict(set), collections.Counter()
        for file in (self.work / "records").glob("*.jsonl"):
            records = [json.loads(line) for line in file.read_text().splitlines()]
            begun[tuple(records[0][1:3])] += 1
            for rank, epoch, index, nodes in records:
                shares[epoch, index, rank].add(tuple(nodes))
        self.assertEqual({len(nodes) for nodes in shares.values()}, {1}, "a share that comes again is another")
        for epoch, batches in enumerate(self.plan):
            for index, want in enumerate(batches):
                self.assertEqual([node for rank in range(world) for node in next(iter(shares[epoch, index, rank]))], want, (epoch, index))
        (again,) = set(begun) - {(0, 0)}
        self.assertEqual((begun[0, 0], begun[again]), (world, world))
        self.assertTrue((KILLED[1], least) <= again <= KILLED[1:], again)

    def machines(self, processes, *arguments):
        """Runs a script by the launchers of two machines, with some processes each."""
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        launch = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", str(processes), "--max-restarts", "2", "--rdzv-backend", "c10d"]
        launch += ["--rdzv-endpoint", f"127.0.0.1:{port}", "--local-addr", "127.0.0.1"]
        running = []
        for machine in range(2):
            own = [argument.replace("MACHINE", str(machine)) for argument in arguments]
            how = {"env": self.environment, "cwd": EXAMPLES, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
            running.append(subprocess.Popen([*launch, *own], **how))
            self.addCleanup(running[-1].kill)
        said = [process.communicate(timeout=900)[0] for process in running]
        for process, text in zip(running, said):
            self.assertEqual(process.returncode, 0, text)
        return said

    def test_torchrun(self):
        options = ["--batch-size", str(BATCH), "--epochs", str(EPOCHS), "--placement", "storage", "--save-every", "2"]
        places = ["--cache-dir", str(self.work / "cache-MACHINE"), "--resume", str(self.work / "saved-MACHINE.pt")]
        said = self.machines(2, "sign.py", self.store, *options, *places)
        self.assertEqual(sum(text.count("test accuracy") for text in said), 1, said)
        self.check(4, 2)
        # Each machine read each chunk once, but for those that two processes wanted at the same moment; with a cache for
        # each process there would be 3.3 reads of a chunk.
        self.assertLess(self.reads() - self.before, 2.7 * self.chunks["train"] + self.chunks["valid"] + self.chunks["test"])

    def test_lightning(self):
        module("lightning")
        options = ["--devices", "1", "--nodes", "2", "--batch-size", str(BATCH), "--epochs", str(EPOCHS), "--save-every", "2"]
        said = self.machines(1, "sign_lightning.py", self.store, str(self.work / "run"), *options, "--cache-dir", str(self.work / "cache"), "--accelerator", "cpu")
        self.assertEqual(sum(text.count("test accuracy") for text in said), 1, said)
        self.check(2, 2)

    def test_ray(self):
        module("ray.train.torch")
        options = ["--workers", "2", "--batch-size", str(BATCH), "--epochs", str(EPOCHS), "--save-every", "2", "--cache-dir", str(self.work / "cache")]
        command = [sys.executable, "-c", CLUSTER, str(EXAMPLES / "sign_ray.py"), self.store, str(self.work / "run"), *options]
        # Ray hears of a saved state some time after the workers have gone on. It starts them with the niceness 15.
        saved = self.work / "run/sign/checkpoint_manager_snapshot.json"
        own = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0", "SAVED": str(saved)}
        environment = {**self.environment, **own}
        done = subprocess.run(command, cwd=EXAMPLES, env=environment, capture_output=True, text=True, timeout=900)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.check(2, 2)


if __name__ == "__main__":
    unittest.main()
