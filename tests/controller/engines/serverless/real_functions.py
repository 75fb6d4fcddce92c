"""Corral's handler in functions-framework and in serverless-offline, with moto's server as the storage."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.agent.agent_process import eventually
from tests.controller.engines.serverless.function_server import DEPLOY, TOKEN
from tests.controller.engines.serverless.object_server import BUCKET, KEY
from tests.emulators import emulator

KINDS = ("http-function", "lambda")
KEYS = {"AWS_ACCESS_KEY_ID": KEY.key_id, "AWS_SECRET_ACCESS_KEY": KEY.secret}
_SETTINGS = """service: corral
frameworkVersion: "3"
provider: {name: aws, runtime: python3.11, region: us-east-1}
plugins: [serverless-offline]
functions:
  corral: {handler: emulated.lambda_handler, timeout: 120}
custom:
  serverless-offline: {host: 127.0.0.1, httpPort: %d, lambdaPort: %d}
"""
_EMULATED = """import corral_function

class Context:
    def get_remaining_time_in_millis(self):
        return 120_000

def lambda_handler(event, context):
    return corral_function.lambda_handler(event, Context())
"""
"""serverless-offline tells Python functions that 6 s remain, whatever their timeout is."""


class RealFunctions:
    """A storage and a function of one engine type. `start` waits until both answer."""

    def __init__(self, kind: str, place: Path) -> None:
        self.kind, self.place = kind, place
        self._programs: list[subprocess.Popen[bytes]] = []
        self.storage = self.function = ""
        """The addresses."""

    def start(self) -> None:
        (self.place / "token").write_text(TOKEN)
        (self.place / "token").chmod(0o600)
        shutil.copy(DEPLOY / "corral_function.py", self.place)
        port = _free_port()
        self.storage = f"http://127.0.0.1:{port}"
        self._run("moto_server", "-H", "127.0.0.1", "-p", str(port))
        if self.kind == "lambda":
            ports = _free_port(), _free_port()
            (self.place / "serverless.yml").write_text(_SETTINGS % ports)
            (self.place / "emulated.py").write_text(_EMULATED)
            program = Path(emulator("serverless"))
            (self.place / "node_modules").symlink_to(program.parent.parent)
            self._run("serverless", "offline", "start")
            self.function = f"http://127.0.0.1:{ports[1]}"
        else:
            port = _free_port()
            words = "--source", "corral_function.py", "--target", "http_handler", "--host", "127.0.0.1"
            self._run("functions-framework", *words, "--port", str(port))
            self.function = f"http://127.0.0.1:{port}"
        for each in (self.storage, self.function):
            eventually(lambda each=each: _answers(each))  # type: ignore[misc]
        urllib.request.urlopen(urllib.request.Request(f"{self.storage}/{BUCKET}", method="PUT")).close()

    def options(self, function: str = "", **more: Any) -> dict[str, Any]:
        """Return the options of the engine. `function` is the address of the function, if it is another."""
        kind: dict[str, Any] = {"url": f"{function or self.function}/", "token_file": f"{self.place}/token"}
        if self.kind == "lambda":
            kind = {"function": "corral-dev-corral", "endpoint": function or self.function}
        common = {"bucket": BUCKET, "users": ("*",), "storage_endpoint": self.storage, "longest_s": 120.0}
        return {**common, **kind, **more}

    def stop(self) -> None:
        for each in self._programs:
            each.terminate()
        for each in self._programs:
            try:
                each.wait(20)
            except subprocess.TimeoutExpired:
                each.kill()
                each.wait()

    def log(self) -> str:
        return "\n".join(path.read_text(errors="replace")[-2_000:] for path in self.place.glob("*.log"))

    def _run(self, program: str, *words: str) -> None:
        found = emulator(program)
        environment: Mapping[str, str] = {
            **os.environ,
            **KEYS,
            "CORRAL_TOKEN": TOKEN,
            "THREADS": "16",
            "SLS_TELEMETRY_DISABLED": "1",
            "SLS_NOTIFICATIONS_MODE": "off",
        }
        with (self.place / f"{program}.log").open("wb") as log:
            self._programs.append(
                subprocess.Popen([found, *words], cwd=self.place, env=environment, stdout=log, stderr=log)
            )


def _answers(address: str) -> bool:
    port = int(address.rpartition(":")[2])
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


def _free_port() -> int:
    with socket.socket() as tried:
        tried.bind(("127.0.0.1", 0))
        return int(tried.getsockname()[1])
