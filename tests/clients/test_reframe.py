"""ReFrame, unmodified: a test through sacct and srun, and a test through squeue."""

from __future__ import annotations

from pathlib import Path

from tests.clients.clients import client_place, needs

SETTINGS = """
access = ["-p gpu", "--mem=200M"]
site_configuration = {
    "systems": [{"name": "emu", "hostnames": [".*"], "partitions": [
        {"name": "acct", "scheduler": "slurm", "launcher": "srun", "access": access,
         "environs": ["builtin"]},
        {"name": "queue", "scheduler": "squeue", "launcher": "local", "access": access,
         "environs": ["builtin"]}]}],
    "environments": [{"name": "builtin", "cc": "cc"}],
}
"""
CHECK = r"""
import reframe as rfm
import reframe.utility.sanity as sn

@rfm.simple_test
class Hello(rfm.RunOnlyRegressionTest):
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    executable = "echo"
    executable_opts = ["hello from", "$SLURM_JOB_ID"]

    @sanity_function
    def check(self):
        return sn.assert_found(r"hello from \d+", self.stdout)
"""


@needs("reframe")
def test_checks_pass(tmp_path: Path) -> None:
    with client_place(tmp_path) as client:
        (client.place / "settings.py").write_text(SETTINGS)
        (client.place / "hello.py").write_text(CHECK)
        done = client.run("reframe", "-C", "settings.py", "-c", "hello.py", "-r")
        assert done.returncode == 0, done.stdout + done.stderr
        assert "Ran 2/2 test case(s) from 1 check(s) (0 failure(s)" in done.stdout
