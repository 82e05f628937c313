# SPDX-License-Identifier: Apache-2.0
"""The examples in each language do what they say, and notice when something isn't right."""

import subprocess
import unittest

import harness
from harness import BUILD, SOUNDS, TOP, find_program, run


class Examples(harness.DaemonTest):
    def test_cpp(self):
        done = run([find_program(BUILD, "npud-example-cpp"), self.daemon.address])
        self.assertIn("device=host", done.stdout)
        self.assertIn("a wrong shape is refused", done.stdout)

    def test_python(self):
        script = TOP / "client/examples/python/detect_speech.py"
        run([script, "--address", self.daemon.address, SOUNDS / "Front_Center.wav", SOUNDS / "Side_Left.wav"])
        run([script, "--address", self.daemon.address])
        run([script, "--address", self.daemon.address, SOUNDS / "Noise.wav"], status=1)

    def test_javascript(self):
        modules = subprocess.run([TOP / "tools/models", "node-modules"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
        script = TOP / "client/examples/javascript/listen.js"
        done = run(["node", script, self.daemon.address, SOUNDS / "Front_Left.wav"], NODE_PATH=modules)
        self.assertIn("refused, as it should be", done.stdout)
        done = run(["node", script, self.daemon.address, SOUNDS / "Noise.wav"], status=1, NODE_PATH=modules)
        self.assertIn("scores only", done.stderr)


if __name__ == "__main__":
    unittest.main()
