"""Configuration: one frozen, validated tree from TOML and the environment."""

from penstock.config.errors import ConfigError, Problem
from penstock.config.loading import load
from penstock.config.tree import Config

__all__ = ["Config", "ConfigError", "Problem", "load"]
