"""Host arguments and host files of `corral nodes add`."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.commands.nodes.host_list import requests
from cli.exit_codes import CommandError
from wire.api.nodes import NodeRequest
from wire.cluster.hosts import HostSpec

COMMON = HostSpec("", gpus="none", labels={"site": "here"})


def meant(*words: str, file: Path | None = None) -> dict[str, HostSpec]:
    found = requests(words, file, COMMON)
    assert all(isinstance(each, NodeRequest) and each.host is not None for each in found)
    return {each.name: each.host for each in found if each.host is not None}


@pytest.mark.parametrize(
    ("words", "addresses"),
    [
        (["gpu01"], {"gpu01": "gpu01"}),
        (["gpu01", "ada@10.0.0.7:2222"], {"gpu01": "ada@10.0.0.7:2222"}),
        (["gpu01", "10.0.0.7:22"], {"gpu01": "10.0.0.7:22"}),
        (["gpu01", "10.0.0.7"], {"gpu01": "10.0.0.7"}),
        (["gpu01", "gpu01.example.org"], {"gpu01": "gpu01.example.org"}),
        (
            ["a.example.org", "b.example.org"],
            {"a.example.org": "a.example.org", "b.example.org": "b.example.org"},
        ),
        (["gpu01", "gpu02", "gpu03"], {"gpu01": "gpu01", "gpu02": "gpu02", "gpu03": "gpu03"}),
        (["gpu01=10.0.0.7", "gpu02", "ada@b"], {"gpu01": "10.0.0.7", "gpu02": "ada@b"}),
    ],
)
def test_names_and_addresses(words: list[str], addresses: dict[str, str]) -> None:
    found = meant(*words)
    assert {name: host.ssh for name, host in found.items()} == addresses
    assert all((host.gpus, host.labels) == ("none", {"site": "here"}) for host in found.values())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "no host is named"),
        (["ada@10.0.0.7"], "an address without a name"),
        (["gpu01", "ada@a", "ada@b"], "an address without a name"),
        (["10.0.0.7", "10.0.0.8"], "'10.0.0.7' is an address without a name"),
        (["gpu01", "10.0.0.7", "10.0.0.8"], "'10.0.0.8' is an address without a name"),
        (["gpu01", "gpu01"], "named twice"),
        (["gpu 01"], "is not a name for a node"),
        (["gpu01=a b"], "cannot read 'a b' as an SSH address"),
    ],
)
def test_invalid_host_arguments_are_refused(words: list[str], message: str) -> None:
    with pytest.raises(CommandError, match=message):
        meant(*words)


def test_a_file_of_hosts(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text(
        "# ours\n\ngpu01\n  gpu02 ada@10.0.0.7:22 label.rack=r1 label.site=there cpus=64  # the new one\n"
        "gpu03 memory=512G gpus=simulated:8xH100\n"
    )
    found = meant("gpu00", file=file)
    assert list(found) == ["gpu00", "gpu01", "gpu02", "gpu03"]
    assert found["gpu01"] == HostSpec("gpu01", gpus="none", labels={"site": "here"})
    assert found["gpu02"] == HostSpec(
        "ada@10.0.0.7:22", gpus="none", cpus=64, labels={"site": "there", "rack": "r1"}
    )
    assert (found["gpu03"].memory, found["gpu03"].gpus) == ("512G", "simulated:8xH100")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("gpu01 a b", "hosts:2: unknown setting 'b'"),
        ("gpu01 shape=round", "hosts:2: unknown setting 'shape=round'"),
        ("gpu01 cpus=many", "hosts:2: unknown setting 'cpus=many'"),
        ("gpu01 python=a;b", "gpu01: python: 'a;b' has characters"),
        ("gpu01 gpus=lots", "gpu01: gpus: cannot read 'lots'"),
    ],
)
def test_invalid_host_file_lines_are_refused(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "hosts").write_text(f"\n{line}\n")
    with pytest.raises(CommandError, match=message):
        meant(file=tmp_path / "hosts")


def test_missing_host_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="No such file"):
        meant(file=tmp_path / "nowhere")
