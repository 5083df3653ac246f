"""The settings of a router process."""

from dataclasses import dataclass, fields
from pathlib import Path

from penstock.ops.config import Config, Network, RouterOptions


@dataclass(frozen=True, kw_only=True)
class RouterSettings(RouterOptions):
    """The router's options of penstock.toml, and its address, workers and keys."""

    host: str = "127.0.0.1"
    port: int = 8081
    workers: int = 1
    node_id: int | None = None
    egress_allow: tuple[Network, ...] = ()
    egress_deny_ports: tuple[int, ...] = ()
    api_keys: Path | None = None

    @property
    def asks_for_keys(self) -> bool:
        """Whether the API requires a token or a key."""
        return bool(self.api_token) or self.api_keys is not None


def router_settings(config: Config, *, sources: tuple[str, ...], host: str, port: int, workers: int) -> RouterSettings:
    """Return the settings of `config`; the given configuration sources replace those of `config`."""
    options = {entry.name: getattr(config.router, entry.name) for entry in fields(RouterOptions)}
    return RouterSettings(
        **{
            **options,
            "config": sources or config.router.config,
            "api_token": config.router.api_token or config.api.token,
        },
        host=host,
        port=port,
        workers=workers,
        node_id=config.node.id,
        egress_allow=config.egress.allow,
        egress_deny_ports=config.egress.deny_ports,
        api_keys=config.api.key_file,
    )
