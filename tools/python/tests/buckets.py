"""A bucket of an S3 server, versitygw, which VERSITYGW or PATH names."""

import contextlib
import os
import shutil
import socket
import subprocess
import time
import unittest
import urllib.error
import urllib.request

SERVER = os.environ.get("VERSITYGW") or shutil.which("versitygw")
needs_server = unittest.skipUnless(SERVER, "needs versitygw: go install github.com/versity/versitygw/cmd/versitygw@v1.8.0")


@contextlib.contextmanager
def bucket(folder):
    """The URL of a bucket, whose server keeps its objects in a folder, and the environment that its clients need. The
    server lists requests in access.log."""
    for name in ("data/bucket", "sidecar"):
        os.makedirs(os.path.join(folder, name))
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        address = "127.0.0.1:%d" % s.getsockname()[1]
    options = ["--port", address, "--access", "user", "--secret", "password", "--access-log", os.path.join(folder, "access.log")]
    options += ["posix", "--sidecar", os.path.join(folder, "sidecar")]
    server = subprocess.Popen([SERVER, *options, os.path.join(folder, "data")], stdout=subprocess.DEVNULL)
    try:
        answers("http://" + address)
        own = {"AWS_ACCESS_KEY_ID": "user", "AWS_SECRET_ACCESS_KEY": "password", "HOPFEED_STATE_DIR": os.path.join(folder, "state")}
        yield f"s3://bucket?endpoint=http://{address}&region=us-east-1", {**os.environ, **own}
    finally:
        server.kill()
        server.wait()


def answers(url):
    """Waits until a server answers."""
    for _ in range(300):
        try:
            urllib.request.urlopen(url)
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.05)
