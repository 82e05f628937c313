# SPDX-License-Identifier: Apache-2.0
"""Compiled .rknn models over gRPC, with a runtime of the tests' own in the place of Rockchip's (tests/unit/rknn/fake_runtime)."""

import struct
import threading
import unittest

import grpc
import harness
import numpy as np
from npud_examples.client import Client, control_pb2, pb

FAKE = harness.BUILD / "tests/unit/rknn/librknnrt.so"
RKNN = f'\n[devices.rknn]\nenable = "on"\nlibrary = "{FAKE}"\ntimeout_ms = 2000\n'
FLOAT = ("in x 0 3 0 0 1 1 6", "out y 0 3 0 0 1 1 4")
INT8 = ("in x 2 3 2 3 0.5 1 6", "out y 2 3 2 -1 0.25 1 4")


def rknn_file(lines, weights):
    data = "".join(line + "\n" for line in lines).encode() + b"end\n" + weights.astype("<f4").tobytes()
    description = b'{"version": "2.3.2"}'
    return b"RKNN\0\0\0\0" + struct.pack("<QQ", 6, len(data)) + bytes(40) + data + struct.pack("<Q", len(description)) + description


def lay(repository, name, content, config=""):
    (repository / name / "1").mkdir(parents=True)
    (repository / name / "1/model.rknn").write_bytes(content)
    (repository / name / "config.pbtxt").write_text(f'name: "{name}"\nbackend: "rknn"\n{config}')


