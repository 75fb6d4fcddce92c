"""The engine type `lambda`: a function of AWS Lambda, or of another service with the same API."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import ClassVar
from urllib.parse import quote

import aiohttp
from yarl import URL

from controller.engines.aws.access_keys import read_credentials
from controller.engines.aws.answers import read_body
from controller.engines.aws.signing import Signer
from controller.engines.contract import AskRefused, EngineScope, EngineUnavailable
from controller.engines.serverless.function_options import FunctionOptions
from controller.engines.serverless.http_session import HttpSession
from controller.engines.serverless.serverless_engine import ServerlessEngine
from wire.text import printable

LONGEST_CALL_S = 900.0
"""AWS Lambda ends each call after 15 minutes."""
MOST_MEMORY_MIB = 10_240
MOST_ANSWER_BYTES = 64 * 1024
_NAME = re.compile(r"[A-Za-z0-9_:-]{1,170}")
_QUALIFIER = re.compile(r"[A-Za-z0-9$_.-]{0,128}")
_LASTING = ("RequestTooLargeException", "InvalidRequestContentException")


@dataclass(frozen=True, kw_only=True)
class LambdaType(FunctionOptions):
    """The options of the engine.

    - `function` is the name or the ARN of the function, `qualifier` its version or alias.
    - `endpoint` is the address of the API; without it, it is that of AWS in the region `region`.
    """

    name: ClassVar[str] = "lambda"

    function: str
    qualifier: str = ""
    endpoint: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not _NAME.fullmatch(self.function):
            raise ValueError(f"function: {self.function!r} is not the name of a function")
        if not _QUALIFIER.fullmatch(self.qualifier):
            raise ValueError(f"qualifier: {self.qualifier!r} is not a version or an alias")
        if self.longest_s > LONGEST_CALL_S:
            raise ValueError(f"longest_s: AWS Lambda ends each call after {LONGEST_CALL_S:g} s")
        if self.memory_mib > MOST_MEMORY_MIB:
            raise ValueError(f"memory_mib: a call of AWS Lambda has at most {MOST_MEMORY_MIB} MiB")
        if self.endpoint and not self.endpoint.startswith(("https://", "http://")):
            raise ValueError("endpoint: write an address such as https://lambda.eu-west-1.amazonaws.com")

    def connect(self, scope: EngineScope) -> ServerlessEngine:
        """Return the engine. It connects with its first request."""
        session = HttpSession()
        return ServerlessEngine(self, scope, LambdaInvoker(self, session), session)


class LambdaInvoker:
    """Sends events to a function of AWS Lambda. The service stores an event before it answers, calls the
    function later, and may call it more than once.
    """

    def __init__(self, options: LambdaType, session: HttpSession) -> None:
        self.where = options.function
        self._options, self._session = options, session
        base = (options.endpoint or f"https://lambda.{options.region}.amazonaws.com").rstrip("/")
        query = f"?Qualifier={quote(options.qualifier, safe='')}" if options.qualifier else ""
        self._url = f"{base}/2015-03-31/functions/{quote(options.function, safe='')}/invocations{query}"

    async def invoke(self, payload: bytes, tag: str) -> None:
        options = self._options
        signer = Signer(read_credentials(options.credentials_file), options.region, "lambda")
        wanted = {"content-type": "application/json", "x-amz-invocation-type": "Event"}
        headers = signer.headers("POST", self._url, payload, time.time(), wanted)
        url = URL(self._url, encoded=True)
        try:
            async with self._session.get().post(
                url, data=payload, headers=headers, allow_redirects=False
            ) as answer:
                status, text = answer.status, await read_body(answer, MOST_ANSWER_BYTES)
                kind = answer.headers.get("x-amzn-ErrorType", "").partition(":")[0]
        except aiohttp.ClientConnectorError as error:
            raise AskRefused(f"AWS Lambda cannot be reached: {error}") from None
        except (aiohttp.ClientError, OSError) as error:
            raise EngineUnavailable(f"AWS Lambda has not answered: {error}") from None
        if status == 202:
            return
        shown = printable(text.decode(errors="replace"), 300)
        why = f"AWS Lambda answers for the function {self.where} with status {status} {kind}: {shown}"
        if 400 <= status < 500:
            raise AskRefused(why, lasting=status == 413 or kind in _LASTING)
        raise EngineUnavailable(why)

    def failure(self, tag: str) -> str:
        return ""

    def forget(self, tag: str) -> None:
        """Do nothing, because failures are known before invoke() returns."""

    async def close(self) -> None:
        """Do nothing, because no answer comes after invoke()."""
