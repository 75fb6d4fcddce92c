"""Starts the controller: reads the configuration, opens the store, connects to the agents and serves the
API.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import resource
import signal
import sys
import threading
from functools import partial
from pathlib import Path

from controller import former_cluster
from controller.config import Config, ConfigRefused, load
from controller.daemon import Daemon
from controller.engines.engines import removal_problems
from controller.nodes.link import NodeLink
from controller.registry import build_pipeline
from controller.reload import ConfigReload
from controller.store.errors import StoreFailure
from controller.store.store import Store
from wire import trusted_paths
from wire.http import addresses
from wire.text import counted
from wire.trusted_paths import UntrustedPath

JOIN_S = 1.0
"""Seconds between two tries to open a store whose tables the leading controller has not made yet."""
EXIT_OK, EXIT_FAILED, EXIT_CONFIG = 0, 1, 2

log = logging.getLogger("corral")


def main(config: str | None = None, *, new_cluster: bool = False) -> int:
    """Run the controller until SIGTERM or SIGINT, and return the exit code.

    If the store is empty while jobs of another cluster run on this host, the controller does not start. With
    `new_cluster` (the option --new-cluster), it ends those jobs and starts.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    # Hide alembic's messages, because it logs several at every start.
    logging.getLogger("alembic").setLevel(logging.WARNING)
    try:
        chosen = load(Path(config) if config else None)
        pipeline = build_pipeline(chosen)
        if problems := removal_problems(chosen):
            raise ConfigRefused(problems)
    except ConfigRefused as refused:
        for problem in refused.problems:
            print(f"corral controller: {problem}", file=sys.stderr)
        return EXIT_CONFIG
    try:
        # Create missing parent directories only for the default directory. If the parents of a configured
        # directory are missing, its disk may not be mounted.
        if chosen.state_dir == addresses.state_dir():
            chosen.state_dir.parent.mkdir(parents=True, exist_ok=True)
        _raise_descriptor_limit(chosen.api.max_connections)
        os.close(trusted_paths.open_directory(str(chosen.state_dir), make=True))
        store = _open_store(chosen)
        if store is None:
            return EXIT_OK
        _refuse_former_jobs(chosen, store, new_cluster)
        daemon = Daemon(chosen, pipeline, store)
        # Exclude all objects that exist now from garbage collection, because they stay in use until the
        # process ends.
        gc.freeze()
        return asyncio.run(_serve(daemon))
    except StoreFailure as failure:
        print(f"corral controller: {failure.message}\n{failure.hint}".rstrip(), file=sys.stderr)
        return EXIT_FAILED
    except UntrustedPath as error:
        print(f"corral controller: [controller] state_dir: {error}", file=sys.stderr)
        return EXIT_FAILED
    except OSError as error:
        print(f"corral controller: {error}", file=sys.stderr)
        return EXIT_FAILED


def _open_store(config: Config) -> Store | None:
    """Open the store, as its leader or as a standby. Wait while another controller leads and has not made the
    tables of this version yet. Return None if SIGTERM or SIGINT arrives during the wait.
    """
    stopped = threading.Event()
    waiting = [signal.signal(each, lambda *_: stopped.set()) for each in (signal.SIGTERM, signal.SIGINT)]
    try:
        while not stopped.is_set():
            store = Store.join(
                config.store_url, keep=config.controller.keep_ended, memory=config.state_dir / "journal-head"
            )
            if store is not None:
                for warning in store.warnings:
                    log.warning("the database server: %s", warning)
                return store
            log.info("waiting: another controller leads, and has not made the tables of this version yet")
            stopped.wait(JOIN_S)
        return None
    finally:
        for each, former in zip((signal.SIGTERM, signal.SIGINT), waiting, strict=True):
            signal.signal(each, former)


