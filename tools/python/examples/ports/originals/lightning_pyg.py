# PyG GraphSAGE in Lightning: LightningNodeData, and DDP by two processes on the processor, as in its example.
import sys; from common import *
import lightning.pytorch as pl
import torch.nn.functional as F
from torch_geometric.data.lightning import LightningNodeData
from torch_geometric.nn import GraphSAGE
from torchmetrics import Accuracy

name, epochs = sys.argv[1], int(sys.argv[2])
pl.seed_everything(int(sys.argv[3]) if len(sys.argv) > 3 else 0)
clock = Clock()
data = pyg(name)
datamodule = LightningNodeData(
    data,
    data.train_mask,
    data.val_mask,
    data.test_mask,
    loader="neighbor",
    num_neighbors=[15, 10],
    batch_size=512,
)


class Model(pl.LightningModule):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.gnn = GraphSAGE(in_channels, 64, num_layers=2, out_channels=out_channels, dropout=0.5)
        self.test_acc = Accuracy(task="multiclass", num_classes=out_channels)

    def forward(self, data):
        return self.gnn(data.x, data.edge_index)[: data.batch_size]

    def training_step(self, data, batch_idx):
        return F.cross_entropy(self(data), data.y[: data.batch_size])

    def test_step(self, data, batch_idx):
        self.test_acc(self(data).softmax(dim=-1), data.y[: data.batch_size])
        self.log("test_acc", self.test_acc, batch_size=data.batch_size)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)


class Epochs(pl.Callback):
    def on_train_epoch_start(self, trainer, model):
        clock.__enter__()

    def on_train_epoch_end(self, trainer, model):
        clock.__exit__()


quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
trainer = pl.Trainer(strategy="ddp", accelerator="cpu", devices=2, max_epochs=epochs, callbacks=[Epochs()], **quiet)
model = Model(data.num_features, int(data.y.max()) + 1)
trainer.fit(model, datamodule)
found = trainer.test(model, datamodule, verbose=False)
if trainer.is_global_zero:
    clock.done(test=round(found[0]["test_acc"], 4))
