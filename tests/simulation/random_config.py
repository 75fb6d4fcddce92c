"""Random parts of the scheduler.toml of a trial, beside order and backfill."""

from __future__ import annotations

from typing import Any

from controller.sim.generate.random_numbers import RandomStream

PREEMPTION: tuple[dict[str, Any], ...] = (
    {"strategies": ["priority"], "min_runtime_s": 0.0},
    {"strategies": ["priority"], "min_runtime_s": 0.0, "cooldown_s": 0.0, "max_per_job": 50},
    {"strategies": [{"name": "fair", "threshold": 1.1}, "priority"], "min_runtime_s": 60.0},
    {"strategies": [{"name": "pressure", "most": 30}]},
)
REBALANCE = {
    "mode": "auto",
    "interval_s": 120.0,
    "kinds": ["defragment", "drain", "load"],
    "min_ratio": 0.0,
    "restart_s": 0.0,
    "load_gap": 0.3,
    "without_checkpoint": True,
}
QUOTAS: tuple[dict[str, Any], ...] = (
    {"users": {"*": {"gpus": 8, "running": 8, "soft": {"gpus": 4}}}},
    {"projects": {"p": {"gpus": 4, "borrow": {"gpus": 12}}, "q": {"gpus": 12}}, "reclaim": "preempt"},
    {"projects": {"*": {"cpus": 24}}, "users": {"ada": {"gpu_hours": 40}}, "window_s": 7_200.0},
)
PROFILES: tuple[dict[str, Any], ...] = (
    {"own": {"users": ["bo"], "nodes": ["n1", "n2"], "backfill": "conservative"}},
    {
        "left": {"users": ["bo"], "order": "shortest", "backfill": "easy"},
        "right": {
            "projects": ["q"],
            "nodes": ["n2", "n3"],
            "backfill": "aggressive",
            "preemption": {"strategies": ["priority"], "min_runtime_s": 0.0},
        },
    },
)


def drawn_rules(rng: RandomStream) -> dict[str, Any]:
    """Tables of scheduler.toml as parsed TOML."""

    def any_of(things: tuple[dict[str, Any], ...]) -> dict[str, Any]:
        return things[int(rng.uniform() * len(things))]

    said: dict[str, Any] = {}
    if rng.chance(0.6):
        said["preemption"] = any_of(PREEMPTION)
    if rng.chance(0.3):
        said["quota"] = any_of(QUOTAS)
    if rng.chance(0.25):
        said["profiles"] = any_of(PROFILES)
    elif rng.chance(0.4):
        said["rebalance"] = REBALANCE
    if rng.chance(0.3):
        said["fair_share"] = {"off_queue": "strays", "soft_limits": {"p": 2.0}}
    if rng.chance(0.4):
        said["licences"] = {"m": 3, "n": 1}
    if rng.chance(0.3):
        said["backfill"] = {"deadlines": "lift" if rng.chance(0.5) else "guard"}
        if rng.chance(0.5):
            said["backfill"] |= {"estimate": "predicted", "least_runs": 1, "quantile": 0.5}
    said["scheduler"] = {
        "on_node_lost": ("wait", "wait", "requeue-after-lease", "manual")[int(rng.uniform() * 4)],
        "strategy": "spread" if rng.chance(0.3) else "thrift",
        "waiting": {"promote_after_s": 900.0} if rng.chance(0.2) else {},
    }
    said["gpus"] = {"idle": ("flag", "requeue", "cancel")[int(rng.uniform() * 3)], "idle_grace_s": 60.0}
    return said
