# SPDX-License-Identifier: Apache-2.0
"""Kernel modules: what depends on what, and their bytes without compression."""
import lzma
import pathlib
import re
import subprocess


class ModuleError(Exception):
    pass


def module_name(path):
    """The kernel's name of a module file: dashes are underscores, no suffix."""
    return re.sub(r"\.ko(\.(xz|zst|gz))?$", "", pathlib.Path(path).name).replace("-", "_")


def module_bytes(path):
    path = pathlib.Path(path)
    data = path.read_bytes()
    if path.suffix == ".xz":
        return lzma.decompress(data)
    if path.suffix == ".zst":
        return subprocess.run(["zstd", "-dcq", path], check=True, stdout=subprocess.PIPE).stdout
    return data


def modinfo(data, key):
    """The values of one key in a module's .modinfo, such as depends or vermagic."""
    return [value.decode(errors="replace") for value in re.findall(rb"\0" + key.encode() + rb"=([^\0]*)\0", data)]


class Kernel:
    """The modules of an unpacked kernel (tools/kernel image)."""

    def __init__(self, directory):
        self.directory = pathlib.Path(directory)
        releases = [path.name for path in (self.directory / "lib/modules").iterdir() if path.is_dir()]
        if len(releases) != 1:
            raise ModuleError(f"{directory} has modules of {len(releases)} kernels, not of one")
        self.release = releases[0]
        self._tree = self.directory / "lib/modules" / self.release
        self._depends = {}
        for line in (self._tree / "modules.dep").read_text().splitlines():
            path, _, depends = line.partition(":")
            self._depends[module_name(path)] = (path, [module_name(d) for d in depends.split()])
        builtin = self._tree / "modules.builtin"
        self._builtin = {module_name(line) for line in builtin.read_text().splitlines()} if builtin.exists() else set()

    def closure(self, names):
        """The names and all that they depend on, in loading order. Built-in ones need no loading."""
        ordered = []

        def visit(name):
            name = name.replace("-", "_")
            if name in ordered or name in self._builtin:
                return
            if name not in self._depends:
                raise ModuleError(f"kernel {self.release} has no module {name}")
            # modules.dep has the whole closure, those needed first come last.
            for needed in reversed(self._depends[name][1]):
                visit(needed)
            ordered.append(name)

        for name in names:
            visit(name)
        return ordered

    def read(self, name):
        return module_bytes(self._tree / self._depends[name][0])

    def depends(self, name):
        return self._depends[name][1]


class OwnModule:
    """A module file of our own, given as FILE[:PARAMETERS]; the parameters are as insmod takes them."""

    def __init__(self, argument, load):
        path, _, self.parameters = argument.partition(":")
        self.path, self.load = pathlib.Path(path), load
        self.name = module_name(path)
        try:
            self.data = module_bytes(path)
        except OSError as error:
            raise ModuleError(f"module {path}: {error.strerror}") from error
        if not self.data.startswith(b"\x7fELF"):
            raise ModuleError(f"{path} is no kernel module")
        depends = modinfo(self.data, "depends")
        self.depends = [module_name(d) for d in depends[0].split(",") if d] if depends else []

    def check(self, release):
        vermagic = modinfo(self.data, "vermagic")
        built_for = vermagic[0].split()[0] if vermagic else "no kernel"
        if built_for != release:
            raise ModuleError(f"{self.path} was built for {built_for}, but the guest runs {release}")
