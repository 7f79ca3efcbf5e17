"""Times one hop of propagation by Hopfeed, a loop in C, torch and scipy, in turn, on one graph.

    python tools/bench/peers/hop.py ./hopfeed WORK [--rounds 5] [--threads 2] [--nodes N --edges M --features F]

Needs a C compiler with OpenMP, numpy, scipy and torch; 0.8 GB of disk in WORK and 2 GB of memory.

A hop is D^-1/2 (A+I) D^-1/2 X, float32, over the graph of `hopfeed bench propagate`. All sides multiply
by the same weights and run the same numbers of threads, 1 and --threads:

- c: hop.c, as fast as this machine lets a loop be; its result is that of Hopfeed, bit for bit.
- torch: torch.addmm of a CSR tensor into a matrix that is there (beta=0), the fastest of its forms, by
  indices of 32 and of 64 bits.
- scipy: a product of a csr_matrix; scipy has one thread, and allocates its result.
- hopfeed: `bench propagate`; float16 and bfloat16 too.

First a small graph goes through all of them, and the results are compared. --rounds 0 does only that.
Each program runs four hops a round; the fastest counts. Prints a JSON object a run, medians,
and the ratios; core_seconds is processor time, which counts on a machine that has other work.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

import numpy as np

from rounds import THREADS, best, measure, ratio, run

HERE = pathlib.Path(__file__).parent
HOPS = 4  # by each program in a round
U = np.uint64


def mix(x):
    x = (x ^ x >> U(30)) * U(0xBF58476D1CE4E5B9)
    x = (x ^ x >> U(27)) * U(0x94D049BB133111EB)
    return x ^ x >> U(31)


def hashes(seed, i):
    golden = U(0x9E3779B97F4A7C15)
    return mix(mix(seed + golden) + (i + U(1)) * golden)


def derive(seed, label):
    for c in label.encode():
        seed = hashes(seed, U(c))
    return mix(seed + U(len(label)))


def bench_graph(nodes, edges):
    """Edges (source, destination) of `hopfeed bench propagate --seed 0`: skewedGraph in tools/bench/propagate.go."""
    e = np.arange(edges, dtype=U)
    with np.errstate(over="ignore"):
        ends = np.sort((hashes(derive(U(0), "ends"), e) % U(nodes)).astype(np.int64))
        r = (hashes(derive(U(0), "starts"), e) >> U(11)).astype(np.float64) / 2.0**53
        return (nodes * r * r * r).astype(U) * U(2654435761) % U(nodes), ends


def write_hop(folder, nodes, source, destination, x):
    """Writes what hop.c reads: A+I by destination, t = d^-1/2, and x. Returns how many rows a hop gathers."""
    folder.mkdir(parents=True, exist_ok=True)
    loop = np.ones(nodes, bool)
    loop[destination[source == destination]] = False  # self-loops that are there already
    loops = np.flatnonzero(loop)
    keys = np.sort(np.concatenate([destination.astype(U) << U(32) | source.astype(U), loops.astype(U) << U(32) | loops.astype(U)]))
    degrees = np.bincount((keys >> U(32)).astype(np.int64), minlength=nodes)
    np.concatenate([[0], np.cumsum(degrees)]).astype(np.int64).tofile(folder / "indptr.bin")
    (keys & U(0xFFFFFFFF)).astype(np.int32).tofile(folder / "indices.bin")
    (1 / np.sqrt(degrees)).astype(np.float32).tofile(folder / "factors.bin")
    x.tofile(folder / "x.bin")
    return len(keys)


def read_hop(folder):
    """The matrix of a folder as (values, indices, indptr), and x [n,F]."""
    indptr, indices = np.fromfile(folder / "indptr.bin", np.int64), np.fromfile(folder / "indices.bin", np.int32)
    factors = np.fromfile(folder / "factors.bin", np.float32)
    values = np.repeat(factors, np.diff(indptr)) * factors[indices]
    return (values, indices, indptr), np.fromfile(folder / "x.bin", np.float32).reshape(len(factors), -1)


def timed(hop):
    """The fastest hop, and the least processor time of one."""
    seconds = []
    for _ in range(HOPS):
        wall, cores = time.perf_counter(), time.process_time()
        result = hop()
        seconds.append((time.perf_counter() - wall, time.process_time() - cores))
    wall, cores = map(min, zip(*seconds))
    return {"seconds": wall, "core_seconds": cores}, result


def peer(name, folder, threads, out):
    """torch or scipy, in a process of its own: called with `--peer`. Writes the result to out, if that is given."""
    (values, indices, indptr), x = read_hop(folder)
    if name == "scipy":
        import scipy.sparse as sp

        a = sp.csr_matrix((values, indices, indptr), shape=(len(x), len(x)))
        figures, y = timed(lambda: a @ x)
    else:
        import torch

        torch.set_num_threads(threads)
        index = torch.int32 if name == "torch int32" else torch.int64
        a = torch.sparse_csr_tensor(torch.from_numpy(indptr).to(index), torch.from_numpy(indices).to(index),
                                    torch.from_numpy(values), size=(len(x), len(x)))
        result = torch.zeros(x.shape)
        figures, y = timed(lambda: torch.addmm(result, a, torch.from_numpy(x), beta=0, out=result))
        y = y.numpy()
    if out:
        y.tofile(out)
    print(json.dumps(figures))


PEERS = ["torch int32", "torch int64", "scipy"]


def run_peer(name, folder, threads, *out):
    limits = {k: str(threads) for k in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    command = [sys.executable, "-W", "ignore", __file__, "--peer", name, folder, threads, *out]
    return run(*command, env=os.environ | limits)[0]


def compile_c(work, features):
    program = work / f"hop-{features}"
    subprocess.run(["cc", "-O3", "-march=native", "-ffp-contract=off", "-fopenmp", f"-DFEATURES={features}", HERE / "hop.c", "-o", program], check=True)
    return program


def run_c(program, folder, threads, *out):
    return run(program, folder, threads, HOPS, *out)[0]


def compare(hopfeed, work, program, features):
    """One hop over a small graph by all: C has Hopfeed's result, the others differ by rounding."""
    nodes, folder = 20_000, work / "check"
    shutil.rmtree(folder, ignore_errors=True)
    random = np.random.default_rng(0)
    source, destination = (random.integers(0, nodes, 500_000) for _ in range(2))
    destination[:5000] = 7  # a list of several blocks
    keys = np.unique(destination * nodes + source)
    source, destination = keys % nodes, keys // nodes
    x = random.standard_normal((nodes, features), np.float32)
    write_hop(folder, nodes, source, destination, x)
    arrays = folder / "arrays"
    arrays.mkdir()
    np.save(arrays / "edge_index.npy", np.stack([source, destination]))
    np.save(arrays / "node_feat.npy", x)
    (arrays / "meta.json").write_text(json.dumps({"name": "check", "directed": True}))
    for line in (["import", "npy", arrays, "-o", folder / "graph"], ["export", "npy", folder / "store", "-o", folder / "out"]):
        if line[0] == "export":
            run(hopfeed, "propagate", folder / "graph", "-o", folder / "store", "--hops", 1, "--operator", "sym", "--rows", "all", "--quiet")
        run(hopfeed, *line, "--quiet")
    order = np.argsort(np.load(folder / "out" / "node_id.npy"))
    ours = np.load(folder / "out" / "sym_hop-1.npy")[order]

    run_c(program, folder, THREADS, folder / "c.bin")
    c = np.fromfile(folder / "c.bin", np.float32).reshape(ours.shape)
    assert np.array_equal(ours.view(np.int32), c.view(np.int32)), "hop.c and hopfeed differ"
    print("c: the same result, bit for bit")
    (values, indices, indptr), _ = read_hop(folder)
    import scipy.sparse as sp

    scale = sp.csr_matrix((np.abs(values), indices, indptr), shape=(nodes, nodes)) @ np.abs(x)  # sum |w x|
    for name in PEERS:
        run_peer(name, folder, THREADS, folder / "peer.bin")
        error = np.abs(ours - np.fromfile(folder / "peer.bin", np.float32).reshape(ours.shape)) / scale
        print(f"{name}: differs by at most {error.max():.1e} of sum |w x|")
        assert error.max() < 1e-5, name
    shutil.rmtree(folder)


