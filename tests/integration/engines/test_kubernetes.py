"""Real controllers run jobs on a real Kubernetes API, and are killed at every step of a job. Stand-ins for
kubelets run the processes.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.clients.real_kubernetes import NAMESPACE, RealKubernetes, missing
from tests.integration.engines.killing_engine import END_STEPS, STEPS
from tests.systems import System
from wire.cluster.quota import NO_LIMITS
from wire.http.client import Refused
from wire.job.spec import JobSpec
from wire.job.start_conditions import OnNodeLost
from wire.names import JobState, NodeState, Reason

NOT_HERE = missing()
pytestmark = [
    pytest.mark.engines,
    pytest.mark.skipif(bool(NOT_HERE), reason=NOT_HERE or "everything is there"),
]
Build = Callable[..., System]
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
MERGE = "application/merge-patch+json"


@pytest.fixture(scope="module")
def kube() -> Iterator[RealKubernetes]:
    place = Path(tempfile.mkdtemp(prefix="corral-kube-"))
    place.chmod(0o755)
    real = RealKubernetes(place)
    try:
        real.start()
        real.add_node("n1")
        yield real
    finally:
        real.end()
        shutil.rmtree(place, ignore_errors=True)


@pytest.fixture
def ran(kube: RealKubernetes) -> Iterator[Path]:
    """A file to which the jobs of a test write, with the uid of Pods."""
    place = Path(tempfile.mkdtemp(prefix="corral-ran-"))
    place.chmod(0o777)
    yield place / "ran"
    shutil.rmtree(place)


@pytest.fixture
def controller(build: Build, kube: RealKubernetes) -> Callable[..., System]:
    """Builds a controller with an engine `kube` that is killed at `step`. The engine has only the rights in
    deploy/kubernetes.
    """

    def make(step: str = "", place: str = "node") -> System:
        system = build()
        system.sections["nodes"] = {}
        system.sections["plugins"] = {"files": [str(Path(__file__).with_name("killing_engine.py"))]}
        system.sections["engines"] = {
            "kube": {
                "type": "killing-kubernetes",
                "interval_s": 0.3,
                "kubeconfig": str(kube.account_kubeconfig()),
                "place": place,
                "step": step,
                "once": str(system.place / "killed"),
            }
        }
        return system

    return make


def begin(system: System, node: str = "kube-n1") -> System:
    system.launch()
    system.await_answer()
    system.await_nodes(node)
    return system


def spec(*command: str, **values: object) -> JobSpec:
    more = {"time_limit_s": 600.0, "cpu_milli": 1_000, "memory_mib": 50, **values}
    return JobSpec(command, selector={"engine": "kube"}, **more)  # type: ignore[arg-type]


def submit(system: System, *specs: JobSpec) -> list[int]:
    with system.client() as client:
        return [client.submit(each).ids[0] for each in specs]


def await_no_pods(system: System, kube: RealKubernetes) -> None:
    system.until(lambda: not kube.pods(), "Kubernetes has no Pod of Corral")


def await_explained(system: System, job: int, text: str) -> None:
    system.until(lambda: text in system.corral("explain", str(job)), f"explain shows {text}")


def test_many_jobs(controller: Callable[..., System], kube: RealKubernetes, ran: Path) -> None:
    """Each of 200 jobs runs once, has its own exit code and its own log, and nothing is left behind."""
    system, count = begin(controller()), 200
    ids = submit(
        system,
        *(spec("sh", "-c", f"echo {n} >> {ran}; echo log {n} $$; exit {n % 3}") for n in range(count)),
    )
    system.await_jobs(ids)
    jobs = system.jobs()
    assert Counter(int(line) for line in ran.read_text().split()) == Counter(range(count))
    for number, each in enumerate(ids):
        assert jobs[each].exit_code == number % 3, jobs[each]
        assert jobs[each].state is (JobState.FAILED if number % 3 else JobState.COMPLETED)
    assert system.corral("logs", str(ids[17])).split()[:2] == ["log", "17"]
    assert ran.stat().st_uid == 65_534
    await_no_pods(system, kube)


@pytest.mark.parametrize("step", STEPS)
def test_a_controller_killed_at_a_step_of_a_job(
    controller: Callable[..., System], kube: RealKubernetes, ran: Path, step: str
) -> None:
    """The job runs once and ends with its exit code. Nothing is left behind."""
    system = begin(controller(step))
    [job] = submit(system, spec("sh", "-c", f"echo ran >> {ran}; sleep 1; exit 3"))
    system.until(lambda: system.controller.poll() is not None, f"the controller is killed {step}")
    begin(system)
    system.await_jobs([job])
    assert (system.jobs()[job].exit_code, system.jobs()[job].attempt) == (3, 1)
    assert ran.read_text() == "ran\n"
    await_no_pods(system, kube)


@pytest.mark.parametrize("step", END_STEPS)
def test_a_controller_killed_while_a_job_is_cancelled(
    controller: Callable[..., System], kube: RealKubernetes, ran: Path, step: str
) -> None:
    system = begin(controller(step))
    [job] = submit(system, spec("sh", "-c", f"echo ran >> {ran}; sleep 1000"))
    system.until(ran.exists, "the job runs")
    system.corral("cancel", str(job))
    system.until(lambda: system.controller.poll() is not None, f"the controller is killed {step}")
    begin(system)
    system.await_jobs([job])
    assert system.jobs()[job].state is JobState.CANCELLED
    assert ran.read_text() == "ran\n"
    await_no_pods(system, kube)


def test_a_job_that_ends_while_the_api_server_is_down(
    controller: Callable[..., System], kube: RealKubernetes, ran: Path
) -> None:
    """The nodes count as disconnected, no job is lost, and the exit code is found afterwards."""
    system = begin(controller())
    [job] = submit(system, spec("sh", "-c", f"echo ran >> {ran}; sleep 5; echo end >> {ran}; exit 3"))
    system.await_jobs([job], JobState.RUNNING)
    kube.kill("kube-apiserver")
    try:
        system.until(lambda: ran.read_text() == "ran\nend\n", "the job ends")

        def down() -> bool:
            with system.client() as client:
                return client.nodes().nodes[0].state is NodeState.DOWN

        system.until(down, "the node is down")
        assert system.jobs()[job].state is JobState.RUNNING
        system.kill()
        system.launch()
        system.await_answer()
    finally:
        kube.start_api_server()
    system.await_jobs([job])
    assert (system.jobs()[job].exit_code, system.jobs()[job].attempt) == (3, 1)
    assert ran.read_text() == "ran\nend\n"
    await_no_pods(system, kube)


def test_a_pod_that_an_administrator_deletes(
    controller: Callable[..., System], kube: RealKubernetes, ran: Path
) -> None:
    """The attempt is lost, not failed. The job runs again. The output of the first attempt is kept, with what
    the program wrote after SIGTERM.
    """
    system = begin(controller())
    script = (
        f"trap 'sleep 3; echo last; exit 9' TERM; echo first; echo ran >> {ran}; "
        f"[ $(wc -l < {ran}) = 2 ] || while :; do sleep 1; done"
    )
    [job] = submit(system, spec("sh", "-c", script, on_node_lost=OnNodeLost.REQUEUE))
    system.until(ran.exists, "the job runs")
    [pod] = kube.pods()
    kube.request("DELETE", f"{PODS}/{pod['metadata']['name']}")
    system.await_jobs([job], JobState.COMPLETED)
    assert (system.jobs()[job].attempt, ran.read_text()) == (2, "ran\nran\n")
    first, *_, last = system.corral("logs", str(job), "--attempt", "1").splitlines()
    assert (first, last) == ("first", "last")
    await_no_pods(system, kube)


def test_a_node_that_is_removed_from_kubernetes(
    controller: Callable[..., System], kube: RealKubernetes, ran: Path
) -> None:
    """Its job is lost when Kubernetes has deleted the Pod, and runs again on another node."""
    kube.add_node("n2")
    system = begin(controller(), "kube-n2")
    script = f"echo ran >> {ran}; [ $(wc -l < {ran}) = 2 ] || exec sleep 1000"
    [job] = submit(system, spec("sh", "-c", script, on_node_lost=OnNodeLost.REQUEUE))
    system.until(ran.exists, "the job runs")
    [pod] = kube.pods()
    node = pod["spec"]["nodeName"]
    kube.kill(node)
    kube.request("DELETE", f"/api/v1/nodes/{node}")
    system.await_jobs([job], JobState.COMPLETED)
    assert (system.jobs()[job].attempt, ran.read_text()) == (2, "ran\nran\n")
    await_no_pods(system, kube)

    def nodes() -> list[str]:
        with system.client() as client:
            return [each.name for each in client.nodes().nodes]

    system.until(lambda: f"kube-{node}" not in nodes(), "the node is removed from Corral")
    for name in {"n2"} - {node}:
        kube.kill(name)
        kube.request("DELETE", f"/api/v1/nodes/{name}")
    if node == "n1":
        kube.add_node(node)


def test_reasons_of_kubernetes_are_explained(
    controller: Callable[..., System], kube: RealKubernetes, ran: Path
) -> None:
    """A missing image, a quota of the namespace, and more memory than the limit."""
    system = begin(controller())
    [no_image] = submit(system, spec("true", image="missing:1"))
    await_explained(system, no_image, "waits for kube:n1: ImagePullBackOff: Back-off pulling image")
    system.corral("cancel", str(no_image))
    kube.create_yaml(
        'apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: none}\nspec: {hard: {"requests.cpu": 500m}}'
    )
    quotas = f"/api/v1/namespaces/{NAMESPACE}/resourcequotas/none"
    system.until(lambda: "hard" in kube.get(quotas).get("status", {}), "the quota applies")
    [quota] = submit(system, spec("true"))
    await_explained(system, quota, "exceeded quota: none")
    kube.request("DELETE", quotas)
    system.await_jobs([no_image, quota])
    assert system.jobs()[quota].state is JobState.COMPLETED
    assert system.jobs()[no_image].state is JobState.CANCELLED
    grow = "x = bytearray(200 << 20); x[::4096] = bytes(len(x[::4096])); import time; time.sleep(60)"
    [large] = submit(system, spec("/usr/bin/python3", "-c", grow))
    system.await_jobs([large])
    assert system.jobs()[large].reason is Reason.OUT_OF_MEMORY
    await_no_pods(system, kube)


def test_limits_of_a_project_come_from_a_resource_quota(
    controller: Callable[..., System], kube: RealKubernetes
) -> None:
    """The limits hold, survive an API server that is away, and go when the resource quota is deleted."""
    kube.create_yaml(
        "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: team}\n"
        'spec: {hard: {"requests.nvidia.com/gpu": 3, pods: 7}}'
    )
    system = controller()
    system.sections["quota"] = {
        "provider": "kubernetes",
        "engine": "kube",
        "namespaces": {"default": NAMESPACE},
    }
    begin(system)

    def limits() -> tuple[float | None, int | None, str]:
        with system.client() as client:
            view = client.quota("project", "default")
        return view.quota.hard.gpus, view.quota.hard.running, view.source

    system.until(lambda: limits()[:2] == (3.0, 7), "the limits apply")
    first, second = submit(system, *(spec("sleep", "1000", gpus=2) for _ in range(2)))
    system.await_jobs([first], JobState.RUNNING)
    await_explained(system, second, "2 of 3")
    assert "kube:corral, read" in system.corral("quota", "sync", "project", "default", "-o", "json")
    kube.kill("kube-apiserver")
    try:
        with system.client() as client, pytest.raises(Refused, match="the last known limits stay in force"):
            client.sync_quota("project", "default")
        assert limits()[:2] == (3.0, 7)
        assert "no answer from the API server" in limits()[2]
    finally:
        kube.start_api_server()
    kube.request("DELETE", f"/api/v1/namespaces/{NAMESPACE}/resourcequotas/team")
    with system.client() as client:
        assert client.sync_quota("project", "default").quota.hard == NO_LIMITS
    system.await_jobs([second], JobState.RUNNING)
    system.corral("cancel", str(first), str(second))
    system.await_jobs([first, second])
    await_no_pods(system, kube)


def test_a_cordon_in_kubernetes_drains_the_node(
    controller: Callable[..., System], kube: RealKubernetes
) -> None:
    system = begin(controller())

    def state() -> NodeState:
        with system.client() as client:
            return client.nodes().nodes[0].state

    for cordoned, wanted in ((True, NodeState.DRAINED), (False, NodeState.UP)):
        body = {"spec": {"unschedulable": cordoned}}
        kube.request("PATCH", "/api/v1/nodes/n1", body, MERGE)
        system.until(lambda wanted=wanted: state() is wanted, f"the node is {wanted}")  # type: ignore[misc]


def test_the_scheduler_of_kubernetes_chooses(
    controller: Callable[..., System], kube: RealKubernetes, ran: Path
) -> None:
    """A Pod that no node can hold waits as Unschedulable, and its cancel ends it."""
    kube.add_node("n3")
    system = begin(controller(place="scheduler"), "kube-pods")
    [small, large] = submit(
        system,
        spec("sh", "-c", f"echo ran >> {ran}; exit 3", gpus=2),
        spec("true", cpu_milli=100_000),
    )
    await_explained(system, large, "Unschedulable: 0/")
    system.corral("cancel", str(large))
    system.await_jobs([small, large])
    assert (system.jobs()[small].exit_code, ran.read_text()) == (3, "ran\n")
    assert system.jobs()[large].state is JobState.CANCELLED
    await_no_pods(system, kube)
    kube.kill("n3")
    kube.request("DELETE", "/api/v1/nodes/n3")
