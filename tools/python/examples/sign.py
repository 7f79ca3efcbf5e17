"""SIGN (arXiv 2004.11198) in PyTorch, trained from a hop store.

    python sign.py STORE
    torchrun --standalone --nproc-per-node 2 sign.py STORE

With several processes, each gets a share of every batch. DistributedDataParallel averages gradients
over processes; the loss below is the sum over the share, times the number of processes, divided by the
rows of the whole batch, so that the average is the gradient of the batch, for any number of processes.
"""

import argparse
import os

import torch
from torch import distributed, nn
from torch.nn.functional import cross_entropy

import hopfeed.torch


class SIGN(nn.Module):
    """A linear layer for each matrix, then an MLP over their outputs side by side."""

    def __init__(self, matrices, features, classes, hidden=256, dropout=0.3):
        super().__init__()
        self.hops = nn.ModuleList(nn.Linear(features, hidden) for _ in range(matrices))
        self.mlp = nn.Sequential(
            nn.PReLU(), nn.Dropout(dropout), nn.Linear(matrices * hidden, hidden), nn.PReLU(), nn.Dropout(dropout), nn.Linear(hidden, classes)
        )

    def forward(self, x):  # [rows, matrices, features]
        return self.mlp(torch.cat([layer(x[:, m]) for m, layer in enumerate(self.hops)], dim=1))


def train(build):
    """Trains a model, and prints how good it is. build(matrices, features, classes) makes it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("store")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=8000)
    parser.add_argument("--shuffle", default="chunk")
    parser.add_argument("--placement", default="auto")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--resume", metavar="FILE", help="save to FILE after each epoch, and go on from it")
    o = parser.parse_args()
    ranks = int(os.environ.get("WORLD_SIZE", "1"))  # which torchrun sets
    if ranks > 1:
        distributed.init_process_group("gloo")
    first = ranks == 1 or distributed.get_rank() == 0

    torch.manual_seed(0)
    loader = hopfeed.torch.Loader(o.store, o.batch_size, o.shuffle, o.placement)
    data = loader.dataset
    model = build(len(loader.matrices), data.features, data.classes)
    optimizer = torch.optim.Adam(model.parameters(), o.lr)
    epoch = 0
    if o.resume and os.path.exists(o.resume):
        saved = torch.load(o.resume)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["loader"])
        epoch = saved["loader"]["epoch"]
    parallel = nn.parallel.DistributedDataParallel(model) if ranks > 1 else model

    for epoch in range(epoch, o.epochs):
        model.train()
        total = torch.zeros(1)
        for batch in loader:
            loss = cross_entropy(parallel(batch.x), batch.y, ignore_index=-1, reduction="sum") * ranks / batch.global_rows
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach() / ranks
        if ranks > 1:
            distributed.all_reduce(total)
        if first:
            print(f"epoch {epoch + 1}: loss {total.item() / len(loader):.4f}")
            if o.resume:
                torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "loader": loader.state_dict()}, o.resume)
    loader.close()
    if first:
        for split in ("valid", "test"):
            print(f"{split} accuracy {accuracy(model, o, split):.4f}")
    if ranks > 1:
        distributed.barrier()
        distributed.destroy_process_group()


@torch.no_grad()
def accuracy(model, o, split):
    model.eval()
    right = rows = 0
    for batch in hopfeed.torch.Loader(o.store, o.batch_size, shuffle=False, split=split, rank=0, world_size=1):
        right += (model(batch.x).argmax(dim=1) == batch.y).sum().item()
        rows += (batch.y >= 0).sum().item()
    return right / max(rows, 1)


if __name__ == "__main__":
    train(SIGN)
