"""A layer of DGL."""

import torch


class SAGEConv(torch.nn.Module):
    """W_self h + W_neigh (mean of h over in-neighbours) + b."""

    def __init__(self, features, out, aggregator):
        super().__init__()
        assert aggregator == "mean"
        self.fc_self, self.fc_neigh = torch.nn.Linear(features, out), torch.nn.Linear(features, out, bias=False)

    def forward(self, block, h):
        indptr, indices = block.edges()
        degrees = indptr.diff()
        adjacency = torch.sparse_csr_tensor(indptr, indices, torch.ones(len(indices)), (len(degrees), len(h)), check_invariants=False)
        return self.fc_self(h[: len(degrees)]) + self.fc_neigh(adjacency @ h / degrees.clamp(min=1)[:, None])
