"""corral login with a real identity provider: oidc-provider-mock and Authlib's device authorisation grant."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from tests.integration.controller.test_remote import free_port
from tests.limits import PATIENCE_S
from tests.programs import run_corral
from tests.systems import System, system
from wire.api.service.access import LoginRequest
from wire.http.client import Client, Refused

HERE = Path(__file__).parents[2] / "clients"
RULES = [
    {"group": "gpu-users", "projects": ["vision"]},
    {"group": "gpu-admins", "role": "operator"},
]


class Provider:
    """A running identity provider."""

    def __init__(self, python: str, place: Path) -> None:
        self.issuer = f"http://127.0.0.1:{free_port()}"
        command = [python, str(HERE / "identity_provider.py"), self.issuer.rpartition(":")[2]]
        with (place / "provider.log").open("w") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    def post(self, path: str, **form: str) -> bytes:
        body = urllib.parse.urlencode(form).encode()
        with urllib.request.urlopen(f"{self.issuer}{path}", body, timeout=PATIENCE_S) as answer:
            found: bytes = answer.read()
            return found

    def id_token(self, user: str, client: str = "corral", nonce: str = "") -> str:
        """An ID token, by the same requests that `corral login` sends."""
        form = {"client_id": client, "scope": "openid profile", "nonce": nonce}
        code = json.loads(self.post("/device_authorization", **form))
        self.post("/confirm", user_code=code["user_code"], sub=user)
        grant = "urn:ietf:params:oauth:grant-type:device_code"
        answer = self.post(
            "/oauth2/token", grant_type=grant, client_id=client, device_code=code["device_code"]
        )
        token: str = json.loads(answer)["id_token"]
        return token


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Python with the identity provider, in an environment of its own."""
    place = tmp_path_factory.mktemp("identity") / "environment"
    subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
    install = [f"{place}/bin/pip", "install", "-q", "-r", str(HERE / "requirements-oidc.txt")]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"oidc-provider-mock cannot be installed: {done.stderr[-300:]}")
    return f"{place}/bin/python"


@pytest.fixture(scope="module")
def provider(python: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Provider]:
    made = Provider(python, tmp_path_factory.mktemp("provider"))
    try:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                urllib.request.urlopen(f"{made.issuer}/jwks", timeout=PATIENCE_S).close()
                break
            except OSError:
                assert made.process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.1)
        yield made
    finally:
        made.process.kill()
        made.process.wait()


@pytest.fixture(scope="module")
def site(provider: Provider) -> Iterator[System]:
    with system("gpu01") as made:
        made.sections["api"] = {"listen": "127.0.0.1:0"}
        made.sections["access"] = {
            "oidc": {"issuer": provider.issuer, "client_id": "corral", "rules": list(RULES)}
        }
        made.sections["projects"] = {"vision": {}, "speech": {}}
        made.start()
        yield made


def url_of(site: System) -> str:
    with site.client() as client:
        return client.controllers().leader


def refused(site: System, id_token: str, nonce: str = "") -> str:
    with Client(url_of(site)) as client, pytest.raises(Refused) as failure:
        client.login(LoginRequest(id_token, nonce))
    assert failure.value.status == 401
    return failure.value.problem.message


def test_user_logs_in_by_a_code_and_out_again(site: System, provider: Provider, tmp_path: Path) -> None:
    environment = {**os.environ, "HOME": str(tmp_path), "CORRAL_URL": url_of(site)}
    environment["XDG_CONFIG_HOME"] = str(tmp_path / "config")
    command = [sys.executable, "-P", "-m", "cli", "login", "--explain"]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        page, confirm = running.stderr.readline(), running.stderr.readline()
        assert page.startswith(f"Open {provider.issuer}/device")
        found = re.search(r"code (\S+)", confirm)
        assert found is not None
        provider.post("/confirm", user_code=found[1], sub="ada")
        shown, _ = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 0
    assert re.search(r"role +user", shown)
    assert re.search(r"groups +gpu-users", shown)
    [file] = (tmp_path / "config" / "corral" / "sessions").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600

    def corral(*words: str) -> subprocess.CompletedProcess[str]:
        return run_corral(*words, environment=environment)

    who = json.loads(corral("whoami", "-o", "json").stdout)
    assert (who["user"], who["role"], who["projects"]) == ("ada", "user", ["vision"])
    assert corral("submit", "--hold", "--project", "vision", "--", "true").returncode == 0
    assert corral("submit", "--hold", "--project", "speech", "--", "true").returncode == 4
    assert corral("token", "create", "laptop", "--can", "read").returncode == 0
    assert corral("logout").returncode == 0
    assert not file.exists()
    assert corral("whoami").returncode == 4


