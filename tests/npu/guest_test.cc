// SPDX-License-Identifier: Apache-2.0
// npud, its driver and the virtual board in a guest, seen by clients that have no right to any device: answers, shares,
// evictions, faults, deaths. TAP. Runs in the directory with npud, products/, real/ and inputs/ (tests/npu/lay).
//
//   npu-guest-test products|real          the tests
//   npu-guest-test load MODEL FILE        one tenant that always has requests waiting, and writes how many were
//   answered to FILE
#include <grp.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <thread>

#include "kernel/include/vboard/vboard_regs.h"
#include "npud/client.h"
#include "npud/control.h"
#include "npud/npy.h"
#include "root_side.h"
#include "tests/unit/rknpu/distance.h"

namespace npud::guest {
namespace {

using client::Client;
using client::Tensor;

constexpr const char* kSocket = "/tmp/npud.sock";
constexpr unsigned kHeavyUid = 61001, kLightUid = 61002;

int tests = 0, failed = 0;

bool check(bool right, const std::string& name, const std::string& detail = "") {
  ++tests;
  if (!right) ++failed;
  std::printf("%s %d - %s\n", right ? "ok" : "not ok", tests, name.c_str());
  if (!right && !detail.empty()) std::printf("# %s\n", detail.c_str());
  std::fflush(stdout);
  return right;
}

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

[[noreturn]] void bail_out(const std::string& why) {
  std::printf("Bail out! %s\n# npud says:\n%s\n", why.c_str(), text_of("/tmp/npud.log").c_str());
  std::fflush(stdout);
  _exit(1);
}

std::string configuration(const std::string& repository, const std::string& rknpu) {
  return "[server]\nsocket = \"" + std::string(kSocket) +
         "\"\nsocket_mode = \"0666\"\n\n[repository]\npath = \"/npud/" + repository +
         "\"\n\n[log]\ntarget = \"stderr\"\n\n[devices.host]\nslots = 8\n\n[devices.rknpu]\nenable = \"on\"\n" + rknpu +
         "\n[[tenant]]\nname = \"heavy\"\nuids = [61001]\nweight = 300\n\n[[tenant]]\nname = \"light\"\nuids = "
         "[61002]\nweight = 100\n";
}

// Waits until it serves; a daemon that ends instead ends the test.
Client connect(RootSide& root) {
  for (int second = 0; second < 240; ++second) {
    if (!root.npud_runs()) bail_out("npud ended");
    auto made = Client::connect({.address = kSocket, .tls = {}, .timeout = std::chrono::milliseconds(1000)});
    if (made) {
      if (const auto ready = made->ready(); ready && *ready) return std::move(*made);
    }
    std::this_thread::sleep_for(std::chrono::seconds(1));
  }
  bail_out("npud wasn't ready after four minutes");
}

struct Answer {
  std::vector<std::vector<float>> outputs;
  std::string path, error;
};

Answer infer(const Client& client, const std::string& model, std::vector<Tensor> inputs) {
  auto result = client.infer({.model = model, .inputs = std::move(inputs), .timeout = std::chrono::seconds(240)});
  if (!result) return {{}, "", client::to_string(result.error())};
  Answer answer{{}, result->path, ""};
  for (const Tensor& output : result->outputs)
    answer.outputs.push_back(output.values<float>().value_or(std::vector<float>{}));
  return answer;
}

// Infinite when there is nothing to compare.
double distance(const std::vector<float>& ours, const std::vector<float>& reference) {
  return ours.empty() ? INFINITY : rknpu::relative_distance(ours, reference);
}

std::string compared(const Answer& ours, const Answer& reference) {
  if (!ours.error.empty() || !reference.error.empty()) return ours.error + reference.error;
  char text[200];
  std::snprintf(text, sizeof text, "distance %.3g, path \"%s\"", distance(ours.outputs.at(0), reference.outputs.at(0)),
                ours.path.c_str());
  return text;
}

// Of fp16 products of 512 x 512 whose results are checked: what the check can't tell from rounding (verify.h) is below
// this.
constexpr double struck_tolerance = 2e-2;

bool agree(const Answer& ours, const Answer& reference, double tolerance) {
  return ours.error.empty() && reference.error.empty() && ours.outputs.size() == reference.outputs.size() &&
         distance(ours.outputs.at(0), reference.outputs.at(0)) < tolerance;
}

Tensor rows(std::mt19937& random, std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count * 512));
  std::normal_distribution<float> normal;
  for (float& v : values) v = normal(random);
  return Tensor::of<float>("x", {count, 512}, values);
}

