"""The HTTP service: verbs, routes, tokens."""
