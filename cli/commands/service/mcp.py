"""corral mcp: an MCP server. With it language models can read the state of the cluster and, if the user
allows this, change the cluster.
"""

from __future__ import annotations

import importlib.util
from typing import Annotated

from cli.exit_codes import CommandError
from cli.flags import option
from cli.registry import application, examples

app = application()
ACTIONS = ("submit", "cancel", "hold", "release", "drain", "resume")


@app.command(epilog=examples("corral mcp", "corral mcp --allow submit,cancel", "corral --url ssh://head mcp"))
def mcp(
    allow: Annotated[
        str,
        option(
            "--allow",
            "ACTIONS",
            "Actions that the model may plan and apply, separated by commas: submit, cancel, hold, release, "
            "drain, resume. Default: none; the model can only read.",
        ),
    ] = "",
) -> int:
    """Serve the Model Context Protocol (MCP) on stdin and stdout.

    MCP clients, such as editors and chat programs, start this command. The tools use the API with the rights
    of the user that runs the command. A change needs two steps. First the model plans the change, and gets an
    id and the effects of the change. Then the model applies the change with this id. An id expires after 10
    minutes and can be used once.
    """
    allowed = frozenset(word.strip() for word in allow.split(",") if word.strip())
    if unknown := sorted(allowed - set(ACTIONS)):
        raise CommandError(f"--allow: {unknown[0]!r} is not an action", f"Actions: {', '.join(ACTIONS)}")
    if importlib.util.find_spec("mcp") is None:
        raise CommandError("corral mcp needs the package mcp", "Install it: pip install 'corral[mcp]'")
    from cli.mcp.server import run

    run(allowed)
    return 0
