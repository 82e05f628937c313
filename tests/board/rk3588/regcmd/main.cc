// SPDX-License-Identifier: Apache-2.0
// npu-regcmd: prints a command buffer of the RK3588 NPU as names and fields, and checks it against the hardware's
// limits.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <expected>
#include <format>
#include <fstream>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "devices/rknpu/hw/disassemble.h"

namespace {

using Words = std::expected<std::vector<uint64_t>, std::string>;

// Hexadecimal words with or without 0x, separated by blanks, commas or newlines; "#" begins a comment.
Words parse_text(const std::string& text) {
  std::vector<uint64_t> words;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    line.resize(std::min(line.size(), line.find('#')));
    for (char& c : line) {
      if (c == ',') c = ' ';
    }
    std::istringstream tokens(line);
    for (std::string token; tokens >> token;) {
      const char* begin = token.c_str() + (token.starts_with("0x") ? 2 : 0);
      const char* end = token.c_str() + token.size();
      uint64_t word = 0;
      if (const auto [stop, error] = std::from_chars(begin, end, word, 16);
          error != std::errc{} || stop != end || begin == end) {
        return std::unexpected(std::format("\"{}\" is not a hexadecimal word of 64 bits", token));
      }
      words.push_back(word);
    }
  }
  return words;
}

Words parse_binary(const std::string& bytes) {
  if (bytes.size() % sizeof(uint64_t) != 0) {
    return std::unexpected(
        std::format("{} bytes are not a number of 64-bit words; is it a text? then add --text", bytes.size()));
  }
  std::vector<uint64_t> words(bytes.size() / sizeof(uint64_t));
  for (size_t i = 0; i < bytes.size(); ++i) {  // little endian, whatever this machine is
    words[i / 8] |= static_cast<uint64_t>(static_cast<uint8_t>(bytes[i])) << (i % 8 * 8);
  }
  return words;
}

Words from_file(const std::string& path, bool text) {
  std::string bytes;
  if (path == "-") {
    bytes.assign(std::istreambuf_iterator<char>(std::cin), {});
  } else {
    std::ifstream file(path, std::ios::binary);
    if (!file) return std::unexpected(std::format("{} can't be opened: {}", path, std::strerror(errno)));
    bytes.assign(std::istreambuf_iterator<char>(file), {});
  }
  return text ? parse_text(bytes) : parse_binary(bytes);
}

// The words of the last task of a core, asked from npud-board-rk3588's control socket.
Words from_board(const std::string& path, unsigned core) {
  sockaddr_un address{.sun_family = AF_UNIX};
  if (path.size() >= sizeof(address.sun_path))
    return std::unexpected(std::format("the path {} is too long for a socket", path));
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0 || ::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    const std::string why = std::strerror(errno);
    if (fd >= 0) ::close(fd);
    return std::unexpected(
        std::format("no board answers at {}: {}; start npud-board-rk3588 with --control", path, why));
  }
  const std::string request = std::format("{{\"command\":\"commands\",\"core\":{}}}\n", core);
  std::string reply;
  if (::send(fd, request.data(), request.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(request.size())) {
    ::shutdown(fd, SHUT_WR);
    char piece[4096];
    for (ssize_t got; (got = ::recv(fd, piece, sizeof(piece), 0)) > 0;) reply.append(piece, static_cast<size_t>(got));
  }
  ::close(fd);
  const auto parsed = nlohmann::json::parse(reply, nullptr, false);
  if (!parsed.is_object() || !parsed.value("ok", false) || !parsed.contains("words")) {
    return std::unexpected(std::format("the board at {} answered: {}", path, reply.empty() ? "nothing" : reply));
  }
  std::string text;
  for (const auto& word : parsed["words"]) text += word.get<std::string>() + "\n";
  return parse_text(text);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Prints a command buffer of the RK3588 NPU as names and fields.", "npu-regcmd");
  std::string file = "-", board;
  unsigned core = 0;
  bool text = false, check = false, brief = false, all = false;
  app.add_option("FILE", file, "the words, 64 bits each, little endian; - is the standard input")
      ->capture_default_str();
  app.add_flag("--text", text, "the words are hexadecimal text");
  app.add_option("--board", board,
                 "ask a running npud-board-rk3588 at this control socket for the words of the last task");
  app.add_option("--core", core, "of which core")->check(CLI::Range(0, 2))->capture_default_str();
  app.add_flag("--check", check, "check against the limits of the hardware; exit status 1 if they aren't kept");
  app.add_flag("--brief", brief, "registers without their fields");
  app.add_flag("--all", all, "fields that are 0, too");
  CLI11_PARSE(app, argc, argv);

  const Words words = board.empty() ? from_file(file, text) : from_board(board, core);
  if (!words) {
    std::fprintf(stderr, "npu-regcmd: %s\n", words.error().c_str());
    return 2;
  }
  const std::string listing = npud::rknpu::disassemble(*words, {.fields = !brief, .zero_fields = all});
  std::fwrite(listing.data(), 1, listing.size(), stdout);
  if (!check) return 0;
  const auto violations = npud::rknpu::check_commands(*words);
  for (const std::string& violation : violations) std::printf("%s\n", violation.c_str());
  std::printf("%zu words, %zu violations\n", words->size(), violations.size());
  return violations.empty() ? 0 : 1;
}
