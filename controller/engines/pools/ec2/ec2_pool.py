"""The machine pool of EC2: the options of an engine of type "ec2", and the requests about instances."""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.mime.multipart import MIMEMultipart
from email.mime.text import MIMEText
from typing import ClassVar, Literal
from xml.etree.ElementTree import Element

from controller.engines.aws.answers import text_of
from controller.engines.contract import EngineScope, EngineUnavailable, Offer
from controller.engines.pools.ec2.ec2_api import Ec2Api, Ec2Refused
from controller.engines.pools.machine_pool import (
    Machine,
    MachineList,
    MachineOrder,
    MachinePool,
    MachineShape,
    MachineState,
    NoCapacity,
    PoolOptions,
)
from controller.engines.pools.pool_engine import PoolEngine, offer_of
from wire import trusted_paths
from wire.codec import dumps

CLUSTER_TAG, TOKEN_TAG = "corral-cluster", "corral-machine"
PAGE = "1000"
NOTICE_S = 120.0
"""Seconds between the notice of a spot interruption and the interruption."""
STATES = {
    "pending": MachineState.STARTING,
    "running": MachineState.RUNNING,
    "shutting-down": MachineState.ENDED,
    "terminated": MachineState.ENDED,
}
"""The states of instances. A stopped instance still exists, so it counts as STARTING until it is terminated.
"""
log = logging.getLogger("corral.engines")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ec2Place:
    """A region and zone, with the image and the network of instances there."""

    region: str
    image: str
    zone: str = ""
    subnet: str = ""
    security_groups: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.zone or self.region


@dataclass(frozen=True, slots=True, kw_only=True)
class Ec2PoolType(PoolOptions):
    """The options of an EC2 pool. Each shape has the name of an instance type."""

    name: ClassVar[str] = "ec2"

    places: tuple[Ec2Place, ...]
    shapes: tuple[MachineShape, ...]
    spot: bool = False
    address: Literal["private", "public"] = "private"
    key_name: str = ""
    credentials_file: str = ""
    user_data_file: str = ""
    endpoint: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)

    def configured_offers(self) -> tuple[Offer, ...]:
        return tuple(
            offer_of(shape, place.name, {"region": place.region, "zone": place.name})
            for place in self.places
            for shape in self.shapes
        )

    def connect(self, scope: EngineScope) -> PoolEngine:
        return PoolEngine(Ec2Pool(self, scope), self, scope)


