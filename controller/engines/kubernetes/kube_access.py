"""Finds the address of the API server and the credentials: the service account of a Pod, or a kubeconfig."""

from __future__ import annotations

import base64
import binascii
import json
import os
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from wire import trusted_paths

SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
"""The directory with the token and the certificates that Kubernetes mounts into a Pod."""
TOKEN_AGE_S = 60.0
"""Seconds after which a token is read from its file again, because Kubernetes replaces tokens."""
_REFUSED_LOGINS = {
    "exec": "a program that prints credentials",
    "auth-provider": "an authentication provider",
    "username": "a password",
}


class AccessProblem(ValueError):
    """Raised if the credentials are missing or have a form that Corral does not support. The message says
    what to change.
    """


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """How to reach one API server: its address, its TLS settings (None for http), and the token for each
    request. `token` returns an empty text for access with a client certificate. `namespace` is the default
    namespace of the credentials.
    """

    server: str
    tls: ssl.SSLContext | None
    token: Callable[[], str]
    namespace: str = "default"


def find_access(
    kubeconfig: str = "", context: str = "", environ: Mapping[str, str] = os.environ
) -> ClusterAccess:
    """Return the access to the API server. Raise AccessProblem if there is none.

    1. With `kubeconfig`, read this file.
    2. In a Pod, use the service account of the Pod.
    3. Otherwise read the first file that KUBECONFIG names, or ~/.kube/config.
    """
    if not kubeconfig and environ.get("KUBERNETES_SERVICE_HOST"):
        return _in_cluster(environ)
    path = kubeconfig or environ.get("KUBECONFIG", "").split(os.pathsep)[0] or "~/.kube/config"
    path = os.path.abspath(os.path.expanduser(path))
    return read_kubeconfig(path, context)


def _in_cluster(environ: Mapping[str, str]) -> ClusterAccess:
    host, port = environ["KUBERNETES_SERVICE_HOST"], environ.get("KUBERNETES_SERVICE_PORT", "443")
    name = f"[{host}]" if ":" in host else host
    tls = ssl.create_default_context(cadata=_read(f"{SERVICE_ACCOUNT}/ca.crt").decode("ascii"))
    namespace = _read(f"{SERVICE_ACCOUNT}/namespace").decode("ascii").strip()
    return ClusterAccess(
        f"https://{name}:{port}", tls, _token_file(f"{SERVICE_ACCOUNT}/token"), namespace or "default"
    )


def read_kubeconfig(path: str, context: str = "") -> ClusterAccess:
    """Return the access of one context of a kubeconfig; without `context`, of its current context. Relative
    paths in the file begin at its directory.
    """
    data = _parsed(path)
    name = context or data.get("current-context") or ""
    chosen = _entry(path, data, "context", name)
    cluster = _entry(path, data, "cluster", chosen.get("cluster", ""))
    user = _entry(path, data, "user", chosen["user"]) if chosen.get("user") else {}
    for key, what in _REFUSED_LOGINS.items():
        if user.get(key):
            raise AccessProblem(
                f"{path}: the user {chosen['user']!r} logs in with {what} ({key}), which Corral does not "
                "support. Give Corral a service account, with a token or a client certificate: see "
                "docs/kubernetes.md"
            )
    if cluster.get("proxy-url"):
        raise AccessProblem(f"{path}: Corral does not support proxy-url; give the address of the API server")
    server = str(cluster.get("server") or "").rstrip("/")
    if not server.startswith(("https://", "http://")):
        raise AccessProblem(f"{path}: the cluster {chosen.get('cluster')!r} has no address (server)")
    folder = os.path.dirname(path)
    tls = _tls(path, folder, cluster, user) if server.startswith("https://") else None
    if user.get("tokenFile"):
        token = _token_file(os.path.join(folder, user["tokenFile"]))
    else:
        fixed = str(user.get("token") or "")
        token = lambda: fixed  # noqa: E731 - a function of one expression
    return ClusterAccess(server, tls, token, str(chosen.get("namespace") or "default"))


def _parsed(path: str) -> Mapping[str, Any]:
    text = _read(path)
    try:
        data = json.loads(text)
    except ValueError:
        data = _yaml(path, text)
    if not isinstance(data, dict):
        raise AccessProblem(f"{path} is not a kubeconfig")
    return data


def _yaml(path: str, text: bytes) -> Any:
    try:
        import yaml  # type: ignore[import-untyped]
    except ImportError:
        raise AccessProblem(
            f"{path} is YAML, and the YAML library is not installed here. Install it (pip install "
            "'corral[yaml]'), or write the file as JSON: kubectl config view --raw --minify -o json"
        ) from None
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise AccessProblem(f"{path} is not valid YAML: {' '.join(str(error).split())}") from None


def _entry(path: str, data: Mapping[str, Any], kind: str, name: str) -> Mapping[str, Any]:
    entries = data.get(f"{kind}s") or ()
    for each in entries:
        if isinstance(each, dict) and each.get("name") == name and isinstance(each.get(kind), dict):
            found: Mapping[str, Any] = each[kind]
            return found
    known = ", ".join(str(each.get("name")) for each in entries if isinstance(each, dict)) or "none"
    raise AccessProblem(f"{path} has no {kind} {name!r}; it has: {known}")


def _tls(path: str, folder: str, cluster: Mapping[str, Any], user: Mapping[str, Any]) -> ssl.SSLContext:
    if cluster.get("tls-server-name"):
        raise AccessProblem(f"{path}: Corral does not support tls-server-name")
    authority = _file_or_data(path, folder, cluster, "certificate-authority")
    try:
        context = ssl.create_default_context(cadata=authority.decode("ascii") if authority else None)
        if cluster.get("insecure-skip-tls-verify"):
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        certificate = _file_or_data(path, folder, user, "client-certificate")
        if certificate:
            _load_pair(context, certificate, _file_or_data(path, folder, user, "client-key"))
    except (ssl.SSLError, ValueError) as error:
        raise AccessProblem(f"{path}: a certificate or key cannot be used: {error}") from None
    return context


def _load_pair(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Load a client certificate. The ssl module reads only files, so write the key into memory that has a
    path, and never to a disk.
    """
    descriptor = os.memfd_create("kube-client", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, certificate.rstrip() + b"\n" + key)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def _file_or_data(path: str, folder: str, table: Mapping[str, Any], key: str) -> bytes:
    data = table.get(f"{key}-data")
    if data:
        try:
            return base64.b64decode(str(data), validate=True)
        except binascii.Error:
            raise AccessProblem(f"{path}: {key}-data is not base64") from None
    return _read(os.path.join(folder, table[key])) if table.get(key) else b""


def _read(path: str) -> bytes:
    """Return the content of a file. Raise AccessProblem if another user can change it, or if it cannot be
    read.
    """
    try:
        trusted_paths.check_file(path)
        with open(path, "rb") as file:
            return file.read()
    except trusted_paths.UntrustedPath as error:
        raise AccessProblem(str(error)) from None
    except OSError as error:
        raise AccessProblem(f"{path} cannot be read: {error.strerror}") from None


def _token_file(path: str) -> Callable[[], str]:
    """Return a function that returns the token in a file, and reads the file again after TOKEN_AGE_S."""
    known: tuple[float, str] | None = None

    def token() -> str:
        nonlocal known
        if known is None or time.monotonic() - known[0] > TOKEN_AGE_S:
            known = time.monotonic(), _read(path).decode("ascii", "replace").strip()
        return known[1]

    return token
