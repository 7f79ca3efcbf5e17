"""SIGN (arXiv 2004.11198) in PyTorch, trained from a hop store.

    python sign.py STORE
    torchrun --standalone --nproc-per-node 2 sign.py STORE
    export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1  # else restarted processes wait for each other for ever
    torchrun --nnodes 2 --nproc-per-node 4 --max-restarts 9 --rdzv-backend c10d --rdzv-endpoint HOST:29400 \\
        sign.py s3://BUCKET/STORE --placement storage --cache-dir DIR --resume FILE --save-every 100

With several processes, each gets a share of every batch. DistributedDataParallel averages gradients
over processes; the loss below is the sum over the share, times the number of processes, divided by the
rows of the whole batch, so that the average is the gradient of the batch, for any number of processes.

The last command runs on each of two machines. When a process dies, torchrun starts all again, and they
go on after the batch that any machine has saved last, with the batches that would have come then.
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
    parser.add_argument("--cache-dir", help="where a machine keeps what it reads from a bucket")
    parser.add_argument("--resume", metavar="FILE", help="save to FILE on each machine after each epoch, and go on from it")
    parser.add_argument("--save-every", type=int, metavar="BATCHES", help="save within epochs too")
    o = parser.parse_args()
    ranks = int(os.environ.get("WORLD_SIZE", "1"))  # which torchrun sets
    if ranks > 1:
        distributed.init_process_group("gloo")
    first = ranks == 1 or distributed.get_rank() == 0

    torch.manual_seed(0)
    loader = hopfeed.torch.Loader(o.store, o.batch_size, o.shuffle, o.placement, cache_dir=o.cache_dir)
    data = loader.dataset
    model = build(len(loader.matrices), data.features, data.classes)
    optimizer = torch.optim.Adam(model.parameters(), o.lr)
    parts = {"model": model, "optimizer": optimizer, "loader": loader}
    saved = newest(o.resume, ranks) if o.resume else None
    for name, state in (saved or {}).items():
        parts[name].load_state_dict(state)
    saves = o.resume and os.environ.get("LOCAL_RANK", "0") == "0"
    parallel = nn.parallel.DistributedDataParallel(model) if ranks > 1 else model

    for epoch in range(loader.state_dict()["epoch"], o.epochs):
        model.train()
        total = torch.zeros(2)  # the losses, and how many, of each process
        for batch in loader:
            loss = cross_entropy(parallel(batch.x), batch.y, ignore_index=-1, reduction="sum") * ranks / batch.global_rows
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += torch.stack([loss.detach(), torch.ones(())])
            done = batch.index + 1
            if saves and (done == len(loader) or o.save_every and done % o.save_every == 0):
                unfinished = f"{o.resume}.{os.getpid()}"  # a process may be killed while it writes
                torch.save({name: part.state_dict() for name, part in parts.items()}, unfinished)
                os.replace(unfinished, o.resume)
        if ranks > 1:
            distributed.all_reduce(total)
        if first:
            print(f"epoch {epoch + 1}: loss {total[0] / total[1]:.4f}")
    loader.close()
    if first:
        for split in ("valid", "test"):
            print(f"{split} accuracy {accuracy(model, o, split):.4f}")
    if ranks > 1:
        distributed.barrier()
        distributed.destroy_process_group()


def newest(file, ranks):
    """What was saved last, in the FILE of any machine; None: nothing was."""
    saved = torch.load(file) if os.path.exists(file) else None
    if ranks > 1:
        batches = [None] * ranks
        distributed.all_gather_object(batches, (saved["loader"]["epoch"], saved["loader"]["batch"]) if saved else (-1, 0))
        sent = [saved]
        distributed.broadcast_object_list(sent, src=batches.index(max(batches)))
        saved = sent[0]
    return saved


@torch.no_grad()
def accuracy(model, o, split):
    model.eval()
    right = rows = 0
    for batch in hopfeed.torch.Loader(o.store, o.batch_size, shuffle=False, split=split, rank=0, world_size=1, cache_dir=o.cache_dir):
        right += (model(batch.x).argmax(dim=1) == batch.y).sum().item()
        rows += (batch.y >= 0).sum().item()
    return right / max(rows, 1)


if __name__ == "__main__":
    train(SIGN)
