// SPDX-License-Identifier: Apache-2.0
#include "irqs.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <format>
#include <string_view>

#include "protocol.h"

namespace npud::vfio_user {
namespace {

constexpr size_t kEntryBytes = 16;
constexpr size_t kVectorControl = 12;

// Whether a descriptor is an eventfd: a write to anything else the client may send could block, or do harm.
bool is_eventfd(int fd) {
  std::array<char, 64> target{};
  const ssize_t n = ::readlink(std::format("/proc/self/fd/{}", fd).c_str(), target.data(), target.size() - 1);
  return n > 0 && std::string_view(target.data(), n).starts_with("anon_inode:[eventfd");
}

std::unexpected<Refusal> refuse(int error, std::string reason) {
  return std::unexpected(Refusal{error, "SET_IRQS: " + reason});
}

bool wanted(const SetIrqsRequest& request, uint32_t i) {
  return (request.flags & kSetIrqsDataMask) != kSetIrqsDataBool || request.bools[i] != std::byte{0};
}

}  // namespace

Irqs::Irqs(bool has_intx, uint16_t msix_vectors)
    : has_intx_(has_intx), vectors_(msix_vectors), table_(kEntryBytes * msix_vectors) {
  reset();
}

uint32_t Irqs::count(uint32_t index) const {
  if (index == kIrqIntx) return has_intx_ ? 1 : 0;
  return index == kIrqMsix ? static_cast<uint32_t>(vectors_.size()) : 0;
}

uint32_t Irqs::flags(uint32_t index) const {
  if (count(index) == 0) return 0;
  return index == kIrqIntx ? kIrqEventfd | kIrqMaskable | kIrqAutomasked : kIrqEventfd | kIrqMaskable | kIrqNoResize;
}

std::expected<void, Refusal> Irqs::set(const SetIrqsRequest& request, std::vector<UniqueFd> fds) {
  const uint32_t data = request.flags & kSetIrqsDataMask;
  const uint32_t action = request.flags & kSetIrqsActionMask;
  const uint32_t available = count(request.index);
  if (request.flags & ~(kSetIrqsDataMask | kSetIrqsActionMask))
    return refuse(EINVAL, std::format("unknown flags {:#x}", request.flags));
  if (action != kSetIrqsMask && action != kSetIrqsUnmask && action != kSetIrqsTrigger)
    return refuse(EINVAL, "not exactly one action");
  if (data != kSetIrqsDataNone && data != kSetIrqsDataBool && data != kSetIrqsDataEventfd)
    return refuse(EINVAL, "not one kind of data");
  if (available == 0) return refuse(EINVAL, std::format("interrupt index {} has no interrupts", request.index));
  if (request.start > available || request.count > available - request.start) {
    return refuse(EINVAL, std::format("interrupts {} to {} of {}", request.start,
                                      uint64_t{request.start} + request.count, available));
  }
  for (const UniqueFd& fd : fds) {
    if (!is_eventfd(fd.get())) return refuse(EINVAL, "a descriptor is no eventfd");
  }
  const std::lock_guard guard(lock_);
  return request.index == kIrqIntx ? set_intx_action(request, std::move(fds))
                                   : set_msix_action(request, std::move(fds));
}

std::expected<void, Refusal> Irqs::set_intx_action(const SetIrqsRequest& request, std::vector<UniqueFd> fds) {
  const uint32_t action = request.flags & kSetIrqsActionMask;
  if ((request.flags & kSetIrqsDataMask) == kSetIrqsDataEventfd) {
    UniqueFd fd = fds.empty() ? UniqueFd() : std::move(fds[0]);
    if (action == kSetIrqsMask) return refuse(EINVAL, "INTx can't be masked through an eventfd");
    if (action == kSetIrqsUnmask) {
      resume_ = std::move(fd);
      return {};
    }
    intx_trigger_ = std::move(fd);
    intx_masked_ = false;
    offer_intx();
    return {};
  }
  if (request.count == 0) {
    if (action != kSetIrqsTrigger) return {};
    intx_trigger_.reset();
    resume_.reset();
    intx_masked_ = false;
    return {};
  }
  if (!wanted(request, 0)) return {};
  if (action == kSetIrqsTrigger) {
    signal(intx_trigger_);
  } else {
    intx_masked_ = action == kSetIrqsMask;
    offer_intx();
  }
  return {};
}

std::expected<void, Refusal> Irqs::set_msix_action(const SetIrqsRequest& request, std::vector<UniqueFd> fds) {
  const uint32_t action = request.flags & kSetIrqsActionMask;
  const bool eventfds = (request.flags & kSetIrqsDataMask) == kSetIrqsDataEventfd;
  if (eventfds && action != kSetIrqsTrigger) return refuse(EINVAL, "MSI-X can't be masked through eventfds");
  if (request.count == 0 && action == kSetIrqsTrigger && !eventfds) {
    for (Vector& vector : vectors_) {
      vector.trigger.reset();
      vector.client_masked = false;
    }
    return {};
  }
  for (uint32_t i = 0; i < request.count; i++) {
    const uint32_t number = request.start + i;
    Vector& vector = vectors_[number];
    if (eventfds) {
      vector.trigger = fds.empty() ? UniqueFd() : std::move(fds[i]);
    } else if (!wanted(request, i)) {
      continue;
    } else if (action == kSetIrqsTrigger) {
      signal(vector.trigger);
      continue;
    } else {
      vector.client_masked = action == kSetIrqsMask;
    }
    offer_msix(number);
  }
  return {};
}

void Irqs::resume() {
  uint64_t events;
  // The client's descriptor may block if another reader was faster.
  pollfd ready{resume_.get(), POLLIN, 0};
  if (::poll(&ready, 1, 0) != 1 || !(ready.revents & POLLIN) ||
      ::read(resume_.get(), &events, sizeof(events)) != sizeof(events))
    return;
  const std::lock_guard guard(lock_);
  intx_masked_ = false;
  offer_intx();
}

void Irqs::configure(bool intx_disabled, bool msix_enabled, bool msix_function_masked) {
  const std::lock_guard guard(lock_);
  intx_disabled_ = intx_disabled;
  msix_enabled_ = msix_enabled;
  msix_function_masked_ = msix_function_masked;
  offer_intx();
  for (uint32_t i = 0; i < vectors_.size(); i++) {
    if (!msix_enabled) vectors_[i].pending = false;
    offer_msix(i);
  }
}

void Irqs::table_read(uint64_t offset, std::span<std::byte> data) const {
  const std::lock_guard guard(lock_);
  for (size_t i = 0; i < data.size(); i++) {
    data[i] = offset + i < table_.size() ? static_cast<std::byte>(table_[offset + i]) : std::byte{0};
  }
}

void Irqs::table_write(uint64_t offset, std::span<const std::byte> data) {
  const std::lock_guard guard(lock_);
  for (size_t i = 0; i < data.size() && offset + i < table_.size(); i++) {
    const size_t at = offset + i;
    const size_t in_entry = at % kEntryBytes;
    uint8_t value = std::to_integer<uint8_t>(data[i]);
    if (in_entry == kVectorControl) value &= 1;  // the rest of this word is reserved
    if (in_entry > kVectorControl) value = 0;
    if (in_entry == 0) value &= 0xfc;
    table_[at] = value;
    vectors_[at / kEntryBytes].table_written = true;
  }
  if (data.empty()) return;
  for (uint64_t v = offset / kEntryBytes; v <= (offset + data.size() - 1) / kEntryBytes && v < vectors_.size(); v++) {
    offer_msix(static_cast<uint32_t>(v));
  }
}

void Irqs::pba_read(uint64_t offset, std::span<std::byte> data) const {
  const std::lock_guard guard(lock_);
  for (size_t i = 0; i < data.size(); i++) {
    uint8_t byte = 0;
    for (uint64_t bit = 0; bit < 8; bit++) {
      const uint64_t v = 8 * (offset + i) + bit;
      if (v < vectors_.size() && vectors_[v].pending) byte |= static_cast<uint8_t>(1u << bit);
    }
    data[i] = static_cast<std::byte>(byte);
  }
}

void Irqs::reset() {
  const std::lock_guard guard(lock_);
  intx_level_ = false;
  intx_disabled_ = false;
  msix_enabled_ = false;
  msix_function_masked_ = false;
  std::ranges::fill(table_, 0);
  for (size_t i = 0; i < vectors_.size(); i++) {
    table_[i * kEntryBytes + kVectorControl] = 1;
    vectors_[i].table_written = false;
    vectors_[i].pending = false;
  }
}

void Irqs::disconnect() {
  const std::lock_guard guard(lock_);
  intx_trigger_.reset();
  resume_.reset();
  intx_masked_ = false;
  for (Vector& vector : vectors_) {
    vector.trigger.reset();
    vector.client_masked = false;
    vector.pending = false;
  }
}

void Irqs::set_intx(bool level) {
  const std::lock_guard guard(lock_);
  intx_level_ = level;
  offer_intx();
}

bool Irqs::intx_level() const {
  const std::lock_guard guard(lock_);
  return intx_level_;
}

void Irqs::msix(uint32_t vector) {
  const std::lock_guard guard(lock_);
  if (vector >= vectors_.size() || !msix_enabled_) return;
  vectors_[vector].pending = true;
  offer_msix(vector);
}

bool Irqs::msix_enabled() const {
  const std::lock_guard guard(lock_);
  return msix_enabled_;
}

void Irqs::signal(const UniqueFd& eventfd) {
  if (!eventfd) return;
  // A counter that is full (the client never reads) would block; it is signalled already then.
  pollfd ready{eventfd.get(), POLLOUT, 0};
  if (::poll(&ready, 1, 0) != 1 || !(ready.revents & POLLOUT)) return;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = ::write(eventfd.get(), &one, sizeof(one));
}

void Irqs::offer_intx() {
  if (!intx_level_ || intx_masked_ || intx_disabled_ || !intx_trigger_) return;
  intx_masked_ = true;
  signal(intx_trigger_);
}

bool Irqs::masked(uint32_t vector) const {
  const Vector& v = vectors_[vector];
  return v.client_masked || msix_function_masked_ ||
         (v.table_written && (table_[vector * kEntryBytes + kVectorControl] & 1));
}

void Irqs::offer_msix(uint32_t vector) {
  Vector& v = vectors_[vector];
  if (!v.pending || !v.trigger || masked(vector)) return;
  v.pending = false;
  signal(v.trigger);
}

}  // namespace npud::vfio_user
