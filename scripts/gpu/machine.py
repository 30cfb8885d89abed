"""What the machine is: its GPU, driver, processor, and which tools are there."""

import ctypes
import datetime
import glob
import json
import os
import platform
import shutil
import subprocess
import sys

QUERY = {"GPU": "name", "driver": "driver_version", "GPU memory": "memory.total", "compute capability": "compute_cap", "SM clock": "clocks.max.sm",
         "memory clock": "clocks.max.mem", "power limit": "power.limit"}
TORCH = ("import json, torch\n"
         "print(json.dumps([torch.__version__, torch.version.cuda, torch.cuda.is_available() and torch.cuda.get_device_name(0)]))")


def output_of(command, limit=60):
    """What a program prints, or None where it is not there or fails."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, universal_newlines=True, timeout=limit)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout if done.returncode == 0 else None


def gpu_name(device):
    """As NVIDIA's driver says; raises OSError where there is no driver or no such GPU."""
    driver, name, number = ctypes.CDLL("libcuda.so.1"), ctypes.create_string_buffer(256), ctypes.c_int()
    for error in (driver.cuInit(0), driver.cuDeviceGet(ctypes.byref(number), int(device)), driver.cuDeviceGetName(name, len(name), number)):
        if error:
            raise OSError(f"the driver has no GPU {device} (error {error})")
    return name.value.decode(errors="replace")


def gpu_facts(device):
    answer = output_of(["nvidia-smi", f"--query-gpu={','.join(QUERY.values())}", "--format=csv,noheader", "-i", device])
    values = [value.strip() for value in answer.split(",")] if answer else []
    return dict(zip(QUERY, values)) if len(values) == len(QUERY) else {}


def cpu_name():
    try:
        with open("/proc/cpuinfo") as file:
            return next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def tool(name):
    """A program of CUDA's, also where it is not on the PATH."""
    found = shutil.which(name)
    places = glob.glob(f"/usr/local/cuda*/bin/{name}") + glob.glob(f"/opt/nvidia/*/*/{name}")
    return found or (max(places) if places else None)


def torch_facts():
    """[version, CUDA, the GPU's name or False], or None without PyTorch."""
    answer = output_of([sys.executable, "-c", TORCH], 120)
    return json.loads(answer) if answer else None


def glibc_version():
    try:
        return os.confstr("CS_GNU_LIBC_VERSION").split()[-1]
    except (AttributeError, ValueError, OSError):
        return None


def facts(device):
    """What is known at once; PyTorch takes seconds to say what it is."""
    found = {"GPU": "the simulator" if device == "sim" else gpu_name(device), "simulated": device == "sim", "date": datetime.date.today().isoformat()}
    if device != "sim":
        found.update(gpu_facts(device))
    found["CPU"] = f"{cpu_name()}, {len(os.sched_getaffinity(0))} cores"
    found["system"] = f"{platform.system()} {platform.release()}, glibc {glibc_version()}"
    found["Python"] = platform.python_version()
    found["tools"] = ", ".join(name for name in ("compute-sanitizer", "nsys", "ncu") if device != "sim" and tool(name))
    return found
