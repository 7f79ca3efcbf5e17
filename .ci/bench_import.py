#!/usr/bin/env python3
"""Measures hopfeed import against scipy's coo-to-csr, in edges a second.

    bench_import.py HOPFEED FOLDER [ROUNDS]

FOLDER, with 6 GB of room, takes R-MAT edges in the npy layout, in the order in which they are drawn (Graph500's
quadrants, 8 edges a node, node ids permuted): 128M for hopfeed, read from files, sorted and written within 1 GiB;
16M for scipy, tocsr() and sort_indices() of what is in memory. They take turns; the last line has medians of the
rounds and of their ratios. Needs numpy and scipy, and 2 GB of memory for the edges.
"""

import pathlib
import statistics
import subprocess
import sys
import time

import numpy as np
import scipy.sparse as sp


def rmat(nodes, edges, seed):
    """Edges [2,edges] of a graph of nodes nodes."""
    rng = np.random.default_rng(seed)
    ids = rng.permutation(nodes)
    out = np.empty((2, edges), np.int64)
    for first in range(0, edges, 1 << 22):
        part = out[:, first:first + (1 << 22)]
        left = np.arange(part.shape[1])
        while len(left):  # draws beyond the last node are drawn again
            pair = np.zeros((2, len(left)), np.int64)
            for _ in range(int(nodes - 1).bit_length()):
                x = rng.random(len(left), np.float32)
                pair <<= 1
                pair[0] |= x >= 0.76
                pair[1] |= (x >= 0.57) & (x < 0.76) | (x >= 0.95)
            inside = (pair < nodes).all(axis=0)
            part[:, left[inside]] = ids[pair[:, inside]]
            left = left[~inside]
    return out


def make(folder, nodes, edges):
    if not (folder / "node_feat.npy").exists():
        folder.mkdir(parents=True, exist_ok=True)
        np.save(folder / "edge_index.npy", rmat(nodes, edges, 1))
        np.save(folder / "node_feat.npy", np.ones((nodes, 1), np.float32))


def time_scipy(edges, nodes):
    start = time.perf_counter()
    a = sp.coo_matrix((np.ones(edges.shape[1], np.float32), (edges[1], edges[0])), shape=(nodes, nodes)).tocsr()
    a.sort_indices()
    return time.perf_counter() - start


# What a process began as counts as its peak, so a small one starts the import.
MEASURE = """
import resource, subprocess, sys, time
start = time.perf_counter()
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
print(time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def time_import(hopfeed, graph, out):
    """Seconds and peak resident KiB."""
    command = [hopfeed, "import", "npy", graph, "-o", out, "--memory", "1GiB", "--force", "--quiet", "--json"]
    return map(float, subprocess.check_output([sys.executable, "-c", MEASURE, *command]).split())


def main(hopfeed, folder, rounds=5):
    folder = pathlib.Path(folder)
    small, large = 16_000_000, 128_000_000
    make(folder / "small", small // 8, small)
    make(folder / "large", large // 8, large)
    edges = np.load(folder / "small" / "edge_index.npy")
    scipy, ours, peak = [], [], 0.0
    for k in range(int(rounds)):
        scipy.append(small / time_scipy(edges, small // 8) / 1e6)
        seconds, resident = time_import(hopfeed, folder / "large", folder / "graph")
        ours.append(large / seconds / 1e6)
        peak = max(peak, resident)
        print(f"round {k}: scipy {scipy[-1]:.1f}, hopfeed {ours[-1]:.1f} million edges a second", flush=True)
    ratio = statistics.median(o / s for o, s in zip(ours, scipy))
    print(f"medians: scipy {statistics.median(scipy):.1f}, hopfeed {statistics.median(ours):.1f}, ratio {ratio:.2f}; at most {peak / 1024:.0f} MiB resident")


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    main(*sys.argv[1:])
