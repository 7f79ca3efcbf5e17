"""Models on typed graphs (rgcn, sage) and on their stores beside PyTorch Geometric's HAN, HGT and GraphSAGE by relation.

    python tools/bench/peers/typed.py ./hopfeed WORK DATA/acm_typed DATA/dblp_typed [--runs 10] [--tune]
        [--models sgc sign sehgnn nars]

Each folder is in the typed npy layout. NARS reads hops of subsets of relations ("nars:metapaths": metapaths), our other
models metapaths. HAN and HGT have the sizes and optimizers of PyTorch Geometric's examples (han_imdb.py: 128 units, 8
heads, 200 epochs; hgt_dblp.py: 64 units, 2 heads, one layer, 100 epochs), HAN the metapaths of its paper, and stop by
the macro-F1 of validation nodes, as ours do. SAGE is to_hetero's sum over relations, two layers of 256 units. With
--tune, each has for each split the settings of its GRID with the best mean macro-F1 of validation nodes in two runs.
Prints for each split the test macro- and micro-F1 in percent, mean and standard deviation of the runs. Needs torch and
torch-geometric.
"""

import argparse
import itertools
import json
import pathlib
import statistics

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch_geometric import transforms
from torch_geometric.data import HeteroData
from torch_geometric.nn import HANConv, HeteroConv, HGTConv, Linear, SAGEConv

from rounds import run

# Through which types HAN goes from the target and back.
METAPATHS = {"acm": [["author"], ["subject"]], "dblp": [["paper"], ["paper", "conference", "paper"], ["paper", "term", "paper"]]}


def load(folder):
    meta = json.loads((folder / "meta.json").read_text())
    data = HeteroData()
    for kind, nodes in meta["node_types"].items():
        path = folder / "nodes" / kind
        if (path / "node_feat.npz").exists():
            x = sp.load_npz(path / "node_feat.npz").toarray()
        else:
            x = np.load(path / "node_feat.npy") if (path / "node_feat.npy").exists() else np.eye(nodes)
        data[kind].x = torch.tensor(x, dtype=torch.float32)
    target = folder / "nodes" / meta["target"]
    data[meta["target"]].y = torch.tensor(np.load(target / "node_label.npy"), dtype=torch.long)
    for source, destination, _ in meta["edge_types"]:
        edges = np.load(folder / "edges" / f"{source}__{destination}" / "edge_index.npy")
        data[source, "to", destination].edge_index = torch.tensor(edges, dtype=torch.long)
    return meta, transforms.ToUndirected()(data), np.load(target / "splits.npy")


class SparseProduct(torch.autograd.Function):
    """x w for a constant sparse x, given with its transpose: most features are zero, and their product is most of HGT."""

    @staticmethod
    def forward(ctx, w, x, transpose):
        ctx.transpose = transpose
        return x @ w

    @staticmethod
    def backward(ctx, gradient):
        return ctx.transpose @ gradient, None, None


class Projection(torch.nn.Module):
    """PyTorch Geometric's Linear on features, multiplied as sparse rows."""

    def __init__(self, x, width):
        super().__init__()
        self.linear = Linear(x.size(1), width)
        self.x, self.transpose = x.to_sparse_csr(), x.t().to_sparse_csr()

    def forward(self):
        return SparseProduct.apply(self.linear.weight.t(), self.x, self.transpose) + self.linear.bias


