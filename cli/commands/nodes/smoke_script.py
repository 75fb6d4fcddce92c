"""The program that the job of `corral nodes test` runs on a node. It needs only Python 3.6 and its standard
library, and prints one JSON object for each check.
"""

from __future__ import annotations

WAITS = "waits"
"""The check name in the line that the program prints when it begins to wait for SIGUSR1."""

SCRIPT = r'''
import ctypes, hashlib, json, os, signal, sys, tempfile, time

ASKED = json.loads(sys.argv[1])
MIB = 1 << 20
PATTERNS = (0x5A5A5A5A, 0xA5A5A5A5)


class Failed(Exception):
    pass


def say(name, verdict, found, remedy=""):
    print(json.dumps({"name": name, "verdict": verdict, "found": found, "remedy": remedy}), flush=True)


def check(name, work, remedy):
    """Run one check. A check returns what it has found, or (verdict, what it has found, remedy)."""
    try:
        result = work()
    except Failed as error:
        say(name, "failed", str(error), remedy)
    except (OSError, MemoryError, ValueError) as error:
        say(name, "failed", "%s: %s" % (type(error).__name__, error), remedy)
    else:
        say(name, *(("ok", result) if isinstance(result, str) else result))


def rate(size, seconds):
    return "%.0f MiB/s" % (size / MIB / max(seconds, 1e-9))


def cpus():
    usable = len(os.sched_getaffinity(0))
    if usable < ASKED["cpus"]:
        raise Failed("the job may use %d CPUs and has requested %d" % (usable, ASKED["cpus"]))
    block, done, begin = os.urandom(MIB), 0, time.monotonic()
    first = hashlib.sha256(block).digest()
    while time.monotonic() - begin < 0.5:
        if hashlib.sha256(block).digest() != first:
            raise Failed("the same computation has given two results")
        done += MIB
    return "%d usable; SHA-256 of %s on one CPU" % (usable, rate(done, time.monotonic() - begin))


def memory():
    size, begin = ASKED["memory_mib"] * MIB, time.monotonic()
    block = bytearray(size)
    for pattern in (b"\x5a", b"\xa5"):
        page = pattern * MIB
        for at in range(0, size, MIB):
            block[at : at + MIB] = page
        if any(block[at : at + MIB] != page for at in range(0, size, MIB)):
            raise Failed("memory holds another value than was written")
    return "%d MiB written and read twice, %s" % (size // MIB, rate(4 * size, time.monotonic() - begin))


def disk():
    block, count = os.urandom(MIB), ASKED["disk_mib"]
    with tempfile.TemporaryFile() as file:
        begin = time.monotonic()
        for _ in range(count):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
        written = time.monotonic() - begin
        # Let the kernel forget the data, so that it is read from the disk.
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        file.seek(0)
        begin = time.monotonic()
        if any(file.read(MIB) != block for _ in range(count)):
            raise Failed("a file holds another value than was written")
        read = time.monotonic() - begin
    size = count * MIB
    return "%d MiB in %s: write %s, read %s" % (
        count, tempfile.gettempdir(), rate(size, written), rate(size, read))


class Cuda:
    """The driver API of CUDA, without any further library."""

    def __init__(self, library):
        self.library = library
        self.call("cuInit", 0)

    def call(self, name, *arguments):
        code = getattr(self.library, name)(*arguments)
        if code:
            text = ctypes.c_char_p()
            self.library.cuGetErrorName(code, ctypes.byref(text))
            raise Failed("%s: %s" % (name, (text.value or b"error %d" % code).decode()))

    def count(self):
        count = ctypes.c_int()
        self.call("cuDeviceGetCount", ctypes.byref(count))
        return count.value

    def test(self, index):
        """Fill a part of the GPU's memory with two patterns, and compare. Return the name and the speed."""
        device, name = ctypes.c_int(), ctypes.create_string_buffer(100)
        self.call("cuDeviceGet", ctypes.byref(device), index)
        self.call("cuDeviceGetName", name, 100, device)
        context, memory = ctypes.c_void_p(), ctypes.c_uint64()
        size = ASKED["gpu_mib"] * MIB
        self.call("cuCtxCreate_v2", ctypes.byref(context), 0, device)
        try:
            self.call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(size))
            copy, begin = ctypes.create_string_buffer(size), time.monotonic()
            for pattern in PATTERNS:
                self.call("cuMemsetD32_v2", memory, ctypes.c_uint(pattern), ctypes.c_size_t(size // 4))
                self.call("cuMemcpyDtoH_v2", copy, memory, ctypes.c_size_t(size))
                if copy.raw != pattern.to_bytes(4, "little") * (size // 4):
                    raise Failed("the memory of the GPU holds another value than was written")
            seconds = time.monotonic() - begin
            self.call("cuMemFree_v2", memory)
        finally:
            self.library.cuCtxDestroy_v2(context)
        return "%s, %s" % (name.value.decode(errors="replace"), rate(2 * size, seconds))


def gpus():
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        if os.path.exists("/sys/module/nvidia"):
            raise Failed("the kernel has NVIDIA's driver, but the job finds no libcuda.so.1")
        return "note", "not tested: the kernel has no NVIDIA driver, as on a node with simulated GPUs", ""
    cuda = Cuda(library)
    if cuda.count() != ASKED["gpus"]:
        raise Failed("the job sees %d GPUs and has requested %d" % (cuda.count(), ASKED["gpus"]))
    for index in range(ASKED["gpus"]):
        remedy = "See 'corral gpus', and nvidia-smi on the node."
        check("GPU %d" % index, lambda: cuda.test(index), remedy)
    return "the job sees the %d that it has requested" % ASKED["gpus"]


def orders():
    """Wait for the signal that the client sends when it has tested the connection."""
    say("waits", "ok", "")
    if signal.sigtimedwait([signal.SIGUSR1], 60) is None:
        raise Failed("no signal has arrived in 60 s")
    return "a signal from the controller has arrived"


signal.signal(signal.SIGUSR1, lambda *_: None)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
check("CPU", cpus, "See [jobs] bind in scheduler.toml, and the load of the node outside of jobs.")
check("memory", memory, "Look for memory errors: dmesg, ECC counters.")
check("local disk", disk, "Make room, or check the disk with smartctl.")
if ASKED["gpus"]:
    check("GPUs", gpus, "See 'corral gpus', and nvidia-smi on the node.")
check("orders", orders, "'corral nodes show' says whether the node answers.")
'''
