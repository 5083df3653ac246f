"""Commands for operators: backup, configuration, API keys, and what is wrong with an installation."""
