# SPDX-License-Identifier: Apache-2.0
"""Several tenants on one NPU, while it drops, stalls and lies: shares by weight, programs that come and go, never a wrong answer."""

import multiprocessing
import os
import signal
import threading
import time
import unittest
from collections import Counter

import grpc
import harness
import numpy as np
import onnx_writer as onnx
from npud_examples.client import Client, control_pb2

WEIGHTS = {61001: 300, 61002: 100}


def lay_product(repository, name, k, n, seed, config=""):
    """y = x · w on the NPU; returns w."""
    return lay_weights(repository, name, np.random.default_rng(seed).normal(0, 1 / np.sqrt(k), (k, n)).astype(np.float32), config)


def lay_weights(repository, name, w, config=""):
    k, n = w.shape
    graph = onnx.graph(name, [onnx.node("MatMul", ["x", "w"], ["y"])], [onnx.value_info("x", onnx.FLOAT, ["rows", k])],
                       [onnx.value_info("y", onnx.FLOAT, ["rows", n])], [onnx.tensor("w", [k, n], w.ravel().tolist())])
    directory = repository / name
    (directory / "1").mkdir(parents=True)
    (directory / "1/model.onnx").write_bytes(onnx.model(graph, opset=13))
    (directory / "config.pbtxt").write_text(f'name: "{name}"\nplatform: "onnxruntime_onnx"\ninstance_group {{ count: 4 }}\n' + config)
    return w


def is_right(y, x, w, tolerance=5e-3):
    """Within what fp16 operands with fp32 sums explain."""
    return y.shape == (x.shape[0], w.shape[1]) and np.abs(y - x @ w).max() < tolerance * max(1.0, np.abs(x @ w).max())


class Faults(harness.NpuTest):
    """One job in eight meets a fault."""

    faults = 8
    config = harness.CONFIG + "rearm_ms = 5\nrearm_most_ms = 20\n"

    @classmethod
    def lay(cls, repository):
        npu = harness.parameters(device="rknpu0", verify="always")
        cls.weights = {name: lay_product(repository, name, k, n, seed, npu)
                       for seed, (name, k, n) in enumerate((("small", 40, 24), ("tall", 300, 48), ("wide", 64, 500)))}

    def test_a_thousand_requests_are_right_wherever_they_ran(self):
        each, paths, wrong = 250, Counter(), []

        def work(seed):
            random = np.random.default_rng(seed)
            with Client(self.daemon.address) as client:
                for _ in range(each):
                    name = str(random.choice(list(self.weights)))
                    w = self.weights[name]
                    x = random.normal(0, 1, (int(random.integers(1, 40)), w.shape[0])).astype(np.float32)
                    y = client.infer(name, {"x": x})["y"]
                    # A bit may be wrong that changes the result by less than rounding of all its row's sums together.
                    if not is_right(y, x, w, 2e-2):
                        wrong.append((name, float(np.abs(y - x @ w).max())))
                paths.update(client.paths)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(sum(paths.values()), 4 * each, "a request failed")
        self.assertEqual(wrong, [])
        self.assertGreater(paths["device=rknpu0"], each, paths)
        for path in paths:
            self.assertTrue(path == "device=rknpu0" or (path.startswith("device=host") and "reason" in path), path)


