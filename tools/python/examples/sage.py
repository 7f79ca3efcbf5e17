"""GraphSAGE (arXiv 1706.02216) in PyTorch, trained on batches that are sampled of a graph.

    python sage.py GRAPH
    torchrun --standalone --nproc-per-node 2 sage.py GRAPH

With several processes, each gets a share of the seeds of every batch; sign.py says how losses are summed.
"""

import argparse
import os

import torch
from torch import distributed, nn
from torch.nn.functional import cross_entropy, dropout

import hopfeed.torch


class SAGE(nn.Module):
    """Layers of a linear map of a node's own features and of the mean of its in-neighbours, then an MLP's last."""

    def __init__(self, features, classes, layers=2, hidden=64, dropout=0.3):
        super().__init__()
        widths = [features] + [hidden] * layers
        self.own = nn.ModuleList(nn.Linear(a, b) for a, b in zip(widths, widths[1:]))
        self.mean = nn.ModuleList(nn.Linear(a, b, bias=False) for a, b in zip(widths, widths[1:]))
        self.norm = nn.ModuleList(nn.LayerNorm(hidden) for _ in range(layers))
        self.out = nn.Linear(hidden, classes)
        self.dropout = dropout

    def forward(self, x, blocks):  # [inputs, features]; a block for each layer
        for block, own, mean, norm in zip(blocks, self.own, self.mean, self.norm):
            x = own(x[: block.destinations]) + mean(block.matrix() @ x)
            x = dropout(norm(x).relu(), self.dropout, self.training)
        return self.out(x)


@torch.no_grad()
def accuracy(model, loader):
    model.eval()
    right = rows = 0
    for batch in loader:
        right += (model(batch.x, batch.blocks).argmax(dim=1) == batch.y).sum().item()
        rows += (batch.y >= 0).sum().item()
    return right / max(rows, 1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("graph")
    parser.add_argument("--fanout", type=int, nargs="+", default=[15, 10], help="in-neighbours of each layer, the first nearest the seed nodes")
    parser.add_argument("--sampler", default="neighbor")
    parser.add_argument("--cache", help="of rows of features that are read from storage, such as lru:1GiB")
    parser.add_argument("--placement", default="auto")
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--eval-every", type=int, default=2)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--seed", type=int, default=0)
    o = parser.parse_args()
    ranks = int(os.environ.get("WORLD_SIZE", "1"))  # which torchrun sets
    if ranks > 1:
        distributed.init_process_group("gloo")
    first = ranks == 1 or distributed.get_rank() == 0

    torch.manual_seed(o.seed)
    loader = hopfeed.torch.NeighborLoader(
        o.graph, o.fanout, batch_size=o.batch_size, sampler=o.sampler, cache=o.cache, placement=o.placement, seed=o.seed
    )
    data = loader.dataset
    model = SAGE(data.features, data.classes, layers=len(o.fanout))
    parallel = nn.parallel.DistributedDataParallel(model) if ranks > 1 else model
    optimizer = torch.optim.AdamW(model.parameters(), o.lr, weight_decay=1e-3)
    if first:  # all in-neighbours of whom to predict
        valid, test = (
            hopfeed.torch.NeighborLoader(o.graph, [-1] * len(o.fanout), split, o.batch_size, shuffle=False, rank=0, world_size=1)
            for split in ("valid", "test")
        )

    best = (-1.0, 0.0, 0)  # of the validated epochs: accuracy on valid nodes, and on test nodes
    for epoch in range(o.epochs):
        model.train()
        for batch in loader:
            loss = cross_entropy(parallel(batch.x, batch.blocks), batch.y, ignore_index=-1, reduction="sum") * ranks / batch.global_rows
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if first and ((epoch + 1) % o.eval_every == 0 or epoch + 1 == o.epochs):
            found = accuracy(model, valid)
            if found > best[0]:
                best = (found, accuracy(model, test), epoch + 1)
            print(f"epoch {epoch + 1}: valid accuracy {found:.4f}", flush=True)
    loader.close()
    if first:
        print(f"test accuracy {best[1]:.4f}, of epoch {best[2]}, whose valid accuracy is {best[0]:.4f}")
    if ranks > 1:
        distributed.barrier()
        distributed.destroy_process_group()


if __name__ == "__main__":
    main()
