"""A real Slurm with accounting on this host: two nodes with simulated GPUs, in a directory of its own."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.limits import PATIENCE_S

PACKAGES = {
    "slurmctld-wlm": "slurmctld",
    "slurmd-wlm": "slurmd",
    "slurmdbd": "slurmdbd",
    "squeue": "slurm-client",
    "munged": "munge",
    "mariadbd": "mariadb-server",
}
"""The programs that a real Slurm needs, each with the Debian package that has it."""


def missing() -> str:
    """Return why a real Slurm cannot run here; empty if it can."""
    wanted = [package for program, package in PACKAGES.items() if shutil.which(program, path=_PATH) is None]
    if wanted:
        return f"needs the packages {' '.join(wanted)}"
    return "" if os.geteuid() == 0 else "a real Slurm with device files needs root"


_PATH = "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin"


class RealSlurm:
    """munged, mariadbd, slurmdbd, slurmctld and two slurmd, as children of this process."""

    def __init__(
        self,
        place: Path,
        partitions: tuple[str, ...] = ("gpu",),
        first_job: int = 1,
        enforced: str = "associations",
    ) -> None:
        self.place = place
        self.enforced = enforced
        self.first_job = first_job
        self.partitions = partitions
        self.ports = free_ports(5)
        self._children: list[subprocess.Popen[bytes]] = []

    @property
    def environment(self) -> Mapping[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
        return {**kept, "PATH": _PATH, "LC_ALL": "C", "SLURM_CONF": str(self.place / "slurm.conf")}

    def start(self) -> None:
        """Start all daemons, each after the one that it needs."""
        for name in ("munge", "db", "state", "spool/n1", "spool/n2", "log", "bin", "dev"):
            (self.place / name).mkdir(parents=True)
        self.place.chmod(0o755)
        for daemon in ("slurmctld", "slurmd", "slurmstepd"):
            # because these programs read from their own names which daemon they are
            (self.place / "bin" / daemon).symlink_to(shutil.which(f"{daemon}-wlm", path=_PATH) or "/missing")
        for index in range(4):
            os.mknod(self.place / "dev" / f"gpu{index}", 0o20666, os.makedev(195, index))
        self._write("munge/key", secrets.token_bytes(1_024))
        self._run_munge_and_database()
        self._write_configuration()
        self._spawn("slurmdbd", "-D")
        self._until(lambda: self.run("sacctmgr", "-nP", "show", "cluster").returncode == 0, "slurmdbd")
        self._fill_accounts()
        self._spawn(str(self.place / "bin" / "slurmctld"), "-D", "-c")
        for node in ("n1", "n2"):
            program = str(self.place / "bin" / "slurmd")
            self._spawn(program, "-D", "-d", str(self.place / "bin" / "slurmstepd"), "-N", node)
        idle = ("sinfo", "-h", "-p", self.partitions[0], "-t", "idle", "-o", "%D")
        self._until(lambda: self.run(*idle).stdout.strip() == "2", "idle nodes")

    def run(self, *words: str, place: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command of Slurm to its end."""
        return subprocess.run(
            words,
            cwd=place or self.place,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )

    @contextmanager
    def stopped(self, daemon: str) -> Iterator[None]:
        """Stop a daemon (SIGSTOP) for the time of the block."""
        [process] = [each for each in self._children if daemon in str(each.args)]
        process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            process.send_signal(signal.SIGCONT)

    @contextmanager
    def killed(self, daemon: str) -> Iterator[None]:
        """Kill a daemon (SIGKILL), and start it again after the block, with the state that it has saved."""
        [process] = [each for each in self._children if daemon in str(each.args)]
        process.kill()
        process.wait()
        self._children.remove(process)
        try:
            yield
        finally:
            # Leave out -c, with which slurmctld forgets its jobs.
            self._spawn(*(word for word in map(str, process.args) if word != "-c"))

    def end(self) -> None:
        """Cancel all jobs and stop the daemons, the last started first."""
        with suppress(subprocess.TimeoutExpired, OSError, RuntimeError):
            self.run("scancel", "-u", "root")
            # because a step whose slurmd has ended keeps its processes
            self._until(lambda: self.run("squeue", "-h").stdout == "", "the ends of the jobs")
        for child in reversed(self._children):
            child.send_signal(signal.SIGTERM)
            try:
                child.wait(20)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()

    def _run_munge_and_database(self) -> None:
        place = self.place
        self._spawn(
            "munged",
            *("--foreground", "--force", f"--key-file={place}/munge/key", f"--socket={place}/munge/sock"),
            *(f"--pid-file={place}/munge/pid", f"--log-file={place}/log/munged.log"),
            f"--seed-file={place}/munge/seed",
        )
        done = self.run(
            "mariadb-install-db",
            *("--no-defaults", "--user=root", f"--datadir={place}/db", "--skip-test-db"),
            *("--auth-root-authentication-method=normal", "--skip-name-resolve"),
        )
        done.check_returncode()
        self._spawn(
            "mariadbd",
            *("--no-defaults", "--user=root", f"--datadir={place}/db", f"--socket={place}/db.sock"),
            *("--bind-address=127.0.0.1", f"--port={self.ports[2]}", "--skip-name-resolve"),
            *("--innodb-log-file-size=16M", "--innodb-flush-log-at-trx-commit=0"),
            "--innodb-lock-wait-timeout=900",
        )
        client = ("mariadb", "--no-defaults", "-S", f"{place}/db.sock", "-e")
        self._until(lambda: self.run(*client, "select 1").returncode == 0, "mariadbd")
        statements = (
            "create database slurm_acct_db; create user slurm@'127.0.0.1' identified by 'slurm'; "
            "grant all on slurm_acct_db.* to slurm@'127.0.0.1'"
        )
        self.run(*client, statements).check_returncode()
        self._until((place / "munge" / "sock").exists, "munged")

    def _write_configuration(self) -> None:
        place, host = self.place, socket.gethostname().partition(".")[0]
        control, database_daemon, database, *nodes = self.ports
        auth = f"AuthType=auth/munge\nAuthInfo=socket={place}/munge/sock\n"
        self._write(
            "slurmdbd.conf",
            f"{auth}DbdHost=localhost\nDbdAddr=127.0.0.1\nDbdPort={database_daemon}\nSlurmUser=root\n"
            f"StorageType=accounting_storage/mysql\nStorageHost=127.0.0.1\nStoragePort={database}\n"
            "StorageUser=slurm\nStoragePass=slurm\nStorageLoc=slurm_acct_db\n"
            f"LogFile={place}/log/slurmdbd.log\nPidFile={place}/slurmdbd.pid\nCommitDelay=0\n",
        )
        partitions = "".join(
            f"PartitionName={name} Nodes=ALL Default=NO MaxTime=INFINITE State=UP OverSubscribe=NO\n"
            for name in self.partitions
        )
        node_lines = "".join(
            f"NodeName=n{number} NodeHostName={host} NodeAddr=127.0.0.1 Port={port} CPUs=16 Sockets=2 "
            "CoresPerSocket=8 ThreadsPerCore=1 RealMemory=100000 Gres=gpu:a100:4 State=UNKNOWN\n"
            for number, port in enumerate(nodes, 1)
        )
        self._write(
            "slurm.conf",
            f"FirstJobId={self.first_job}\nClusterName=emu\nSlurmctldHost={host}(127.0.0.1)\nSlurmctldPort={control}\n{auth}"
            "CommunicationParameters=NoInAddrAny,NoCtldInAddrAny\n"
            "AccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageHost=127.0.0.1\n"
            f"AccountingStoragePort={database_daemon}\nAccountingStoragePass={place}/munge/sock\n"
            f"AccountingStorageEnforce={self.enforced}\nAccountingStorageTRES=gres/gpu\n"
            f"SlurmUser=root\nSlurmdUser=root\nStateSaveLocation={place}/state\n"
            f"SlurmdSpoolDir={place}/spool/%n\nSlurmctldPidFile={place}/slurmctld.pid\n"
            f"SlurmdPidFile={place}/%n.pid\nSlurmctldLogFile={place}/log/slurmctld.log\n"
            f"SlurmdLogFile={place}/log/%n.log\nProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\n"
            "SwitchType=switch/none\nMpiDefault=none\nMailProg=/bin/true\nGresTypes=gpu\n"
            "JobAcctGatherType=jobacct_gather/linux\nSelectType=select/cons_tres\n"
            "SelectTypeParameters=CR_Core_Memory\nSchedulerType=sched/backfill\n"
            "SchedulerParameters=bf_interval=2,sched_min_interval=0,batch_sched_delay=0\n"
            "PriorityType=priority/multifactor\nPreemptType=preempt/partition_prio\nPreemptMode=REQUEUE\nSlurmdParameters=config_overrides\nReturnToService=2\n"
            f"MinJobAge=300\nKillWait=2\n{node_lines}{partitions}",
        )
        self._write("gres.conf", f"AutoDetect=off\nName=gpu Type=a100 File={place}/dev/gpu[0-3]\n")

    def _fill_accounts(self) -> None:
        for words in (
            ("add", "cluster", "emu"),
            ("add", "account", "default", "cluster=emu"),
            ("add", "user", "root", "account=default", "cluster=emu"),
            ("modify", "user", "root", "set", "defaultaccount=default"),
        ):
            self.run("sacctmgr", "-i", *words).check_returncode()

    def _write(self, name: str, content: str | bytes) -> None:
        path = self.place / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        path.chmod(0o600 if name in ("munge/key", "slurmdbd.conf") else 0o644)

    def _spawn(self, *words: str) -> None:
        name = words[0].rsplit("/", 1)[-1]
        with (self.place / "log" / f"{name}.out").open("ab") as log:
            child = subprocess.Popen(
                words, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self._children.append(child)

    def _until(self, true: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + PATIENCE_S
        while not true():
            dead = [child.args for child in self._children if child.poll() is not None]
            if dead or time.monotonic() > end:
                raise RuntimeError(f"Slurm waits for {what}; ended: {dead}; see {self.place}/log")
            time.sleep(0.05)


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
