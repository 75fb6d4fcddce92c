"""Options that choose the nodes of a job: near other jobs or away from them, by topology, by labels and by
taints.
"""

from __future__ import annotations

from cli.spec.submit_options import value_texts
from cli.spec.submit_options.job_option import SUM, TERM, JobOption
from wire import amounts
from wire.job.placement.affinity import parse_preference, parse_term, parse_toleration
from wire.job.placement.gpu_requirements import parse_domains, parse_topology
from wire.job.placement.job_affinity import parse_job_term
from wire.names import ENGINE_LABEL

ROWS: tuple[JobOption, ...] = (
    JobOption(
        "near",
        "Run near a job with a label. The condition 'app=ps on node' means: on a node where a job with "
        "the label app=ps runs. 'app=ps on rack' means: in a rack (nodes with the same value of the node "
        "label rack) where such a job runs. ':prefer' at the end of the condition makes it a preference. "
        "May be repeated.",
        "company",
        read=lambda text: parse_job_term(text, 1),
        show=value_texts.job_terms("near"),
        **TERM,
    ),
    JobOption(
        "apart",
        "Run apart from jobs with a label. The condition 'app=db on node' means: not on a node where a job "
        "with the label app=db runs. 'app=db on rack' means: not in a rack where such a job runs. Jobs of "
        "other users with the label may still start near this job later. May be repeated.",
        "company",
        read=lambda text: parse_job_term(text, None),
        show=value_texts.job_terms("apart"),
        **TERM,
    ),
    JobOption(
        "over",
        "Spread jobs with a label. The condition 'app=db on rack=2' means: this job and all jobs with "
        "the label app=db use exactly 2 racks together. May be repeated.",
        "company",
        read=lambda text: parse_job_term(text, 0),
        show=value_texts.job_terms("over"),
        **TERM,
    ),
    JobOption(
        "same",
        "Use nodes that all have the same value of this node label (e.g. rack). LABEL:prefer makes this "
        "a preference.",
        "topology",
        metavar="LABEL",
        read=lambda text: parse_topology(text, 1),
        show=value_texts.topology("same"),
    ),
    JobOption(
        "different",
        "Use nodes that all have different values of this node label (e.g. rack). LABEL:prefer makes "
        "this a preference.",
        "topology",
        metavar="LABEL",
        read=lambda text: parse_topology(text, None),
        show=value_texts.topology("different"),
    ),
    JobOption(
        "domains",
        "Divide the job's nodes evenly over N values of this node label (e.g. rack=2: two racks).",
        "topology",
        metavar="LABEL=N",
        read=parse_domains,
        show=value_texts.topology("domains"),
    ),
    JobOption(
        "select",
        "Use only nodes with this label (node=gpu02 is one node). May be repeated.",
        "selector",
        metavar="KEY=VALUE",
        read=amounts.pair,
        show=value_texts.selected_labels,
        **SUM,
    ),
    JobOption(
        "engine",
        "Run on this execution engine of scheduler.toml, such as slurm or docker. 'corral engines' lists "
        "them. Jobs without this option run on an engine only if it has only_on_request = false.",
        "selector",
        metavar="NAME",
        read=lambda text: (ENGINE_LABEL, text),
        show=value_texts.engine,
    ),
    JobOption(
        "affinity",
        "Use only nodes whose labels meet this condition: 'zone in a,b', 'zone not in a', 'disk exists', "
        "'disk missing' or 'cores > 64'. May be repeated; a node must then meet all conditions.",
        read=parse_term,
        **TERM,
    ),
    JobOption(
        "prefer",
        "Prefer nodes whose labels meet this condition, written as for --affinity. A weight from 1 to "
        "100 may follow (e.g. 'zone in a weight 80'). Default for the weight: 50. May be repeated.",
        "preferences",
        read=parse_preference,
        title="prefers nodes",
        **TERM,
    ),
    JobOption(
        "tolerate",
        "Tolerate this taint of nodes, written as KEY=VALUE:EFFECT, KEY=VALUE, KEY or '*' (all taints). "
        "May be repeated.",
        "tolerations",
        metavar="TAINT",
        read=parse_toleration,
        title="tolerates",
        **SUM,
    ),
)