class DenseHANConv(HANConv):
    """HANConv that multiplies matrices where a metapath leads to so many nodes that a message an edge takes minutes."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.blocks = {}

    def blocks_of(self, edges, nodes):
        """The adjacency of a metapath as blocks of rows, columns and which of both are neighbours (None: all): rows with
        the same neighbours share one, or all nodes are one."""
        if id(edges) not in self.blocks:
            mask = torch.zeros(nodes, nodes, dtype=torch.bool)
            mask[edges[1], edges[0]] = True
            sets, of = torch.unique(mask, dim=0, return_inverse=True)
            if 16 * len(sets) < nodes:
                blocks = [((of == k).nonzero().ravel(), sets[k].nonzero().ravel(), None) for k in range(len(sets)) if sets[k].any()]
            else:
                blocks = [(torch.arange(nodes), torch.arange(nodes), mask)]
            self.blocks[id(edges)] = blocks
        return self.blocks[id(edges)]

    def propagate(self, edges, x, alpha):
        nodes = len(x[0])
        if 16 * edges.size(1) < nodes * nodes:
            return super().propagate(edges, x=x, alpha=alpha)
        out = x[0].new_zeros(nodes, self.heads, x[0].size(2))
        for rows, columns, mask in self.blocks_of(edges, nodes):
            scores = alpha[0][columns].t()[:, None, :] + alpha[1][rows].t()[:, :, None]
            scores = F.leaky_relu(scores, self.negative_slope)
            if mask is not None:
                scores = scores.masked_fill(~mask, -1e30)
            weights = F.softmax(scores, dim=2)
            if mask is not None:
                weights = weights * mask.any(1)[:, None]
            weights = F.dropout(weights, self.dropout, self.training)
            out = out.index_copy(0, rows, (weights @ x[0][columns].transpose(0, 1)).transpose(0, 1))
        return out.reshape(nodes, self.out_channels)


class HAN(torch.nn.Module):
    epochs, patience, settings = 200, 100, {"hidden": 128, "heads": 8, "dropout": 0.6, "lr": 0.005, "weight_decay": 0.001}

    def __init__(self, data, target, classes, hidden, heads, dropout):
        super().__init__()
        self.target = target
        self.conv = DenseHANConv({target: data[target].num_features}, hidden, data.metadata(), heads=heads, dropout=dropout)
        self.out = torch.nn.Linear(hidden, classes)

    def forward(self, x, edges):
        return self.out(self.conv({self.target: x[self.target]}, edges)[self.target])


class HGT(torch.nn.Module):
    epochs, patience, settings = 100, 100, {"hidden": 64, "heads": 2, "layers": 1, "lr": 0.005, "weight_decay": 0.001}

    def __init__(self, data, target, classes, hidden, heads, layers):
        super().__init__()
        self.target = target
        self.inputs = torch.nn.ModuleDict({kind: Projection(x, hidden) for kind, x in data.x_dict.items()})
        self.convs = torch.nn.ModuleList(HGTConv(hidden, hidden, data.metadata(), heads) for _ in range(layers))
        self.out = Linear(hidden, classes)

    def forward(self, x, edges):
        h = {kind: project().relu() for kind, project in self.inputs.items()}
        for conv in self.convs:
            h = conv(h, edges)
        return self.out(h[self.target])


class SAGE(torch.nn.Module):
    epochs, patience, settings = 200, 50, {"hidden": 256, "layers": 2, "dropout": 0.5, "lr": 0.003, "weight_decay": 0.001}

    def __init__(self, data, target, classes, hidden, layers, dropout):
        super().__init__()
        self.target, self.dropout = target, dropout
        width = {kind: x.size(1) for kind, x in data.x_dict.items()}
        self.convs = torch.nn.ModuleList()
        for _ in range(layers):
            self.convs.append(HeteroConv({edge: SAGEConv((width[edge[0]], width[edge[2]]), hidden) for edge in data.edge_types}, aggr="sum"))
            width = dict.fromkeys(width, hidden)
        self.out = Linear(hidden, classes)

    def forward(self, x, edges):
        for conv in self.convs:
            x = {kind: F.dropout(h.relu(), self.dropout, self.training) for kind, h in conv(x, edges).items()}
        return self.out(x[self.target])


def scores(predicted, labels, classes):
    """Macro- and micro-F1 of one label a row."""
    each = []
    for c in range(classes):
        both = ((predicted == c) & (labels == c)).sum().item()
        each.append(2 * both / max(1, (predicted == c).sum().item() + (labels == c).sum().item()))
    return statistics.mean(each), (predicted == labels).float().mean().item()


def theirs(kind, data, target, classes, split, seed, **changed):
    """Test scores of the epoch with the best macro-F1 of validation nodes, and that macro-F1."""
    torch.manual_seed(seed)
    settings = {**kind.settings, **changed}
    lr, weight_decay = settings.pop("lr"), settings.pop("weight_decay")
    model, y = kind(data, target, classes, **settings), data[target].y
    rows = [torch.tensor(np.flatnonzero(split == part)) for part in range(3)]
    best, since, result = -1.0, 0, None
    optimizer = torch.optim.Adam(model.parameters(), lr=lr, weight_decay=weight_decay)
    for _ in range(kind.epochs):
        model.train()
        out = model(data.x_dict, data.edge_index_dict)
        predicted = out
        if "dropout" in settings:  # without it, outputs of training are those of evaluation
            model.eval()
            with torch.no_grad():
                predicted = model(data.x_dict, data.edge_index_dict)
        predicted = predicted.argmax(1)
        optimizer.zero_grad()
        F.cross_entropy(out[rows[0]], y[rows[0]]).backward()
        optimizer.step()
        valid = scores(predicted[rows[1]], y[rows[1]], classes)[0]
        since += 1
        if valid > best:
            best, since, result = valid, 0, scores(predicted[rows[2]], y[rows[2]], classes)
        if since >= kind.patience:
            break
    return *result, best


GRID = {"lr": [0.001, 0.005, 0.02], "weight_decay": [0, 0.001, 0.01]}


def tuned(kind, *training):
    """The settings of GRID with the best mean macro-F1 of validation nodes in two runs."""
    grid = [dict(zip(GRID, values)) for values in itertools.product(*GRID.values())]
    return max(grid, key=lambda changed: sum(theirs(kind, *training, seed, **changed)[2] for seed in (100, 101)))


def report(dataset, split, name, *figures):
    """Prints mean and deviation of macro- and micro-F1."""
    parts = [f"{metric} {100 * mean:.2f} ± {100 * deviation:.2f}" for metric, (mean, deviation) in
             zip(("macro-F1", "micro-F1"), figures)]
    print(f"{dataset}, split {split}, {name}: {', '.join(parts)}", flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("hopfeed", type=pathlib.Path)
    p.add_argument("work", type=pathlib.Path)
    p.add_argument("data", type=pathlib.Path, nargs="+")
    p.add_argument("--runs", type=int, default=10)
    p.add_argument("--hops", type=int, default=3)
    p.add_argument("--subsets", type=int, default=8, help="of relations, at most")
    p.add_argument("--models", nargs="*", default=["sgc", "sign", "sehgnn", "nars"])
    p.add_argument("--peers", nargs="*", default=["HAN", "HGT"])
    p.add_argument("--tune", action="store_true")
    a = p.parse_args()

    def hopfeed(*command):
        return run(a.hopfeed.resolve(), *command, "--quiet", "--json")[0]

    for folder in a.data:
        meta, data, splits = load(folder)
        target, name = meta["target"], meta["name"]
        graph, store, subsets = (a.work / f"{name}-{kind}" for kind in ("graph", "store", "subsets"))
        hopfeed("import", "npy", folder, "-o", graph, "--missing-features", "one-hot", "--force")
        hopfeed("propagate", graph, "-o", store, "--hops", a.hops, "--rows", "all", "--force")
        hopfeed("propagate", graph, "-o", subsets, "--hops", a.hops, "--relations-subsets", a.subsets, "--rows", "all", "--force")
        for split in range(len(splits)):
            for asked in a.models:
                model, _, metapaths = asked.partition(":")
                data_of = store if metapaths else {"nars": subsets, "rgcn": graph, "sage": graph}.get(model, store)
                found = [hopfeed("train", data_of, "--model", model, "--split", split, "--runs", a.runs, "--metric", metric)
                         for metric in ("macro-f1", "micro-f1")]
                report(name, split, asked, *((r["test_metric"], r["test_metric_std"]) for r in found))
            for peer in a.peers:
                graph_of = data
                if peer == "HAN":
                    paths = [[target, *through, target] for through in METAPATHS[name]]
                    graph_of = transforms.AddMetaPaths([list(zip(path, path[1:])) for path in paths], drop_orig_edge_types=True)(data)
                kind = {"HAN": HAN, "HGT": HGT, "SAGE": SAGE}[peer]
                training = kind, graph_of, target, meta["classes"], splits[split]
                changed = tuned(*training) if a.tune else {}
                results = [theirs(*training, seed, **changed)[:2] for seed in range(a.runs)]
                report(name, split, f"{peer} {changed or ''}".strip(), *((statistics.mean(f), statistics.pstdev(f)) for f in zip(*results)))


if __name__ == "__main__":
    main()
