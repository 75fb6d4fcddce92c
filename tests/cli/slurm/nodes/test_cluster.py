"""sinfo and scontrol show on a running cluster."""

from __future__ import annotations

import re

import pytest

from cli.slurm.nodes.sinfo_fields import FIELDS
from tests.cli.slurm.conftest import Slurm, masked

NODE = """\
NodeName=n1 Arch=x86_64 CoresPerSocket=8 
   CPUAlloc=4 CPUEfctv=16 CPUTot=16 CPULoad=N/A
   AvailableFeatures=a100
   ActiveFeatures=a100
   Gres=gpu:a100:4
   NodeAddr=n1 NodeHostName=n1 Version=22.05.8
   RealMemory=100000 AllocMem=3572 FreeMem=N/A Sockets=2 Boards=1
   State=MIXED ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A
   Partitions=default,gpu 
"""  # noqa: W291 - as scontrol prints it
PARTITION = """\
PartitionName=gpu
   AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL
   AllocNodes=ALL Default=NO QoS=N/A
   DefaultTime=NONE DisableRootJobs=NO ExclusiveUser=NO GraceTime=0 Hidden=NO
   MaxNodes=UNLIMITED MaxTime=UNLIMITED MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED
   Nodes=n[1-2]
   PriorityJobFactor=0 PriorityTier=0 RootOnly=NO ReqResv=NO OverSubscribe=NO
   OverTimeLimit=NONE PreemptMode=REQUEUE
   State=UP TotalCPUs=32 TotalNodes=2 SelectTypeParameters=NONE
   JobDefaults=(null)
   DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED
   TRES=cpu=32,mem=200000M,node=2,billing=32,gres/gpu=8

"""
JOB = """\
JobId=4 JobName=alpha
   UserId=OWNER GroupId=GROUP MCS_label=N/A
   Priority=50 Nice=0 Account=default QOS=normal
   JobState=RUNNING Reason=None Dependency=(null)
   Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0
   DerivedExitCode=0:0
   RunTime=00:00:SS TimeLimit=00:10:00 TimeMin=N/A
   SubmitTime=TIME EligibleTime=TIME
   AccrueTime=TIME
   StartTime=TIME EndTime=TIME Deadline=N/A
   PreemptEligibleTime=TIME PreemptTime=None
   SuspendTime=None SecsPreSuspend=0 LastSchedEval=TIME Scheduler=Main
   Partition=gpu AllocNode:Sid=(null):0
   ReqNodeList=(null) ExcNodeList=(null)
   NodeList=n1
   BatchHost=n1
   NumNodes=1 NumCPUs=2 NumTasks=1 CPUs/Task=2 ReqB:S:C:T=0:0:*:*
   TRES=cpu=2,mem=500M,node=1,billing=2,gres/gpu=2
   Socks/Node=* NtasksPerN:B:S:C=0:0:*:* CoreSpec=*
   JOB_GRES=gpu:a100:2
     Nodes=n1 CPU_IDs=0-1 Mem=500 GRES=gpu:a100:2(IDX:0-1)
   MinCPUsNode=2 MinMemoryNode=500M MinTmpDiskNode=0
   Features=(null) DelayBoot=00:00:SS
   OverSubscribe=OK Contiguous=0 Licenses=(null) Network=(null)
   Command=(null)
   WorkDir=/tmp
   StdErr=/tmp/slurm-4.out
   StdIn=/dev/null
   StdOut=/tmp/slurm-4.out
   Power=
   TresPerNode=gres:gpu:a100:2
   

"""  # noqa: W293 - as scontrol prints it


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (
            (),
            "PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\n"
            "default*     up   infinite      1    mix n1\ndefault*     up   infinite      1   idle n2\n"
            "gpu          up   infinite      1    mix n1\ngpu          up   infinite      1   idle n2\n",
        ),
        (
            ("-N", "-p", "gpu"),
            "NODELIST   NODES PARTITION STATE \nn1             1       gpu mix   \n"
            "n2             1       gpu idle  \n",
        ),
        (
            ("-s", "-p", "gpu"),
            "PARTITION AVAIL  TIMELIMIT   NODES(A/I/O/T) NODELIST\n"
            "gpu          up   infinite          1/1/0/2 n[1-2]\n",
        ),
        (("-h", "-p", "gpu", "-o", "%P %G %l %p %c %m"), "gpu gpu:a100:4 infinite 0 16 100000\n"),
        (("-e", "-o", "%X %Y %Z %c %D %G"), "SOCKETS CORES THREADS CPUS NODES GRES\n2 8 1 16 2 gpu:a100:4\n"),
        (("-h", "-N", "-o", "%3N|%12G"), "n1 |gpu:a100:4  \nn2 |gpu:a100:4  \n"),
        (("-h", "-o", "%R"), "default\ngpu\n"),
        (("-a", "-h", "-p", "gpu", "-O", "CPUs:4,Memory:8,Partition:4"), "16  100000  gpu \n"),
        (
            ("-h", "-p", "gpu", "-O", "GresUsed:20,NodeList:3"),
            "gpu:a100:2(IDX:0-1) n1 \ngpu:a100:0(IDX:N/A) n2 \n",
        ),
        (("-h", "-p", "gpu", "-o", "%C %A %F"), "4/28/0/32 1/1 1/1/0/2\n"),
        (("-h", "-t", "idle", "-p", "gpu", "-o", "%t %N"), "idle n2\n"),
        (("-h", "-n", "nope", "-p", "gpu"), "gpu          up   infinite      0    n/a \n"),
        (("-h", "-p", "nope"), ""),
        (("-R",), "REASON               USER      TIMESTAMP           NODELIST\n"),
        (("-T",), "No reservations in the system\n"),
        (("-V",), "slurm-wlm 22.05.8\n"),
    ],
)
def test_sinfo(slurm: Slurm, words: tuple[str, ...], text: str) -> None:
    printed = slurm("sinfo", *words)
    assert (printed.out, printed.err, printed.code) == (text, "", 0)


