"""Times Hopfeed's loader in Python beside the same loader in Go and torch's fused gather, and SIGN in
PyTorch from storage beside SIGN with all data in memory. In turn, on the store of load.py.

    python tools/bench/peers/pytorch.py ./hopfeed WORK [--rounds 5] [--threads 2] [--only loading|training|sampling]

Needs numpy, torch and the wheel of tools/python; 3 GB of disk in WORK and 5 GB of memory. 900,000 rows of 4
matrices of 100 features of float32, batches of 8000. Sampling needs Go, and makes a graph of its own.

- loading: hopfeed.Loader beside `hopfeed bench load`, each in the ways host rr, host chunk and storage chunk;
  and index_select of torch from host memory, as load.py has it.
- training: the first batches of an epoch of the SIGN of tools/python/examples, by hopfeed.torch.Loader from
  storage, read past the page cache, and with the rows in tensors, from which each batch is gathered by row or
  copied as one. For root, the first has a memory cgroup of 1 GiB, and the store is larger.

- sampling: hopfeed.NeighborLoader and, with tensors, hopfeed.torch.NeighborLoader beside the loader in Go
  (BenchmarkLoad of loader/sampling): batches of 1024 seeds, fanouts 15, 10 and 5, of 300,000 nodes and 6M edges
  with 100 features in memory, and of 10,000 nodes and 100,000 edges with 16.

Of 15 epochs of loading a round, and 3 of torch and of training, the median counts, after one that
touches memory for the first time.
"""

import argparse
import itertools
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time

from load import BATCH, FEATURES, MATRICES, ROW_BYTES
from rounds import THREADS, best, measure, ratio, run

HERE = pathlib.Path(__file__).resolve().parent
WAYS = {"host rr": ("host", "rr"), "host chunk": ("host", "chunk"), "storage chunk": ("storage", "chunk")}
MEMORY = 1 << 30
LOADING_EPOCHS, TRAINING_EPOCHS, TRAINING_BATCHES = 15, 3, 6
GATHERED, COPIED, STORED = "SIGN, rows gathered from memory", "SIGN, chunks copied from memory", "SIGN, from storage"


def epochs(rows, number, **ways):
    """Calls ways in turn for a number of epochs, of that many rows, after a first one, and prints median rates."""
    seconds = {name: [] for name in ways}
    for _ in range(1 + number):
        for name, epoch in ways.items():
            start = time.perf_counter()
            epoch()
            seconds[name].append(time.perf_counter() - start)
    for name, s in seconds.items():
        print(json.dumps({"name": name, "bytes_per_second": rows * ROW_BYTES / statistics.median(s[1:])}), flush=True)


def loading(store, threads):
    """hopfeed.Loader, in a process of its own: called with `--peer`."""
    import hopfeed

    for name, (placement, shuffle) in WAYS.items():
        loader = hopfeed.Loader(store, BATCH, shuffle, placement, n_id=False, threads=threads)

        def epoch():
            for batch in loader:
                batch.x

        epochs(loader.rows, LOADING_EPOCHS, **{"python " + name: epoch})
        loader.close()


