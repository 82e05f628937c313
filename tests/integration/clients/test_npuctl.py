# SPDX-License-Identifier: Apache-2.0
"""npuctl, command by command, as a person and as a program would use it."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

import harness
import numpy as np
from harness import BUILD, environment, find_program, onnx_writer, run


class Npuctl(harness.DaemonTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.program = find_program(BUILD, "npuctl")

    def ctl(self, *args, status=0):
        return run([self.program, "-a", self.daemon.address, *args], status)

    def json(self, *args):
        return json.loads(self.ctl("--json", *args).stdout)

    # -- models

    def test_models_lists_each_with_its_state(self):
        lines = self.ctl("models").stdout.splitlines()
        self.assertEqual(lines[0].split(), ["MODEL", "VERSION", "STATE", "REASON"])
        self.assertIn("ocr_rec", {line.split()[0] for line in lines[1:]})
        states = {m["name"]: m["state"] for m in self.json("models")["models"]}
        self.assertEqual(states["silero_vad"], "READY")

    def test_metadata_config_and_statistics(self):
        self.assertRegex(self.ctl("metadata", "ocr_cls").stdout, r"input +x +FP32 +\[-1,3,48,192\]")
        self.assertIn("max_batch_size: 16", self.ctl("config", "ocr_cls").stdout)
        self.assertEqual(self.json("config", "ocr_cls")["name"], "ocr_cls")
        self.assertIn("ocr_cls", self.ctl("stats").stdout)
        self.assertEqual(self.json("stats", "ocr_cls")["model_stats"][0]["name"], "ocr_cls")

    def test_an_unknown_model_is_named_in_the_error(self):
        done = self.ctl("metadata", "no_such_model", status=1)
        self.assertIn("NOT_FOUND", done.stderr)
        self.assertIn("no_such_model", done.stderr)
        self.assertEqual(done.stdout, "")

    # -- infer

    def test_infer_takes_and_gives_arrays_as_numpy_does(self):
        x = np.random.default_rng(1).random((2, 3, 48, 192), dtype=np.float32)
        np.save(self.work / "x.npy", x)
        out = self.work / "out"
        result = self.json("infer", "ocr_cls", "-i", f"x={self.work / 'x.npy'}", "-o", out)
        self.assertEqual(result["path"], "device=host")
        (output,) = result["outputs"]
        (expected,) = self.client.infer("ocr_cls", {"x": x}).values()
        got = np.load(output["file"], allow_pickle=False)
        self.assertEqual(got.dtype, np.float32)
        np.testing.assert_allclose(got, expected, rtol=1e-4)
        text = self.ctl("infer", "ocr_cls", "-i", f"x={self.work / 'x.npy'}").stdout
        self.assertIn("FP32", text)
        self.assertIn("[2,2]", text)

    def test_infer_says_what_is_wrong(self):
        np.save(self.work / "bad.npy", np.zeros((1, 3, 48, 191), dtype=np.float32))
        done = self.ctl("infer", "ocr_cls", "-i", f"x={self.work / 'bad.npy'}", status=1)
        self.assertIn("INVALID_ARGUMENT", done.stderr)
        self.assertIn("x", done.stderr)
        np.save(self.work / "pickle.npy", np.array([{}]), allow_pickle=True)
        self.assertIn("Python objects are never read", self.ctl("infer", "ocr_cls", "-i", f"x={self.work / 'pickle.npy'}", status=2).stderr)
        self.assertIn("NAME=FILE", self.ctl("infer", "ocr_cls", "-i", "x.npy", status=2).stderr)
        self.assertIn("missing.npy", self.ctl("infer", "ocr_cls", "-i", "x=missing.npy", status=2).stderr)

    # -- bench

    def test_bench_measures(self):
        for more in ([], ["--shm"]):
            result = self.json("bench", "ocr_cls", "--shape", "x=1,3,48,192", "-c", "3", "-n", "30", *more)
            self.assertEqual((result["succeeded"], result["failed"]), (30, 0))
            self.assertGreater(result["requests_per_s"], 0)
            self.assertLessEqual(result["p50_us"], result["p99_us"])
            self.assertLessEqual(result["p99_us"], result["max_us"])
        text = self.ctl("bench", "ocr_cls", "--shape", "x=1,3,48,192", "-n", "5").stdout
        self.assertRegex(text, r"5 requests in .* with 1 in flight: [\d.]+/s")
        self.assertIn("path device=host: 5", text)

    def test_bench_wants_to_know_sizes(self):
        done = self.ctl("bench", "ocr_rec", "-n", "1", status=2)
        self.assertIn("--shape x=", done.stderr)
        self.assertIn("no input 'y'", self.ctl("bench", "ocr_cls", "--shape", "y=1", "--shape", "x=1,3,48,192", "-n", "1", status=2).stderr)

    def requests_done(self):
        from npud_examples.client import control_pb2
        return sum(t.succeeded for t in self.client.control.ListTenants(control_pb2.ListTenantsRequest(), timeout=30).tenants)

    def test_bench_ends_when_interrupted_and_shows_what_it_has(self):
        before = self.requests_done()
        process = subprocess.Popen([self.program, "-a", self.daemon.address, "bench", "ocr_cls", "--shape", "x=1,3,48,192", "-t", "600"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment())
        deadline = time.monotonic() + 120
        while self.requests_done() < before + 3:
            self.assertLess(time.monotonic(), deadline, "bench sends nothing")
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
        self.assertRegex(out, r"^[1-9]\d* requests in ")

    # -- device, tenants

    def test_devices_programs_tenants_running_status(self):
        self.client.infer("ocr_cls", {"x": np.zeros((1, 3, 48, 192), dtype=np.float32)})
        self.assertRegex(self.ctl("devices").stdout, r"(?m)^host +host ")
        (device,) = self.json("devices")["devices"]
        self.assertEqual(device["slots"], 3)
        self.assertIn("ocr_cls", self.ctl("programs").stdout)
        self.assertIn("TENANT", self.ctl("tenants").stdout)
        self.assertGreaterEqual(sum(int(t["succeeded"]) for t in self.json("tenants")["tenants"]), 1)
        self.assertIn("Nothing runs.", self.ctl("running").stdout)
        self.assertIn("ocr_det", self.ctl("running").stdout)
        self.assertRegex(self.ctl("status").stdout, r"you are: \S+")

    def test_explain_tells_where_nodes_run(self):
        self.assertIn("ocr_cls", self.ctl("explain", "ocr_cls").stdout)
        self.assertEqual(self.json("explain", "ocr_cls")["model"], "ocr_cls")

    def test_top_prints_once_into_a_pipe(self):
        text = self.ctl("top", "--once", "-d", "0.2").stdout
        for word in ("DEVICE", "TENANT", "MODEL", "host", "ocr_rec"):
            self.assertIn(word, text)
        self.assertNotIn("\x1b", text)

    def test_top_redraws_on_a_terminal_and_gives_it_back(self):
        parent, child = pty.openpty()
        process = subprocess.Popen([self.program, "-a", self.daemon.address, "top", "-d", "0.1"], stdin=child, stdout=child, stderr=child,
                                   env=environment(TERM="xterm"))
        os.close(child)
        seen = b""
        deadline = time.monotonic() + 60
        while seen.count(b"\x1b[H") < 3 and time.monotonic() < deadline:
            if select.select([parent], [], [], 1)[0]:
                seen += os.read(parent, 65536)
        process.send_signal(signal.SIGINT)
        while process.poll() is None or select.select([parent], [], [], 0)[0]:
            if select.select([parent], [], [], 1)[0]:
                try:
                    seen += os.read(parent, 65536)
                except OSError:
                    break
        process.wait(60)
        os.close(parent)
        self.assertGreaterEqual(seen.count(b"\x1b[H"), 3)
        self.assertIn(b"DEVICE", seen)
        self.assertTrue(seen.endswith(b"\x1b[?25h\x1b[?1049l"), seen[-80:])
        self.assertEqual(process.returncode, 0)

    def test_events_begin_at_once_and_tell_of_loads(self):
        process = subprocess.Popen([self.program, "-a", self.daemon.address, "events"], stdout=subprocess.PIPE, text=True, env=environment())
        try:
            self.assertTrue(process.stdout.readline().startswith("caught-up"))
            # Five models one after the other in three slots: some have to come in.
            for model in ("ocr_cls", "silero_vad", "ocr_det", "ocr_rec"):
                shape = {"ocr_cls": "x=1,3,48,192", "ocr_det": "x=1,3,64,64", "ocr_rec": "x=1,3,48,64"}.get(model)
                if shape:
                    self.ctl("bench", model, "--shape", shape, "-n", "1")
            self.ctl("bench", "silero_vad", "--shape", "input=1,576", "--shape", "state=2,1,128", "-n", "1", status=None)
            self.ctl("bench", "silero_vad_v6", "--shape", "input=1,576", "--shape", "state=2,1,128", "-n", "1", status=None)
            self.assertRegex(process.stdout.readline(), r"^(brought-in|evicted|loaded) ")
        finally:
            process.kill()
            process.communicate()

    # -- administration

    def test_a_drained_model_refuses_until_it_is_resumed(self):
        self.assertIn("drained", self.ctl("drain", "--model", "ocr_cls").stdout)
        try:
            done = self.ctl("bench", "ocr_cls", "--shape", "x=1,3,48,192", "-n", "1", status=None)
            self.assertNotEqual(done.returncode, 0)
        finally:
            self.ctl("resume", "--model", "ocr_cls")
        self.ctl("bench", "ocr_cls", "--shape", "x=1,3,48,192", "-n", "1")

    def test_a_device_is_drained_reset_and_resumed(self):
        self.assertEqual(self.ctl("reset", "host", status=1).returncode, 1, "a device that isn't drained can't be reset")
        self.ctl("drain", "--device", "host")
        try:
            self.assertIn("drained", self.ctl("devices").stdout)
            self.assertIn("host was reset", self.ctl("reset", "host").stdout)
            (device,) = self.json("devices")["devices"]
            self.assertEqual(device["slots_used"], 0)
        finally:
            self.ctl("resume", "--device", "host")
        self.ctl("bench", "ocr_cls", "--shape", "x=1,3,48,192", "-n", "1")

    def test_drain_wants_one_target(self):
        self.ctl("drain", status=2)
        self.ctl("drain", "--model", "a", "--device", "b", status=2)

    # -- doctor and trouble

    def test_doctor_is_content(self):
        text = self.ctl("doctor").stdout
        self.assertIn("All is well.", text)
        self.assertRegex(text, r"(?m)^ok +models: \d+ ready")
        self.assertTrue(self.json("doctor")["well"])

    def test_doctor_says_what_to_do_without_a_daemon(self):
        done = run([self.program, "doctor", "-a", "/nonexistent/npud.sock"], 3)
        self.assertIn("is npud running?", done.stdout)
        self.assertFalse(json.loads(run([self.program, "--json", "doctor", "-a", "/nonexistent/npud.sock"], 3).stdout)["well"])

    def test_a_dead_socket_is_told_from_a_missing_one(self):
        import socket
        path = self.work / "dead.sock"
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(path))
        self.assertIn("nobody listens", run([self.program, "models", "-a", path, "--timeout", "1"], 3).stderr)

    def test_a_stuck_daemon_is_told_in_time(self):
        import socket
        path = self.work / "stuck.sock"
        waiting = []
        self.addCleanup(lambda: [s.close() for s in waiting])
        with socket.socket(socket.AF_UNIX) as stuck:
            stuck.bind(str(path))
            stuck.listen(0)  # and never accepts
            while True:
                waiting.append(socket.socket(socket.AF_UNIX))
                waiting[-1].setblocking(False)
                try:
                    waiting[-1].connect(str(path))
                except BlockingIOError:
                    break
            self.assertIn("takes no more connections", run([self.program, "models", "-a", path, "--timeout", "1"], 3).stderr)

    @unittest.skipUnless(os.geteuid() == 0, "only root can lack a right by becoming somebody else")
    def test_a_missing_right_is_named(self):
        path = self.work / "private"
        path.mkdir(mode=0o700)
        self.work.chmod(0o755)
        done = run(["setpriv", "--reuid", "61099", "--regid", "61099", "--clear-groups", self.program, "models", "-a", path / "npud.sock"], None)
        if done.returncode == 127 or "setpriv" in done.stderr:
            self.skipTest("the build directory can't be entered by others")
        self.assertEqual(done.returncode, 3)
        self.assertIn("you may not enter", done.stderr)

    def test_tcp_without_a_certificate_is_explained(self):
        self.assertIn("certificate", run([self.program, "models", "-a", "localhost:8001"], None).stderr)

    def test_usage(self):
        self.assertEqual(run([self.program], None).returncode, 2)
        self.assertEqual(run([self.program, "no-such-command"], None).returncode, 2)
        self.assertEqual(run([self.program, "infer", "m", "--within", "1e30"], None).returncode, 2)
        self.assertRegex(run([self.program, "--version"]).stdout, r"^npuctl \d+\.\d+")
        commands = re.findall(r"(?m)^  (\w+) +\w", run([self.program, "--help"]).stdout.split("Subcommands:")[1])
        page = (harness.TOP / "man/npuctl.1").read_text()
        completion = (harness.TOP / "packaging/completions/npuctl").read_text()
        self.assertGreater(len(commands), 15)
        for command in commands:
            run([self.program, command, "--help"])
            self.assertIn(f".It Cm {command}", page, "a command isn't in the manual page")
            self.assertIn(command, completion, "a command isn't completed")


class Loading(harness.DaemonTest):
    mode = "explicit"

    def test_load_use_unload(self):
        program = find_program(BUILD, "npuctl")

        def ctl(*args, status=0):
            return run([program, "-a", self.daemon.address, *args], status)

        self.assertNotEqual(ctl("bench", "ocr_cls", "--shape", "x=1,3,48,192", "-n", "1", status=None).returncode, 0)
        self.assertIn("ocr_cls is loaded", ctl("load", "ocr_cls", "silero_vad").stdout)
        ctl("bench", "ocr_cls", "--shape", "x=1,3,48,192", "-n", "3")
        self.assertIn("ocr_cls is unloaded", ctl("unload", "ocr_cls").stdout)
        self.assertNotEqual(ctl("bench", "ocr_cls", "--shape", "x=1,3,48,192", "-n", "1", status=None).returncode, 0)
        done = ctl("load", "no_such_model", "silero_vad", status=1)
        self.assertIn("no_such_model", done.stderr)
        self.assertIn("silero_vad is loaded", done.stdout, "one that fails doesn't keep the others from loading")


class SmallModels(unittest.TestCase):
    """Models made for the purpose: one that runs as long as it is told, one whose outputs' names are one name as files."""

    def test_infer_gives_up_in_time_and_overwrites_nothing(self):
        directory = Path(self.enterContext(tempfile.TemporaryDirectory(prefix="npud-small-")))
        program = find_program(BUILD, "npuctl")
        of_two = onnx_writer.graph("twins", [onnx_writer.node("Neg", ["X"], ["a/b"]), onnx_writer.node("Abs", ["X"], ["a_b"])],
                                   [onnx_writer.value_info("X", onnx_writer.FLOAT, [1])],
                                   [onnx_writer.value_info(name, onnx_writer.FLOAT, [1]) for name in ("a/b", "a_b")])
        for name, model in (("spin", onnx_writer.spin()), ("twins", onnx_writer.model(of_two))):
            (directory / "models" / name / "1").mkdir(parents=True)
            (directory / "models" / name / "1" / "model.onnx").write_bytes(model)
        np.save(directory / "n.npy", np.array([10**12]))
        np.save(directory / "x.npy", np.array([1.0], dtype=np.float32))
        out = directory / "out"
        with harness.Daemon(find_program(BUILD), directory / "models") as daemon:
            daemon.wait_for_socket()

            def ctl(*args, status=0):
                return run([program, "-a", daemon.address, *args], status)

            twins = ["infer", "twins", "-i", f"X={directory / 'x.npy'}", "-o", out]
            while ctl("models", status=None).stdout.count("READY") < 2:
                time.sleep(0.05)
            spin = ["infer", "spin", "-i", f"N={directory / 'n.npy'}"]
            self.assertIn("DEADLINE_EXCEEDED", ctl("--timeout", "0.2", *spin, status=1).stderr)
            self.assertIn("DEADLINE_EXCEEDED", ctl("--timeout", "200", *spin, "--within", "0.2", status=1).stderr)
            done = ctl(*twins, status=1)
            self.assertIn("outputs a/b and a_b would both be a_b.npy", done.stderr)
            self.assertEqual(list(out.iterdir()), [])
            ctl(*twins, "--only", "a/b")
            self.assertEqual(np.load(out / "a_b.npy"), [-1.0])


