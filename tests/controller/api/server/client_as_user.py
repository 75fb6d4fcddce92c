"""A client that runs as another user, so that the kernel reports that user to the controller.

python client_as_user.py UID SOCKET [SCOPE] < questions.json > answers.json
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import sys


class Connection(http.client.HTTPConnection):
    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.host)


def main() -> None:
    questions = json.load(sys.stdin)
    os.setgroups([])
    os.setuid(int(sys.argv[1]))
    headers = {"Host": "corral", **({"Corral-Scope": sys.argv[3]} if sys.argv[3:] else {})}
    answers = []
    for method, path, body in questions:
        connection = Connection(sys.argv[2])
        connection.request(method, path, None if body is None else json.dumps(body).encode(), headers)
        response = connection.getresponse()
        # A stream has no end: its status is answer enough.
        is_json = response.headers.get_content_type() == "application/json"
        answers.append((response.status, json.loads(response.read()) if is_json else None))
        connection.close()
    json.dump(answers, sys.stdout)


main()
