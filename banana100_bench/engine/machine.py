"""What this machine has: cores and memory as this process may use them, and how much a piece of work took."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import sys
from pathlib import Path

_CGROUPS = (  # limit, use: version 2, then 1
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)
_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1  # of glibc's mallopt


def cores() -> int:
    """How many cores this process may use; a container's quota counts."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with contextlib.suppress(OSError, ValueError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        count = min(count, max(1, int(quota) // int(period)))
    return count


def available_memory() -> int:
    """Bytes that new work may take without swapping or being killed; a container's limit counts."""
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = int(next(line for line in lines if line.startswith("MemAvailable:")).split()[1]) << 10
    for limit, used in _CGROUPS:
        with contextlib.suppress(OSError, ValueError):
            free = min(free, int(Path(limit).read_text()) - int(Path(used).read_text()))
    return max(0, free)


def name() -> str:
    """What decides how fast this machine is, as far as it can be told: ``2 x AMD EPYC, 24 GB``."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for limit, _ in _CGROUPS:
        with contextlib.suppress(OSError, ValueError):
            memory = min(memory, int(Path(limit).read_text()))
    processor = platform.machine()
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        processor = next(line for line in lines if line.startswith("model name")).partition(":")[2].strip()
    return f"{cores()} x {processor}, {memory / (1 << 30):.0f} GB"


def resident() -> int:
    """Bytes of memory that this process holds now; 0 where the system does not say."""
    return _status("VmRSS")


def peak() -> int:
    """The most bytes it has held since `reset_peak`; 0 where the system does not say."""
    return _status("VmHWM")


def reset_peak() -> None:
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _status(field: str) -> int:
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) << 10
    return 0


def keep_freed_memory() -> None:
    """Make malloc keep what is freed instead of handing it back at once.

    By default glibc maps fresh pages for every tensor of more than 32 MB, and the kernel clears them: half
    of PIQE's time on a 2K picture. Only the main thread of a process gains (other threads' heaps are small).
    """
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(_MMAP_THRESHOLD, 1 << 30)
        libc.mallopt(_TRIM_THRESHOLD, 1 << 30)


def release_freed_memory() -> None:
    """Hand back what `keep_freed_memory` kept."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def set_threads(count: int) -> None:
    """Let numerical libraries use `count` threads in this process."""
    from threadpoolctl import threadpool_limits

    threadpool_limits(count)
    if "torch" in sys.modules:
        import torch

        torch.set_num_threads(count)


def die_with_parent() -> None:
    """Have the kernel kill this process when the thread that forked it ends, be it by kill -9 (Linux)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL
