"""Times training of SGC from storage within little memory, and direct reads of the same file by fio, in turn.

    python tools/bench/peers/train_storage.py ./hopfeed WORK [--memory-mib 256] [--rounds 5]

Needs fio (`apt-get install fio`), Linux, and the right to make a memory cgroup (root). The store has 2 matrices of 256
columns and 16 classes, and is 4 times as large as --memory-mib; SGC reads one of them. `train` has that much --memory,
and runs in a cgroup of that much (and 8 MiB for page tables), in which page cache counts too.

- hopfeed: bytes of features a second of training, of the median of --epochs epochs; each byte is compared with its
  checksum, and trained on.
- fio: libaio, direct, one process, random requests of a chunk of the same files, 16 at a time, as the loader makes.

Prints a JSON object a run, then medians and ratios.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess

from rounds import THREADS, measure, ratio, run
from storage import fio

FEATURES, CLASSES, KERNEL_BYTES = 256, 16, 8 << 20


def make_store(hopfeed, store, memory):
    """A store with hops 0 and 1 of 4 times so many bytes; 60 % of its rows are training rows."""
    if store.exists():
        return
    nodes = 4 * memory // (2 * FEATURES * 4)
    graph = store.with_suffix(".graph")
    run(hopfeed, "generate", "rmat", "-o", graph, "--nodes", nodes, "--edges", nodes, "--features", FEATURES, "--classes", CLASSES,
        "--labeled", 1, "--force", "--quiet")
    run(hopfeed, "propagate", graph, "-o", store, "--hops", 1, "--quiet")
    shutil.rmtree(graph)


class Cgroup:
    """A memory cgroup, of version 1 or 2, for commands that are run by within()."""

    def __init__(self, limit):
        mounts = [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")]
        mount, file = next((m for m in mounts if os.path.exists(f"{m[0]}/cgroup.procs")))
        self.path = f"{mount}/hopfeed-train-storage-{os.getpid()}"
        os.mkdir(self.path)
        pathlib.Path(self.path, file).write_text(str(limit))

    def within(self, *command):
        return ["sh", "-c", 'echo $$ >"$0"/cgroup.procs && exec "$@"', self.path, *command]

    def remove(self):
        os.rmdir(self.path)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("hopfeed", type=pathlib.Path)
    p.add_argument("work", type=pathlib.Path)
    p.add_argument("--memory-mib", type=int, default=256)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--epochs", type=int, default=5)
    p.add_argument("--threads", type=int, default=THREADS)
    o = p.parse_args()
    hopfeed, work, memory = o.hopfeed.resolve(), o.work.resolve() / "train-storage", o.memory_mib << 20
    work.mkdir(parents=True, exist_ok=True)
    store, saved = work / f"{o.memory_mib}", work / "run"
    make_store(hopfeed, store, memory)
    files = sorted(store.glob("features/sym/hop-1/part-*.arrow"))
    manifest = json.loads((store / "manifest.json").read_text())
    chunk_bytes = -(-manifest["chunk_rows"] * FEATURES * 4 // 4096) * 4096
    train_bytes = 4 * FEATURES * next(r["rows"] for r in manifest["regions"] if r["name"] == "train")
    size = sum(f.stat().st_size for f in store.glob("**/*") if f.is_file())
    print(f"a store of {size / memory:.2f} times {o.memory_mib} MiB; an epoch reads {train_bytes / memory:.2f} times that")
    cgroup = Cgroup(memory + KERNEL_BYTES)

    def ours():
        line, = run(*cgroup.within(hopfeed, "train", store, "--model", "sgc", "--batch", 8000, "--epochs", o.epochs, "--patience", 0,
                                   "--eval-every", o.epochs, "--memory", f"{o.memory_mib}MiB", "--threads", o.threads, "--run", saved,
                                   "--force", "--save-every", "1h", "--json", "--quiet"))
        assert line["placement"] == "storage" and all(r["path"] == "direct" for r in line["load"]["reads"]), line["load"]
        seconds = [json.loads(epoch)["train_seconds"] for epoch in (saved / "metrics.jsonl").read_text().splitlines()]
        return {"hopfeed": {"bytes_per_second": train_bytes / statistics.median(seconds)}}

    try:
        r = measure(o.rounds, lambda: {"fio": {"bytes_per_second": fio(files, "randread", chunk_bytes, 16)["bytes_per_second"]}}, ours)
    except subprocess.CalledProcessError as e:
        raise SystemExit(f"{e}: {e.stdout}")
    finally:
        cgroup.remove()
    ratio(r, "bytes_per_second", "hopfeed", "fio")


if __name__ == "__main__":
    main()
