# SPDX-License-Identifier: Apache-2.0
"""Runs the virtual board and QEMU, and watches them until the guest has finished, died, or run out of time."""
import ctypes
import os
import pathlib
import re
import selectors
import signal
import socket
import subprocess
import time

from .tap import KERNEL_TIME, KernelTap, Tap

# What a kernel says when something is wrong with it, after the test has begun.
COMPLAINT = re.compile(r"WARNING: |BUG: |Oops|Internal error|Kernel panic|Unable to handle kernel|INFO: (task|rcu)|UBSAN|KASAN|KFENCE|"
                       r"kmemleak: \d+ new|possible circular locking|general protection fault|soft lockup|irq \d+: nobody cared")
PANIC = re.compile(r"Kernel panic|end Kernel panic|Oops: |Internal error: Oops")
PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


class MachineError(Exception):
    pass


def die_with_parent(signal_number=signal.SIGKILL):
    """For preexec_fn: nothing that is started here outlives this process, however it ends."""
    _libc.prctl(PR_SET_PDEATHSIG, signal_number)


def _start(words, log, **options):
    return subprocess.Popen([str(w) for w in words], stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                            preexec_fn=die_with_parent, start_new_session=True, **options)


def _stop(process, patience=3):
    """Ends a process group: asked first, then forced."""
    if process is None:
        return
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            pass
        try:
            process.wait(patience)
            break
        except subprocess.TimeoutExpired:
            continue
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


class Board:
    """A board program that serves vfio-user on a socket in `directory`, with its JSON-lines control socket beside it."""

    def __init__(self, program, options, directory, control=None):
        self.socket = directory / "board"
        self.control = pathlib.Path(control) if control else directory / "control"
        self.log = directory / "board.log"
        words = [program, self.socket, "--control", self.control]
        for option in options:
            words += ["--option", option]
        with open(directory / "board.out", "wb") as out:
            self.process = _start(words + ["--log", self.log], out)
        deadline = time.monotonic() + 30
        while not self.socket.exists():
            if self.process.poll() is not None:
                raise MachineError(f"the board ended with status {self.process.returncode} at its start: "
                                   f"{(directory / 'board.out').read_text(errors='replace').strip()}")
            if time.monotonic() > deadline:
                self.stop()
                raise MachineError("the board did not open its socket within 30 seconds")
            time.sleep(0.02)

    def stop(self):
        _stop(self.process)


def qemu_command(arch, kernel, initrd, directory, memory_mib, cpus, accel, board, append, extra):
    memory = f"memory-backend-memfd,id=mem,size={memory_mib}M,share=on"
    words = [{"arm64": "qemu-system-aarch64", "amd64": "qemu-system-x86_64"}[arch], "-nodefaults", "-no-user-config", "-display", "none",
             "-no-reboot", "-accel", accel, "-m", f"{memory_mib}M", "-smp", str(cpus), "-object", memory,
             "-kernel", kernel, "-initrd", initrd,
             "-chardev", f"socket,id=console,path={directory}/console,server=off", "-serial", "chardev:console",
             "-chardev", f"socket,id=output,path={directory}/output,server=off", "-serial", "chardev:output"]
    if arch == "arm64":
        words += ["-machine", "virt,gic-version=3,memory-backend=mem", "-cpu", "host" if accel == "kvm" else "cortex-a76"]
        console = "console=ttyAMA0"
    else:
        words += ["-machine", "q35,memory-backend=mem", "-cpu", "host" if accel == "kvm" else "max", "-vga", "none"]
        # A busy host delivers the timer late; the kernel would take that for a broken IO-APIC.
        console = "console=ttyS0 no_timer_check"
    words += ["-append", f"{console} panic=-1 oops=panic loglevel=7 {append}".rstrip()]
    if board:
        words += ["-device", '{"driver":"vfio-user-pci","addr":"1","socket":{"path":"%s","type":"unix"}}' % board.socket]
    return words + list(extra)


