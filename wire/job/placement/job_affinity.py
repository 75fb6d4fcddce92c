"""Job affinity: conditions that place a job near jobs with a label, away from such jobs, or over a fixed
number of domains together with such jobs.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Iterator, Optional

from wire.dataclass import dataclass
from wire.job.placement.affinity import KEY

if TYPE_CHECKING:
    from wire.job.spec import JobSpec

MAX_LABELS = 16
MAX_TERMS = 16
_TEXT = re.compile(r"([^=\s]+)=(\S*)\s+on\s+(\S+?)(:prefer|:require)?", re.IGNORECASE)


@dataclass(frozen=True)
class JobTerm:
    """A condition on the nodes of a job: near the running jobs that have the label `key=value`, away from
    them, or spread over domains together with them.

    A domain is the set of nodes with the same value of the node label `topology`; for `node` each node is a
    domain. If `domains` is 1, the job runs only in a domain where a job with the label runs. If `domains` is
    None, the job does not start in a domain where a job with the label runs. While the job runs, no job of
    the same user with the label starts in its domain. If `domains` is a number N above 1, the job and all
    jobs with the label together use exactly N domains. With `prefer` this is a preference and not a
    requirement.
    """

    key: str
    value: str
    topology: str = "node"
    domains: Optional[int] = 1
    prefer: bool = False

    def __str__(self) -> str:
        how = {1: "near", None: "apart from"}.get(self.domains, f"over {self.domains} with")
        return f"{how} {self.key}={self.value} on {self.topology}" + (" if possible" if self.prefer else "")


def parse_job_term(text: str, domains: Optional[int]) -> JobTerm:
    """Parse a condition such as `app=ps on rack` or `app=ps on rack:prefer`. `domains` is the number of
    domains. If `domains` is 0, the text must have this number, as in `app=ps on rack=2`. Raise ValueError for
    any other text.
    """
    match = _TEXT.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"cannot read {text!r}; write 'app=ps on rack', or 'app=ps on rack:prefer'")
    topology = match[3]
    if domains == 0:
        topology, _, number = topology.partition("=")
        if not number.isascii() or not number.isdigit() or not 0 < int(number[:6]) <= 10_000:
            raise ValueError(f"cannot read {text!r}; write 'app=ps on rack=2'")
        domains = int(number)
    return JobTerm(match[1], match[2], topology, domains, (match[4] or "").lower() == ":prefer")


def job_affinity_problems(spec: JobSpec) -> Iterator[tuple[str, str]]:
    """Validate the labels and the job affinity of a JobSpec. Yield each mistake as (field name, sentence for
    users).
    """
    if len(spec.labels) > MAX_LABELS:
        yield "labels", f"may have at most {MAX_LABELS} entries"
    if len(spec.company) > MAX_TERMS:
        yield "company", f"may have at most {MAX_TERMS} entries"
    for key, value in spec.labels.items():
        if not KEY.fullmatch(key) or len(value) > 200:
            yield (
                f"labels.{key}",
                "is not a label: a key of letters and digits, a value of at most 200 characters",
            )
    for at, term in enumerate(spec.company):
        if not (KEY.fullmatch(term.key) and KEY.fullmatch(term.topology)) or len(term.value) > 200:
            yield f"company[{at}]", "does not name a label of jobs and a label of nodes"
        if term.domains is not None and not 1 <= term.domains <= 10_000:
            yield f"company[{at}].domains", "must lie between 1 and 10000"
