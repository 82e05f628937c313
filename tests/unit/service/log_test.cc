// SPDX-License-Identifier: Apache-2.0
#include "service/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace npud {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

std::string logged(std::string_view sentence, LogFields fields) {
  ::testing::internal::CaptureStderr();
  log_line(LogLevel::info, {}, sentence, fields);
  return ::testing::internal::GetCapturedStderr();
}

class LogTest : public ::testing::Test {
 protected:
  void SetUp() override { set_log(LogTarget::stderr_text, LogLevel::info); }
};

TEST_F(LogTest, ALineIsASentenceAndFields) {
  EXPECT_THAT(logged("A model serves.", {{"MODEL", "m"}, {"VERSION", "1"}}),
              EndsWith(" info    A model serves. MODEL=m VERSION=1\n"));
}

// Names and reasons come from clients: none may end the line or pretend to be another field.
TEST_F(LogTest, AValueCantBecomeALineOrAField) {
  EXPECT_THAT(logged("s", {{"MODEL", "a\nb"}}), EndsWith(" MODEL=a\\x0ab\n"));
  EXPECT_THAT(logged("s", {{"MODEL", R"(a" TENANT="root)"}}), EndsWith(R"( MODEL="a\" TENANT=\"root")"
                                                                       "\n"));
  EXPECT_THAT(logged("s", {{"MODEL", R"(a\)"}, {"B", ""}}), EndsWith(R"( MODEL="a\\" B="")"
                                                                     "\n"));
  EXPECT_THAT(logged("a\nb", {}), HasSubstr(" a\\x0ab\n"));
}

TEST_F(LogTest, WhatIsBelowTheLevelIsNotWritten) {
  set_log(LogTarget::stderr_text, LogLevel::warning);
  EXPECT_EQ(logged("s", {}), "");
}

}  // namespace
}  // namespace npud
