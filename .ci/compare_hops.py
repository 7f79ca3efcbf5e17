#!/usr/bin/env python3
"""Times hops of `hopfeed bench propagate` and of others on the same graph, round by round.

    compare_hops.py HOPFEED PEERS WORK [ROUNDS] [cpu]

PEERS holds spmm_limit.c, a loop in C that is as fast as the machine allows, and spmm_peers.py, which times scipy
and torch; each takes the fastest of some runs, and so do we. WORK is a folder for 800 MB of files. The last line has
medians of the ratios of the rounds. With cpu, all run one thread, and times are those of the processor, for a machine
that has other work. Needs gcc, numpy, scipy and torch.
"""

import json, pathlib, subprocess, sys
from statistics import median
import numpy as np

HOPFEED, PEERS, WORK = sys.argv[1:4]
ROUNDS = int(sys.argv[4]) if len(sys.argv) > 4 else 5
CPU = "cpu" in sys.argv[5:]
THREADS = 1 if CPU else 2
NODES, EDGES, FEATURES, SEED = 1_000_000, 25_000_000, 128, 0
U = np.uint64


def mix(x):
    x = (x ^ x >> U(30)) * U(0xBF58476D1CE4E5B9)
    x = (x ^ x >> U(27)) * U(0x94D049BB133111EB)
    return x ^ x >> U(31)


GOLDEN = U(0x9E3779B97F4A7C15)


def hashes(seed, i):
    return mix(mix(seed + GOLDEN) + (i + U(1)) * GOLDEN)


def derive(seed, label):
    for c in label.encode():
        seed = hashes(seed, U(c))
    return mix(seed + U(len(label)))


def write_graph():
    """The graph of bench propagate: see skewedGraph in tools/bench/propagate.go."""
    e = np.arange(EDGES, dtype=U)
    ends = (hashes(derive(U(SEED), "ends"), e) % U(NODES)).astype(np.int64)
    indptr = np.concatenate(([0], np.cumsum(np.bincount(ends, minlength=NODES)))).astype(np.int64)
    r = (hashes(derive(U(SEED), "starts"), e) >> U(11)).astype(np.float64) / 2.0**53
    starts = (NODES * r * r * r).astype(U) * U(2654435761) % U(NODES)
    rows = np.repeat(np.arange(NODES, dtype=U), np.diff(indptr))
    indices = (np.sort(rows << U(32) | starts) & U(0xFFFFFFFF)).astype(np.uint32)
    for name, a in ("indptr", indptr), ("indices", indices):
        np.save(f"{WORK}/{name}.npy", a)
        a.tofile(f"{WORK}/{name}.bin")
    np.save(f"{WORK}/x.npy", (np.arange(NODES * FEATURES) % 97).astype(np.float32).reshape(NODES, FEATURES))


def lines(*command):
    return [json.loads(s) for s in subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()]


def ours():
    command = [HOPFEED, "bench", "propagate", "--json", "--quiet", "--rounds", "4", "--seed", str(SEED), "--threads", "1,2",
               "--nodes", str(NODES), "--edges", str(EDGES), "--features", str(FEATURES)]
    return {(r["dtype"], r["threads"]): r["core_seconds"] / r["threads"] if CPU else r["fastest_seconds"] for r in lines(*command)}


def limit():
    return lines(f"{WORK}/limit", f"{WORK}/indptr.bin", f"{WORK}/indices.bin", str(NODES), str(FEATURES), str(THREADS))[0]["seconds"]


def peers():
    clock = "import time; time.perf_counter = time.process_time; " if CPU else ""
    run = f"{clock}import runpy; runpy.run_path({PEERS + '/spmm_peers.py'!r}, run_name='__main__')"
    return {r["peer"]: r["seconds"] for r in lines(sys.executable, "-c", run, WORK, str(THREADS))}


np.seterr(over="ignore")
write_graph()
source = pathlib.Path(PEERS, "spmm_limit.c").read_text()
pathlib.Path(WORK, "limit.c").write_text(source.replace("CLOCK_MONOTONIC", "CLOCK_PROCESS_CPUTIME_ID") if CPU else source)
subprocess.run(["gcc", "-O3", "-march=native", "-fopenmp", f"{WORK}/limit.c", "-o", f"{WORK}/limit"], check=True)
rounds = []
for _ in range(ROUNDS):
    c, t, p = limit(), ours(), peers()
    own = t["float32", THREADS]
    rounds.append({"ours / limit": own / c, "fastest peer / ours": min(p.values()) / own, "float32 / float16": own / t["float16", THREADS],
                   "float32 / bfloat16": own / t["bfloat16", THREADS], "one thread / two": t["float32", 1] / t["float32", 2]})
    print(json.dumps({"limit": c, "ours": own, **p, **rounds[-1]}), flush=True)
print(json.dumps({k: round(median(r[k] for r in rounds), 3) for k in rounds[0]}))
