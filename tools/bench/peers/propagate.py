"""Times `hopfeed propagate` and PyTorch Geometric's SIGN transform on the same graph, in turn.

    python tools/bench/peers/propagate.py ./hopfeed WORK [ROUNDS]

Needs numpy, torch and torch-geometric, and 6 GB of disk in WORK. The graph: 1M nodes, about 25M
edges (R-MAT, undirected), 128 features of float32; 3 hops of D^-1/2 A D^-1/2, all rows.

- pyg: reads the arrays, then transforms.SIGN(3), which leaves the result in memory.
- hopfeed: reads the graph and writes a store with all hops, checksummed and synced, with memory
  enough, and with --memory 512MiB.

Prints a JSON object a run (seconds of the whole, seconds of the transform, peak resident bytes,
VmHWM), then the medians and their ratios. The first round also compares the results.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import time

HOPS = 3
BUDGETS = {"hopfeed": [], "hopfeed 512 MiB": ["--memory", "512MiB"]}


def peer(folder, check):
    """The transform alone, in a process of its own: called with `--peer FOLDER`."""
    start = time.perf_counter()
    import numpy as np
    import torch
    from torch_geometric.data import Data
    from torch_geometric.transforms import SIGN

    torch.set_num_threads(os.cpu_count())
    edges = torch.from_numpy(np.load(f"{folder}/edge_index.npy").astype(np.int64))
    x = torch.from_numpy(np.load(f"{folder}/node_feat.npy"))
    data = Data(x=x, edge_index=edges, num_nodes=len(x))
    ready = time.perf_counter()
    data = SIGN(HOPS)(data)
    done = time.perf_counter()
    with open("/proc/self/status") as status:
        peak = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))
    if check:
        np.save(f"{folder}/expected.npy", data[f"x{HOPS}"].numpy()[:1000])
    print(json.dumps({"seconds": done - start, "transform_seconds": done - ready, "peak_rss_bytes": peak}))


def main():
    hopfeed, work = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 3
    os.makedirs(work, exist_ok=True)
    graph, arrays, store = (os.path.join(work, name) for name in ("graph", "arrays", "store"))

    def run(*command):
        start = time.perf_counter()
        out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        return time.perf_counter() - start, out

    if not os.path.exists(graph):
        run(hopfeed, "generate", "rmat", "-o", graph, "--nodes", "1000000", "--edges", "12900000", "--undirected",
            "--features", "128", "--classes", "10", "--quiet")
    if not os.path.exists(arrays):
        run(hopfeed, "export", "npy", graph, "-o", arrays, "--quiet")

    results = {name: [] for name in ("pyg", *BUDGETS)}
    for i in range(rounds):
        _, out = run(sys.executable, __file__, "--peer", arrays, str(int(i == 0)))
        results["pyg"].append(json.loads(out))
        for name, flags in BUDGETS.items():
            shutil.rmtree(store, ignore_errors=True)
            seconds, out = run(hopfeed, "propagate", graph, "-o", store, "--hops", str(HOPS), "--operator", "sym:noloops",
                               "--rows", "all", "--json", "--quiet", *flags)
            r = json.loads(out)
            results[name].append({"seconds": seconds, "transform_seconds": sum(r["hop_seconds"]), "peak_rss_bytes": r["peak_rss_bytes"]})
        if i == 0:
            compare(hopfeed, store, arrays, os.path.join(work, "check"))
        for name, list_ in results.items():
            print(json.dumps({"who": name, **list_[-1]}), flush=True)
    median = {name: {k: statistics.median(r[k] for r in list_) for k in list_[0]} for name, list_ in results.items()}
    for name in BUDGETS:
        print(json.dumps({"pyg / " + name: {k: round(median["pyg"][k] / median[name][k], 2) for k in median[name]}}))


def compare(hopfeed, store, arrays, check):
    """The last hop of the first nodes, as both have it."""
    import numpy as np

    shutil.rmtree(check, ignore_errors=True)
    subprocess.run([hopfeed, "export", "npy", store, "-o", check, "--quiet"], check=True)
    names = [n for n in os.listdir(check) if n.endswith(f"_hop-{HOPS}.npy")]
    found = np.load(os.path.join(check, names[0]), mmap_mode="r")
    nodes = np.load(os.path.join(check, "node_id.npy"))
    rows = np.argsort(nodes)[:1000]
    expected = np.load(os.path.join(arrays, "expected.npy"))
    error = float(np.abs(np.asarray(found[rows]) - expected).max())
    print(json.dumps({"largest_difference": error, "largest_value": float(np.abs(expected).max())}), flush=True)
    assert error <= 1e-5 * max(1.0, float(np.abs(expected).max())), "the results differ"
    shutil.rmtree(check)


if sys.argv[1:2] == ["--peer"]:
    peer(sys.argv[2], sys.argv[3] == "1")
else:
    main()
