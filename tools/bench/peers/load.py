"""Times epochs of batches from host memory by Hopfeed, torch and C, in turn, on rows of the same shape.

    python tools/bench/peers/load.py ./hopfeed WORK [--rounds 5] [--threads 2]

Needs a C compiler, numpy and torch; 3 GB of disk in WORK and 5 GB of memory. 900,000 rows of 4 matrices
of 100 features of float32 (1.44 GB) with labels, batches of 8000.

- DataLoader: torch.utils.data.DataLoader over a TensorDataset, shuffled, with as many workers as threads.
  This is what people run today. It is stopped after ten seconds; its rate counts.
- torch fused: torch.randperm, then an index_select a matrix and batch. This is the rival to beat, and is
  given its best: results in new tensors or in buffers that are there (out), the matrices apart or side by
  side, in pages of 4 KiB or (THP_MEM_ALLOC_ENABLE=1) huge ones.
- memory.c: what the memory gives for copies in order and for rows at random.
- hopfeed: `bench load`, rows and chunks of 1000 and 8000 from host memory, and chunks from storage.

All sides have the same number of threads. torch's wait for each other at the end of every gather, so on a
machine with other work its figures mean nothing. Each measures three epochs a round; the median counts,
after one that touches memory for the first time. Prints a JSON object a run, medians and ratios.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

from rounds import THREADS, best, measure, ratio, run

HERE = pathlib.Path(__file__).parent
ROWS, MATRICES, FEATURES, BATCH = 900_000, 4, 100, 8000
ROW_BYTES = MATRICES * FEATURES * 4
EPOCHS, LIMIT_SECONDS = 3, 10


def data_loader(threads):
    """The rate of DataLoader, in a process of its own: called with `--peer`."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    torch.set_num_threads(threads)
    rows = TensorDataset(*[torch.randn(ROWS, FEATURES) for _ in range(MATRICES)], torch.zeros(ROWS, dtype=torch.long))
    start, seen = time.perf_counter(), 0
    for batch in DataLoader(rows, batch_size=BATCH, shuffle=True, num_workers=threads):
        seen += len(batch[-1])
        if time.perf_counter() - start > LIMIT_SECONDS:
            break
    print(json.dumps({"name": "DataLoader", "bytes_per_second": seen * ROW_BYTES / (time.perf_counter() - start)}))


def fused(threads):
    """The rates of all fused ways, in a process of their own: called with `--peer`."""
    import torch

    torch.set_num_threads(threads)
    joined = torch.randn(ROWS, MATRICES * FEATURES)
    matrices = [joined[:, i * FEATURES : (i + 1) * FEATURES].contiguous() for i in range(MATRICES)]
    labels = torch.zeros(ROWS, dtype=torch.long)
    buffers = [torch.zeros(BATCH, FEATURES) for _ in range(MATRICES)]
    buffer, label = torch.zeros(BATCH, MATRICES * FEATURES), torch.zeros(BATCH, dtype=torch.long)

    def new(index):
        return [m.index_select(0, index) for m in matrices], labels.index_select(0, index)

    def out(index):
        n = len(index)
        return ([torch.index_select(m, 0, index, out=b[:n]) for m, b in zip(matrices, buffers)], torch.index_select(labels, 0, index, out=label[:n]))

    def side_by_side(index):
        n = len(index)
        return [torch.index_select(joined, 0, index, out=buffer[:n])], torch.index_select(labels, 0, index, out=label[:n])

    for name, gather in (("torch fused", new), ("torch fused out", out), ("torch fused side by side out", side_by_side)):
        seconds, cores = [], []
        for epoch in range(1 + EPOCHS):
            start, cpu = time.perf_counter(), time.process_time()
            order = torch.randperm(ROWS)
            for first in range(0, ROWS, BATCH):
                index = order[first : first + BATCH]
                batch, _ = gather(index)
            seconds.append(time.perf_counter() - start)
            cores.append(time.process_time() - cpu)
            if epoch == 0:
                assert torch.equal(torch.cat(list(batch), 1), joined[index]), name
        print(json.dumps({"name": name, "bytes_per_second": ROWS * ROW_BYTES / statistics.median(seconds[1:]),
                          "core_seconds_per_gb": statistics.median(cores[1:]) / (ROWS * ROW_BYTES) * 1e9}))


def main():
    if sys.argv[1:2] == ["--peer"]:
        return {"DataLoader": data_loader, "fused": fused}[sys.argv[2]](int(sys.argv[3]))
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("hopfeed", type=pathlib.Path)
    p.add_argument("work", type=pathlib.Path)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--threads", type=int, default=THREADS)
    o = p.parse_args()
    hopfeed, work = o.hopfeed.resolve(), o.work.resolve() / "load"
    work.mkdir(parents=True, exist_ok=True)
    memory, store = work / "memory", work / "store"
    subprocess.run(["cc", "-O3", "-march=native", "-pthread", HERE / "memory.c", "-o", memory], check=True)
    if not store.exists():
        run(hopfeed, "generate", "rmat", "-o", work / "graph", "--nodes", ROWS * 10 // 6, "--edges", 3_000_000, "--features", FEATURES,
            "--classes", 16, "--labeled", 1, "--force", "--quiet")
        run(hopfeed, "propagate", work / "graph", "-o", store, "--hops", MATRICES - 1, "--quiet")

    def peer(way, suffix="", **environment):
        lines = run(sys.executable, "-W", "ignore", __file__, "--peer", way, o.threads, env=os.environ | environment)
        return {line.pop("name") + suffix: line for line in lines}

    def c():
        return {line.pop("name"): line for line in run(memory, o.threads, ROW_BYTES)}

    def ours(placement, chunk_rows, variants):
        lines = run(hopfeed, "bench", "load", store, "--placement", placement, "--variants", variants, "--chunk-rows", chunk_rows, "--rounds", EPOCHS,
                    "--batch", BATCH, "--threads", o.threads, "--json", "--quiet")
        return {f"hopfeed {placement} {line['variant']}" + (f" of {chunk_rows}" if line["variant"] == "chunk" else ""):
                {k: line[k] for k in ("bytes_per_second", "core_seconds_per_gb")} for line in lines if line["variant"] != "memcpy"}

    r = measure(o.rounds, c, lambda: ours("host", 1000, "baseline,fused,double-buffer,chunk"), lambda: peer("fused"),
                lambda: ours("host", 8000, "chunk"), lambda: peer("fused", " huge pages", THP_MEM_ALLOC_ENABLE="1"),
                lambda: ours("storage", 1000, "chunk"), lambda: peer("DataLoader"))
    rows, chunks = "hopfeed host double-buffer", "hopfeed host chunk of 1000"
    rival = best(r, "bytes_per_second", [name for name in r if name.startswith("torch fused")])
    ahead, baseline = "rows copied past the caches, fetched ahead", "hopfeed host baseline"
    pairs = [(rows, name) for name in dict.fromkeys(["torch fused", rival])]
    pairs += [(chunks, "memcpy"), ("hopfeed host chunk of 8000", "memcpy"), (rows, ahead), (rows, baseline), (chunks, baseline)]
    pairs += [(name, "DataLoader") for name in (rows, chunks, "hopfeed storage chunk of 1000")]
    for over, under in pairs:
        ratio(r, "bytes_per_second", over, under)


if __name__ == "__main__":
    main()
