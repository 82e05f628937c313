// SPDX-License-Identifier: Apache-2.0
// What is resident on a device, and what leaves when a slot or the aperture is full. A plain state machine: no thread,
// no lock, no clock; the caller does what it decides and reports back.
//
// A program takes its slots and bytes from begin_bring_in() until eviction_done() or bring_in_failed(): what hasn't
// provably gone counts as there. What leaves is chosen by the cost to bring it back × the likelihood that it is used
// again soon, per room that it frees; pinned programs and those with jobs running never leave.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "core/clock.h"
#include "core/error.h"
#include "core/fair_queue.h"
#include "core/program.h"

namespace npud {

enum class ResidencyState : std::uint8_t { cold, coming, resident, leaving };

struct ResidencySettings {
  std::uint32_t slots = 1;
  std::uint64_t bytes = 0;               // 0: no limit
  Duration reuse_half_life{10'000'000};  // a use counts half after so long
};

class Residency {
 public:
  struct Entry {
    ResidencyState state = ResidencyState::cold;
    Footprint footprint;
    bool pinned = false;
    Duration bring_back{0};  // the program's word; 0: unknown, estimated from its bytes
    std::uint32_t running = 0;
    std::size_t waiting = 0;
    double uses = 0;  // decayed to last_use
    TimePoint last_use;
    std::uint64_t runs = 0, brought_in = 0, evicted = 0;
    ProgramKey leaves_for = 0;  // leaving: whose room it will be
    bool barred = false;        // shall leave for the reserved one
  };

  explicit Residency(ResidencySettings settings);

  void add(ProgramKey key, Footprint footprint, bool pinned, Duration bring_back);  // cold
  // What comes or leaves keeps its footprint.
  void update(ProgramKey key, Footprint footprint, bool pinned, Duration bring_back);
  void remove(ProgramKey key);  // cold only
  void set_waiting(ProgramKey key, std::size_t jobs);

  // resource_exhausted (with bytes needed and free) if it couldn't come even when everything but the pinned had left.
  Result<> can_ever_fit(ProgramKey key) const;

  Placement place(ProgramKey key, TimePoint now) const;

  // Keeps the room that comes free for `key` (0: for nobody): nothing else is brought in, and what will have to leave
  // starts no more jobs.
  void reserve(ProgramKey key, TimePoint now);
  ProgramKey reserved() const { return reserved_; }

  // Precondition: place() says cold. Answers what has to be evicted first; evict those, report each, then make it
  // resident, then report.
  std::vector<ProgramKey> begin_bring_in(ProgramKey key, TimePoint now);
  void eviction_done(ProgramKey key);
  // `footprint` is what it really takes. False: that is more than there is room for; evict it (begin_eviction) before
  // anything runs on it.
  bool bring_in_done(ProgramKey key, Footprint footprint, Duration took);
  void bring_in_failed(ProgramKey key);
  // Of a resident program without jobs running, whatever its pin: when its owner or an administrator says so. False: it
  // isn't.
  bool begin_eviction(ProgramKey key);
  // For a program that has to leave although the bytes add up: resident, not pinned, without jobs. 0: there is none.
  ProgramKey least_valuable_idle(TimePoint now) const;
  // What is leaving makes room for `key`, which is coming.
  void leaves_for(ProgramKey leaver, ProgramKey key) { entries_.at(leaver).leaves_for = key; }

  void run_started(ProgramKey key, TimePoint now);  // precondition: resident, or coming for this job
  void run_ended(ProgramKey key);

  const Entry& entry(ProgramKey key) const { return entries_.at(key); }
  const std::map<ProgramKey, Entry>& entries() const { return entries_; }
  Footprint used() const;  // physically there: resident, leaving, or coming
  std::uint64_t upload_bytes_per_second() const { return static_cast<std::uint64_t>(upload_bytes_per_us_ * 1e6); }
  Duration bring_back_cost(const Entry& entry) const;

 private:
  struct Room {
    std::int64_t slots = 0, bytes = 0;
    bool enough() const { return slots >= 0 && bytes >= 0; }
  };
  Room room_for(const Footprint& footprint, bool after_evictions) const;
  double value_us(const Entry& entry, TimePoint now) const;
  // The cheapest set that makes the room, nullopt if none does; with_running: what is running may be chosen too.
  std::optional<std::vector<ProgramKey>> choose_victims(ProgramKey key, TimePoint now, bool with_running) const;

  const ResidencySettings settings_;
  std::map<ProgramKey, Entry> entries_;
  ProgramKey reserved_ = 0;
  double upload_bytes_per_us_ = 0;
};

}  // namespace npud