def main():
    if sys.argv[1:2] == ["--peer"]:
        return peer(sys.argv[2], pathlib.Path(sys.argv[3]), int(sys.argv[4]), *sys.argv[5:] or [None])
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("hopfeed", type=pathlib.Path)
    p.add_argument("work", type=pathlib.Path)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--threads", type=int, default=THREADS)
    p.add_argument("--nodes", type=int, default=1_000_000)
    p.add_argument("--edges", type=int, default=25_000_000)
    p.add_argument("--features", type=int, default=128)
    o = p.parse_args()
    hopfeed, folder = o.hopfeed.resolve(), o.work.resolve() / "hop"
    folder.mkdir(parents=True, exist_ok=True)
    program = compile_c(folder, o.features)
    compare(hopfeed, folder, program, o.features)
    if o.rounds == 0:
        return
    threads = sorted({1, o.threads})
    x = (np.arange(o.nodes * o.features) % 97).astype(np.float32).reshape(o.nodes, o.features)
    terms = write_hop(folder, o.nodes, *bench_graph(o.nodes, o.edges), x)

    def ours():
        lines = run(hopfeed, "bench", "propagate", "--json", "--quiet", "--rounds", HOPS, "--seed", 0, "--threads", ",".join(map(str, threads)),
                    "--nodes", o.nodes, "--edges", o.edges, "--features", o.features)
        assert all(r["edges_processed"] == terms for r in lines), "not the graph that the others have"
        return {f"hopfeed {r['dtype']} x{r['threads']}": {"seconds": r["fastest_seconds"], "core_seconds": r["core_seconds"]} for r in lines}

    def c():
        return {f"c x{t}": run_c(program, folder, t) for t in threads}

    def others():
        return {f"{name} x{t}": run_peer(name, folder, t) for name in PEERS for t in threads if name != "scipy" or t == 1}

    r = measure(o.rounds, c, ours, others)
    for figure in "seconds", "core_seconds":
        for t in threads:
            mine = f"hopfeed float32 x{t}"
            torch = best(r, figure, [f"{name} x{t}" for name in PEERS if name != "scipy"], min)
            ratio(r, figure, mine, f"c x{t}")
            ratio(r, figure, torch, mine)
            for narrow in "float16", "bfloat16":
                ratio(r, figure, mine, f"hopfeed {narrow} x{t}")
        ratio(r, figure, "scipy x1", "hopfeed float32 x1")
    if len(threads) > 1:
        ratio(r, "seconds", "hopfeed float32 x1", f"hopfeed float32 x{o.threads}")


if __name__ == "__main__":
    main()