bool on_npu(const std::string& path) { return path.starts_with("device=rknpu0"); }
// Where an answer may come from while the board is struck: the NPU, or the host with the reason.
bool honest(const std::string& path) {
  return on_npu(path) || (path.starts_with("device=host") && path.contains("reason"));
}

bool driver_is_empty(RootSide& root, std::string& state) {
  state = root.driver_state();
  for (const char* name : {"files", "spaces", "iova_bytes", "jobs_queued", "jobs_running", "leaks"}) {
    if (state_value(state, name) != 0) return false;
  }
  return true;
}

void check_driver_is_empty(RootSide& root, const std::string& after) {
  std::string state;
  for (int i = 0; i < 50 && !driver_is_empty(root, state); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  check(driver_is_empty(root, state), "after " + after + " the driver holds no file, space, byte or job", state);
}

long count_in(const std::string& file) { return std::atol(text_of(file).c_str()); }

// --- products
// -------------------------------------------------------------------------------------------------------------

void third_program(const Client& client) {
  client::Control control(client);
  std::mt19937 random(5);
  const Tensor x = rows(random, 3);
  std::map<std::string, Answer> first;
  bool right = true, same = true, there = true;
  std::string detail;
  for (int round = 0; round < 3; ++round) {
    for (const char* model : {"first", "second", "third"}) {
      const Answer ours = infer(client, model, {x});
      const Answer& before = first.try_emplace(model, ours).first->second;
      if (round == 0) {
        const Answer reference = infer(client, std::string(model) + "_host", {x});
        right = right && agree(ours, reference, 5e-3);
        detail += std::string(model) + ": " + compared(ours, reference) + "; ";
      }
      there = there && ours.path == "device=rknpu0";
      same = same && ours.outputs == before.outputs;
    }
  }
  check(right && there, "three programs answer from the NPU as the host does", detail);
  check(same, "a program that left and came back gives the same bits", detail);
  const auto devices = control.devices();
  std::uint64_t evicted = 0;
  if (devices) {
    for (const auto& device : devices->devices()) evicted = device.name() == "rknpu0" ? device.evicted() : evicted;
  }
  check(evicted >= 4, "the room for two programs made them leave in turns", std::to_string(evicted) + " evicted");
}

void two_tenants(RootSide& root, const Client& client) {
  const std::string heavy = "/tmp/heavy.count", light = "/tmp/light.count";
  const int heavy_process = root.start_tenant(kHeavyUid, "load first " + heavy),
            light_process = root.start_tenant(kLightUid, "load second " + light);
  auto wait_for = [&](const std::string& file, long count) {
    for (int i = 0; i < 1200 && count_in(file) < count; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    return count_in(file) >= count;
  };
  const bool both = wait_for(heavy, 1) && wait_for(light, 1);
  // Whether both always have a request at the arbiter is up to the guest's processors, so a window may be a bad one;
  // the bound itself is shown on a clock of its own (tests/unit/offload).
  bool served = both, by_weight = false;
  for (int window = 0; window < 3 && served && !by_weight; ++window) {
    const long heavy_before = count_in(heavy), light_before = count_in(light);
    served = wait_for(light, light_before + 12);
    const long heavy_served = count_in(heavy) - heavy_before, light_served = count_in(light) - light_before;
    std::printf("# served: %ld with weight 300, %ld with weight 100\n", heavy_served, light_served);
    by_weight = 4 * heavy_served > 5 * light_served;
  }
  check(served && by_weight, "two tenants get the NPU by weight");
  root.kill(heavy_process);
  const long after = count_in(light);
  check(wait_for(light, after + 3), "a killed tenant's requests are in nobody's way");
  root.kill(light_process);
  client::Control control(client);
  bool quiet = false;
  for (int i = 0; i < 100 && !quiet; ++i) {
    const auto status = control.status();
    quiet =
        status && status->requests_in_flight() == 0 && status->requests_queued() == 0 && status->payload_bytes() == 0;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  check(quiet, "nothing of killed clients is left in npud");
}

void struck(RootSide& root, const Client& client) {
  std::mt19937 random(9);
  const Tensor x = rows(random, 5);
  const Answer reference = infer(client, "first_host", {x});
  for (const auto& [kind, name] : {std::pair{VBOARD_FAULT_DISPATCH_DROP, "a dropped job"},
                                   {VBOARD_FAULT_STALL, "a stalled core"},
                                   {VBOARD_FAULT_DEAD_UNTIL_RESET, "a core that is dead until its reset"},
                                   {VBOARD_FAULT_IRQ_LOST, "a lost interrupt"},
                                   {VBOARD_FAULT_WRONG_BIT, "a wrong bit"}}) {
    const unsigned fired = root.strikes_fired();
    root.strike(kind, VBOARD_FAULT_ANY_CORE, 0, 1);
    Answer ours;
    for (int i = 0; i < 4 && root.strikes_fired() == fired; ++i) ours = infer(client, "first", {x});
    check(root.strikes_fired() > fired && agree(ours, reference, struck_tolerance) && honest(ours.path),
          std::string(name) + ": right all the same", compared(ours, reference));
    root.clear_strikes();
  }
  root.strike(VBOARD_FAULT_DISPATCH_DROP, VBOARD_FAULT_ANY_CORE, 0, 0);
  const Answer host = infer(client, "first", {x});
  check(agree(host, reference, 5e-3) && host.path.starts_with("device=host") && host.path.contains("reason"),
        "a board that does nothing any more: the host answers and says why", compared(host, reference));
  std::printf("# path: %s\n", host.path.c_str());
  root.clear_strikes();
  Answer again;
  for (int i = 0; i < 100 && !on_npu(again.path); ++i) {
    again = infer(client, "first", {x});
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
  check(on_npu(again.path) && agree(again, reference, 5e-3), "after a good canary the NPU answers again",
        compared(again, reference));
}

void many_with_faults(RootSide& root, const Client& client, int each) {
  std::mt19937 random(31);
  std::vector<Tensor> inputs;
  std::vector<Answer> references;
  for (std::int64_t count : {1, 4, 17}) {
    inputs.push_back(rows(random, count));
    references.push_back(infer(client, "second_host", {inputs.back()}));
  }
  std::atomic<int> answered{0}, right{0}, npu{0};
  std::atomic<bool> done{false};
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 3; ++seed) {
    threads.emplace_back([&, seed] {
      for (int i = 0; i < each; ++i) {
        const std::size_t which = (seed + static_cast<unsigned>(i)) % inputs.size();
        const Answer ours = infer(client, "second", {inputs[which]});
        ++answered;
        const bool good = agree(ours, references[which], struck_tolerance) && honest(ours.path);
        right += good;
        if (!good) std::printf("# request %d: %s\n", i, compared(ours, references[which]).c_str());
        npu += on_npu(ours.path);
      }
    });
  }
  const unsigned fired = root.strikes_fired();
  std::thread striker([&] {
    std::mt19937 dice(77);
    constexpr unsigned kinds[] = {VBOARD_FAULT_DISPATCH_DROP, VBOARD_FAULT_STALL, VBOARD_FAULT_WRONG_BIT,
                                  VBOARD_FAULT_DEAD_UNTIL_RESET};
    // One at a time, and the next when the NPU has answered again: cores that never come out right are dead to the
    // driver.
    while (!done) {
      const int before = npu;
      root.strike(kinds[dice() % std::size(kinds)], VBOARD_FAULT_ANY_CORE, 0, 1);
      while (!done && npu == before) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      std::this_thread::sleep_for(std::chrono::milliseconds(dice() % 300));
    }
  });
  for (std::thread& thread : threads) thread.join();
  done = true;
  striker.join();
  root.clear_strikes();
  std::printf("# %d requests, %d of them answered by the NPU; %u strikes\n", answered.load(), npu.load(),
              root.strikes_fired() - fired);
  check(right == answered && answered == 3 * each,
        "many requests with faults at random: every one answered, none wrong",
        std::to_string(right) + " of " + std::to_string(answered) + " right");
  check(npu > answered / 10 && root.strikes_fired() > fired, "… and both the NPU and the faults were there");
}

void products(RootSide& root) {
  // 0.5 MiB of weights each, and room for two with what their runs need.
  const std::string config = configuration(
      "products",
      "timeout_ms = 1500\nverify = \"always\"\naperture_bytes = \"1500 KiB\"\nrearm_ms = 50\nrearm_most_ms = 200\n");
  root.start_npud(config);
  {
    const Client client = connect(root);
    check(access("/dev/dri/renderD128", R_OK | W_OK) != 0, "this client may not open the NPU");
    third_program(client);
    two_tenants(root, client);
    struck(root, client);
    many_with_faults(root, client, 60);
    std::mt19937 random(3);
    const Tensor x = rows(random, 2);
    std::atomic<bool> failed_cleanly{false};
    std::thread victim([&] {
      for (int i = 0; i < 100000; ++i) {
        const Answer ours = infer(client, "first", {x});
        if (!ours.error.empty()) {
          failed_cleanly = true;
          return;
        }
      }
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    root.kill_npud();
    victim.join();
    check(failed_cleanly, "when npud is killed its clients hear of it");
  }
  check_driver_is_empty(root, "SIGKILL in the middle of work");
  root.start_npud(config);
  {
    const Client client = connect(root);
    std::mt19937 random(3);
    const Tensor x = rows(random, 2);
    const Answer ours = infer(client, "first", {x}), reference = infer(client, "first_host", {x});
    check(agree(ours, reference, 5e-3) && on_npu(ours.path), "a new npud goes on where the killed one was",
          compared(ours, reference));
  }
  const int status = root.stop_npud();
  check(status == 0, "npud ends in order on SIGTERM", "status " + std::to_string(status));
  check_driver_is_empty(root, "SIGTERM");
  check(root.board_driver_faults() == 0, "the driver did nothing to the board that no driver may do");
}

// --- real models
// ----------------------------------------------------------------------------------------------------------

Tensor input(const std::string& file, const std::string& name) {
  auto tensor = client::read_npy("inputs/" + file);
  if (!tensor) bail_out(client::to_string(tensor.error()));
  tensor->name = name;
  return std::move(*tensor);
}

// Greedy CTC decoding, as PP-OCR's.
std::string read_text(const std::vector<float>& probabilities, const std::vector<std::string>& characters) {
  std::string text;
  std::size_t last = 0;
  for (std::size_t at = 0; at + characters.size() <= probabilities.size(); at += characters.size()) {
    const auto begin = probabilities.begin() + static_cast<std::ptrdiff_t>(at),
               end = begin + static_cast<std::ptrdiff_t>(characters.size());
    const auto best = static_cast<std::size_t>(std::max_element(begin, end) - begin);
    if (best != 0 && best != last) text += characters[best];
    last = best;
  }
  return text;
}

void real(RootSide& root) {
  root.start_npud(configuration("real", "timeout_ms = 30000\nverify = \"sampled\"\n"));
  const Client client = connect(root);
  const Answer det = infer(client, "ocr_det", {input("page.npy", "x")}),
               det_host = infer(client, "ocr_det_host", {input("page.npy", "x")});
  check(agree(det, det_host, 0.05) && on_npu(det.path), "text detection on the NPU agrees with the host",
        compared(det, det_host));
  check(!det_host.outputs.empty() && std::ranges::max(det_host.outputs[0]) > 0.5, "… and there is text to be found");

  std::vector<std::string> characters{""};
  std::ifstream keys("inputs/characters.txt");
  for (std::string line; std::getline(keys, line);) characters.push_back(line);
  characters.emplace_back(" ");
  const Answer rec = infer(client, "ocr_rec", {input("line.npy", "x")}),
               rec_host = infer(client, "ocr_rec_host", {input("line.npy", "x")});
  check(agree(rec, rec_host, 0.02) && on_npu(rec.path), "text recognition on the NPU agrees with the host",
        compared(rec, rec_host));
  std::string printed = text_of("inputs/text.txt");
  printed.pop_back();
  const std::string ours = rec.outputs.empty() ? "" : read_text(rec.outputs[0], characters),
                    reference = rec_host.outputs.empty() ? "" : read_text(rec_host.outputs[0], characters);
  std::printf("# printed \"%s\", read on the NPU \"%s\", on the host \"%s\"\n", printed.c_str(), ours.c_str(),
              reference.c_str());
  check(ours == reference && ours == printed, "the text is the same as the host's and as what is printed");

  const Tensor sound = input("sound.npy", "input");
  const auto samples = sound.values<float>().value_or(std::vector<float>{});
  std::vector<float> state(256), state_host(256);
  const std::int64_t rate = 16000;
  double worst = 0;
  bool there = !samples.empty();
  for (std::size_t chunk = 0; chunk + 512 <= samples.size(); chunk += 512) {
    std::vector<float> window(64);
    if (chunk > 0) std::copy_n(samples.begin() + static_cast<std::ptrdiff_t>(chunk) - 64, 64, window.begin());
    window.insert(window.end(), samples.begin() + static_cast<std::ptrdiff_t>(chunk),
                  samples.begin() + static_cast<std::ptrdiff_t>(chunk) + 512);
    auto inputs = [&](const std::vector<float>& carried) {
      return std::vector<Tensor>{Tensor::of<float>("input", {1, 576}, window),
                                 Tensor::of<float>("state", {2, 1, 128}, carried),
                                 Tensor::of<std::int64_t>("sr", {}, std::span(&rate, 1))};
    };
    const Answer heard = infer(client, "silero_vad", inputs(state)),
                 heard_host = infer(client, "silero_vad_host", inputs(state_host));
    if (heard.outputs.size() != 2 || heard_host.outputs.size() != 2) {
      there = check(false, "voice activity", heard.error + heard_host.error);
      break;
    }
    there = there && on_npu(heard.path);
    worst = std::max<double>(worst, std::fabs(heard.outputs[0].at(0) - heard_host.outputs[0].at(0)));
    state = heard.outputs[1], state_host = heard_host.outputs[1];
  }
  check(there && worst < 0.02, "voice activity on the NPU agrees with the host, chunk by chunk",
        "largest difference " + std::to_string(worst));

  std::printf("# a core stalls in the middle of text recognition\n");
  root.strike(VBOARD_FAULT_STALL, VBOARD_FAULT_ANY_CORE, 0, 1);
  const Answer stalled = infer(client, "ocr_rec", {input("line.npy", "x")});
  check(agree(stalled, rec_host, 0.02) && honest(stalled.path), "… and the text is right all the same",
        compared(stalled, rec_host));
  root.clear_strikes();
  const int status = root.stop_npud();
  check(status == 0, "npud ends in order on SIGTERM", "status " + std::to_string(status));
  check_driver_is_empty(root, "SIGTERM");
}

// --- one tenant
// -----------------------------------------------------------------------------------------------------------

int load(const std::string& model, const std::string& file) {
  auto client = Client::connect({.address = kSocket, .tls = {}, .timeout = std::chrono::seconds(60)});
  if (!client) return 1;
  std::mt19937 random(1);
  const Tensor x = rows(random, 64);
  std::atomic<long> count{0};
  std::vector<std::jthread> threads;
  for (int i = 0; i < 6; ++i) {
    threads.emplace_back([&] {
      while (infer(*client, model, {x}).error.empty()) ++count;
    });
  }
  for (long told = -1;;) {
    if (const long now = count; now != told) {
      std::ofstream(file + ".part") << now << "\n";
      std::rename((file + ".part").c_str(), file.c_str());
      told = now;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

int main(int argc, char** argv) {
  if (argc == 4 && std::string_view(argv[1]) == "load") return load(argv[2], argv[3]);
  if (argc != 2) bail_out("products or real?");
  RootSide root;
  // From here on without any right.
  if (setgroups(0, nullptr) != 0 || setresgid(65534, 65534, 65534) != 0 || setresuid(65534, 65534, 65534) != 0)
    bail_out("can't give up root");
  std::string(argv[1]) == "real" ? real(root) : products(root);
  std::printf("1..%d\n", tests);
  if (failed > 0) std::printf("# npud says:\n%s\n", text_of("/tmp/npud.log").c_str());
  return failed > 0;
}

}  // namespace
}  // namespace npud::guest

int main(int argc, char** argv) { return npud::guest::main(argc, argv); }
