# SPDX-License-Identifier: Apache-2.0
"""Writes an initramfs: a cpio archive in the "newc" format (Documentation/driver-api/early-userspace/buffer-format.rst). It is
not compressed: under emulation, unpacking would take longer than reading."""
import os
import pathlib
import shutil
import stat


class Archive:
    """Entries are added by their path in the guest; parent directories come by themselves. Close it to have a whole archive."""

    def __init__(self, path):
        self._file = open(path, "wb")
        self._inode = 0
        self._known = set()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def directory(self, path):
        path = path.strip("/")
        if not path or path in self._known:
            return
        self.directory(str(pathlib.PurePosixPath(path).parent).strip("."))
        self._known.add(path)
        self._entry(path, stat.S_IFDIR | 0o755)

    def data(self, path, data, mode=0o644):
        if isinstance(data, str):
            data = data.encode()
        self._parents(path)
        self._entry(path, stat.S_IFREG | mode, len(data))
        self._file.write(data)
        self._pad()

    def file(self, path, source):
        """Copies a file, keeping whether it is executable."""
        status = os.stat(source)
        self._parents(path)
        self._entry(path, stat.S_IFREG | (0o755 if status.st_mode & 0o111 else 0o644), status.st_size)
        with open(source, "rb") as file:
            start = self._file.tell()
            shutil.copyfileobj(file, self._file, 1 << 20)
            if self._file.tell() - start != status.st_size:
                raise OSError(f"{source} changed while it was copied")
        self._pad()

    def link(self, path, target):
        self._parents(path)
        self._entry(path, stat.S_IFLNK | 0o777, len(target.encode()))
        self._file.write(target.encode())
        self._pad()

    def node(self, path, major, minor):
        """A character device."""
        self._parents(path)
        self._entry(path, stat.S_IFCHR | 0o600, 0, major, minor)

    def tree(self, path, source):
        """A file, or a directory with all that is in it. Links are kept as links."""
        source = pathlib.Path(source)
        if not source.is_dir():
            self.file(path, source)
            return
        self.directory(path)
        for entry in sorted(source.iterdir()):
            target = f"{path}/{entry.name}"
            if entry.is_symlink():
                self.link(target, os.readlink(entry))
            else:
                self.tree(target, entry)

    def close(self):
        if self._file:
            self._entry("TRAILER!!!", 0)
            self._file.close()
            self._file = None

    def _parents(self, path):
        self.directory(str(pathlib.PurePosixPath(path).parent))

    def _entry(self, path, mode, size=0, major=0, minor=0):
        name = path.strip("/").encode() + b"\0"
        self._inode += 1
        links = 2 if stat.S_ISDIR(mode) else 1
        fields = [self._inode, mode, 0, 0, links, 0, size, 0, 0, major, minor, len(name), 0]
        self._file.write(b"070701" + b"".join(b"%08X" % field for field in fields) + name)
        self._pad()

    def _pad(self):
        self._file.write(b"\0" * (-self._file.tell() % 4))
