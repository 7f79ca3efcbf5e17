"""hopfeed.torch.NeighborLoader of a typed graph, for models of DGL."""

import os
import tempfile
import unittest

import numpy as np

import test_typed

try:
    import torch

    import hopfeed.torch
except ImportError:
    raise unittest.SkipTest("PyTorch is not installed") from None


class TestTypedBlocks(unittest.TestCase):
    def test_layers_of_dgl_compute_what_they_do_of_the_whole_graph(self):
        with tempfile.TemporaryDirectory() as folder, test_typed.dgl() as dgl:
            from dgl.nn import HeteroGraphConv, SAGEConv

            arrays, graph = (os.path.join(folder, name) for name in ("arrays", "graph"))
            x, edges, _, splits = test_typed.write_arrays(arrays)
            hopfeed.import_npy(arrays, graph, missing_features="ones", directed=True, progress=False)
            h = {name: torch.from_numpy(rows) for name, rows in x.items()} | {"venue": torch.ones(test_typed.NODES["venue"], 1)}
            torch.manual_seed(1)
            convs, expected, widths = [], h, {name: rows.shape[1] for name, rows in h.items()}
            for _ in range(2):
                layers = {(s, "to", d): SAGEConv((widths[s], widths[d]), 4, "mean") for s, d in edges}
                convs.append(HeteroGraphConv(layers))
                expected = self.whole(layers, edges, expected)
                widths = {name: rows.shape[1] for name, rows in expected.items()}
            seeds = []
            loader = hopfeed.torch.NeighborLoader(graph, [-1, -1], batch_size=16, edge_ids=True, transform=hopfeed.Batch.to_dgl)
            with torch.no_grad():
                for inputs, outputs, blocks in loader:
                    self.assertEqual(list(outputs), ["paper"])
                    out = {name: blocks[0].srcnodes[name].data["feat"] for name in inputs}
                    for name, rows in out.items():
                        self.assertTrue(torch.equal(rows, h[name][inputs[name]]))
                    for conv, block in zip(convs, blocks):
                        kept = {name: rows[: block.num_dst_nodes(name)] for name, rows in out.items()}
                        out = {**kept, **conv(block, out)}  # authors have no in-neighbours
                    self.assertEqual({name: len(rows) for name, rows in out.items()}, {"author": 0, "paper": len(outputs["paper"]), "venue": 0})
                    torch.testing.assert_close(out["paper"], expected["paper"][outputs["paper"]])
                    self.assertEqual(blocks[-1].dstnodes["paper"].data["label"].shape, outputs["paper"].shape)
                    for e in blocks[-1].canonical_etypes:
                        data = blocks[-1].edges[e].data
                        self.assertEqual(data["weight"].shape, data[dgl.EID].shape)
                    seeds += outputs["paper"].tolist()
            self.assertEqual(sorted(seeds), np.flatnonzero(splits == 0).tolist())
            loader = hopfeed.torch.NeighborLoader(graph, [3], ("venue", [5, 2]), features=False)
            _, outputs, (block,) = next(iter(loader)).to("cpu").to_dgl()
            self.assertEqual((outputs["venue"].tolist(), block.num_dst_nodes("venue"), block.num_dst_nodes("paper")), ([5, 2], 2, 0))

    def whole(self, layers, edges, h):
        """A layer of the whole graph, by dense matrices."""
        out = {}
        for source, destination in edges:
            layer, a = layers[source, "to", destination], torch.zeros(len(h[destination]), len(h[source]))
            a[edges[source, destination][1], edges[source, destination][0]] = 1
            mean = a @ h[source] / a.sum(1, keepdim=True).clamp(min=1)
            rows = layer.fc_self(h[destination]) + layer.fc_neigh(mean)
            out[destination] = out[destination] + rows if destination in out else rows
        return {**h, **{name: rows.detach() for name, rows in out.items()}}


if __name__ == "__main__":
    unittest.main()
