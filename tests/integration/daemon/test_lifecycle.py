# SPDX-License-Identifier: Apache-2.0
"""Starting, reading the configuration again, draining, dying."""

import unittest

from harness import *  # noqa: F403

Code = grpc.StatusCode


class Lifecycle(unittest.TestCase):
    def setUp(self):
        self.repository = Repository()
        self.addCleanup(self.repository.remove)

    def start(self, **more):
        daemon = Npud(self.repository.path, **more)
        self.addCleanup(daemon.remove)
        client = Client(daemon.address)
        self.addCleanup(client.channel.close)
        client.wait_ready()
        return daemon, client

    def test_sigterm_lets_requests_in_hand_end_and_refuses_new_ones(self):
        daemon, client = self.start(server="drain_timeout_ms = 120000")
        running = client.inference.ModelInfer.future(spin_request(60000), timeout=120)
        while client.control.Status(control_pb2.StatusRequest(), timeout=60).requests_in_flight == 0:
            time.sleep(0.01)
        daemon.process.send_signal(signal.SIGTERM)
        daemon.wait_for_log("npud stops")
        with self.assertRaises(grpc.RpcError) as caught:
            client.inference.ModelInfer(echo_request(), timeout=60)
        self.assertEqual(caught.exception.code(), Code.UNAVAILABLE, caught.exception.details())
        self.assertEqual(len(running.result().raw_output_contents), 1)
        self.assertEqual(daemon.stop(), 0)
        self.assertFalse(daemon.socket.exists())

    def test_sigterm_while_models_are_loaded_leaves_the_rest_and_never_says_ready(self):
        models = 2000
        repository = Repository({f"m{i:04}": onnx_writer.echo() for i in range(models)})
        self.addCleanup(repository.remove)
        daemon = Npud(repository.path)
        self.addCleanup(daemon.remove)
        daemon.wait_for_log("version 1 serves.")
        self.assertEqual(daemon.stop(), 0, daemon.log_text()[-2000:])
        self.assertLess(daemon.log_text().count("version 1 serves."), models)
        self.assertNotIn("npud serves", daemon.log_text())

    def test_what_doesnt_end_in_time_is_cancelled_and_the_daemon_ends(self):
        daemon, client = self.start(server="drain_timeout_ms = 200")
        running = [client.inference.ModelInfer.future(spin_request(40_000_000), timeout=300) for _ in range(3)]
        while client.control.Status(control_pb2.StatusRequest(), timeout=60).requests_in_flight < 3:
            time.sleep(0.01)
        self.assertEqual(daemon.stop(timeout_s=240), 0)
        for call in running:
            self.assertIsNotNone(call.exception())

    def test_health_watch_sees_ready_and_draining(self):
        daemon, client = self.start(server="drain_timeout_ms = 60000")
        check = client.channel.unary_unary("/grpc.health.v1.Health/Check", request_serializer=bytes, response_deserializer=bytes)
        serving, not_serving = b"\x08\x01", b"\x08\x02"
        service = b"inference.GRPCInferenceService"
        self.assertEqual(check(b"", timeout=60), serving)
        self.assertEqual(check(b"\x0a" + bytes([len(service)]) + service, timeout=60), serving)
        with self.assertRaises(grpc.RpcError) as caught:
            check(b"\x0a\x04nope", timeout=60)
        self.assertEqual(caught.exception.code(), Code.NOT_FOUND)
        watch = client.channel.unary_stream("/grpc.health.v1.Health/Watch", request_serializer=bytes, response_deserializer=bytes)(b"", timeout=120)
        self.assertEqual(next(watch), serving)
        busy = client.inference.ModelInfer.future(spin_request(60000), timeout=120)
        while client.control.Status(control_pb2.StatusRequest(), timeout=60).requests_in_flight == 0:
            time.sleep(0.01)
        daemon.process.send_signal(signal.SIGTERM)
        self.assertEqual(next(watch), not_serving)
        busy.result()
        self.assertEqual(daemon.stop(), 0)

    def test_sighup_takes_tenants_and_log_level_and_keeps_serving(self):
        daemon, client = self.start()
        drop_ins = Path(f"{daemon.settings}.d")
        drop_ins.mkdir()
        status = client.control.Status(control_pb2.StatusRequest(), timeout=60)
        self.assertEqual(status.caller.name, f"uid:{os.getuid()}")
        (drop_ins / "a.toml").write_text(f'[[tenant]]\nname = "me"\nuids = [{os.getuid()}]\nmax_requests = 5\n[devices.host]\nslots = 9\n')
        running = client.inference.ModelInfer.future(spin_request(20000), timeout=120)
        daemon.process.send_signal(signal.SIGHUP)
        daemon.wait_for_log("changes in devices.host take a restart")
        self.assertEqual(client.control.Status(control_pb2.StatusRequest(), timeout=60).caller.name, "me")
        running.result()
        (drop_ins / "b.toml").write_text("[server]\nnonsense = 1\n")
        daemon.process.send_signal(signal.SIGHUP)
        daemon.wait_for_log("The configuration stays as it was")
        self.assertIn("b.toml:2:1: unknown key server.nonsense", daemon.log_text())
        self.assertEqual(client.control.Status(control_pb2.StatusRequest(), timeout=60).caller.name, "me")
        client.inference.ModelInfer(echo_request(), timeout=60)
        self.assertEqual(daemon.stop(), 0)

    def test_after_kill_9_it_starts_again_on_the_same_socket(self):
        daemon, client = self.start()
        daemon.process.kill()
        daemon.process.wait()
        self.assertTrue(daemon.socket.exists())
        daemon.start()
        client.wait_ready()
        client.inference.ModelInfer(echo_request(), timeout=60)
        self.assertEqual(daemon.stop(), 0)

    def test_a_second_daemon_on_the_same_socket_says_so(self):
        daemon, client = self.start()
        second = subprocess.run([PROGRAM, "--config", daemon.settings], capture_output=True, text=True, timeout=60)
        self.assertEqual(second.returncode, 1)
        self.assertIn("served by another process", second.stderr)
        client.inference.ModelInfer(echo_request(), timeout=60)
        self.assertEqual(daemon.stop(), 0)

    def notified(self):
        """A directory with systemd's end of a notification socket in it, and that socket."""
        directory = Path(tempfile.mkdtemp(prefix="npud-notify-"))
        self.addCleanup(shutil.rmtree, directory, ignore_errors=True)
        notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(notify.close)
        notify.bind(str(directory / "notify"))
        notify.settimeout(120)
        return directory, notify

    def test_a_reload_while_models_are_loaded_isnt_told_as_ready(self):
        models = 2000
        repository = Repository({f"m{i:04}": onnx_writer.echo() for i in range(models)})
        self.addCleanup(repository.remove)
        directory, notify = self.notified()
        daemon = Npud(repository.path, environment={"NOTIFY_SOCKET": str(directory / "notify")})
        self.addCleanup(daemon.remove)
        daemon.wait_for_log("version 1 serves.")
        daemon.process.send_signal(signal.SIGHUP)
        daemon.wait_for_log("The configuration was read again")
        self.assertLess(daemon.log_text().split("The configuration was read again")[0].count("version 1 serves."), models)
        heard = [notify.recv(4096).decode()]
        while "READY=1" not in heard[-1]:
            heard.append(notify.recv(4096).decode())
        self.assertEqual(daemon.log_text().count("version 1 serves."), models, "it was told as ready while models were loaded")
        self.assertFalse(any("RELOADING=1" in message for message in heard))
        self.assertEqual(daemon.stop(), 0)

    def test_systemd_is_told_what_happens_and_its_socket_is_used(self):
        directory, notify = self.notified()
        listener = socket.socket(socket.AF_UNIX)
        self.addCleanup(listener.close)
        listener.bind(str(directory / "passed.sock"))
        listener.listen(64)
        settings = directory / "npud.toml"
        settings.write_text(f'[server]\nsocket = "{directory}/unused.sock"\n[repository]\npath = "{self.repository.path}"\n')

        # LISTEN_PID must be the daemon's own: a small shell sets it just before it becomes the daemon.
        process = subprocess.Popen(["sh", "-c", 'LISTEN_PID=$$ exec "$@"', "sh", PROGRAM, "--config", settings], pass_fds=(3,),
                                   preexec_fn=lambda: os.dup2(listener.fileno(), 3), stderr=subprocess.DEVNULL,
                                   env={**os.environ, "LISTEN_FDS": "1", "NOTIFY_SOCKET": str(directory / "notify"), "WATCHDOG_USEC": "400000"})
        self.addCleanup(lambda: process.poll() is None and process.kill())
        heard = []

        def wait_for(text):
            while not any(text in message for message in heard):
                heard.append(notify.recv(4096).decode())

        wait_for("READY=1")
        self.assertFalse((directory / "unused.sock").exists())
        with Client(f"unix:{directory}/passed.sock") as client:
            client.inference.ModelInfer(echo_request(), timeout=60)
        wait_for("WATCHDOG=1")
        heard.clear()
        process.send_signal(signal.SIGHUP)
        wait_for("RELOADING=1")
        wait_for("READY=1")
        process.send_signal(signal.SIGTERM)
        wait_for("STOPPING=1")
        self.assertEqual(process.wait(60), 0)


