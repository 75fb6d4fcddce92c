"""Runs one job of Corral in each call of a serverless function. Install this file as the function's code.

The handler of AWS Lambda is `corral_function.lambda_handler`. The target of an HTTP function, such as on
Cloud Run, is `http_handler`. The file needs Python 3.9 and no packages. docs/serverless.md has the steps.

The event names the command, and addresses with which this function may read and write the objects of the job.
1. Claim the job: create the object `claim`, which the storage permits once. If another call has claimed the
   job, return without running the command.
2. Write `started`, and run the command in an empty directory.
3. Every `poll_s` seconds write the output, and look for the object `stop`. At a stop and at the time limit
   send SIGTERM to the processes of the command, and SIGKILL after the grace.
4. Write the output, the first `log_bytes` bytes of each stream. Then write `result`.
"""

import hmac
import json
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request
from contextlib import suppress

VERSION = 1
WRITE_S = 5.0
"""Seconds before the end of the call that are kept to write the output and the result."""
REQUEST_S = 20.0
PATIENCE_S = 60.0
CUT = b"\n[the rest of the output is not kept]\n"


def lambda_handler(event, context):
    """Run the job of an event of AWS Lambda. Failures are returned and not raised, because the controller
    itself repeats an event, and AWS Lambda would repeat it once more.
    """
    try:
        return run_job(event, context.get_remaining_time_in_millis() / 1000.0)
    except Exception as error:
        print(f"the job has not run to its end: {error}", flush=True)
        return {"ran": False, "why": str(error)}


def http_handler(request):
    """Run the job in the body of a POST request. The request must bear the token of the environment variable
    CORRAL_TOKEN. If the platform checks all callers itself, set CORRAL_PLATFORM_CHECKS_CALLERS=yes instead.
    """
    token = os.environ.get("CORRAL_TOKEN", "")
    given = request.headers.get("Authorization", "").encode()
    if token:
        if not hmac.compare_digest(given, f"Bearer {token}".encode()):
            return {"error": "the request does not bear the token of this function"}, 401
    elif os.environ.get("CORRAL_PLATFORM_CHECKS_CALLERS") != "yes":
        return {"error": "this function has no CORRAL_TOKEN, so it accepts no requests"}, 403
    return run_job(json.loads(request.get_data()), float("inf"))


def run_job(event, remaining_s):
    """Run the job of an event if no other call does. Return what this call has done. The platform ends this
    call after `remaining_s` seconds.
    """
    began = time.monotonic()
    if event.get("corral") != VERSION:
        raise ValueError(f"this function needs events of version {VERSION}; install the file of your Corral")
    if time.time() > event["until"]:
        return {"ran": False, "why": "the event is too late"}
    urls = event["urls"]
    if not claim(urls):
        return {"ran": False, "why": "another call has claimed the job"}
    send("PUT", urls["started"], b"{}")
    longest_s = min(remaining_s, event["longest_s"])
    last = began + longest_s - WRITE_S
    if longest_s > 2 * WRITE_S:
        result = run_command(event, min(began + event["limit_s"], last - WRITE_S), last)
    else:
        why = f"launch_failed: the function ends this call after {longest_s:.1f} s; set a longer timeout"
        result = {"why": why}
    send("PUT", urls["result"], json.dumps(result).encode(), until=last + WRITE_S)
    return {"ran": True}


def claim(urls):
    """Create the claim of the job. Return whether this call has the claim."""
    run = secrets.token_hex(16)
    body = json.dumps({"run": run}).encode()
    status, _ = send("PUT", urls["claim"], body, {"If-None-Match": "*"}, accept=(200, 403, 412))
    if status == 200:
        return True
    # The claim may be from this call, because the answer to its first request can be lost.
    status, found = send("GET", urls["claimed"], accept=(200, 403, 404))
    return status == 200 and json.loads(found).get("run") == run


def send(method, url, body=None, headers=None, accept=(200,), until=None):
    """Send a request to the storage, and repeat it until `until` (monotonic) if the storage has no time.
    Return the status and the body.
    """
    until, pause = time.monotonic() + PATIENCE_S if until is None else until, 0.1
    headers = {"Content-Type": "application/octet-stream", **(headers or {})}
    if not url.startswith(("https://", "http://")):
        raise ValueError("the event has an address that is not of a storage")
    while True:
        request = urllib.request.Request(url, body, headers, method=method)  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=REQUEST_S) as answer:  # noqa: S310
                status, found = answer.status, answer.read()
        except urllib.error.HTTPError as error:
            status, found = error.code, error.read()
        except OSError as error:
            status, found = 0, str(error).encode()
        if status in accept:
            return status, found
        again = status in (0, 409, 429) or status >= 500
        if not again or time.monotonic() + pause > until:
            raise RuntimeError(f"the storage answers {method} with status {status}: {found[:200]!r}")
        time.sleep(pause)
        pause = min(5.0, pause * 2)


