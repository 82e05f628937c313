# SPDX-License-Identifier: Apache-2.0
"""Tests of what tests/vm/run is made of, without booting anything."""
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import textwrap
import unittest

TOP = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(TOP / "tests/vm"))

from npudvm import elf, guest, initramfs, machine, modules  # noqa: E402
from npudvm.tap import KernelTap, Tap  # noqa: E402


def count(text, parser=Tap):
    tap = parser()
    for line in textwrap.dedent(text).strip("\n").splitlines():
        tap.line(line)
    tap.end()
    return tap


class TapTest(unittest.TestCase):
    def check(self, text, passed, failed, skipped=0, problems=(), parser=Tap):
        tap = count(text, parser)
        self.assertEqual((passed, failed, skipped), (tap.passed, tap.failed, tap.skipped))
        self.assertEqual(len(problems), len(tap.problems), tap.problems)
        for expected, found in zip(problems, tap.problems):
            self.assertIn(expected, found)

    def test_counts_flat_results(self):
        self.check("1..3\nok 1 - a\nnot ok 2 - b\nok 3 - c # SKIP no device", 1, 1, 1, ["not ok: b"])

    def test_takes_a_plan_at_the_end(self):
        self.check("ok 1\nok 2\n1..2", 2, 0)

    def test_reports_a_plan_that_was_not_fulfilled(self):
        self.check("1..3\nok 1\nok 2", 2, 0, 0, ["3 tests were planned and 2 reported"])
        self.check("1..1\nok 1\nok 2", 2, 0, 0, ["1 tests were planned and 2 reported"])

    def test_todo_failures_do_not_fail(self):
        self.check("1..1\nnot ok 1 - later # TODO fix", 1, 0)

    def test_bailing_out_is_a_problem(self):
        self.check("1..2\nok 1\nBail out! no memory", 1, 0, 0, ["bailed out: no memory", "planned"])

    def test_counts_only_leaves(self):
        self.check("""
            1..2
                1..2
                ok 1 a
                ok 2 b
            ok 1 suite
                1..2
                ok 1 c
                not ok 2 d
            not ok 2 other
        """, 3, 1, 0, ["not ok: d"])

    def test_counts_a_suite_that_fails_without_a_failed_case(self):
        self.check("""
            1..1
                1..1
                ok 1 a
            not ok 1 suite
        """, 1, 1, 0, ["not ok: suite"])

    def test_a_missing_case_in_a_suite_is_a_problem(self):
        self.check("1..1\n    1..2\n    ok 1 a\nok 1 suite", 1, 0, 0, ["2 tests were planned and 1 reported"])

    def test_several_programs_one_after_the_other(self):
        self.check("1..1\nok 1\n1..2\nok 1\nok 2", 3, 0)

    def test_ordinary_words_are_no_results(self):
        tap = count("okay then\nnothing is ok 1\n# ok 1\nnotok 1")
        self.assertEqual((False, 0), (tap.seen, tap.passed))

    def test_finds_ktap_in_a_kernel_log(self):
        self.check("""
            [    0.100000] ok 1 this is not KTAP
            [    1.000000] KTAP version 1
            [    1.000001] 1..1
            [    1.000002]     KTAP version 1
            [    1.000003]     # Subtest: rknpu_vm
            [    1.000004]     1..2
            [    1.000005]     ok 1 window_is_bounded
            [    1.100000] some driver says something
            [    1.000006]     not ok 2 spaces_are_apart
            [    1.000007] not ok 1 rknpu_vm
            [    2.000000] ok 2 this is not KTAP either
        """, 1, 1, 0, ["spaces_are_apart"], KernelTap)

    def test_finds_kernel_lines_with_their_thread(self):
        self.check("[    1.0][    T1] KTAP version 1\n[    1.0][    T1] 1..1\n[    1.0][    T1] ok 1 a", 1, 0, 0, [], KernelTap)


