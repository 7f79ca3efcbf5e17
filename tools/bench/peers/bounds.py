"""Times whole jobs beside the slowest of their parts: the processor, the disk's writes, the disk's reads.

    python tools/bench/peers/bounds.py ./hopfeed WORK [--jobs propagate,float16,import,export] [--rounds 3]

Needs fio, and in WORK twice the disk of a graph with all of its hops (5 GB by default). Jobs:

- propagate: 3 hops of sym, all rows, in float32; its processor's time is the sum of its hops.
- float16: the same, in float16.
- import: an array directory in the npy layout to a graph; its processor's time is its core-seconds over cores.
- export: the graph to such a directory; likewise.

In each round fio writes and reads, past the page cache, files of as many bytes as the job before wrote and read:
one after the other (writes, reads), and at a time (disk), which a disk whose reads and writes share its rate takes
longer for. What a job reads is out of the page cache when it begins. Prints a JSON object a run: seconds,
core_seconds, system_seconds_per_gb (of what it wrote), the parts (seconds of the processor and of fio), and
over_bound: seconds over 1.25 times the largest part (of imports and exports with disk, of propagation with writes
and reads) and, for propagation, 0.5 s more; then the medians.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import time

from rounds import THREADS, measure, run

HOPS = 3


def drop(folder):
    """Takes the files of a folder out of the page cache."""
    for path in folder.rglob("*"):
        if path.is_file():
            fd = os.open(path, os.O_RDONLY)
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)


def size(folder):
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def timed(*command):
    """Runs a command; returns its seconds, processor seconds, system seconds, and the JSON object that it prints."""
    start = time.perf_counter()
    process = subprocess.Popen([str(c) for c in command], stdout=subprocess.PIPE, text=True)
    text = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, command
    return seconds, usage.ru_utime + usage.ru_stime, usage.ru_stime, json.loads(text.splitlines()[-1])


def fio(work, **sizes):
    """Seconds that fio takes to write, to read, or to do both at a time, so many bytes past the page cache."""
    jobs = []
    for kind, size in sizes.items():
        jobs += [f"--name={kind}", f"--rw={kind}", f"--filename={work / kind}.dat", f"--size={max(size // (2 << 20), 1) * (2 << 20)}"]
        if kind == "write":
            jobs += ["--end_fsync=1", "--fallocate=posix"]
    shared = ["--bs=2m", "--iodepth=4", "--ioengine=libaio", "--direct=1", "--output-format=json"]
    out = subprocess.run(["fio", *shared, *jobs], check=True, stdout=subprocess.PIPE, text=True).stdout
    return max(job["job_runtime"] for job in json.loads(out[out.index("{"):])["jobs"]) / 1000


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("hopfeed", type=pathlib.Path)
    p.add_argument("work", type=pathlib.Path)
    p.add_argument("--jobs", default="propagate,float16,import,export")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--nodes", type=int, default=1_000_000)
    p.add_argument("--edges", type=int, default=25_000_000)
    p.add_argument("--features", type=int, default=128)
    o = p.parse_args()
    hopfeed, work = o.hopfeed.resolve(), o.work.resolve() / f"bounds-{o.nodes}-{o.edges}-{o.features}"
    work.mkdir(parents=True, exist_ok=True)
    graph, arrays, out = (work / name for name in ("graph", "arrays", "out"))
    if not graph.exists():
        run(hopfeed, "generate", "rmat", "-o", graph, "--nodes", o.nodes, "--edges", o.edges, "--features", o.features, "--classes", 47, "--labeled", 0.1, "--quiet")
    if "import" in o.jobs and not arrays.exists():
        run(hopfeed, "export", "npy", graph, "-o", arrays, "--quiet")

    def propagate(name, *flags):
        return job(name, graph, "propagate", graph, "-o", out, "--hops", HOPS, "--operator", "sym", "--rows", "all", *flags)

    jobs = {
        "propagate": lambda: propagate("propagate"),
        "float16": lambda: propagate("float16", "--dtype", "float16"),
        "import": lambda: job("import", arrays, "import", "npy", arrays, "-o", out),
        "export": lambda: job("export", graph, "export", "npy", graph, "-o", out),
    }

    def job(name, source, *command):
        shutil.rmtree(out, ignore_errors=True)
        drop(source)
        seconds, cores, system, result = timed(hopfeed, *command, "--json", "--quiet")
        written, read = result.get("bytes_written", size(out)), result.get("bytes_read", size(source))
        shutil.rmtree(out)
        hops = sum(result.get("hop_seconds", []))
        (work / "write.dat").unlink(missing_ok=True)
        fio(work, write=read)
        (work / "write.dat").rename(work / "read.dat")
        parts = {"processor": hops or cores / THREADS, "writes": fio(work, write=written), "reads": fio(work, read=read)}
        (work / "write.dat").unlink()
        if not hops:
            parts["disk"] = fio(work, write=written, read=read)
        for file in "write.dat", "read.dat":
            (work / file).unlink(missing_ok=True)
        spent = {f"time_{k}": v for k, v in result.get("time", {}).items() if not isinstance(v, str)}
        return {name: {"seconds": seconds, "core_seconds": cores, "system_seconds_per_gb": system / written * 1e9, "read_gb": read / 1e9, "written_gb": written / 1e9,
                       **parts, "over_bound": seconds / (1.25 * max(parts.values()) + (0.5 if hops else 0)), **spent}}

    measure(o.rounds, *(jobs[name] for name in o.jobs.split(",")))


if __name__ == "__main__":
    main()
