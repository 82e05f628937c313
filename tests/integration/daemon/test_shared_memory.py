# SPDX-License-Identifier: Apache-2.0
"""Regions of POSIX shared memory: whose they are, and what happens when they change under the daemon."""

import unittest

from harness import *  # noqa: F403

Code = grpc.StatusCode


class Regions(DaemonTest):
    server = "idle_timeout_ms = 1000"

    def setUp(self):
        self.key = f"/npud-test-{os.getpid()}-{self.id().rsplit('.', 1)[-1]}"
        self.path = Path("/dev/shm") / self.key[1:]
        self.path.write_bytes(floats(*range(8)) + bytes(32))
        self.path.chmod(0o666)
        self.addCleanup(self.path.unlink, missing_ok=True)

    def tearDown(self):
        self.client.inference.SystemSharedMemoryUnregister(pb.SystemSharedMemoryUnregisterRequest(), timeout=60)

    def register(self, name="r", key=None, offset=0, size=64):
        request = pb.SystemSharedMemoryRegisterRequest(name=name, key=key or self.key, offset=offset, byte_size=size)
        return self.client.inference.SystemSharedMemoryRegister(request, timeout=60)

    def request(self, inputs=("r", 0, 32), output=None, count=8):
        request = pb.ModelInferRequest(model_name="echo")
        tensor = request.inputs.add(name="X", datatype="FP32", shape=[count])
        self.place(tensor, *inputs)
        if output:
            self.place(request.outputs.add(name="Y"), *output)
        return request

    @staticmethod
    def place(tensor, region, offset, size):
        tensor.parameters["shared_memory_region"].string_param = region
        tensor.parameters["shared_memory_offset"].int64_param = offset
        tensor.parameters["shared_memory_byte_size"].int64_param = size

    def test_in_and_out(self):
        self.register()
        answer = self.client.inference.ModelInfer(self.request(), timeout=60)
        self.assertEqual(answer.raw_output_contents[0], floats(*range(8)))
        answer = self.client.inference.ModelInfer(self.request(output=("r", 32, 32)), timeout=60)
        self.assertEqual(answer.raw_output_contents[0], b"")
        self.assertEqual(answer.outputs[0].parameters["shared_memory_byte_size"].int64_param, 32)
        self.assertEqual(self.path.read_bytes()[32:], floats(*range(8)))
        status = self.client.inference.SystemSharedMemoryStatus(pb.SystemSharedMemoryStatusRequest(), timeout=60)
        self.assertEqual({(r.name, r.key, r.byte_size) for r in status.regions.values()}, {("r", self.key, 64)})

    def test_a_region_that_shrank_is_an_error_and_never_a_crash(self):
        self.register()
        os.truncate(self.path, 16)
        self.refused(Code.FAILED_PRECONDITION, "truncated", self.client.inference.ModelInfer, self.request())
        os.truncate(self.path, 64)
        self.client.inference.ModelInfer(self.request(), timeout=60)
        os.truncate(self.path, 40)
        self.refused(Code.FAILED_PRECONDITION, "truncated", self.client.inference.ModelInfer, self.request(output=("r", 32, 32)))
        self.assertEqual(self.path.stat().st_size, 40)

    def test_a_region_that_shrinks_while_it_is_used(self):
        self.register()
        stop = time.monotonic() + 3
        codes = set()
        while time.monotonic() < stop:
            calls = [self.client.inference.ModelInfer.future(self.request(output=("r", 32, 32)), timeout=60) for _ in range(4)]
            os.truncate(self.path, 0)
            os.truncate(self.path, 64)
            codes |= {call.code() for call in calls}
        self.assertLessEqual(codes, {Code.OK, Code.FAILED_PRECONDITION, Code.RESOURCE_EXHAUSTED})
        self.assert_serves()

    def test_parts_outside_of_the_region(self):
        self.register(size=48)
        for part in (("r", 0, 49), ("r", 48, 1), ("r", 1 << 62, 8), ("r", 17, 32)):
            self.refused(Code.INVALID_ARGUMENT, "outside", self.client.inference.ModelInfer, self.request(part))
        self.refused(Code.NOT_FOUND, "isn't registered", self.client.inference.ModelInfer, self.request(("other", 0, 32)))
        self.refused(Code.INVALID_ARGUMENT, "X", self.client.inference.ModelInfer, self.request(("r", 0, 28)))
        request = self.request()
        request.inputs[0].contents.fp32_contents.extend(range(8))
        self.refused(Code.INVALID_ARGUMENT, "at once", self.client.inference.ModelInfer, request)
        request = self.request()
        request.raw_input_contents.append(floats(*range(8)))
        self.refused(Code.INVALID_ARGUMENT, "raw_input_contents", self.client.inference.ModelInfer, request)

    def test_an_output_that_doesnt_fit(self):
        self.register()
        self.refused(Code.INVALID_ARGUMENT, "larger", self.client.inference.ModelInfer, self.request(output=("r", 32, 16)))

    def test_keys(self):
        register = self.client.inference.SystemSharedMemoryRegister
        for key in ("", "/", "..", "/../etc/passwd", "/etc/passwd", "/a/b"):
            self.refused(Code.INVALID_ARGUMENT, "key", register, pb.SystemSharedMemoryRegisterRequest(name="k", key=key, byte_size=8))
        self.refused(Code.NOT_FOUND, "key", register, pb.SystemSharedMemoryRegisterRequest(name="k", key="/npud-absent", byte_size=8))
        link = self.path.with_name(self.path.name + "-link")
        link.symlink_to("/etc/passwd")
        self.addCleanup(link.unlink)
        self.refused(Code.INVALID_ARGUMENT, "key", register, pb.SystemSharedMemoryRegisterRequest(name="k", key="/" + link.name, byte_size=8))
        self.register()
        self.refused(Code.ALREADY_EXISTS, "registered already", register,
                     pb.SystemSharedMemoryRegisterRequest(name="r", key=self.key, byte_size=8))
        for offset, size in ((0, 65), (64, 1), (1 << 63, 8), (0, 0), ((1 << 64) - 1, 2)):
            with self.assertRaises(grpc.RpcError):
                self.register("s", offset=offset, size=size)
        self.assert_serves()

    @unittest.skipUnless(os.geteuid() == 0, "needs root, to be other users")
    def test_another_uids_object_and_another_uids_region(self):
        self.register()
        code = f"""
client = Client({self.daemon.address!r})
def told(call, *arguments):
    try:
        call(*arguments, timeout=60)
        print("OK")
    except grpc.RpcError as error:
        print(error.code().name)
told(client.inference.SystemSharedMemoryRegister, pb.SystemSharedMemoryRegisterRequest(name="x", key={self.key!r}, byte_size=8))
request = pb.ModelInferRequest(model_name="echo")
tensor = request.inputs.add(name="X", datatype="FP32", shape=[8])
tensor.parameters["shared_memory_region"].string_param = "r"
tensor.parameters["shared_memory_byte_size"].int64_param = 32
told(client.inference.ModelInfer, request)
told(client.inference.SystemSharedMemoryStatus, pb.SystemSharedMemoryStatusRequest(name="r"))
client.inference.SystemSharedMemoryUnregister(pb.SystemSharedMemoryUnregisterRequest(), timeout=60)
print(len(client.inference.SystemSharedMemoryStatus(pb.SystemSharedMemoryStatusRequest(), timeout=60).regions))
"""
        told = as_user(61301, code).stdout.split()
        self.assertEqual(told, ["PERMISSION_DENIED", "NOT_FOUND", "NOT_FOUND", "0"])
        self.client.inference.ModelInfer(self.request(), timeout=60)

    @unittest.skipUnless(os.geteuid() == 0, "needs root, to be other users")
    def test_regions_of_a_user_who_left_go(self):
        before = self.metrics()["npud_shared_memory_regions"]
        code = f"""
path = Path("/dev/shm/npud-left-{os.getpid()}")
path.write_bytes(bytes(64))
client = Client({self.daemon.address!r})
client.inference.SystemSharedMemoryRegister(pb.SystemSharedMemoryRegisterRequest(name="mine", key="/" + path.name, byte_size=64), timeout=60)
path.unlink()
"""
        as_user(61302, code)
        deadline = time.monotonic() + 60
        while self.metrics()["npud_shared_memory_regions"] > before:
            self.assertLess(time.monotonic(), deadline, "the region of a user without connections is still there")
            time.sleep(0.1)


if __name__ == "__main__":
    unittest.main()
