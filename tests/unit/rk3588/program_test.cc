// SPDX-License-Identifier: Apache-2.0
// The board program's parts: the PCI function on a bus of the test's own, and the control socket's requests.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "fixture.h"
#include "reference.h"
#include "tests/board/rk3588/program/control.h"
#include "tests/board/rk3588/program/pci_board.h"

namespace npud::rk3588::test {
namespace {

using Json = nlohmann::json;

class TestBus : public vfio_user::Bus {
 public:
  explicit TestBus(Memory& memory) : memory_(memory) {}
  bool dma_read(uint64_t iova, std::span<std::byte> to) override { return memory_.read(iova, to); }
  bool dma_write(uint64_t iova, std::span<const std::byte> from) override { return memory_.write(iova, from); }
  vfio_user::DmaWindow dma_window(uint64_t, size_t, vfio_user::DmaAccess) override { return {}; }
  void set_intx(bool level) override { intx = level; }
  void msix(uint32_t vector) override { ++messages[vector]; }
  bool msix_enabled() const override { return messages_enabled; }

  std::atomic<bool> intx = false;
  std::atomic<bool> messages_enabled = false;
  std::array<std::atomic<unsigned>, 3> messages{};

 private:
  Memory& memory_;
};

class PciFunction : public testing::Test {
 protected:
  PciFunction() { device.attach(bus); }
  ~PciFunction() override { device.detach(); }
  uint32_t read(unsigned bar, uint64_t offset) {
    uint32_t value = 0;
    EXPECT_TRUE(device.region_read(bar, offset, std::as_writable_bytes(std::span(&value, 1))));
    return value;
  }
  void write(unsigned bar, uint64_t offset, uint32_t value) {
    EXPECT_TRUE(device.region_write(bar, offset, std::as_bytes(std::span(&value, 1))));
  }
  // Arms a spurious interrupt at a core: a source that rises without a job.
  void raise(unsigned core) {
    write(2, VBOARD_FAULT_KIND, VBOARD_FAULT_IRQ_SPURIOUS);
    write(2, VBOARD_FAULT_CORE, core);
    write(2, VBOARD_FAULT_ARG, 0x100);
    write(2, VBOARD_FAULT_COUNT, 1);
    write(2, VBOARD_FAULT_ARM, 1);
  }
  void acknowledge(unsigned core) { write(0, core * VBOARD_CORE_STRIDE + 0x24, 0x1ffff); }

