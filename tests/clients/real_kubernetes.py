"""A real Kubernetes on this host: etcd, API server, controllers, scheduler, and stand-ins for kubelets."""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.clients.real_slurm import free_ports
from tests.limits import PATIENCE_S

BIN = "CORRAL_KUBERNETES_BIN"
"""The environment variable with a directory of the programs that are not in PATH."""
PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
NAMESPACE = "corral"
CONTROLLERS = (
    "resourcequota,namespace,podgc,nodelifecycle,serviceaccount,serviceaccount-token,garbagecollector"
)
MANIFESTS = Path(__file__).parents[2] / "deploy" / "kubernetes"


def program(name: str) -> str | None:
    """Return the path of a program of Kubernetes; None if it is not installed."""
    return shutil.which(name, path=f"{os.environ.get(BIN, '')}{os.pathsep}{os.environ.get('PATH', '')}")


def missing() -> str:
    """Return why a real Kubernetes cannot run here; empty if it can."""
    wanted = [each for each in PROGRAMS if program(each) is None]
    if wanted:
        return f"needs the programs {' '.join(wanted)} in PATH or in the directory {BIN}"
    return "" if os.geteuid() == 0 else "processes with the uids of Pods need root"


class Conflict(Exception):
    """Raised if the API server refuses a request of a test."""


