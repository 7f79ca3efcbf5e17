"""Times `hopfeed propagate` and PyTorch Geometric's SIGN transform on the same graph, in turn.

    python tools/bench/peers/propagate.py ./hopfeed WORK [--rounds 3] [--threads 2]

Needs numpy, torch and torch-geometric, 6 GB of disk in WORK and 4 GB of memory. The graph: 1M nodes,
about 25M edges (R-MAT, undirected), 128 features of float32; 3 hops of D^-1/2 A D^-1/2, all rows. All
sides have the same number of threads.

- pyg: reads the arrays, then transforms.SIGN(3), which leaves the result in memory.
- hopfeed: reads the graph and writes a store with all hops, checksummed and synced, with memory
  enough, and with --memory 512MiB.

First both transform the graph once, and the last hop of the first 1000 nodes is compared; --rounds 0
does only that. Prints a JSON object a run (seconds of the whole, seconds of the hops, resident bytes at
most), then medians and ratios. --nodes and --edges make another graph.
"""

import argparse
import json
import pathlib
import shutil
import sys
import time

from rounds import THREADS, measure, ratio, run

HOPS, CHECKED = 3, 1000
BUDGETS = {"hopfeed": [], "hopfeed 512 MiB": ["--memory", "512MiB"]}


def pyg(folder, threads, out):
    """The transform, in a process of its own: called with `--peer`. Writes the first rows of the last hop to out."""
    import numpy as np
    import torch
    from torch_geometric.data import Data
    from torch_geometric.transforms import SIGN

    start = time.perf_counter()  # importing is not counted
    torch.set_num_threads(threads)
    edges = torch.from_numpy(np.load(folder / "edge_index.npy").astype(np.int64))
    x = torch.from_numpy(np.load(folder / "node_feat.npy"))
    data = Data(x=x, edge_index=edges, num_nodes=len(x))
    ready = time.perf_counter()
    data = SIGN(HOPS)(data)
    done = time.perf_counter()
    with open("/proc/self/status") as status:
        peak = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))
    if out:
        np.save(out, data[f"x{HOPS}"].numpy()[:CHECKED])
    print(json.dumps({"seconds": done - start, "hop_seconds": done - ready, "peak_rss_bytes": peak}))


def compare(hopfeed, store, expected, check):
    """The last hop of the first nodes, as both have it."""
    import numpy as np

    shutil.rmtree(check, ignore_errors=True)
    run(hopfeed, "export", "npy", store, "-o", check, "--quiet")
    (last,) = check.glob(f"*_hop-{HOPS}.npy")
    rows = np.argsort(np.load(check / "node_id.npy"))[:CHECKED]
    found, wanted = np.load(last, mmap_mode="r")[rows], np.load(expected)
    error, largest = float(np.abs(found - wanted).max()), float(np.abs(wanted).max())
    print(f"the results differ by at most {error:.1e}, of values up to {largest:.2g}", flush=True)
    assert error <= 1e-5 * max(1.0, largest)
    shutil.rmtree(check)


def main():
    if sys.argv[1:2] == ["--peer"]:
        return pyg(pathlib.Path(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:] or [None])
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("hopfeed", type=pathlib.Path)
    p.add_argument("work", type=pathlib.Path)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--threads", type=int, default=THREADS)
    p.add_argument("--nodes", type=int, default=1_000_000)
    p.add_argument("--edges", type=int, default=12_900_000, help="before each is added the other way round")
    o = p.parse_args()
    hopfeed, work = o.hopfeed.resolve(), o.work.resolve() / f"propagate-{o.nodes}-{o.edges}"
    work.mkdir(parents=True, exist_ok=True)
    graph, arrays, store, first = (work / name for name in ("graph", "arrays", "store", "first.npy"))
    if not graph.exists():
        run(hopfeed, "generate", "rmat", "-o", graph, "--nodes", o.nodes, "--edges", o.edges, "--undirected", "--features", 128, "--classes", 10, "--quiet")
    if not arrays.exists():
        run(hopfeed, "export", "npy", graph, "-o", arrays, "--quiet")

    def theirs(*out):
        return {"pyg": run(sys.executable, "-W", "ignore", __file__, "--peer", arrays, o.threads, *out)[0]}

    def ours(name):
        shutil.rmtree(store, ignore_errors=True)
        start = time.perf_counter()
        (result,) = run(hopfeed, "propagate", graph, "-o", store, "--hops", HOPS, "--operator", "sym:noloops", "--rows", "all",
                        "--threads", o.threads, "--json", "--quiet", *BUDGETS[name])
        seconds = time.perf_counter() - start
        return {name: {"seconds": seconds, "hop_seconds": sum(result["hop_seconds"]), "peak_rss_bytes": result["peak_rss_bytes"]}}

    theirs(first)
    ours("hopfeed")
    compare(hopfeed, store, first, work / "check")
    r = measure(o.rounds, theirs, *(lambda name=name: ours(name) for name in BUDGETS))
    for name in BUDGETS if o.rounds else []:
        for figure in "seconds", "hop_seconds", "peak_rss_bytes":
            ratio(r, figure, name, "pyg")


if __name__ == "__main__":
    main()
