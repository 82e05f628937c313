# SPDX-License-Identifier: Apache-2.0
"""The running daemon, small models, and calls as any client makes them. NPUD_BUILD names the build directory."""

import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request
from pathlib import Path

TOP = Path(__file__).resolve().parents[3]
BUILD = Path(os.environ.get("NPUD_BUILD", TOP / "build"))
PYTHON_PATHS = [str(BUILD / "python"), str(TOP / "client/examples/python"), str(Path(__file__).resolve().parent)]
sys.path[:0] = PYTHON_PATHS

import grpc  # noqa: E402
from inference import grpc_service_pb2 as pb  # noqa: E402
from inference import grpc_service_pb2_grpc as rpc  # noqa: E402
from npud.v1 import control_pb2, control_pb2_grpc  # noqa: E402
from npud_examples.daemon import find_program  # noqa: E402

import onnx_writer  # noqa: E402

MODELS = {"echo": onnx_writer.echo(), "text": onnx_writer.echo(onnx_writer.STRING), "spin": onnx_writer.spin()}
PROGRAM = find_program(BUILD)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Repository:
    def __init__(self, models=None):
        self.path = Path(tempfile.mkdtemp(prefix="npud-repo-"))
        self.path.chmod(0o755)
        for name, content in (MODELS if models is None else models).items():
            self.put(name, content)

    def put(self, name, content, version=1, config=None):
        """Appears whole, as a careful administrator does it."""
        directory = self.path / name / str(version)
        directory.mkdir(parents=True, exist_ok=True)
        partial = directory / ".model.onnx.part"
        partial.write_bytes(content)
        partial.rename(directory / "model.onnx")
        if config is not None:
            (self.path / name / "config.pbtxt").write_text(config)

    def remove(self):
        shutil.rmtree(self.path, ignore_errors=True)


class Client:
    def __init__(self, address, **options):
        limits = {"grpc.max_receive_message_length": 256 << 20, "grpc.max_send_message_length": 256 << 20, **options}
        self.channel = grpc.insecure_channel(address, options=list(limits.items()))
        self.inference = rpc.GRPCInferenceServiceStub(self.channel)
        self.control = control_pb2_grpc.ControlStub(self.channel)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.channel.close()

    def wait_ready(self, timeout_s=120):
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                if self.inference.ServerReady(pb.ServerReadyRequest(), timeout=10).ready:
                    return
            except grpc.RpcError:
                pass
            if time.monotonic() > deadline:
                raise TimeoutError("npud isn't ready")
            time.sleep(0.05)


def closed(connection):
    """Waits until the other end closes; what it had not read yet makes that a reset."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def floats(*values):
    return struct.pack(f"<{len(values)}f", *values)


def echo_request(values=(1.0, 2.0), **changes):
    request = pb.ModelInferRequest(model_name="echo", id="e1")
    request.inputs.add(name="X", datatype="FP32", shape=[len(values)])
    request.raw_input_contents.append(floats(*values))
    for name, value in changes.items():
        setattr(request, name, value)
    return request


def spin_request(count, request_id="s"):
    request = pb.ModelInferRequest(model_name="spin", id=request_id)
    request.inputs.add(name="N", datatype="INT64", shape=[1])
    request.raw_input_contents.append(struct.pack("<q", count))
    return request


class Npud:
    """A daemon with a socket in a directory of its own. `sections` is TOML below [server]."""

    def __init__(self, repository, *, server="", mode="none", sections="", poll_ms=100, environment=None):
        self.environment = environment
        self.directory = Path(tempfile.mkdtemp(prefix="npud-test-"))
        self.directory.chmod(0o755)
        self.socket = self.directory / "npud.sock"
        self.address = f"unix:{self.socket}"
        self.log = self.directory / "npud.log"
        self.settings = self.directory / "npud.toml"
        self.metrics_port = free_port()
        self.settings.write_text(
            f'[server]\nsocket = "{self.socket}"\nsocket_mode = "0666"\n{server}\n\n'
            f'[repository]\npath = "{repository}"\nmode = "{mode}"\npoll_interval_ms = {poll_ms}\n\n'
            f'[metrics]\naddress = "127.0.0.1:{self.metrics_port}"\n\n[log]\ntarget = "stderr"\n\n{sections}\n')
        self.start()

    def start(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen([PROGRAM, "--config", self.settings], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            env={**os.environ, **(self.environment or {})})

    def log_text(self):
        return self.log.read_text(errors="replace")

    def wait_for_log(self, text, timeout_s=60):
        deadline = time.monotonic() + timeout_s
        while text not in self.log_text():
            if time.monotonic() > deadline:
                raise TimeoutError(f"the log has no '{text}':\n{self.log_text()}")
            time.sleep(0.02)

    def stop(self, timeout_s=60):
        """SIGTERM; returns the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise

    def remove(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)


