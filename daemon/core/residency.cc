// SPDX-License-Identifier: Apache-2.0
#include "core/residency.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <format>
#include <limits>

namespace npud {
namespace {

double us(Duration d) { return static_cast<double>(d.count()); }

// Victims that run are chosen only where nothing else makes the room, and then rather few.
constexpr double running_penalty_us = 1e9;

}  // namespace

Residency::Residency(ResidencySettings settings) : settings_(settings) {}

void Residency::add(ProgramKey key, Footprint footprint, bool pinned, Duration bring_back) {
  assert(key != 0 && !entries_.contains(key));
  Entry entry;
  entry.footprint = footprint;
  entry.pinned = pinned;
  entry.bring_back = bring_back;
  entries_.emplace(key, entry);
}

void Residency::update(ProgramKey key, Footprint footprint, bool pinned, Duration bring_back) {
  Entry& entry = entries_.at(key);
  if (entry.state == ResidencyState::cold || entry.state == ResidencyState::resident) entry.footprint = footprint;
  entry.pinned = pinned;
  if (bring_back.count() > 0) entry.bring_back = bring_back;
}

void Residency::remove(ProgramKey key) {
  assert(entries_.at(key).state == ResidencyState::cold && entries_.at(key).running == 0);
  if (reserved_ == key) reserve(0, {});
  entries_.erase(key);
}

void Residency::set_waiting(ProgramKey key, std::size_t jobs) {
  if (const auto at = entries_.find(key); at != entries_.end()) at->second.waiting = jobs;
}

Footprint Residency::used() const {
  Footprint used{0, 0};
  for (const auto& [key, entry] : entries_) {
    if (entry.state == ResidencyState::cold) continue;
    // What is coming is there once everything that leaves for it has gone.
    if (entry.state == ResidencyState::coming &&
        std::ranges::any_of(entries_, [k = key](const auto& other) { return other.second.leaves_for == k; })) {
      continue;
    }
    used.slots += entry.footprint.slots;
    used.bytes += entry.footprint.bytes;
  }
  return used;
}

// What would remain free with `footprint` in, negative where room lacks. What is coming counts with all that it takes.
// after_evictions: as if everything that leaves had gone; else only what has gone is free, and room for which others
// leave is theirs.
Residency::Room Residency::room_for(const Footprint& footprint, bool after_evictions) const {
  Room room{settings_.slots, settings_.bytes == 0 ? std::numeric_limits<std::int64_t>::max() / 2
                                                  : static_cast<std::int64_t>(settings_.bytes)};
  const auto take = [&](const Footprint& f) {
    room.slots -= f.slots;
    room.bytes -= static_cast<std::int64_t>(f.bytes);
  };
  take(footprint);
  for (const auto& [key, entry] : entries_) {
    switch (entry.state) {
      case ResidencyState::cold:
        break;
      case ResidencyState::resident:
        take(entry.footprint);
        break;
      case ResidencyState::leaving:
        if (!after_evictions) take(entry.footprint);
        break;
      case ResidencyState::coming: {
        if (after_evictions) {
          take(entry.footprint);
          break;
        }
        // It goes where its victims, which are counted, still are; only what it takes beyond them is on top.
        std::int64_t slots = entry.footprint.slots, bytes = static_cast<std::int64_t>(entry.footprint.bytes);
        for (const auto& [other_key, other] : entries_) {
          if (other.state != ResidencyState::leaving || other.leaves_for != key) continue;
          slots -= other.footprint.slots;
          bytes -= static_cast<std::int64_t>(other.footprint.bytes);
        }
        room.slots -= std::max<std::int64_t>(slots, 0);
        room.bytes -= std::max<std::int64_t>(bytes, 0);
        break;
      }
    }
  }
  return room;
}

Result<> Residency::can_ever_fit(ProgramKey key) const {
  const Footprint& wanted = entries_.at(key).footprint;
  std::uint64_t pinned_slots = 0, pinned_bytes = 0;
  for (const auto& [other_key, other] : entries_) {
    if (other_key == key || !other.pinned || other.state == ResidencyState::cold) continue;
    pinned_slots += other.footprint.slots;
    pinned_bytes += other.footprint.bytes;
  }
  const std::uint64_t free_slots = settings_.slots - std::min<std::uint64_t>(pinned_slots, settings_.slots);
  if (wanted.slots > free_slots) {
    return fail(ErrorCode::resource_exhausted, std::format("it needs {} slots, and {} of the device's {} are held by "
                                                           "pinned programs; unpin one or configure more slots",
                                                           wanted.slots, pinned_slots, settings_.slots));
  }
  if (settings_.bytes != 0) {
    const std::uint64_t free_bytes = settings_.bytes - std::min(pinned_bytes, settings_.bytes);
    if (wanted.bytes > free_bytes) {
      auto error = fail(
          ErrorCode::resource_exhausted,
          std::format(
              "it needs {} bytes of the device's {}, of which pinned programs hold {}; raise the aperture's limit, "
              "unpin a program or use a smaller model",
              wanted.bytes, settings_.bytes, pinned_bytes));
      error.error().bytes_needed = wanted.bytes;
      error.error().bytes_free = free_bytes;
      return error;
    }
  }
  return {};
}

Duration Residency::bring_back_cost(const Entry& entry) const {
  if (entry.bring_back.count() > 0) return entry.bring_back;
  if (upload_bytes_per_us_ > 0) {
    return Duration{static_cast<Duration::rep>(static_cast<double>(entry.footprint.bytes) / upload_bytes_per_us_) + 1};
  }
  // Nothing is known yet: as if a byte took a nanosecond, so that at least the sizes count.
  return Duration{static_cast<Duration::rep>(entry.footprint.bytes / 1000) + 1};
}

double Residency::value_us(const Entry& entry, TimePoint now) const {
  const double half_lives = us(now - entry.last_use) / std::max(us(settings_.reuse_half_life), 1.0);
  const double uses = entry.uses * std::exp2(-std::max(half_lives, 0.0));
  // Wanted for certain where jobs wait; else the likelier the more and the more lately it was used.
  const double likelihood = entry.waiting > 0 ? 1.0 + static_cast<double>(entry.waiting) : uses / (1.0 + uses);
  return us(bring_back_cost(entry)) * likelihood;
}

std::optional<std::vector<ProgramKey>> Residency::choose_victims(ProgramKey key, TimePoint now,
                                                                 bool with_running) const {
  const Room lack = room_for(entries_.at(key).footprint, false);
  struct Candidate {
    ProgramKey key;
    Footprint footprint;
    double value_us;
  };
  std::vector<Candidate> candidates;
  for (const auto& [other_key, other] : entries_) {
    if (other_key == key || other.pinned || other.state != ResidencyState::resident) continue;
    if (other.running > 0 && !with_running) continue;
    candidates.push_back({other_key, other.footprint,
                          value_us(other, now) + (other.running > 0 ? running_penalty_us * other.running : 0.0)});
  }
  std::vector<Candidate> victims;
  std::int64_t slots = -lack.slots, bytes = -lack.bytes;  // still to be freed where positive
  while (slots > 0 || bytes > 0) {
    // Least value for the share of what lacks that it frees.
    auto best = candidates.end();
    double best_rate = 0;
    for (auto at = candidates.begin(); at != candidates.end(); ++at) {
      double share = 0;
      if (slots > 0) share += std::min(1.0, static_cast<double>(at->footprint.slots) / static_cast<double>(slots));
      if (bytes > 0) share += std::min(1.0, static_cast<double>(at->footprint.bytes) / static_cast<double>(bytes));
      if (share <= 0) continue;
      const double rate = (at->value_us + 1e-3) / share;
      if (best == candidates.end() || rate < best_rate) {
        best = at;
        best_rate = rate;
      }
    }
    if (best == candidates.end()) return std::nullopt;
    slots -= best->footprint.slots;
    bytes -= static_cast<std::int64_t>(best->footprint.bytes);
    victims.push_back(*best);
    candidates.erase(best);
  }
  // What later ones made needless stays, the most valuable first.
  std::ranges::sort(victims, [](const Candidate& a, const Candidate& b) { return a.value_us > b.value_us; });
  std::erase_if(victims, [&](const Candidate& victim) {
    const bool needless =
        slots + victim.footprint.slots <= 0 && bytes + static_cast<std::int64_t>(victim.footprint.bytes) <= 0;
    if (needless) {
      slots += victim.footprint.slots;
      bytes += static_cast<std::int64_t>(victim.footprint.bytes);
    }
    return needless;
  });
  std::vector<ProgramKey> keys;
  for (const Candidate& victim : victims) keys.push_back(victim.key);
  return keys;
}

Placement Residency::place(ProgramKey key, TimePoint now) const {
  using Kind = Placement::Kind;
  const Entry& entry = entries_.at(key);
  switch (entry.state) {
    case ResidencyState::resident:
      return {entry.barred ? Kind::barred : Kind::ready, {}, {}};
    case ResidencyState::coming:
    case ResidencyState::leaving:
      return {Kind::coming, {}, {}};
    case ResidencyState::cold:
      break;
  }
  const Duration cost = bring_back_cost(entry);
  if (reserved_ != 0 && reserved_ != key) return {Kind::blocked, cost, {}};
  if (room_for(entry.footprint, false).enough()) return {Kind::cold, cost, {}};
  if (room_for(entry.footprint, true).enough()) return {Kind::coming, {}, {}};
  const auto victims = choose_victims(key, now, false);
  if (!victims) return {Kind::blocked, cost, {}};
  double regret_us = 0;
  for (const ProgramKey victim : *victims) regret_us += value_us(entries_.at(victim), now);
  return {Kind::cold, cost, Duration{static_cast<Duration::rep>(std::min(regret_us, 1e12))}};
}

void Residency::reserve(ProgramKey key, TimePoint now) {
  if (key == reserved_ && key != 0) {
    // What was chosen to leave may have gone another way; then choose anew.
    const bool under_way =
        std::ranges::any_of(entries_, [](const auto& e) { return e.second.barred && e.second.running > 0; });
    if (under_way) return;
  }
  for (auto& [other_key, other] : entries_) other.barred = false;
  reserved_ = key;
  if (key == 0) return;
  const auto victims = choose_victims(key, now, true);
  if (!victims) return;
  for (const ProgramKey victim : *victims) entries_.at(victim).barred = true;
}

std::vector<ProgramKey> Residency::begin_bring_in(ProgramKey key, TimePoint now) {
  Entry& entry = entries_.at(key);
  assert(entry.state == ResidencyState::cold);
  std::vector<ProgramKey> victims;
  if (!room_for(entry.footprint, false).enough()) victims = choose_victims(key, now, false).value();
  entry.state = ResidencyState::coming;
  for (const ProgramKey victim : victims) {
    Entry& leaver = entries_.at(victim);
    leaver.state = ResidencyState::leaving;
    leaver.leaves_for = key;
    leaver.barred = false;
  }
  if (reserved_ == key) reserve(0, now);
  return victims;
}

void Residency::eviction_done(ProgramKey key) {
  Entry& entry = entries_.at(key);
  assert(entry.state == ResidencyState::leaving);
  entry.state = ResidencyState::cold;
  entry.leaves_for = 0;
  ++entry.evicted;
}

bool Residency::bring_in_done(ProgramKey key, Footprint footprint, Duration took) {
  Entry& entry = entries_.at(key);
  assert(entry.state == ResidencyState::coming);
  entry.state = ResidencyState::resident;
  entry.footprint = footprint;
  ++entry.brought_in;
  if (took.count() > 0) {
    entry.bring_back = entry.bring_back.count() > 0 ? (entry.bring_back + took) / 2 : took;
    if (footprint.bytes > 0) {
      const double rate = static_cast<double>(footprint.bytes) / us(took);
      upload_bytes_per_us_ = upload_bytes_per_us_ > 0 ? upload_bytes_per_us_ * 0.75 + rate * 0.25 : rate;
    }
  }
  return room_for({0, 0}, false).enough();
}

void Residency::bring_in_failed(ProgramKey key) {
  Entry& entry = entries_.at(key);
  assert(entry.state == ResidencyState::coming);
  entry.state = ResidencyState::cold;
}

bool Residency::begin_eviction(ProgramKey key) {
  Entry& entry = entries_.at(key);
  if (entry.state != ResidencyState::resident || entry.running > 0) return false;
  entry.state = ResidencyState::leaving;
  entry.leaves_for = 0;
  entry.barred = false;
  return true;
}

ProgramKey Residency::least_valuable_idle(TimePoint now) const {
  ProgramKey least = 0;
  double value = 0;
  for (const auto& [key, entry] : entries_) {
    if (entry.state != ResidencyState::resident || entry.pinned || entry.running > 0 || entry.waiting > 0) continue;
    const double own = value_us(entry, now);
    if (least == 0 || own < value) least = key, value = own;
  }
  return least;
}

void Residency::run_started(ProgramKey key, TimePoint now) {
  Entry& entry = entries_.at(key);
  assert(entry.state == ResidencyState::resident || entry.state == ResidencyState::coming);
  const double half_lives = us(now - entry.last_use) / std::max(us(settings_.reuse_half_life), 1.0);
  entry.uses = entry.uses * std::exp2(-std::max(half_lives, 0.0)) + 1;
  entry.last_use = now;
  ++entry.running;
  ++entry.runs;
}

void Residency::run_ended(ProgramKey key) {
  Entry& entry = entries_.at(key);
  assert(entry.running > 0);
  --entry.running;
}

}  // namespace npud
