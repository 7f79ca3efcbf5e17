"""Times `hopfeed sample` and the samplers of DGL and GraphBolt, in turn, on one graph, the same fanouts and threads.

    go test -c -o load.test ./loader/sampling
    python tools/bench/peers/sample.py ./hopfeed WORK --load ./load.test [--rounds 5] [--batches 50] [--threads 2]

With --load, batches get features too (float32): of the loader by BenchmarkLoad of loader/sampling, of DGL by
index_select, of GraphBolt by its DataLoader with fetch_feature. --prepare only makes the graph.

Needs an environment of its own, since GraphBolt's libraries exist for torch 2.0 to 2.2 only:
pip install torch==2.2.1 "numpy<2" dgl==2.1.0 torchdata==0.7.1 pyyaml pandas pydantic. 3 GB of disk in WORK, 4 GB of memory.

The graph has 1M nodes and 25M edges (--nodes, --edges) and 128 features (--features), sources skewed like a power law; fanouts 15, 10, 5 (15 nearest the seeds), 1024
seeds a batch. Each program samples its own batches of distinct nodes. DGL and GraphBolt sample and relabel layer by
layer, threads within a batch; hopfeed samples a batch a thread, with weights of edges besides. Batches of one kind
are of about the same size: edges and nodes a batch are printed. A GraphBolt batch of LABOR has exactly
fanout edges a node, one of hopfeed fanout on average (as in the paper).
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import time

from rounds import THREADS, measure, ratio, run

FANOUTS, BATCH, WARM = (15, 10, 5), 1024, 3


def make_graph(hopfeed, work, n, m, features):
    import numpy as np

    if (work / "graph" / "manifest.json").exists() and (work / "indices.npy").exists():
        return
    arrays = work / "arrays"
    arrays.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    source = random.permutation(n)[(n * random.random(m) ** 2).astype(np.int64)]
    key = np.unique((n * random.random(m)).astype(np.int64) * n + source)
    target, source = key // n, key % n
    np.save(work / "indptr.npy", np.concatenate([[0], np.cumsum(np.bincount(target, minlength=n))]))
    np.save(work / "indices.npy", source)
    np.save(arrays / "edge_index.npy", np.stack([source, target]))
    np.save(arrays / "node_feat.npy", random.random((n, features), np.float32))
    np.save(arrays / "node_label.npy", np.zeros(n, np.int32))
    (arrays / "meta.json").write_text(json.dumps({"name": "skewed", "directed": True}))
    run(hopfeed, "import", "npy", arrays, "-o", work / "graph", "--force", "--quiet")
    (arrays / "edge_index.npy").unlink()


def load_as_hopfeed(test, work, batches, threads):
    """What BenchmarkLoad says of batches with features."""
    text = subprocess.run([test.resolve(), "-test.run", "none", "-test.bench", "Load/features=host", "-test.benchtime", f"{batches}x",
                           "-test.cpu", str(threads)], check=True, stdout=subprocess.PIPE, text=True, cwd=work,
                          env=os.environ | {"HOPFEED_GRAPH": str((work / "graph").resolve()), "GOMAXPROCS": str(threads)}).stdout
    figure = lambda unit: float(re.search(r"([\d.e+]+) " + unit, text).group(1))
    return {"hopfeed with features": {"seeds_per_second": figure("seeds/s"), "edges_per_batch": figure("edges/batch"), "nodes_per_batch": figure("inputs/batch")}}


def sample_as_peer(name, work, batches):
    """In a process of its own: what peer name does, as JSON."""
    import numpy as np
    import torch

    threads = int(os.environ["OMP_NUM_THREADS"])
    torch.set_num_threads(threads)
    indptr, indices = (torch.from_numpy(np.load(work / f"{k}.npy")) for k in ("indptr", "indices"))
    n = indptr.numel() - 1
    seeds = torch.randperm(n)[: (WARM + batches) * BATCH]
    features = torch.from_numpy(np.load(work / "arrays" / "node_feat.npy")) if name.endswith("features") else None
    if name.startswith("graphbolt"):
        import dgl.graphbolt as gb
        from dgl.graphbolt.internal import unique_and_compact_csc_formats as compact

        graph = gb.fused_csc_sampling_graph(indptr, indices)
        if features is not None:
            return load_as_graphbolt(graph, seeds, features)
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

        graph = dgl.graph(("csc", (indptr, indices, torch.empty(0, dtype=torch.int64))), num_nodes=n).formats("csc")
        kind = dgl.dataloading.LaborSampler if name.endswith("labor") else dgl.dataloading.NeighborSampler
        sampler = kind(list(reversed(FANOUTS)))

        def sample(nodes):
            inputs, _, blocks = sampler.sample_blocks(graph, nodes)
            if features is not None:
                torch.index_select(features, 0, inputs)
            return sum(b.num_edges() for b in blocks), inputs.numel()

    seeds = seeds.split(BATCH)
    for nodes in seeds[:WARM]:
        sample(nodes)
    start = time.perf_counter()
    counts = [sample(nodes) for nodes in seeds[WARM:]]
    seconds = time.perf_counter() - start
    print_rates(seconds, counts)


def print_rates(seconds, counts):
    edges, inputs = (sum(c) for c in zip(*counts))
    print(json.dumps({"edges_per_second": edges / seconds, "seeds_per_second": len(counts) * BATCH / seconds,
                      "edges_per_batch": edges / len(counts), "nodes_per_batch": inputs / len(counts)}))


def load_as_graphbolt(graph, seeds, features):
    import dgl.graphbolt as gb

    store = gb.BasicFeatureStore({("node", None, "x"): gb.TorchBasedFeature(features)})
    pipe = gb.ItemSampler(gb.ItemSet(seeds, names="seed_nodes"), batch_size=BATCH)
    pipe = pipe.sample_neighbor(graph, list(reversed(FANOUTS))).fetch_feature(store, node_feature_keys=["x"])
    counts, start = [], 0
    for i, b in enumerate(gb.DataLoader(pipe, num_workers=0)):
        if i < WARM:
            start = time.perf_counter()
        else:
            counts.append((sum(s.sampled_csc.indices.numel() for s in b.sampled_subgraphs), b.input_nodes.numel()))
    print_rates(time.perf_counter() - start, counts)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("hopfeed", type=pathlib.Path)
    parser.add_argument("work", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batches", type=int, default=50)
    parser.add_argument("--threads", type=int, default=THREADS)
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--edges", type=int, default=25_000_000)
    parser.add_argument("--features", type=int, default=128)
    parser.add_argument("--load", type=pathlib.Path)
    parser.add_argument("--prepare", action="store_true")
    parser.add_argument("--peer", help=argparse.SUPPRESS)
    o = parser.parse_args()
    if o.peer:
        return sample_as_peer(o.peer, o.work, o.batches)
    o.work.mkdir(parents=True, exist_ok=True)
    make_graph(o.hopfeed.resolve(), o.work, o.nodes, o.edges, o.features)
    if o.prepare:
        return
    environment = os.environ | {"OMP_NUM_THREADS": str(o.threads), "MKL_NUM_THREADS": str(o.threads), "DGLBACKEND": "pytorch"}
    keys = ("edges_per_second", "seeds_per_second", "edges_per_batch", "nodes_per_batch")

    def ours(sampler):
        (r,) = run(o.hopfeed.resolve(), "sample", o.work / "graph", "--sampler", sampler, "--fanout", "15,10,5", "--batch", BATCH,
                   "--seeds", "all", "--max-batches", o.batches, "--threads", o.threads, "--json", "--quiet")
        return {"hopfeed " + sampler: {k: r[k] for k in keys}}

    def peer(name):
        (r,) = run(sys.executable, __file__, o.hopfeed, o.work, "--peer", name, "--batches", o.batches, env=environment)
        return {name: {k: r[k] for k in keys}}

    names = ["dgl neighbor", "graphbolt neighbor", "graphbolt labor", "dgl labor"]
    programs = [lambda s=s: ours(s) for s in ("neighbor", "labor", "labor-1")]
    if o.load:
        names += ["dgl neighbor with features", "graphbolt neighbor with features"]
        programs.append(lambda: load_as_hopfeed(o.load, o.work, o.batches, o.threads))
    results = measure(o.rounds, *programs, *[lambda n=n: peer(n) for n in names])
    for figure in ("edges_per_second", "seeds_per_second"):
        for ours_, theirs in (("neighbor", "dgl neighbor"), ("neighbor", "graphbolt neighbor"), ("labor", "graphbolt labor"), ("labor", "dgl labor")):
            ratio(results, figure, "hopfeed " + ours_, theirs)
    for theirs in names[4:]:
        ratio(results, "seeds_per_second", "hopfeed with features", theirs)


if __name__ == "__main__":
    main()
