"""`pit forward` through the nginx of the docs, with TLS: as without, each direction ends on its own."""

import os
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.conftest import pick_free_port
from tests.forwarding import digest, pit_of, quiet_cluster, running, serving_job, talk
from tests.system.test_nginx import connect, start_nginx


def test_every_byte_and_every_end_passes_a_web_server_with_tls(tmp_path: Path) -> None:
    port = pick_free_port()
    with quiet_cluster() as cluster:
        me = cluster.admin
        job, pit = serving_job(me, port), pit_of(me, tmp_path / "pit")
        (tmp_path / "nginx").mkdir()
        front, nginx = start_nginx(tmp_path / "nginx", cluster.serving.port)
        try:
            connect(pit.project, front.url, front.certificate)
            with running(pit, "forward", str(job), f"0:{port}") as forward, ThreadPoolExecutor(20) as pool:
                (local,) = forward.ports()
                data = os.urandom(5_000_000)
                assert talk(local, b"echo\n" + data) == data
                assert talk(local, b"digest\n" + data) == digest(data)
                with socket.create_connection(("::1", local), 30) as one:
                    one.sendall(b"bye\n")
                    assert one.recv(10) == b"bye"
                    assert one.recv(10) == b""
                    one.sendall(bytes(77_777))
                me.says(job, "after bye 77777")
                said = [str(number).encode() * 1000 for number in range(60)]
                assert list(pool.map(lambda each: talk(local, b"echo\n" + each), said)) == said
                assert forward.interrupt() == 0
        finally:
            nginx.terminate()
            nginx.wait(15)
