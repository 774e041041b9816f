"""The supervisor that runs on nodes: standard library only, any Python from 3.6 on."""