def test_each_field_of_sinfo_has_a_value(slurm: Slurm) -> None:
    for field in FIELDS:
        for words in (("-O", f"{field.name}:40"), ("-n", "nope", "-O", f"{field.name}:40")):
            printed = slurm("sinfo", "-h", *words)
            assert (printed.err, printed.code) == ("", 0), field.name


def test_drained_node_has_a_reason(slurm: Slurm) -> None:
    from wire.http.client import Client

    with Client() as client:
        client.drain("n2", "disk broken")
        try:
            reasons = masked(slurm("sinfo", "-R", "-h").out)
            assert reasons == "disk broken          Unknown   TIME n2\n"
            assert slurm("sinfo", "-h", "-p", "gpu", "-t", "drain", "-o", "%t %T %E").out == (
                "drain drained disk broken\n"
            )
            assert "State=IDLE+DRAIN " in slurm("scontrol", "show", "node", "n2").out
            assert re.search(r"Reason=disk broken \[root@", slurm("scontrol", "show", "node", "n2").out)
        finally:
            client.resume("n2")


def test_node(slurm: Slurm) -> None:
    assert slurm("scontrol", "show", "node", "n1").out.startswith(NODE)
    lines = slurm("scontrol", "-a", "show", "-o", "nodes").out.splitlines()
    assert [line.split()[0] for line in lines] == ["NodeName=n1", "NodeName=n2"]


def test_partition(slurm: Slurm) -> None:
    assert slurm("scontrol", "show", "partition", "gpu").out == PARTITION
    assert slurm("scontrol", "show", "partition", "-o").out.count("\n") == 2


def test_job(slurm: Slurm) -> None:
    user = slurm("squeue", "-h", "-j", "4", "-o", "%u(%U) %g(%G)").out.split()
    expected = JOB.replace("OWNER", user[0]).replace("GROUP", user[1])
    assert masked(slurm("scontrol", "show", "jobid", "-dd", "4").out) == expected
    one = slurm("scontrol", "show", "job", "-o", "4").out
    assert (one.count("\n"), re.findall(r"JobState=(\w+)|ExitCode=(\S+)", one)) == (
        *(1, [("RUNNING", ""), ("", "0:0")]),
    )


def test_array_and_waiting_jobs(slurm: Slurm) -> None:
    text = slurm("scontrol", "show", "job", "5").out
    assert "ArrayJobId=5 ArrayTaskId=3-6%2 ArrayTaskThrottle=2 JobName=arr" in text
    assert "JobId=6 ArrayJobId=5 ArrayTaskId=2 ArrayTaskThrottle=2" in text
    text = slurm("scontrol", "show", "job", "11").out
    assert "NumNodes=2-2 NumCPUs=2" in text
    assert "JobState=PENDING Reason=Resources" in text


def test_configuration_has_the_keys_that_clients_read(slurm: Slurm) -> None:
    lines = slurm("scontrol", "show", "config").out.splitlines()
    pairs = [line.partition(" = ") for line in lines if " = " in line]
    found = {key.strip(): value for key, _, value in pairs}
    assert found["ClusterName"] == "emu"
    assert found["MinJobAge"] == "300 sec"
    assert int(found["MaxArraySize"]) == 10_000
    assert found["SLURM_VERSION"] == "22.05.8"


@pytest.mark.parametrize(
    ("words", "out", "err", "code"),
    [
        (("show", "hostnames", "n[1-2,5]"), "n1\nn2\nn5\n", "", 0),
        (("show", "hostlist", "n1,n2,n5"), "n[1-2,5]\n", "", 0),
        (("show", "hostlistsorted", "n3,n1,n2"), "n[1-3]\n", "", 0),
        (("show", "hostnames"), "", "scontrol: error: host list is empty\n", 0),
        (("show", "job", "999"), "", "slurm_load_jobs error: Invalid job id specified\n", 1),
        (("show", "node", "nope"), "Node nope not found\n", "", 1),
        (("show", "partition", "nope"), "Partition nope not found\n", "", 1),
        (("show", "foo"), "", "invalid entity:foo for keyword:show \n", 1),
        (("foo",), "", "invalid keyword: foo\n", 1),
        (("show", "reservation"), "No reservations in the system\n", "", 0),
        (("show", "lic"), "No licenses configured in Slurm.\n", "", 0),
        (("--version",), "slurm-wlm 22.05.8\n", "", 0),
        (("version",), "slurm-wlm 22.05.8\n", "", 0),
    ],
)
def test_other_answers(
    slurm: Slurm, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], out: str, err: str, code: int
) -> None:
    monkeypatch.delenv("SLURM_JOB_NODELIST", raising=False)
    assert slurm("scontrol", *words) == (out, err, code)


def test_ping_and_steps(slurm: Slurm, monkeypatch: pytest.MonkeyPatch) -> None:
    assert slurm("scontrol", "ping").out.endswith(" is UP\n")
    assert slurm("scontrol", "show", "steps").out.startswith("StepId=4.batch UserId=")
    monkeypatch.setenv("CORRAL_URL", "unix:///nonexistent/corral.sock")
    printed = slurm("scontrol", "ping")
    assert (printed.code, printed.out[-9:]) == (1, " is DOWN\n")
