"""squeue, sinfo and sacct with --json and --yaml have the keys of Slurm 22.05."""

from __future__ import annotations

import json

import pytest

from cli.slurm.openapi.accounting import exit_object
from tests.cli.slurm.conftest import Slurm

JOB_KEYS = """
account accrue_time admin_comment array_job_id array_task_id array_max_tasks array_task_string
association_id batch_features batch_flag batch_host flags burst_buffer burst_buffer_state cluster
cluster_features command comment container contiguous core_spec thread_spec cores_per_socket
billable_tres cpus_per_task cpu_frequency_minimum cpu_frequency_maximum cpu_frequency_governor
cpus_per_tres deadline delay_boot dependency derived_exit_code eligible_time end_time excluded_nodes
exit_code features federation_origin federation_siblings_active federation_siblings_viable
gres_detail group_id group_name job_id job_resources job_state last_sched_evaluation licenses
max_cpus max_nodes mcs_label memory_per_tres name nodes nice tasks_per_core tasks_per_node
tasks_per_socket tasks_per_board cpus node_count tasks het_job_id het_job_id_set het_job_offset
partition prefer memory_per_node memory_per_cpu minimum_cpus_per_node minimum_tmp_disk_per_node
preempt_time pre_sus_time priority profile qos reboot required_nodes requeue resize_time restart_cnt
resv_name shared show_flags sockets_per_board sockets_per_node start_time state_description
state_reason standard_error standard_input standard_output submit_time suspend_time system_comment
time_limit time_minimum threads_per_core tres_bind tres_freq tres_per_job tres_per_node
tres_per_socket tres_per_task tres_req_str tres_alloc_str user_id user_name wckey
current_working_directory
"""
NODE_KEYS = """
architecture burstbuffer_network_address boards boot_time comment cores cpu_binding cpu_load extra
free_memory cpus last_busy features active_features gres gres_drained gres_used mcs_label name
next_state_after_reboot address hostname state state_flags next_state_after_reboot_flags
operating_system owner partitions port real_memory reason reason_changed_at reason_set_by_user
slurmd_start_time sockets threads temporary_disk weight tres slurmd_version alloc_memory alloc_cpus
idle_cpus tres_used tres_weighted
"""
ACCOUNTING_KEYS = """
account comment allocation_nodes array association cluster constraints container derived_exit_code
time exit_code flags group het job_id name mcs nodes partition priority qos required
kill_request_user reservation state steps tres user wckey working_directory
"""
STEP_KEYS = "nodes tres time exit_code tasks pid CPU kill_request_user state statistics step task"


def test_jobs_of_squeue(slurm: Slurm) -> None:
    whole = json.loads(slurm("squeue", "--json").out)
    assert whole["meta"]["plugin"]["type"] == "openapi/v0.0.38"
    assert whole["errors"] == []
    jobs = {job["name"]: job for job in whole["jobs"]}
    alpha = jobs["alpha"]
    assert list(alpha) == JOB_KEYS.split()
    assert (alpha["job_id"], alpha["job_state"], alpha["nodes"], alpha["cpus"]) == (4, "RUNNING", "n1", 2)
    assert (alpha["gres_detail"], alpha["memory_per_node"], alpha["time_limit"]) == (
        ["gpu:a100:2(IDX:0-1)"],
        500,
        10,
    )
    [there] = alpha["job_resources"]["allocated_nodes"]
    assert (there["nodename"], there["cpus_used"], there["memory_allocated"]) == ("n1", 2, 500)
    assert (jobs["held"]["job_state"], jobs["held"]["state_reason"]) == ("PENDING", "JobHeldUser")
    assert jobs["dep"]["dependency"] == "afterok:4(unfulfilled)"
    assert "job_resources" not in jobs["held"]
    [waiting] = [job for job in whole["jobs"] if job["array_task_string"]]
    assert (waiting["array_job_id"], waiting["array_task_string"]) == (5, "3-6%2")
    only = json.loads(slurm("squeue", "--json", "-j", "4").out)["jobs"]
    assert [job["job_id"] for job in only] == [4]


def test_nodes_of_sinfo(slurm: Slurm) -> None:
    nodes = json.loads(slurm("sinfo", "--json").out)["nodes"]
    assert [node["name"] for node in nodes] == ["n1", "n2"]
    assert list(nodes[0]) == NODE_KEYS.split()
    assert (nodes[0]["state"], nodes[0]["cpus"], nodes[0]["gres"]) == ("mixed", 16, "gpu:a100:4")
    assert nodes[0]["alloc_cpus"] + nodes[0]["idle_cpus"] == 16
    assert nodes[0]["partitions"] == ["default", "gpu"]
    assert [node["name"] for node in json.loads(slurm("sinfo", "--json", "-n", "n2").out)["nodes"]] == ["n2"]


def test_jobs_and_steps_of_sacct(slurm: Slurm) -> None:
    good, alpha = json.loads(slurm("sacct", "--json", "-j", "1,4").out)["jobs"]
    assert sorted(good) == sorted(ACCOUNTING_KEYS.split())
    assert list(alpha["steps"][0]) == STEP_KEYS.split()
    assert (alpha["steps"][0]["state"], alpha["steps"][0]["step"]["id"]) == ("RUNNING", "batch")


def test_yaml(slurm: Slurm) -> None:
    lines = slurm("squeue", "--yaml", "-j", "4").out.splitlines()
    assert lines[:2] == ["%YAML 1.1", "--- !!map"]
    assert "!!str jobs: !!seq" in lines
    assert '  !!str name: !!str "alpha"' in lines
    assert "  !!str job_id: !!int 4" in lines
    assert "  !!str contiguous: !!bool false" in lines
    assert "  !!str core_spec: !!null null" in lines


@pytest.mark.parametrize(
    ("code", "name"), [("0:9", "Killed"), ("0:125", "Unknown signal 125"), ("0:33", "Unknown signal 33")]
)
def test_signals_without_a_name(code: str, name: str) -> None:
    """Slurm's number for too little memory, 125, is no signal."""
    assert exit_object(code)["signal"]["name"] == name
