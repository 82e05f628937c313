# SPDX-License-Identifier: Apache-2.0
"""What the guest boots into: an initramfs whose /init loads the modules, runs the command and says how it ended."""
import pathlib
import shlex
import subprocess

from . import elf, initramfs, modules

HOME = "/npud"  # where given files go, and where the command runs

# The test's output has a serial port of its own, so that kernel messages can't break its lines.
INIT = """#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys /dev /tmp /run /root /etc /var /sbin /usr/bin /usr/sbin
/bin/busybox --install -s /bin
export PATH={home}:/bin:/sbin:/usr/bin:/usr/sbin HOME=/root TERM=dumb
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts 2>/dev/null
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /tmp
mount -t tmpfs tmpfs /run
mount -t debugfs debugfs /sys/kernel/debug 2>/dev/null
mount -t tracefs tracefs /sys/kernel/tracing 2>/dev/null
hostname npud-vm
ip link set lo up 2>/dev/null
exec </dev/null
{{
  stty -F {port} raw -echo 2>/dev/null
  /bin/sh {home}/.start
  echo "{token} $?"
}} >{port} 2>&1
# This waits until the port has sent everything.
stty -F {port} raw -echo 2>/dev/null
sync
poweroff -f
"""

START = """{environment}
echo "npud-vm: start" >/dev/kmsg
cd {home}
load() {{
  insmod "$@" && return
  echo "# npud-vm: insmod $* failed; the kernel says:"
  dmesg | tail -n 5 | sed 's/^/#   /'
  exit 125
}}
{loads}
{command}
"""


class Guest:
    """Collects what the guest needs; write() makes the initramfs."""

    def __init__(self, arch, kernel, busybox, token):
        self.arch, self.kernel, self.token = arch, kernel, token
        self.port = {"arm64": "/dev/ttyAMA1", "amd64": "/dev/ttyS1"}[arch]
        self._busybox = busybox
        self._loads, self._modules, self._files = [], {}, []  # shell lines; name → (bytes, dependencies); (guest path, file)

    def kernel_modules(self, names, load=True):
        """Modules of the kernel's own tree, with their dependencies."""
        for name in self.kernel.closure(names):
            self._modules.setdefault(name, (self.kernel.read(name), self.kernel.depends(name)))
            if load:
                self._load(name, "")

    def own_modules(self, own):
        """OwnModules in their order; they may depend on each other and on the kernel's."""
        names = {module.name for module in own}
        for module in own:
            module.check(self.kernel.release)
            self.kernel_modules([d for d in module.depends if d not in names], load=module.load)
            for needed in module.depends:
                if module.load and needed in names and not self._loaded(needed):
                    raise modules.ModuleError(f"{module.path} needs {needed}: give that one first")
            self._modules[module.name] = (module.data, module.depends)
            if module.load:
                self._load(module.name, module.parameters)

    def add(self, argument):
        """A file or directory, HOST[:GUEST]."""
        host, _, guest = argument.partition(":")
        path = pathlib.Path(host)
        if not path.exists():
            raise OSError(f"there is no file {host}")
        if guest and not guest.startswith("/"):
            guest = f"{HOME}/{guest}"
        self._files.append((guest or f"{HOME}/{path.resolve().name if path.name in ('', '.', '..') else path.name}", path))

    def add_libraries(self, root):
        """What the programs among the files need from a root of the guest's architecture."""
        programs = []
        for _, path in self._files:
            candidates = path.rglob("*") if path.is_dir() else [path]
            programs += [c for c in candidates if c.is_file() and not c.is_symlink() and elf.is_elf(c)]
        self._files += sorted(elf.needed_libraries(programs, root, self.arch).items())
        self._files = [(guest, pathlib.Path(path)) for guest, path in self._files]

    def write(self, path, command, environment):
        release = self.kernel.release
        with initramfs.Archive(path) as archive:
            archive.node("/dev/console", 5, 1)
            archive.data("/init", INIT.format(home=HOME, port=self.port, token=self.token), 0o755)
            archive.file("/bin/busybox", self._busybox)
            archive.data("/etc/passwd", "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n")
            archive.data("/etc/group", "root:x:0:\nrender:x:104:\nnogroup:x:65534:\n")
            exports = "\n".join(f"export {shlex.quote(entry)}" for entry in environment)
            words = command[0] if len(command) == 1 else " ".join(map(shlex.quote, command))
            archive.data(f"{HOME}/.start", START.format(environment=exports, home=HOME, loads="\n".join(self._loads), command=words))
            tree = f"/lib/modules/{release}"
            archive.directory(tree)
            for name, (data, _) in self._modules.items():
                archive.data(f"{tree}/{name}.ko", data)
            archive.data(f"{tree}/modules.dep", "".join(f"{name}.ko: {' '.join(f'{n}.ko' for n in self._closure(name))}\n"
                                                        for name in self._modules))
            for guest, source in self._files:
                archive.tree(guest, source)
        return pathlib.Path(path).stat().st_size

    def _closure(self, name):
        """For busybox's modprobe: all that the module needs, those needed first last."""
        ordered = []

        def visit(n):
            for needed in self._modules[n][1]:
                if needed in self._modules and needed not in ordered:
                    visit(needed)
                    ordered.append(needed)

        visit(name)
        return reversed(ordered)

    def _loaded(self, name):
        return any(f"/{name}.ko" in line for line in self._loads)

    def _load(self, name, parameters):
        if not self._loaded(name):
            self._loads.append(f"load /lib/modules/{self.kernel.release}/{name}.ko {parameters}".rstrip())


def run_tool(top, tool, *arguments):
    """Runs one of the tools and returns the directory that it prints."""
    result = subprocess.run([top / tool, *arguments], stdout=subprocess.PIPE, text=True, check=False)
    if result.returncode != 0:
        raise OSError(f"{tool} {' '.join(arguments)} failed")
    return pathlib.Path(result.stdout.strip().splitlines()[-1])
