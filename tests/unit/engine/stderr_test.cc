// SPDX-License-Identifier: Apache-2.0
// What the first use of ONNX Runtime in a process writes to stderr.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <thread>

#include "engine/session.h"
#include "engine_fixture.h"

namespace npud {
namespace {

TEST(Stderr, TheFirstUseOfOnnxRuntimeWritesNothingAndHidesNothing) {
  test::TempDirectory directory;
  const auto path = directory.path() / "stderr";
  const int saved = ::dup(2);
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND, 0600);
  ASSERT_GE(file, 0);
  ASSERT_EQ(::dup2(file, 2), 2);

  // Another part of the daemon, whose errors must come through meanwhile, in whatever way it writes them.
  std::atomic<bool> stop = false;
  std::atomic<int> written = 0;
  std::thread other([&] {
    while (!stop) {
      const std::string line = "a real error " + std::to_string(written) + "\n";
      if (::write(2, line.data(), line.size()) == static_cast<ssize_t>(line.size())) ++written;
      std::this_thread::yield();
    }
  });
  while (written == 0) std::this_thread::yield();
  auto runtime = Runtime::create({.threads = 1});
  test::write_model(directory.path() / "model.onnx", test::matmul_model(4, 4, 1));
  HostDevice host({});
  std::unique_ptr<Session> session;
  if (runtime) {
    auto made = Session::create(**runtime, host, directory.path() / "model.onnx", {}, nullptr);
    if (made) session = std::move(*made);
  }
  std::vector<OutputRequest> wanted{{.name = "y"}};
  std::vector<Tensor> inputs{test::float_tensor("x", {1, 4}, {1, 2, 3, 4})};
  const bool computes = session && session->run(inputs, wanted, {}).has_value();
  stop = true;
  other.join();
  std::fflush(stderr);
  ASSERT_EQ(::dup2(saved, 2), 2);
  ::close(saved);
  ::close(file);

  EXPECT_TRUE(computes);
  std::ifstream text(path);
  int others = 0;
  for (std::string line; std::getline(text, line);) {
    if (line == "a real error " + std::to_string(others)) {
      ++others;
    } else {
      ADD_FAILURE() << "on stderr: " << line;
    }
  }
  EXPECT_EQ(others, written.load());
}

}  // namespace
}  // namespace npud
