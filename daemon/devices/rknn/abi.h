// SPDX-License-Identifier: Apache-2.0
// The C interface of Rockchip's runtime (librknnrt, RKNPU2), as far as npud calls it, in declarations of our own:
// layout, numbers and names are the library's, and nothing of its header is needed to build. Compared with the
// rknn_api.h that airockchip/rknn_model_zoo publishes (3rdparty/rknpu2/include, 1.5 and 2.x) and, for the sizes, with
// the layout assertions of two independent bindings. For 64-bit targets: there a context is 64 bits wide.
#pragma once

#include <cstddef>
#include <cstdint>

namespace npud::rknn::abi {

using Context = std::uint64_t;  // rknn_context; never 0 once made

// rknn_init's flags.
constexpr std::uint32_t kFlagCollectModelInfoOnly = 0x100;  // nothing is allocated; only kQueryMemSize can be asked

enum Status : int {  // RKNN_SUCC, RKNN_ERR_…
  kSuccess = 0,
  kFail = -1,
  kTimeout = -2,
  kDeviceUnavailable = -3,
  kMallocFail = -4,
  kParamInvalid = -5,
  kModelInvalid = -6,
  kContextInvalid = -7,
  kInputInvalid = -8,
  kOutputInvalid = -9,
  kDeviceUnmatch = -10,
  kIncompatiblePreCompileModel = -11,
  kIncompatibleOptimizationLevel = -12,
  kTargetPlatformUnmatch = -13,
};

enum Query : int {  // RKNN_QUERY_…
  kQueryInOutNum = 0,
  kQueryInputAttr = 1,
  kQueryOutputAttr = 2,
  kQuerySdkVersion = 5,
  kQueryMemSize = 6,
};

enum Type : int {  // RKNN_TENSOR_…
  kFloat32 = 0,
  kFloat16 = 1,
  kInt8 = 2,
  kUint8 = 3,
  kInt16 = 4,
  kUint16 = 5,
  kInt32 = 6,
  kUint32 = 7,
  kInt64 = 8,
  kBool = 9,
  kInt4 = 10,
  kBfloat16 = 11,
};

enum Format : int { kNchw = 0, kNhwc = 1, kNc1hwc2 = 2, kUndefined = 3 };
enum Quantisation : int { kQntNone = 0, kQntDfp = 1, kQntAffineAsymmetric = 2 };

constexpr std::uint32_t kMaxDims = 16;
constexpr std::size_t kMaxName = 256;

struct InOutNum {
  std::uint32_t inputs, outputs;
};

struct TensorAttr {
  std::uint32_t index;  // set before it is asked
  std::uint32_t n_dims;
  std::uint32_t dims[kMaxDims];
  char name[kMaxName];
  std::uint32_t n_elems;
  std::uint32_t size;  // bytes
  int fmt, type, qnt_type;
  std::int8_t fl;  // fractional bits with kQntDfp
  std::int32_t zp;
  float scale;
  std::uint32_t w_stride, size_with_stride;
  std::uint8_t pass_through;
  std::uint32_t h_stride;
};

struct SdkVersion {
  char api[256], driver[256];
};

struct MemSize {
  std::uint32_t weight_bytes;
  std::uint32_t internal_bytes;  // without inputs and outputs
  std::uint64_t dma_bytes;       // all that was allocated
  std::uint32_t sram_bytes, free_sram_bytes;
  std::uint32_t reserved[10];
};

struct Input {
  std::uint32_t index;
  void* buf;
  std::uint32_t size;
  std::uint8_t pass_through;  // 0: converted from `type` and `fmt` to what the model takes
  int type, fmt;
};

struct Output {
  std::uint8_t want_float;
  std::uint8_t is_prealloc;  // `buf` and `size` are ours
  std::uint32_t index;
  void* buf;
  std::uint32_t size;
};

// What a runtime checks: rknn_query refuses other sizes.
static_assert(sizeof(void*) == 8, "the interface of 32-bit runtimes is laid out otherwise");
static_assert(sizeof(InOutNum) == 8);
static_assert(sizeof(TensorAttr) == 376 && offsetof(TensorAttr, name) == 72 && offsetof(TensorAttr, fl) == 348 &&
              offsetof(TensorAttr, scale) == 356 && offsetof(TensorAttr, h_stride) == 372);
static_assert(sizeof(SdkVersion) == 512);
static_assert(sizeof(MemSize) == 64 && offsetof(MemSize, dma_bytes) == 8);
static_assert(sizeof(Input) == 32 && offsetof(Input, pass_through) == 20 && offsetof(Input, fmt) == 28);
static_assert(sizeof(Output) == 24 && offsetof(Output, buf) == 8);

// The last arguments of the first three are extensions that npud has no use for: null.
using InitFunction = int(Context*, void* model, std::uint32_t size, std::uint32_t flags, void* extend);
using RunFunction = int(Context, void* extend);
using OutputsGetFunction = int(Context, std::uint32_t count, Output*, void* extend);
using DestroyFunction = int(Context);
using DupContextFunction = int(Context* from, Context* to);
using QueryFunction = int(Context, int query, void* info, std::uint32_t size);
using InputsSetFunction = int(Context, std::uint32_t count, Input*);
using OutputsReleaseFunction = int(Context, std::uint32_t count, Output*);
using SetCoreMaskFunction = int(Context, int mask);

}  // namespace npud::rknn::abi
