"""Times epochs of batches from storage by Hopfeed, and direct reads of the same files by fio, in turn.

    python tools/bench/peers/storage.py ./hopfeed WORK [--rounds 3] [--threads 2] [--cases 100 256:float16]

Needs fio (`apt-get install fio`) and, in WORK, disk for --gigabytes a case. A case is the number of columns
of a store with hop 0 to --hops, perhaps with its type.

- fio: libaio, direct, one process, over the files that the loader has open (one or more a matrix); random
  requests of a chunk and of 8 (8 MiB at most), as the loader makes, and consecutive ones of 8 MiB; 1, 2, 4,
  8 and 16 at a time. The loader has 16 on their way (or as many as threads, if these are more). The best of
  all counts; the best of random requests of the loader's size is given too.
- hopfeed: `bench load --placement storage`, chunks of the store and 8 of them together reshuffled, and the
  latter without comparing checksums. Every byte becomes a batch.

Rates are bytes of features a second, core_seconds_per_gb the processor time of 10^9. A round measures three
epochs (the median counts), and 1.5 seconds of each of fio's ways. Prints a JSON object a run, then
medians and ratios.
"""

import argparse
import json
import pathlib
import shutil
import subprocess

from rounds import THREADS, best, measure, ratio, run

DEPTHS, BATCH, LABELED = (1, 2, 4, 8, 16), 8000, 1
ITEM_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}


def make_store(hopfeed, store, features, dtype, hops, gigabytes):
    """A store of about so many gigabytes; 60 % of its rows are training rows."""
    if store.exists():
        return
    nodes = int(gigabytes * 1e9 / ((hops + 1) * features * ITEM_BYTES[dtype]))
    graph = store.with_suffix(".graph")
    run(hopfeed, "generate", "rmat", "-o", graph, "--nodes", nodes, "--edges", 2 * nodes, "--features", features, "--classes", 16,
        "--labeled", LABELED, "--force", "--quiet")
    run(hopfeed, "propagate", graph, "-o", store, "--hops", hops, "--dtype", dtype, "--quiet")
    shutil.rmtree(graph)


def fio(files, pattern, request_bytes, depth):
    command = ["fio", "--name=read", "--filename=" + ":".join(map(str, files)), "--readonly", "--direct=1", "--ioengine=libaio",
               f"--rw={pattern}", f"--bs={request_bytes}", f"--iodepth={depth}", "--time_based", "--runtime=1500ms", "--output-format=json"]
    text = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    job = json.loads(text[text.index("{"):])["jobs"][0]
    rate = job["read"]["bw_bytes"]
    return {"bytes_per_second": rate, "core_seconds_per_gb": (job["usr_cpu"] + job["sys_cpu"]) / 100 / rate * 1e9}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("hopfeed", type=pathlib.Path)
    p.add_argument("work", type=pathlib.Path)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--threads", type=int, default=THREADS)
    p.add_argument("--hops", type=int, default=3)
    p.add_argument("--gigabytes", type=float, default=3)
    p.add_argument("--cases", nargs="+", default=["32", "100", "256", "768", "100:float16"])
    o = p.parse_args()
    hopfeed, work = o.hopfeed.resolve(), o.work.resolve() / "storage"
    work.mkdir(parents=True, exist_ok=True)
    for case in o.cases:
        features, _, dtype = case.partition(":")
        features, dtype = int(features), dtype or "float32"
        store = work / f"{features}-{dtype}-{o.hops}-{o.gigabytes:g}"
        make_store(hopfeed, store, features, dtype, o.hops, o.gigabytes)
        files = sorted(store.glob("features/*/hop-*/part-*.arrow"))
        chunk_rows = json.loads((store / "manifest.json").read_text())["chunk_rows"]
        chunk_bytes = -(-chunk_rows * features * ITEM_BYTES[dtype] // 4096) * 4096

        eight_bytes = min(8 * chunk_bytes, 8 << 20)
        patterns = [("randread", chunk_bytes), ("randread", eight_bytes), ("read", 8 << 20)]

        def ours():
            found = {}
            for name, flags in (("hopfeed", []), ("hopfeed 8 chunks", ["--chunk-rows", 8 * chunk_rows]),
                                ("hopfeed 8 chunks unchecked", ["--chunk-rows", 8 * chunk_rows, "--unchecked"])):
                line, = run(hopfeed, "bench", "load", store, "--placement", "storage", "--rounds", 3, "--batch", BATCH, "--threads", o.threads,
                            "--json", "--quiet", *flags)
                assert all(r["path"] == "direct" for r in line["reads"]), line["reads"]
                found[name] = {k: line[k] for k in ("bytes_per_second", "core_seconds_per_gb")}
            return found

        def theirs():
            return {f"fio {pattern} {size} depth {depth}": fio(files, pattern, size, depth)
                    for pattern, size in patterns for depth in DEPTHS}

        print(f"{features} columns of {dtype}, {o.hops + 1} matrices in {len(files)} files, chunks of {chunk_rows} rows")
        r = measure(o.rounds, ours, theirs)
        fastest = best(r, "bytes_per_second", [name for name in r if name.startswith("fio")])
        for name in [name for name in r if name.startswith("hopfeed")]:
            size = eight_bytes if "8 chunks" in name else chunk_bytes
            alike = best(r, "bytes_per_second", [fio for fio in r if fio.startswith(f"fio randread {size} ")])
            for under in dict.fromkeys([alike, fastest]):
                ratio(r, "bytes_per_second", name, under)


if __name__ == "__main__":
    main()