class Certificates(unittest.TestCase):
    """TCP with mutual TLS, through npuctl and so through libnpud."""

    def test_the_certificates_name_is_the_tenant(self):
        import shutil
        import socket
        work = Path(tempfile.mkdtemp(prefix="npud-tls-"))
        self.addCleanup(shutil.rmtree, work, ignore_errors=True)

        def openssl(*args):
            subprocess.run(["openssl", *map(str, args)], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        def certificate(name, *more):
            openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}", "-keyout", work / f"{name}.key", "-out",
                    work / f"{name}.crt", *more)

        certificate("ca", "-addext", "basicConstraints=critical,CA:TRUE")
        for name in ("localhost", "camera", "stranger"):
            own = ["-CA", work / "ca.crt", "-CAkey", work / "ca.key"] if name != "stranger" else []
            certificate(name, "-addext", f"subjectAltName=DNS:{name}", "-addext", "basicConstraints=critical,CA:FALSE", *own)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        repository = work / "models"
        harness.lay_models(repository)
        config = (f'[tls]\naddress = "127.0.0.1:{port}"\ncertificate_file = "{work}/localhost.crt"\nkey_file = "{work}/localhost.key"\n'
                  f'client_ca_file = "{work}/ca.crt"\n[[tenant]]\nname = "camera"\ncertificates = ["camera"]\n')
        program = find_program(BUILD, "npuctl")
        with harness.Daemon(find_program(BUILD), repository, config, mode="explicit") as daemon:
            daemon.wait_for_socket()

            def ctl(name, status):
                return run([program, "-a", f"localhost:{port}", "--ca", work / "ca.crt", "--cert", work / f"{name}.crt", "--key", work / f"{name}.key",
                            "--timeout", "15" if status == 0 else "2", "status"], status)

            self.assertIn("you are: camera", ctl("camera", 0).stdout)
            self.assertIn("certificate", ctl("stranger", 3).stderr)


if __name__ == "__main__":
    unittest.main()
