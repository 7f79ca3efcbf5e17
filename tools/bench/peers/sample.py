"""Times `hopfeed sample` and the samplers of DGL and GraphBolt, in turn, on one graph, the same fanouts and threads.

    python tools/bench/peers/sample.py ./hopfeed WORK [--rounds 5] [--batches 50] [--threads 2]

Needs an environment of its own, since GraphBolt's libraries exist for torch 2.0 to 2.2 only:
pip install torch==2.2.1 "numpy<2" dgl==2.1.0 torchdata==0.7.1 pyyaml pandas pydantic. 2 GB of disk in WORK, 3 GB of memory.

The graph has 1M nodes and 25M edges, sources skewed like a power law; fanouts 15, 10, 5 (15 nearest the seeds), 1024
seeds a batch. Each program samples its own batches of distinct nodes. DGL and GraphBolt sample and relabel layer by
layer, threads within a batch; hopfeed samples a batch a thread, with weights of edges besides. Batches of one kind
are of about the same size: edges and nodes a batch are printed. A GraphBolt batch of LABOR has exactly
fanout edges a node, one of hopfeed fanout on average (as in the paper).
"""

import argparse
import json
import os
import pathlib
import sys
import time

from rounds import THREADS, measure, ratio, run

NODES, EDGES, FANOUTS, BATCH, WARM = 1_000_000, 25_000_000, (15, 10, 5), 1024, 3


def make_graph(hopfeed, work):
    import numpy as np

    if (work / "graph" / "manifest.json").exists() and (work / "indices.npy").exists():
        return
    arrays = work / "arrays"
    arrays.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    source = random.permutation(NODES)[(NODES * random.random(EDGES) ** 2).astype(np.int64)]
    key = np.unique((NODES * random.random(EDGES)).astype(np.int64) * NODES + source)
    target, source = key // NODES, key % NODES
    np.save(work / "indptr.npy", np.concatenate([[0], np.cumsum(np.bincount(target, minlength=NODES))]))
    np.save(work / "indices.npy", source)
    np.save(arrays / "edge_index.npy", np.stack([source, target]))
    np.save(arrays / "node_feat.npy", np.zeros((NODES, 1), np.float32))
    (arrays / "meta.json").write_text(json.dumps({"name": "skewed", "directed": True}))
    run(hopfeed, "import", "npy", arrays, "-o", work / "graph", "--force", "--quiet")
    (arrays / "edge_index.npy").unlink()


def sample_as_peer(name, work, batches):
    """In a process of its own: what peer name does, as JSON."""
    import numpy as np
    import torch

    threads = int(os.environ["OMP_NUM_THREADS"])
    torch.set_num_threads(threads)
    indptr, indices = (torch.from_numpy(np.load(work / f"{k}.npy")) for k in ("indptr", "indices"))
    if name.startswith("graphbolt"):
        import dgl.graphbolt as gb
        from dgl.graphbolt.internal import unique_and_compact_csc_formats as compact

        graph = gb.fused_csc_sampling_graph(indptr, indices)
        draw = graph.sample_layer_neighbors if name.endswith("labor") else graph.sample_neighbors
        fanouts = [torch.LongTensor([k]) for k in FANOUTS]

        def sample(nodes):
            edges = 0
            for fanout in fanouts:
                drawn = draw(nodes, fanout, replace=False).sampled_csc
                edges += drawn.indices.numel()
                nodes, _ = compact(drawn, nodes)
            return edges, nodes.numel()
    else:
        import dgl

        graph = dgl.graph(("csc", (indptr, indices, torch.empty(0, dtype=torch.int64))), num_nodes=NODES).formats("csc")
        kind = dgl.dataloading.LaborSampler if name.endswith("labor") else dgl.dataloading.NeighborSampler
        sampler = kind(list(reversed(FANOUTS)))

        def sample(nodes):
            inputs, _, blocks = sampler.sample_blocks(graph, nodes)
            return sum(b.num_edges() for b in blocks), inputs.numel()

    seeds = torch.randperm(NODES)[: (WARM + batches) * BATCH].split(BATCH)
    for nodes in seeds[:WARM]:
        sample(nodes)
    start = time.perf_counter()
    counts = [sample(nodes) for nodes in seeds[WARM:]]
    seconds = time.perf_counter() - start
    edges, inputs = (sum(c) for c in zip(*counts))
    print(json.dumps({"edges_per_second": edges / seconds, "seeds_per_second": batches * BATCH / seconds,
                      "edges_per_batch": edges / batches, "nodes_per_batch": inputs / batches}))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("hopfeed", type=pathlib.Path)
    parser.add_argument("work", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batches", type=int, default=50)
    parser.add_argument("--threads", type=int, default=THREADS)
    parser.add_argument("--peer", help=argparse.SUPPRESS)
    o = parser.parse_args()
    if o.peer:
        return sample_as_peer(o.peer, o.work, o.batches)
    o.work.mkdir(parents=True, exist_ok=True)
    make_graph(o.hopfeed.resolve(), o.work)
    environment = os.environ | {"OMP_NUM_THREADS": str(o.threads), "MKL_NUM_THREADS": str(o.threads), "DGLBACKEND": "pytorch"}
    keys = ("edges_per_second", "seeds_per_second", "edges_per_batch", "nodes_per_batch")

    def ours(sampler):
        (r,) = run(o.hopfeed.resolve(), "sample", o.work / "graph", "--sampler", sampler, "--fanout", "15,10,5", "--batch", BATCH,
                   "--seeds", "all", "--max-batches", o.batches, "--threads", o.threads, "--json", "--quiet")
        return {"hopfeed " + sampler: {k: r[k] for k in keys}}

    def peer(name):
        (r,) = run(sys.executable, __file__, o.hopfeed, o.work, "--peer", name, "--batches", o.batches, env=environment)
        return {name: {k: r[k] for k in keys}}

    names = ("dgl neighbor", "graphbolt neighbor", "graphbolt labor", "dgl labor")
    results = measure(o.rounds, *[lambda s=s: ours(s) for s in ("neighbor", "labor", "labor-1")],
                      *[lambda n=n: peer(n) for n in names])
    for figure in ("edges_per_second", "seeds_per_second"):
        for ours_, theirs in (("neighbor", "dgl neighbor"), ("neighbor", "graphbolt neighbor"), ("labor", "graphbolt labor"), ("labor", "dgl labor")):
            ratio(results, figure, "hopfeed " + ours_, theirs)


if __name__ == "__main__":
    main()
