"""The composition root: configuration, store, engine, links and API put together."""

from __future__ import annotations

import asyncio
import logging
import resource
import signal
import sys
from pathlib import Path

from controller.config import ConfigRefused, NodeSection, load
from controller.core.inputs import AddNode
from controller.daemon import Daemon
from controller.nodes.arguments import AgentOptions
from controller.nodes.link import NodeLink
from controller.nodes.local import LocalLink
from controller.registry import build_pipeline
from controller.store.failures import StoreFailure
from controller.store.store import Store
from wire import places
from wire.affinity import taint_of
from wire.text import counted

EXIT_OK, EXIT_FAILED, EXIT_CONFIG = 0, 1, 2

log = logging.getLogger("corral")


def main(config: str | None = None) -> int:
    """Run the controller until SIGTERM or SIGINT; returns the exit code."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("alembic").setLevel(logging.WARNING)  # it reports every start as if it were news
    try:
        chosen = load(Path(config) if config else None)
        pipeline = build_pipeline(chosen)
    except ConfigRefused as refused:
        for problem in refused.problems:
            print(f"corral controller: {problem}", file=sys.stderr)
        return EXIT_CONFIG
    try:
        # The default lies deep in a fresh home; a place of one's own must be there already.
        if chosen.state_dir == places.state_dir():
            chosen.state_dir.parent.mkdir(parents=True, exist_ok=True)
        _allow_connections(chosen.api.max_connections)
        store = Store.open(chosen.store_url, keep=chosen.controller.keep_ended)
        return asyncio.run(_serve(Daemon(chosen, pipeline, store)))
    except StoreFailure as failure:
        print(f"corral controller: {failure.message}\n{failure.hint}".rstrip(), file=sys.stderr)
        return EXIT_FAILED
    except OSError as error:
        print(f"corral controller: {error}", file=sys.stderr)
        return EXIT_FAILED


def _allow_connections(wanted: int) -> None:
    """Every connection is a file descriptor, and so is much else: ask for enough of them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    need = 2 * wanted + 1_024
    if soft != resource.RLIM_INFINITY and soft < need:
        most = need if hard == resource.RLIM_INFINITY else min(need, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


async def _serve(daemon: Daemon) -> int:
    from controller.api.app import serve

    loop, nodes = asyncio.get_running_loop(), daemon.config.nodes
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, daemon.stop)
    for name, node in nodes.items():
        daemon.tell(AddNode(name, node.labels, taints=tuple(map(taint_of, node.taints))))
    links = _links(daemon)
    server = await serve(daemon)
    landing = asyncio.create_task(daemon.run())
    try:
        await daemon.import_keys()
        for link in links:
            daemon.link(link)
        log.info("ready: %s, %s, journal at %d", server.url, counted(len(links), "node"), daemon.seq)
        await landing
    finally:
        landing.cancel()
        await server.close()
        await daemon.close()
        log.info("stopped; what runs on the nodes goes on")
    return EXIT_OK


def _links(daemon: Daemon) -> list[NodeLink]:
    """To the nodes of the configuration, and to those that operators have added."""
    config = daemon.config
    found = {
        name: daemon.hosts.link(name, node.host) if node.host is not None else _local(daemon, name, node)
        for name, node in config.nodes.items()
    }
    added = {node.name: node.host for node in daemon.state.nodes if node.host is not None}
    for name, host in added.items():
        if name not in found:
            found[name] = daemon.hosts.link(name, host)
    return list(found.values())


def _local(daemon: Daemon, name: str, node: NodeSection) -> NodeLink:
    config, ping_s = daemon.config, daemon.config.scheduler.beat_s
    options = AgentOptions(
        node.gpus,
        node.cpus,
        node.memory,
        run_as_self=node.run_as_self,
        jobs=config.jobs.policy,
        scratch=node.scratch,
        scratch_dir=node.scratch_dir,
        cluster=daemon.cluster,
    )
    return LocalLink(
        name, config.spool(name), python=node.python, agent=options, ping_s=ping_s, silence_s=3 * ping_s
    )


if __name__ == "__main__":
    import argparse

    parser = argparse.ArgumentParser(prog="python -m controller", description=__doc__)
    parser.add_argument("--config", help="scheduler.toml to use")
    sys.exit(main(parser.parse_args().config))