  TestBoard t;
  TestBus bus{t.memory};
  PciBoard device{Options{}, [](std::string_view) {}};
};

TEST_F(PciFunction, LooksAsTheHeaderSays) {
  const vfio_user::FunctionSpec& spec = device.function();
  EXPECT_EQ(spec.vendor, VBOARD_PCI_VENDOR);
  EXPECT_EQ(spec.device, VBOARD_PCI_DEVICE);
  EXPECT_EQ(spec.class_code, uint32_t{VBOARD_PCI_CLASS});
  EXPECT_EQ(spec.bar_bytes[0], 0x40000u);
  EXPECT_EQ(spec.bar_bytes[2], 0x2000u);
  EXPECT_EQ(spec.bar_bytes[4], 0x1000u);
  EXPECT_EQ(spec.msix_vectors, 3u);
}

TEST_F(PciFunction, AccessesOfAllSizes) {
  EXPECT_EQ(read(2, 0), uint32_t{VBOARD_MAGIC_VALUE});
  uint8_t byte = 0;
  ASSERT_TRUE(device.region_read(2, 1, std::as_writable_bytes(std::span(&byte, 1))));
  EXPECT_EQ(byte, VBOARD_MAGIC_VALUE >> 8 & 0xff);
  uint64_t pair = 0;
  ASSERT_TRUE(device.region_read(2, 0, std::as_writable_bytes(std::span(&pair, 1))));
  EXPECT_EQ(pair, uint64_t{VBOARD_VERSION_VALUE} << 32 | VBOARD_MAGIC_VALUE);
  EXPECT_FALSE(device.region_write(2, 1, std::as_bytes(std::span(&byte, 1))));
  EXPECT_FALSE(device.region_read(1, 0, std::as_writable_bytes(std::span(&byte, 1))));
  EXPECT_FALSE(device.region_write(5, 0, std::as_bytes(std::span(&pair, 1))));
}

TEST_F(PciFunction, IntxIsTheOrOfAllSources) {
  raise(0);
  EXPECT_TRUE(bus.intx);
  raise(2);
  acknowledge(0);
  EXPECT_TRUE(bus.intx);
  acknowledge(2);
  EXPECT_FALSE(bus.intx);
  EXPECT_EQ(bus.messages[0], 0u);
}

TEST_F(PciFunction, EachCoreHasAVector) {
  bus.messages_enabled = true;
  raise(1);
  EXPECT_FALSE(bus.intx);
  EXPECT_EQ(bus.messages[1], 1u);
  acknowledge(1);
  raise(2);
  EXPECT_EQ(bus.messages[0], 0u);
  EXPECT_EQ(bus.messages[1], 1u);
  EXPECT_EQ(bus.messages[2], 1u);
  device.reset();
  EXPECT_EQ(read(2, VBOARD_IRQ_STATUS), 0u);
}

TEST_F(PciFunction, AMaskedLineStaysLowAndSpeaksWhenItIsUnmasked) {
  bus.messages_enabled = true;
  write(2, VBOARD_IRQ_MASK, 1u << 1);
  raise(1);
  EXPECT_EQ(read(2, VBOARD_IRQ_STATUS), 1u << 1) << "who asserts is shown all the same";
  EXPECT_EQ(bus.messages[1], 0u);
  raise(0);
  EXPECT_EQ(bus.messages[0], 1u) << "the others' lines are free";
  write(2, VBOARD_IRQ_MASK, 0);
  EXPECT_EQ(bus.messages[1], 1u);
  EXPECT_EQ(bus.messages[0], 1u);
  bus.messages_enabled = false;
  write(2, VBOARD_IRQ_MASK, 3);
  EXPECT_FALSE(bus.intx);
  write(2, VBOARD_IRQ_MASK, 2);
  EXPECT_TRUE(bus.intx);
}

TEST_F(PciFunction, ALineThatIsHighAtItsEndOfInterruptSpeaksAgain) {
  bus.messages_enabled = true;
  raise(0);
  raise(1);
  EXPECT_EQ(bus.messages[0], 1u);
  write(2, VBOARD_IRQ_EOI, 1);
  EXPECT_EQ(bus.messages[0], 2u);
  EXPECT_EQ(bus.messages[1], 1u);
  acknowledge(0);
  write(2, VBOARD_IRQ_EOI, 1);
  EXPECT_EQ(bus.messages[0], 2u);
}

TEST_F(PciFunction, RunsAJobOnItsWorkers) {
  Random random(1);
  const Problem p = make_problem(t,
                                 {.in = rknpu::Precision::kFp16,
                                  .out = rknpu::Precision::kFp32,
                                  .height = 8,
                                  .channels = 64,
                                  .kernels = 32,
                                  .out_height = 8},
                                 random);
  const auto chain = t.chain({p.spec});
  write(0, 0x10, chain.address);
  write(0, 0x14, rknpu::amount_for_words(chain.words));
  write(0, 0x20, 0x300);
  write(0, 0x30, 0x7001);
  write(0, 0x08, 1);
  for (int i = 0; i < 10000 && !bus.intx; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_TRUE(bus.intx);
  EXPECT_EQ(read_results(t, p.spec), reference_sums(p));
  EXPECT_NE(device.board(), nullptr);
}

TEST(Control, AnswersRequests) {
  TestBoard t;
  auto ask = [&](const char* request) { return Json::parse(answer(&t.board, request)); };
  EXPECT_EQ(ask(R"({"command":"status"})")["cores"], Json::array({"idle", "idle", "idle"}));
  EXPECT_TRUE(ask(R"({"command":"fault","kind":"dispatch-drop","core":1,"count":2})")["ok"]);
  EXPECT_TRUE(ask(R"({"command":"fault","kind":"stall","core":"any","arg":3})")["ok"]);
  EXPECT_EQ(ask(R"({"command":"status"})")["faults_armed"], 2);
  t.core_write(1, 8, 1);
  EXPECT_EQ(ask(R"({"command":"status"})")["faults_fired"], 1);
  EXPECT_TRUE(ask(R"({"command":"clear-faults"})")["ok"]);
  EXPECT_EQ(ask(R"({"command":"status"})")["faults_armed"], 0);
  EXPECT_EQ(ask(R"({"command":"counters"})")["cores"][1]["reg_writes"], 1);
  EXPECT_TRUE(ask(R"({"command":"write","bar":0,"offset":16416,"value":64})")["ok"]);
  EXPECT_EQ(ask(R"({"command":"read","offset":16416})")["value"], 64);
  EXPECT_EQ(ask(R"({"command":"commands","core":2})")["words"], Json::array());
  EXPECT_TRUE(ask(R"({"command":"reset"})")["ok"]);
  EXPECT_EQ(ask(R"({"command":"read","offset":16416})")["value"], 0);
}

TEST(Control, ShowsTheWordsOfTheLastTask) {
  TestBoard t;
  Random random(2);
  const Problem p = make_problem(t, {.height = 8, .channels = 64, .kernels = 32, .out_height = 8}, random);
  const auto chain = t.chain({p.spec});
  t.run(chain);
  const Json words = Json::parse(answer(&t.board, R"({"command":"commands"})"))["words"];
  ASSERT_EQ(words.size(), chain.words);
  EXPECT_EQ(words.front(), "0x10010000000e4004");
  EXPECT_EQ(words.back(), "0x00810000001d0008");
}

TEST(Control, SaysWhatIsWrong) {
  TestBoard t;
  auto error = [&](const char* request) {
    const Json reply = Json::parse(answer(&t.board, request));
    EXPECT_FALSE(reply["ok"]);
    return reply["error"].get<std::string>();
  };
  EXPECT_NE(error("").find("one JSON object"), std::string::npos);
  EXPECT_NE(error("[1]").find("one JSON object"), std::string::npos);
  EXPECT_NE(error("{}").find("can't be understood"), std::string::npos);
  EXPECT_NE(error(R"({"command":5})").find("can't be understood"), std::string::npos);
  EXPECT_NE(error(R"({"command":"dance"})").find("there is no command"), std::string::npos);
  EXPECT_NE(error(R"({"command":"fault","kind":"boredom"})").find("there is no fault"), std::string::npos);
  EXPECT_NE(error(R"({"command":"fault","kind":"stall","core":7})").find("can't be armed"), std::string::npos);
  EXPECT_NE(error(R"({"command":"commands","core":3})").find("there is no core 3"), std::string::npos);
  EXPECT_NE(answer(nullptr, R"({"command":"status"})").find("not attached"), std::string::npos);
}

// A client of the control socket.
std::string talk_to(const std::string& path, std::string_view lines) {
  sockaddr_un address{.sun_family = AF_UNIX};
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const vfio_user::UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM, 0));
  if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) return "no connection";
  EXPECT_EQ(::send(fd.get(), lines.data(), lines.size(), MSG_NOSIGNAL), static_cast<ssize_t>(lines.size()));
  ::shutdown(fd.get(), SHUT_WR);
  std::string all;
  char piece[256];
  for (ssize_t got; (got = ::recv(fd.get(), piece, sizeof(piece), 0)) > 0;) all.append(piece, static_cast<size_t>(got));
  return all;
}

TEST(Control, ServesASocketLineByLine) {
  TestBoard t;
  const std::shared_ptr<Board> board(&t.board, [](Board*) {});
  const std::string path = testing::TempDir() + "npud-control-" + std::to_string(::getpid());
  {
    auto socket = ControlSocket::listen(path, [&] { return board; });
    ASSERT_TRUE(socket) << socket.error();
    EXPECT_EQ(talk_to(path, "{\"command\":\"clear-faults\"}\n{\"command\":\"clear-faults\"}\n{\"ignored"),
              "{\"ok\":true}\n{\"ok\":true}\n");
    EXPECT_EQ(talk_to(path, std::string(100000, 'x')), "");
    EXPECT_FALSE(ControlSocket::listen(path, [&] { return board; }));
  }
  EXPECT_EQ(talk_to(path, "\n"), "no connection");
  EXPECT_FALSE(ControlSocket::listen(std::string(200, 'a'), [&] { return board; }));
  EXPECT_FALSE(ControlSocket::listen("/nonexistent/socket", [&] { return board; }));
}

}  // namespace
}  // namespace npud::rk3588::test
