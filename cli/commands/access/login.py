"""corral login and corral logout: begin and end a session with the identity provider of the site."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from cli.commands.access.device_flow import begin, wait_for_id_token
from cli.exit_codes import CommandError
from cli.flags import switch
from cli.output.formats import Format, Output, write_data, write_facts
from cli.output.stderr import print_note
from cli.output.table_columns import clock
from cli.registry import application, examples
from wire.api.service.access import LoginRequest
from wire.http import addresses, contexts
from wire.http.client import Client
from wire.text import printable

app = application()
logout_app = application()


@app.command(epilog=examples("corral --url https://head1:7070 login", "corral login --explain"))
def login(
    explain: Annotated[
        bool, switch("--explain", "Also show the groups of the user for which the site has rules.")
    ] = False,
    output: Output = Format.TABLE,
) -> int:
    """Log in with the identity provider of the site ([access.oidc]), and save the session.

    The command prints an address and a code. Open the address in any browser, type the code, and log in. The
    session replaces the saved token of this controller. It ends after [access.oidc] session_hours, with
    'corral logout', and with 'corral token revoke'.
    """
    with Client() as client:
        if not client.url.startswith("http"):
            hint = "Name the https address of the controller: corral --url https://head1:7070 login"
            raise CommandError(f"{client.url} needs no login: the system tells who you are", hint)
        offer = client.login_offer()
        code = begin(offer)
        print_note(f"Open {printable(code.page_with_code or code.page, 300)}")
        print_note(f"and confirm the code {printable(code.user_code, 40)}")
        proof = wait_for_id_token(offer, code)
        answer = client.login(LoginRequest(proof, code.nonce, f"login on {os.uname().nodename}"[:100]))
        _save(client.url, answer.text)
    if output.is_data:
        write_data(output, replace(answer, text=""))
        return 0
    facts = [("user", answer.token.user), ("role", answer.role), ("session", answer.token.id)]
    facts.append(("ends", clock(answer.token.expires_at)))
    if explain:
        facts.append(("groups", ", ".join(answer.groups) or "none has a rule"))
    write_facts(facts)
    sys.stdout.flush()
    return 0


@logout_app.command(epilog=examples("corral logout"))
def logout() -> int:
    """End the session of 'corral login': revoke its token, and delete it here. Streams that are open with
    the token end within a second.
    """
    with Client() as client:
        token = client.whoami().token
        if not token:
            raise CommandError(f"{client.url} has no session", "'corral whoami' shows how you are known.")
        client.revoke_token(token)
        file = _token_file(client.url)
        file.unlink(missing_ok=True)
        known = contexts.load()
        kept = {
            name: replace(each, token_file="") if each.token_file == str(file) else each
            for name, each in known.known.items()
        }
        contexts.save(replace(known, known=kept))
    print_note(f"session {token} is over")
    return 0


def _save(url: str, text: str) -> None:
    """Write the token to a file that only this user can read, and name the file in the context of the URL."""
    file = _token_file(url)
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = file.with_name(f"{file.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with open(descriptor, "w", encoding="ascii") as opened:
        opened.write(f"{text}\n")
    os.replace(draft, file)
    known = contexts.load()
    name = next((name for name, each in known.known.items() if each.url == url), file.name)
    context = replace(known.of_url(url), token_file=str(file))
    contexts.save(replace(known, known={**known.known, name: context}))


def _token_file(url: str) -> Path:
    return addresses.config_dir() / "sessions" / re.sub(r"[^A-Za-z0-9.-]", "_", url.partition("://")[2])
