"""SIGN by Lightning, on the processes of one machine or of several that torchrun starts:

    export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1  # else restarted processes wait for each other for ever
    torchrun --nnodes 2 --nproc-per-node 4 --max-restarts 9 --rdzv-backend c10d --rdzv-endpoint HOST:29400 \\
        sign_lightning.py s3://BUCKET/STORE RUN --devices 4 --nodes 2 --cache-dir DIR --save-every 100

RUN is a folder that all machines see: a training whose checkpoint is there goes on within its epoch.
"""

import argparse

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.nn.functional import cross_entropy

import hopfeed.torch
from hopfeed.lightning import DataModule
from sign import SIGN


class Module(lightning.LightningModule):
    def __init__(self, matrices, features, classes):
        super().__init__()
        self.model = SIGN(matrices, features, classes)

    def training_step(self, batch, _):
        # DDP averages over processes: the sum over the whole batch, divided by its rows.
        total = cross_entropy(self.model(batch.x), batch.y, ignore_index=-1, reduction="sum")
        return total * self.trainer.world_size / batch.global_rows

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 1e-3)


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("store")
parser.add_argument("run")
parser.add_argument("--devices", type=int, default=1, help="processes of a machine")
parser.add_argument("--nodes", type=int, default=1, help="machines")
parser.add_argument("--epochs", type=int, default=20)
parser.add_argument("--batch-size", type=int, default=8000)
parser.add_argument("--cache-dir", help="where a machine keeps what it reads from a bucket")
parser.add_argument("--save-every", type=int, default=100, metavar="BATCHES")
parser.add_argument("--accelerator", default="auto")
o = parser.parse_args()

lightning.seed_everything(0)
store = hopfeed.torch.Dataset(o.store)
trainer = lightning.Trainer(
    accelerator=o.accelerator,
    devices=o.devices,
    num_nodes=o.nodes,
    strategy="ddp" if o.devices * o.nodes > 1 else "auto",
    max_epochs=o.epochs,
    callbacks=[ModelCheckpoint(o.run, every_n_train_steps=o.save_every, save_last=True)],
    logger=False,
)
data = DataModule(store, batch_size=o.batch_size, placement="storage", cache_dir=o.cache_dir)
module = Module(len(store.matrices), store.features, store.classes)
trainer.fit(module, data, ckpt_path="last")
if trainer.is_global_zero:
    test = hopfeed.torch.Loader(store, o.batch_size, shuffle=False, split="test", rank=0, world_size=1, cache_dir=o.cache_dir)
    print(f"test accuracy {hopfeed.torch.evaluate(module.model, test)['value']:.4f}")
