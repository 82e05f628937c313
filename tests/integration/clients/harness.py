# SPDX-License-Identifier: Apache-2.0
"""What the client tests share: where things are, and a daemon with the real models for a whole test class."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TOP = Path(__file__).resolve().parents[3]
BUILD = Path(os.environ.get("NPUD_BUILD", TOP / "build")).resolve()
sys.path[:0] = [str(TOP / "client/examples/python"), str(BUILD / "python")]
sys.path.append(str(TOP / "tests/integration/daemon"))  # last: it has a harness of its own

from npud_examples.daemon import Daemon, find_program  # noqa: E402
import onnx_writer  # noqa: E402

SOUNDS = Path("/usr/share/sounds/alsa")
CONFIG = "[devices.host]\nslots = 3\ncores = 1\n"


def lay_models(directory):
    subprocess.run([TOP / "tools/models", "lay", directory], check=True)


def environment(**more):
    paths = [str(TOP / "client/examples/python"), str(BUILD / "python")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **more}


class DaemonTest(unittest.TestCase):
    """A daemon for the class; each test ends with a look whether anything of its requests was left behind."""

    config = CONFIG
    mode = "none"

    @classmethod
    def setUpClass(cls):
        cls.work = Path(tempfile.mkdtemp(prefix="npud-clients-"))
        cls.addClassCleanup(shutil.rmtree, cls.work, ignore_errors=True)
        cls.repository = cls.work / "models"
        lay_models(cls.repository)
        cls.daemon = cls.enterClassContext(Daemon(find_program(BUILD), cls.repository, cls.config, mode=cls.mode))
        cls.daemon.wait_for_socket()
        from npud_examples.client import Client
        cls.client = cls.enterClassContext(Client(cls.daemon.address))
        cls.client.wait_until_ready(models=[] if cls.mode == "explicit" else ["ocr_det", "ocr_rec", "ocr_cls", "silero_vad"])

    def tearDown(self):
        from npud_examples.client import control_pb2
        status = self.client.control.Status(control_pb2.StatusRequest(), timeout=10)
        self.assertEqual((status.requests_in_flight, status.requests_queued, status.payload_bytes, status.shared_memory_regions), (0, 0, 0, 0),
                         "something of the test's requests was left behind")


def run(command, status=0, **more):
    """Runs a program and returns the CompletedProcess; AssertionError with its output when it ends otherwise than expected."""
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True,
                          timeout=300, env=environment(**more), check=False)
    if status is not None and done.returncode != status:
        raise AssertionError(f"{command} ended with {done.returncode} instead of {status}:\n{done.stdout}\n{done.stderr}")
    return done
