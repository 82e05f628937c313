#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes seeds for the vfio-user fuzzer: what a well-behaved client says. Usage: seeds.py DIRECTORY

An input is a row of records: u8 kind and number of descriptors, u16 command, u32 flags, u16 payload length, payload.
"""
import pathlib
import struct
import sys

MEMORY, EVENT = 0x00, 0x80


def record(command, payload=b"", fds=0, flags=0):
    return struct.pack("<BHIH", fds, command, flags, len(payload)) + payload


def version():
    return record(1, struct.pack("<HH", 0, 0) + b'{"capabilities":{"max_msg_fds":8}}\0')


def dma_map(iova, size, offset=0, fds=MEMORY | 1):
    return record(2, struct.pack("<IIQQQ", 32, 3, offset, iova, size), fds)


def dma_unmap(iova, size, flags=0):
    return record(3, struct.pack("<IIQQ", 24, flags, iova, size))


def set_irqs(flags, index, start, count, fds=0, data=b""):
    return record(8, struct.pack("<IIIII", 20, flags, index, start, count) + data, fds)


def read(region, offset, count):
    return record(9, struct.pack("<QII", offset, region, count))


def write(region, offset, data, flags=0):
    return record(10, struct.pack("<QII", offset, region, len(data)) + data, flags=flags)


def multi(*writes):
    return record(15, struct.pack("<Q", len(writes)) +
                  b"".join(struct.pack("<QII8s", offset, region, len(data), data) for region, offset, data in writes))


info = record(4, bytes(16)) + b"".join(record(5, struct.pack("<IIIIQQ", 32, 0, i, 0, 0, 0)) for i in range(9)) + \
    b"".join(record(7, struct.pack("<IIII", 16, 0, i, 0)) for i in range(5))
master = write(7, 4, b"\x06\x00")

seeds = {
    "probe": version() + info + read(7, 0, 64) + write(7, 0x10, b"\xff" * 4) + read(7, 0x10, 4),
    "dma": version() + master + dma_map(0, 0x10000) + write(0, 0, b"\x00\x10\x00\x00") + dma_map(0x10000, 0x1000, 0x8000) +
           write(0, 4, b"\xf8\xff\x00\x00") + dma_unmap(0, 0x10000) + dma_unmap(0, 0, 2),
    "intx": version() + master + set_irqs(0x24, 0, 0, 1, EVENT | 1) + write(0, 8, b"\1\0\0\0") + set_irqs(0x11, 0, 0, 1) +
            set_irqs(0x0a, 0, 0, 1, 0, b"\1") + set_irqs(0x14, 0, 0, 1, EVENT | 1) + set_irqs(0x21, 0, 0, 0),
    "msix": version() + master + set_irqs(0x24, 2, 0, 3, EVENT | 3) + write(7, 0x42, b"\x00\x80") + write(0, 12, b"\1\0\0\0") +
            write(4, 0x1c, b"\1\0\0\0") + read(4, 0x800, 8) + write(7, 0x42, b"\x00\xc0") + set_irqs(0x09, 2, 1, 2) + record(13),
    "multi": version() + multi((0, 0x10, b"\1\2\3\4"), (0, 0x14, b"12345678"), (4, 0, b"\0")) + write(0, 0x20, b"abcd", 0x10),
    "no_version": record(4, bytes(16)),
    "unknown": version() + record(6, bytes(16)) + record(11, bytes(16)) + record(14, bytes(8)) + record(99),
}

directory = pathlib.Path(sys.argv[1])
directory.mkdir(parents=True, exist_ok=True)
for name, data in seeds.items():
    (directory / name).write_bytes(data)
(directory / "made").write_bytes(b"")
