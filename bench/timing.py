"""What every peer does around its step: times it, and prints one JSON line."""

import json
import re
import time
from pathlib import Path


def peak_bytes():
    """VmHWM, this process's own: unlike getrusage's ru_maxrss it does not start from the parent's peak."""
    return 1024 * int(re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text()).group(1))


def milliseconds(step):
    start = time.perf_counter()
    step()
    return 1e3 * (time.perf_counter() - start)


def measured(once, seconds, least=5):
    """What the calls of `once` that fit `seconds` return, `least` of them in any case."""
    end, times = time.perf_counter() + seconds, []
    while len(times) < least or time.perf_counter() < end:
        times.append(once())
    return times


def report(step, seconds, least=5, **row):
    """Prints `row` with the least milliseconds of the calls that fit `seconds`, `least` of them in any case.

    Three calls, or those that fit `seconds`, go before: the first ones compile and ask for memory.
    `step` returns when its work is done, not only started.
    """
    end = time.perf_counter() + seconds
    for _ in range(3):
        step()
        if time.perf_counter() > end:
            break
    times = measured(lambda: milliseconds(step), seconds, least)
    print(json.dumps({**row, "ms": min(times), "steps": len(times), "peak_bytes": peak_bytes()}))