def _refuse_former_jobs(config: Config, store: Store, new_cluster: bool) -> None:
    """Raise StoreRefused if the store is empty while jobs of another cluster run on this host.

    With `new_cluster` (the option --new-cluster), end those jobs instead of raising.
    """
    spools = [config.spool(name) for name, node in config.nodes.items() if node.host is None]
    if not store.empty:
        return
    if new_cluster:
        for line in former_cluster.end_jobs(spools, store.id):
            log.warning("of the former cluster: %s", line)
        return
    found = former_cluster.find(spools, store.id)
    if found:
        store.close()
        raise found.refusal(store.where)


def _raise_descriptor_limit(wanted: int) -> None:
    """Raise the limit of open files of this process, so that it is large enough for `wanted` API connections,
    the connections to agents and the controller's files.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    need = 2 * wanted + 1_024
    if soft != resource.RLIM_INFINITY and soft < need:
        most = need if hard == resource.RLIM_INFINITY else min(need, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


async def _serve(daemon: Daemon) -> int:
    from controller.api.server.app import serve

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, daemon.stop)
    reload = ConfigReload(daemon)
    loop.add_signal_handler(signal.SIGHUP, partial(_on_sighup, reload, had_terminal=_has_terminal()))
    if daemon.led.is_set():
        reload.begin()
    server = await serve(daemon, reload)
    daemon.announce(daemon.config.api.url or server.tcp_url or server.url)
    follows = not daemon.led.is_set()
    landing = asyncio.create_task(daemon.run())
    try:
        if follows:
            log.info("ready as a standby: %s, journal at %d", server.url, daemon.seq)
            leading = asyncio.create_task(daemon.led.wait())
            await asyncio.wait([leading, landing], return_when=asyncio.FIRST_COMPLETED)
            leading.cancel()
            if daemon.led.is_set():
                reload.begin()
        if daemon.led.is_set():
            links = _links(daemon)
            await daemon.node_changes.import_host_keys(daemon.config, daemon.state)
            for link in links:
                daemon.agents.open(link)
            daemon.engines.open()
            log.info("ready: %s, %s, journal at %d", server.url, counted(len(links), "node"), daemon.seq)
        await landing
    finally:
        landing.cancel()
        await server.close()
        await daemon.close()
        log.info("stopped; jobs on the nodes continue")
    return EXIT_OK


def _links(daemon: Daemon) -> list[NodeLink]:
    """Return an unopened connection to the agent of each node in scheduler.toml and of each node that
    operators have added.
    """
    configured = daemon.config.nodes
    added = [node for node in daemon.state.nodes if node.host is not None and node.name not in configured]
    return [
        *(daemon.hosts.configured_link(name) for name in configured),
        *(daemon.hosts.link(node.name, node.host) for node in added if node.host is not None),
    ]


def _on_sighup(reload: ConfigReload, *, had_terminal: bool) -> None:
    """Handle SIGHUP: if the controller's terminal was closed, stop the controller; otherwise read the
    configuration again. A standby does not read it, but logs a warning.
    """
    if had_terminal and not _has_terminal():
        log.info("the terminal was closed: stopping")
        reload.daemon.stop()
    elif reload.daemon.standby is not None:
        log.warning("SIGHUP is ignored: restart this standby to make it read its configuration again")
    else:
        reload.soon()


def _has_terminal() -> bool:
    try:
        return sys.stdin is not None and os.isatty(0)
    except OSError:
        return False


def run_with_arguments() -> int:
    """Run the controller with the options on the command line of this process."""
    import argparse

    parser = argparse.ArgumentParser(prog="python -m controller", description=__doc__)
    parser.add_argument("--config", help="path of scheduler.toml")
    parser.add_argument(
        "--new-cluster",
        action="store_true",
        help="start with an empty store; end the jobs that another cluster left on this host",
    )
    arguments = parser.parse_args()
    return main(arguments.config, new_cluster=arguments.new_cluster)


if __name__ == "__main__":
    sys.exit(run_with_arguments())
