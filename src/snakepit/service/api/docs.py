"""The API for readers: one plain page, made from the OpenAPI document. No script, nothing fetched from elsewhere."""

from __future__ import annotations

from html import escape
from typing import Any

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Snakepit HTTP API</title>
<style>
body {{ font: 16px/1.5 sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em; color-scheme: light dark }}
td {{ padding: .2em 1em .2em 0; vertical-align: top }} code {{ white-space: nowrap }} small {{ opacity: .8 }}
</style></head><body>
<h1>Snakepit HTTP API</h1>
<p>Sign in with <code>POST /users/NAME/authenticate</code>; send the token as <code>X-Auth-Token</code> or
<code>Authorization: Bearer</code>. <code>~</code> is yourself. Errors are <code>{{"message": …}}</code>.
For programs: <a href="openapi.json">openapi.json</a>.</p>
{sections}
</body></html>
"""


def page(document: dict[str, Any]) -> str:
    sections: dict[str, list[str]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            sections.setdefault(operation["tags"][0], []).append(_row(method, path, operation))
    return PAGE.format(
        sections="\n".join(
            f"<h2>{escape(title)}</h2>\n<table>{''.join(rows)}</table>" for title, rows in sections.items()
        )
    )


def _row(method: str, path: str, operation: dict[str, Any]) -> str:
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    needed = body.get("required", ())
    names = [f"{name}*" if name in needed else name for name in body.get("properties", ())]
    query = [one["name"] for one in operation["parameters"] if one["in"] == "query"]
    details = [f"body: {', '.join(names)}"] if names else []
    details += [f"query: {', '.join(query)}"] if query else []
    small = f"<br><small>{escape('; '.join(details))}</small>" if details else ""
    words = escape(operation["summary"]) + small
    return f"<tr><td><code>{method.upper()} {escape(path)}</code></td><td>{words}</td></tr>\n"