def test_rules_give_roles_and_refuse_others(site: System, provider: Provider) -> None:
    url = url_of(site)
    with Client(url) as client:
        answer = client.login(LoginRequest(provider.id_token("ops")))
    with Client(url, token=answer.text) as client:
        who = client.whoami()
        assert (who.user, who.role, who.projects) == ("ops", "operator", None)
        client.drain("gpu01", "trial")
        client.resume("gpu01")
        with pytest.raises(Refused):
            client.audit()
    assert "no rule" in refused(site, provider.id_token("eve"))
    assert "cannot log in here" in refused(site, provider.id_token("root"))
    with site.client() as client:
        records = [each for each in client.audit().entries if each.action == "POST /v1/login"]
        assert [each.outcome.partition(":")[0] for each in records][-3:] == ["ok", "refused", "refused"]
        assert provider.issuer not in json.dumps([each.request for each in records])
        [login] = [each for each in records if each.outcome == "ok" and each.after.get("user") == "ops"]
        assert login.request["id_token"] == "…"


def test_wrong_tokens_are_refused(site: System, provider: Provider) -> None:
    once = provider.id_token("ada", nonce="n1")
    assert "another login" in refused(site, once, "n2")
    with Client(url_of(site)) as client:
        client.login(LoginRequest(once, "n1"))
    assert "used before" in refused(site, once, "n1")
    assert "another client" in refused(site, provider.id_token("ada", "other"))
    changed = provider.id_token("ada")
    head, _, signature = changed.split(".")
    assert "expired" in refused(site, f"{head}.{_claims(changed, iat=1)}.{signature}")
    assert "has signed it" in refused(
        site, f"{head}.{_claims(changed, preferred_username='ops')}.{signature}"
    )


def _claims(token: str, **changes: Any) -> str:
    part = token.split(".")[1]
    claims = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    return base64.urlsafe_b64encode(json.dumps({**claims, **changes}).encode()).rstrip(b"=").decode()


def test_session_ends_with_its_rule_and_survives_a_restart(site: System, provider: Provider) -> None:
    with Client(url_of(site)) as client:
        answer = client.login(LoginRequest(provider.id_token("ops")))
    site.stop()
    site.start()
    url = url_of(site)
    with Client(url, token=answer.text) as client:
        assert client.whoami().role == "operator"
        site.sections["access"]["oidc"]["rules"] = RULES[:1]
        text = site.config.read_text()
        site.config.write_text(tomli_w.dumps(site.sections))
        site.corral("config", "apply", "--yes")
        with pytest.raises(Refused, match="no rule"):
            client.whoami()
        site.config.write_text(text)
        site.corral("config", "apply", "--yes")
        assert client.whoami().role == "operator"
    site.sections["access"]["oidc"]["rules"] = list(RULES)


def test_keys_that_the_provider_has_replaced_are_read_again(site: System, provider: Provider) -> None:
    site.stop()
    site.start()  # because keys are not read twice in 30 s
    provider.post("/rotate")
    with Client(url_of(site)) as client:
        assert client.login(LoginRequest(provider.id_token("ada"))).token.user == "ada"


def test_provider_that_is_away_is_named(site: System, provider: Provider) -> None:
    """A controller that has just started has no keys yet."""
    token = provider.id_token("ada")
    site.stop()
    site.start()
    provider.process.kill()
    provider.process.wait()
    with Client(url_of(site)) as client, pytest.raises(Refused, match="cannot be read") as failure:
        client.login(LoginRequest(token))
    assert failure.value.status == 503
