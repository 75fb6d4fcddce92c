"""The configuration as `scontrol show config` prints it, for scripts that read single keys."""

from __future__ import annotations

import socket
import time

from cli.slurm.formats.times import moment
from cli.slurm.show.controller import ask, controller
from cli.slurm.show.squeue import MIN_JOB_AGE_S
from wire.job.arrays import MAX_ARRAY


def config_lines() -> list[str]:
    """Return the lines of `scontrol show config`. The name of the cluster, its start, its licences and
    whether it has GPUs come from the controller; the other values are fixed.
    """
    with controller() as transport:
        cluster = ask(transport, "/v1/cluster")
        licences = ask(transport, "/v1/licences")["licences"]
    names = ",".join(f"{each['name']}:{each['total']}" for each in licences)
    values = {
        "AccountingStorageEnforce": "associations,limits",
        "AccountingStorageHost": "localhost",
        "AccountingStorageTRES": "cpu,mem,energy,node,billing,gres/gpu",
        "AccountingStorageType": "accounting_storage/slurmdbd",
        "AuthType": "auth/munge",
        "BOOT_TIME": moment(cluster["started_at"], "Unknown"),
        "ClusterName": cluster["name"],
        "DefMemPerNode": "UNLIMITED",
        "EnforcePartLimits": "NO",
        "Epilog": "(null)",
        "FirstJobId": "1",
        "GresTypes": "gpu" if cluster["gpus"] else "(null)",
        "JobAcctGatherFrequency": "30",
        "JobAcctGatherType": "jobacct_gather/cgroup",
        "JobRequeue": "1",
        "KillOnBadExit": "0",
        "KillWait": "10 sec",
        "Licenses": names or "(null)",
        "MaxArraySize": str(MAX_ARRAY),
        "MaxJobCount": "100000",
        "MaxMemPerNode": "UNLIMITED",
        "MaxStepCount": "40000",
        "MaxTasksPerNode": "512",
        "MinJobAge": f"{MIN_JOB_AGE_S} sec",
        "MpiDefault": "none",
        "OverTimeLimit": "0 min",
        "PreemptMode": "REQUEUE",
        "PriorityType": "priority/multifactor",
        "PrivateData": "none",
        "ProctrackType": "proctrack/cgroup",
        "Prolog": "(null)",
        "ReturnToService": "2",
        "SchedulerType": "sched/backfill",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_CORE_MEMORY",
        "SlurmUser": "root(0)",
        "SlurmctldHost[0]": socket.gethostname(),
        "SlurmctldPort": "6817",
        "SlurmctldTimeout": "120 sec",
        "SlurmdPort": "6818",
        "SlurmdTimeout": "300 sec",
        "SLURM_CONF": "/etc/slurm/slurm.conf",
        "SLURM_VERSION": "22.05.8",
        "SwitchType": "switch/none",
        "TaskPlugin": "task/cgroup",
        "TmpFS": "/tmp",  # noqa: S108 - the default of Slurm, which this program does not use
        "TopologyPlugin": "topology/none",
        "TrackWCKey": "No",
        "TreeWidth": "50",
        "WaitTime": "0 sec",
    }
    head = f"Configuration data as of {moment(time.time(), 'Unknown')}"
    return [head, *(f"{name:<23} = {value}" for name, value in values.items()), ""]
