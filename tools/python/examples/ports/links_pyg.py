# PyG's link prediction on batches of Hopfeed: RandomLinkSplit, GraphSAGE and products of embeddings.
import sys; from common import *
import torch.nn.functional as F, torch_geometric.transforms as T
import hopfeed; from hopfeed.torch import LinkNeighborLoader
from torch_geometric.nn import GraphSAGE

name, epochs = sys.argv[1], int(sys.argv[2])
torch.manual_seed(int(sys.argv[3]) if len(sys.argv) > 3 else 0)
clock = Clock()
split = T.RandomLinkSplit(0.0, 0.1, is_undirected=True, add_negative_train_samples=False, disjoint_train_ratio=0.2)
train_data, _, test_data = split(pyg(name))
train_loader = LinkNeighborLoader(
    hopfeed.from_pyg(train_data),
    num_neighbors=[10, 5],
    edge_label_index=train_data.edge_label_index,
    neg_sampling="binary",
    batch_size=4096,
    shuffle=True,
)
test_loader = LinkNeighborLoader(
    hopfeed.from_pyg(test_data),
    num_neighbors=[10, 5],
    edge_label_index=test_data.edge_label_index,
    edge_label=test_data.edge_label,
    batch_size=4096,
    shuffle=False,
)
model = GraphSAGE(train_data.num_features, hidden_channels=64, num_layers=2, out_channels=32)
optimizer = torch.optim.Adam(model.parameters(), lr=0.003)


def score(batch):
    h = model(batch.x, batch.edge_index)
    source, destination = batch.edge_label_index
    return (h[source] * h[destination]).sum(dim=-1)


def train():
    model.train()
    for batch in train_loader:
        optimizer.zero_grad()
        loss = F.binary_cross_entropy_with_logits(score(batch), batch.edge_label)
        loss.backward()
        optimizer.step()


@torch.no_grad()
def test():
    """The area under the ROC curve: how often an edge has a higher score than a pair that is none."""
    model.eval()
    scores, labels = zip(*((score(batch), batch.edge_label) for batch in test_loader))
    labels = torch.cat(labels)[torch.cat(scores).argsort()]
    edges = labels.sum().double()
    ranks = torch.arange(1, len(labels) + 1)[labels == 1].sum()
    return float((ranks - edges * (edges + 1) / 2) / (edges * (len(labels) - edges)))


for epoch in range(epochs):
    with clock:
        train()
clock.done(test=round(test(), 4))
