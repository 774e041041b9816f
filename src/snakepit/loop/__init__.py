"""Look, decide, write down, act."""
