"""Random job specs for the state machines."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.engine_harness import spec
from wire.job.gangs import Gang, MemberFailure
from wire.job.placement.affinity import parse_preference, parse_term, parse_toleration
from wire.job.placement.gpu_requirements import GpuWish, Topology
from wire.job.placement.job_affinity import parse_job_term
from wire.job.start_conditions import OnNodeLost, Restart, RestartWhen

RESTARTS = st.builds(
    Restart,
    when=st.sampled_from(RestartWhen),
    limit=st.integers(1, 3),
    delay_s=st.sampled_from([0, 10]),
    codes=st.sampled_from([(), (1,), (137,)]),
)

WISHES = [GpuWish(numa="require"), GpuWish(nvlink="prefer"), GpuWish(least_mib=1_024)]

COMPANY = [
    parse_job_term("app=x on node", None),
    parse_job_term("app=y on node:prefer", 1),
    parse_job_term("app=x on node=2", 0),
]

SPECS = (
    st.builds(
        spec,
        gpus=st.sampled_from([0, 0.25, 0.5, 1, 2, 3, 4, 6, 8]),
        nodes=st.sampled_from([None, 1]),
        cpu_milli=st.sampled_from([500, 1000, 30_000]),
        scratch_mib=st.sampled_from([0, 0, 40 * 1024]),
        priority=st.sampled_from([0, 50, 75]),
        hold=st.booleans(),
        tolerations=st.sampled_from([(), (), (parse_toleration("broken"),), (parse_toleration("*"),)]),
        affinity=st.sampled_from([(), (), (), (parse_term("node in a,b"),), (parse_term("disk exists"),)]),
        preferences=st.sampled_from([(), (parse_preference("node in c"),)]),
        on_node_lost=st.sampled_from([None, OnNodeLost.REQUEUE, OnNodeLost.MANUAL]),
        datasets=st.sampled_from([(), (), ("c4",), ("c4:1G", "mnist:3G")]),
        gpu=st.sampled_from([None, None, None, *WISHES]),
        labels=st.sampled_from([{}, {}, {"app": "x"}, {"app": "y"}]),
        company=st.sampled_from([(), (), *((each,) for each in COMPANY)]),
    )
    | st.builds(
        spec,
        gpus=st.sampled_from([0, 6, 12]),
        nodes=st.just(3),
        gang=st.builds(
            Gang,
            min_nodes=st.sampled_from([None, 1, 2, 3]),
            on_failure=st.sampled_from(list(MemberFailure)),
            elastic=st.booleans(),
        ),
    )
    | st.builds(
        spec,
        gpus=st.sampled_from([0, 2, 8, 16]),
        nodes=st.just(2),
        priority=st.sampled_from([50, 100]),
        topology=st.sampled_from([None, Topology("disk", 1, True), Topology("node", None), Topology("zone")]),
        restart=RESTARTS,
    )
)

MOMENTS = st.none() | st.floats(0, 400)
"""Seconds from now, around the length of a run of the machine."""