class Ec2Pool(MachinePool):
    """The instances of one cluster in EC2.

    1. RunInstances has the token as ClientToken, so EC2 starts one instance for a repeated request.
    2. Each instance has two tags: the cluster, by which DescribeInstances finds all instances in pages, and
       the token.
    3. The user data give the instance its SSH host key, so that Corral can check the key at the first
       connection.
    4. The notice of a spot interruption is the status `marked-for-termination` of the spot request.

    Invariant: only instances with the tag of this cluster are terminated.
    """

    idempotent = True
    makes_host_keys = True

    def __init__(self, options: Ec2PoolType, scope: EngineScope) -> None:
        self._options = options
        self._prefix = scope.tag_prefix
        self._cluster = f"{scope.tag_prefix}{scope.name}"
        regions = dict.fromkeys(place.region for place in options.places)
        self._apis = {
            region: Ec2Api(region, options.endpoint, options.credentials_file) for region in regions
        }

    async def machines(self) -> MachineList:
        answers = await asyncio.gather(*map(self._machines_in, self._apis.values()), return_exceptions=True)
        found: list[Machine] = []
        failures: list[BaseException] = []
        for answer in answers:
            if isinstance(answer, BaseException):
                failures.append(answer)
            else:
                found += answer
        if len(failures) == len(answers):
            raise failures[0]
        for failure in failures:
            log.warning("engine %s: a region did not answer: %s", self._cluster, failure)
        return MachineList(not failures, tuple(found))

    async def create(self, order: MachineOrder) -> str:
        offer = order.offer
        place = next((each for each in self._options.places if each.name == offer.zone), None)
        if place is None:
            raise NoCapacity(f"there is no place {offer.zone} in scheduler.toml")
        api = self._apis[place.region]
        try:
            answer = await api.call("RunInstances", self._run_instances(order, place))
        except Ec2Refused as refused:
            raise NoCapacity(str(refused)) from None
        ref = text_of(answer, "instancesSet/item/instanceId")
        if not ref:
            raise EngineUnavailable(f"EC2 in {place.region} has answered RunInstances without an instance")
        return f"{place.region}/{ref}"

    async def end(self, ref: str) -> None:
        region, _, instance = ref.partition("/")
        api = self._apis.get(region)
        if api is None:
            raise EngineUnavailable(f"no place in scheduler.toml is in the region {region} of {instance}")
        mine = {"InstanceId.1": instance, **_filters({f"tag:{CLUSTER_TAG}": self._cluster})}
        try:
            answer = await api.call("DescribeInstances", mine)
            if answer.find("reservationSet/item/instancesSet/item") is not None:
                await api.call("TerminateInstances", {"InstanceId.1": instance})
        except Ec2Refused as refused:
            if refused.code != "InvalidInstanceID.NotFound":
                raise EngineUnavailable(f"EC2 does not terminate {instance}: {refused}") from None

    async def offers(self) -> tuple[Offer, ...]:
        return self._options.configured_offers()

    async def close(self) -> None:
        for api in self._apis.values():
            await api.close()

    # --- requests ---

    async def _machines_in(self, api: Ec2Api) -> list[Machine]:
        query = {"MaxResults": PAGE, **_filters({f"tag:{CLUSTER_TAG}": self._cluster})}
        found: list[Machine] = []
        try:
            notices = await self._notices(api) if self._options.spot else {}
            async for page in api.pages("DescribeInstances", query):
                found += self._instances(page, api.region, notices)
        except Ec2Refused as refused:
            raise EngineUnavailable(f"EC2 in {api.region} refuses to list instances: {refused}") from None
        return found

    def _instances(self, page: Element, region: str, notices: Mapping[str, float]) -> Iterator[Machine]:
        for item in page.iterfind("reservationSet/item/instancesSet/item"):
            instance = text_of(item, "instanceId")
            tags = {text_of(tag, "key"): text_of(tag, "value") for tag in item.iterfind("tagSet/item")}
            if tags.get(CLUSTER_TAG) != self._cluster:
                continue
            path = "privateIpAddress" if self._options.address == "private" else "ipAddress"
            zone = text_of(item, "placement/availabilityZone")
            known = {place.name for place in self._options.places}
            yield Machine(
                f"{region}/{instance}",
                tags.get(TOKEN_TAG, ""),
                STATES.get(text_of(item, "instanceState/name"), MachineState.STARTING),
                text_of(item, path),
                text_of(item, "instanceType"),
                zone if zone in known else region,
                notices.get(instance),
            )

    async def _notices(self, api: Ec2Api) -> dict[str, float]:
        """Return the time of the interruption of each spot instance that EC2 will interrupt."""
        query = {"MaxResults": PAGE, **_filters({"status-code": "marked-for-termination"})}
        found = {}
        async for page in api.pages("DescribeSpotInstanceRequests", query):
            for item in page.iterfind("spotInstanceRequestSet/item"):
                if text_of(item, "status/code") == "marked-for-termination":
                    at = _time(text_of(item, "status/updateTime"))
                    found[text_of(item, "instanceId")] = at + NOTICE_S
        return found

    def _run_instances(self, order: MachineOrder, place: Ec2Place) -> dict[str, str]:
        options = self._options
        query = {
            "ClientToken": order.token,
            "ImageId": place.image,
            "InstanceType": order.offer.shape,
            "MinCount": "1",
            "MaxCount": "1",
            "InstanceInitiatedShutdownBehavior": "terminate",
            "MetadataOptions.HttpTokens": "required",
            "UserData": base64.b64encode(self._user_data(order).encode()).decode(),
        }
        network = {f"SecurityGroupId.{number}": each for number, each in enumerate(place.security_groups, 1)}
        if place.subnet:
            network["SubnetId"] = place.subnet
        if options.address == "public":
            network = {f"NetworkInterface.1.{key}": value for key, value in network.items()}
            network |= {
                "NetworkInterface.1.DeviceIndex": "0",
                "NetworkInterface.1.AssociatePublicIpAddress": "true",
            }
        query |= network
        if place.zone:
            query["Placement.AvailabilityZone"] = place.zone
        if options.key_name:
            query["KeyName"] = options.key_name
        if options.spot:
            query["InstanceMarketOptions.MarketType"] = "spot"
            query["InstanceMarketOptions.SpotOptions.SpotInstanceType"] = "one-time"
        name = order.token.rpartition("-")[2]
        tags = {**options.tags, "Name": f"corral {name}", CLUSTER_TAG: self._cluster, TOKEN_TAG: order.token}
        for number, kind in enumerate(("instance", "volume"), 1):
            query[f"TagSpecification.{number}.ResourceType"] = kind
            for count, (key, value) in enumerate(tags.items(), 1):
                query[f"TagSpecification.{number}.Tag.{count}.Key"] = key
                query[f"TagSpecification.{number}.Tag.{count}.Value"] = value
        return query

    def _user_data(self, order: MachineOrder) -> str:
        """Return the user data: a cloud-config with the SSH host key, and the site's own user data."""
        keys = {"ed25519_private": order.host_key} if order.host_key else {}
        config = "#cloud-config\n" + dumps({"ssh_deletekeys": True, "ssh_keys": keys}) + "\n"
        if not self._options.user_data_file:
            return config
        try:
            with open(trusted_paths.open_file(self._options.user_data_file), encoding="utf-8") as file:
                own = file.read()
        except (OSError, trusted_paths.UntrustedPath) as error:
            raise NoCapacity(
                f"the user data in {self._options.user_data_file} cannot be read: {error}"
            ) from None
        both = MIMEMultipart()
        both.attach(MIMEText(config, "cloud-config"))
        both.attach(MIMEText(own, "x-shellscript" if own.startswith("#!") else "cloud-config"))
        return both.as_string()


def _filters(wanted: Mapping[str, str]) -> dict[str, str]:
    return {
        f"Filter.{number}.{key}": text
        for number, (name, value) in enumerate(wanted.items(), 1)
        for key, text in (("Name", name), ("Value.1", value))
    }


def _time(text: str) -> float:
    """Return a time of EC2 in seconds since 1970; 0 if there is none."""
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return 0.0
