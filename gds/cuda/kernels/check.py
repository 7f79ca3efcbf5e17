"""check.py PTXAS NVDISASM: assembles the committed PTX for GPUs from Ampere to Blackwell, and requires of each kernel

- that no register is spilled to memory,
- that a block of its threads fits the 65,536 registers of a multiprocessor,
- and, where its bits are a contract (propagation, sums along edges, conversion, moves, checksums), that the machine code
  fuses no product with a sum: no FFMA. (HFMA2 of zeros is how a constant is moved.)

No GPU is needed. CI takes both tools from pip: nvidia-cuda-nvcc-cu12==12.9.86 and nvidia-cuda-nvdisasm==13.5.37.
"""
import concurrent.futures
import pathlib
import re
import subprocess
import sys
import tempfile

ARCHITECTURES = ("sm_80", "sm_90", "sm_100", "sm_120")
REGISTERS = 65536  # of a multiprocessor
LONG = re.compile(r"_long$")  # kernels of blocks of 512 threads; others have 256
EXACT = re.compile(r"propagate|sum_edges|convert_|gather|scatter|fill|checksum|scan|by_source")
FUSED = re.compile(r"\bFFMA2?\b")


def run(*command):
    r = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if r.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}: {r.stdout}{r.stderr}")
    return r.stdout + r.stderr


def check(ptxas, nvdisasm, ptx, architecture, folder):
    """What is wrong with the kernels of a file, and how many there are."""
    cubin = folder / f"{ptx.stem}.{architecture}"
    said = run(ptxas, "-v", f"-arch={architecture}", ptx, "-o", cubin)
    found = re.findall(r"Compiling entry function '(\w+)'.*?(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads"
                       r".*?Used (\d+) registers", said, re.DOTALL)
    if len(found) != ptx.read_text().count(".visible .entry "):
        return [f"{ptx.name}, {architecture}: ptxas tells of {len(found)} kernels: {said}"], 0
    wrong = []
    for name, _, stores, loads, registers in found:
        threads = 512 if LONG.search(name) else 256
        if int(stores) or int(loads):
            wrong.append(f"{name}, {architecture}: spills {stores} and {loads} bytes")
        if -(-int(registers) // 8) * 8 * threads > REGISTERS:
            wrong.append(f"{name}, {architecture}: {threads} threads of {registers} registers")
    for section in re.split(r"(?=\.section\s+\.text\.)", run(nvdisasm, "-c", cubin))[1:]:
        name = re.match(r"\.section\s+\.text\.(\w+)", section)[1]
        if EXACT.match(name) and (line := next((l for l in section.splitlines() if FUSED.search(l)), None)):
            wrong.append(f"{name}, {architecture}: a product is fused with a sum: {line.strip()}")
    return wrong, len(found)


def main():
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor() as pool:
        jobs = [pool.submit(check, sys.argv[1], sys.argv[2], ptx, architecture, pathlib.Path(folder))
                for ptx in sorted(pathlib.Path(__file__).resolve().parent.glob("*.ptx")) for architecture in ARCHITECTURES]
        results = [job.result() for job in jobs]
    wrong = [text for texts, _ in results for text in texts]
    if wrong:
        raise SystemExit("\n".join(wrong))
    print(f"{sum(n for _, n in results) // len(ARCHITECTURES)} kernels: no spills, registers enough, exact ones without FFMA, on {', '.join(ARCHITECTURES)}")


if __name__ == "__main__":
    main()
