"""Times epochs of GraphSAGE by Hopfeed and by the loops of PyTorch Geometric and DGL, in turn: same model, fanouts, batches.

    python tools/bench/peers/sage.py ./hopfeed WORK [--peers pyg dgl] [--rounds 3] [--epochs 3]

The graph (sbm) has 300,000 nodes, 6M edges with reverses, 100 features and 32 classes; 60 % of the nodes train. Two
SAGEConv layers of 64 hidden units with dropout 0.5, fanouts 15 (nearest the seed nodes) and 10, batches of 1024, Adam
with rate 0.01: hopfeed trains the same architecture by --as-printed 1. Each program trains --epochs epochs after one
that does not count, and then computes the whole graph for the accuracy of the test nodes. Loops are those of the
projects' own examples: NeighborLoader, and NeighborSampler with DataLoader.

PyTorch Geometric's loader needs torch-sparse or pyg-lib beside it. All run in one environment, of Python 3.11:
pip install torch==2.2.1 "numpy<2" dgl==2.1.0 torchdata==0.7.1 pyyaml pandas pydantic setuptools wheel torch-geometric,
then pip install --no-build-isolation --no-deps torch-scatter==2.1.2 torch-sparse==0.6.18 (13 minutes). --peers chooses.
"""

import argparse
import json
import os
import pathlib
import statistics
import sys
import time

from rounds import THREADS, measure, ratio, run

NODES, EDGES, FEATURES, CLASSES = 300_000, 3_000_000, 100, 32
HIDDEN, DROPOUT, RATE, BATCH, FANOUTS = 64, 0.5, 0.01, 1024, (15, 10)


def make_graph(hopfeed, work, nodes, edges):
    if not (work / "arrays" / "meta.json").exists():
        run(hopfeed, "generate", "sbm", "-o", work / "graph", "--nodes", nodes, "--edges", edges, "--features", FEATURES, "--classes", CLASSES,
            "--labeled", 1, "--homophily", 0.5, "--separation", 2, "--force", "--quiet")
        run(hopfeed, "export", "npy", work / "graph", "-o", work / "arrays", "--force", "--quiet")


def ours(hopfeed, work, epochs, threads, seed):
    saved = work / "run"
    line, = run(hopfeed, "train", work / "graph", "--model", "sage", "--as-printed", 1, "--layers", len(FANOUTS), "--hidden", HIDDEN, "--dropout", DROPOUT,
                "--lr", RATE, "--weight-decay", 0, "--batch", BATCH, "--fanout", ",".join(map(str, FANOUTS)), "--epochs", epochs + 1, "--patience", 0,
                "--eval-every", epochs + 1, "--threads", threads, "--seed", seed, "--run", saved, "--force", "--save-every", "1h", "--json", "--quiet")
    seconds = [json.loads(epoch)["train_seconds"] for epoch in (saved / "metrics.jsonl").read_text().splitlines()]
    return {"hopfeed": {"epoch_seconds": statistics.median(seconds[1:]), "test_accuracy": line["test_metric"]}}


def arrays_of(work):
    """Features, edges, labels and parts (0 train, 1 valid, 2 test) as tensors."""
    import numpy as np
    import torch

    x = torch.from_numpy(np.load(work / "arrays" / "node_feat.npy"))
    edges, y, parts = (torch.from_numpy(np.load(work / "arrays" / f"{name}.npy").astype(np.int64)) for name in ("edge_index", "node_label", "splits"))
    return x, edges, y, parts.reshape(-1)


def timed(epochs, train):
    """Seconds of an epoch, behind one that does not count."""
    seconds = []
    for _ in range(epochs + 1):
        began = time.perf_counter()
        train()
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds[1:])


def pyg(work, epochs):
    """As examples/reddit.py of PyTorch Geometric trains, and infers layer by layer over all neighbours."""
    import torch
    import torch.nn.functional as F
    from torch_geometric.data import Data
    from torch_geometric.loader import NeighborLoader
    from torch_geometric.nn import SAGEConv

    x, edges, y, parts = arrays_of(work)
    data = Data(x=x, edge_index=edges, y=y)
    loader = NeighborLoader(data, input_nodes=parts == 0, num_neighbors=list(FANOUTS), batch_size=BATCH, shuffle=True)
    layers = torch.nn.ModuleList([SAGEConv(x.shape[1], HIDDEN), SAGEConv(HIDDEN, CLASSES)])
    adam = torch.optim.Adam(layers.parameters(), lr=RATE)

    def forward(x, edges, training):
        return layers[1](F.dropout(F.relu(layers[0](x, edges)), DROPOUT, training), edges)

    def train():
        for batch in loader:
            adam.zero_grad()
            seeds = slice(batch.batch_size)
            F.cross_entropy(forward(batch.x, batch.edge_index, True)[seeds], batch.y[seeds]).backward()
            adam.step()

    seconds = timed(epochs, train)
    with torch.no_grad():
        right = forward(x, edges, False).argmax(1) == y
    return seconds, right[parts == 2].float().mean().item()