def training(store, threads, from_memory):
    """SIGN, in a process of its own: called with `--peer`."""
    import torch

    import hopfeed.torch

    sys.path.insert(0, str(HERE.parents[1] / "python/examples"))
    from sign import SIGN

    torch.set_num_threads(threads)
    classes = hopfeed.Dataset(store).classes

    model = SIGN(MATRICES, FEATURES, classes)
    optimizer = torch.optim.Adam(model.parameters())

    def step(x, labels):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), labels, ignore_index=-1).backward()
        optimizer.step()

    loader = hopfeed.torch.Loader(store, BATCH, "chunk", "storage", threads=threads)
    rows = TRAINING_BATCHES * BATCH

    def from_storage():
        for batch in itertools.islice(loader, TRAINING_BATCHES):
            step(batch.x, batch.y)

    if not from_memory:
        return epochs(rows, TRAINING_EPOCHS, **{STORED: from_storage})
    parts = [(b.x.clone(), b.y) for b in loader]
    x, labels = (torch.cat(p) for p in zip(*parts))
    del parts

    def gathered():
        order = torch.randperm(len(x))
        for first in range(0, rows, BATCH):
            batch = order[first : first + BATCH]
            step(x.index_select(0, batch), labels.index_select(0, batch))

    def copied():
        for first in torch.randperm(len(x) // BATCH)[:TRAINING_BATCHES].tolist():
            step(x[first * BATCH : (first + 1) * BATCH].clone(), labels[first * BATCH : (first + 1) * BATCH])

    epochs(rows, TRAINING_EPOCHS, **{GATHERED: gathered, COPIED: copied})


GRAPHS = {"300k nodes": (300_000, 6_000_000, 100), "10k nodes": (10_000, 100_000, 16)}
SAMPLED_BATCHES = {"300k nodes": 40, "10k nodes": 400}
WARM = 5  # batches, as BenchmarkLoad has


def sampling(graphs, threads, tensors):
    """hopfeed.NeighborLoader, in a process of its own: called with `--peer`."""
    import hopfeed

    if tensors:
        import hopfeed.torch

        hopfeed.torch.torch.set_num_threads(threads)
    kind, name = (hopfeed.torch.NeighborLoader, "torch") if tensors else (hopfeed.NeighborLoader, "python")
    for graph, count in SAMPLED_BATCHES.items():
        loader = kind(pathlib.Path(graphs, graph), input_nodes="all", placement="host", threads=threads)
        batches = itertools.chain.from_iterable(itertools.repeat(loader))  # epoch after epoch
        for _ in itertools.islice(batches, WARM):
            pass
        start = time.perf_counter()
        rows = 0
        for batch in itertools.islice(batches, count):
            rows += len(batch.y)
        print(json.dumps({"name": f"{name} {graph}", "seeds_per_second": rows / (time.perf_counter() - start)}), flush=True)
        del batches, batch
        loader.close()


def limit_memory():
    """Puts this process into a memory cgroup, where one can be made: of version 2, or of version 1."""
    v2 = os.path.exists("/sys/fs/cgroup/cgroup.controllers")
    group = pathlib.Path("/sys/fs/cgroup" if v2 else "/sys/fs/cgroup/memory", "hopfeed-pytorch")
    group.mkdir(exist_ok=True)
    (group / ("memory.max" if v2 else "memory.limit_in_bytes")).write_text(str(MEMORY))
    (group / "cgroup.procs").write_text(str(os.getpid()))


def main():
    if sys.argv[1:2] == ["--peer"]:
        store, threads = sys.argv[3], int(sys.argv[4])
        if sys.argv[2] == "loading":
            return loading(store, threads)
        if sys.argv[2].startswith("sampling"):
            return sampling(store, threads, sys.argv[2] == "sampling-torch")
        if sys.argv[2] == "limited":
            limit_memory()
        return training(store, threads, sys.argv[2] == "memory")
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("hopfeed", type=pathlib.Path)
    p.add_argument("work", type=pathlib.Path, help="of load.py, which makes the store")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--threads", type=int, default=THREADS)
    p.add_argument("--only", choices=["loading", "training", "sampling"])
    o = p.parse_args()
    store = o.work.resolve() / "load/store"

    def peer(what):
        lines = run(sys.executable, "-W", "ignore", __file__, "--peer", what, store, o.threads)
        return {line.pop("name"): line for line in lines}

    def torch_fused():
        lines = run(sys.executable, "-W", "ignore", HERE / "load.py", "--peer", "fused", o.threads)
        return {line["name"]: {"bytes_per_second": line["bytes_per_second"]} for line in lines}

    def go():
        out = {}
        for name, (placement, shuffle) in WAYS.items():
            lines = run(o.hopfeed.resolve(), "bench", "load", store, "--placement", placement, "--shuffle", shuffle, "--rounds", LOADING_EPOCHS,
                        "--variants", "double-buffer,chunk", "--batch", BATCH, "--threads", o.threads, "--json", "--quiet")
            out |= {"go " + name: {"bytes_per_second": line["bytes_per_second"]} for line in lines if line["variant"] != "memcpy"}
        return out

    if o.only in (None, "sampling"):
        graphs = o.work.resolve() / "sampled"
        benchmark = graphs / "sampling.test"
        for name, (nodes, edges, features) in GRAPHS.items():
            if not (graphs / name / "manifest.json").exists():
                subprocess.run([o.hopfeed.resolve(), "generate", "rmat", "-o", graphs / name, "--nodes", str(nodes), "--edges", str(edges),
                                "--features", str(features), "--classes", "8", "--quiet"], check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["go", "test", "-c", "-o", benchmark, "./loader/sampling"], cwd=HERE.parents[2], check=True)

        def sampled(what):
            lines = run(sys.executable, "-W", "ignore", __file__, "--peer", what, graphs, o.threads)
            return {line.pop("name"): line for line in lines}

        def in_go():
            out = {}
            for name, count in SAMPLED_BATCHES.items():
                done = subprocess.run([benchmark, "-test.run=^$", "-test.bench=Load/features=host", f"-test.benchtime={count}x", f"-test.cpu={o.threads}"],
                                      env=dict(os.environ, HOPFEED_GRAPH=graphs / name), check=True, capture_output=True, text=True)
                out["go " + name] = {"seeds_per_second": float(re.search(r"([0-9.e+]+) seeds/s", done.stdout)[1])}
            return out

        r = measure(o.rounds, in_go, lambda: sampled("sampling"), lambda: sampled("sampling-torch"))
        for name in GRAPHS:
            for peer in ("python", "torch"):
                ratio(r, "seeds_per_second", f"{peer} {name}", "go " + name)
    if o.only in (None, "loading"):
        r = measure(o.rounds, go, lambda: peer("loading"), torch_fused)
        for name in WAYS:
            ratio(r, "bytes_per_second", "python " + name, "go " + name)
        rival = best(r, "bytes_per_second", [name for name in r if name.startswith("torch")])
        for name in dict.fromkeys(["torch fused", rival]):
            ratio(r, "bytes_per_second", "python host rr", name)
    if o.only in (None, "training"):
        r = measure(o.rounds, lambda: peer("limited" if os.geteuid() == 0 else "storage"), lambda: peer("memory"))
        for rival in (GATHERED, COPIED):
            ratio(r, "bytes_per_second", rival, STORED)


if __name__ == "__main__":
    main()
