"""Times epochs of training by Hopfeed and by PyTorch, in turn: the same models, sizes, batches and optimizer.

    python tools/bench/peers/train.py ./hopfeed WORK [--models sgc sign hoga] [--rounds 3] [--device cuda]

Needs torch. 100 features, hops 0 to 3, 47 classes, batches of 8000 rows, Adam, dropout 0.5, float32.

- hopfeed: `train` from host memory, rows reshuffled, and from storage, chunks reshuffled.
- torch, fused: a random order, then one index_select a matrix and batch. torch, DataLoader: of a TensorDataset,
  two workers.

With --device cuda both train on a GPU (hopfeed must be built for it): hopfeed also from device memory; torch, fused, of
matrices in device memory, and torch, pinned, of rows that are gathered into pinned memory and copied from there. Times
end when the device is done. --tf32: both multiply in TF32.

Each trains an epoch before that does not count.

SGC is a linear layer on the last hop; SIGN a linear layer a hop, of 512, and two more; HOGA one layer of gated
attention with one head, of 256. Rates are training rows a second of the fastest of --epochs, of the DataLoader of
one; wait is the share of the time of training in which Hopfeed waits for its loader. Prints a JSON object a run, then
medians and ratios.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import sys
import time

from rounds import THREADS, measure, ratio, run

FEATURES, HOPS, CLASSES, BATCH = 100, 3, 47, 8000
ROWS = {"cpu": {"sgc": 100_000, "sign": 16_000, "hoga": 16_000}, "cuda": {"sgc": 400_000, "sign": 400_000, "hoga": 400_000}}
LOADED = 60_000  # rows of the DataLoader, at most
FLAGS = {
    "sgc": [],
    "sign": ["--hidden", 512, "--layers", 3, "--dropout", 0.5],
    "hoga": ["--hidden", 256, "--layers", 1, "--heads", 1, "--dropout", 0.5],
}


def make_store(hopfeed, store, rows):
    """A store with so many training rows, which are 60 % of all."""
    if store.exists():
        return
    graph = store.with_suffix(".graph")
    run(hopfeed, "generate", "rmat", "-o", graph, "--nodes", int(rows / 0.6), "--edges", rows, "--features", FEATURES, "--classes", CLASSES,
        "--labeled", 1, "--force", "--quiet")
    run(hopfeed, "propagate", graph, "-o", store, "--hops", HOPS, "--quiet")
    shutil.rmtree(graph)


def ours(hopfeed, store, model, epochs, threads, *flags):
    saved = store.with_suffix(".run")
    line, = run(hopfeed, "train", store, "--model", model, *FLAGS[model], "--batch", BATCH, "--lr", 0.001, "--weight-decay", 0,
                "--epochs", epochs + 1, "--patience", 0, "--eval-every", epochs + 1, "--threads", threads, "--run", saved, "--force",
                "--save-every", "1h", "--json", "--quiet", *flags)
    seconds = [json.loads(epoch)["train_seconds"] for epoch in (saved / "metrics.jsonl").read_text().splitlines()]
    stages = line["stage_seconds"]
    return {"rows_per_second": line["rows_per_second"] * statistics.median(seconds) / min(seconds[1:]),
            "wait": stages["load_wait"] / (stages["load_wait"] + stages["compute"])}


def torch_rates(name, rows, epochs, threads, device, tf32):
    """What a process of torch prints: rates of all loaders."""
    import torch
    from torch import nn
    from torch.nn import functional as F
    from torch.utils.data import DataLoader, TensorDataset

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = tf32

    class SGC(nn.Module):
        def __init__(self):
            super().__init__()
            self.out = nn.Linear(FEATURES, CLASSES)

        def forward(self, hops):
            return self.out(hops[-1])

    class SIGN(nn.Module):
        def __init__(self, hidden=512):
            super().__init__()
            self.first = nn.ModuleList([nn.Linear(FEATURES, hidden) for _ in range(HOPS + 1)])
            self.second = nn.Linear((HOPS + 1) * hidden, hidden)
            self.out = nn.Linear(hidden, CLASSES)

        def forward(self, hops):
            parts = [F.dropout(F.relu(layer(x)), 0.5, self.training) for layer, x in zip(self.first, hops)]
            return self.out(F.dropout(F.relu(self.second(torch.cat(parts, 1))), 0.5, self.training))

    class HOGA(nn.Module):
        def __init__(self, hidden=256):
            super().__init__()
            self.into = nn.Linear(FEATURES, hidden, bias=False)
            self.gate = nn.Linear(hidden, hidden, bias=False)
            self.attention = nn.MultiheadAttention(hidden, 1, batch_first=True)
            self.norm = nn.LayerNorm(hidden)
            self.score = nn.Linear(2 * hidden, 1)
            self.head, self.head_norm = nn.Linear(hidden, hidden), nn.BatchNorm1d(hidden)
            self.out = nn.Linear(hidden, CLASSES)

        def forward(self, hops):
            h = self.into(torch.stack(hops, 1))
            h = self.gate(h) * self.attention(h, h, h, need_weights=False)[0]
            h = F.dropout(F.relu(self.norm(h)), 0.5, self.training)
            own, others = h[:, :1], h[:, 1:]
            weights = self.score(torch.cat([own.expand_as(others), others], 2)).softmax(1)
            z = own.squeeze(1) + (weights * others).sum(1)
            return self.out(F.dropout(self.head_norm(F.relu(self.head(z))), 0.5, self.training))

    hops = [torch.randn(rows, FEATURES) for _ in range(HOPS + 1)]
    labels = torch.randint(CLASSES, (rows,))
    cuda = device == "cuda"
    wait = torch.cuda.synchronize if cuda else lambda: None
    model = {"sgc": SGC, "sign": SIGN, "hoga": HOGA}[name]().to(device)
    resident, resident_labels = [x.to(device) for x in hops], labels.to(device)
    adam = torch.optim.Adam(model.parameters(), 0.001)

    def fused():
        order = torch.randperm(rows, device=device)
        for at in range(0, rows, BATCH):
            chosen = order[at:at + BATCH]
            yield [x.index_select(0, chosen) for x in resident], resident_labels[chosen]

    def pinned():
        order = torch.randperm(rows)
        # Two sets of buffers, each free again when its copies are done.
        buffers = [[torch.empty(BATCH, FEATURES, pin_memory=True) for _ in hops] for _ in range(2)]
        copied = [torch.cuda.Event() for _ in buffers]
        for i, at in enumerate(range(0, rows, BATCH)):
            chosen = order[at:at + BATCH]
            copied[i % 2].synchronize()
            parts = [torch.index_select(x, 0, chosen, out=b[:len(chosen)]) for x, b in zip(hops, buffers[i % 2])]
            batch = [x.to(device, non_blocking=True) for x in parts]
            copied[i % 2].record()
            yield batch, labels[chosen].pin_memory().to(device, non_blocking=True)

    def loaded():
        few = TensorDataset(*[x[:LOADED] for x in hops], labels[:LOADED])
        for *batch, of in DataLoader(few, batch_size=BATCH, shuffle=True, num_workers=2, pin_memory=cuda):
            yield [x.to(device, non_blocking=True) for x in batch], of.to(device)

    def rate(batches, rows=rows):
        wait()
        began = time.perf_counter()
        for batch, of in batches():
            adam.zero_grad()
            F.cross_entropy(model(batch), of).backward()
            adam.step()
        wait()
        return rows / (time.perf_counter() - began)

    rate(fused)
    rates = {"torch fused": max(rate(fused) for _ in range(epochs))}
    if cuda:
        rates["torch pinned"] = max(rate(pinned) for _ in range(epochs))
    print(json.dumps({**rates, "torch DataLoader": rate(loaded, min(rows, LOADED))}))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("hopfeed", type=pathlib.Path)
    p.add_argument("work", type=pathlib.Path)
    p.add_argument("--models", nargs="+", choices=FLAGS, default=list(FLAGS))
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--threads", type=int, default=THREADS)
    p.add_argument("--device", choices=list(ROWS), default="cpu")
    p.add_argument("--tf32", action="store_true")
    p.add_argument("--torch", metavar="MODEL", help=argparse.SUPPRESS)  # what main runs in a process of its own
    o = p.parse_args()
    if o.torch:
        torch_rates(o.torch, ROWS[o.device][o.torch], o.epochs, o.threads, o.device, o.tf32)
        return
    tf32 = ["--tf32"] if o.tf32 else []
    hopfeed, work = o.hopfeed.resolve(), o.work.resolve() / "train"
    work.mkdir(parents=True, exist_ok=True)
    for model in o.models:
        rows = ROWS[o.device][model]
        store = work / f"{rows}"
        make_store(hopfeed, store, rows)

        def peers():
            rates, = run(sys.executable, __file__, hopfeed, work, "--torch", model, "--epochs", o.epochs, "--threads", o.threads,
                         "--device", o.device, *tf32, env={**os.environ, "OMP_NUM_THREADS": str(o.threads)})
            return {f"{model}, {name}": {"rows_per_second": rate} for name, rate in rates.items()}

        def builds():
            found = {}
            kinds = {"hopfeed": ["--placement", "host", "--shuffle", "rr"], "hopfeed storage": ["--placement", "storage"]}
            if o.device == "cuda":
                kinds["hopfeed device"] = ["--placement", "device"]
            for name, flags in kinds.items():
                found[f"{model}, {name}"] = ours(hopfeed, store, model, o.epochs, o.threads, *flags, *tf32)
            return found

        r = measure(o.rounds, peers, builds)
        for name in [name for name in r if "hopfeed" in name]:
            for peer in [name for name in r if "torch" in name]:
                ratio(r, "rows_per_second", name, peer)


if __name__ == "__main__":
    main()
