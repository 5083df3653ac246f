"""Configuration: one frozen, validated tree from TOML and the environment."""

from penstock.ops.config.dispatch_options import FanOutBy, JobsOptions, SchedulerOptions
from penstock.ops.config.errors import ConfigError, ConfigProblem
from penstock.ops.config.kinds import Network
from penstock.ops.config.loader import load, trace
from penstock.ops.config.router_options import HttpVersion, RouterOptions
from penstock.ops.config.text import as_literal, as_reference, as_toml, as_tree, shown
from penstock.ops.config.tree import AlertSettings, Config, LogLevel, LogSettings, QueueScopes

__all__ = [
    "AlertSettings",
    "Config",
    "ConfigError",
    "ConfigProblem",
    "FanOutBy",
    "HttpVersion",
    "JobsOptions",
    "LogLevel",
    "LogSettings",
    "Network",
    "QueueScopes",
    "RouterOptions",
    "SchedulerOptions",
    "as_literal",
    "as_reference",
    "as_toml",
    "as_tree",
    "load",
    "shown",
    "trace",
]
