"""Options that choose nodes: near or apart from other jobs, by topology, by labels and by taints."""

from __future__ import annotations

from cli.spec.options import option_texts
from cli.spec.options.job_option import SUM, TERM, JobOption
from wire import amounts
from wire.job.affinity import parse_preference, parse_term, parse_toleration
from wire.job.gpu_requirements import parse_domains, parse_topology
from wire.job.job_affinity import parse_job_term

ROWS: tuple[JobOption, ...] = (
    JobOption(
        "near",
        "Run where a job with this label runs: on the same node ('app=ps on node'), or on a node "
        "with the same value of a node label ('app=ps on rack'). Add ':prefer' to make this a "
        "preference. May be repeated.",
        "company",
        read=lambda text: parse_job_term(text, 1),
        show=option_texts.job_terms("near"),
        **TERM,
    ),
    JobOption(
        "apart",
        "Run where no job with this label runs: not on the same node ('app=db on node'), or not "
        "in the same rack ('app=db on rack'). Later, jobs of other users with this label may still start "
        "there. May be repeated.",
        "company",
        read=lambda text: parse_job_term(text, None),
        show=option_texts.job_terms("apart"),
        **TERM,
    ),
    JobOption(
        "over",
        "Spread this job and all jobs with this label over exactly N values of a node label, for "
        "example over two racks: 'app=db on rack=2'. May be repeated.",
        "company",
        read=lambda text: parse_job_term(text, 0),
        show=option_texts.job_terms("over"),
        **TERM,
    ),
    JobOption(
        "same",
        "Use nodes that all have the same value of this node label (e.g. rack). LABEL:prefer makes it "
        "a preference.",
        "topology",
        metavar="LABEL",
        read=lambda text: parse_topology(text, 1),
        show=option_texts.topology("same"),
    ),
    JobOption(
        "different",
        "Use nodes that all have different values of this node label (e.g. rack). LABEL:prefer makes "
        "it a preference.",
        "topology",
        metavar="LABEL",
        read=lambda text: parse_topology(text, None),
        show=option_texts.topology("different"),
    ),
    JobOption(
        "domains",
        "Divide the job's nodes evenly over N values of this node label (e.g. rack=2: two racks).",
        "topology",
        metavar="LABEL=N",
        read=parse_domains,
        show=option_texts.topology("domains"),
    ),
    JobOption(
        "select",
        "Use only nodes with this label. May be repeated.",
        "selector",
        metavar="KEY=VALUE",
        read=amounts.pair,
        **SUM,
    ),
    JobOption(
        "affinity",
        "Use only nodes whose labels match a condition: 'zone in a,b', 'zone not in a', 'disk "
        "exists', 'disk missing' or 'cores > 64'. May be repeated; all conditions must match.",
        read=parse_term,
        **TERM,
    ),
    JobOption(
        "prefer",
        "Prefer nodes whose labels match a condition, written as for --affinity. A weight from 1 "
        "to 100 may follow (e.g. 'zone in a weight 80'); its default is 50. May be repeated.",
        "preferences",
        read=parse_preference,
        title="prefers nodes",
        **TERM,
    ),
    JobOption(
        "tolerate",
        "Tolerate node taints, written as KEY=VALUE:EFFECT, KEY=VALUE, KEY or '*' (all taints). "
        "May be repeated.",
        "tolerations",
        metavar="TAINT",
        read=parse_toleration,
        title="tolerates",
        **SUM,
    ),
)
