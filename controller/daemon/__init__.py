"""The daemon: takes inputs, decides with the engine, commits, and then answers and sends."""

from controller.daemon.daemon import Daemon, Stopping

__all__ = ["Daemon", "Stopping"]
