"""Finds the identity provider that [access.oidc] names."""

from __future__ import annotations

from typing import Any

from controller.config import Config
from controller.config.tables.access import OidcSection
from controller.registry.plugin_classes import make_plugin


def identity_type(config: Config, section: OidcSection) -> Any:
    """Return the plugin of the kind `identity`. Raise ConfigRefused if there is none of this name."""
    key = ("access", "oidc", "provider")
    return make_plugin("identity", section.provider, section.options, key, config.source, config.plugin_files)