class DaemonTest(unittest.TestCase):
    """A daemon for each class, with `models`. At the end it must hold nothing and stop cleanly."""

    models = None
    mode = "none"
    sections = ""
    server = ""

    @classmethod
    def setUpClass(cls):
        cls.repository = Repository(cls.models)
        cls.addClassCleanup(cls.repository.remove)
        cls.daemon = Npud(cls.repository.path, server=cls.server, mode=cls.mode, sections=cls.sections)
        cls.addClassCleanup(cls.daemon.remove)
        cls.client = Client(cls.daemon.address)
        cls.addClassCleanup(cls.client.channel.close)
        try:
            cls.client.wait_ready()
        except TimeoutError:
            sys.stderr.write(cls.daemon.log_text())
            raise

    @classmethod
    def tearDownClass(cls):
        try:
            if cls.daemon.process.poll() is None:
                cls.assert_holds_nothing()
                status = cls.daemon.stop()
                if status != 0:
                    raise AssertionError(f"the daemon ended with status {status}")
            elif cls.daemon.process.returncode != 0:
                raise AssertionError(f"the daemon died with status {cls.daemon.process.returncode}")
        except BaseException:
            sys.stderr.write(cls.daemon.log_text())
            raise

    @classmethod
    def metrics(cls):
        text = urllib.request.urlopen(f"http://127.0.0.1:{cls.daemon.metrics_port}/metrics", timeout=30).read().decode()
        values = {}
        for line in text.splitlines():
            if line and not line.startswith("#"):
                name, _, value = line.rpartition(" ")
                values[name] = float(value)
        return values

    @classmethod
    def assert_holds_nothing(cls, timeout_s=60):
        """No request queued or running, not a byte of payload, no copy of shared memory."""
        deadline = time.monotonic() + timeout_s
        while True:
            status = cls.client.control.Status(control_pb2.StatusRequest(), timeout=30)
            queues = cls.client.control.ListRunning(control_pb2.ListRunningRequest(), timeout=30).queues
            metrics = cls.metrics()
            held = {"in flight": status.requests_in_flight, "queued": status.requests_queued, "bytes": status.payload_bytes,
                    "busy": status.workers_busy, "queue entries": sum(q.queued + q.running for q in queues),
                    "copies": metrics.get("npud_shared_memory_in_flight_bytes", 0), "silent": metrics["npud_connections_silent"]}
            if not any(held.values()):
                return
            if time.monotonic() > deadline:
                raise AssertionError(f"the daemon still holds {held}")
            time.sleep(0.05)

    def refused(self, code, text, call, *arguments, **more):
        """The call fails with that code and a sentence that has the text; the daemon still serves. Returns the error."""
        with self.assertRaises(grpc.RpcError) as caught:
            call(*arguments, timeout=60, **more)
        error = caught.exception
        self.assertEqual(error.code(), code, error.details())
        self.assertIn(text, error.details())
        self.assert_serves()
        return error

    def assert_serves(self):
        answer = self.client.inference.ModelInfer(echo_request((1.5, -2.5)), timeout=60)
        self.assertEqual(answer.raw_output_contents[0], floats(1.5, -2.5))


def as_user(uid, code, *arguments, check=True):
    """Runs Python in a process of that uid, with this harness imported."""
    program = f"import sys; sys.path[:0] = {PYTHON_PATHS!r}; from harness import *\n{code}"
    command = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=check, cwd="/",
                          env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
