"""Layers of DGL."""

import torch


class SAGEConv(torch.nn.Module):
    """W_self h + W_neigh (mean of h over in-neighbours) + b; of a relation, h and features are pairs."""

    def __init__(self, features, out, aggregator):
        super().__init__()
        assert aggregator == "mean"
        sources, destinations = features if isinstance(features, tuple) else (features, features)
        self.fc_self, self.fc_neigh = torch.nn.Linear(destinations, out), torch.nn.Linear(sources, out, bias=False)

    def forward(self, block, h):
        indptr, indices = block.edges()
        degrees = indptr.diff()
        h, own = h if isinstance(h, tuple) else (h, h[: len(degrees)])
        adjacency = torch.sparse_csr_tensor(indptr, indices, torch.ones(len(indices)), (len(degrees), len(h)), check_invariants=False)
        return self.fc_self(own) + self.fc_neigh(adjacency @ h / degrees.clamp(min=1)[:, None])


class HeteroGraphConv(torch.nn.Module):
    """The sum, over the relations into a type, of what the layer of each makes of sources and destinations."""

    def __init__(self, layers):
        super().__init__()
        self.layers, self.mods = layers, torch.nn.ModuleDict({str(e): layer for e, layer in layers.items()})

    def forward(self, block, h):
        out = {}
        for e in block.canonical_etypes:
            rows = self.layers[e](block[e], (h[e[0]], h[e[2]][: block.num_dst_nodes(e[2])]))
            out[e[2]] = out[e[2]] + rows if e[2] in out else rows
        return out
