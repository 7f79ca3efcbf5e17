"""sample_torch.py [--device cuda|cpu] [--nodes N] [--batches B]: mini-batches of a sampled graph by torch alone, on a GPU.

The graph has 25 edges a node, sources skewed like a power law, and 128 features; fanouts 15, 10, 5 (15 nearest the seeds),
1024 seeds a batch, drawn with replacement, as sample.py has them. Prints a JSON object for features in device memory
("resident") and for features that are gathered into pinned host memory and copied from there ("pinned"). The graph
is in device memory. Times end when the device is done.
"""
import argparse
import json
import time

import torch

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--device", default="cuda")
parser.add_argument("--nodes", type=int, default=1_000_000)
parser.add_argument("--degree", type=int, default=25)
parser.add_argument("--features", type=int, default=128)
parser.add_argument("--batches", type=int, default=50)
options = parser.parse_args()

FANOUTS, BATCH, WARM = (15, 10, 5), 1024, 3
device, n = options.device, options.nodes
cuda = device.startswith("cuda")
wait = torch.cuda.synchronize if cuda else lambda: None
torch.manual_seed(1)
# Degrees are skewed as sources are: a node's number of edges grows with the square of a random number.
degrees = (3 * options.degree * torch.rand(n, device=device) ** 2).long()
starts = torch.zeros(n + 1, dtype=torch.int64, device=device)
torch.cumsum(degrees, 0, out=starts[1:])
sources = torch.randperm(n, device=device)[(n * torch.rand(int(starts[-1]), device=device) ** 2).long()]
features = torch.rand(n, options.features)
resident = features.to(device)


def sample(nodes):
    """The blocks of a batch: its input nodes, and how many edges it has."""
    edges = 0
    for fanout in FANOUTS:
        places = (torch.rand(len(nodes), fanout, device=device) * degrees[nodes, None]).long()
        drawn = sources[(starts[nodes, None] + places)[degrees[nodes] > 0]].reshape(-1)
        # Local ids: seed nodes first would need a stable order, which torch.unique does not give; ids suffice here.
        nodes, ids = torch.unique(torch.cat([nodes, drawn]), return_inverse=True)
        edges += len(drawn)
    return nodes, edges


def run(gather):
    seeds = torch.randperm(n, device=device)[: (WARM + options.batches) * BATCH].split(BATCH)
    edges = inputs = 0
    for i, nodes in enumerate(seeds):
        if i == WARM:
            wait()
            began, edges, inputs = time.perf_counter(), 0, 0
        nodes, count = sample(nodes)
        gather(nodes)
        edges, inputs = edges + count, inputs + len(nodes)
    wait()
    seconds, batches = time.perf_counter() - began, len(seeds) - WARM
    return {"seeds_per_second": batches * BATCH / seconds, "edges_per_second": edges / seconds,
            "edges_per_batch": edges / batches, "nodes_per_batch": inputs / batches}


def from_host(nodes):
    rows = torch.empty(len(nodes), options.features, pin_memory=cuda)
    torch.index_select(features, 0, nodes.cpu(), out=rows)
    return rows.to(device, non_blocking=True)


for name, gather in (("resident", lambda nodes: resident.index_select(0, nodes)), ("pinned", from_host)):
    print(json.dumps({"name": f"torch {torch.__version__}, {name}", **{k: float(f"{v:.5g}") for k, v in run(gather).items()}}), flush=True)