class KernelTest(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)
        tree = pathlib.Path(self.directory.name) / "lib/modules/9.9"
        (tree / "kernel").mkdir(parents=True)
        (tree / "modules.dep").write_text("kernel/drm.ko: kernel/base.ko\nkernel/base.ko:\nkernel/gem-shmem.ko.xz: kernel/drm.ko kernel/base.ko\n")
        (tree / "modules.builtin").write_text("kernel/sync_file.ko\n")
        for name in ("drm", "base"):
            (tree / f"kernel/{name}.ko").write_bytes(b"\x7fELF" + name.encode())
        self.kernel = modules.Kernel(self.directory.name)

    def test_orders_modules_after_what_they_need(self):
        self.assertEqual(["base", "drm", "gem_shmem"], self.kernel.closure(["gem-shmem", "drm"]))

    def test_leaves_built_in_modules_out(self):
        self.assertEqual([], self.kernel.closure(["sync_file"]))

    def test_says_which_module_is_missing(self):
        with self.assertRaisesRegex(modules.ModuleError, "9.9 has no module nonsense"):
            self.kernel.closure(["nonsense"])

    def own(self, name, depends="", vermagic="9.9 SMP"):
        path = pathlib.Path(self.directory.name) / f"{name}.ko"
        path.write_bytes(b"\x7fELF\0license=GPL\0depends=" + depends.encode() + b"\0vermagic=" + vermagic.encode() + b"\0")
        return str(path)

    def test_reads_a_modules_needs_and_parameters(self):
        module = modules.OwnModule(self.own("my-driver", "drm,sync_file") + ":a=1 b=2,3", True)
        self.assertEqual(("my_driver", ["drm", "sync_file"], "a=1 b=2,3"), (module.name, module.depends, module.parameters))
        module.check("9.9")

    def test_refuses_a_module_of_another_kernel_and_what_is_none(self):
        with self.assertRaisesRegex(modules.ModuleError, "built for 9.8"):
            modules.OwnModule(self.own("old", "", "9.8 SMP"), True).check("9.9")
        path = pathlib.Path(self.directory.name) / "text.ko"
        path.write_text("text")
        with self.assertRaisesRegex(modules.ModuleError, "no kernel module"):
            modules.OwnModule(str(path), True)
        with self.assertRaisesRegex(modules.ModuleError, "No such file"):
            modules.OwnModule("/nonexistent.ko", True)

    def test_the_guest_loads_dependencies_first_and_each_once(self):
        made = guest.Guest("arm64", self.kernel, "/bin/true", "token")
        made.own_modules([modules.OwnModule(self.own("helper", "drm"), True), modules.OwnModule(self.own("user", "helper,drm"), True),
                          modules.OwnModule(self.own("spare", "base"), False)])
        self.assertEqual(["base", "drm", "helper", "user"], [line.split("/")[-1].removesuffix(".ko") for line in made._loads])
        with self.assertRaisesRegex(modules.ModuleError, "give that one first"):
            guest.Guest("arm64", self.kernel, "/bin/true", "token").own_modules(
                [modules.OwnModule(self.own("user", "helper"), True), modules.OwnModule(self.own("helper"), True)])


class InitramfsTest(unittest.TestCase):
    def test_cpio_reads_what_was_written(self):
        with tempfile.TemporaryDirectory() as directory:
            directory = pathlib.Path(directory)
            source = directory / "source"
            (source / "sub").mkdir(parents=True)
            (source / "sub/program").write_text("#!/bin/sh\n")
            (source / "sub/program").chmod(0o755)
            (source / "link").symlink_to("sub/program")
            with initramfs.Archive(directory / "archive") as archive:
                archive.data("/init", "x" * 5, 0o755)
                archive.node("/dev/console", 5, 1)
                archive.tree("/npud/source", source)
            listing = subprocess.run(["cpio", "-tv", "--quiet", "-F", directory / "archive"], check=True, stdout=subprocess.PIPE, text=True,
                                     env={**os.environ, "LC_ALL": "C"}).stdout
            lines = {line.split()[-1] if "->" not in line else line.split()[-3]: line for line in listing.splitlines()}
            self.assertEqual({"init", "dev", "dev/console", "npud", "npud/source", "npud/source/link", "npud/source/sub",
                              "npud/source/sub/program"}, set(lines))
            self.assertTrue(lines["init"].startswith("-rwxr-xr-x"))
            self.assertTrue(lines["dev/console"].startswith("crw"))
            self.assertTrue(lines["npud/source/sub/program"].startswith("-rwxr-xr-x"))
            self.assertIn("-> sub/program", lines["npud/source/link"])


