# SPDX-License-Identifier: Apache-2.0
"""npud from Python: numpy arrays in, numpy arrays out. Needs the messages that protoc generates (BUILD/python in PYTHONPATH)."""

import os
import time
from collections import Counter

import grpc
import numpy as np
from inference import grpc_service_pb2 as pb
from inference import grpc_service_pb2_grpc as rpc
from npud.v1 import control_pb2, control_pb2_grpc

DEFAULT_ADDRESS = "unix:/run/npud/npud.sock"

TYPES = {
    "BOOL": np.bool_, "UINT8": np.uint8, "UINT16": np.uint16, "UINT32": np.uint32, "UINT64": np.uint64, "INT8": np.int8,
    "INT16": np.int16, "INT32": np.int32, "INT64": np.int64, "FP16": np.float16, "FP32": np.float32, "FP64": np.float64,
}
NAMES = {np.dtype(kind): name for name, kind in TYPES.items()}


class Client:
    """One connection. `latencies_us` and `paths` remember what each request took and where it ran."""

    def __init__(self, address=None, max_message_bytes=256 << 20):
        self.address = address or os.environ.get("NPUD_ADDRESS") or DEFAULT_ADDRESS
        options = [("grpc.max_receive_message_length", max_message_bytes), ("grpc.max_send_message_length", max_message_bytes)]
        self.channel = grpc.insecure_channel(self.address, options=options)
        self.inference = rpc.GRPCInferenceServiceStub(self.channel)
        self.control = control_pb2_grpc.ControlStub(self.channel)
        self.latencies_us = []
        self.paths = Counter()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.channel.close()

    def wait_until_ready(self, timeout_s=60, models=()):
        """Waits until the server and these models are ready; TimeoutError with the last word that was heard."""
        deadline, last = time.monotonic() + timeout_s, "no answer"
        while time.monotonic() < deadline:
            try:
                if not self.inference.ServerReady(pb.ServerReadyRequest(), timeout=5).ready:
                    last = "the server says it isn't ready"
                else:
                    waiting = [m for m in models if not self.inference.ModelReady(pb.ModelReadyRequest(name=m), timeout=5).ready]
                    if not waiting:
                        return
                    last = f"not ready: {', '.join(waiting)}"
            except grpc.RpcError as error:
                last = f"{error.code().name}: {error.details()}"
            time.sleep(0.05)
        raise TimeoutError(f"npud at {self.address} wasn't ready within {timeout_s} s: {last}")

    def infer(self, model, inputs, *, timeout_s=120.0, parameters=None):
        """inputs: name -> array. Returns name -> array; raises grpc.RpcError with npud's own sentence in details()."""
        request = pb.ModelInferRequest(model_name=model)
        for name, value in (parameters or {}).items():
            field = {bool: "bool_param", int: "int64_param", str: "string_param", float: "double_param"}[type(value)]
            setattr(request.parameters[name], field, value)
        for name, array in inputs.items():
            # ascontiguousarray() would give a scalar a dimension.
            dense = np.asarray(array, order="C")
            request.inputs.add(name=name, datatype=NAMES[dense.dtype], shape=dense.shape)
            request.raw_input_contents.append(dense.tobytes())
        begin = time.perf_counter()
        response, call = self.inference.ModelInfer.with_call(request, timeout=timeout_s)
        self.latencies_us.append((time.perf_counter() - begin) * 1e6)
        self.paths.update(value for key, value in call.trailing_metadata() if key == "npud-path")
        outputs = {}
        for output, raw in zip(response.outputs, response.raw_output_contents, strict=True):
            outputs[output.name] = np.frombuffer(raw, dtype=TYPES[output.datatype]).reshape(output.shape)
        return outputs


def network(client, model, input_name="x"):
    """A function from array to array, for a model with one input and one output."""

    def run(x):
        (result,) = client.infer(model, {input_name: x}).values()
        return result

    return run


def silero(client, model="silero_vad"):
    """What vad.speech_probabilities() calls for each chunk."""

    def run(chunk, state, rate_hz):
        out = client.infer(model, {"input": chunk, "state": state, "sr": rate_hz})
        return out["output"][0, 0], out["stateN"]

    return run


__all__ = ["Client", "control_pb2", "network", "pb", "silero"]
