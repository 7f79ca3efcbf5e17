"""Labels as features, and Correct and Smooth: test metrics with and without.

    python tools/bench/labels.py ./hopfeed WORK --data DATA/cora --normalize-features
    python tools/bench/labels.py ./hopfeed WORK --data DATA/tolokers --splits 10 --metric roc-auc
    python tools/bench/labels.py ./hopfeed WORK --data DATA/acm_typed --splits 3 --metric macro-f1 --models sehgnn

Trains each of --models on a store of --hops hops, and on one with labels of --label-hops hops, by each of --splits splits,
or with --runs seeds if there is one; predicts test rows as they are, and with --smooth autoscale and fixed, default
settings (of a typed graph along --smooth-metapaths); and prints mean and standard deviation of the test metric in percent. Needs nothing but Python.
"""

import argparse
import array
import ast
import csv
import json
import pathlib
import statistics
import subprocess


def read_labels(path):
    """A one-dimensional array of integers in numpy's format."""
    data = path.read_bytes()
    length = int.from_bytes(data[8:10], "little")
    header = ast.literal_eval(data[10:10 + length].decode())
    values = array.array({"<i8": "q", "<i4": "i", "<i2": "h", "|i1": "b"}[header["descr"]])
    values.frombytes(data[10 + length:])
    return values


def metric_of(rows, labels, name):
    """The metric of predictions, rows of a table with node_id."""
    if name == "accuracy":
        return statistics.mean(int(r["class"]) == labels[int(r["node_id"])] for r in rows)
    if name == "macro-f1":
        pairs = [(int(r["class"]), labels[int(r["node_id"])]) for r in rows]
        classes = {c for pair in pairs for c in pair}
        return statistics.mean(2 * pairs.count((c, c)) / sum((p == c) + (y == c) for p, y in pairs) for c in classes)
    scores = sorted((float(r["p_1"]) - float(r["p_0"]), labels[int(r["node_id"])]) for r in rows)
    above, positive, negatives, at = 0.0, sum(y for _, y in scores), 0, 0
    while at < len(scores):  # ROC AUC: the share of pairs in order; equals count half
        end = at
        while end < len(scores) and scores[end][0] == scores[at][0]:
            end += 1
        ones = sum(y for _, y in scores[at:end])
        above += ones * (negatives + (end - at - ones) / 2)
        negatives, at = negatives + end - at - ones, end
    return above / (positive * (len(scores) - positive))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("hopfeed", type=pathlib.Path)
    p.add_argument("work", type=pathlib.Path)
    p.add_argument("--data", type=pathlib.Path, required=True, help="a folder in the npy layout")
    p.add_argument("--normalize-features", action="store_true")
    p.add_argument("--models", nargs="+", default=["sgc", "sign"])
    p.add_argument("--hops", type=int, default=3)
    p.add_argument("--label-hops", type=int, default=2)
    p.add_argument("--splits", type=int, default=1)
    p.add_argument("--runs", type=int, default=10)
    p.add_argument("--metric", default="accuracy", choices=["accuracy", "macro-f1", "roc-auc"])
    p.add_argument("--smooth-metapaths", help="of a typed graph (default: the command's)")
    o = p.parse_args()
    hopfeed, folder = o.hopfeed.resolve(), o.work.resolve() / o.data.name
    folder.mkdir(parents=True, exist_ok=True)
    meta = o.data / "meta.json"
    target = json.loads(meta.read_text()).get("target") if meta.exists() else None
    labels = read_labels((o.data / "nodes" / target if target else o.data) / "node_label.npy")
    along = ["--smooth-metapaths", o.smooth_metapaths] if o.smooth_metapaths else []

    def run(*command):
        text = subprocess.run([str(hopfeed), *map(str, command), "--json", "--quiet"], check=True, stdout=subprocess.PIPE, text=True, cwd=folder).stdout
        return json.loads(text)

    def predicted(source, name, *flags):
        run("predict", "--checkpoint", name, source, "-o", "out.csv", "--force", "--rows", "test", *flags)
        with open(folder / "out.csv", newline="") as table:
            return metric_of(list(csv.DictReader(table)), labels, o.metric)

    if not (folder / "graph").exists():
        features = ["--missing-features", "one-hot"] if target else []
        run("import", "npy", o.data.resolve(), "-o", "graph", *features, *["--normalize-features"][:o.normalize_features])
    print(f"{o.data.name}, test {o.metric} in %\n\n| model | labels | as predicted | autoscale | fixed |\n|---|---|---|---|---|", flush=True)
    for model in o.models:
        for hops in (0, o.label_hops):
            found = {"plain": [], "autoscale": [], "fixed": []}
            for k in range(o.splits if o.splits > 1 else o.runs):
                split = k if o.splits > 1 else 0
                store, name = f"store-{hops}-{split}", f"run-{model}-{hops}-{k}"
                if not (folder / store).exists():
                    run("propagate", "graph", "-o", store, "--hops", o.hops, "--label-hops", hops, "--split", split)
                if not (folder / name).exists():
                    run("train", store, "--model", model, "--metric", o.metric, "--seed", k, "--run", name)
                found["plain"].append(predicted(store, name))
                for way in ("autoscale", "fixed"):
                    found[way].append(predicted("graph", name, "--smooth", way, "--split", split, *along))
            cells = [f"{100 * statistics.mean(v):.2f} ± {100 * statistics.stdev(v):.2f}" for v in found.values()]
            print(f"| {model} | {f'{hops} hops' if hops else 'none'} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
