#!/usr/bin/env python3
"""Trains a GCN on a graph of few labels and wide, sparse features, with hopfeed and with PyTorch Geometric.

    python tools/bench/peers/gcn.py HOPFEED WORK [--rounds N] [--epochs N] [--hidden N] [--model gcn|sage|gat] [--threads N]

The graph is made in WORK: of the shape of coauthor_physics of "Pitfalls of graph neural network evaluation" (34,493
nodes, 247,962 undirected edges, 8,415 words, 33 of them a node, 5 classes), with 20 training nodes a class, 30
validation nodes a class, and the rest to test. Edges join nodes of one class in 80 of 100 cases; of a node's words one in
10 is chosen for its class.

PyTorch Geometric trains its full-batch GCN of two layers: learning rate 0.01, weight decay 5e-4, dropout 0.5, features
as a dense matrix, as its data sets give them, and as torch.sparse rows, which its layers take too; after each epoch it
computes the whole graph to validate. Hopfeed trains with its defaults, but for the hidden units. Epochs of both have
training and validation in them. Needs numpy, torch and torch-geometric.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

import rounds

NODES, EDGES, WORDS, WORDS_A_NODE, CLASSES = 34493, 247962, 8415, 33, 5
TRAIN, VALID = 20, 30  # of each class


def make_graph(folder, seed=1):
    """Writes the graph in the layout that hopfeed import npy reads."""
    random = np.random.default_rng(seed)
    label = random.integers(0, CLASSES, NODES)
    order = np.argsort(label, kind="stable")
    first = np.searchsorted(label[order], np.arange(CLASSES + 1))
    pairs = np.zeros(0, np.int64)
    while len(pairs) < EDGES:
        u = random.integers(0, NODES, EDGES)
        own = order[first[label[u]] + (random.random(EDGES) * np.diff(first)[label[u]]).astype(np.int64)]
        v = np.where(random.random(EDGES) < 0.75, own, random.integers(0, NODES, EDGES))  # and a fifth of the others
        u, v = np.minimum(u, v), np.maximum(u, v)
        pairs = np.unique(np.concatenate([pairs, (u * NODES + v)[u != v]]))
    pairs = random.permutation(pairs)[:EDGES]
    u, v = pairs // NODES, pairs % NODES

    popularity = 1 / np.arange(1, WORDS + 1) ** 0.8
    count = random.poisson(WORDS_A_NODE, NODES).clip(1)
    node = np.repeat(np.arange(NODES), count)
    words = np.searchsorted(np.cumsum(popularity) / popularity.sum(), random.random(len(node)))
    topical = random.random(len(node)) < 0.1
    words[topical] = words[topical] // CLASSES * CLASSES + label[node[topical]]  # the words of a class are every fifth
    cells = np.unique(node * WORDS + words.clip(0, WORDS - 1))
    node, words = cells // WORDS, cells % WORDS

    split = np.full((1, NODES), 2, np.int8)
    for c in range(CLASSES):
        chosen = random.permutation(order[first[c]:first[c + 1]])
        split[0, chosen[:TRAIN]], split[0, chosen[TRAIN:TRAIN + VALID]] = 0, 1
    folder.mkdir(parents=True)
    np.save(folder / "edge_index.npy", np.stack([np.concatenate([u, v]), np.concatenate([v, u])]))
    np.savez(folder / "node_feat.npz", format=b"csr", shape=np.array([NODES, WORDS]), data=np.ones(len(words), np.float32),
             indices=words.astype(np.int32), indptr=np.searchsorted(node, np.arange(NODES + 1)).astype(np.int32))
    np.save(folder / "node_label.npy", label)
    np.save(folder / "splits.npy", split)
    (folder / "meta.json").write_text(json.dumps({"directed": True, "num_nodes": NODES, "num_features": WORDS, "num_classes": CLASSES}))


class Torch:
    """A full-batch model of PyTorch Geometric."""

    def __init__(self, arrays, model, hidden, threads):
        import torch
        from torch_geometric.nn import GATConv, GCNConv, SAGEConv

        torch.set_num_threads(threads)
        self.torch, self.hidden = torch, hidden
        self.convolution = {"gcn": GCNConv, "sage": SAGEConv, "gat": GATConv}[model]
        with np.load(arrays / "node_feat.npz") as f:
            sparse = torch.sparse_csr_tensor(torch.from_numpy(f["indptr"]).long(), torch.from_numpy(f["indices"]).long(),
                                             torch.from_numpy(f["data"]), tuple(f["shape"]))
        self.features = {"dense": sparse.to_dense(), "sparse": sparse}
        self.edges = torch.from_numpy(np.load(arrays / "edge_index.npy")).long()
        self.label = torch.from_numpy(np.load(arrays / "node_label.npy")).long()
        self.split = torch.from_numpy(np.load(arrays / "splits.npy")[0])

    def train(self, kind, epochs, seed):
        import time

        torch = self.torch
        functional = torch.nn.functional
        torch.manual_seed(seed)
        x = self.features[kind]
        layers = torch.nn.ModuleList([self.convolution(x.shape[1], self.hidden, **({"cached": True} if "cached" in self.convolution.__init__.__code__.co_varnames else {})),
                                      self.convolution(self.hidden, CLASSES)])
        optimizer = torch.optim.Adam(layers.parameters(), lr=0.01, weight_decay=5e-4)
        train, valid, test = (self.split == i for i in range(3))

        def forward(training):
            h = functional.dropout(functional.relu(layers[0](x, self.edges)), 0.5, training)
            return layers[1](h, self.edges)

        seconds, best, tested = [], -1, 0
        for _ in range(epochs):
            start = time.perf_counter()
            layers.train()
            optimizer.zero_grad()
            functional.cross_entropy(forward(True)[train], self.label[train]).backward()
            optimizer.step()
            layers.eval()
            with torch.no_grad():
                right = forward(False).argmax(1) == self.label
            found = right[valid].float().mean().item()
            seconds.append(time.perf_counter() - start)
            if found > best:
                best, tested = found, right[test].float().mean().item()
        return {"epoch_seconds": float(np.median(seconds)), "test_metric": tested}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("hopfeed", type=pathlib.Path)
    parser.add_argument("work", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--model", choices=["gcn", "sage", "gat"], default="gcn")
    parser.add_argument("--threads", type=int, default=rounds.THREADS)
    parser.add_argument("--features", nargs="*", choices=["dense", "sparse"], default=["dense", "sparse"], help="of PyTorch Geometric")
    o = parser.parse_args()
    arrays, graph = o.work / "few-labels", o.work / "few-labels-graph"
    if not arrays.exists():
        with tempfile.TemporaryDirectory(dir=o.work) as folder:
            make_graph(pathlib.Path(folder) / "made")
            (pathlib.Path(folder) / "made").rename(arrays)
    if not graph.exists():
        subprocess.run([o.hopfeed.resolve(), "--quiet", "import", "npy", arrays, "-o", graph], check=True)
    rival, seed = Torch(arrays, o.model, o.hidden, o.threads), iter(range(1, 1 << 30))

    def pyg(kind):
        return lambda: {f"PyG, {kind}": rival.train(kind, o.epochs, next(seed))}

    def hopfeed():
        result = rounds.run(o.hopfeed.resolve(), "--quiet", "--json", "--threads", o.threads, "--seed", next(seed), "train", graph, "--model", o.model,
                            "--hidden", o.hidden, "--epochs", o.epochs)[-1]
        return {"hopfeed": {k: result[k] for k in ("epoch_seconds", "test_metric")}}

    results = rounds.measure(o.rounds, *(pyg(kind) for kind in o.features), hopfeed)
    for kind in o.features:
        rounds.ratio(results, "epoch_seconds", f"PyG, {kind}", "hopfeed")


if __name__ == "__main__":
    sys.exit(main())
