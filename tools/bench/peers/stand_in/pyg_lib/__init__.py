"""The neighbour sampling of pyg-lib in numpy, for the accuracy of scripts where pyg-lib is not installed; it is slow.

A node's in-neighbours are drawn without replacement, each set of them with the same probability; nodes are numbered in
the order in which they are found, seeds first, and an edge points from a neighbour to the node it was drawn for.
"""

import types

import numpy as np
import torch


def neighbor_sample(
    colptr, row, seed, num_neighbors, node_time=None, edge_time=None, seed_time=None, edge_weight=None, csc=True,
    replace=False, directed=True, disjoint=False, temporal_strategy="uniform", return_edge_id=True,
):
    """Sources, destinations, nodes and edges of the graph around seeds, and how many nodes and edges each hop has added."""
    assert csc and directed and not replace and not disjoint and node_time is edge_time is edge_weight is None
    starts, sources, nodes = colptr.numpy(), row.numpy(), seed.numpy()
    rng = np.random.default_rng(torch.randint(2**31, (1,)).item())
    place = np.full(len(starts) - 1, -1)
    place[nodes] = np.arange(len(nodes))
    edges, destinations, begin = [], [], 0
    node_counts, edge_counts = [len(nodes)], []
    for most in num_neighbors:
        frontier = nodes[begin:]
        degrees = starts[frontier + 1] - starts[frontier]
        of = np.repeat(np.arange(begin, len(nodes)), degrees)
        first = np.concatenate([[0], np.cumsum(degrees)])
        edge = np.arange(len(of)) + np.repeat(starts[frontier] - first[:-1], degrees)
        if most >= 0:  # the edges of each node with the smallest random numbers
            order = np.lexsort((rng.random(len(of)), of))
            kept = order[np.arange(len(of)) - np.repeat(first[:-1], degrees) < most]
            of, edge = of[kept], edge[kept]
        found, at = np.unique(sources[edge], return_index=True)
        found = found[np.argsort(at)]
        new = found[place[found] < 0]
        place[new] = np.arange(len(nodes), len(nodes) + len(new))
        begin, nodes = len(nodes), np.concatenate([nodes, new])
        edges.append(edge)
        destinations.append(of)
        node_counts.append(len(new))
        edge_counts.append(len(edge))
    edge = np.concatenate(edges)
    return *map(torch.from_numpy, (place[sources[edge]], np.concatenate(destinations), nodes, edge)), node_counts, edge_counts


ops = types.SimpleNamespace()
sampler = types.SimpleNamespace(neighbor_sample=neighbor_sample)
torch.ops.pyg.neighbor_sample = neighbor_sample
