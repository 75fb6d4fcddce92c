"""Applies another configuration to a running controller, and stores the earlier one, so that an operator can
restore it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from controller.config import (
    Config,
    ConfigRefused,
    differences,
    digest,
    in_effect,
    policy_text,
)
from controller.config.applied_texts import AppliedTexts, replace_text
from controller.config.differences import DECIDING
from controller.core.model.decision.decision import Refusal
from controller.core.model.inputs import controller_inputs, node_inputs
from controller.core.pipeline.pipeline import Pipeline
from controller.daemon import Daemon
from controller.engines.engines import removal_problems
from controller.nodes.link_factory import changed_links, shared_arguments
from controller.registry import build_pipeline, check_config, nodes_of
from wire.api.service.config import ConfigChange
from wire.text import counted

SIGNAL = "SIGHUP"
"""The name that the journal records instead of a user if the signal SIGHUP caused a reload of the
configuration."""

log = logging.getLogger("corral.config")


class ConfigNotWritable(Exception):
    """Raised if the new configuration cannot be written to the file that the controller reads at its
    start."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


@dataclass(frozen=True, slots=True)
class ReloadPlan:
    """A valid new configuration and its differences from the current one, before it is applied."""

    read: Config
    """The configuration exactly as in the text. In the field `config`, keys that only a restart can change
    keep the values that are in effect now.
    """
    config: Config
    pipeline: Pipeline
    changes: tuple[ConfigChange, ...]

    @property
    def decides(self) -> bool:
        """Return whether a key has changed that affects scheduling decisions and takes effect without a
        restart. The tables of engines count, because the scheduler knows the machines that pools could start.
        """
        deciding = (*DECIDING, "engines")
        return any(each.live and each.key.partition(".")[0] in deciding for each in self.changes)


