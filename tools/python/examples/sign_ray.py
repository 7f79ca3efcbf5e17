"""SIGN by Ray Train, on the machines of a Ray cluster:

    ray job submit --working-dir tools/python/examples -- python sign_ray.py s3://BUCKET/STORE RUN --workers 8

RUN is a folder or URL that all machines see. When a worker or a machine is lost, Ray starts all workers
again, and they go on after the batch that was saved last, with the batches that would have come then.
"""

import argparse
import os
import tempfile

import ray.train.torch
import torch
from torch.nn.functional import cross_entropy

import hopfeed.torch
from sign import SIGN


def model_of(loader):
    """Apart from work: what a function with both names, torch and classes, takes along, torch.classes, cannot be sent to other processes."""
    return SIGN(len(loader.matrices), loader.dataset.features, loader.dataset.classes)


def work(o):
    """A process of the training."""
    loader = hopfeed.torch.Loader(o["store"], o["batch_size"], placement="storage", cache_dir=o["cache_dir"])
    torch.manual_seed(0)
    model = model_of(loader)
    parallel = ray.train.torch.prepare_model(model)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    parts = {"model": model, "optimizer": optimizer, "loader": loader}
    if saved := ray.train.get_checkpoint():
        with saved.as_directory() as folder:
            for name, state in torch.load(os.path.join(folder, "state.pt")).items():
                parts[name].load_state_dict(state)
    ranks, rank = ray.train.get_context().get_world_size(), ray.train.get_context().get_world_rank()
    device = ray.train.torch.get_device()
    for epoch in range(loader.state_dict()["epoch"], o["epochs"]):
        for batch in loader:
            batch = batch.to(device)
            # DistributedDataParallel averages over processes: the sum over the whole batch, divided by its rows.
            loss = cross_entropy(parallel(batch.x), batch.y, ignore_index=-1, reduction="sum") * ranks / batch.global_rows
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            done = batch.index + 1
            if done == len(loader) or done % o["save_every"] == 0:  # in all processes
                with tempfile.TemporaryDirectory() as folder:
                    if rank == 0:
                        torch.save({name: part.state_dict() for name, part in parts.items()}, os.path.join(folder, "state.pt"))
                    checkpoint = ray.train.Checkpoint.from_directory(folder) if rank == 0 else None
                    ray.train.report({"epoch": epoch, "batch": done, "loss": loss.item()}, checkpoint=checkpoint)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store")
    parser.add_argument("run")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=8000)
    parser.add_argument("--cache-dir", help="where a machine keeps what it reads from a bucket")
    parser.add_argument("--save-every", type=int, default=100, metavar="BATCHES")
    o = parser.parse_args()
    trainer = ray.train.torch.TorchTrainer(
        work,
        train_loop_config=vars(o),
        scaling_config=ray.train.ScalingConfig(num_workers=o.workers, use_gpu=o.gpu),
        run_config=ray.train.RunConfig(
            name="sign", storage_path=o.run, failure_config=ray.train.FailureConfig(max_failures=9), checkpoint_config=ray.train.CheckpointConfig(num_to_keep=2)
        ),
    )
    print(trainer.fit().metrics)


if __name__ == "__main__":
    main()
