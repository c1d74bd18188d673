"""nginx with the configuration of assets/deploy, in front of local servers."""

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

CONFIGURATION = Path(__file__).resolve().parents[2] / "assets" / "deploy" / "nginx.conf"
EVENTS = "events { worker_connections 1024; }"  # as in the image of compose.yaml; Debian's default is 768
TEMPORARY = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")


def program() -> str | None:
    """The path of nginx, if it is installed."""
    return shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")


@contextlib.contextmanager
def nginx(addresses: Sequence[str], port: int = 0) -> Iterator[tuple[str, Path]]:
    """The address of nginx in front of these servers, on a free port or on this one; the file of its log."""
    with socket.socket() as probe, tempfile.TemporaryDirectory() as folder:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", port))
        port = probe.getsockname()[1]
        probe.close()
        text = CONFIGURATION.read_text(encoding="utf-8")
        for number, address in enumerate(addresses, 1):
            assert f"headscope-{number}:8501" in text
            text = text.replace(f"headscope-{number}:8501", address.removeprefix("http://"))
        text = text.replace("listen 8080;", f"listen 127.0.0.1:{port};")
        text = text.replace("/dev/stdout", f"{folder}/access.log")
        text = text.replace("/tmp/headscope", f"{folder}/files")
        http = "\n".join([*(f"{kind}_temp_path {folder};" for kind in TEMPORARY), text])
        user = "user root;" if os.getuid() == 0 else ""
        whole = f"{user} daemon off; pid {folder}/pid; error_log {folder}/error.log; {EVENTS}"
        path = Path(folder) / "nginx.conf"
        path.write_text(f"{whole} http {{ {http} }}\n", encoding="utf-8")
        command = [program(), "-p", folder, "-c", str(path)]
        subprocess.run([*command, "-t"], check=True, capture_output=True)
        process = subprocess.Popen(command)
        try:
            while process.poll() is None:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                    break
                time.sleep(0.05)
            yield f"http://127.0.0.1:{port}", Path(folder) / "access.log"
        finally:
            process.terminate()
            process.wait(timeout=20)
