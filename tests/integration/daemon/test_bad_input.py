# SPDX-License-Identifier: Apache-2.0
"""What clients get wrong or do on purpose. After each the daemon serves; at the end it holds nothing of any of it."""

import math
import socket
import struct
import subprocess
import sys
import unittest

from harness import *  # noqa: F403

Code = grpc.StatusCode


class BadRequests(DaemonTest):
    server = 'max_message_bytes = "1 MiB"'

    def infer_refused(self, code, text, request):
        return self.refused(code, text, self.client.inference.ModelInfer, request)

    def test_unknown_model_and_version(self):
        self.infer_refused(Code.NOT_FOUND, "nope", echo_request(model_name="nope"))
        self.infer_refused(Code.NOT_FOUND, "7", echo_request(model_version="7"))
        for version in ("x", "-1", "0", "1.0", "99999999999999999999", "1 "):
            self.infer_refused(Code.INVALID_ARGUMENT, "positive integer", echo_request(model_version=version))
        self.infer_refused(Code.INVALID_ARGUMENT, "model_name is empty", echo_request(model_name=""))
        self.infer_refused(Code.INVALID_ARGUMENT, "256", echo_request(model_name="m" * 300))

    def test_wrong_names(self):
        request = echo_request()
        request.inputs[0].name = "Z"
        self.infer_refused(Code.INVALID_ARGUMENT, "Z", request)
        request = echo_request()
        request.outputs.add(name="nothing")
        self.infer_refused(Code.INVALID_ARGUMENT, "nothing", request)
        request = echo_request()
        request.inputs.add().CopyFrom(request.inputs[0])
        request.raw_input_contents.append(request.raw_input_contents[0])
        self.infer_refused(Code.INVALID_ARGUMENT, "twice", request)
        request = echo_request()
        request.inputs[0].name = ""
        self.infer_refused(Code.INVALID_ARGUMENT, "no name", request)
        self.infer_refused(Code.INVALID_ARGUMENT, "X", pb.ModelInferRequest(model_name="echo"))

    def test_wrong_datatype(self):
        request = echo_request()
        request.inputs[0].datatype = "FP64"
        self.infer_refused(Code.INVALID_ARGUMENT, "FP32", request)
        request.inputs[0].datatype = "float"
        self.infer_refused(Code.INVALID_ARGUMENT, "unknown datatype 'float'", request)
        request.inputs[0].datatype = ""
        self.infer_refused(Code.INVALID_ARGUMENT, "unknown datatype", request)

    def test_wrong_shape_and_byte_count(self):
        for shape in ([3], [1], [2, 1], [], [-2], [-1], [1 << 62, 1 << 62], [1 << 40, 1 << 40], [-(1 << 63)]):
            request = echo_request()
            request.inputs[0].shape[:] = shape
            self.infer_refused(Code.INVALID_ARGUMENT, "X", request)
        request = echo_request()
        request.inputs[0].shape[:] = [1] * 100
        self.infer_refused(Code.INVALID_ARGUMENT, "dimensions", request)
        for raw in (b"", b"123", b"1" * 7, b"1" * 9):
            request = echo_request()
            request.raw_input_contents[0] = raw
            self.infer_refused(Code.INVALID_ARGUMENT, "X", request)

    def test_raw_and_typed_contents(self):
        request = echo_request()
        request.inputs[0].contents.fp32_contents.extend([1, 2])
        self.infer_refused(Code.INVALID_ARGUMENT, "one of the two", request)
        request = echo_request()
        request.raw_input_contents.append(b"more")
        self.infer_refused(Code.INVALID_ARGUMENT, "raw_input_contents has 2 entries", request)
        request = pb.ModelInferRequest(model_name="echo")
        request.inputs.add(name="X", datatype="FP32", shape=[2]).contents.fp32_contents.extend([1, 2, 3])
        self.infer_refused(Code.INVALID_ARGUMENT, "has 2 elements, contents have 3", request)
        request.inputs[0].contents.Clear()
        request.inputs[0].contents.int_contents.extend([1, 2])
        self.infer_refused(Code.INVALID_ARGUMENT, "field that isn't FP32's", request)
        for datatype in ("FP16", "BF16"):
            request.inputs[0].datatype = datatype
            request.inputs[0].contents.fp32_contents.extend([1, 2])
            self.infer_refused(Code.INVALID_ARGUMENT, "raw_input_contents", request)

    def test_narrow_integers_must_fit(self):
        request = pb.ModelInferRequest(model_name="echo")
        tensor = request.inputs.add(name="X", shape=[1])
        for datatype, field, value in (("INT8", "int_contents", 128), ("INT16", "int_contents", -32769), ("UINT8", "uint_contents", 256)):
            tensor.datatype = datatype
            tensor.contents.Clear()
            getattr(tensor.contents, field).append(value)
            self.infer_refused(Code.INVALID_ARGUMENT, "doesn't fit", request)

    def test_bytes_whose_lengths_lie(self):
        def request(raw, count):
            r = pb.ModelInferRequest(model_name="text")
            r.inputs.add(name="X", datatype="BYTES", shape=[count])
            r.raw_input_contents.append(raw)
            return r
        good = struct.pack("<I", 2) + b"ab" + struct.pack("<I", 0)
        self.assertEqual(self.client.inference.ModelInfer(request(good, 2), timeout=60).raw_output_contents[0], good)
        for raw, count in ((good, 1), (good, 3), (good[:-1], 2), (struct.pack("<I", 0xFFFFFFFF) + b"x", 1), (b"", 1), (b"\1", 1)):
            self.infer_refused(Code.INVALID_ARGUMENT, "X", request(raw, count))

    def test_sizes_that_are_no_numbers(self):
        for value in (math.nan, math.inf, -1.0):
            request = echo_request()
            del request.raw_input_contents[:]
            parameters = request.inputs[0].parameters
            parameters["shared_memory_region"].string_param = "r"
            parameters["shared_memory_byte_size"].double_param = value
            self.infer_refused(Code.INVALID_ARGUMENT, "must be an integer", request)
        request.inputs[0].parameters["shared_memory_byte_size"].int64_param = -8
        self.infer_refused(Code.INVALID_ARGUMENT, "must not be negative", request)

    def test_parameters(self):
        for name, arm, value in (("priority", "string_param", "1"), ("priority", "int64_param", -1), ("timeout", "double_param", 1.0),
                                 ("timeuot", "int64_param", 5), ("npud.class", "string_param", "best")):
            request = echo_request()
            setattr(request.parameters[name], arm, value)
            self.infer_refused(Code.INVALID_ARGUMENT, name, request)
        request = echo_request()
        request.parameters["npud.class"].string_param = "realtime"
        self.infer_refused(Code.PERMISSION_DENIED, "max_class", request)
        for arm, value in (("int64_param", 5), ("uint64_param", 5), ("string_param", "a")):
            request = echo_request()
            setattr(request.parameters["sequence_id"], arm, value)
            self.infer_refused(Code.UNIMPLEMENTED, "sequence", request)
        request = echo_request()
        request.outputs.add(name="Y").parameters["classification"].int64_param = 3
        self.infer_refused(Code.UNIMPLEMENTED, "classification", request)

    def test_message_over_the_limit(self):
        self.infer_refused(Code.RESOURCE_EXHAUSTED, "", echo_request((0.0,) * (300 << 10)))

    def test_bytes_that_are_no_message(self):
        raw = self.client.channel.unary_unary("/inference.GRPCInferenceService/ModelInfer", request_serializer=bytes, response_deserializer=bytes)
        for junk in (b"\xff" * 100, b"\x0a\xff\xff\xff\xff\x0f", b"\x3a\x80\x80\x80\x80\x08", bytes(range(256))):
            self.refused(Code.INVALID_ARGUMENT, "encoding", raw, junk)

    def test_text_that_is_no_utf8_is_refused_and_floods_no_log(self):
        raw = self.client.channel.unary_unary("/inference.GRPCInferenceService/ModelInfer", request_serializer=bytes, response_deserializer=bytes)
        size = len(self.daemon.log_text())
        for _ in range(20):
            self.refused(Code.INVALID_ARGUMENT, "encoding", raw, b"\x0a\x02\xff\xfe")
        self.assertEqual(self.daemon.log_text()[size:], "")

    def test_unknown_method(self):
        raw = self.client.channel.unary_unary("/inference.GRPCInferenceService/Nothing", request_serializer=bytes, response_deserializer=bytes)
        self.refused(Code.UNIMPLEMENTED, "", raw, b"")

    def test_a_bad_request_in_a_stream_is_an_answer_and_the_stream_goes_on(self):
        requests = [echo_request((1.0,), id="a"), echo_request(model_name="nope", id="b"), echo_request((2.0,), id="c")]
        answers = list(self.client.inference.ModelStreamInfer(iter(requests), timeout=60))
        self.assertEqual([a.infer_response.id for a in answers], ["a", "b", "c"])
        self.assertEqual([bool(a.error_message) for a in answers], [False, True, False])
        self.assertIn("NOT_FOUND", answers[1].error_message)
        self.assertEqual(answers[2].infer_response.raw_output_contents[0], floats(2.0))
        self.assert_serves()


