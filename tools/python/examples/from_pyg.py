"""A graph of PyTorch Geometric becomes a hop store.

    python from_pyg.py FOLDER

FOLDER gets `graph` and `store`. The graph is made up here; any `Data` will do.
"""

import os
import sys

import torch
from torch_geometric.data import Data
from torch_geometric.utils import erdos_renyi_graph

import hopfeed

folder = sys.argv[1]
os.makedirs(folder, exist_ok=True)

torch.manual_seed(0)
nodes = 2000
part = torch.randint(0, 4, (nodes,))
data = Data(
    x=torch.randn(nodes, 16),
    edge_index=erdos_renyi_graph(nodes, 0.005),
    y=torch.randint(0, 5, (nodes,)),
    train_mask=part < 2,
    val_mask=part == 2,
    test_mask=part == 3,
)

graph = hopfeed.from_pyg(data, os.path.join(folder, "graph"), force=True)
hopfeed.propagate(graph, os.path.join(folder, "store"), hops=3, operator="sym", force=True)
print(hopfeed.Dataset(os.path.join(folder, "store")))