class Compiled(harness.NpuTest):
    program = harness.BUILD / "daemon/service/npud"
    config = '[devices.rknpu]\nenable = "off"\n' + RKNN
    broken = ("cut", "foreign")
    device_name = "rknn0"
    x = np.array([[1, -2, 3, 0.5, 0, 4]], dtype=np.float32)

    @classmethod
    def lay(cls, repository):
        random = np.random.default_rng(1)
        cls.w = {name: random.uniform(-1, 1, (4, 6)).astype(np.float32) for name in ("floats", "small", "as_floats", "hangs")}
        cls.flag = cls.work / "hang"
        lay(repository, "floats", rknn_file(FLOAT, cls.w["floats"]))
        lay(repository, "small", rknn_file(INT8, cls.w["small"]))
        lay(repository, "as_floats", rknn_file(INT8, cls.w["as_floats"]),
            'input { name: "x" data_type: TYPE_FP32 dims: [1, 6] }\noutput { name: "y" data_type: TYPE_FP32 dims: [1, 4] }\n')
        lay(repository, "hangs", rknn_file((*FLOAT, f"do hang {cls.flag}"), cls.w["hangs"]), "instance_group { count: 1 }\n")
        lay(repository, "cut", rknn_file(FLOAT, cls.w["floats"])[:-1])
        lay(repository, "foreign", rknn_file(FLOAT, cls.w["floats"][:3]))

    def answer(self, name, client=None):
        return (client or self.client).infer(name, {"x": self.x})["y"]

    def test_answers_are_right_and_say_where_they_come_from(self):
        self.client.paths.clear()
        np.testing.assert_allclose(self.answer("floats"), self.x @ self.w["floats"].T, rtol=1e-5)
        self.assertEqual(set(self.client.paths), {f"device={self.device_name}"})
        np.testing.assert_allclose(self.answer("as_floats"), self.x @ self.w["as_floats"].T, atol=0.126)

    def test_quantised_numbers_come_as_they_are_with_their_meaning_beside_them(self):
        numbers = self.client.infer("small", {"x": (self.x / 0.5 + 3).astype(np.int8)})["y"]
        self.assertEqual(numbers.dtype, np.int8)
        np.testing.assert_allclose((numbers.astype(np.float32) + 1) * 0.25, self.x @ self.w["small"].T, atol=0.126)
        told = self.client.inference.ModelMetadata(pb.ModelMetadataRequest(name="small"), timeout=10)
        self.assertEqual((told.platform, told.inputs[0].datatype, list(told.outputs[0].shape)), ("rknn", "INT8", [1, 4]))
        self.assertEqual(told.properties["npud.quantisation.y"], "value = (number - -1) * 0.25")

    def test_what_the_runtime_can_not_load_says_why(self):
        index = {m.name: m for m in self.client.inference.RepositoryIndex(pb.RepositoryIndexRequest(), timeout=10).models}
        self.assertIn("it is no whole .rknn file", index["cut"].reason)
        self.assertIn("RKNN_ERR_MODEL_INVALID (-6) [librknnrt 2.3.2", index["foreign"].reason)

    def test_a_run_that_hangs_fails_alone_and_the_model_comes_back(self):
        self.flag.touch()
        try:
            with self.assertRaises(grpc.RpcError) as late:
                self.answer("hangs")
            self.assertEqual(late.exception.code(), grpc.StatusCode.UNAVAILABLE)
            self.assertIn("rknn_run didn't return in time", late.exception.details())
            errors = []

            def work():
                try:
                    with Client(self.daemon.address) as client:
                        for _ in range(20):
                            np.testing.assert_allclose(self.answer("floats", client), self.x @ self.w["floats"].T, rtol=1e-5)
                except Exception as e:  # noqa: BLE001
                    errors.append(e)

            threads = [threading.Thread(target=work) for _ in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(errors, [])
        finally:
            self.flag.unlink()
        for _ in range(2000):
            try:
                back = self.answer("hangs")
                break
            except grpc.RpcError as e:
                self.assertEqual(e.code(), grpc.StatusCode.UNAVAILABLE)
        np.testing.assert_allclose(back, self.x @ self.w["hangs"].T, rtol=1e-5)

    def notes(self):
        return " ".join(self.client.control.Status(control_pb2.StatusRequest(), timeout=10).notes)

    def test_the_device_tells_its_versions(self):
        device = self.device(self.device_name)
        self.assertEqual(device.kind, "rknn")
        self.assertIn("librknnrt 2.3.2 (fake", device.driver)
        self.assertIn("driver 0.9.8", device.driver)


class OnTheSharedNpu(Compiled):
    """The NPU that npud's own device has open is the same hardware: one arbiter for both."""

    program = harness.PROGRAM
    config = harness.CONFIG + RKNN
    device_name = "rknpu0"

    def test_the_device_tells_its_versions(self):
        self.assertEqual(self.device("rknpu0").kind, "rknpu")
        self.assertIn("compiled .rknn models run on rknpu0 through librknnrt 2.3.2", self.notes())
        programs = self.client.control.ListPrograms(control_pb2.ListProgramsRequest(), timeout=10).programs
        self.assertIn(("floats:1", "rknpu0"), {(p.name, p.device) for p in programs})


class WithoutTheRuntime(harness.NpuTest):
    program = harness.BUILD / "daemon/service/npud"
    config = '[devices.rknpu]\nenable = "off"\n\n[devices.rknn]\nlibrary = "/nowhere/librknnrt.so"\n'
    broken = ("compiled",)

    @classmethod
    def lay(cls, repository):
        lay(repository, "compiled", rknn_file(FLOAT, np.zeros((4, 6))))

    def test_a_compiled_model_says_what_to_install(self):
        (entry,) = self.client.inference.RepositoryIndex(pb.RepositoryIndexRequest(), timeout=10).models
        self.assertEqual(entry.state, "UNAVAILABLE")
        for part in ("/nowhere/librknnrt.so", "RKNPU2", "devices.rknn.library"):
            self.assertIn(part, entry.reason)
        status = self.client.control.Status(control_pb2.StatusRequest(), timeout=10)
        self.assertTrue(any("compiled .rknn models can't be served" in note for note in status.notes), status.notes)


if __name__ == "__main__":
    unittest.main()