class BadConnections(DaemonTest):
    server = "handshake_timeout_ms = 300\nmax_connections = 200\nmax_silent_connections = 100\nmax_connections_per_tenant = 90"

    def connect(self):
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(60)
        s.connect(str(self.daemon.socket))
        return s

    def test_a_thousand_that_say_nothing(self):
        silent = []
        for _ in range(1000):
            silent.append(self.connect())
        with Client(self.daemon.address, **{"grpc.use_local_subchannel_pool": 1}) as other:
            self.assertEqual(other.inference.ModelInfer(echo_request((3.0,)), timeout=60).raw_output_contents[0], floats(3.0))
        for s in silent:
            self.assertTrue(closed(s))
            s.close()
        self.assertGreaterEqual(self.metrics()["npud_connections_timed_out"], 900)
        self.assert_serves()

    def test_other_protocols_and_half_a_preface(self):
        for text in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x02\x00\x01", b"\0" * 64, b"PRI * HTTP/2.0\r\n\r\n", b"P"):
            s = self.connect()
            s.sendall(text)
            self.assertTrue(closed(s), text)
            s.close()
        self.assert_serves()

    def test_garbage_after_a_good_preface(self):
        for garbage in (b"\xff" * 4096, b"\0\0\0\4\0\0\0\0\0" + b"\0\0\0\x09\0\0\0\0\0" * 10):
            s = self.connect()
            s.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + garbage)
            try:
                while s.recv(4096):
                    pass
            except ConnectionResetError:
                pass
            s.close()
        self.assert_serves()

    def test_a_client_killed_in_mid_stream(self):
        code = f"""
client = Client({self.daemon.address!r})
def requests():
    yield spin_request(1)
    while True:
        yield spin_request(20000)
for answer in client.inference.ModelStreamInfer(requests()):
    print("answer", flush=True)
"""
        program = f"import sys; sys.path[:0] = {PYTHON_PATHS!r}; from harness import *\n{code}"
        process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
        self.assertEqual(process.stdout.readline(), b"answer\n")
        process.kill()
        process.wait()
        process.stdout.close()
        self.assert_holds_nothing(timeout_s=120)
        self.assert_serves()


if __name__ == "__main__":
    unittest.main()
