"""The route table: the original's routes first, then our own beside them."""

from __future__ import annotations

from starlette.convertors import PathConvertor, register_url_convertor
from starlette.responses import PlainTextResponse

from snakepit.service.api.route import Route
from snakepit.service.call import Call
from snakepit.service.verbs import aliases, files, groups, inside, job, jobs, login, nodes, pipes, submit, users
from snakepit.wire import shapes


class Anything(PathConvertor):
    """A path whose names may contain line breaks."""

    regex = "(?s:.*)"


register_url_convertor("anything", Anything())


async def hello(call: Call) -> PlainTextResponse:
    """Whether the service is there."""
    return PlainTextResponse("Here I am")


WAY = (403, 404, 429, 502, 503)
JOBS = (
    Route("POST", "/jobs", submit.submit, body=submit.JOB, answer=shapes.JobId, errors=(403, 404, 406, 409)),
    Route("GET", "/jobs", jobs.listing, query=jobs.LISTING, strict_query=True, answer=list[shapes.Job]),
    Route("GET", "/jobs/status", jobs.status, query=jobs.POLL, answer=shapes.Status),
    Route("GET", "/jobs/{job}", jobs.show, answer=shapes.JobDetails, errors=(404,)),
    Route("DELETE", "/jobs/{job}", job.remove, errors=(403, 404, 412)),
    Route("POST", "/jobs/{job}/stop", job.stop, errors=(403, 404, 412)),
    Route("GET", "/jobs/{job}/log", job.log, query=job.LOG, media_type="text/plain", errors=(403, 404)),
    Route("GET", "/jobs/{job}/targz", files.targz, media_type="application/gzip", errors=(403, 404)),
    Route("GET", "/jobs/{job}/why", jobs.why, answer=shapes.Reasons, errors=(404,)),
    Route("GET", "/jobs/{job}/wait", jobs.wait, query=jobs.WAIT, answer=shapes.JobDetails, errors=(404,)),
    Route("POST", "/jobs/{job}/rerun", submit.rerun, answer=shapes.JobId, errors=(403, 404, 406, 409, 412)),
    Route("PUT", "/jobs/{job}/groups/{group}", job.share, query=job.SHARE, errors=(403, 404)),
    Route("DELETE", "/jobs/{job}/groups/{group}", job.unshare, errors=(403, 404)),
)
USERS = (
    Route("GET", "/users", users.ids, answer=list[str], errors=(403,)),
    Route("GET", "/users/{user}/exists", users.exists, asks="anybody", errors=(404,)),
    Route("PUT", "/users/{user}", users.add, asks="anybody", body=users.NEW_USER, errors=(403, 404)),
    Route("POST", "/users/{user}", users.change, body=users.CHANGED_USER, errors=(403, 404, 412, 429)),
    Route("GET", "/users/{user}", users.show, answer=shapes.User, errors=(403, 404)),
    Route("DELETE", "/users/{user}", users.remove, errors=(403, 404, 412)),
    Route("PUT", "/users/{user}/groups/{group}", users.join, errors=(403, 404)),
    Route("DELETE", "/users/{user}/groups/{group}", users.leave, errors=(403, 404)),
    Route(
        "POST",
        "/users/{user}/authenticate",
        login.authenticate,
        asks="nobody",
        body=login.PASSWORD,
        answer=shapes.Token,
        errors=(404, 429),
    ),
    Route("POST", "/users/{user}/logout", login.logout),
    Route(
        "POST",
        "/users/{user}/tokens",
        login.add_token,
        body=login.NEW_TOKEN,
        answer=shapes.NamedToken,
        errors=(403, 404),
    ),
    Route("GET", "/users/{user}/tokens", login.list_tokens, answer=list[shapes.TokenInfo], errors=(403,)),
    Route("DELETE", "/users/{user}/tokens/{token}", login.remove_token, errors=(403, 404)),
)
GROUPS = (
    Route("GET", "/groups", groups.ids, answer=list[str]),
    Route("GET", "/groups/{group}", groups.show, answer=shapes.Group, errors=(404,)),
    Route("PUT", "/groups/{group}", groups.add, body=groups.GROUP, errors=(403,)),
    Route("POST", "/groups/{group}", groups.change, body=groups.GROUP, errors=(403, 404)),
    Route("DELETE", "/groups/{group}", groups.remove, errors=(403, 404)),
)
NODES = (
    Route("GET", "/nodes", nodes.ids, answer=list[str]),
    Route("GET", "/nodes/{node}", nodes.show, answer=shapes.Node, errors=(404,)),
    Route("PUT", "/nodes/{node}", nodes.add, body=nodes.NEW_NODE, errors=(403,)),
    Route("POST", "/nodes/{node}", nodes.change, body=nodes.CHANGED_NODE, errors=(403, 404)),
    Route("DELETE", "/nodes/{node}", nodes.remove, errors=(403, 404)),
    Route("POST", "/nodes/{node}/drain", nodes.drain, body=nodes.DRAIN, errors=(403, 404)),
    Route("POST", "/nodes/{node}/resume", nodes.resume, errors=(403, 404)),
    Route("PUT", "/nodes/{node}/groups/{group}", nodes.restrict, errors=(403, 404)),
    Route("DELETE", "/nodes/{node}/groups/{group}", nodes.unrestrict, errors=(403, 404)),
    Route("PUT", "/nodes/{node}/resources/{index}/groups/{group}", nodes.restrict, errors=(403, 404)),
    Route("DELETE", "/nodes/{node}/resources/{index}/groups/{group}", nodes.unrestrict, errors=(403, 404)),
)
ALIASES = (
    Route("GET", "/aliases", aliases.ids, answer=list[str]),
    Route("GET", "/aliases/{alias}", aliases.show, answer=shapes.Alias, errors=(404,)),
    Route("PUT", "/aliases/{alias}", aliases.add, body=aliases.ALIAS, errors=(403,)),
    Route("POST", "/aliases/{alias}", aliases.change, body=aliases.ALIAS, errors=(403, 404)),
    Route("DELETE", "/aliases/{alias}", aliases.remove, errors=(403, 404)),
)
FILES = tuple(
    Route(
        method,
        f"{place}/simplefs/{{aspect}}{rest}",
        verb,
        media_type="application/octet-stream",
        query=files.QUERY,
        errors=(403, 404, 416, 507),
        raw_body=method == "PUT",
    )
    for place, verb in (
        ("/shared", files.shared),
        ("/users/{user}", files.home),
        ("/groups/{group}", files.group),
        ("/jobs/{job}", files.job),
    )
    for rest in ("/{path:anything}", "")
    for method in ("GET", "PUT", "POST", "DELETE")
)
PIPES = tuple(
    Route(
        "GET", f"/pipes/{verb.__name__}", verb, query=query, strict_query=True, status=101, errors=(403, 404, 429, 503)
    )
    for verb, query in (
        (pipes.sftp, pipes.SFTP),
        (pipes.git, pipes.GIT),
        (pipes.rsync, pipes.RSYNC),
        (pipes.tensorboard, pipes.TENSORBOARD),
    )
)
INSIDE = (
    *(
        Route("GET", f"/jobs/{{job}}/instances/{{index}}/{verb.__name__}", verb, query=query, status=101, errors=WAY)
        for verb, query in ((inside.exec, inside.EXEC), (inside.connect, inside.CONNECT), (inside.forward, {}))
    ),
    Route("GET", "/audit", inside.audit, query=inside.AUDIT, answer=list[shapes.AuditEntry], errors=(403,)),
)
ROUTES = (
    Route("GET", "/hello", hello, asks="nobody", media_type="text/plain"),
    *JOBS,
    *USERS,
    *GROUPS,
    *NODES,
    *ALIASES,
    *FILES,
    *PIPES,
    *INSIDE,
)
