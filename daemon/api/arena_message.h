// SPDX-License-Identifier: Apache-2.0
// A protobuf message in an arena of its own, whose first block comes along with it.
#pragma once

#include <google/protobuf/arena.h>

#include <array>

namespace npud::api {

template <class Message>
struct ArenaMessage {
  // Enough for the messages of most models without their data.
  alignas(16) std::array<char, 2048> first_block;
  google::protobuf::Arena arena{first_block.data(), first_block.size()};
  Message* message = google::protobuf::Arena::CreateMessage<Message>(&arena);
};

}  // namespace npud::api
