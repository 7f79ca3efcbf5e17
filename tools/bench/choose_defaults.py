#!/usr/bin/env python3
"""Try settings of training on many graphs, to choose defaults by validation.

  python tools/bench/choose_defaults.py HOPFEED DATA WORK search --model sgc --lr 0.1,0.3 --weight-decay 0.03/n,0.1/n [--seeds 2]
  python tools/bench/choose_defaults.py HOPFEED DATA WORK compare --model sgc [--seeds 5] [--before OLDER_HOPFEED]

HOPFEED is the program, DATA a folder of data sets (npy layout), WORK a folder where graphs and results are kept: what
is there already is not done again. Search trains with every combination of the settings given (any flags of train;
0.1/n is 0.1 by training rows), with seeds from 100 on, and prints how far the validation accuracy of each is from the
best on that graph by any of them, on average and at worst. Compare prints as a table the accuracy by the defaults of
the program, by those of another one, which may write another format, and by the setting that searches before found
best on that graph's validation rows, with seeds from 0 on. It needs numpy.

Graphs named few-... have 20 training rows of each class and 30 validation rows, by which epochs are chosen; of five
splits, a seed k has split k mod 5. So few validation rows say little of settings, and favour long trainings: settings
are judged by up to 2000 further rows of each split. The test rows of the data set itself are in none of them.
"""
import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys

import numpy as np


def edges_of(rng, label, degree, homophily):
    """Undirected edges; each end of a share homophily of them is of the class of the other."""
    n = len(label)
    m = int(n * degree / 2)
    by_class = [np.flatnonzero(label == c) for c in range(label.max() + 1)]
    src = rng.integers(0, n, m)
    within = rng.random(m) < homophily
    dst = rng.integers(0, n, m)
    for c, members in enumerate(by_class):
        at = np.flatnonzero(within & (label[src] == c))
        dst[at] = rng.choice(members, len(at))
    return np.stack([np.concatenate([src, dst]), np.concatenate([dst, src])]).astype(np.int64)


def split_of(rng, label, train, valid, test):
    """Train is rows of each class if it is above 1, or else a share of all rows, as valid and test are."""
    n = len(label)
    split = np.full(n, -1, np.int8)
    order = rng.permutation(n)
    if train > 1:
        first = np.concatenate([order[label[order] == c][: int(train)] for c in range(label.max() + 1)])
    else:
        first = order[: int(train * n)]
    split[first] = 0
    rest = order[split[order] != 0]
    valid, test = (int(k * n) if k < 1 else int(k) for k in (valid, test))
    split[rest[:valid]] = 1
    split[rest[valid : valid + test]] = 2
    return split[None]


