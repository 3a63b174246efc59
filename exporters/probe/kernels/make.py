"""Compiles the kernels with NVRTC, and checks with ptxas that each target accepts them; started by `make`."""

import ctypes
import glob
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))

# Each source, the oldest GPU that it supports, and the oldest PTX version that it needs: drivers reject PTX newer than
# themselves, and NVRTC always writes its own version.
KERNELS = [("copy", 70, "6.3"), ("f32", 70, "6.3"), ("bf16", 80, "7.0")]


def site(pattern):
    """The first file of the wheels that matches."""
    found = glob.glob(os.path.join(sys.prefix, "lib", "python*", "site-packages", "nvidia", pattern))
    if not found:
        sys.exit(f"no {pattern} below {sys.prefix}: remove that folder and run make again")
    return found[0]


def compiled(nvrtc, name, target, version):
    """The PTX of a source."""
    with open(os.path.join(HERE, name + ".cu"), "rb") as file:
        source = file.read()
    program = ctypes.c_void_p()
    options = [f"--gpu-architecture=compute_{target}", "--std=c++17", f"--include-path={HERE}"]
    array = (ctypes.c_char_p * len(options))(*[option.encode() for option in options])
    if nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, (name + ".cu").encode(), 0, None, None):
        sys.exit("nvrtcCreateProgram failed")
    failed = nvrtc.nvrtcCompileProgram(program, len(options), array)
    size = ctypes.c_size_t()
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, log)
    if failed:
        sys.exit(f"{name}.cu: {log.value.decode()}")
    nvrtc.nvrtcGetPTXSize(program, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetPTX(program, text)
    ptx = text.value.decode()
    ptx = re.sub(r"^//.*\n", "", ptx, flags=re.MULTILINE)
    ptx = re.sub(r"^\.version .*$", f".version {version}", ptx, count=1, flags=re.MULTILINE)
    head = f"// Made from {name}.cu by exporters/probe/kernels/make; do not edit.\n"
    return head + re.sub(r"\n{2,}", "\n\n", ptx).lstrip("\n")


def targets(ptxas):
    """The GPUs that this ptxas supports, without variants."""
    known = subprocess.run([ptxas, "--help"], capture_output=True, text=True, check=True).stdout
    return sorted({int(number) for number in re.findall(r"'sm_(\d+)'", known)})


def assemble(ptxas, name, oldest):
    """Assembles a file with ptxas for each target; prints the result."""
    path = os.path.join(HERE, name + ".ptx")
    for target in [target for target in targets(ptxas) if target >= oldest]:
        ran = subprocess.run([ptxas, "-v", f"--gpu-name=sm_{target}", "-o", os.devnull, path],
                             capture_output=True, text=True, check=False)
        if ran.returncode:
            sys.exit(f"ptxas rejects {name}.ptx for sm_{target}: {ran.stderr}{ran.stdout}")
        spilled = re.findall(r"(\d+) bytes spill", ran.stderr)
        registers = [int(number) for number in re.findall(r"Used (\d+) registers", ran.stderr)]
        if any(int(number) for number in spilled):
            sys.exit(f"{name}.ptx spills registers on sm_{target}: {ran.stderr}")
        print(f"{name}.ptx sm_{target}: {len(registers)} kernels, at most {max(registers)} registers, no spills")


def main():
    check = "--check" in sys.argv[1:]
    nvrtc = ctypes.CDLL(site("cuda_nvrtc/lib/libnvrtc.so.*"))
    ptxas = site("cuda_nvcc/bin/ptxas")
    for name, oldest, version in KERNELS:
        path = os.path.join(HERE, name + ".ptx")
        ptx = compiled(nvrtc, name, oldest, version)
        if check:
            with open(path, encoding="utf-8") as file:
                if file.read() != ptx:
                    sys.exit(f"{name}.ptx does not match {name}.cu: run exporters/probe/kernels/make")
        else:
            with open(path, "w", encoding="utf-8") as file:
                file.write(ptx)
        assemble(ptxas, name, oldest)


main()