class Output:
    """The first bytes of one output stream of the command."""

    def __init__(self, stream, most):
        self.data, self.most, self.cut, self.sent = bytearray(), most, False, None
        self.stream = stream
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self):
        while True:
            piece = os.read(self.stream, 65536)
            if not piece:
                break
            room = self.most - len(self.data)
            self.data += piece[:room]
            self.cut = self.cut or len(piece) > room

    def write(self, url, last=False):
        """Write the output to the storage if it has changed. A failure does not end the job."""
        text = bytes(self.data) + (CUT if self.cut else b"")
        if text == (self.sent or b""):
            return
        try:
            send("PUT", url, text, until=time.monotonic() + (WRITE_S if last else 0.0))
            self.sent = text
        except RuntimeError as error:
            print(error, flush=True)


class Watcher:
    """A thread that writes the output of a running command, and looks for the object `stop`, every `poll_s`
    seconds. A slow storage so does not delay the time limit.
    """

    def __init__(self, event, outputs):
        self.grace_s = None
        """The grace in seconds if the controller wants the job to end."""
        self._event, self._outputs, self._over = event, outputs, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        urls = self._event["urls"]
        while not self._over.wait(self._event["poll_s"]):
            for name, output in self._outputs.items():
                output.write(urls[name])
            try:
                status, found = send("GET", urls["stop"], accept=(200, 403, 404), until=0.0)
                if status == 200:
                    self.grace_s = float(json.loads(found)["grace_s"])
            except (RuntimeError, ValueError, KeyError, TypeError) as error:
                print(error, flush=True)

    def close(self):
        """End the thread, so that no old output replaces a newer one."""
        self._over.set()
        self._thread.join(REQUEST_S)


def run_command(event, ends_at, last):
    """Run the command until it ends. At `ends_at` (monotonic) it gets SIGTERM, and SIGKILL after its grace or
    at `last`. Return the result for the storage.
    """
    folder = tempfile.mkdtemp(prefix="corral-")
    pipes = [os.pipe()] if event["merge_output"] else [os.pipe(), os.pipe()]
    try:
        process = start(event, folder, pipes[0][1], pipes[-1][1])
    except (OSError, ValueError) as error:
        for pair in pipes:
            os.close(pair[0])
        shutil.rmtree(folder, ignore_errors=True)
        return {"why": f"launch_failed: {error}"}
    finally:
        for pair in pipes:
            os.close(pair[1])
    outputs = {"stdout": Output(pipes[0][0], event["log_bytes"])}
    if len(pipes) > 1:
        outputs["stderr"] = Output(pipes[1][0], event["log_bytes"])
    watcher = Watcher(event, outputs)
    status, usage, why = wait(process.pid, watcher, event["grace_s"], ends_at, last)
    code = process.returncode = os.waitstatus_to_exitcode(status)
    kill(process.pid, signal.SIGKILL)
    watcher.close()
    for name, output in outputs.items():
        output.thread.join(2.0)
        output.write(event["urls"][name], last=True)
        if not output.thread.is_alive():
            os.close(output.stream)
    shutil.rmtree(folder, ignore_errors=True)
    return {
        "code": code if code >= 0 else None,
        "signal": -code if code < 0 else None,
        "why": why,
        "usage": {
            "cpu_s": round(usage.ru_utime + usage.ru_stime, 3),
            "max_rss_mib": usage.ru_maxrss >> 10,
        },
    }


def start(event, folder, stdout, stderr):
    """Start the command in a session of its own."""
    env = {**os.environ, **event["env"], "TMPDIR": folder}
    env.pop("CORRAL_TOKEN", None)
    umask = event["umask"]
    return subprocess.Popen(
        event["command"],
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,
        umask=-1 if umask is None else umask,
    )


def wait(pid, watcher, grace_s, ends_at, last):
    """Wait for the end of the command. Return its status, its use of resources, and why this function has
    ended it; empty if it has not, or if the controller knows the reason.
    """
    why, kill_at, asked, pause = "", float("inf"), None, 0.01
    while True:
        ended, status, usage = os.wait4(pid, os.WNOHANG)
        if ended:
            return status, usage, why
        now = time.monotonic()
        if now >= ends_at and kill_at == float("inf"):
            why, kill_at = "time_limit", min(last, now + grace_s)
            kill(pid, signal.SIGTERM)
        if watcher.grace_s is not None and watcher.grace_s != asked:
            asked = watcher.grace_s
            kill(pid, signal.SIGTERM)
            kill_at = min(kill_at, last, now + asked)
        if now >= kill_at:
            kill(pid, signal.SIGKILL)
        time.sleep(pause)
        pause = min(0.2, pause * 1.5)


def kill(group, number):
    """Send a signal to all processes of the command."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