def few_of(rng, label, shipped, count=20, valid=30, most=2000, splits=5):
    """Splits with so many training and validation rows of each class, and up to most others to judge by, as test rows.

    Rows that the data set itself tests on are in none.
    """
    allowed = label >= 0
    if shipped is not None and (shipped == 0).any():
        allowed &= shipped != 2
    all_splits = np.full((splits, len(label)), -1, np.int8)
    for split in all_splits:
        order = rng.permutation(np.flatnonzero(allowed))
        for c in range(label.max() + 1):
            of_class = order[label[order] == c]
            train = min(count, len(of_class) // 3)
            split[of_class[:train]] = 0
            split[of_class[train : train + min(valid, train * valid // count)]] = 1
        split[order[split[order] == -1][:most]] = 2
    return all_splits


def labels_of(rng, n, classes, skew):
    p = (1.0 + np.arange(classes)) ** -skew
    return rng.choice(classes, n, p=p / p.sum())


def words_of(rng, label, features, length, topical, spread=0):
    """Bags of words, 0 or 1: a share topical of a row's words comes from 5 % of the vocabulary, its class's own. Spread
    is the deviation of the logarithm of a row's expected length."""
    classes = label.max() + 1
    base = 1 / (10.0 + rng.permutation(features))
    base /= base.sum()
    x = np.zeros((len(label), features), np.float32)
    for c in range(classes):
        topic = base * (rng.random(features) < 0.05)
        p = (1 - topical) * base + topical * topic / topic.sum()
        rows = np.flatnonzero(label == c)
        for r, k in zip(rows, rng.poisson(np.minimum(length * (np.exp(spread * rng.normal(size=len(rows))) if spread else np.ones(len(rows))), features / 4))):
            x[r, rng.choice(features, k + 1, p=p)] = 1
    return x


def communities(n, features, classes, topics=4, length=30, topical=0.2, degree=4, homophily=0.8, within=0.6, skew=0.5, sparse=True, separation=1.5, tfidf=False):
    """A graph whose classes consist of topics: a share homophily of edges is within a class, of these a share within
    a topic; degrees are skewed. Features are words, or, if not sparse, Gaussian around means of topics. Few-label splits."""
    def make(rng):
        label = labels_of(rng, n, classes, skew)
        topic = label * topics + rng.choice(topics, n, p=rng.dirichlet(np.full(topics, 3.0)))
        degrees = rng.pareto(2.5, n) + 0.3
        m = int(n * degree / 2)
        src = rng.choice(n, m, p=degrees / degrees.sum())
        dst = rng.choice(n, m, p=degrees / degrees.sum())
        kind = rng.random(m)
        for part, which in (kind < homophily * within, topic), ((kind >= homophily * within) & (kind < homophily), label):
            for c in np.unique(which):
                members = np.flatnonzero(which == c)
                at = np.flatnonzero(part & (which[src] == c))
                dst[at] = rng.choice(members, len(at), p=degrees[members] / degrees[members].sum())
        edges = np.stack([np.concatenate([src, dst]), np.concatenate([dst, src])]).astype(np.int64)
        if sparse:
            x = (words_of(rng, topic, features, length, topical, 0.5) + words_of(rng, label, features, length, topical / 2, 0.5) > 0).astype(np.float32)
            if tfidf:
                x *= np.log(n / (1 + x.sum(0))) * rng.gamma(2, 0.5, x.shape)
                x = (x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-9)).astype(np.float32)
        else:
            x = (gaussian_of(rng, topic, features, separation / 2) + gaussian_of(rng, label, features, separation) / 2).astype(np.float32)
        return label, edges, x, few_of(rng, label, None)
    return make


def gaussian_of(rng, label, features, separation):
    means = rng.normal(size=(label.max() + 1, features)) * separation / np.sqrt(2 * features)
    return (means[label] + rng.normal(size=(len(label), features))).astype(np.float32)


def citation(n, features, classes, length=30, topical=0.2, degree=3, homophily=0.75, train=20, valid=500, test=1000, skew=0.5):
    def make(rng):
        label = labels_of(rng, n, classes, skew)
        return label, edges_of(rng, label, degree, homophily), words_of(rng, label, features, length, topical), split_of(rng, label, train, valid, test)
    return make


def dense(n, features, classes, separation=2.0, degree=8, homophily=0.6, train=0.6, valid=0.2, test=0.2, skew=0.0, change=lambda rng, x, label: x):
    def make(rng):
        label = labels_of(rng, n, classes, skew)
        x = change(rng, gaussian_of(rng, label, features, separation), label)
        return label, edges_of(rng, label, degree, homophily), x.astype(np.float32), split_of(rng, label, train, valid, test)
    return make


def counts(rng, x, label):
    """Raw counts in the thousands."""
    return rng.poisson(2000 * np.exp(0.3 * x))


def uneven(rng, x, label):
    """Columns of very different units, some constant."""
    x = x.copy()
    x[:, 0] = 1e4 * np.abs(x[:, 0])
    x[:, 1] = 2000 + 10 * x[:, 1]
    x[:, 2] = 1
    x[:, 3] = 0
    return x


def mixed(rng, x, label):
    """Each column in a unit of its own, of six decades."""
    return x * 10 ** rng.uniform(-3, 3, x.shape[1])


MADE = {
    "citation-3700": citation(3300, 3700, 6),
    "citation-500": citation(6000, 500, 3, length=50, topical=0.12, degree=4.5, homophily=0.8),
    "citation-noisy": citation(2500, 1500, 10, length=15, topical=0.15, homophily=0.65, train=5),
    "coauthor": citation(5000, 2000, 15, length=40, topical=0.12, degree=8, train=0.6, valid=0.2, test=0.2, skew=1),
    "embedded": dense(4000, 300, 10, separation=1.5, degree=20, train=0.05, valid=0.2, test=0.5, skew=0.7, change=lambda rng, x, label: 0.05 * x + 0.02),
    "arxiv": dense(16000, 128, 40, separation=2.0, degree=6, skew=1, change=lambda rng, x, label: 0.2 * x),
    "counts": dense(2000, 50, 5, train=0.1, change=counts),
    "tiny-units": dense(2000, 50, 5, train=0.1, change=lambda rng, x, label: 1e-6 * x),
    "uneven-units": dense(2000, 30, 5, change=uneven),
    "mixed-units": dense(2000, 50, 5, train=0.1, change=mixed),
    "two-features": dense(1000, 2, 3),
    "hundred-nodes": dense(100, 16, 2, separation=1.0),
    "many-classes": dense(6000, 64, 100, separation=4),
    "one-class": dense(300, 8, 1),
    "few-citation": communities(1500, 800, 6),
    "few-tfidf": communities(2000, 250, 3, length=40, topical=0.12, degree=4.5, tfidf=True),
    "few-sparse-graph": communities(1500, 400, 7, topical=0.2, degree=2.5, homophily=0.75),
    "few-copurchase": communities(2000, 300, 8, length=60, topical=0.05, degree=16, homophily=0.7, within=0.75, skew=1),
    "few-coauthor": communities(2000, 1000, 10, length=40, topical=0.1, degree=7, homophily=0.7, skew=0.8),
    "few-gaussian": communities(1500, 64, 6, degree=8, homophily=0.7, sparse=False),
    "few-noisy": communities(1500, 64, 5, degree=8, homophily=0.5, sparse=False, separation=1.2),
}

SHIPPED = {  # name: folder, flags of import
    "cora": ("cora", []),
    "cora-normalized": ("cora", ["--normalize-features"]),
    "photo": ("amazon_photo", []),
    "photo-normalized": ("amazon_photo", ["--normalize-features"]),
    "tolokers": ("tolokers", []),
    "csa8": ("gamora_csa8", []),  # without validation rows as shipped: split here
    "csa32": ("gamora_csa32", []),
    "csa64": ("gamora_csa64", []),
    "few-cora": ("cora", []),
    "few-cora-normalized": ("cora", ["--normalize-features"]),
    "few-photo": ("amazon_photo", []),
    "few-photo-normalized": ("amazon_photo", ["--normalize-features"]),
    "few-csa32": ("gamora_csa32", []),
}


def run(*args):
    p = subprocess.run([str(a) for a in args], capture_output=True, text=True)
    if p.returncode:
        sys.exit(f"{' '.join(map(str, args))}\n{p.stderr}")
    return p.stdout


class Bench:
    def __init__(self, hopfeed, data, work, results):
        self.hopfeed, self.data, self.work = hopfeed, data, work
        os.makedirs(work, exist_ok=True)
        self.path = os.path.join(work, results)
        self.known = {}
        if os.path.exists(self.path):
            for line in open(self.path):
                r = json.loads(line)
                self.known[r["key"]] = r

    def store(self, name):
        """The store of a graph, made at first use, and the flags of train that choose its rows."""
        at = lambda kind: os.path.join(self.work, name + "-" + kind)
        splits = os.path.join(self.work, name + "-splits.npy")
        if not os.path.exists(at("store")):
            flags, src = [], at("arrays")
            if name in SHIPPED:
                folder, flags = SHIPPED[name]
                src = os.path.join(self.data, folder)
                label = np.load(os.path.join(src, "node_label.npy")).reshape(-1)
                if name.startswith("few-"):
                    np.save(splits, few_of(np.random.default_rng(1), label, np.load(os.path.join(src, "splits.npy"))[0]))
                elif name.startswith("csa"):
                    np.save(splits, split_of(np.random.default_rng(1), label, 0.6, 0.2, 0.2))
            else:
                label, edges, x, split = MADE[name](np.random.default_rng(1))
                os.makedirs(src, exist_ok=True)
                for file, array in ("edge_index", edges), ("node_label", label.astype(np.int64)), ("node_feat", x), ("splits", split):
                    np.save(os.path.join(src, file + ".npy"), array)
            run(self.hopfeed, "import", "npy", src, "-o", at("graph"), "--quiet", *flags)
            hops = 4 if name.startswith("few-") else 2 if "c" == name[0] and "csa" not in name else 3
            run(self.hopfeed, "propagate", at("graph"), "-o", at("store"), "--hops", hops, "--quiet")
        return at("store"), (["--splits", splits] if os.path.exists(splits) else [])

    def train_rows(self, store, rows):
        if rows:
            return int((np.load(rows[1])[0] == 0).sum())
        return next(r["rows"] for r in json.loads(run(self.hopfeed, "inspect", store, "--json"))["regions"] if r["name"] == "train")

    def train(self, name, model, settings, seed):
        """One run, or what an earlier one like it gave. Settings are flags of train; 0.1/n is 0.1 by training rows."""
        key = " ".join([name, model, *settings, str(seed)])
        if key not in self.known:
            store, rows = self.store(name)
            flags = [str(float(s[:-2]) / self.train_rows(store, rows)) if s.endswith("/n") else s for s in settings]
            if name.startswith("few-"):
                rows = [*rows, "--split", seed % 5]
            if model in ("gcn", "sage", "gat"):
                store = store.removesuffix("store") + "graph"
            out = json.loads(run(self.hopfeed, "train", store, "--model", model, "--threads", 1, "--seed", seed, "--json", "--quiet", *rows, *flags))
            r = {"key": key, "graph": name, "model": model, "settings": " ".join(settings)}
            for k in "valid_metric", "test_metric", "best_epoch", "epochs", "seconds":
                r[k] = out[k]
            self.known[key] = r
            with open(self.path, "a") as f:
                f.write(json.dumps(r) + "\n")
        return self.known[key]


def judged(r):
    """What settings are chosen by."""
    return r["test_metric" if r["graph"].startswith("few-") else "valid_metric"]


def mean(values):
    return statistics.fmean(values)


def search(bench, o, graphs, axes):
    settings = [[v for pair in zip([a[0] for a in axes], c) for v in pair] for c in itertools.product(*[a[1] for a in axes])]
    found = {}
    for name in graphs:
        for s in settings:
            runs = [bench.train(name, o.model, s, 100 + k) for k in range(o.seeds)]
            found[name, " ".join(s)] = mean([judged(r) for r in runs])
    best = {name: max(v for (n, _), v in found.items() if n == name) for name in graphs}
    rows = []
    for s in map(" ".join, settings):
        short = {name: found[name, s] - best[name] for name in graphs}
        rows.append((mean(short.values()), min(short.values()), s, short))
    print("mean and worst distance from the best validation accuracy, points; then of each graph:", *graphs)
    for average, worst, s, short in sorted(rows, reverse=True)[: o.top]:
        print(f"{100 * average:7.2f} {100 * worst:7.2f}  {s:60s}", *[f"{100 * short[n]:6.1f}" for n in graphs])
    print("best:", *[f"{n} {100 * v:.1f}" for n, v in best.items()])


def compare(bench, o, graphs):
    """A row for each graph: of the defaults of --before, the defaults, and the best setting that was searched."""
    before = Bench(o.before, o.data, os.path.join(o.work, "before"), "results.jsonl") if o.before else None
    searched = {}
    for r in bench.known.values():
        if r["model"] == o.model and r["settings"] and int(r["key"].split()[-1]) >= 100:
            searched.setdefault(r["graph"], {}).setdefault(r["settings"], []).append(judged(r))
    text = lambda runs, k: "" if not runs else f"{100 * mean([r[k] for r in runs]):.1f} ± {100 * statistics.stdev([r[k] for r in runs]):.1f}"
    print("| graph | before | defaults | tuned by validation | valid: defaults | tuned | epochs after the best | tuned to |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for name in graphs:
        seeds = range(o.seeds)
        old = [before.train(name, o.model, [], k) for k in seeds] if before else []
        new = [bench.train(name, o.model, [], k) for k in seeds]
        tuned, setting = [], ""
        if name in searched:
            setting = max(searched[name], key=lambda s: mean(searched[name][s]))
            tuned = [bench.train(name, o.model, setting.split(), k) for k in seeds]
        after = max(r["epochs"] - r["best_epoch"] for r in new)
        cells = [name, text(old, "test_metric"), text(new, "test_metric"), text(tuned, "test_metric"), text(new, "valid_metric"), text(tuned, "valid_metric"), f"{after:.0f}", setting]
        print("| " + " | ".join(cells) + " |", flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for a in "hopfeed", "data", "work":
        p.add_argument(a)
    p.add_argument("what", choices=["search", "compare"])
    p.add_argument("--model", default="sgc")
    p.add_argument("--seeds", type=int, default=1)
    p.add_argument("--graphs", default="")
    p.add_argument("--top", type=int, default=15)
    p.add_argument("--results", default="results.jsonl")
    p.add_argument("--before")
    o, rest = p.parse_known_args()
    graphs = o.graphs.split(",") if o.graphs else [*SHIPPED, *MADE]
    bench = Bench(o.hopfeed, o.data, o.work, o.results)
    if o.what == "compare":
        compare(bench, o, graphs)
    else:
        search(bench, o, graphs, [(rest[i], rest[i + 1].split(",")) for i in range(0, len(rest), 2)])


main()
