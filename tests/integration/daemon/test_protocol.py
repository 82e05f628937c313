# SPDX-License-Identifier: Apache-2.0
"""What a client of the Open Inference Protocol expects."""

import unittest

from harness import *  # noqa: F403

Code = grpc.StatusCode


class Protocol(DaemonTest):
    sections = "[queue]\nmax_requests = 4\n[engine]\nworkers = 1\n"
    server = "max_requests_per_stream = 8"

    def test_server_and_model_questions(self):
        self.assertTrue(self.client.inference.ServerLive(pb.ServerLiveRequest(), timeout=60).live)
        metadata = self.client.inference.ServerMetadata(pb.ServerMetadataRequest(), timeout=60)
        self.assertEqual(metadata.name, "npud")
        self.assertIn("system_shared_memory", metadata.extensions)
        self.assertTrue(self.client.inference.ModelReady(pb.ModelReadyRequest(name="echo"), timeout=60).ready)
        self.assertTrue(self.client.inference.ModelReady(pb.ModelReadyRequest(name="echo", version="1"), timeout=60).ready)
        self.assertFalse(self.client.inference.ModelReady(pb.ModelReadyRequest(name="echo", version="2"), timeout=60).ready)
        self.assertFalse(self.client.inference.ModelReady(pb.ModelReadyRequest(name="nope"), timeout=60).ready)
        model = self.client.inference.ModelMetadata(pb.ModelMetadataRequest(name="echo"), timeout=60)
        self.assertEqual((model.name, list(model.versions)), ("echo", ["1"]))
        self.assertEqual([(t.name, t.datatype, list(t.shape)) for t in model.inputs], [("X", "FP32", [-1])])
        self.assertEqual([(t.name, t.datatype, list(t.shape)) for t in model.outputs], [("Y", "FP32", [-1])])
        config = self.client.inference.ModelConfig(pb.ModelConfigRequest(name="echo"), timeout=60).config
        self.assertEqual((config.name, config.input[0].name), ("echo", "X"))
        self.refused(Code.NOT_FOUND, "nope", self.client.inference.ModelMetadata, pb.ModelMetadataRequest(name="nope"))
        self.refused(Code.NOT_FOUND, "nope", self.client.inference.ModelConfig, pb.ModelConfigRequest(name="nope"))
        self.refused(Code.NOT_FOUND, "nope", self.client.inference.ModelStatistics, pb.ModelStatisticsRequest(name="nope"))

    def test_an_answer_has_id_version_shape_raw_contents_and_the_path(self):
        answer, call = self.client.inference.ModelInfer.with_call(echo_request((1.0, 2.0, 3.0), id="my id"), timeout=60)
        self.assertEqual((answer.model_name, answer.model_version, answer.id), ("echo", "1", "my id"))
        self.assertEqual((answer.outputs[0].name, answer.outputs[0].datatype, list(answer.outputs[0].shape)), ("Y", "FP32", [3]))
        self.assertEqual(list(answer.raw_output_contents), [floats(1.0, 2.0, 3.0)])
        self.assertEqual(dict(call.trailing_metadata())["npud-path"], "device=host")

    def test_typed_contents_large_and_empty_tensors(self):
        request = pb.ModelInferRequest(model_name="echo")
        request.inputs.add(name="X", datatype="FP32", shape=[2]).contents.fp32_contents.extend([4.0, 5.0])
        self.assertEqual(self.client.inference.ModelInfer(request, timeout=60).raw_output_contents[0], floats(4.0, 5.0))
        for count in (0, 1, 4095, 4096, 4097, 1 << 20):
            raw = os.urandom(4 * count)
            request = echo_request(())
            request.inputs[0].shape[:] = [count]
            request.raw_input_contents[0] = raw
            self.assertEqual(self.client.inference.ModelInfer(request, timeout=60).raw_output_contents[0], raw)
        request = pb.ModelInferRequest(model_name="text")
        request.inputs.add(name="X", datatype="BYTES", shape=[2]).contents.bytes_contents.extend([b"ab\0", b""])
        self.assertEqual(self.client.inference.ModelInfer(request, timeout=60).raw_output_contents[0], b"\3\0\0\0ab\0\0\0\0\0")

    def test_any_authority(self):
        for authority in ("localhost", "%2Frun%2Fnpud%2Fnpud.sock", "example.invalid:99", "x"):
            with Client(self.daemon.address, **{"grpc.default_authority": authority}) as client:
                client.inference.ModelInfer(echo_request(), timeout=60)

    def test_either_integer_arm(self):
        for arm in ("int64_param", "uint64_param"):
            request = echo_request()
            setattr(request.parameters["priority"], arm, 1)
            setattr(request.parameters["timeout"], arm, 60_000_000)
            setattr(request.parameters["sequence_id"], arm, 0)
            request.parameters["sequence_start"].bool_param = False
            self.client.inference.ModelInfer(request, timeout=60)

    def test_reflection(self):
        call = self.client.channel.stream_stream("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
                                                 request_serializer=bytes, response_deserializer=bytes)
        symbol = b"inference.GRPCInferenceService"
        questions = [b"\x3a\x01*", b"\x22" + bytes([len(symbol)]) + symbol, b"\x22\x04nope", b""]
        listed, found, missing, empty = call(iter(questions), timeout=60)
        for service in (b"inference.GRPCInferenceService", b"npud.v1.Control", b"grpc.health.v1.Health"):
            self.assertIn(service, listed)
        self.assertIn(b"ModelStreamInfer", found)
        self.assertIn(b"model_config.proto", found)
        self.assertIn(b"not found: nope", missing)
        self.assertIn(b"asks for nothing", empty)

    def test_stream_answers_in_order_and_is_bounded(self):
        sent = []

        def requests():
            for i in range(100):
                sent.append(i)
                yield echo_request((float(i),), id=str(i)) if i % 10 else spin_request(200, str(i))

        answers = list(self.client.inference.ModelStreamInfer(requests(), timeout=300))
        errors = [a.error_message for a in answers if a.error_message]
        self.assertEqual([a.infer_response.id for a in answers], [str(i) for i in range(100)])
        for error in errors:  # the queue of four may be full for a stream of eight
            self.assertIn("RESOURCE_EXHAUSTED", error)
        self.assertLess(len(errors), 100)

    def test_an_empty_stream_ends_well(self):
        self.assertEqual(list(self.client.inference.ModelStreamInfer(iter(()), timeout=60)), [])

    def busy(self, count=20_000_000):
        call = self.client.inference.ModelInfer.future(spin_request(count), timeout=300)
        while self.client.control.Status(control_pb2.StatusRequest(), timeout=60).workers_busy == 0:
            time.sleep(0.005)
        return call

    def test_a_full_queue_says_when_to_come_back(self):
        busy = self.busy()
        waiting = [self.client.inference.ModelInfer.future(spin_request(1), timeout=300) for _ in range(12)]
        refused = 0
        deadline = time.monotonic() + 60
        while refused == 0 and time.monotonic() < deadline:
            for call in waiting:
                if call.done() and call.code() == Code.RESOURCE_EXHAUSTED:
                    refused += 1
                    details = dict(call.trailing_metadata())["grpc-status-details-bin"]
                    self.assertIn(b"google.rpc.RetryInfo", details)
                    self.assertIn(b"google.rpc.ErrorInfo", details)
                    self.assertIn("retry", call.details())
            time.sleep(0.01)
        self.assertGreater(refused, 0)
        busy.cancel()
        for call in waiting:
            call.cancel()
        self.assert_holds_nothing()

    def test_deadlines_and_timeouts_pass_in_the_queue_without_running(self):
        busy = self.busy()
        before = self.runs("echo")
        with self.assertRaises(grpc.RpcError) as caught:
            self.client.inference.ModelInfer(echo_request(), timeout=0.2)
        self.assertEqual(caught.exception.code(), Code.DEADLINE_EXCEEDED)
        request = echo_request()
        request.parameters["timeout"].int64_param = 100_000
        with self.assertRaises(grpc.RpcError) as caught:
            self.client.inference.ModelInfer(request, timeout=120)
        self.assertEqual(caught.exception.code(), Code.DEADLINE_EXCEEDED)
        busy.cancel()
        self.assert_holds_nothing()
        self.assertEqual(self.runs("echo"), before)

    def test_cancelling_frees_what_waits_and_what_runs(self):
        busy = self.busy(4_000_000)
        waiting = self.client.inference.ModelInfer.future(echo_request(), timeout=300)
        waiting.cancel()
        busy.cancel()
        self.assert_holds_nothing(timeout_s=120)

    def runs(self, model):
        stats = self.client.inference.ModelStatistics(pb.ModelStatisticsRequest(name=model), timeout=60).model_stats
        return stats[0].execution_count

    def test_statistics_metrics_and_control_agree(self):
        before = self.metrics()
        for _ in range(5):
            self.client.inference.ModelInfer(echo_request(), timeout=60)
        with self.assertRaises(grpc.RpcError):
            self.client.inference.ModelInfer(echo_request(model_name="nope"), timeout=60)
        after = self.metrics()
        labels = '{model="echo",version="1"}'
        for name in ("nv_inference_request_success", "nv_inference_exec_count", "nv_inference_count"):
            self.assertEqual(after[name + labels] - before.get(name + labels, 0), 5, name)
        stats = self.client.inference.ModelStatistics(pb.ModelStatisticsRequest(name="echo"), timeout=60).model_stats[0]
        self.assertEqual(stats.inference_stats.success.count, after["nv_inference_request_success" + labels])
        self.assertGreater(stats.last_inference, 1_600_000_000_000)
        device = self.client.control.ListDevices(control_pb2.ListDevicesRequest(), timeout=60).devices[0]
        self.assertEqual((device.name, device.kind, device.health), ("host", "host", control_pb2.HEALTH_OK))
        self.assertEqual(device.jobs_done, self.metrics()['npud_device_jobs_done{device="host"}'])
        programs = self.client.control.ListPrograms(control_pb2.ListProgramsRequest(), timeout=60).programs
        self.assertIn(("echo", 1), {(p.model, p.version) for p in programs})
        explained = self.client.control.Explain(control_pb2.ExplainRequest(model="echo"), timeout=60)
        self.assertEqual({n.device for n in explained.nodes}, {"host"})
        self.refused(Code.NOT_FOUND, "there is no device 'gpu'; there are: host", self.client.control.ListPrograms,
                     control_pb2.ListProgramsRequest(device="gpu"))

    def test_drains_whose_callers_left_hold_up_nobody(self):
        busy = self.client.inference.ModelInfer.future(spin_request(10**12), timeout=600)
        self.addCleanup(busy.cancel)
        while not self.client.control.ListRunning(control_pb2.ListRunningRequest(), timeout=60).running:
            time.sleep(0.01)
        drains = [self.client.control.Drain.future(control_pb2.DrainRequest(model="spin"), timeout=600) for _ in range(4)]
        while not any(q.draining for q in self.client.control.ListRunning(control_pb2.ListRunningRequest(), timeout=60).queues):
            time.sleep(0.01)
        self.assertFalse(any(drain.done() for drain in drains), "a drain ended while a request ran")
        for drain in drains:
            drain.cancel()
        with self.assertRaises(grpc.RpcError) as caught:
            self.client.control.ResetDevice(control_pb2.ResetDeviceRequest(device="host"), timeout=60)
        self.assertEqual(caught.exception.code(), Code.FAILED_PRECONDITION, "the reset had to wait for the drains")
        busy.cancel()
        self.client.control.Drain(control_pb2.DrainRequest(model="spin"), timeout=60)
        self.client.control.Resume(control_pb2.ResumeRequest(model="spin"), timeout=60)

    def test_drain_and_resume(self):
        self.client.control.Drain(control_pb2.DrainRequest(model="echo"), timeout=60)
        with self.assertRaises(grpc.RpcError) as caught:
            self.client.inference.ModelInfer(echo_request(), timeout=60)
        self.assertEqual(caught.exception.code(), Code.FAILED_PRECONDITION)
        self.client.control.Resume(control_pb2.ResumeRequest(model="echo"), timeout=60)
        self.assert_serves()
        self.client.control.Drain(control_pb2.DrainRequest(device="host"), timeout=60)
        waiting = self.client.inference.ModelInfer.future(echo_request(), timeout=120)
        self.client.control.ResetDevice(control_pb2.ResetDeviceRequest(device="host"), timeout=60)
        self.client.control.Resume(control_pb2.ResumeRequest(device="host"), timeout=60)
        waiting.result()
        self.refused(Code.FAILED_PRECONDITION, "drain", self.client.control.ResetDevice, control_pb2.ResetDeviceRequest(device="host"))
        self.refused(Code.INVALID_ARGUMENT, "device or a model", self.client.control.Drain, control_pb2.DrainRequest())


