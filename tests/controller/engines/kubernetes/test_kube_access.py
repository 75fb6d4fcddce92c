"""Kubeconfig files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from controller.engines.kubernetes.kube_access import AccessProblem, find_access


def written(tmp_path: Path, user: dict[str, Any], cluster: dict[str, Any] | None = None) -> str:
    path = tmp_path / "config"
    path.write_text(
        json.dumps(
            {
                "current-context": "main",
                "clusters": [{"name": "c", "cluster": cluster or {"server": "http://127.0.0.1:1/"}}],
                "users": [{"name": "u", "user": user}],
                "contexts": [
                    {"name": "main", "context": {"cluster": "c", "user": "u", "namespace": "jobs"}},
                    {"name": "anonymous", "context": {"cluster": "c"}},
                ],
            }
        )
    )
    path.chmod(0o600)
    return str(path)


def test_token_and_address(tmp_path: Path) -> None:
    found = find_access(written(tmp_path, {"token": "t0k"}))
    assert (found.server, found.token(), found.namespace, found.tls) == (
        "http://127.0.0.1:1",
        "t0k",
        "jobs",
        None,
    )
    assert find_access(written(tmp_path, {"token": "t0k"}), "anonymous").token() == ""


def test_environment_names_the_file_and_the_token_file_is_beside_it(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from a file\n")
    path = written(tmp_path, {"tokenFile": "token"})
    assert find_access(environ={"KUBECONFIG": f"{path}:/other"}).token() == "from a file"


@pytest.mark.parametrize(
    ("user", "cluster", "why"),
    [
        ({"exec": {"command": "aws"}}, None, "a program that prints credentials"),
        ({"auth-provider": {"name": "gcp"}}, None, "service account"),
        ({"username": "ada", "password": "x"}, None, "a password"),
        ({}, {"server": "10.0.0.1"}, "no address"),
        ({}, {"server": "https://a", "proxy-url": "http://p"}, "proxy-url"),
        ({}, {"server": "https://a", "certificate-authority-data": "%"}, "not base64"),
        ({}, {"server": "https://a", "certificate-authority": "missing.pem"}, "missing.pem cannot be read"),
    ],
)
def test_problems_name_the_cause(
    tmp_path: Path, user: dict[str, Any], cluster: dict[str, Any] | None, why: str
) -> None:
    with pytest.raises(AccessProblem, match=why):
        find_access(written(tmp_path, user, cluster))


def test_an_unknown_context_names_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(AccessProblem, match="no context 'other'; it has: main, anonymous"):
        find_access(written(tmp_path, {}), "other")


def test_a_file_that_others_can_write_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, {"token": "x"})
    Path(path).chmod(0o666)
    with pytest.raises(AccessProblem, match="can be written to by others"):
        find_access(path)
