"""A data module for Lightning."""

from __future__ import annotations

from typing import Any, Callable, Literal

import torch

from .torch import Loader, NeighborLoader

try:
    from lightning import LightningDataModule
except ImportError:
    from pytorch_lightning import LightningDataModule  # type: ignore[assignment]

Split = Literal["train", "val", "test", "rest"]


class DataModule(LightningDataModule):
    """The loaders of a training, which are opened when the trainer asks for them: then the processes of a group are
    there, and each gets its share of every batch.

    >>> data = DataModule(lambda split: hopfeed.torch.Loader("store", 8000, split == "train", split=split))
    >>> trainer.fit(model, data)

    The trainer saves the state of the train loader in its checkpoints, so that a training goes on within an epoch.

    :param open: opens the loader of a split: ``"train"``, ``"val"``, ``"test"``, or ``"rest"``, which is predicted
    """

    def __init__(self, open: Callable[[Split], Loader | NeighborLoader]) -> None:
        super().__init__()
        self._open = open

    def train_dataloader(self) -> Loader | NeighborLoader:
        return self._open("train")

    def val_dataloader(self) -> Loader | NeighborLoader:
        return self._open("val")

    def test_dataloader(self) -> Loader | NeighborLoader:
        return self._open("test")

    def predict_dataloader(self) -> Loader | NeighborLoader:
        return self._open("rest")

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        return batch.to(device, non_blocking=True)