def _load(address, uid, model, k, started, stop, done):
    """A tenant that always has requests waiting; counts what was answered while the others were at work, too."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    x = np.ones((128, k), dtype=np.float32)

    def work():
        with Client(address) as client:
            while not stop.is_set():
                client.infer(model, {"x": x})
                with done.get_lock():
                    done.value += 1

    threads = [threading.Thread(target=work) for _ in range(10)]
    for thread in threads:
        thread.start()
    started.set()
    for thread in threads:
        thread.join()


def lay_three(repository, more=""):
    npu = harness.parameters(device="rknpu0") + more
    return {name: lay_product(repository, name, 1024, 1024, seed, npu) for seed, name in enumerate(("first", "second", "third"))}


class Room(harness.NpuTest):
    config = harness.CONFIG + "aperture_bytes = \"5 MiB\"\n"

    @classmethod
    def lay(cls, repository):
        cls.weights = lay_three(repository)

    def test_a_third_program_makes_another_leave_and_all_come_back_the_same(self):
        x = np.random.default_rng(5).normal(0, 1, (3, 1024)).astype(np.float32)
        first = {}
        evicted = self.device().evicted
        for _ in range(3):
            for name, w in self.weights.items():
                y = self.client.infer(name, {"x": x})["y"]
                self.assertTrue(is_right(y, x, w), name)
                np.testing.assert_array_equal(y, first.setdefault(name, y), name)
        device = self.device()
        self.assertGreater(device.evicted - evicted, 3, "three programs of 2 MiB in 5 MiB")
        self.assertEqual(set(self.client.paths), {"device=rknpu0"})


class Tenants(harness.NpuTest):
    config = harness.CONFIG + "".join(
        f'\n[[tenant]]\nname = "uid{uid}"\nuids = [{uid}]\nweight = {weight}\n' for uid, weight in WEIGHTS.items())

    @classmethod
    def lay(cls, repository):
        # More runs at once than the device has cores: with fewer than are wanted nobody waits, and weights say nothing.
        cls.weights = lay_three(repository, "instance_group { count: 8 }\n")

    @unittest.skipUnless(os.geteuid() == 0, "only root can give the tenants uids of their own")
    def test_tenants_get_the_device_by_weight_and_a_killed_one_leaves_nothing(self):
        context = multiprocessing.get_context("spawn")
        stop, counts, processes, started = context.Event(), {}, {}, {}
        for uid, model in zip(WEIGHTS, ("first", "second"), strict=True):
            counts[uid], started[uid] = context.Value("q", 0), context.Event()
            processes[uid] = context.Process(target=_load, args=(self.daemon.address, uid, model, 1024, started[uid], stop, counts[uid]), daemon=True)
            processes[uid].start()
        try:
            for event in started.values():
                self.assertTrue(event.wait(60))
            heavy, light = WEIGHTS
            while min(c.value for c in counts.values()) == 0:
                self.assertTrue(all(p.is_alive() for p in processes.values()))
                time.sleep(0.01)
            before = {uid: c.value for uid, c in counts.items()}
            while counts[light].value - before[light] < 30:
                self.assertTrue(all(p.is_alive() for p in processes.values()))
                time.sleep(0.01)
            served = {uid: c.value - before[uid] for uid, c in counts.items()}
            os.kill(processes[heavy].pid, signal.SIGKILL)
            processes[heavy].join()
            before = counts[light].value
            while counts[light].value - before < 5:
                self.assertTrue(processes[light].is_alive())
                time.sleep(0.01)
        finally:
            stop.set()
            for process in processes.values():
                process.join(60)
                process.kill()
        self.assertGreater(served[heavy], 1.3 * served[light], f"weights {WEIGHTS}, served {served}")
        # What the killed tenant had in the queues is gone before anybody looks again.
        status = control_pb2.StatusRequest()
        for _ in range(200):
            if self.client.control.Status(status, timeout=10).requests_in_flight == 0:
                break
        self.assertTrue(is_right(self.client.infer("third", {"x": np.ones((2, 1024), dtype=np.float32)})["y"],
                                 np.ones((2, 1024), dtype=np.float32), self.weights["third"]))


class FlatInput(harness.NpuTest):
    """A blank frame through equal weights: every output channel rounds as the others do."""

    @classmethod
    def lay(cls, repository):
        npu = harness.parameters(device="rknpu0", verify="always")
        lay_weights(repository, "average", np.full((2048, 512), 1 / 2048, np.float32), npu)
        cls.other = lay_product(repository, "other", 64, 64, 1, npu)

    def test_nobody_loses_the_npu_over_results_that_are_right(self):
        flat = np.full((4, 2048), 0.3, np.float32)
        x = np.random.default_rng(3).normal(0, 1, (4, 64)).astype(np.float32)
        for _ in range(5):
            self.assertLess(np.abs(self.client.infer("average", {"x": flat})["y"] - 0.3).max(), 1e-3)
            self.assertTrue(is_right(self.client.infer("other", {"x": x})["y"], x, self.other))
        self.assertEqual(dict(self.client.paths), {"device=rknpu0": 10})


class NoHost(harness.NpuTest):
    """Without the host to stand in, a request that the NPU can't answer fails, and says why."""

    faults = 1
    config = harness.CONFIG + "host_fallback = false\n"

    @classmethod
    def lay(cls, repository):
        cls.w = lay_product(repository, "only", 64, 32, 1, harness.parameters(device="rknpu0", verify="always"))

    def test_every_request_is_right_or_fails_with_the_reason(self):
        x = np.random.default_rng(3).normal(0, 1, (9, 64)).astype(np.float32)
        failed = 0
        for _ in range(80):
            try:
                self.assertTrue(is_right(self.client.infer("only", {"x": x})["y"], x, self.w))
            except grpc.RpcError as error:
                failed += 1
                self.assertEqual(error.code(), grpc.StatusCode.UNAVAILABLE)
                self.assertIn("the host may not stand in", error.details())
        self.assertGreater(failed, 0)


if __name__ == "__main__":
    unittest.main()
