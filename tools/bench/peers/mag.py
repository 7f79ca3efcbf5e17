"""Times `hopfeed propagate` on a typed graph beside SeHGNN's preprocessing of the same graph, in turn.

    python tools/bench/peers/mag.py ./hopfeed WORK [--shape ogbn-mag|mag240m] [--scale 1] [--hops 2] [--rounds 3]

Needs numpy, scipy and torch; with --by torch_sparse that, with --by scipy no torch. The graph is generated once: nodes
and edges of ogbn-mag, or of MAG240M (by default 1/400 of it), with skewed degrees; papers alone have features, 128 of
float32 or 768 of float16. Products are means over each relation and its reverse.

- sehgnn: reads the arrays, builds a matrix of each relation, and propagates as hg_propagate_feat_dgl of SeHGNN does: hop
  by hop, each product made once and dropped when no other needs it; the labelled papers' rows stay in memory, in float32.
- saved: sehgnn, whose matrices are then written as .npy files of the input's dtype, and synced: what ours leaves behind.
- hopfeed: reads the imported graph and writes a store, checksummed and synced: with memory enough, and with --memory a
  quarter of what sehgnn had resident.

First the rows of 1000 labelled papers are compared in every matrix. Prints a JSON object a run (seconds, seconds of the
processor, resident bytes at most, bytes of the store), then medians and ratios. Two hops need 8 GB of disk and 6 GB of
memory, three 21 and 13.
"""

import argparse
import json
import os
import pathlib
import resource
import shutil
import sys
import tempfile
import time

import numpy as np

from metapaths import stored
from rounds import THREADS, measure, ratio, run

CHECKED = 1000
SHAPES = {
    "ogbn-mag": {
        "features": 128, "dtype": "float32", "labelled": 1.0, "classes": 349, "scale": 1.0,
        "nodes": {"paper": 736_389, "author": 1_134_649, "institution": 8_740, "field": 59_965},
        "edges": {("author", "writes", "paper"): 7_145_660, ("paper", "cites", "paper"): 5_416_271,
                  ("author", "affiliated", "institution"): 1_043_998, ("paper", "has", "field"): 7_505_078},
    },
    "mag240m": {
        "features": 768, "dtype": "float16", "labelled": 0.0114, "classes": 153, "scale": 1 / 400,
        "nodes": {"paper": 121_751_666, "author": 122_383_112, "institution": 25_721},
        "edges": {("author", "writes", "paper"): 386_022_720, ("paper", "cites", "paper"): 1_297_748_926,
                  ("author", "affiliated", "institution"): 44_592_586},
    },
}


def generate(folder, shape, scale):
    """Writes a graph in the typed npy layout, meta.json last."""
    rng = np.random.default_rng(0)
    nodes = {kind: max(1, round(n * scale)) for kind, n in shape["nodes"].items()}
    papers, width = nodes["paper"], shape["features"]
    at = folder / "nodes" / "paper"
    at.mkdir(parents=True)
    x = np.lib.format.open_memmap(at / "node_feat.npy", "w+", shape["dtype"], (papers, width))
    for first in range(0, papers, 1 << 16):
        x[first : first + (1 << 16)] = rng.standard_normal((min(1 << 16, papers - first), width), dtype=np.float32)
    x.flush()
    labelled = rng.permutation(papers)[: round(papers * shape["labelled"])]
    labels, splits = np.full(papers, -1, np.int32), np.full((1, papers), -1, np.int8)
    labels[labelled] = rng.integers(0, shape["classes"], len(labelled))
    splits[0, labelled] = rng.choice(3, len(labelled), p=[0.8, 0.1, 0.1])
    np.save(at / "node_label.npy", labels)
    np.save(at / "splits.npy", splits)
    for (source, name, destination), edges in shape["edges"].items():
        ends = [(nodes[kind] * rng.random(round(edges * scale)) ** 2).astype(np.int64) for kind in (source, destination)]
        at = folder / "edges" / f"{source}__{name}__{destination}"
        at.mkdir(parents=True)
        np.save(at / "edge_index.npy", np.stack(ends))
    (folder / "meta.json").write_text(json.dumps({"name": folder.name, "node_types": nodes, "target": "paper"}))


