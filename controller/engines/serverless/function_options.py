"""The options of `[engines.NAME]` that all engines on serverless functions have."""

from __future__ import annotations

import re
from dataclasses import dataclass

from wire.agent.orders import Start
from wire.job.spec import JobSpec

MOST_PAYLOAD_BYTES = 256 * 1024
"""The most bytes of one event. AWS Lambda refuses longer events."""
MARGIN_S = 10.0
"""The seconds at the end of the longest call (`longest_s`) in which the function writes the output and the
result.
"""
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_PREFIX = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,63}/){1,8}")


@dataclass(frozen=True, kw_only=True)
class FunctionOptions:
    """The options that all engines on serverless functions have.

    - `bucket`, `region`, `storage_endpoint` and `prefix` name the place of the results in an S3-compatible
      storage; without `storage_endpoint` it is Amazon S3. `credentials_file` has the access key.
    - `users` are the users of Corral whose jobs may run in the function, because all jobs have the rights of
      the function; "*" means all users.
    - `cpus` and `memory_mib` are the resources of one call, `longest_s` is the most seconds of one call, as
      they are set for the function. `concurrency` is the most calls at the same time.
    - If a job has not started `repeat_s` seconds after the call of the function, the function is called
      again. After `late_s` seconds an event does not start its job any more.
    - `poll_s` is how often a function looks for a request to stop, and writes the output.
    """

    bucket: str
    users: tuple[str, ...]
    region: str = "us-east-1"
    storage_endpoint: str = ""
    prefix: str = "corral/"
    credentials_file: str = ""
    cpus: float = 1.0
    memory_mib: int = 1_024
    longest_s: float = 900.0
    concurrency: int = 10
    repeat_s: float = 60.0
    late_s: float = 3_600.0
    poll_s: float = 5.0
    log_kib: int = 1_024

    def __post_init__(self) -> None:
        if not _BUCKET.fullmatch(self.bucket):
            raise ValueError(f"bucket: {self.bucket!r} is not the name of a bucket")
        if not _PREFIX.fullmatch(self.prefix):
            raise ValueError(f'prefix: {self.prefix!r} does not have the form "NAME/"')
        if not self.users:
            raise ValueError(
                'users: name the users whose jobs may run with the rights of the function, or write ["*"]'
            )
        if self.longest_s <= 2 * MARGIN_S:
            raise ValueError(f"longest_s: must be more than {2 * MARGIN_S:g}")
        for key, least, most in (
            ("cpus", 0.01, 1_024),
            ("memory_mib", 1, 1 << 30),
            ("longest_s", 0, 86_400),
            ("concurrency", 1, 100_000),
            ("repeat_s", 0.05, 86_400),
            ("late_s", 0.05, 86_400),
            ("poll_s", 0.05, 600),
            ("log_kib", 1, 32_768),
        ):
            if not least <= getattr(self, key) <= most:
                raise ValueError(f"{key}: must be between {least:g} and {most:g}")
        if self.storage_endpoint and not self.storage_endpoint.startswith(("https://", "http://")):
            raise ValueError("storage_endpoint: write an address such as https://s3.example.com")

    def refusal(self, order: Start | JobSpec, user: str) -> str:
        """Return why the function cannot run the job of the user; empty if it can."""
        if "*" not in self.users and user not in self.users:
            return f"the jobs of {user} may not run there (option users)"
        if order.gpus:
            return "functions have no GPUs; submit the job without --gpus, or to nodes with GPUs"
        if order.cpu_milli > self.cpus * 1_000:
            return (
                f"the job requests {order.cpu_milli / 1_000:g} CPUs, and a call of the function has "
                f"{self.cpus:g}"
            )
        if order.memory_mib > self.memory_mib:
            return (
                f"the job requests {order.memory_mib} MiB of memory, and a call of the function has "
                f"{self.memory_mib}"
            )
        if order.time_limit_s is not None and order.time_limit_s > self.longest_s - MARGIN_S:
            return (
                f"the job has a time limit of {order.time_limit_s:g} s, and a function may run it for at "
                f"most {self.longest_s - MARGIN_S:g} s; submit the job with a shorter --time"
            )
        return ""
