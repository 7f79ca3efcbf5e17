"""Times `hopfeed import npy` and scipy's conversion of edges to CSR, in turn, in edges a second.

    python tools/bench/peers/import_edges.py ./hopfeed WORK [--rounds 5] [--threads 2] [--memory 1GiB]

Needs numpy and scipy, 6 GB of disk in WORK and 2 GB of memory. R-MAT edges (Graph500's quadrants, 8 a node,
nodes renumbered at random), in the order in which they are drawn, one column of features:

- hopfeed: --edges (128M), read from files, sorted within --memory and written, with checksums, synced.
- scipy: an eighth of that in memory, coo_matrix.tocsr() and sort_indices(), which have one thread. Fewer
  edges take less time each, so this favours scipy.

First 100,000 edges go through both, and the results are compared; --rounds 0 does only that. Prints a JSON
object a run, medians and ratios; core_seconds is processor time, peak_rss_bytes what was resident at most.
"""

import argparse
import json
import pathlib
import shutil
import sys
import time

import numpy as np
import scipy.sparse as sp

from rounds import THREADS, measure, ratio, run

DEGREE = 8


def rmat(nodes, edges):
    """Edges [2,edges], source and destination, drawn quadrant by quadrant; those beyond the last node are drawn again."""
    random = np.random.default_rng(1)
    names = random.permutation(nodes)
    out = np.empty((2, edges), np.int64)
    for first in range(0, edges, 1 << 22):
        part = out[:, first : first + (1 << 22)]
        open_ = np.arange(part.shape[1])
        while len(open_):
            ends = np.zeros((2, len(open_)), np.int64)
            for _ in range(int(nodes - 1).bit_length()):
                quadrant = np.digitize(random.random(len(open_), np.float32), (0.57, 0.76, 0.95))
                ends = ends * 2 + (quadrant >> 1, quadrant & 1)
            good = (ends < nodes).all(axis=0)
            part[:, open_[good]] = names[ends[:, good]]
            open_ = open_[~good]
    return out


def make_arrays(folder, edges):
    nodes = edges // DEGREE
    if not (folder / "meta.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        np.save(folder / "edge_index.npy", rmat(nodes, edges))
        np.save(folder / "node_feat.npy", np.ones((nodes, 1), np.float32))
        (folder / "meta.json").write_text(json.dumps({"name": "rmat", "directed": True}))
    return folder


def to_csr(edges, nodes):
    """The in-neighbours of each node, ascending."""
    a = sp.coo_matrix((np.ones(edges.shape[1], np.float32), (edges[1], edges[0])), shape=(nodes, nodes)).tocsr()
    a.sort_indices()
    return a


# The peak of a process begins with that of the one that starts it, so a small one starts the import.
MEASURED = """
import json, resource, subprocess, sys, time
start = time.perf_counter()
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
seconds, used = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps({"seconds": seconds, "core_seconds": used.ru_utime + used.ru_stime, "peak_rss_bytes": used.ru_maxrss * 1024}))
"""


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("hopfeed", type=pathlib.Path)
    p.add_argument("work", type=pathlib.Path)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--threads", type=int, default=THREADS)
    p.add_argument("--memory", default="1GiB")
    p.add_argument("--edges", type=int, default=128_000_000)
    o = p.parse_args()
    hopfeed, work = o.hopfeed.resolve(), o.work.resolve() / "import"
    graph = work / "graph"

    def run_import(arrays):
        return run(sys.executable, "-c", MEASURED, hopfeed, "import", "npy", arrays, "-o", graph, "--memory", o.memory, "--threads", o.threads, "--force", "--quiet")[0]

    check = make_arrays(work / "check", 100_000)
    run_import(check)
    shutil.rmtree(work / "out", ignore_errors=True)
    run(hopfeed, "export", "npy", graph, "-o", work / "out", "--quiet")
    a = to_csr(np.load(check / "edge_index.npy"), 100_000 // DEGREE)  # which adds up duplicates; import merges them
    ours, theirs = np.load(work / "out" / "edge_index.npy"), np.stack([a.indices, np.repeat(np.arange(a.shape[0]), np.diff(a.indptr))])
    assert np.array_equal(ours, theirs), "the results differ"
    print("the same edges in the same order")
    if o.rounds == 0:
        return
    fewer = o.edges // 8
    small, large = (make_arrays(work / str(n), n) for n in (fewer, o.edges))
    edges = np.load(small / "edge_index.npy")

    def scipy():
        start, cores = time.perf_counter(), time.process_time()
        to_csr(edges, fewer // DEGREE)
        seconds = time.perf_counter() - start
        return {"scipy": {"edges_per_second": fewer / seconds, "edges_per_core_second": fewer / (time.process_time() - cores)}}

    def hopfeed_():
        figures = run_import(large)
        return {"hopfeed": {"edges_per_second": o.edges / figures["seconds"], "edges_per_core_second": o.edges / figures["core_seconds"],
                            "peak_rss_bytes": figures["peak_rss_bytes"]}}

    r = measure(o.rounds, scipy, hopfeed_)
    for figure in "edges_per_second", "edges_per_core_second":
        ratio(r, figure, "hopfeed", "scipy")


if __name__ == "__main__":
    main()
