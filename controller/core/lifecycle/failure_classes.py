"""Finds the class of a failed attempt, such as too little memory, from its exit status and its last log
lines.

1. Take the rules of the site in their order, then the rules of Corral. The first rule that matches gives the
   class.
2. If Corral or a user ended the attempt, use only rules that name the reason. If none matches, the attempt
   has no class.
3. Find the last line of the log that looks like the end of a Python exception, and try the rules on this
   line.
4. If none matches, try the rules on all lines of the log. If the log has a Python exception, use only rules
   with `anywhere` (rules that may match any line). For example, a line about a refused connection says little
   if the program ended with another exception.
5. If no rule matches, the class is `user_code`.

A rule matches if all its conditions hold. Cost: one search of each pattern in at most 8 KiB.

Example: the last line is `RuntimeError: CUDA error: device-side assert triggered`. Rule `cuda` matches that
line, so the class is `cuda` although an earlier line has `ConnectionError`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from wire.agent.reports import AttemptStatus

_EXCEPTION = re.compile(
    r"^(?:\[rank\d+\]: ?)?[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Failure)\b(?::|$)"
)
_LONGEST_LINE = 1_000


@dataclass(frozen=True, slots=True)
class FailureRule:
    """One class of failures: the conditions by which an attempt of this class is recognised, and advice for
    its user.

    `patterns` are regular expressions for one line of the log. `exit_codes` are exit codes as in a shell,
    where a signal counts as 128 plus its number. `reasons` are words such as `out_of_memory`: the reason for
    which Corral ended the attempt. A condition that is not set always holds, but a rule must set at least one
    condition.
    """

    name: str
    sentence: str
    remedy: str
    patterns: tuple[re.Pattern[str], ...] = ()
    exit_codes: tuple[int, ...] = ()
    reasons: tuple[str, ...] = ()
    anywhere: bool = True

    def ends_with(self, code: int | None, reason: str) -> bool:
        """Return whether an attempt with this exit code and reason meets `exit_codes` and `reasons`."""
        return (not self.exit_codes or code in self.exit_codes) and (
            not self.reasons or reason in self.reasons
        )

    def matches_line(self, line: str) -> bool:
        return any(pattern.search(line) for pattern in self.patterns)


def _rule(name: str, sentence: str, remedy: str, *patterns: str, anywhere: bool = True) -> FailureRule:
    return FailureRule(name, sentence, remedy, tuple(map(re.compile, patterns)), anywhere=anywhere)


USER_CODE = FailureRule(
    "user_code",
    "the program itself failed",
    "Read the last lines of its output: 'corral logs JOB'.",
)

RULES = (
    FailureRule(
        "out_of_memory",
        "the job needed more memory than its limit",
        "Request more with --memory; 'corral job stats JOB' shows the peak.",
        reasons=("out_of_memory",),
    ),
    FailureRule(
        "disk_full",
        "the job filled its scratch directory",
        "Request more with --scratch, or write less.",
        reasons=("scratch_exceeded",),
    ),
    _rule(
        "gpu_out_of_memory",
        "a GPU had too little memory",
        "Use a smaller batch, gradient checkpointing or a sharded model, or request GPUs with more memory "
        "(--gpu-memory).",
        r"CUDA out of memory|CUDA error: out of memory",
        r"\b(?:cuda\.)?OutOfMemoryError\b",
        r"CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation|hipErrorOutOfMemory|CUBLAS_STATUS_ALLOC_FAILED",
        r"RESOURCE_EXHAUSTED.*(?:allocat|memory)",
    ),
    _rule(
        "shared_memory",
        "processes of the job had too little shared memory",
        "Use fewer data loader workers, or torch.multiprocessing.set_sharing_strategy('file_system').",
        r"insufficient shared memory",
        r"unable to (?:open|mmap|write to) (?:file|shared memory).*(?:torch_|/dev/shm)",
    ),
    _rule(
        "out_of_memory",
        "the job ran out of memory",
        "Request more with --memory; 'corral job stats JOB' shows the peak.",
        r"^(?:numpy\.core\._exceptions\.)?_?(?:Array)?MemoryError\b",
        r"Cannot allocate memory|std::bad_alloc|DefaultCPUAllocator: can't allocate",
        r"DataLoader worker .* killed by signal: Killed",
    ),
    _rule(
        "disk_full",
        "a file system was full",
        "Delete files, write elsewhere, or request local disk with --scratch.",
        r"No space left on device|Disk quota exceeded|\bENOSPC\b|database or disk is full",
    ),
    _rule(
        "nccl",
        "the communication between GPUs failed (NCCL)",
        "Look for the first rank that failed: 'corral logs JOB --node NODE'. Set NCCL_DEBUG=INFO, and "
        "check the network interface (NCCL_SOCKET_IFNAME) and the time limit of collective operations.",
        r"\bnccl(?:System|Internal|UnhandledCuda|Remote)Error|\bNCCL (?:error|failure)",
        r"Watchdog caught collective operation timeout|DistBackendError",
    ),
    _rule(
        "cuda",
        "CUDA reported an error",
        "Set CUDA_LAUNCH_BLOCKING=1 to find the call. If the message names the driver or a missing "
        "device, compare the CUDA version of the program with that of the node ('corral nodes show NODE').",
        r"CUDA error|\bcudaError[A-Z]\w+|\bCUDA_ERROR_\w+|\bCUDNN_STATUS_\w+|\bCUBLAS_STATUS_\w+",
        r"device-side assert|no CUDA-capable device|CUDA driver version is insufficient",
        r"Torch not compiled with CUDA|Found no NVIDIA driver",
    ),
    _rule(
        "import_error",
        "a module, program or library was missing",
        "Activate the environment that has it before you submit, or use --env PATH or --image.",
        r"^(?:\[rank\d+\]: ?)?(?:ModuleNotFoundError|ImportError)\b",
        r"error while loading shared libraries|cannot open shared object file",
        r"(?:command not found|not found)$",
        r"version `(?:GLIBC|GLIBCXX|CXXABI)_[\d.]+' not found",
        anywhere=False,
    ),
    _rule(
        "network",
        "a network connection failed",
        "Check the address from the node: 'corral exec JOB -- curl -I URL'. Nodes may have no internet "
        "access: "
        "download data and models before, or set HF_HUB_OFFLINE=1.",
        r"\bConnection(?:Refused|Reset|Aborted)?Error\b|\bConnectTimeout\b|\bSSLError\b|\bgaierror\b",
        r"Connection (?:refused|reset by peer|timed out)|Name or service not known|Max retries exceeded",
        r"Temporary failure in name resolution|Could not resolve host",
        r"Network is unreachable|No route to host",
        r"\bURLError\b|\bRendezvous\w*Error\b",
        anywhere=False,
    ),
    _rule(
        "missing_file",
        "a file or directory was missing, or could not be read",
        "Check the path on the node: 'corral exec' in a running job, or the working directory (--workdir). "
        "Local disks of other hosts are not there.",
        r"^(?:\[rank\d+\]: ?)?(?:FileNotFoundError|PermissionError|NotADirectoryError|IsADirectoryError)\b",
        r"(?:No such file or directory|Permission denied)$",
        anywhere=False,
    ),
    FailureRule(
        "crash",
        "the program crashed (an error in native code, or a library that does not fit the host)",
        "Run it with PYTHONFAULTHANDLER=1 to see where, or under 'corral run' with a debugger.",
        exit_codes=(132, 134, 135, 136, 139),
    ),
)
"""The rules of Corral, in the order in which they are tried."""


def classified(status: AttemptStatus, site_rules: Iterable[FailureRule]) -> AttemptStatus:
    """Return the status of an attempt with its failure class, and without the lines of its log. Return the
    status unchanged if the attempt still runs or has succeeded.
    """
    if status.ended_at is None or not (status.code or status.signal or status.why):
        return status
    return replace(status, tail="", failure=failure_class(status, site_rules))


def failure_class(status: AttemptStatus, site_rules: Iterable[FailureRule]) -> str:
    """Return the name of the class of a failed attempt. Return an empty text if Corral or a user ended the
    attempt and no rule matches.
    """
    code = status.code if status.signal is None else 128 + status.signal
    reason = status.why.partition(":")[0]
    lines = [line.strip()[:_LONGEST_LINE] for line in status.tail.splitlines() if line.strip()]
    last = next((line for line in reversed(lines) if _EXCEPTION.match(line)), None)
    rules = [rule for rule in (*site_rules, *RULES) if rule.ends_with(code, reason)]
    # Use only rules that name the reason, because Corral or a user ended the attempt, and not an error in its
    # log.
    if reason:
        return next((rule.name for rule in rules if rule.reasons and _log_fits(rule, lines)), "")
    for rule in _by_line(rules, [] if last is None else [last]):
        return rule.name
    for rule in rules:
        if not rule.reasons and (rule.anywhere or last is None) and _log_fits(rule, lines):
            return rule.name
    return USER_CODE.name


def _by_line(rules: Iterable[FailureRule], lines: list[str]) -> Iterator[FailureRule]:
    return (rule for rule in rules if any(map(rule.matches_line, lines)))


def _log_fits(rule: FailureRule, lines: list[str]) -> bool:
    return not rule.patterns or any(map(rule.matches_line, lines))


def rule_of(name: str, site_rules: Iterable[FailureRule]) -> FailureRule | None:
    """Return the rule of a class, with its explanation and its advice. Return None if a site has removed the
    rule.
    """
    return next((rule for rule in (*site_rules, *RULES, USER_CODE) if rule.name == name), None)
