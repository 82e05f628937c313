# SPDX-License-Identifier: Apache-2.0
"""A private npud for the demo, the tests and the benchmarks: own socket, own configuration, own log."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path


class Daemon:
    """with Daemon(program, repository, config="…TOML…") as daemon: … daemon.address …

    The socket lies in a directory of its own in /tmp, which every uid may enter; it goes with the daemon. Leaving the block asks the
    daemon to drain and end (SIGTERM), and raises when that fails or takes longer than `stop_timeout_s`.
    """

    def __init__(self, program, repository, config="", *, log=None, mode="none", stop_timeout_s=30):
        self.directory = Path(tempfile.mkdtemp(prefix="npud-"))
        self.directory.chmod(0o755)
        self.socket = self.directory / "npud.sock"
        self.address = f"unix:{self.socket}"
        self.stop_timeout_s = stop_timeout_s
        self.log = Path(log) if log else self.directory / "npud.log"
        settings = self.directory / "npud.toml"
        settings.write_text(
            f'[server]\nsocket = "{self.socket}"\nsocket_mode = "0666"\n\n[repository]\npath = "{repository}"\nmode = "{mode}"\n\n'
            f'[log]\ntarget = "stderr"\n\n{config}\n')
        self._log_file = open(self.log, "wb")
        self.process = subprocess.Popen([str(program), "--config", str(settings)], stdin=subprocess.DEVNULL, stdout=self._log_file,
                                        stderr=subprocess.STDOUT)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        try:
            self.stop(raising=kind is None)
        finally:
            self._log_file.close()
            shutil.rmtree(self.directory, ignore_errors=True)

    def wait_for_socket(self, timeout_s=60):
        deadline = time.monotonic() + timeout_s
        while not self.socket.exists():
            if self.process.poll() is not None:
                raise RuntimeError(f"npud ended with status {self.process.returncode}:\n{self.log_text()}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"npud made no socket within {timeout_s} s:\n{self.log_text()}")
            time.sleep(0.01)

    def log_text(self):
        return self.log.read_text(errors="replace")

    def resident_kib(self):
        """VmRSS, from the kernel."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
        raise RuntimeError("the daemon has no VmRSS: it has ended")

    def stop(self, raising=True):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(self.stop_timeout_s)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                if raising:
                    raise RuntimeError(f"npud didn't end within {self.stop_timeout_s} s of SIGTERM:\n{self.log_text()}") from None
        if raising and self.process.returncode != 0:
            raise RuntimeError(f"npud ended with status {self.process.returncode}:\n{self.log_text()}")


def find_program(build, name="npud"):
    """A program in a build directory, wherever its CMakeLists.txt puts it."""
    for place in ("bin", "daemon/service", "client/npuctl", "client/examples", "bench/serving", "bench/arbiter", ""):
        candidate = Path(build) / place / name
        if candidate.is_file() and os.access(candidate, os.X_OK):
            return candidate
    raise FileNotFoundError(f"{name} isn't in {build}: build it first (make build)")