class RealKubernetes:
    """The daemons of one cluster, as children of this process. Its files are in `place`."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.ports = free_ports(5)
        self.server = f"https://127.0.0.1:{self.ports[2]}"
        self.children: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def kubeconfig(self) -> Path:
        return self.place / "kubeconfig"

    def start(self) -> None:
        """Start all daemons, and make the namespace with the manifests of deploy/kubernetes."""
        self.place.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            ["openssl", "genrsa", "-out", str(self.place / "sa.key"), "2048"], check=True, capture_output=True
        )
        (self.place / "tokens.csv").write_text('admin-token,admin,1,"system:masters"\n')
        first, second = (f"http://127.0.0.1:{port}" for port in self.ports[:2])
        self._spawn(
            "etcd",
            "--unsafe-no-fsync",
            f"--data-dir={self.place}/etcd",
            f"--listen-client-urls={first}",
            f"--advertise-client-urls={first}",
            f"--listen-peer-urls={second}",
            f"--initial-advertise-peer-urls={second}",
            f"--initial-cluster=default={second}",
            "--log-level=error",
        )
        self.start_api_server()
        self.write_kubeconfig(self.kubeconfig, "admin-token")
        self._spawn(
            "kube-controller-manager",
            f"--kubeconfig={self.kubeconfig}",
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
            f"--secure-port={self.ports[3]}",
            "--port=0",
            f"--cert-dir={self.place}/certs",
            f"--controllers={CONTROLLERS}",
            f"--service-account-private-key-file={self.place}/sa.key",
            "--resource-quota-sync-period=2s",
        )
        self._spawn(
            "kube-scheduler",
            f"--kubeconfig={self.kubeconfig}",
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
            f"--secure-port={self.ports[4]}",
            "--port=0",
            f"--cert-dir={self.place}/certs",
        )
        for name in ("namespace", "service-account", "jobs-role", "nodes-role"):
            for document in (MANIFESTS / f"{name}.yaml").read_text().split("\n---\n"):
                self.create_yaml(document)
        self.until(
            lambda: bool(self.get(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts")["items"][1:]),
            "service accounts",
        )

    def start_api_server(self) -> None:
        """Start the API server, and wait until it is ready."""
        self._spawn(
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{self.ports[0]}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={self.ports[2]}",
            f"--cert-dir={self.place}/certs",
            f"--token-auth-file={self.place}/tokens.csv",
            f"--service-account-key-file={self.place}/sa.key",
            f"--service-account-signing-key-file={self.place}/sa.key",
            "--service-account-issuer=https://kube.test",
            "--service-cluster-ip-range=10.96.0.0/24",
            "--authorization-mode=RBAC",
        )

        def ready() -> bool:
            assert self.children["kube-apiserver"].poll() is None, self.log("kube-apiserver")
            try:
                return bool(self.request("GET", "/readyz") == "ok")
            except (OSError, Conflict):
                return False

        self.until(ready, "the API server")

    def add_node(self, name: str, *, cpus: int = 64, gpus: int = 8, **labels: str) -> None:
        """Start the kubelet stand-in of a node, and wait until the node is ready."""
        script = Path(__file__).with_name("pod_runner.py")
        places = [str(self.place / each) for each in ("certs/apiserver.crt", "certs/apiserver.key")]
        shape = json.dumps({"name": name, "cpus": cpus, "gpus": gpus, "labels": labels})
        folder = self.place / "pods" / name
        folder.mkdir(parents=True, exist_ok=True)
        self._spawn(
            name, sys.executable, str(script), self.server, "admin-token", shape, str(folder), *places
        )
        self.until(lambda: self._is_ready(name), f"node {name}")

    def _is_ready(self, name: str) -> bool:
        assert self.children[name].poll() is None, self.log(name)
        for node in self.get("/api/v1/nodes")["items"]:
            if node["metadata"]["name"] == name:
                conditions = {each["type"]: each["status"] for each in node["status"].get("conditions", ())}
                return conditions.get("Ready") == "True" and not node["spec"].get("taints")
        return False

    def kill(self, name: str) -> None:
        """Kill a daemon or the kubelet stand-in of a node. A stand-in takes its Pods' processes with it."""
        child = self.children.pop(name)
        os.killpg(child.pid, signal.SIGKILL)
        child.wait(PATIENCE_S)

    def end(self) -> None:
        """Kill all daemons, the first one last."""
        for name in reversed(list(self.children)):
            self.kill(name)

    def write_kubeconfig(self, path: Path, token: str) -> None:
        authority = str(self.place / "certs" / "apiserver.crt")
        path.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "test",
                    "clusters": [
                        {
                            "name": "test",
                            "cluster": {"server": self.server, "certificate-authority": authority},
                        }
                    ],
                    "users": [{"name": "test", "user": {"token": token}}],
                    "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
                }
            )
        )
        path.chmod(0o600)

    def account_kubeconfig(self) -> Path:
        """Return a kubeconfig of the service account that deploy/kubernetes makes, with its rights."""
        secret = f"/api/v1/namespaces/{NAMESPACE}/secrets/corral-token"
        self.until(lambda: "token" in self.get(secret).get("data", {}), "the token of the service account")
        token = base64.b64decode(self.get(secret)["data"]["token"]).decode()
        self.write_kubeconfig(self.place / "account", token)
        return self.place / "account"

    def pods(self) -> list[Any]:
        found: list[Any] = self.get(f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]
        return found

    def get(self, path: str) -> Any:
        return self.request("GET", path)

    def create_yaml(self, text: str) -> None:
        """Create the object of a manifest in the path of its kind."""
        fields = {
            key.strip(): value.strip()
            for key, _, value in (line.partition(":") for line in text.splitlines() if line[:1].isalpha())
        }
        namespaced = f"namespaces/{NAMESPACE}/"
        where = {
            "Namespace": "/api/v1/namespaces",
            "ServiceAccount": f"/api/v1/{namespaced}serviceaccounts",
            "Secret": f"/api/v1/{namespaced}secrets",
            "ResourceQuota": f"/api/v1/{namespaced}resourcequotas",
            "Role": f"/apis/rbac.authorization.k8s.io/v1/{namespaced}roles",
            "RoleBinding": f"/apis/rbac.authorization.k8s.io/v1/{namespaced}rolebindings",
            "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
            "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        }[fields["kind"]]
        self.request("POST", where, text.encode(), "application/yaml")

    def request(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Any:
        """Make a request as administrator. Raise Conflict for a refusal."""
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        headers = {"Authorization": "Bearer admin-token", "Content-Type": kind}
        request = urllib.request.Request(self.server + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30, context=_TLS) as answer:
                text = answer.read().decode()
        except urllib.error.HTTPError as error:
            raise Conflict(f"{error.code} {error.read().decode()[:500]}") from None
        return json.loads(text) if text.startswith(("{", "[")) else text

    def until(self, holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not holds():
            assert time.monotonic() < deadline, f"waited too long for {what}"
            time.sleep(0.1)

    def log(self, name: str) -> str:
        return (self.place / f"{name}.log").read_text(errors="replace")[-3_000:]

    def _spawn(self, name: str, *words: str) -> None:
        command = [program(name) or name, *words] if name in PROGRAMS else list(words)
        with (self.place / f"{name}.log").open("ab") as log:
            self.children[name] = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            )


_TLS = ssl.create_default_context()
_TLS.check_hostname, _TLS.verify_mode = False, ssl.CERT_NONE