class Run:
    """One boot. watch() returns the guest's exit status, or None if it never said one; `problems` then says why."""

    def __init__(self, directory, token, echo, echo_console, tolerate):
        self.directory, self.token = directory, token
        self.tap, self.kernel_tap = Tap(), KernelTap()
        self.problems, self.complaints = [], []
        self.status = None
        self._echo, self._echo_console = echo, echo_console
        self._tolerate = re.compile(tolerate) if tolerate else None
        self._begun = False
        self._buffers = {"console": b"", "output": b""}
        self.timed_out = False
        self._logs = {name: open(directory / f"{name}.log", "wb") for name in self._buffers}
        self._listeners = {}
        for name in self._buffers:
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(str(directory / name))
            listener.listen(1)
            self._listeners[name] = listener

    def watch(self, words, timeout_s, board):
        deadline = time.monotonic() + timeout_s
        selector = selectors.DefaultSelector()
        for name, listener in self._listeners.items():
            selector.register(listener, selectors.EVENT_READ, ("accept", name))
        with open(self.directory / "qemu.log", "wb") as log:
            qemu = _start(words, log)
        streams = 0
        off_deadline = None
        try:
            while True:
                for key, _ in selector.select(0.2):
                    kind, name = key.data
                    if kind == "accept":
                        stream, _ = key.fileobj.accept()
                        selector.unregister(key.fileobj)
                        key.fileobj.close()
                        selector.register(stream, selectors.EVENT_READ, ("read", name))
                        streams += 1
                        continue
                    data = key.fileobj.recv(65536)
                    if data:
                        self._feed(name, data)
                    else:
                        selector.unregister(key.fileobj)
                        key.fileobj.close()
                        streams -= 1
                now = time.monotonic()
                if qemu.poll() is not None and streams == 0:
                    break
                if board and board.process.poll() is not None and qemu.poll() is None:
                    self.problems.append(f"the board ended with status {board.process.returncode} while the guest was running")
                    break
                if self.status is not None and off_deadline is None:
                    off_deadline = now + 30
                if off_deadline and now > off_deadline:
                    self.problems.append("the guest finished but did not power off within 30 seconds")
                    break
                if now > deadline and self.status is None:
                    self.problems.append(f"the guest did not finish within {timeout_s} seconds")
                    self.timed_out = True
                    break
        finally:
            _stop(qemu)
            for name in self._buffers:
                self._feed(name, b"\n" if self._buffers[name] else b"")
                self._logs[name].close()
            for key in list(selector.get_map().values()):
                key.fileobj.close()
            selector.close()
        self.tap.end()
        self.kernel_tap.end()
        if self.status is None and not self.problems:
            text = (self.directory / "qemu.log").read_text(errors="replace").strip()
            self.problems.append(f"QEMU ended with status {qemu.returncode}: {text}" if text or qemu.returncode
                                 else "the guest died before the command ended")
        return self.status

    def _feed(self, name, data):
        if not data:
            return
        self._logs[name].write(data)
        self._logs[name].flush()
        *lines, self._buffers[name] = (self._buffers[name] + data).split(b"\n")
        for raw in lines:
            line = raw.decode(errors="replace").rstrip("\r")
            if name == "output":
                self._output_line(line)
            else:
                self._console_line(line)

    def _output_line(self, line):
        if line.startswith(self.token):
            try:
                self.status = int(line[len(self.token):])
            except ValueError:
                self.problems.append(f"the guest's last line is garbled: {line}")
            return
        self._echo(line)
        self.tap.line(line)

    def _console_line(self, line):
        if self._echo_console:
            self._echo_console(line)
        if "npud-vm: start" in line:
            self._begun = True
        self.kernel_tap.line(line)
        text = KERNEL_TIME.sub("", line)
        if PANIC.search(text) or (self._begun and COMPLAINT.search(text)):
            if not (self._tolerate and self._tolerate.search(text)):
                self.complaints.append(text)