class ConfigReload:
    """Applies configurations that arrive through SIGHUP or the API.

    Steps
    1. Read and check everything. If there is a problem, change nothing.
    2. If the text is part of the request, write it to the controller's file, so that a restart uses it.
    3. Pass the input `ApplyConfig` to the engine, and wait until its event is in the journal. If that fails,
       restore the file.
    4. Update the parts outside the engine: connections to nodes, hosts, hooks, watchers, log level, access.
       Add new nodes, and remove the nodes that are no longer in the file.
    """

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        name = daemon.config.source.name
        self.file = Path(name).absolute() if name else None
        """The file that the controller was started with."""
        self._applied_texts = AppliedTexts(daemon.config.state_dir / "config")
        self._one_at_a_time = asyncio.Lock()
        self._followers: list[Callable[[Config], None]] = []
        self._task: asyncio.Task[None] | None = None

    @property
    def previous(self) -> str | None:
        """The text of the configuration that was in effect before the current one; None if the current one is
        the first.
        """
        return self._applied_texts.previous()

    def follow(self, adopt: Callable[[Config], None]) -> None:
        """Call the function `adopt` now with the current configuration, and later with each configuration
        that is applied."""
        self._followers.append(adopt)
        adopt(self.daemon.config)

    def begin(self) -> None:
        """At the controller's start, pass the configuration to the engine if it has changed since the last
        start. Then pass the nodes of the configuration.
        """
        config, applied = self.daemon.config, self.daemon.state.config
        self._save_text(config.source.text)
        self.follow(_set_log_level)
        named = digest(config)
        if applied is None or applied.digest != named:
            self.daemon.tell(controller_inputs.ApplyConfig(named, "", policy=policy_text(config)))
        for given in nodes_of(config):
            self.daemon.tell(given)

    def plan(self, text: str | None = None) -> ReloadPlan:
        """Return the configuration in `text`, or in the controller's file if `text` is None, and the keys
        whose values would change. Raise ConfigRefused if the configuration has problems."""
        running = self.daemon.config
        read = check_config(self.file, text, allowed=running.plugin_files)
        return ReloadPlan(read, in_effect(running, read), build_pipeline(read), differences(running, read))

    async def apply(self, text: str | None, by: str) -> tuple[ReloadPlan, tuple[str, ...]]:
        """Apply the configuration in `text`, or in the controller's file if `text` is None. `by` is the user.

        Return the changes, and a message about each part that could not be applied. Raise ConfigRefused,
        ConfigNotWritable, and the errors of Daemon.ask.
        """
        async with self._one_at_a_time:
            plan = self.plan(text)
            if problems := removal_problems(plan.config):
                raise ConfigRefused(problems)
            before = self.daemon.config.source.text
            if text is not None:
                self._write(text)
            if any(each.live for each in plan.changes):
                try:
                    await self._tell_engine(plan, by)
                except BaseException:
                    if text is not None:
                        self._write(before)
                    raise
            notes = await self._apply_outside_engine(plan.config, by)
            return plan, (*notes, *self._save_text(plan.read.source.text))

    def soon(self) -> None:
        """Read and apply the controller's configuration file in the background. Write the result to the
        log."""
        self._task = asyncio.create_task(self._by_signal())

    async def _by_signal(self) -> None:
        try:
            plan, notes = await self.apply(None, SIGNAL)
        except ConfigRefused as refused:
            for problem in refused.problems:
                log.error("%s", problem)
            log.error(
                "the configuration has %s: nothing was changed", counted(len(refused.problems), "problem")
            )
            return
        except Exception as failure:
            log.error("the configuration could not be applied: %s", failure)
            return
        changed = [each for each in plan.changes if each.live]
        for each in changed:
            log.info("%s: %s -> %s", each.key, each.before, each.after)
        for each in plan.changes:
            if not each.live:
                log.warning("%s has changed and needs a restart of the controller", each.key)
        for note in notes:
            log.warning("%s", note)
        log.info("configuration read again from %s: %d changes", self.file or "no file", len(changed))

    async def _tell_engine(self, plan: ReloadPlan, by: str) -> None:
        reply = await self.daemon.ask(
            controller_inputs.ApplyConfig(
                digest(plan.config),
                by,
                plan.pipeline if plan.decides else None,
                tuple(each.key for each in plan.changes if each.live),
                policy_text(plan.config),
            )
        )
        assert not isinstance(reply, Refusal)

    async def _apply_outside_engine(self, config: Config, by: str) -> tuple[str, ...]:
        """Apply the configuration outside the engine (connections, hooks, watchers, log level, access), and
        add and remove nodes. Return a message about each node that could not be removed.
        """
        daemon, old = self.daemon, self.daemon.config
        daemon.reconfigure(config)
        for adopt in self._followers:
            adopt(config)
        for given in nodes_of(config):
            await daemon.ask(given)
        again = [name for name in config.nodes if name not in old.nodes or name not in daemon.agents.links]
        for name in [*changed_links(old, config), *again]:
            await daemon.agents.close_link(name)
            daemon.agents.open(daemon.hosts.configured_link(name))
        if shared_arguments(old) != shared_arguments(config):
            for node in [node for node in daemon.state.nodes if node.host is not None]:
                if node.name not in config.nodes and node.host is not None:
                    await daemon.agents.close_link(node.name)
                    daemon.agents.open(daemon.hosts.link(node.name, node.host))
        await daemon.engines.reconfigure(config)
        removed = [name for name in old.nodes if name not in config.nodes]
        notes = [note for name in removed if (note := await self._remove(name, by))]
        return tuple(notes)

    async def _remove(self, name: str, by: str) -> str:
        """Remove a node that is no longer in scheduler.toml, and return "". If the node cannot be removed
        because it has jobs, drain it, and return a message about this.
        """
        reply = await self.daemon.node_changes.remove(name, by)
        if not isinstance(reply, Refusal):
            return ""
        if reply.code == "not_found":
            return ""
        await self.daemon.ask(node_inputs.Drain(name, by, "no longer in scheduler.toml"))
        return f"{reply.message}; it is drained. When the jobs have ended: corral nodes remove {name}"

    def _save_text(self, text: str) -> tuple[str, ...]:
        """Store the text of the configuration that was just applied, and keep the text of the previous
        configuration.

        Return a tuple with one message if the text cannot be written, and an empty tuple if it is written.
        """
        try:
            self._applied_texts.keep(text)
        except OSError as error:
            note = f"the text cannot be kept for an undo: {error.strerror}"
            log.warning("%s", note)
            return (note,)
        return ()

    def _write(self, text: str) -> None:
        path = self.file
        if path is None:
            raise ConfigNotWritable(
                "the controller was started without a configuration file, so a restart would lose this",
                "Save it as a file and start the controller with --config FILE.",
            )
        try:
            replace_text(path, text)
        except OSError as error:
            raise ConfigNotWritable(
                f"the controller cannot write {path}: {error.strerror}",
                "Edit it on the controller's machine, then run 'corral config apply' without a file.",
            ) from None


def _set_log_level(config: Config) -> None:
    logging.getLogger("corral").setLevel(config.controller.log_level.upper())
