// SPDX-License-Identifier: Apache-2.0
#include "devices/rknpu/driver/drm_port.h"

#include <fcntl.h>
#include <linux/sync_file.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xf86drm.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <format>
#include <fstream>
#include <iterator>

#include "kernel/include/uapi/drm/rknpu_drm.h"

namespace npud::rknpu {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

// The core count of a driver that can't be asked: by the SoC's name in the device tree.
uint32_t cores_by_compatible(const std::string& node) {
  const auto path = "/sys/class/drm/" + std::filesystem::path(node).filename().string() + "/device/of_node/compatible";
  std::ifstream file(path, std::ios::binary);
  const std::string compatible((std::istreambuf_iterator<char>(file)), {});
  if (compatible.contains("rk3588")) return 3;
  if (compatible.contains("rk3583")) return 2;
  return 1;
}

Error verdict(int error, const char* what) {
  switch (error) {
    case ETIMEDOUT:
      return {ErrorCode::deadline_exceeded,
              std::format("{} ran longer than its time-out; the driver stopped the core", what),
              {},
              {},
              {}};
    case EFAULT:
      return {ErrorCode::data_loss,
              std::format("{} touched memory that isn't mapped; the driver failed it", what),
              {},
              {},
              {}};
    case ENODEV:
      return {ErrorCode::unavailable,
              std::format("{}: the NPU is dead or gone; `dmesg` says why, a reload of the driver may revive it", what),
              {},
              {},
              {}};
    case ECANCELED:
      return {ErrorCode::cancelled, std::format("{} was cancelled in the driver", what), {}, {}, {}};
    case EAGAIN:
    case EBUSY:
      return {ErrorCode::unavailable,
              std::format("{}: the driver's queue is full", what),
              std::chrono::milliseconds(20),
              {},
              {}};
    default:
      return {ErrorCode::internal, std::format("{}: {}", what, std::strerror(error)), {}, {}, {}};
  }
}

class DrmPort final : public Port {
 public:
  DrmPort(int fd, PortInfo info) : fd_(fd), info_(std::move(info)) {}
  ~DrmPort() override { close(fd_); }

  const PortInfo& info() const override { return info_; }

  Result<Memory> allocate(uint32_t space, uint64_t bytes, Caching caching) override {
    rknpu_mem_create create{};
    create.flags = RKNPU_MEM_NON_CONTIGUOUS | RKNPU_MEM_KERNEL_MAPPING | RKNPU_MEM_ZEROING |
                   RKNPU_MEM_IOMMU_LIMIT_IOVA_ALIGNMENT |
                   (caching == Caching::cached ? RKNPU_MEM_CACHEABLE : RKNPU_MEM_WRITE_COMBINE);
    create.size = (bytes + 4095) / 4096 * 4096;
    create.iommu_domain_id = static_cast<__s32>(space);
    if (drmIoctl(fd_, DRM_IOCTL_RKNPU_MEM_CREATE, &create) != 0) {
      const int error = errno;
      if (error == ENOSPC || error == ENOMEM || error == EDQUOT) {
        Error full{ErrorCode::resource_exhausted,
                   std::format("address space {} of the NPU has no room for {} bytes", space, create.size),
                   {},
                   create.size,
                   free_bytes(space)};
        return std::unexpected(std::move(full));
      }
      return std::unexpected(verdict(error, "allocating NPU memory"));
    }
    Memory memory{.handle = create.handle,
                  .cookie = create.obj_addr,
                  .space = space,
                  .address = static_cast<uint32_t>(create.dma_addr),
                  .caching = caching};
    auto give_back = [&](Error error) {
      release(memory);
      return std::unexpected(std::move(error));
    };
    if (create.dma_addr + create.size > uint64_t{1} << 32)
      return give_back({ErrorCode::internal, "the driver gave an NPU address beyond 4 GiB", {}, {}, {}});
    rknpu_mem_map map{};
    map.handle = create.handle;
    if (drmIoctl(fd_, DRM_IOCTL_RKNPU_MEM_MAP, &map) != 0) return give_back(verdict(errno, "mapping NPU memory"));
    void* address = mmap(nullptr, create.size, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, static_cast<off_t>(map.offset));
    if (address == MAP_FAILED) return give_back(verdict(errno, "mapping NPU memory"));
    memory.bytes = {static_cast<std::byte*>(address), create.size};
    return memory;
  }

