"""Times epochs of rows from an S3 server on this machine, beside MosaicML Streaming and LitData, cold and warm.

    python tools/bench/peers/buckets.py ./hopfeed versitygw WORK [--rows 200000] [--features 128] [--rounds 3]

Needs the wheel of Hopfeed, torch, boto3, mosaicml-streaming and litdata, and the server
(go install github.com/versity/versitygw/cmd/versitygw@v1.8.0). All sides read the same rows, float32 [features] and a class,
in batches of 4096 in a new order each epoch, as tensors; the others by a DataLoader with as many workers as there are cores.
An epoch is cold when the local cache is empty, and warm after that.

Prints a JSON object a round, then medians and ratios to the faster of the others.
"""

import argparse
import json
import os
import pathlib
import shutil
import socket
import statistics
import subprocess
import time
import urllib.error
import urllib.request

BATCH, BUCKET, CHUNK_BYTES = 4096, "bucket", 64 << 20


def serve(program, work):
    """An S3 server over a folder, which the environment then names."""
    (work / "data" / BUCKET).mkdir(parents=True, exist_ok=True)
    (work / "sidecar").mkdir(exist_ok=True)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    server = subprocess.Popen([program, "--quiet", "--port", f"127.0.0.1:{port}", "--access", "user", "--secret", "password", "posix",
                               "--sidecar", work / "sidecar", work / "data"], stdout=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    os.environ |= {"AWS_ENDPOINT_URL": url, "S3_ENDPOINT_URL": url, "AWS_ACCESS_KEY_ID": "user", "AWS_SECRET_ACCESS_KEY": "password",
                   "AWS_REGION": "us-east-1", "AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true",
                   "HOPFEED_STATE_DIR": str(work / "state")}
    for _ in range(200):
        try:
            urllib.request.urlopen(url)
        except urllib.error.HTTPError:
            break
        except OSError:
            time.sleep(0.05)
    return server


def upload(folder, prefix):
    import boto3

    client = boto3.client("s3")
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            client.upload_file(str(path), BUCKET, f"{prefix}/{path.relative_to(folder)}")


def write_hopfeed(hopfeed, work, x, y):
    import numpy as np

    arrays = work / "arrays"
    shutil.rmtree(arrays, ignore_errors=True)
    arrays.mkdir()
    np.save(arrays / "node_feat.npy", x)
    np.save(arrays / "node_label.npy", y)
    np.save(arrays / "edge_index.npy", np.zeros((2, 0), np.int64))
    np.save(arrays / "train_idx.npy", np.arange(len(x)))
    for line in (["import", "npy", arrays, "-o", f"s3://{BUCKET}/graph"],
                 ["propagate", f"s3://{BUCKET}/graph", "-o", f"s3://{BUCKET}/store", "--hops", "0"]):
        subprocess.run([hopfeed, *map(str, line), "--quiet"], check=True)


def write_mosaic(work, x, y):
    from streaming import MDSWriter

    out = work / "mds"
    shutil.rmtree(out, ignore_errors=True)
    with MDSWriter(out=str(out), columns={"x": f"ndarray:float32:{x.shape[1]}", "y": "int"}, size_limit=CHUNK_BYTES) as writer:
        for row, label in zip(x, y):
            writer.write({"x": row, "y": int(label)})
    upload(out, "mds")


def write_litdata(work, x, y):
    import litdata

    out = work / "litdata"
    shutil.rmtree(out, ignore_errors=True)
    global rows
    rows = x, y
    litdata.optimize(litdata_row, list(range(len(x))), str(out), chunk_bytes=CHUNK_BYTES, num_workers=1, start_method="fork")
    upload(out, "litdata")


def litdata_row(i):
    return {"x": rows[0][i], "y": int(rows[1][i])}


def epochs(loader, count):
    """Seconds of two epochs, whose rows are counted."""
    out = []
    for _ in range(2):
        start, seen, total = time.perf_counter(), 0, 0.0
        for batch in loader:
            seen += len(batch["y"])
            total += float(batch["x"].flatten()[0])
        out.append(time.perf_counter() - start)
        assert seen == count, (seen, count)
    return out


def read_hopfeed(cache, count):
    import hopfeed.torch

    with hopfeed.torch.Loader(f"s3://{BUCKET}/store", BATCH, placement="storage", cache_dir=cache) as loader:
        return epochs(loader, count)


def read_mosaic(cache, count):
    import streaming
    import torch

    streaming.base.util.clean_stale_shared_memory()
    data = streaming.StreamingDataset(remote=f"s3://{BUCKET}/mds", local=str(cache), shuffle=True, batch_size=BATCH)
    return epochs(torch.utils.data.DataLoader(data, BATCH, num_workers=os.cpu_count(), persistent_workers=True), count)


def read_litdata(cache, count):
    import litdata
    from litdata.streaming import downloader

    getattr(downloader, "_OBSTORE_CLIENT_OPTIONS", {})["allow_http"] = True  # the server of a test has no TLS
    data = litdata.StreamingDataset(f"s3://{BUCKET}/litdata", cache_dir=str(cache), shuffle=True,
                                    storage_options={"endpoint_url": os.environ["AWS_ENDPOINT_URL"]})
    return epochs(litdata.StreamingDataLoader(data, batch_size=BATCH, num_workers=os.cpu_count()), count)


def main():
    import numpy as np

    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("hopfeed", type=pathlib.Path)
    p.add_argument("server")
    p.add_argument("work", type=pathlib.Path)
    p.add_argument("--rows", type=int, default=200_000)
    p.add_argument("--features", type=int, default=128)
    p.add_argument("--rounds", type=int, default=3)
    o = p.parse_args()
    work = o.work.resolve() / "buckets"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    random = np.random.default_rng(1)
    x, y = random.standard_normal((o.rows, o.features), np.float32), random.integers(0, 10, o.rows)
    server = serve(o.server, work)
    sides = {"hopfeed": (lambda: write_hopfeed(o.hopfeed.resolve(), work, x, y), read_hopfeed),
             "mosaic": (lambda: write_mosaic(work, x, y), read_mosaic), "litdata": (lambda: write_litdata(work, x, y), read_litdata)}
    rates = {}
    try:
        for write, _ in sides.values():
            write()
        for k in range(o.rounds):
            line = {}
            for name, (_, read) in sides.items():
                cache = work / f"cache-{name}-{k}"
                cold, warm = read(cache, o.rows)
                shutil.rmtree(cache, ignore_errors=True)
                line[name] = {"cold": o.rows / cold, "warm": o.rows / warm}
                for state, rate in line[name].items():
                    rates.setdefault((name, state), []).append(rate)
            print(json.dumps(line), flush=True)
    finally:
        server.kill()
    for state in ("cold", "warm"):
        medians = {name: statistics.median(rates[name, state]) for name in sides}
        other = max(medians["mosaic"], medians["litdata"])
        print(f"{state}: {medians} rows/s, hopfeed {medians['hopfeed'] / other:.2f} x the faster of the others")


if __name__ == "__main__":
    main()