class ElfTest(unittest.TestCase):
    def test_finds_all_that_a_program_needs(self):
        needed = elf.needed_libraries([sys.executable], "/", "amd64")
        names = {pathlib.Path(path).name for path in needed}
        self.assertIn("libc.so.6", names)
        self.assertIn("ld-linux-x86-64.so.2", names)
        self.assertTrue(all(path.is_file() for path in needed.values()))

    def test_says_what_a_root_lacks(self):
        with tempfile.TemporaryDirectory() as root, self.assertRaisesRegex(elf.LibraryError, "has no "):
            elf.needed_libraries([sys.executable], root, "amd64")


class WatchTest(unittest.TestCase):
    """A stand-in for QEMU writes to the guest's two serial ports; what is tested is the watching."""

    def watch(self, script, timeout_s=60, tolerate=None):
        directory = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.lines = []
        run = machine.Run(directory, "TOKEN", self.lines.append, None, tolerate)
        program = textwrap.dedent("""
            import socket, sys, time
            console, output = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
            console.connect(sys.argv[1] + "/console"); output.connect(sys.argv[1] + "/output")
        """) + textwrap.dedent(script)
        run.watch([sys.executable, "-c", program, directory], timeout_s, None)
        return run

    def test_returns_the_status_and_shows_the_output(self):
        run = self.watch("output.send(b'1..1\\r\\nok 1\\r\\nTOK'); time.sleep(0.1); output.send(b'EN 3\\r\\n')")
        self.assertEqual((3, ["1..1", "ok 1"], 1, []), (run.status, self.lines, run.tap.passed, run.problems))

    def test_a_guest_that_dies_has_no_status(self):
        run = self.watch("output.send(b'ok 1'); sys.exit(0)")
        self.assertIsNone(run.status)
        self.assertIn("died", run.problems[0])

    def test_what_qemu_says_is_passed_on(self):
        run = self.watch("sys.exit('no such machine')")
        self.assertIn("status 1: no such machine", run.problems[0])

    def test_time_runs_out(self):
        run = self.watch("time.sleep(600)", timeout_s=1)
        self.assertTrue(run.timed_out)
        self.assertIn("did not finish within 1 seconds", run.problems[0])

    def test_complaints_count_after_the_start_unless_tolerated(self):
        script = r"console.send(b'[ 1.0] WARNING: early\n[ 2.0] npud-vm: start\n[ 3.0] WARNING: CPU: 0\n[ 4.0] BUG: meant\n'); output.send(b'TOKEN 0\n')"
        self.assertEqual(["WARNING: CPU: 0", "BUG: meant"], self.watch(script).complaints)
        self.assertEqual(["WARNING: CPU: 0"], self.watch(script, tolerate="meant").complaints)

    def test_nothing_keeps_running(self):
        ours, theirs = socket.socketpair()
        with ours, theirs:
            os.set_inheritable(theirs.fileno(), True)
            process = machine._start([sys.executable, "-c", "import os, time; os.fork(); time.sleep(600)"], subprocess.DEVNULL,
                                     pass_fds=[theirs.fileno()])
            theirs.close()
            machine._stop(process)
            ours.settimeout(30)
            self.assertEqual(b"", ours.recv(1), "a process still holds the descriptor")


if __name__ == "__main__":
    unittest.main()
