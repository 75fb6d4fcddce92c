"""Lists of nodes and pods: columns in any order, unusual cells, and the line of each mistake."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from benchmarks.placement.openb_traces import read_nodes, read_pods
from controller.core.model.request import request_of
from controller.sim.logs.log_file import LogRefused

NODES = "sn,cpu_milli,memory_mib,gpu,model\n"
PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "list.csv"


def test_openb_node_line_is_parsed(file: Path) -> None:
    file.write_text(NODES + "b,64000,262144,2,P100\na,96000,786432,0,\n")
    cluster = read_nodes(file)
    assert list(cluster.nodes) == ["b", "a"]
    facts = cluster.nodes["b"]
    assert (facts.cpu_milli, facts.memory_mib) == (64_000, 262_144)
    assert [(gpu.index, gpu.uuid, gpu.model) for gpu in facts.gpus] == [
        (0, "b-0", "P100"),
        (1, "b-1", "P100"),
    ]
    assert cluster.nodes["a"].gpus == ()
    assert cluster.gpus == 2


def test_openb_pod_line_is_parsed(file: Path) -> None:
    file.write_text(
        PODS
        + "whole,12000,16384,1,1000,\n"
        + "share,6000,12288,1,460,V100M32|V100M16\n"
        + "many,88000,327680,8,1000,G2\n"
        + "none,8000,30517,0,0,\n"
    )
    pods = read_pods(file)
    asked = [(pod.name, pod.spec.gpus, pod.spec.gpu_models, pod.milli) for pod in pods]
    assert asked == [
        ("whole", 1, (), 1000),
        ("share", 0.46, ("V100M16", "V100M32"), 460),
        ("many", 8, ("G2",), 8000),
        ("none", 0, (), 0),
    ]
    assert [(pod.spec.cpu_milli, pod.spec.memory_mib) for pod in pods[:2]] == [
        (12_000, 16_384),
        (6_000, 12_288),
    ]
    assert not any(pod.splits for pod in pods)


@pytest.mark.parametrize("milli", [1, 7, 333, 999])
def test_any_thousandths_are_requested_exactly(file: Path, milli: int) -> None:
    file.write_text(PODS + f"p,1000,1024,1,{milli},\n")
    (pod,) = read_pods(file)
    assert (request_of(pod.spec).part.share, pod.milli) == (milli, milli)


def test_smallest_gpu_share(file: Path) -> None:
    file.write_text(PODS + "p,0,0,1,1000,\n")
    (pod,) = read_pods(file)
    assert (pod.spec.cpu_milli, pod.spec.memory_mib) == (1, 1)


def test_shares_of_several_gpus_become_whole_gpus_counted_as_requested(file: Path) -> None:
    file.write_text(PODS + "p,1000,1024,2,500,\nq,1000,1024,2,1000,\n")
    pods = read_pods(file)
    assert [(pod.spec.gpus, pod.milli, pod.splits) for pod in pods] == [(2, 1000, True), (2, 2000, False)]


def test_columns_may_be_missing_reordered_and_unknown(file: Path) -> None:
    file.write_text("\ufeff,NUM_GPU,qos, cpu_milli \n0,1,LS,4000\n\n1,0.0,BE,2000.0\n")
    pods = read_pods(file)
    assert [(pod.name, pod.spec.gpus, pod.spec.cpu_milli, pod.spec.memory_mib) for pod in pods] == [
        ("", 1, 4_000, 1),
        ("", 0, 2_000, 1),
    ]
    file.write_text("gpu,sn,cpu_milli\n4,n,32000\n")
    facts = read_nodes(file).nodes["n"]
    assert (len(facts.gpus), facts.gpus[0].model, facts.memory_mib) == (4, "", 1 << 30)


def test_nan_is_an_empty_cell(file: Path) -> None:
    file.write_text(PODS + "p,1000,nan,1,NaN,nan\n")
    (pod,) = read_pods(file)
    assert (pod.spec.memory_mib, pod.spec.gpus, pod.spec.gpu_models) == (1, 1, ())
    file.write_text(NODES + "n,1000,1024,1,nan\n")
    assert read_nodes(file).nodes["n"].gpus[0].model == ""


def test_gzip_and_other_line_endings(file: Path) -> None:
    file.write_bytes(gzip.compress((PODS + "p,1000,1024,1,1000,\n").replace("\n", "\r\n").encode()))
    assert [pod.name for pod in read_pods(file)] == ["p"]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("p,1000,1024,1,1000", "line 3: has 5 columns, the heading has 6"),
        ("p,,1024,1,1000,", "line 3: cpu_milli: is missing"),
        ("p,1000,1024,,1000,", "line 3: num_gpu: is missing"),
        ("p,many,1024,1,1000,", "line 3: cpu_milli: 'many' is not a whole number that is zero or more"),
        ("p,-1,1024,1,1000,", "line 3: cpu_milli: '-1' is not a whole number that is zero or more"),
        ("p,1000,1024,0.5,1000,", "line 3: num_gpu: '0.5' is not a whole number that is zero or more"),
        ("p,1000,1024,1,0,", "line 3: gpu_milli: 0 of a GPU's 1,000 thousandths cannot be had"),
        ("p,1000,1024,1,2000,", "line 3: gpu_milli: 2000 of a GPU's 1,000 thousandths cannot be had"),
        ("p,999999999,1024,1,1000,", "line 3: cpu_milli: must be positive (1000 is one core) and at most"),
        ("p,1000,1024,999999,1000,", "line 3: num_gpu: must be a whole number"),
        ('p,1000,1024,1,1000,"A', "line 3: is not CSV"),
    ],
)
def test_a_broken_pod_is_named_by_line_and_column(file: Path, row: str, said: str) -> None:
    file.write_text(PODS + "good,1000,1024,1,1000,\n" + row + "\n")
    with pytest.raises(LogRefused) as refused:
        read_pods(file)
    assert str(refused.value).startswith(f"{file}: {said}")
    assert refused.value.hint


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "there is no node with a GPU"),
        (NODES + "n,1000,1024,0,\n", "there is no node with a GPU"),
        (PODS, "line 1: there is no column 'sn'"),
        ("sn,cpu_milli,gpu,gpu\n", "line 1: the column 'gpu' occurs twice"),
        (NODES + "n,1000,1024,1,T4\nn,1000,1024,1,T4\n", "line 3: sn: there is a node 'n' already"),
        (NODES + ",1000,1024,1,T4\n", "line 2: sn: is missing"),
        (NODES + "n,1000,1024,1025,T4\n", "line 2: gpu: a node has 1,024 GPUs at most"),
    ],
)
def test_invalid_node_list_is_refused(file: Path, text: str, said: str) -> None:
    file.write_text(text)
    with pytest.raises(LogRefused) as refused:
        read_nodes(file)
    assert str(refused.value) == f"{file}: {said}"
    assert refused.value.hint


def test_pods_without_gpus_are_refused(file: Path) -> None:
    file.write_text(PODS + "p,1000,1024,0,1000,\n")
    with pytest.raises(LogRefused, match="there is no pod that asks for a GPU"):
        read_pods(file)
