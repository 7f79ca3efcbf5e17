"""Compares epoch times that `hopfeed train` predicts with epoch times that it measures, from each placement in turn.

    python tools/bench/predictions.py ./hopfeed WORK [--nodes 100000 --hidden 4 --batch 2000] [--emulate gpu=1,mem=1GiB,link=400MiB/s]

SIGN of 2 layers trains three epochs, validation included, on an R-MAT graph of 100 features and 3 hops; 60 % of its
nodes train, 20 % validate. Prints a JSON object a run, then a table of the medians and of the median of the ratios
of the larger to the smaller. Needs nothing but Python, and 2 GB of disk in WORK at most.
"""

import argparse
import json
import pathlib
import statistics
import subprocess

WAYS = [("device", "rr"), ("device", "chunk"), ("host", "rr"), ("host", "chunk"), ("storage", "chunk")]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("hopfeed", type=pathlib.Path)
    p.add_argument("work", type=pathlib.Path)
    p.add_argument("--rounds", type=int, default=4)
    p.add_argument("--nodes", type=int, default=100_000)
    p.add_argument("--hidden", type=int, default=4)
    p.add_argument("--batch", type=int, default=2000)
    p.add_argument("--emulate")
    o = p.parse_args()
    hopfeed, work = o.hopfeed.resolve(), o.work.resolve() / "predictions"
    work.mkdir(parents=True, exist_ok=True)
    graph, store = work / f"graph-{o.nodes}", work / f"store-{o.nodes}"

    def run(*command):
        return subprocess.run([str(hopfeed), *map(str, command), "--quiet"], check=True, stdout=subprocess.PIPE, text=True).stdout

    if not store.exists():
        run("generate", "rmat", "-o", graph, "--nodes", o.nodes, "--edges", 8 * o.nodes, "--features", 100, "--classes", 20, "--labeled", 1, "--force")
        run("propagate", graph, "-o", store, "--hops", 3, "--operator", "sym")
    results = {way: [] for way in WAYS}
    for _ in range(o.rounds):
        for placement, shuffle in WAYS:
            r = json.loads(run("train", store, "--model", "sign", "--hidden", o.hidden, "--layers", 2, "--batch", o.batch, "--epochs", 3, "--lr", 0.001,
                               "--placement", placement, "--shuffle", shuffle, "--json", *(["--emulate", o.emulate] if o.emulate else [])))
            pair = r["predicted_epoch_seconds"], r["epoch_seconds"]
            results[placement, shuffle].append(pair)
            print(json.dumps({"placement": placement, "shuffle": shuffle, "predicted": pair[0], "measured": pair[1]}), flush=True)
    print("| from | reshuffled | predicted | measured | ratio, median |\n| --- | --- | --- | --- | --- |")
    for (placement, shuffle), pairs in results.items():
        predicted, measured = (statistics.median(x) for x in zip(*pairs))
        ratio = statistics.median(max(a, b) / min(a, b) for a, b in pairs)
        print(f"| {placement} | {'rows' if shuffle == 'rr' else 'chunks'} | {predicted:.3g} s | {measured:.3g} s | {ratio:.2f} |")


if __name__ == "__main__":
    main()
