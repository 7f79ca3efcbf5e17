"""Times an epoch of batches by Hopfeed and by PyTorch on rows of the same shape, in turn.

    python tools/bench/peers/load.py ./hopfeed WORK [ROUNDS]

Needs numpy and torch, and 2 GB of disk in WORK. 900,000 rows of 4 matrices of 100 features of
float32 (1.44 GB), batches of 8000, all rows reshuffled.

- DataLoader: torch.utils.data.DataLoader over a TensorDataset with 2 workers, which is what PP-GNN
  examples run; stopped after 30 s, its rate counts.
- fused: torch.randperm, then an index_select a matrix and batch: the rival to beat.
- hopfeed: `bench load`, rows from host memory, and chunks from storage by direct reads.

Prints a JSON object a run, then the medians as multiples of DataLoader and of fused.
"""

import json
import os
import statistics
import subprocess
import sys
import time

ROWS, MATRICES, FEATURES, BATCH = 900_000, 4, 100, 8000
ROW_BYTES = MATRICES * FEATURES * 4
LIMIT_SECONDS = 30


def peers():
    """Both ways of torch, in a process of their own: called with `--peer`."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    torch.set_num_threads(os.cpu_count())
    matrices = [torch.randn(ROWS, FEATURES) for _ in range(MATRICES)]
    labels = torch.zeros(ROWS, dtype=torch.long)

    def loader():
        for batch in DataLoader(TensorDataset(*matrices, labels), batch_size=BATCH, shuffle=True, num_workers=2):
            yield len(batch[-1])

    def fused():
        order = torch.randperm(ROWS)
        for first in range(0, ROWS, BATCH):
            index = order[first : first + BATCH]
            batch = [m.index_select(0, index) for m in matrices], labels.index_select(0, index)
            yield len(batch[1])

    out = {}
    sum(fused())  # memory is touched for the first time
    for name, batches in (("fused", fused), ("DataLoader", loader)):
        start, rows = time.perf_counter(), 0
        for n in batches():
            rows += n
            if time.perf_counter() - start > LIMIT_SECONDS:
                break
        out[name] = rows * ROW_BYTES / (time.perf_counter() - start)
    print(json.dumps(out))


def main():
    hopfeed, work = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 3
    os.makedirs(work, exist_ok=True)
    graph, store = os.path.join(work, "load-graph"), os.path.join(work, "load-store")

    def run(*command):
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout

    if not os.path.exists(store):
        run(hopfeed, "generate", "rmat", "-o", graph, "--nodes", str(ROWS * 10 // 6), "--edges", "3000000", "--features", str(FEATURES),
            "--classes", "16", "--labeled", "1", "--force", "--quiet")
        run(hopfeed, "propagate", graph, "-o", store, "--hops", str(MATRICES - 1), "--quiet")
    results = {}
    for _ in range(rounds):
        found = json.loads(run(sys.executable, __file__, "--peer"))
        for placement in ("host", "storage"):
            shuffle = "rr" if placement == "host" else "chunk"
            lines = run(hopfeed, "bench", "load", store, "--placement", placement, "--shuffle", shuffle, "--variants",
                        "double-buffer,chunk", "--rounds", "1", "--batch", str(BATCH), "--json", "--quiet")
            for line in map(json.loads, lines.splitlines()):
                if line["variant"] != "memcpy":
                    found[f"hopfeed {placement} {shuffle}"] = line["bytes_per_second"]
        for name, rate in found.items():
            results.setdefault(name, []).append(rate)
            print(json.dumps({"who": name, "bytes_per_second": round(rate)}), flush=True)
    median = {name: statistics.median(rates) for name, rates in results.items()}
    for peer in ("DataLoader", "fused"):
        print(json.dumps({f"{name} / {peer}": round(rate / median[peer], 2) for name, rate in median.items() if name.startswith("hopfeed")}))


if sys.argv[1:2] == ["--peer"]:
    peers()
else:
    main()