  void release(Memory& memory) noexcept override {
    if (!memory.bytes.empty()) munmap(memory.bytes.data(), memory.bytes.size());
    if (memory.handle != 0) {
      rknpu_mem_destroy destroy{};
      destroy.handle = memory.handle;
      destroy.obj_addr = memory.cookie;
      drmIoctl(fd_, DRM_IOCTL_RKNPU_MEM_DESTROY, &destroy);
    }
    memory = {};
  }

  Result<> to_device(const Memory& memory, uint64_t offset, uint64_t size) override {
    return sync(memory, offset, size, RKNPU_MEM_SYNC_TO_DEVICE);
  }
  Result<> from_device(const Memory& memory, uint64_t offset, uint64_t size) override {
    return sync(memory, offset, size, RKNPU_MEM_SYNC_FROM_DEVICE);
  }

  void write_tasks(const Memory& memory, std::span<const TaskEntry> tasks) override {
    static_assert(sizeof(rknpu_task) == kTaskEntryBytes);
    auto* out = reinterpret_cast<rknpu_task*>(memory.bytes.data());
    for (std::size_t i = 0; i < tasks.size() && (i + 1) * kTaskEntryBytes <= memory.bytes.size(); ++i) {
      rknpu_task task{};
      task.op_idx = static_cast<uint32_t>(i);
      task.enable_mask = 0xd;
      task.int_mask = tasks[i].interrupts;
      task.int_clear = 0x1ffff;
      task.regcfg_amount = tasks[i].amount_words;
      task.regcmd_addr = tasks[i].words_address;
      std::memcpy(&out[i], &task, sizeof task);
    }
  }

  Result<> run(const Submission& s) override {
    rknpu_submit submit{};
    submit.flags = RKNPU_JOB_PC | RKNPU_JOB_PINGPONG;
    if (info_.fences) submit.flags |= RKNPU_JOB_NONBLOCK | RKNPU_JOB_FENCE_OUT;
    submit.timeout = static_cast<__u32>(s.timeout.count());
    submit.priority = s.priority;
    submit.task_obj_addr = s.tasks->cookie;
    submit.iommu_domain_id = s.space;
    submit.fence_fd = -1;
    submit.core_mask = s.cores.size() == 1   ? RKNPU_CORE_AUTO_MASK
                       : s.cores.size() == 2 ? RKNPU_CORE01_MASK
                                             : RKNPU_CORE012_MASK;
    submit.task_start = s.cores[0].first;
    for (std::size_t core = 0; core < s.cores.size(); ++core) {
      submit.task_number += s.cores[core].count;
      auto& slot = submit.subcore_task[s.cores.size() == 3 ? core + 2 : core];
      slot.task_start = s.cores[core].first;
      slot.task_number = s.cores[core].count;
    }
    if (drmIoctl(fd_, DRM_IOCTL_RKNPU_SUBMIT, &submit) != 0) return std::unexpected(verdict(errno, "an NPU job"));
    if (!info_.fences) return {};
    const Descriptor fence(submit.fence_fd);
    return wait(fence.get(), s);
  }

 private:
  // The fence comes from the driver on every path; the margin is for what may queue before this job, and a fence that
  // never comes is an error, not an end.
  Result<> wait(int fence, const Submission& s) {
    pollfd poll_fd{.fd = fence, .events = POLLIN, .revents = 0};
    const auto patience = s.timeout * 4 + std::chrono::seconds(30);
    int ready;
    do {
      ready = poll(&poll_fd, 1, static_cast<int>(patience.count()));
    } while (ready < 0 && errno == EINTR);
    if (ready <= 0) {
      return fail(ErrorCode::deadline_exceeded, std::format("the NPU's driver gave no verdict on a job within {} ms",
                                                            std::chrono::milliseconds(patience).count()));
    }
    sync_file_info file{};
    if (ioctl(fence, SYNC_IOC_FILE_INFO, &file) != 0) return std::unexpected(verdict(errno, "reading a fence"));
    if (file.status < 0) return std::unexpected(verdict(-file.status, "an NPU job"));
    if (file.status != 1) return fail(ErrorCode::internal, "the NPU's fence woke npud without a verdict");
    return {};
  }

