"""HOGA (arXiv 2403.01317) in PyTorch, trained from a hop store: gated attention over the hops of a node.

    python hoga.py STORE
    torchrun --standalone --nproc-per-node 2 hoga.py STORE
"""

import torch
from torch import nn

from sign import train


class HOGA(nn.Module):
    """The hops of a row are tokens. H = X W; then H <- Dropout(ReLU(LayerNorm((H W_g) * MHA(H, H, H)))). The
    output is linear in h_0 + the sum of a_k h_k, with a = softmax over k >= 1 of w . [h_0 || h_k]."""

    def __init__(self, matrices, features, classes, hidden=256, heads=4, dropout=0.3):
        super().__init__()
        self.heads = heads
        self.project = nn.Linear(features, hidden)
        self.qkv = nn.Linear(hidden, 3 * hidden, bias=False)
        self.gate = nn.Linear(hidden, hidden, bias=False)
        self.norm = nn.LayerNorm(hidden)
        self.score = nn.Linear(2 * hidden, 1)
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(hidden, classes)

    def forward(self, x):  # [rows, matrices, features]
        h = self.project(x)
        rows, hops, hidden = h.shape
        q, k, v = (t.view(rows, hops, self.heads, -1).transpose(1, 2) for t in self.qkv(h).chunk(3, dim=-1))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(rows, hops, hidden)
        h = self.dropout(torch.relu(self.norm(mixed * self.gate(h))))
        weights = torch.softmax(self.score(torch.cat([h[:, :1].expand(-1, hops - 1, -1), h[:, 1:]], dim=2)), dim=1)
        return self.out(h[:, 0] + (weights * h[:, 1:]).sum(dim=1))


if __name__ == "__main__":
    train(HOGA)
