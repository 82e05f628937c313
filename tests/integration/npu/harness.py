# SPDX-License-Identifier: Apache-2.0
"""What the tests of npud with an NPU share: the daemon on the virtual board, and models that ask for it."""

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

from npud_examples.daemon import Daemon  # noqa: E402

PROGRAM = BUILD / "tests/integration/npu/npud_on_board"
CONFIG = "[devices.host]\nslots = 8\ncores = 1\n\n[devices.rknpu]\nenable = \"on\"\n"


def parameters(**values):
    """The lines of config.pbtxt for npud's own parameters."""
    return "".join(f'parameters {{ key: "npud.{key}" value {{ string_value: "{value}" }} }}\n' for key, value in values.items())


def lay_models(directory, names):
    """Each of tools/models' networks twice: NAME asks for the NPU, NAME_host doesn't."""
    everything = directory.with_name("all")
    subprocess.run([TOP / "tools/models", "lay", everything], check=True)
    for name in names:
        for copy, more in ((name, parameters(device="rknpu0")), (f"{name}_host", "")):
            shutil.copytree(everything / name, directory / copy)
            config = directory / copy / "config.pbtxt"
            config.write_text(config.read_text().replace(f'name: "{name}"', f'name: "{copy}"') + more)


class NpuTest(unittest.TestCase):
    """A daemon on the board for the class. It ends with status 0 only when nothing is left allocated on the board."""

    program = PROGRAM
    config = CONFIG
    faults = 0  # one job in so many meets one
    broken = ()  # models that are laid and can't be loaded

    @classmethod
    def lay(cls, repository):
        raise NotImplementedError

    @classmethod
    def setUpClass(cls):
        cls.work = Path(tempfile.mkdtemp(prefix="npud-npu-"))
        cls.addClassCleanup(shutil.rmtree, cls.work, ignore_errors=True)
        cls.repository = cls.work / "models"
        cls.repository.mkdir()
        cls.lay(cls.repository)
        os.environ["NPUD_BOARD_FAULTS"] = str(cls.faults)
        cls.addClassCleanup(os.environ.pop, "NPUD_BOARD_FAULTS")
        cls.daemon = cls.enterClassContext(Daemon(cls.program, cls.repository, cls.config, log=cls.work / "npud.log"))
        cls.daemon.wait_for_socket()
        from npud_examples.client import Client
        cls.client = cls.enterClassContext(Client(cls.daemon.address))
        cls.client.wait_until_ready(models=[m.name for m in cls.repository.iterdir() if m.name not in cls.broken])

    def tearDown(self):
        from npud_examples.client import control_pb2
        status = self.client.control.Status(control_pb2.StatusRequest(), timeout=10)
        self.assertEqual((status.requests_in_flight, status.requests_queued, status.payload_bytes, status.shared_memory_regions), (0, 0, 0, 0),
                         "something of the test's requests was left behind")

    def device(self, name="rknpu0"):
        from npud_examples.client import control_pb2
        devices = self.client.control.ListDevices(control_pb2.ListDevicesRequest(), timeout=10).devices
        return next(d for d in devices if d.name == name)
