"""spmm.py [--device cuda|cpu] [--nodes N] [--degree D] [--columns LIST] [--seconds S]: the product of a random
sparse matrix with features by torch.sparse, beside BenchmarkPropagate of gds/cuda, which has the same sizes.

Prints, for each number of columns, the milliseconds of a product and the bytes of rows that it adds in a second.
"""
import argparse
import time

import torch

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--device", default="cuda")
parser.add_argument("--nodes", type=int, default=1 << 20)
parser.add_argument("--degree", type=int, default=25)
parser.add_argument("--columns", default="8,128")
parser.add_argument("--seconds", type=float, default=1.0)
options = parser.parse_args()

torch.manual_seed(1)
n, edges = options.nodes, options.nodes * options.degree
sort = torch.randint(n, (n, options.degree), device=options.device).sort(dim=1).values
matrix = torch.sparse_csr_tensor(
    torch.arange(0, edges + 1, options.degree, device=options.device), sort.reshape(-1),
    torch.rand(edges, device=options.device), size=(n, n))
wait = torch.cuda.synchronize if options.device.startswith("cuda") else lambda: None
name = torch.cuda.get_device_name() if options.device.startswith("cuda") else "processor"
print(f"torch {torch.__version__} on {name}: {n} nodes, {edges} edges, float32")
for columns in map(int, options.columns.split(",")):
    x = torch.rand(n, columns, device=options.device)
    product = matrix @ x
    wait()
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < options.seconds:
        for _ in range(16):
            product = matrix @ x
        wait()
        count += 16
    seconds = (time.perf_counter() - start) / count
    print(f"columns={columns}: {1e3 * seconds:.3f} ms a product, {edges * columns * 4 / seconds / 1e6:.0f} MB/s")
