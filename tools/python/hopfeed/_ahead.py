"""Batches on their way to a GPU."""

from __future__ import annotations

import warnings
from typing import Any

import torch

from ._batch import each
from ._errors import OptionError


class Mover:
    """Moves batches to a device, or to pinned memory, one batch ahead of the loop.

    A batch goes to pinned memory of PyTorch's allocator, and from there to a GPU by a stream of its own, while the loop
    computes with the batch before it. The loop's stream waits for the copy, and not for more.
    """

    def __init__(self, device: Any, pin_memory: bool, reuse: bool) -> None:
        try:
            self.device = None if device is None else torch.device(device)
        except RuntimeError as error:
            raise OptionError(f"device {device!r}: {error}") from None
        self._stream: Any = None
        if self.device is not None and self.device.type == "cuda":
            if not torch.cuda.is_available():
                raise OptionError(f"device {str(device)!r}: PyTorch finds no GPU")
            self._stream = torch.cuda.Stream(self.device)
        elif pin_memory and not torch.cuda.is_available():
            warnings.warn("pin_memory: PyTorch finds no GPU, so batches stay in other memory", stacklevel=5)
            pin_memory = False
        self._pin = pin_memory or self._stream is not None
        if reuse and (self.device is not None or self._pin):
            raise OptionError("reuse: batches that are moved have memory of their own")

    def __bool__(self) -> bool:
        return self.device is not None or self._pin

    def start(self, batch: Any) -> tuple[Any, Any]:
        """Begins to move a batch, or what a transform made of it. The event is when it is there."""
        if self._pin:
            batch = each(batch, "pin_memory")
        if self._stream is None:
            return (batch if self.device is None else each(batch, "to", self.device)), None
        with torch.cuda.stream(self._stream):
            return each(batch, "to", self.device, non_blocking=True), self._stream.record_event()

    def finish(self, batch: Any, there: Any) -> Any:
        """The batch, for the stream of the loop."""
        if there is not None:
            loop = torch.cuda.current_stream(self.device)
            loop.wait_event(there)
            each(batch, "record_stream", loop)  # its memory is used again after what the loop does with it
        return batch
