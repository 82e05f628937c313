// SPDX-License-Identifier: Apache-2.0
#include "service/sockets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <set>

namespace npud {
namespace {

using ::testing::HasSubstr;

// The port that a listener has, and the text of the address that it is bound to.
std::pair<in_port_t, std::string> bound(const Listener& listener) {
  sockaddr_storage at{};
  socklen_t size = sizeof at;
  EXPECT_EQ(::getsockname(listener.fd(), reinterpret_cast<sockaddr*>(&at), &size), 0);
  const auto* v4 = reinterpret_cast<const sockaddr_in*>(&at);
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&at);
  if (at.ss_family == AF_INET) {
    return {ntohs(v4->sin_port), {reinterpret_cast<const char*>(&v4->sin_addr), sizeof v4->sin_addr}};
  }
  return {ntohs(v6->sin6_port), {reinterpret_cast<const char*>(&v6->sin6_addr), sizeof v6->sin6_addr}};
}

bool connects(const sockaddr* address, socklen_t size) {
  const UniqueFd fd(::socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  return fd && ::connect(fd.get(), address, size) == 0;
}

bool connects_v4(in_port_t port) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return connects(reinterpret_cast<const sockaddr*>(&to), sizeof to);
}

bool connects_v6(in_port_t port) {
  sockaddr_in6 to{};
  to.sin6_family = AF_INET6;
  to.sin6_port = htons(port);
  to.sin6_addr = in6addr_loopback;
  return connects(reinterpret_cast<const sockaddr*>(&to), sizeof to);
}

bool machine_has_ipv6() {
  const UniqueFd fd(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in6 at{};
  at.sin6_family = AF_INET6;
  at.sin6_addr = in6addr_loopback;
  return fd && ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0;
}

TEST(ListenTcp, TakesEveryAddressOfANameOnOnePort) {
  for (const char* name : {"localhost:0", ":0"}) {
    auto listeners = listen_tcp(name);
    ASSERT_TRUE(listeners) << listeners.error().message;
    std::set<in_port_t> ports;
    std::set<std::string> addresses;
    for (const Listener& listener : *listeners) {
      EXPECT_EQ(listener.kind(), ListenerKind::tcp_tls);
      const auto [port, address] = bound(listener);
      ports.insert(port);
      EXPECT_TRUE(addresses.insert(address).second) << name << ": one address twice";
    }
    ASSERT_EQ(ports.size(), 1u) << name;
    EXPECT_TRUE(connects_v4(*ports.begin())) << name;
    if (machine_has_ipv6() && std::string_view(name) == ":0") {
      EXPECT_TRUE(connects_v6(*ports.begin()));
    }
  }
}

TEST(ListenTcp, OneAddressIsOneListener) {
  auto listeners = listen_tcp("127.0.0.1:0");
  ASSERT_TRUE(listeners) << listeners.error().message;
  ASSERT_EQ(listeners->size(), 1u);
  const in_port_t port = bound(listeners->front()).first;
  EXPECT_EQ(listeners->front().address(), "tcp:127.0.0.1:" + std::to_string(port));
  EXPECT_FALSE(connects_v6(port));
}

TEST(ListenTcp, APortThatIsTakenIsAnError) {
  auto first = listen_tcp("127.0.0.1:0");
  ASSERT_TRUE(first) << first.error().message;
  const std::string port = std::to_string(bound(first->front()).first);
  for (const std::string& address : {"127.0.0.1:" + port, ":" + port}) {
    auto second = listen_tcp(address);
    ASSERT_FALSE(second) << "only a part of " << address << " is listened to, and nobody is told";
    EXPECT_THAT(second.error().message, HasSubstr(address));
  }
}

TEST(ListenTcp, WhatIsNoAddressIsSaid) {
  for (const char* address : {"", "localhost", "localhost:", "no.such.host.invalid:1", "127.0.0.1:port"}) {
    auto listeners = listen_tcp(address);
    ASSERT_FALSE(listeners) << address;
    EXPECT_EQ(listeners.error().code, ErrorCode::invalid_argument);
    EXPECT_THAT(listeners.error().message, HasSubstr(std::string("'") + address + "'"));
  }
}

}  // namespace
}  // namespace npud
