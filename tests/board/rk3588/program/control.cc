// SPDX-License-Identifier: Apache-2.0
#include "control.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>
#include <format>
#include <nlohmann/json.hpp>

#include "kernel/include/vboard/vboard_regs.h"
#include "tests/board/rk3588/counters.h"

namespace npud::rk3588 {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxLineBytes = 1 << 16;

constexpr const char* kCounterNames[] = {"jobs",          "tasks",     "words",      "macs",        "read_bytes",
                                         "written_bytes", "walks",     "tlb_hits",   "page_faults", "bad_commands",
                                         "cycles",        "reg_reads", "reg_writes", "irqs"};
static_assert(std::size(kCounterNames) == Counters::kNumber);

Json failure(std::string text) { return {{"ok", false}, {"error", std::move(text)}}; }

// An unsigned 32-bit member, or the default if it is absent. Throws what nlohmann throws for another type.
uint32_t number(const Json& request, const char* key, uint32_t otherwise) {
  const auto found = request.find(key);
  return found == request.end() ? otherwise : found->get<uint32_t>();
}

Json arm(Board& board, const Json& request) {
  const std::string kind = request.at("kind").get<std::string>();
  const auto known = fault_by_name(kind);
  if (!known) return failure(std::format("there is no fault \"{}\"", kind));
  Fault fault{.kind = *known,
              .core = VBOARD_FAULT_ANY_CORE,
              .arg = number(request, "arg", 0),
              .left = number(request, "count", 1)};
  if (const auto core = request.find("core"); core != request.end() && *core != "any")
    fault.core = core->get<uint32_t>();
  if (const auto armed = board.arm(fault); !armed) return failure(armed.error());
  return {{"ok", true}};
}

Json counters(const Board& board) {
  Json cores = Json::array();
  for (unsigned c = 0; c < VBOARD_CORES; ++c) {
    Json core;
    for (unsigned i = 0; i < Counters::kNumber; ++i) core[kCounterNames[i]] = board.counter(c, i);
    cores.push_back(std::move(core));
  }
  return {{"ok", true}, {"cores", std::move(cores)}};
}

Json status(Board& board) {
  Json states = Json::array();
  for (unsigned c = 0; c < VBOARD_CORES; ++c) states.push_back(board.core_state(c));
  auto control = [&](uint32_t offset) { return board.read32(VBOARD_BAR_CONTROL, offset); };
  return {{"ok", true},
          {"cores", std::move(states)},
          {"irq_status", control(VBOARD_IRQ_STATUS)},
          {"driver_faults", control(VBOARD_DRIVER_FAULTS)},
          {"driver_fault_last", control(VBOARD_DRIVER_FAULT_LAST)},
          {"faults_armed", control(VBOARD_FAULT_ARM)},
          {"faults_fired", control(VBOARD_FAULT_FIRED)}};
}

Json commands(const Board& board, const Json& request) {
  const uint32_t core = number(request, "core", 0);
  if (core >= VBOARD_CORES) return failure(std::format("there is no core {}", core));
  Json words = Json::array();
  for (const uint64_t word : board.last_commands(core)) words.push_back(std::format("{:#018x}", word));
  return {{"ok", true}, {"words", std::move(words)}};
}

Json carry_out(Board& board, const Json& request) {
  const std::string command = request.at("command").get<std::string>();
  if (command == "fault") return arm(board, request);
  if (command == "clear-faults") {
    board.disarm_all();
    return {{"ok", true}};
  }
  if (command == "counters") return counters(board);
  if (command == "status") return status(board);
  if (command == "commands") return commands(board, request);
  if (command == "reset") {
    board.reset();
    return {{"ok", true}};
  }
  if (command == "read") {
    return {{"ok", true}, {"value", board.read32(number(request, "bar", 0), request.at("offset").get<uint32_t>())}};
  }
  if (command == "write") {
    board.write32(number(request, "bar", 0), request.at("offset").get<uint32_t>(), request.at("value").get<uint32_t>());
    return {{"ok", true}};
  }
  return failure(std::format(
      "there is no command \"{}\": fault, clear-faults, counters, status, commands, reset, read and write exist",
      command));
}

}  // namespace

