"""HTTP: which verb answers which path, how answers and errors look, the OpenAPI document."""
