"""Checks the hardware that an agent reports in its first message (hello): amounts must be possible, and GPU
UUIDs valid.
"""

from __future__ import annotations

from collections import Counter

from wire.agent.reports import NodeFacts


def invalid_facts(facts: NodeFacts) -> str:
    """Return the reason why the reported hardware is impossible, such as negative memory; "" for possible
    hardware.
    """
    amounts = {
        "thousandths of a CPU": facts.cpu_milli,
        "MiB of memory": facts.memory_mib,
        "MiB of scratch": facts.storage_mib,
        "NUMA nodes": facts.numa_nodes,
        **{f"MiB on GPU {gpu.index}": gpu.memory_mib for gpu in facts.gpus},
    }
    short = next((f"{amount} {what}" for what, amount in amounts.items() if amount < 0), "")
    if short:
        return f"it reports {short}"
    [(uuid, times)] = Counter(gpu.uuid for gpu in facts.gpus).most_common(1) or [("", 0)]
    if times > 1:
        return f"it reports {times} GPUs with the UUID {uuid!r}"
    return "it reports a GPU without a UUID" if not all(gpu.uuid for gpu in facts.gpus) else ""