std::string answer(Board* board, std::string_view request) {
  const Json parsed = Json::parse(request, nullptr, false);
  if (!parsed.is_object()) return failure("a request is one JSON object on a line").dump();
  if (board == nullptr) return failure("the board is not attached to a server").dump();
  try {
    return carry_out(*board, parsed).dump();
  } catch (const Json::exception& e) {
    return failure(std::format("the request can't be understood: {}", e.what())).dump();
  }
}

std::expected<std::unique_ptr<ControlSocket>, std::string> ControlSocket::listen(
    const std::string& path, std::function<std::shared_ptr<Board>()> board) {
  sockaddr_un address{.sun_family = AF_UNIX};
  if (path.size() >= sizeof(address.sun_path))
    return std::unexpected(std::format("the path {} is too long for a socket", path));
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  vfio_user::UniqueFd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  vfio_user::UniqueFd stop(::eventfd(0, EFD_CLOEXEC));
  if (!listener || !stop)
    return std::unexpected(std::format("no socket for the control connection: {}", std::strerror(errno)));
  // A socket left by a board that is gone is in the way; one that answers is somebody else's.
  if (::connect(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) {
    return std::unexpected(std::format("{} is already served by another program", path));
  }
  if (errno == ECONNREFUSED) ::unlink(path.c_str());
  listener.reset(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!listener || ::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 ||
      ::listen(listener.get(), 8) != 0) {
    return std::unexpected(std::format("can't listen on {}: {}", path, std::strerror(errno)));
  }
  return std::unique_ptr<ControlSocket>(
      new ControlSocket(path, std::move(listener), std::move(stop), std::move(board)));
}

ControlSocket::ControlSocket(std::string path, vfio_user::UniqueFd listener, vfio_user::UniqueFd stop,
                             std::function<std::shared_ptr<Board>()> board)
    : path_(std::move(path)), listener_(std::move(listener)), stop_event_(std::move(stop)), board_(std::move(board)) {
  thread_ = std::jthread([this](const std::stop_token& token) { serve(token); });
}

ControlSocket::~ControlSocket() {
  thread_.request_stop();
  ::eventfd_write(stop_event_.get(), 1);
  thread_.join();
  ::unlink(path_.c_str());
}

bool ControlSocket::wait_readable(int fd) const {
  pollfd fds[] = {{.fd = fd, .events = POLLIN, .revents = 0},
                  {.fd = stop_event_.get(), .events = POLLIN, .revents = 0}};
  while (::poll(fds, 2, -1) < 0 && errno == EINTR) {
  }
  return fds[1].revents == 0;
}

void ControlSocket::serve(const std::stop_token& stop) {
  while (!stop.stop_requested() && wait_readable(listener_.get())) {
    const vfio_user::UniqueFd connection(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (connection) talk(connection.get(), stop);
  }
}

void ControlSocket::talk(int connection, const std::stop_token& stop) {
  std::string buffer;
  char piece[4096];
  while (!stop.stop_requested() && wait_readable(connection)) {
    const ssize_t got = ::recv(connection, piece, sizeof(piece), 0);
    if (got <= 0) return;
    buffer.append(piece, static_cast<size_t>(got));
    for (size_t end; (end = buffer.find('\n')) != std::string::npos; buffer.erase(0, end + 1)) {
      const std::string reply = answer(board_().get(), std::string_view(buffer).substr(0, end)) + "\n";
      for (size_t sent = 0; sent < reply.size();) {
        const ssize_t n = ::send(connection, reply.data() + sent, reply.size() - sent, MSG_NOSIGNAL);
        if (n <= 0) return;
        sent += static_cast<size_t>(n);
      }
    }
    if (buffer.size() > kMaxLineBytes) return;  // not a client that speaks this protocol
  }
}

}  // namespace npud::rk3588