class Products:
    """The mean over each relation and its reverse, by (destination, name, source)."""

    def __init__(self, folder, nodes, by, threads):
        import scipy.sparse as sp

        self.by, self.matrices = by, {}
        if by != "scipy":
            import torch

            torch.set_num_threads(threads)
        for at in sorted((folder / "edges").iterdir()):
            source, name, destination = at.name.split("__")
            edges = np.load(at / "edge_index.npy")
            a = sp.csr_matrix((np.ones(edges.shape[1], np.float32), (edges[1], edges[0])), (nodes[destination], nodes[source]))
            a.data[:] = 1  # duplicates are merged
            self.matrices[destination, name, source] = self.matrix(a)
            self.matrices[source, "rev_" + name, destination] = self.matrix(a.T.tocsr())

    def matrix(self, a):
        """Rows of weights 1 / row length, but torch_sparse takes the mean itself."""
        if self.by == "torch_sparse":
            from torch_sparse import SparseTensor

            return SparseTensor.from_scipy(a).set_value(None)
        a.data[:] = np.repeat(1 / np.maximum(np.diff(a.indptr), 1), np.diff(a.indptr))
        if self.by == "scipy":
            return a
        import torch

        return torch.sparse_csr_tensor(*(torch.from_numpy(part) for part in (a.indptr, a.indices, a.data)), a.shape)

    def tensor(self, x):
        if self.by == "scipy":
            return x
        import torch

        return torch.from_numpy(x)

    def of(self, relation, x):
        if self.by == "torch_sparse":
            from torch_sparse import matmul

            return matmul(self.matrices[relation], x, reduce="mean")
        return self.matrices[relation] @ x


def propagate(products, x, rows, hops):
    """The rows of each metapath of up to so many relations from papers to papers."""
    ends = [(destination, source) for destination, _, source in products.matrices]
    near = {"paper": 0}  # relations from a type to papers, at least
    for _ in range(hops):
        near |= {source: near[destination] + 1 for destination, source in ends if destination in near and source not in near}
    found, last = {}, {"paper": {"paper": x}}
    for hop in range(1, hops + 1):
        made = {}
        for relation in products.matrices:
            destination, name, source = relation
            if near.get(destination, hops) > hops - hop:
                continue
            step = f"{name}." if ends.count((destination, source)) > 1 else ""
            for path, y in last.get(source, {}).items():
                z = products.of(relation, y)
                if destination == "paper":
                    found[f"paper<{step}{path}"] = z if len(rows) == len(z) else z[rows]
                if hop < hops:
                    made.setdefault(destination, {})[f"{destination}<{step}{path}"] = z
        last = made
    return found


def save(folder, found, dtype):
    for path, z in found.items():
        with open(folder / f"{path.replace('<', '-')}.npy", "wb") as file:
            np.save(file, np.asarray(z).astype(dtype, copy=False))
            file.flush()
            os.fsync(file.fileno())


def sehgnn(folder, by, threads, hops, what, out):
    """The peer, in a process of its own: called with `--peer`. Writes to out some rows of each matrix, or saves them."""
    if by != "scipy":
        import torch  # importing is not counted
    start, cpu = time.perf_counter(), time.process_time()
    meta = json.loads((folder / "meta.json").read_text())
    products = Products(folder, meta["node_types"], by, threads)
    features = np.load(folder / "nodes" / "paper" / "node_feat.npy")
    dtype, x = features.dtype, products.tensor(features.astype(np.float32, copy=False))
    del features
    rows = np.flatnonzero(np.load(folder / "nodes" / "paper" / "node_label.npy") >= 0)
    ready, ready_cpu = time.perf_counter(), time.process_time()
    found = propagate(products, x, products.tensor(rows), hops)
    made, made_cpu = time.perf_counter(), time.process_time()
    if what == "saved":
        save(out, found, dtype)
    done, done_cpu = time.perf_counter(), time.process_time()
    with open("/proc/self/status") as status:
        peak = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))
    if what == "checked":
        np.savez(out, rows=rows[:CHECKED], **{path: np.asarray(z[:CHECKED]) for path, z in found.items()})
    print(json.dumps({"seconds": done - start, "processor_seconds": done_cpu - cpu, "product_seconds": made - ready,
                      "product_processor_seconds": made_cpu - ready_cpu, "peak_rss_bytes": peak}))


