# SPDX-License-Identifier: Apache-2.0
"""Writes small ONNX models with nothing but Python. Field numbers: onnx.proto of the public ONNX specification."""

import struct

FLOAT, INT64, STRING, BOOL = 1, 7, 8, 9


def varint(value):
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(field, value):
    return varint(field << 3) + varint(value)


def data(field, value):
    value = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(value)) + value


def value_info(name, kind, dims):
    shape = b"".join(data(1, data(2, d) if isinstance(d, str) else number(1, d)) for d in dims)
    return data(1, name) + data(2, data(1, number(1, kind) + data(2, shape)))


def tensor(name, dims, floats):
    return b"".join(number(1, d) for d in dims) + number(2, FLOAT) + data(8, name) + data(9, struct.pack(f"<{len(floats)}f", *floats))


def node(op, inputs, outputs, attributes=b""):
    return b"".join(data(1, i) for i in inputs) + b"".join(data(2, o) for o in outputs) + data(3, outputs[0]) + data(4, op) + attributes


def graph(name, nodes, inputs, outputs, initializers=()):
    return (b"".join(data(1, n) for n in nodes) + data(2, name) + b"".join(data(5, t) for t in initializers) +
            b"".join(data(11, i) for i in inputs) + b"".join(data(12, o) for o in outputs))


def model(g, opset=17):
    return number(1, 8) + data(8, number(2, opset)) + data(7, g)


def echo(kind=FLOAT):
    """Y = X, any length."""
    return model(graph("echo", [node("Identity", ["X"], ["Y"])], [value_info("X", kind, ["n"])], [value_info("Y", kind, ["n"])]))


def scale(factor):
    """Y = X · factor."""
    return model(graph("scale", [node("Mul", ["X", "F"], ["Y"])], [value_info("X", FLOAT, ["n"])], [value_info("Y", FLOAT, ["n"])],
                       [tensor("F", [1], [factor])]))


def weights(megabytes):
    """Y = X + W, with that many megabytes of W; for devices that can't hold two of them."""
    count = megabytes << 18
    return model(graph("weights", [node("Add", ["X", "W"], ["Y"])], [value_info("X", FLOAT, [1])], [value_info("Y", FLOAT, [count])],
                       [tensor("W", [count], [float(i % 7) for i in range(count)])]))


def spin(size=16):
    """Multiplies matrices N times: work in proportion to its input, for tests of queues, cancellation and draining."""
    body = graph("body", [node("Identity", ["go"], ["go_on"]), node("MatMul", ["v", "W"], ["v_next"])],
                 [value_info("i", INT64, []), value_info("go", BOOL, []), value_info("v", FLOAT, [size, size])],
                 [value_info("go_on", BOOL, []), value_info("v_next", FLOAT, [size, size])])
    identity = [1.0 if i % (size + 1) == 0 else 0.0 for i in range(size * size)]
    loop = data(5, data(1, "body") + data(6, body) + number(20, 5))
    return model(graph("spin", [node("Squeeze", ["N"], ["M"]), node("Loop", ["M", "", "W"], ["V"], loop),
                                node("ReduceSum", ["V"], ["Y"], data(5, data(1, "keepdims") + number(3, 1) + number(20, 2)))],
                       [value_info("N", INT64, [1])], [value_info("Y", FLOAT, [1, 1])], [tensor("W", [size, size], identity)]))
