"""Reads the access key for AWS from a file or from the environment of the controller."""

from __future__ import annotations

import configparser
import os
from collections.abc import Mapping

from controller.engines.aws.signing import Credentials
from controller.engines.contract import EngineUnavailable
from wire import trusted_paths


def read_credentials(file: str) -> Credentials:
    """Return the access key in the section `default` of `file`, which has the form of ~/.aws/credentials.
    Without `file`, return the access key in the environment of the controller. Raise EngineUnavailable if
    there is none.
    """
    found: Mapping[str, str] = os.environ
    if file:
        try:
            with open(trusted_paths.open_file(os.path.expanduser(file)), encoding="utf-8") as opened:
                parser = configparser.ConfigParser(interpolation=None)
                parser.read_string(opened.read())
            found = {key.upper(): value for key, value in parser["default"].items()}
        except (OSError, KeyError, ValueError, configparser.Error, trusted_paths.UntrustedPath) as error:
            raise EngineUnavailable(f"the credentials in {file} cannot be read: {error}") from None
    key_id, secret = found.get("AWS_ACCESS_KEY_ID", ""), found.get("AWS_SECRET_ACCESS_KEY", "")
    if not key_id or not secret:
        raise EngineUnavailable(
            "there is no access key for AWS: name a file in credentials_file, or set AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY for the controller"
        )
    return Credentials(key_id, secret, found.get("AWS_SESSION_TOKEN", ""))
