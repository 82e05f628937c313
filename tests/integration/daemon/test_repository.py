# SPDX-License-Identifier: Apache-2.0
"""Loading, replacing and hostile files, while requests go on."""

import threading
import unittest

from harness import *  # noqa: F403

Code = grpc.StatusCode


class Loading(DaemonTest):
    mode = "explicit"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.load("echo")

    @classmethod
    def load(cls, model, **parameters):
        request = pb.RepositoryModelLoadRequest(model_name=model)
        for name, value in parameters.items():
            request.parameters[name].string_param = value
        cls.client.inference.RepositoryModelLoad(request, timeout=120)

    def index(self):
        models = self.client.inference.RepositoryIndex(pb.RepositoryIndexRequest(), timeout=60).models
        return {(m.name, m.version): (m.state, m.reason) for m in models}

    def load_refused(self, model, text=""):
        with self.assertRaises(grpc.RpcError) as caught:
            self.load(model)
        self.assertIn(text, caught.exception.details())
        self.assert_serves()
        return caught.exception

    def test_load_unload_and_load_again(self):
        self.load("text")
        self.assertEqual(self.index()["text", "1"][0], "READY")
        self.client.inference.RepositoryModelUnload(pb.RepositoryModelUnloadRequest(model_name="text"), timeout=60)
        self.assertFalse(self.client.inference.ModelReady(pb.ModelReadyRequest(name="text"), timeout=60).ready)
        self.load("text")
        self.refused(Code.NOT_FOUND, "", self.client.inference.RepositoryModelUnload, pb.RepositoryModelUnloadRequest(model_name="nope"))
        self.refused(Code.NOT_FOUND, "repository_name", self.client.inference.RepositoryIndex, pb.RepositoryIndexRequest(repository_name="x"))

    def test_names_that_leave_the_repository(self):
        for name in ("../etc", "..", "/etc", "a/b", ".hidden", "", "a\0b", "nope", "x" * 5000):
            self.load_refused(name)

    def test_corrupt_and_truncated_models(self):
        good = onnx_writer.echo()
        for i, content in enumerate((b"", b"not onnx at all", good[:len(good) // 2], good[:-1], b"\xff" * 1000, good + b"\xff\xff\xff")):
            name = f"broken{i}"
            self.repository.put(name, content)
            self.load_refused(name)
            states = {state for (model, _), (state, reason) in self.index().items() if model == name and reason}
            self.assertEqual(states, {"UNAVAILABLE"}, name)

    def test_hostile_configurations(self):
        for i, config in enumerate(("name: \"other\"", "nonsense { }", "max_batch_size: -5", "input [ { name: \"X\" data_type: TYPE_INT8 dims: [ -1 ] } ]",
                                    "input [ { name: \"X\" data_type: TYPE_FP32 dims: [ -2 ] } ]", "a" * 100000, "{" * 10000, "max_batch_size: 99999999999",
                                    "instance_group [ { count: 2000000000 } ]", "parameters { key: \"npud.device\" value { string_value: \"rknpu\" } }",
                                    "parameters { key: \"npud.nonsense\" value { string_value: \"1\" } }", "sequence_batching { }",
                                    "default_model_filename: \"../../echo/1/model.onnx\"")):
            name = f"hostile{i}"
            self.repository.put(name, onnx_writer.echo(), config=config)
            self.load_refused(name)

    def test_a_version_that_fails_leaves_the_old_one_serving(self):
        self.repository.put("keep", onnx_writer.scale(2.0))
        self.load("keep")
        self.repository.put("keep", b"broken", version=2)
        self.load_refused("keep")
        answer = self.client.inference.ModelInfer(echo_request((1.0,), model_name="keep"), timeout=60)
        self.assertEqual((answer.model_version, answer.raw_output_contents[0]), ("1", floats(2.0)))
        self.assertTrue(self.index()["keep", "2"][1])

    def test_a_reload_under_load_drops_no_request(self):
        self.repository.put("live", onnx_writer.scale(1.0))
        self.load("live")
        stop, failures, answers = threading.Event(), [], []

        def ask():
            while not stop.is_set():
                try:
                    answers.append(self.client.inference.ModelInfer(echo_request((1.0,), model_name="live"), timeout=120).raw_output_contents[0])
                except grpc.RpcError as error:
                    failures.append(f"{error.code()}: {error.details()}")

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for factor in range(2, 8):
            self.repository.put("live", onnx_writer.scale(float(factor)), version=factor)
            self.load("live")
        stop.set()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])
        self.assertLessEqual(set(answers), {floats(float(f)) for f in range(1, 8)})
        self.assertEqual(self.client.inference.ModelInfer(echo_request((1.0,), model_name="live"), timeout=60).raw_output_contents[0], floats(7.0))


class Polling(DaemonTest):
    mode = "poll"

    def test_the_directory_is_followed(self):
        self.repository.put("new", onnx_writer.scale(3.0))
        deadline = time.monotonic() + 60
        while not self.client.inference.ModelReady(pb.ModelReadyRequest(name="new"), timeout=60).ready:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)
        answer = self.client.inference.ModelInfer(echo_request((1.0,), model_name="new"), timeout=60)
        self.assertEqual(answer.raw_output_contents[0], floats(3.0))
        shutil.rmtree(self.repository.path / "new")
        while self.client.inference.ModelReady(pb.ModelReadyRequest(name="new"), timeout=60).ready:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)
        self.assert_serves()
        with self.assertRaises(grpc.RpcError):
            self.client.inference.RepositoryModelLoad(pb.RepositoryModelLoadRequest(model_name="echo"), timeout=60)


if __name__ == "__main__":
    unittest.main()
