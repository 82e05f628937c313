// SPDX-License-Identifier: Apache-2.0
// libnpud in one page: asks the direction classifier about a strip that has its dark stroke at the bottom, at once,
// later, in a stream and through shared memory, and checks that the four answers are the same.
//
//   npud-example-cpp [ADDRESS]
#include <cmath>
#include <cstring>
#include <iostream>
#include <vector>

#include "npud/client.h"
#include "npud/shared_memory.h"

namespace nc = npud::client;

namespace {

constexpr std::int64_t kHeight = 48, kWidth = 192;

// Three planes in -1 (dark) … 1 (white), as PP-OCR's classifier wants them.
std::vector<float> underlined_strip() {
  std::vector<float> pixels(3 * kHeight * kWidth, 1.0f);
  for (std::int64_t plane = 0; plane < 3; ++plane) {
    for (std::int64_t y = 36; y < 44; ++y) {
      for (std::int64_t x = 20; x < 170; ++x)
        pixels[static_cast<std::size_t>((plane * kHeight + y) * kWidth + x)] = -0.9f;
    }
  }
  return pixels;
}

nc::InferRequest request_for(const std::vector<float>& pixels) {
  nc::InferRequest request;
  request.model = "ocr_cls";
  request.id = "example";
  request.timeout = std::chrono::seconds(30);
  request.inputs.push_back(nc::Tensor::of<float>("x", {1, 3, kHeight, kWidth}, pixels));
  return request;
}

[[noreturn]] void give_up(const nc::Error& error) {
  std::cerr << "npud-example-cpp: " << nc::to_string(error) << '\n';
  std::exit(1);
}

template <class T>
T value_or_give_up(nc::Result<T> result) {
  if (!result) give_up(result.error());
  return *std::move(result);
}

// The two probabilities, checked to be some.
std::vector<float> probabilities(const nc::InferResult& result) {
  if (result.outputs.size() != 1) give_up({nc::Code::data_loss, "one output was expected", {}, {}, {}, {}});
  auto values = value_or_give_up(result.outputs[0].values<float>());
  if (values.size() != 2 || std::abs(values[0] + values[1] - 1.0f) > 1e-3f) {
    give_up({nc::Code::data_loss, "the two probabilities don't add up to 1", {}, {}, {}, {}});
  }
  return values;
}

}  // namespace

int main(int argc, char** argv) {
  nc::ConnectOptions options;
  if (argc > 1) options.address = argv[1];
  nc::Client client = value_or_give_up(nc::Client::connect(options));
  const std::vector<float> pixels = underlined_strip();

  // At once.
  nc::InferResult first = value_or_give_up(client.infer(request_for(pixels)));
  const std::vector<float> expected = probabilities(first);
  std::cout << "upright " << expected[0] << ", upside down " << expected[1] << "  (" << first.model << " version "
            << first.version << ", " << first.path << ")\n";

  // Later: four under way at the same time.
  std::vector<std::future<nc::Result<nc::InferResult>>> futures;
  for (int i = 0; i < 4; ++i) futures.push_back(client.infer_future(request_for(pixels)));
  bool same = true;
  auto check = [&](const char* how, const std::vector<float>& got) {
    if (std::abs(got[0] - expected[0]) > 1e-4f) {
      std::cerr << how << ": " << got[0] << " instead of " << expected[0] << '\n';
      same = false;
    }
  };
  for (auto& future : futures) check("async", probabilities(value_or_give_up(future.get())));

  // In a stream: answers come in the order of the requests, and a request that fails leaves the stream as it is.
  nc::Stream stream = value_or_give_up(client.stream());
  for (int i = 0; i < 3; ++i) {
    nc::InferRequest request = request_for(pixels);
    request.id = std::to_string(i);
    if (i == 1) request.model = "no-such-model";
    if (auto written = stream.write(std::move(request)); !written) give_up(written.error());
  }
  stream.finish_writing();
  for (int i = 0; i < 3; ++i) {
    auto answer = value_or_give_up(stream.read());
    if (!answer || answer->id != std::to_string(i))
      give_up({nc::Code::data_loss, "the stream's answers are out of order", {}, {}, {}, {}});
    if (i == 1) {
      if (answer->result) give_up({nc::Code::data_loss, "a model that doesn't exist answered", {}, {}, {}, {}});
    } else {
      check("stream", probabilities(value_or_give_up(std::move(answer->result))));
    }
  }
  if (value_or_give_up(stream.read()))
    give_up({nc::Code::data_loss, "the stream has an answer too many", {}, {}, {}, {}});

  // Through shared memory: nothing but names is sent.
  const std::size_t input_bytes = pixels.size() * sizeof(float);
  nc::SharedMemory memory = value_or_give_up(nc::SharedMemory::create(client, input_bytes + 2 * sizeof(float)));
  std::memcpy(memory.bytes().data(), pixels.data(), input_bytes);
  nc::InferRequest request = request_for(pixels);
  request.inputs[0].data.clear();
  request.inputs[0].shared = memory.span(0, input_bytes);
  request.outputs.push_back({first.outputs[0].name, memory.span(input_bytes, 2 * sizeof(float))});
  value_or_give_up(client.infer(std::move(request)));
  std::vector<float> shared(2);
  std::memcpy(shared.data(), memory.bytes().data() + input_bytes, 2 * sizeof(float));
  check("shared memory", shared);

  // What goes wrong says what to do.
  nc::InferRequest wrong = request_for(pixels);
  wrong.inputs[0].shape = {1, 3, kHeight, kWidth - 1};
  auto refused = client.infer(std::move(wrong));
  if (refused || refused.error().code != nc::Code::invalid_argument)
    give_up({nc::Code::data_loss, "a wrong shape wasn't refused", {}, {}, {}, {}});
  std::cout << "a wrong shape is refused: " << refused.error().message << '\n';
  return same ? 0 : 1;
}
