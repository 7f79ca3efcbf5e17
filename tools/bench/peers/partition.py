#!/usr/bin/env python3
"""Counts the edges between the parts of a graph: divided by hopfeed train --partitions, by METIS, and by chance.

    python tools/bench/peers/partition.py HOPFEED WORK [--data FOLDER ...] [--parts 2 8 32] [--nodes N]

The graphs are folders in the npy layout, and two that are generated: communities (sbm) and a power law (rmat), of --nodes
nodes and 8 times as many edges. METIS divides the graph with every edge in both directions, once, without self-loops, with
its defaults (k-way, parts of up to 1.03 x the mean). Ours are of equal size. Cuts are shares of the stored edges.
Processor time of ours is that of a training of one epoch with partitions less one without, the least of three each.
METIS's parts stay in WORK/NAME-K.npy, for train --partition-file. Needs numpy and pymetis.
"""

import argparse
import json
import pathlib
import re
import resource
import subprocess
import time

import numpy as np
import pymetis

TRAIN = ("--model", "gcn", "--layers", 1, "--hidden", 1, "--fanout", 1, "--epochs", 1, "--eval-every", 2, "--threads", 1)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("hopfeed", type=pathlib.Path)
    p.add_argument("work", type=pathlib.Path)
    p.add_argument("--data", type=pathlib.Path, nargs="*", default=[])
    p.add_argument("--parts", type=int, nargs="+", default=[2, 8, 32])
    p.add_argument("--nodes", type=int, default=100_000)
    o = p.parse_args()
    o.work.mkdir(parents=True, exist_ok=True)
    hopfeed = o.hopfeed.resolve()

    def run(*command):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        text = subprocess.run([str(hopfeed), *map(str, command), "--json", "--quiet"], check=True, stdout=subprocess.PIPE, text=True, cwd=o.work).stdout
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return json.loads(text), after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    size = ["--nodes", o.nodes, "--edges", 8 * o.nodes, "--features", 1, "--labeled", 0.01]
    made = {d.name: ["import", "npy", d.resolve()] for d in o.data}
    made["sbm"] = ["generate", "sbm", *size, "--classes", 50, "--homophily", 0.8]
    made["rmat"] = ["generate", "rmat", *size, "--classes", 2]
    print("| graph | parts | ours | METIS | by chance | processor s: ours | METIS | its largest part |\n|---|---|---|---|---|---|---|---|")
    for name, command in made.items():
        run(*command, "-o", name, "--force")
        run("export", "npy", name, "-o", name + "-arrays", "--force")
        edges = np.load(o.work / (name + "-arrays") / "edge_index.npy").astype(np.int64)
        n = json.loads((o.work / name / "manifest.json").read_text())["nodes"]
        starts, neighbours = both_ways(edges, n)
        plain = min(run("train", name, *TRAIN)[1] for _ in range(3))
        for parts in o.parts:
            runs = [run("train", name, *TRAIN, "--partitions", parts) for _ in range(3)]
            result, seconds = runs[0][0], min(seconds for _, seconds in runs)
            cut = next(int(m[1]) for r in result["reasons"] if (m := re.search(r"none of the (\d+) edges", r)))
            began = time.process_time()
            _, of = pymetis.part_graph(parts, pymetis.CSRAdjacency(starts, neighbours))
            of, metis = np.asarray(of), time.process_time() - began
            np.save(o.work / f"{name}-{parts}.npy", of)
            chance = np.random.default_rng(1).permutation(np.arange(n) % parts)
            share = lambda of: f"{100 * np.mean(of[edges[0]] != of[edges[1]]):.1f} %"
            print(f"| {name} | {parts} | {100 * cut / edges.shape[1]:.1f} % | {share(of)} | {share(chance)} | {seconds - plain:.2f} | "
                  f"{metis:.2f} | {np.bincount(of).max() * parts / n:.2f} x |", flush=True)


def both_ways(edges, n):
    """Every edge in both directions, once, without self-loops: offsets [n+1] and neighbours."""
    u, v = np.concatenate([edges, edges[::-1]], axis=1)
    keys = np.unique((u * n + v)[u != v])
    return np.searchsorted(keys, np.arange(n + 1) * n), keys % n


if __name__ == "__main__":
    main()
