# SPDX-License-Identifier: Apache-2.0
"""Writes the smallest ONNX model there is (y = x, FP32 of one dimension of any size), encoded by hand: protobuf's wire format, ONNX's
public field numbers (onnx.proto3)."""

from pathlib import Path


def _number(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _int(field, value):
    return _number(field << 3) + _number(value)


def _bytes(field, value):
    data = value.encode() if isinstance(value, str) else value
    return _number(field << 3 | 2) + _number(len(data)) + data


def identity_model():
    dimension = _bytes(1, _bytes(2, "n"))
    tensor_type = _int(1, 1) + _bytes(2, dimension)  # elem_type FLOAT, shape

    def value(name):
        return _bytes(1, name) + _bytes(2, _bytes(1, tensor_type))

    node = _bytes(1, "x") + _bytes(2, "y") + _bytes(3, "identity") + _bytes(4, "Identity")
    graph = _bytes(1, node) + _bytes(2, "bench") + _bytes(11, value("x")) + _bytes(12, value("y"))
    return _int(1, 8) + _bytes(7, graph) + _bytes(8, _bytes(1, "") + _int(2, 13))  # ir_version, graph, opset_import


def lay(repository, name="bench_identity"):
    directory = Path(repository) / name
    (directory / "1").mkdir(parents=True, exist_ok=True)
    (directory / "1/model.onnx").write_bytes(identity_model())
    (directory / "config.pbtxt").write_text(
        f'name: "{name}"\nplatform: "onnxruntime_onnx"\nmax_batch_size: 0\n'
        'input { name: "x" data_type: TYPE_FP32 dims: [ -1 ] }\noutput { name: "y" data_type: TYPE_FP32 dims: [ -1 ] }\n'
        'instance_group { count: 2 kind: KIND_CPU }\n')