def dgl(work, epochs):
    """As DGL's example node_classification.py trains."""
    import dgl
    import dgl.nn
    import torch
    import torch.nn.functional as F
    from dgl.dataloading import DataLoader, MultiLayerFullNeighborSampler, NeighborSampler

    x, edges, y, parts = arrays_of(work)
    graph = dgl.graph((edges[0], edges[1]), num_nodes=len(x))
    graph.ndata["feat"], graph.ndata["label"] = x, y
    graph = graph.formats("csc")
    chosen = [torch.nonzero(parts == k).reshape(-1) for k in range(3)]
    sampler = NeighborSampler(list(FANOUTS[::-1]), prefetch_node_feats=["feat"], prefetch_labels=["label"])
    loader = DataLoader(graph, chosen[0], sampler, batch_size=BATCH, shuffle=True, drop_last=False, num_workers=0)
    layers = torch.nn.ModuleList([dgl.nn.SAGEConv(x.shape[1], HIDDEN, "mean"), dgl.nn.SAGEConv(HIDDEN, CLASSES, "mean")])
    adam = torch.optim.Adam(layers.parameters(), lr=RATE)

    def forward(blocks, x, training):
        return layers[1](blocks[1], F.dropout(F.relu(layers[0](blocks[0], x)), DROPOUT, training))

    def train():
        for _, _, blocks in loader:
            loss = F.cross_entropy(forward(blocks, blocks[0].srcdata["feat"], True), blocks[-1].dstdata["label"])
            adam.zero_grad()
            loss.backward()
            adam.step()

    seconds, right = timed(epochs, train), 0
    with torch.no_grad():
        for inputs, nodes, blocks in DataLoader(graph, chosen[2], MultiLayerFullNeighborSampler(2), batch_size=4096):
            right += (forward(blocks, x[inputs], False).argmax(1) == y[nodes]).sum().item()
    return seconds, right / len(chosen[2])


PEERS = {"pyg": pyg, "dgl": dgl}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("hopfeed", type=pathlib.Path)
    p.add_argument("work", type=pathlib.Path)
    p.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS))
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--nodes", type=int, default=NODES)
    p.add_argument("--edges", type=int, default=EDGES, help="before reverses are added")
    p.add_argument("--threads", type=int, default=THREADS)
    p.add_argument("--peer", choices=PEERS, help=argparse.SUPPRESS)  # what main runs in a process of its own
    p.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    o = p.parse_args()
    hopfeed, work = o.hopfeed.resolve(), o.work.resolve() / f"sage-{o.nodes}"
    if o.peer:
        import torch

        torch.set_num_threads(o.threads)
        torch.manual_seed(o.seed)
        seconds, accuracy = PEERS[o.peer](work, o.epochs)
        print(json.dumps({"epoch_seconds": seconds, "test_accuracy": accuracy}))
        return
    work.mkdir(parents=True, exist_ok=True)
    make_graph(hopfeed, work, o.nodes, o.edges)
    seeds = {name: iter(range(1 << 30)) for name in ["hopfeed", *o.peers]}

    def rival(name):
        found, = run(sys.executable, __file__, hopfeed, o.work, "--peer", name, "--nodes", o.nodes, "--epochs", o.epochs, "--threads", o.threads,
                     "--seed", next(seeds[name]), env={**os.environ, "OMP_NUM_THREADS": str(o.threads)})
        return {name: found}

    results = measure(o.rounds, *(lambda name=name: rival(name) for name in o.peers), lambda: ours(hopfeed, work, o.epochs, o.threads, next(seeds["hopfeed"])))
    for name in o.peers:
        ratio(results, "epoch_seconds", name, "hopfeed")
        ratio(results, "test_accuracy", name, "hopfeed")


if __name__ == "__main__":
    main()
