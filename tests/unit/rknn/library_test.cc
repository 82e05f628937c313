// SPDX-License-Identifier: Apache-2.0
#include "devices/rknn/library.h"

#include "rknn_models.h"

namespace npud::rknn {
namespace {

using test::FakeRuntime;

TEST(Library, that_is_missing_is_an_error_that_says_what_to_install) {
  const auto library = Library::open("librknnrt-that-nobody-has.so");
  ASSERT_FALSE(library);
  EXPECT_EQ(library.error().code, ErrorCode::not_found);
  for (const char* part : {"librknnrt-that-nobody-has.so", "RKNPU2", "devices.rknn.library"})
    EXPECT_TRUE(library.error().message.contains(part)) << library.error().message;
}

TEST(Library, that_is_something_else_is_refused_with_what_it_lacks) {
  const auto library = Library::open("libm.so.6");
  ASSERT_FALSE(library);
  EXPECT_EQ(library.error().code, ErrorCode::failed_precondition);
  EXPECT_TRUE(library.error().message.contains("rknn_init, rknn_destroy")) << library.error().message;
}

TEST(Library, that_is_too_old_is_refused_before_any_call) {
  FakeRuntime old("librknnrt_old.so");
  const auto library = Library::open(old.path());
  ASSERT_FALSE(library);
  EXPECT_EQ(library.error().code, ErrorCode::failed_precondition);
  EXPECT_TRUE(library.error().message.contains("1.4.0 (fake) is older than 1.5")) << library.error().message;
  EXPECT_EQ(old.calls("rknn_init"), 0);
}

TEST(Library, version_is_known_before_the_first_call) {
  FakeRuntime fake;
  const auto library = Library::open(fake.path());
  ASSERT_TRUE(library) << library.error().message;
  EXPECT_TRUE((*library)->versions().starts_with("librknnrt 2.3.2 (fake@2025-04-09T09:09:27), driver "))
      << (*library)->versions();
  EXPECT_EQ((*library)->path(), fake.path());
  EXPECT_NE((*library)->dup_context, nullptr);
}

TEST(Library, of_a_context_that_says_an_old_version_is_refused) {
  FakeRuntime fake;
  const auto library = Library::open(fake.path());
  ASSERT_TRUE(library);
  abi::SdkVersion told{};
  std::memset(&told, 'x', sizeof told);  // never ends
  EXPECT_TRUE((*library)->learn(told));
  std::strcpy(told.api, "1.3.0");
  EXPECT_FALSE((*library)->learn(told));
}

TEST(Library, names_every_code_and_invents_none) {
  EXPECT_EQ(status_name(0), "RKNN_SUCC (0)");
  EXPECT_EQ(status_name(-6), "RKNN_ERR_MODEL_INVALID (-6)");
  EXPECT_EQ(status_name(-13), "RKNN_ERR_TARGET_PLATFORM_UNMATCH (-13)");
  EXPECT_EQ(status_name(-14), "code -14");
  EXPECT_EQ(status_name(7), "code 7");
}

}  // namespace
}  // namespace npud::rknn
