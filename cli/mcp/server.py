"""Builds the MCP server from the tools, and runs it on stdin and stdout."""

from __future__ import annotations

from mcp.server.mcpserver import MCPServer
from mcp.types import ToolAnnotations

from cli.mcp.answers import UNTRUSTED
from cli.mcp.changes import Changes
from cli.mcp.read_tools import READ_TOOLS

INSTRUCTIONS = (
    "Corral schedules jobs on GPU hosts. Use `queue`, `why`, `when` and `what_if` for questions about "
    "waiting jobs, `logs_tail` and `job` for failed jobs, `nodes` for hardware. Changes are made with "
    "`plan` and then `apply`, where the user has allowed them: show the effects of the plan to the user "
    "first. " + UNTRUSTED
)


def why_does_it_wait(job: str) -> str:
    """Return a prompt that asks why a job waits, and which change would start the job."""
    return f"Why does job {job} wait, when does it start, and what would start it sooner? Use `why`."


def why_did_it_fail(job: str) -> str:
    """Return a prompt that asks why a job failed, and how to correct the cause."""
    return f"Why did job {job} fail? Use `job` and `logs_tail`, name the cause, and propose a change."


def build(allowed: frozenset[str]) -> MCPServer:
    """Return the server with all tools that read, and with `plan` and `apply` if any action is allowed."""
    server = MCPServer("corral", instructions=INSTRUCTIONS, log_level="WARNING")
    for tool in READ_TOOLS:
        server.tool(annotations=ToolAnnotations(read_only_hint=True))(tool)
    if allowed:
        changes = Changes(allowed)
        server.tool(annotations=ToolAnnotations(read_only_hint=True))(changes.plan)
        server.tool(annotations=ToolAnnotations(destructive_hint=True))(changes.apply)

    server.prompt()(why_does_it_wait)
    server.prompt()(why_did_it_fail)
    return server


def run(allowed: frozenset[str]) -> None:
    """Serve the MCP client on stdin and stdout until it closes stdin."""
    build(allowed).run("stdio")
