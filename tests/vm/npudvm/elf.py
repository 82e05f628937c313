# SPDX-License-Identifier: Apache-2.0
"""Finds the shared libraries that a program needs, in a root of its architecture."""
import pathlib
import re
import subprocess

TRIPLETS = {"arm64": "aarch64-linux-gnu", "amd64": "x86_64-linux-gnu"}


class LibraryError(Exception):
    pass


def is_elf(path):
    try:
        with open(path, "rb") as file:
            return file.read(4) == b"\x7fELF"
    except OSError:
        return False


def _dynamic(path):
    """(interpreter or None, names of needed libraries)"""
    text = subprocess.run(["readelf", "-Wld", path], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                          env={"LC_ALL": "C", "PATH": "/usr/bin:/bin"}).stdout
    interpreter = re.search(r"program interpreter: ([^\]]+)\]", text)
    return interpreter[1] if interpreter else None, re.findall(r"\(NEEDED\).*\[([^\]]+)\]", text)


def needed_libraries(programs, root, arch):
    """{path in the guest: file here} of all that the programs (files here) need, the loader too. Libraries among the programs
    themselves are not looked for in the root."""
    triplet = TRIPLETS[arch]
    directories = [f"usr/lib/{triplet}", f"lib/{triplet}", "usr/lib", "lib", "usr/lib64", "lib64"]
    root = pathlib.Path(root)
    found, own = {}, {pathlib.Path(p).name for p in programs}
    queue = [pathlib.Path(p) for p in programs]
    while queue:
        interpreter, names = _dynamic(queue.pop())
        if interpreter and interpreter not in found:
            name = pathlib.Path(interpreter).name
            found[interpreter] = _find(root, [interpreter.lstrip("/")] + [f"{d}/{name}" for d in directories], name)
        for name in names:
            guest = f"/usr/lib/{triplet}/{name}"
            if guest in found or name in own:
                continue
            found[guest] = _find(root, [f"{d}/{name}" for d in directories], name)
            queue.append(found[guest])
    return found


def _find(root, candidates, name):
    for candidate in candidates:
        path = root / candidate
        if path.exists():
            return path.resolve()
    raise LibraryError(f"the root {root} has no {name}")
