"""Subgraphs in models of PyTorch Geometric, and blocks as DGL takes them."""

import sys
import types
import unittest
from unittest import mock

import numpy as np

import hopfeed
from test_subgraph import WithEdges

try:
    import torch
    import torch_geometric
except ImportError:
    raise unittest.SkipTest("PyTorch Geometric is not installed")

import hopfeed.torch


class Models(WithEdges):
    def open(self, num_neighbors, nodes="train", **options):
        return hopfeed.torch.NeighborLoader(self.graph, num_neighbors, nodes, 64, **options)

    def test_a_model_of_pyg_computes_of_a_subgraph_what_it_does_of_the_whole_graph(self):
        torch.manual_seed(0)
        x, edges = torch.from_numpy(self.arrays["node_feat"]), torch.from_numpy(self.edges)
        for model in (torch_geometric.nn.GraphSAGE(x.shape[1], 8, 2, 3), torch_geometric.nn.GAT(x.shape[1], 8, 2, 3)):
            model.eval()
            whole = model(x, edges)
            for disjoint in (False, True):
                for batch in self.open([-1, -1], subgraph_type="directional", disjoint=disjoint):
                    data = batch.to_pyg()
                    self.assertTrue(data.validate())
                    self.assertEqual((data.num_nodes, data.batch_size), (len(batch.n_id), len(data.y)))
                    out = model(data.x, data.edge_index)[: data.batch_size]
                    torch.testing.assert_close(out, whole[data.n_id[: data.batch_size]], rtol=1e-5, atol=1e-5)

    def test_layers_of_pyg_compute_of_a_block_what_they_do_of_the_whole_graph(self):
        torch.manual_seed(0)
        x, edges = torch.from_numpy(self.arrays["node_feat"]), torch.from_numpy(self.edges)
        for layer in (torch_geometric.nn.SAGEConv(x.shape[1], 8), torch_geometric.nn.GraphConv(x.shape[1], 8)):
            whole = layer(x, edges)
            for batch in self.open([-1]):
                block, gradients = batch.blocks[0], []
                for adjacency in (block.adj_t(), block.edge_index()):
                    rows = batch.x.clone().requires_grad_()
                    out = layer((rows, rows[: block.destinations]), adjacency)
                    torch.testing.assert_close(out, whole[batch.n_id[: batch.batch_size]], rtol=1e-5, atol=1e-5)
                    out.square().sum().backward()
                    gradients.append(rows.grad)
                torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-4)

    def test_blocks_have_no_data(self):
        with self.assertRaisesRegex(hopfeed.OptionError, "subgraph_type"):
            next(iter(self.open([2]))).to_pyg()

    def test_a_block_becomes_one_of_dgl(self):
        class Made(dict):
            def __init__(self, *arguments, **counts):
                super().__init__(edata={})
                self.arguments, self.counts, self.edata, self.srcdata, self.dstdata = arguments, counts, {}, {}, {}

        dgl = types.SimpleNamespace(create_block=Made, EID="_ID")
        with mock.patch.dict(sys.modules, {"dgl": dgl}):
            for ids in (False, True):
                for block in next(iter(self.open([3, 2], edge_ids=ids))).to("cpu").blocks:
                    made = block.to_dgl()
                    ((kind, (indptr, indices, none)),) = made.arguments
                    self.assertEqual((kind, len(none), made.counts), ("csc", 0, {"num_src_nodes": block.sources, "num_dst_nodes": block.destinations}))
                    self.assertTrue(indptr is block.indptr and indices is block.indices and made.edata["weight"] is block.weights)
                    self.assertEqual("_ID" in made.edata, ids)
            for features in (True, False):
                plain = next(iter(self.open([3, 2], features=features)))
                inputs, seeds, blocks = next(iter(self.open([3, 2], features=features, transform=hopfeed.Batch.to_dgl)))
                self.assertTrue(torch.equal(inputs, plain.n_id) and torch.equal(seeds, plain.n_id[: plain.batch_size]))
                self.assertEqual(blocks[0].counts["num_src_nodes"], len(inputs))
                self.assertEqual(sorted(blocks[0].srcdata), ["feat"] * features)
                self.assertTrue(torch.equal(blocks[-1].dstdata["label"], plain.y) and (not features or torch.equal(blocks[0].srcdata["feat"], plain.x)))
        with self.assertRaisesRegex(hopfeed.OptionError, "without subgraph_type"):
            next(iter(self.open([2], subgraph_type="directional"))).to_dgl()

    def test_links_of_a_batch_are_learnt(self):
        torch.manual_seed(0)
        n = len(self.arrays["node_feat"])
        model = torch_geometric.nn.GraphSAGE(16, 32, 2, 16)
        table = torch.nn.Embedding(n, 16)
        optimizer = torch.optim.Adam([*model.parameters(), *table.parameters()], 0.02)
        loader = hopfeed.torch.LinkNeighborLoader(self.graph, [5, 5], torch.from_numpy(self.edges), batch_size=512, neg_sampling="binary", features=False)
        losses = []
        for _ in range(12):
            total = 0.0
            for batch in loader:
                z = model(table(batch.n_id), batch.edge_index)
                u, v = batch.edge_label_index
                loss = torch.nn.functional.binary_cross_entropy_with_logits((z[u] * z[v]).sum(-1), batch.edge_label)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += float(loss.detach())
            losses.append(total / len(loader))
        self.assertLess(losses[-1], 0.95 * losses[0])  # the graph is random: only its edges can be learnt

    def test_arrays_are_tensors_of_the_types_of_pyg(self):
        loader = hopfeed.torch.LinkNeighborLoader(self.graph, [2], self.edges[:, :100], neg_sampling="triplet", neg_sampling_ratio=3, disjoint=True)
        (batch,) = loader
        for name, value in batch.items():
            if name != "info":
                self.assertEqual(value.dtype, torch.float32 if name == "x" else torch.int64, name)
        self.assertEqual(tuple(batch.dst_neg_index.shape), (100, 3))
        np.testing.assert_array_equal(batch.n_id[batch.dst_pos_index], self.edges[1][batch.input_id])


if __name__ == "__main__":
    unittest.main()
