"""Processor time of an epoch of GraphSAGE: Lightning's DDP in two processes, and a plain loop of PyTorch in one.

    python tools/bench/peers/ddp.py GRAPH [--epochs 6] [--rounds 5] [--batch-size 1024]

GRAPH is a graph of Hopfeed with train nodes. Both get the same batches, of which each process of Lightning has half.
Prints user and system time of an epoch (the median, without the first) of all processes together, in seconds of the
rounds, and their ratio. Needs the wheel of tools/python, torch-geometric and lightning.
"""

import argparse
import json
import os
import pathlib
import statistics
import sys
import time

from rounds import measure, ratio, run

OPTIONS = {"subgraph_type": "directional", "num_neighbors": [15, 10]}


def loss_of(model, batch):
    import torch.nn.functional as F

    return F.cross_entropy(model(batch.x, batch.edge_index)[: batch.batch_size], batch.y)


def model_of(graph):
    from torch_geometric.nn import GraphSAGE

    return GraphSAGE(graph.features, 64, num_layers=2, out_channels=graph.classes, dropout=0.5)


def plain(o):
    """The processor time of each epoch of a loop of PyTorch."""
    import hopfeed.torch
    import torch

    loader = hopfeed.torch.NeighborLoader(o.graph, batch_size=o.batch_size, **OPTIONS)
    model = model_of(loader.dataset)
    optimizer, times = torch.optim.Adam(model.parameters(), lr=0.01), []
    for _ in range(o.epochs):
        begin = time.process_time()
        for batch in loader:
            optimizer.zero_grad()
            loss_of(model, batch).backward()
            optimizer.step()
        times.append(time.process_time() - begin)
    return times


def lightning(o):
    """The processor time of each epoch of Lightning, of both processes."""
    import hopfeed
    import hopfeed.lightning
    import lightning.pytorch as pl
    import torch

    times = []

    class Model(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = model_of(hopfeed.open(o.graph))

        def training_step(self, batch, index):
            return loss_of(self.model, batch)

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), lr=0.01)

        def on_train_epoch_start(self):
            self.begin = time.process_time()

        def on_train_epoch_end(self):
            spent = torch.tensor(time.process_time() - self.begin)
            torch.distributed.all_reduce(spent)
            times.append(spent.item())

    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    trainer = pl.Trainer(strategy="ddp", accelerator="cpu", devices=2, max_epochs=o.epochs, **quiet)
    trainer.fit(Model(), hopfeed.lightning.DataModule(o.graph, batch_size=o.batch_size, **OPTIONS))
    return times if trainer.is_global_zero else []


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("graph", metavar="GRAPH")
    p.add_argument("--epochs", type=int, default=6)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--batch-size", type=int, default=1024)
    p.add_argument("--only", choices=("plain", "lightning"), help="run one of them, once")
    o = p.parse_args()
    if o.only:
        times = {"plain": plain, "lightning": lightning}[o.only](o)
        if times:
            print(json.dumps({"epoch_cpu": statistics.median(times[1:] or times)}))
        return
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}

    def side(kind):
        command = (sys.executable, "-W", "ignore", pathlib.Path(__file__).resolve(), o.graph, "--only", kind, "--epochs", o.epochs, "--batch-size", o.batch_size)
        return lambda: {kind: run(*command, env=environment)[-1]}

    ratio(measure(o.rounds, side("plain"), side("lightning")), "epoch_cpu", "lightning", "plain")


if __name__ == "__main__":
    main()
