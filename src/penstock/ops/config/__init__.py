"""Configuration: one frozen, validated tree from TOML and the environment."""

from penstock.ops.config.errors import ConfigError, ConfigProblem
from penstock.ops.config.loading import load
from penstock.ops.config.tree import Config

__all__ = ["Config", "ConfigError", "ConfigProblem", "load"]