class Eviction(DaemonTest):
    models = {f"m{i}": onnx_writer.scale(float(i + 1)) for i in range(10)}
    sections = "[devices.host]\nslots = 4\n"

    def assert_serves(self):
        pass

    def test_ten_models_share_four_slots_and_events_tell_it(self):
        events = self.client.control.WatchEvents(control_pb2.WatchEventsRequest(kinds=[control_pb2.EVENT_EVICTED, control_pb2.EVENT_BROUGHT_IN]))
        self.assertEqual(next(events).kind, control_pb2.EVENT_CAUGHT_UP)
        for _ in range(2):
            for i in range(10):
                request = echo_request((1.0, 2.0), model_name=f"m{i}")
                answer = self.client.inference.ModelInfer(request, timeout=60)
                self.assertEqual(answer.raw_output_contents[0], floats(i + 1.0, 2.0 * (i + 1)))
        device = self.client.control.ListDevices(control_pb2.ListDevicesRequest(), timeout=60).devices[0]
        self.assertLessEqual(device.slots_used, 4)
        self.assertGreaterEqual(device.evicted, 6)
        seen = [next(events).kind for _ in range(4)]
        self.assertLessEqual(set(seen), {control_pb2.EVENT_EVICTED, control_pb2.EVENT_BROUGHT_IN})
        events.cancel()


if __name__ == "__main__":
    unittest.main()
