"""compile.py LIBNVRTC OUTPUT: compiles the kernels beside it to PTX, one file each, into a folder.

NVRTC is called by ctypes; no GPU and no CUDA headers are needed. The committed PTX is made by
    pip install nvidia-cuda-nvrtc-cu12==12.0.140
    compile.py .../nvidia/cuda_nvrtc/lib/libnvrtc.so.12 gds/cuda/kernels
which gives PTX 8.0: every driver since 525 compiles it for GPUs from sm_80 (Ampere) on.
"""
import ctypes
import pathlib
import sys

OPTIONS = ["--gpu-architecture=compute_80", "--std=c++17", "--fmad=false"]


def compile_file(nvrtc, source):
    def check(result):
        if result:
            nvrtc.nvrtcGetErrorString.restype = ctypes.c_char_p
            raise SystemExit(f"{source.name}: {nvrtc.nvrtcGetErrorString(result).decode()}")

    def text(size, get):
        n = ctypes.c_size_t()
        check(size(program, ctypes.byref(n)))
        buffer = ctypes.create_string_buffer(n.value)
        check(get(program, buffer))
        return buffer.value

    program = ctypes.c_void_p()
    check(nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.read_bytes(), source.name.encode(), 0, None, None))
    options = [o.encode() for o in OPTIONS + [f"--include-path={source.parent}"]]
    result = nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
    log = text(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog).decode().strip()
    if log:
        print(log, file=sys.stderr)
    check(result)
    return text(nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    library = ctypes.CDLL(sys.argv[1])
    major, minor = ctypes.c_int(), ctypes.c_int()
    library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    output = pathlib.Path(sys.argv[2])
    for file in sorted(pathlib.Path(__file__).resolve().parent.glob("*.cu")):
        (output / (file.stem + ".ptx")).write_bytes(compile_file(library, file))
    print(f"NVRTC {major.value}.{minor.value}: PTX in {output}")
