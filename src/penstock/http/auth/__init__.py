"""Who may call: API keys, and the guard against other sites' pages."""
