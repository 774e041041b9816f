"""`pit status`, from start to exit, next to Python starting and doing nothing."""

import subprocess
import sys

from bench.measure import running_service, say_ratio, side_by_side
from tests.serving import PROGRAMS


def main() -> None:
    with running_service() as serving:
        environment, folder = serving.environment(), serving.home / "user"

        def pit(*arguments: str) -> None:
            command = [str(PROGRAMS / "pit"), *arguments]
            subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)

        def nothing() -> None:
            subprocess.run([sys.executable, "-c", "pass"], cwd=folder, env=environment, check=True, capture_output=True)

        pit("connect", serving.url)
        pit("login", "--register")
        ours, peer = side_by_side(lambda: pit("status"), nothing)
        say_ratio("pit status", ours, "python -c pass", peer, at_most=4)


if __name__ == "__main__":
    main()
