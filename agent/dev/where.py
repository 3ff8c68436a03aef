#!/usr/bin/env python3
"""`make where`: the console's address and the claim code of a running `make run`, read from the agent's local socket, as the screen at a
box would show them."""
import http.client
import json
import os
import pathlib
import socket
import sys

RUN = pathlib.Path(os.environ.get("WARDEN_RUN_DIR", pathlib.Path(__file__).resolve().parents[2] / "target/run")).resolve()


class LocalSocket(http.client.HTTPConnection):
    """HTTP over the agent's local socket."""

    def __init__(self, path):
        super().__init__("localhost", timeout=10)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.connect(str(self.path))


def status():
    """The document of the local screen. An OSError when no agent runs."""
    config = (RUN / "agent.toml").read_text()
    folder = next(line.split('"')[1] for line in config.splitlines() if line.startswith("runtime_dir"))
    connection = LocalSocket(pathlib.Path(folder) / "console.sock")
    connection.request("GET", "/console/status")
    return json.load(connection.getresponse())


def main():
    try:
        told = status()
    except OSError as error:
        why = "it was never started here" if isinstance(error, FileNotFoundError) else error
        print(f"where: no agent answers in {RUN} ({why}). Start it with `make run`; while that still builds, wait for its own lines.", file=sys.stderr)
        sys.exit(1)
    for url in told["console_urls"]:
        print(f"Console: {url}")
    code = told["claim_code"]
    print(f"Claim code: {code}" if code else "Already claimed: sign in with the admin account made before.", flush=True)


if __name__ == "__main__":
    main()
