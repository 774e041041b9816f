"""A light library to talk with a service: plain HTTP, streams, login."""
