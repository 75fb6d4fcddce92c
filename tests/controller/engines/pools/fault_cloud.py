"""A server with the part of the EC2 API that Corral uses. It plays the faults that other emulators do not
have, and can start an SSH server for each instance.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape

from aiohttp import web

CAPACITY = "InsufficientInstanceCapacity"


@dataclass
class Instance:
    """One instance. `hidden` is the number of coming lists that do not show the instance."""

    id: str
    region: str
    fields: dict[str, str]
    tags: dict[str, str]
    state: str = "pending"
    address: str = ""
    hidden: int = 0
    notice_at: float | None = None

    @property
    def user_data(self) -> str:
        return base64.b64decode(self.fields["UserData"]).decode()

    @property
    def host_key(self) -> str:
        """The private SSH host key in the user data."""
        line = next(line for line in self.user_data.splitlines() if line.startswith("{"))
        key: str = json.loads(line)["ssh_keys"]["ed25519_private"]
        return key


@dataclass
class FaultCloud:
    """The instances of all regions, and the faults. `boot` is called with each new instance."""

    instances: dict[str, Instance] = field(default_factory=dict)
    full: set[tuple[str, str]] = field(default_factory=set)
    """(instance type, zone) without capacity."""
    page: int = 1_000
    hidden: int = 0
    """The number of lists that do not show an instance after it was started."""
    lose_answers: int = 0
    """The number of coming requests to start or end instances whose answers are lost."""
    forgets_tokens: bool = False
    down: set[str] = field(default_factory=set)
    """The regions that answer with status 503."""
    boot: Callable[[Instance], None] | None = None
    stop: Callable[[Instance], None] | None = None
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    url: str = ""
    _runner: web.AppRunner | None = None

    async def start(self, port: int = 0) -> str:
        """Begin to listen, and return the endpoint with the place of the region."""
        app = web.Application()
        app.router.add_post("/{region}/", self._answer)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", port)
        await site.start()
        port = self._runner.addresses[0][1]
        self.url = f"http://127.0.0.1:{port}/{{region}}"
        return self.url

    async def close(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    def of_token(self, token: str) -> list[Instance]:
        return [each for each in self.instances.values() if each.fields["ClientToken"] == token]

    @property
    def alive(self) -> list[Instance]:
        return [each for each in self.instances.values() if each.state in ("pending", "running")]

    def end(self, instance: Instance) -> None:
        """Terminate an instance."""
        instance.state = "terminated"
        if self.stop is not None:
            self.stop(instance)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        region = request.match_info["region"]
        fields = dict(parse_qsl((await request.read()).decode()))
        action = fields["Action"]
        self.requests.append((action, fields))
        if not request.headers.get("authorization", "").startswith("AWS4-HMAC-SHA256 Credential="):
            return _error("AuthFailure", "the request is not signed", 401)
        if region in self.down:
            return web.Response(status=503, text="<html>unavailable</html>")
        answer: web.Response = getattr(self, f"_{action}")(region, fields)
        if action in ("RunInstances", "TerminateInstances") and self.lose_answers:
            self.lose_answers -= 1
            assert request.transport is not None
            request.transport.abort()
            await asyncio.sleep(0)
        return answer

    def _RunInstances(self, region: str, fields: dict[str, str]) -> web.Response:
        zone = fields.get("Placement.AvailabilityZone", region)
        if (fields["InstanceType"], zone) in self.full:
            return _error(CAPACITY, f"no {fields['InstanceType']} in {zone}")
        if not fields["InstanceType"].count("."):
            return _error("InvalidParameterValue", "no such type")
        known = [] if self.forgets_tokens else self.of_token(fields["ClientToken"])
        if known:
            made = known[0]
        else:
            tags = {
                fields[f"TagSpecification.1.Tag.{number}.Key"]: fields[
                    f"TagSpecification.1.Tag.{number}.Value"
                ]
                for number in range(1, 50)
                if f"TagSpecification.1.Tag.{number}.Key" in fields
            }
            number = len(self.instances) + 1
            made = Instance(f"i-{number:08x}", region, fields, tags, address=f"127.9.0.{number}")
            made.hidden = self.hidden
            self.instances[made.id] = made
            if self.boot is not None:
                self.boot(made)
        return _xml("RunInstances", f"<instancesSet>{_item(made)}</instancesSet>")

    def _DescribeInstances(self, region: str, fields: dict[str, str]) -> web.Response:
        wanted = fields["Filter.1.Value.1"]
        shown = []
        for each in self.instances.values():
            if each.state == "pending" and not each.hidden:
                each.state = "running"
            if each.region != region or each.tags["corral-cluster"] != wanted:
                continue
            if "InstanceId.1" in fields and fields["InstanceId.1"] != each.id:
                continue
            if each.hidden:
                each.hidden -= 1
            else:
                shown.append(each)
        first = int(fields.get("NextToken", "0"))
        page = shown[first : first + self.page]
        more = f"<nextToken>{first + self.page}</nextToken>" if first + self.page < len(shown) else ""
        items = "".join(f"<item><instancesSet>{_item(each)}</instancesSet></item>" for each in page)
        return _xml("DescribeInstances", f"<reservationSet>{items}</reservationSet>{more}")

    def _TerminateInstances(self, _: str, fields: dict[str, str]) -> web.Response:
        found = self.instances.get(fields["InstanceId.1"])
        if found is None:
            return _error("InvalidInstanceID.NotFound", "no such instance")
        self.end(found)
        return _xml("TerminateInstances", "")

    def _DescribeSpotInstanceRequests(self, region: str, _: dict[str, str]) -> web.Response:
        items = "".join(
            f"<item><instanceId>{each.id}</instanceId><status><code>marked-for-termination</code>"
            f"<updateTime>{datetime.fromtimestamp(each.notice_at, UTC):%Y-%m-%dT%H:%M:%S.000Z}</updateTime>"
            "</status></item>"
            for each in self.instances.values()
            if each.region == region and each.notice_at is not None
        )
        return _xml(
            "DescribeSpotInstanceRequests", f"<spotInstanceRequestSet>{items}</spotInstanceRequestSet>"
        )


def _item(each: Instance) -> str:
    tags = "".join(
        f"<item><key>{escape(key)}</key><value>{escape(value)}</value></item>"
        for key, value in each.tags.items()
    )
    zone = each.fields.get("Placement.AvailabilityZone", f"{each.region}a")
    return (
        f"<item><instanceId>{each.id}</instanceId><instanceState><name>{each.state}</name></instanceState>"
        f"<instanceType>{each.fields['InstanceType']}</instanceType>"
        f"<privateIpAddress>{each.address}</privateIpAddress>"
        f"<placement><availabilityZone>{zone}</availabilityZone></placement><tagSet>{tags}</tagSet></item>"
    )


def _xml(action: str, body: str) -> web.Response:
    text = f'<{action}Response xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">{body}</{action}Response>'
    return web.Response(text=text, content_type="text/xml")


def _error(code: str, message: str, status: int = 400) -> web.Response:
    error = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"
    text = f"<Response><Errors>{error}</Errors></Response>"
    return web.Response(text=text, status=status, content_type="text/xml")
