"""hopfeed.torch.NeighborLoader of a typed graph, for models of PyTorch Geometric."""

import os
import tempfile
import unittest

import numpy as np

import test_typed
import test_typed_memory

try:
    import torch

    import hopfeed.torch
except ImportError:
    raise unittest.SkipTest("PyTorch is not installed") from None
try:
    from torch_geometric import nn
    from torch_geometric.data import HeteroData
except ImportError:
    raise unittest.SkipTest("PyTorch Geometric is not installed") from None


class TestTypedBatches(unittest.TestCase):
    def test_layers_of_relations_compute_what_they_do_of_the_whole_graph(self):
        with tempfile.TemporaryDirectory() as folder:
            arrays, graph = (os.path.join(folder, name) for name in ("arrays", "graph"))
            x, edges, labels, splits = test_typed.write_arrays(arrays)
            x["venue"] = np.ones((test_typed.NODES["venue"], 1), np.float32)
            hopfeed.import_npy(arrays, graph, missing_features="ones", directed=True, progress=False)
            whole = HeteroData()
            for name, rows in x.items():
                whole[name].x = torch.from_numpy(rows)
            for (source, destination), edge_index in edges.items():
                whole[source, "to", destination].edge_index = torch.from_numpy(edge_index)
            torch.manual_seed(1)
            layers = [nn.HeteroConv({e: nn.SAGEConv((-1, -1), 4) for e in whole.edge_types}, aggr="sum") for _ in range(2)]

            def one_graph(data):
                h = data.x_dict
                for layer in layers:
                    h = {**h, **layer(h, data.edge_index_dict)}  # authors have no in-neighbours
                return h["paper"]

            def blocks(batch):
                h = batch.x_dict
                for layer, block in zip(layers, batch.blocks):
                    ends = {e: b.destinations for e, b in block.items()}
                    own = {e[2]: h[e[2]][: ends[e]] for e in block}
                    new = {}
                    for e, b in block.items():
                        y = layer.convs[e]((h[e[0]], own[e[2]]), b.edge_index())
                        new[e[2]] = new[e[2]] + y if e[2] in new else y
                    h = {**h, **new}
                return h["paper"]

            with torch.no_grad():
                expected = one_graph(whole)
                for subgraph_type, model in (("directional", lambda b: one_graph(b.to_pyg())), (None, blocks)):
                    seeds = []
                    for batch in hopfeed.torch.NeighborLoader(graph, [-1, -1], batch_size=16, subgraph_type=subgraph_type):
                        torch.testing.assert_close(model(batch)[: batch.batch_size], expected[batch.seed_id])
                        seeds += batch.seed_id.tolist()
                        if subgraph_type:
                            data = batch.to_pyg()
                            self.assertTrue(data.validate())
                            self.assertEqual(data["paper"].batch_size, len(data["paper"].y))
                    self.assertEqual(sorted(seeds), np.flatnonzero(splits == 0).tolist())
            del whole["venue"].x
            whole["venue"].num_nodes, whole["paper"].y = test_typed.NODES["venue"], torch.from_numpy(labels)
            for mask, values in test_typed_memory.masks(splits).items():
                whole["paper"][mask] = torch.from_numpy(values)
            hopfeed.from_pyg(whole, graph + "-pyg", name="toy", missing_features="ones", directed=True, progress=False)
            test_typed_memory.same_files(self, graph + "-pyg", graph)

    def test_layers_read_the_weights_of_relations(self):
        with tempfile.TemporaryDirectory() as folder:
            arrays, graph = (os.path.join(folder, name) for name in ("arrays", "graph"))
            x, edges, _, _ = test_typed.write_arrays(arrays)
            weights = np.random.default_rng(1).random(edges["author", "paper"].shape[1], dtype=np.float32)
            np.save(os.path.join(arrays, "edges", "author__paper", "edge_weight.npy"), weights)
            hopfeed.import_npy(arrays, graph, missing_features="ones", directed=True, progress=False)
            whole = HeteroData()
            for name, rows in (x | {"venue": np.ones((test_typed.NODES["venue"], 1), np.float32)}).items():
                whole[name].x = torch.from_numpy(rows)
            for (source, destination), edge_index in edges.items():
                whole[source, "to", destination].edge_index = torch.from_numpy(edge_index)
            whole["author", "to", "paper"].edge_weight = torch.from_numpy(weights)
            torch.manual_seed(1)
            layer = nn.HeteroConv({e: nn.GraphConv((-1, -1), 4) for e in whole.edge_types}, aggr="sum")

            def model(data):
                return layer(data.x_dict, data.edge_index_dict, edge_weight_dict=data.edge_weight_dict)["paper"]

            with torch.no_grad():
                expected = model(whole)
                for batch in hopfeed.torch.NeighborLoader(graph, [-1], batch_size=16, subgraph_type="directional"):
                    torch.testing.assert_close(model(batch.to_pyg())[: batch.batch_size], expected[batch.seed_id])

    def test_layers_read_the_columns_of_relations(self):
        with tempfile.TemporaryDirectory() as folder:
            x, edges, labels, splits = test_typed.write_arrays(os.path.join(folder, "arrays"))
            whole = HeteroData()
            for name in test_typed.NODES:
                whole[name].x = torch.from_numpy(x.get(name, np.ones((test_typed.NODES[name], 1), np.float32)))
            whole["paper"].y, whole["paper"].train_mask = torch.from_numpy(labels), torch.from_numpy(splits == 0)
            whole["paper"].year = torch.arange(len(labels))
            rng = np.random.default_rng(9)
            for (source, destination), edge_index in edges.items():
                whole[source, "to", destination].edge_index = torch.from_numpy(edge_index)
                whole[source, "to", destination].edge_attr = torch.from_numpy(rng.random((edge_index.shape[1], 2), dtype=np.float32))
            graph = hopfeed.from_pyg(whole, os.path.join(folder, "graph"), directed=True, progress=False)
            torch.manual_seed(1)
            layer = nn.HeteroConv({e: nn.GATConv((-1, -1), 4, edge_dim=2, add_self_loops=False) for e in whole.edge_types}, aggr="sum")

            def model(data):
                return layer(data.x_dict, data.edge_index_dict, edge_attr_dict=data.edge_attr_dict)["paper"]

            with torch.no_grad():
                expected = model(whole)
                for batch in hopfeed.torch.NeighborLoader(
                    graph, [-1], batch_size=16, subgraph_type="directional", columns=["edge_attr", "year"]
                ):
                    data = batch.to_pyg()
                    self.assertTrue(data.validate())
                    torch.testing.assert_close(model(data)[: batch.batch_size], expected[batch.seed_id])
                    torch.testing.assert_close(data["paper"].year, data["paper"].n_id)


if __name__ == "__main__":
    unittest.main()
