"""A data module for Lightning."""

from __future__ import annotations

import os
from typing import Any, Callable, Literal

import torch

from ._batch import each
from ._dataset import Dataset
from ._types import Path
from .torch import Dataset as TorchDataset
from .torch import Loader, NeighborLoader

try:
    from lightning import LightningDataModule
except ImportError:
    from pytorch_lightning import LightningDataModule  # type: ignore[assignment]

Split = Literal["train", "val", "test", "rest"]


class DataModule(LightningDataModule):
    """The loaders of a training, which are opened when the trainer asks for them: then the processes of a group are
    there, and each gets its share of every batch.

    >>> data = DataModule("store", batch_size=8000)
    >>> trainer.fit(model, data)

    The trainer saves the state of the train loader in its checkpoints, so that a training goes on within an epoch.

    :param data: a store or a graph, or its path; or a function that opens the loader of a split: ``"train"``, ``"val"``,
        ``"test"``, or ``"rest"``, which is predicted
    :param options: those of the loaders; but for train nodes they neither shuffle nor drop the last batch
    """

    def __init__(self, data: Path | Dataset | Callable[[Split], Loader | NeighborLoader], **options: Any) -> None:
        super().__init__()
        self._data, self._options = data, options

    def _open(self, split: Split) -> Loader | NeighborLoader:
        if self.trainer is None or "LOCAL_WORLD_SIZE" in os.environ:
            return self._loader(split)
        os.environ["LOCAL_WORLD_SIZE"] = str(self.trainer.num_devices)  # as torchrun does, but not Lightning
        try:
            return self._loader(split)
        finally:
            del os.environ["LOCAL_WORLD_SIZE"]

    def _loader(self, split: Split) -> Loader | NeighborLoader:
        if callable(self._data):
            return self._data(split)
        dataset = self._data if isinstance(self._data, Dataset) else TorchDataset(self._data)
        options = self._options if split == "train" else {**self._options, "shuffle": False, "drop_last": False}
        return dataset._open(Loader, NeighborLoader, {**options, "split": split})  # type: ignore[no-any-return]

    def train_dataloader(self) -> Loader | NeighborLoader:
        return self._open("train")

    def val_dataloader(self) -> Loader | NeighborLoader:
        return self._open("val")

    def test_dataloader(self) -> Loader | NeighborLoader:
        return self._open("test")

    def predict_dataloader(self) -> Loader | NeighborLoader:
        return self._open("rest")

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        return each(batch, "to", device, non_blocking=True)
