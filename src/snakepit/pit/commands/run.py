"""`pit run`: the current directory becomes a job. What a script may want (the number) goes to stdout.

On a terminal the lines are the seed's. In a pipe `=> job number: 190` follows them, which scripts of old look for; it
would only repeat the first line for people.
"""

from __future__ import annotations

from snakepit.client.client import Client
from snakepit.client.entities import job_numbers
from snakepit.client.http import NoConnection
from snakepit.errors import SnakepitError
from snakepit.pit import render, session, submission
from snakepit.pit.arguments import Argument, Arguments, Command, Option, UsageError
from snakepit.pit.following import follow_to_outcome
from snakepit.pit.source import Source


def run(arguments: Arguments) -> int:
    from snakepit.pit.code import collect  # with it comes all that git needs; help texts do without

    script = submission.script(arguments)
    title, request = submission.title_and_request(arguments, script)
    fields = _fields(arguments)
    client = session.open_client()
    source = collect(arguments, client, script)
    number = _submitted(client, title, request, script, fields, source)
    _report(arguments, number, source, request)
    if arguments.on("interactive"):
        from snakepit.pit.interactive import stay

        return stay(client, number, arguments.rest)
    if not arguments.on("log"):
        return 0
    if not arguments.on("json"):
        render.out("\n")
    render.flush()
    return follow_to_outcome(client, number)


def _submitted(client: Client, title: str, request: str, script: str, fields: dict[str, object], source: Source) -> int:
    try:
        number = client.submit(title, request, source.script or script, **fields, **source.fields)
    except NoConnection:
        raise  # what was uploaded is still of use
    except SnakepitError:
        source.tidy()
        raise
    source.tidy()
    source.submitted(number)
    return number


def _fields(arguments: Arguments) -> dict[str, object]:
    """Only what was asked for: a service of the original kind knows none of the newer ones."""
    fields: dict[str, object] = {"private": arguments.on("private")}
    if (continued := arguments.text("continue")) is not None:
        numbers = job_numbers([continued])
        if len(numbers) != 1:
            raise UsageError("--continue takes one job number")
        fields["continueJob"] = numbers[0]
    if environment := submission.environment(arguments):
        fields["env"] = environment
    if (limit := arguments.text("time-limit")) is not None:
        fields["timeLimit"] = submission.seconds(limit)
    more = {
        # A shell is in the first process; the others are there as long as it is.
        "until": "any" if arguments.on("interactive") else arguments.text("until"),
        "onNodeLoss": arguments.text("on-node-loss"),
        "retries": arguments.number("retries"),
        "priority": submission.integer(arguments, "priority"),
    }
    return {**fields, **{name: value for name, value in more.items() if value is not None}}


def _report(arguments: Arguments, number: int, source: Source, request: str) -> None:
    if arguments.on("json"):
        render.json_out({"id": number, "request": request, **source.shown})
        return
    lines = [("Job number", str(number)), *source.lines, ("Resources", f'"{request}"')]
    render.out("".join(f"{label + ':':<11} {render.clean(value)}\n" for label, value in lines))
    if not render.on_terminal():
        render.out(f"=> job number: {number}\n")
    render.flush()


COMMANDS = (
    Command(
        "run",
        "enqueues current directory as new job",
        run,
        (Argument("title", required=False), Argument("clusterRequest", required=False, many=True)),
        (
            Option("-p --private", "prevents automatic sharing of this job"),
            Option(
                "-c --continue",
                'continues job with provided number by copying its "keep" directory over to the new job',
                "jobNumber",
            ),
            Option(
                "-d --direct",
                "directly executes provided commands through bash instead of loading .compute file",
                "commands",
            ),
            Option("-e --execute", "the same as --direct", "commands"),
            Option("-l --log", "waits for and prints job's log output; exits with the job's outcome"),
            Option("-i --interactive", "opens a shell in the job when it starts; the job ends with the shell"),
            Option("-a --archive", "sends an archive of this directory, even from a git checkout"),
            Option("--origin", "lets the head fetch the commit from its remote, and sends only the difference"),
            Option("-s --script-only", "sends no code, only the commands"),
            Option("--branch", "keeps the version that is sent as a branch of this name, too", "name"),
            Option("--allow-secrets", "sends files that look like secrets too (.env, *.pem, id_rsa …)"),
            Option("--allow-large", "sends files over 100 MB, or more than 5 GB of changes, too"),
            Option("--gpus", "GPUs of each process", "count"),
            Option("--vram", "memory that each of them has at least, like 24G", "size"),
            Option("--model", "their model, or several to choose from, like a100,h100", "names"),
            Option("--cpus", "cores of each process", "count"),
            Option("--mem", "memory of each process, like 64G", "size"),
            Option("--procs", "processes", "count"),
            Option("--nodes", "nodes to choose from, like n0,n1", "names"),
            Option("--whole-node", "a machine of its own for each process"),
            Option(
                "--env", "sets a variable for the processes (NAME alone takes it from here)", "NAME=value", many=True
            ),
            Option("--env-file", "sets the variables of a file with lines NAME=value", "file", many=True),
            Option("--time-limit", "ends the job after this time, like 30m or 2h", "time"),
            Option("--retries", "tries a failed job again, so many times", "count"),
            Option(
                "--until",
                "when the job ends: with its last process (all) or its first (any)",
                "which",
                False,
                ("all", "any"),
            ),
            Option(
                "--on-node-loss", "when its node is lost: wait, or rerun elsewhere", "what", False, ("wait", "rerun")
            ),
            Option("--priority", "earlier or later than others (above 0: admins only)", "number"),
            Option("--upload", "what to do with an unfinished upload", "how", False, ("resume", "restart")),
            Option("--json", "prints the job's number and what was sent as JSON"),
        ),
        aliases=("put",),
        rest="command args...",
        examples=(
            'pit run "My task" 2:[8:gtx1070]',
            "pit run \"My command\" [] -d 'hostname; env'",
            "pit run --gpus 1 --vram 24G -- python train.py --epochs 10",
            "pit run \"Sweep\" '[a100|h100,8:cpu,64G:mem]' --env SEED=1 -l",
            "pit run --interactive --gpus 1",
            "pit run -i '[gpu]' -- python",
        ),
        notes="""
"title" is a short text that will later help identifying the job and its purpose. After flags and -- it can be left out.
"clusterRequest" is an expression to specify resources this job requires from the cluster.
It's a comma separated list of "process requests".
Each "process request" specifies the number of process instances and (divided by colon and in braces) which resources to
allocate for one process instances (on one node).
The first example will allocate 2 process instances. For each process, 8 "gtx1070" resources will get allocated.
You can also provide a ".pitrequest.txt" file with the same content in your project root as default value.
Some shells read the brackets as a pattern: quote them there, or use flags (--gpus …).

With --log, Ctrl-C ends the command, not the job (exit code 130). Else the exit code is that of the job: 0 succeeded,
the code of the first process that failed, 1 failed without one, 124 timed out, 125 lost, 143 stopped.

With --interactive the job is a shell (or the command after --) in its first process. While it waits, the reason is
shown and Ctrl-C takes it back; it ends when the shell does, however that ends. The exit code is the shell's.""",
    ),
)