class CommandLine(unittest.TestCase):
    def run_npud(self, *arguments):
        return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=60)

    def test_dump_and_check(self):
        with tempfile.TemporaryDirectory() as directory:
            settings = Path(directory) / "a.toml"
            settings.write_text('[devices.host]\nslots = 5\naperture_bytes = "1 GiB"\n')
            dumped = self.run_npud("--config", settings, "--dump-config")
            self.assertEqual(dumped.returncode, 0)
            self.assertIn("slots = 5\naperture_bytes = 1073741824\n", dumped.stdout)
            settings.write_text(dumped.stdout)
            self.assertEqual(self.run_npud("--config", settings, "--dump-config").stdout, dumped.stdout)
            self.assertEqual(self.run_npud("--config", settings, "--check-config").returncode, 0)
            settings.write_text("[server]\nmax_connections = -1\n")
            wrong = self.run_npud("--config", settings, "--check-config")
            self.assertEqual(wrong.returncode, 2)
            self.assertIn("a.toml:2:", wrong.stderr)
        self.assertEqual(self.run_npud("--nonsense").returncode, 2)
        self.assertEqual(self.run_npud("--help").returncode, 0)

    def test_the_example_configuration_is_good(self):
        checked = self.run_npud("--config", TOP / "packaging/npud.toml", "--check-config")
        self.assertEqual(checked.returncode, 0, checked.stderr)
        # Commented-out keys are the documentation: with the hash taken away they must be real and hold the defaults.
        lines = (TOP / "packaging/npud.toml").read_text().splitlines()
        with tempfile.TemporaryDirectory() as directory:
            settings = Path(directory) / "all.toml"
            settings.write_text("\n".join(l[1:] if l.startswith("#") and not l.startswith("# ") and len(l) > 1 else l for l in lines))
            full = self.run_npud("--config", settings, "--dump-config")
            self.assertEqual(full.returncode, 0, full.stderr)
            empty = Path(directory) / "empty.toml"
            empty.write_text("")
            self.assertEqual(full.stdout, self.run_npud("--config", empty, "--dump-config").stdout)


if __name__ == "__main__":
    unittest.main()
