"""The requests to AWS Lambda, and what the engine does with its answers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest
from aiohttp import web

from controller.engines.aws.signing import Credentials, Signer
from controller.engines.contract import AskRefused, EngineUnavailable
from controller.engines.serverless.http_session import HttpSession
from controller.engines.serverless.lambda_function import LambdaInvoker, LambdaType

ARN = "arn:aws:lambda:eu-west-1:123456789012:function:corral"
KEY = Credentials("id", "secret", "session")


class Api:
    """The invoke API of AWS Lambda. `answer` is the status and the type of an error."""

    def __init__(self) -> None:
        self.answer = (202, "")
        self.paths: list[str] = []
        self.address = ""

    async def handle(self, request: web.Request) -> web.Response:
        url = f"{self.address}{request.raw_path}"
        at = datetime.strptime(request.headers["x-amz-date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        given = {name: request.headers[name] for name in ("content-type", "x-amz-invocation-type")}
        signer = Signer(KEY, "eu-west-1", "lambda")
        wanted = signer.headers("POST", url, await request.read(), at.timestamp(), given)
        assert request.headers["authorization"] == wanted["authorization"]
        assert given["x-amz-invocation-type"] == "Event"
        self.paths.append(request.raw_path)
        status, kind = self.answer
        return web.Response(status=status, headers={"x-amzn-ErrorType": f"{kind}:"}, text="why")


@pytest.fixture
async def api(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Api]:
    for name, value in (
        ("ACCESS_KEY_ID", "id"),
        ("SECRET_ACCESS_KEY", "secret"),
        ("SESSION_TOKEN", "session"),
    ):
        monkeypatch.setenv(f"AWS_{name}", value)
    made = Api()
    app = web.Application()
    app.router.add_post("/{path:.*}", made.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.address = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield made
    await runner.cleanup()


async def invoke(api: Api, function: str = "corral", qualifier: str = "") -> None:
    options = LambdaType(
        bucket="results",
        users=("*",),
        region="eu-west-1",
        function=function,
        qualifier=qualifier,
        endpoint=api.address,
    )
    session = HttpSession()
    try:
        await LambdaInvoker(options, session).invoke(b"{}", "corral-0f3a9c112233-1-1-0")
    finally:
        await session.close()


async def test_events_name_the_function_and_its_version(api: Api) -> None:
    await invoke(api, ARN, "$LATEST")
    path = ARN.replace(":", "%3A")
    assert api.paths == [f"/2015-03-31/functions/{path}/invocations?Qualifier=%24LATEST"]


@pytest.mark.parametrize(
    ("answer", "lasting"),
    [
        ((404, "ResourceNotFoundException"), False),
        ((429, "TooManyRequestsException"), False),
        ((403, "AccessDeniedException"), False),
        ((413, "RequestTooLargeException"), True),
        ((400, "InvalidRequestContentException"), True),
    ],
)
async def test_a_refusal_starts_nothing(api: Api, answer: tuple[int, str], lasting: bool) -> None:
    api.answer = answer
    with pytest.raises(AskRefused, match=f"{answer[0]} {answer[1]}: why") as refused:
        await invoke(api)
    assert refused.value.lasting is lasting


@pytest.mark.parametrize("status", [200, 500, 503])
async def test_the_effect_of_other_answers_is_unknown(api: Api, status: int) -> None:
    api.answer = status, ""
    with pytest.raises(EngineUnavailable, match=str(status)):
        await invoke(api)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"longest_s": 901.0}, "after 900 s"),
        ({"memory_mib": 10_241}, "at most 10240"),
        ({"function": "a/b"}, "not the name"),
        ({"qualifier": "a b"}, "not a version"),
        ({"endpoint": "lambda"}, "endpoint"),
    ],
)
def test_wrong_options_are_refused(change: dict[str, object], words: str) -> None:
    given: dict[str, object] = {"bucket": "results", "users": ("*",), "function": "corral", **change}
    with pytest.raises(ValueError, match=words):
        LambdaType(**given)  # type: ignore[arg-type]