  Result<> sync(const Memory& memory, uint64_t offset, uint64_t size, uint32_t direction) {
    if (memory.caching != Caching::cached || size == 0) return {};
    rknpu_mem_sync sync{};
    sync.flags = direction;
    sync.obj_addr = memory.cookie;
    sync.offset = offset;
    sync.size = size;
    if (drmIoctl(fd_, DRM_IOCTL_RKNPU_MEM_SYNC, &sync) != 0)
      return std::unexpected(verdict(errno, "handing memory to or from the NPU"));
    return {};
  }

  std::optional<uint64_t> free_bytes(uint32_t space) const {
    rknpu_npud_query query{};
    query.what = RKNPU_NPUD_QUERY_SPACE;
    query.index = space;
    if (!info_.isolated || drmIoctl(fd_, DRM_IOCTL_RKNPU_NPUD_QUERY, &query) != 0) return std::nullopt;
    return query.space.iova_bytes - query.space.used_bytes;
  }

  int fd_;
  PortInfo info_;
};

// A sync_file is only tried with a job; without npud's driver the kernel may have been built without fences, and then
// the flag gives -EINVAL. What is safe to ask for is a job that is refused for its missing task array either way, so a
// vendor driver is met without.
PortInfo probe(int fd, const std::string& node, int major, int minor, int patch) {
  PortInfo info;
  info.node = node;
  rknpu_npud_query query{};
  query.what = RKNPU_NPUD_QUERY_DEVICE;
  info.isolated = drmIoctl(fd, DRM_IOCTL_RKNPU_NPUD_QUERY, &query) == 0;
  info.driver = std::format("{} {}.{}.{}", info.isolated ? "npud_rknpu" : "rknpu", major, minor, patch);
  info.fences = info.isolated;
  info.cores = info.isolated ? query.device.cores : cores_by_compatible(node);
  info.spaces = info.isolated ? RKNPU_MAX_DOMAINS : 1;
  info.space_bytes = uint64_t{4} << 30;
  if (info.isolated) {
    rknpu_npud_query space{};
    space.what = RKNPU_NPUD_QUERY_SPACE;
    if (drmIoctl(fd, DRM_IOCTL_RKNPU_NPUD_QUERY, &space) == 0) info.space_bytes = space.space.iova_bytes;
  }
  return info;
}

}  // namespace

std::vector<std::string> find_nodes() {
  std::vector<std::string> nodes;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/dri", ignored)) {
    const std::string path = entry.path();
    if (!entry.path().filename().string().starts_with("renderD")) continue;
    const Descriptor fd(open(path.c_str(), O_RDWR | O_CLOEXEC));
    if (fd.get() < 0) continue;
    if (drmVersionPtr version = drmGetVersion(fd.get())) {
      if (std::string_view(version->name, static_cast<std::size_t>(version->name_len)) == RKNPU_DRM_NAME)
        nodes.push_back(path);
      drmFreeVersion(version);
    }
  }
  std::ranges::sort(nodes);
  return nodes;
}

Result<std::unique_ptr<Port>> open_drm_port(const std::string& node) {
  Descriptor fd(open(node.c_str(), O_RDWR | O_CLOEXEC));
  if (fd.get() < 0) {
    const int error = errno;
    if (error == EACCES || error == EPERM) {
      return fail(ErrorCode::permission_denied,
                  std::format("{}: not allowed; run npud as a user of the node's group", node));
    }
    return fail(ErrorCode::not_found, std::format("{}: {}; is npud_rknpu loaded?", node, std::strerror(error)));
  }
  drmVersionPtr version = drmGetVersion(fd.get());
  if (version == nullptr) return fail(ErrorCode::failed_precondition, std::format("{} is no DRM device", node));
  const std::string name(version->name, static_cast<std::size_t>(version->name_len));
  const int major = version->version_major, minor = version->version_minor, patch = version->version_patchlevel;
  drmFreeVersion(version);
  if (name != RKNPU_DRM_NAME)
    return fail(ErrorCode::failed_precondition, std::format("{} belongs to the driver '{}', not rknpu", node, name));
  if (major != 0 || minor < 9 || (minor == 9 && patch < 7)) {
    return fail(
        ErrorCode::failed_precondition,
        std::format("{}: interface {}.{}.{} is too old; npud needs 0.9.7 or npud_rknpu", node, major, minor, patch));
  }
  PortInfo info = probe(fd.get(), node, major, minor, patch);
  return std::make_unique<DrmPort>(fd.release(), std::move(info));
}

}  // namespace npud::rknpu