def compare(store, expected, dtype):
    """Some rows of each matrix, as both have it."""
    operators = json.loads((store / "manifest.json").read_text())["operators"]
    nodes, wanted = stored(store, "rows", "node").ravel(), np.load(expected)
    place = np.empty(nodes.max() + 1, np.int64)
    place[nodes] = np.arange(len(nodes))
    metapaths = {operator["name"].split(":")[1] for operator in operators}
    assert metapaths == set(wanted.files) - {"rows"}, metapaths ^ set(wanted.files)
    most = 0.0
    for operator in operators:
        found = stored(store, "features/" + operator["name"].replace(":", "+").replace("<", "-") + "/hop-1", "features")
        error = np.abs(found[place[wanted["rows"]]].astype(np.float32) - wanted[operator["name"].split(":")[1]])
        most = max(most, float(error.max()))
    print(f"{len(operators)} matrices differ by at most {most:.1e}", flush=True)
    assert most <= {"float32": 1e-5, "float16": 5e-3}[dtype]


def main():
    if sys.argv[1:2] == ["--peer"]:
        return sehgnn(pathlib.Path(sys.argv[2]), sys.argv[3], *map(int, sys.argv[4:6]), sys.argv[6], pathlib.Path(sys.argv[7]))
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("hopfeed", type=pathlib.Path)
    p.add_argument("work", type=pathlib.Path)
    p.add_argument("--shape", choices=SHAPES, default="ogbn-mag")
    p.add_argument("--scale", type=float)
    p.add_argument("--hops", type=int, default=2)
    p.add_argument("--by", choices=["torch", "torch_sparse", "scipy"], default="torch")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--threads", type=int, default=THREADS)
    o = p.parse_args()
    shape = SHAPES[o.shape]
    scale = o.scale or shape["scale"]
    work = o.work.resolve() / f"{o.shape}-{scale:g}"
    hopfeed, arrays, graph, store = o.hopfeed.resolve(), work / "arrays", work / "graph", work / "store"
    if not (arrays / "meta.json").exists():
        shutil.rmtree(arrays, ignore_errors=True)
        generate(arrays, shape, scale)

    def measured(*command):
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        (result,) = run(*command)
        seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
        return result, {"seconds": seconds,
                        "processor_seconds": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime}

    if not (graph / "types.json").exists():
        _, took = measured(hopfeed, "import", "npy", arrays, "-o", graph, "--dtype", shape["dtype"], "--json", "--quiet", "--force")
        print(f"import: {took['seconds']:.1f} s, {took['processor_seconds']:.1f} s of the processor", flush=True)

    def theirs(what, out):
        return measured(sys.executable, "-W", "ignore", __file__, "--peer", arrays, o.by, o.threads, o.hops, what, out)[0]

    def saved():
        with tempfile.TemporaryDirectory(dir=work) as folder:
            return {"saved": theirs("saved", folder)}

    peer = theirs("checked", work / "expected.npz")
    budgets = {"hopfeed": [], "quarter": ["--memory", peer["peak_rss_bytes"] // 4]}

    def ours(name):
        shutil.rmtree(store, ignore_errors=True)
        result, took = measured(hopfeed, "propagate", graph, "-o", store, "--hops", o.hops, "--threads", o.threads, "--json",
                                "--quiet", *budgets[name])
        took |= {"product_seconds": sum(result["hop_seconds"]), "peak_rss_bytes": result["peak_rss_bytes"]}
        return {name: took | {"store_bytes": sum(f.stat().st_size for f in store.rglob("*") if f.is_file())}}

    for name in budgets:
        print(json.dumps(ours(name)), flush=True)
        compare(store, work / "expected.npz", shape["dtype"])
    r = measure(o.rounds, lambda: {"sehgnn": theirs("timed", "-")}, saved, *(lambda name=name: ours(name) for name in budgets))
    for name in budgets if o.rounds else []:
        for figure in "seconds", "processor_seconds", "peak_rss_bytes":
            ratio(r, figure, "sehgnn", name)
        ratio(r, "seconds", "saved", name)
    shutil.rmtree(store)


if __name__ == "__main__":
    main()
