// SPDX-License-Identifier: Apache-2.0
#include "npud/npy.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <format>
#include <fstream>
#include <iterator>

namespace npud::client {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kMostDimensions = 32;  // NumPy's own bound
constexpr std::size_t kLongestHeader = 64 << 10;

std::unexpected<Error> refuse(std::string why) {
  return fail(Code::invalid_argument, "not an .npy file that can be used: " + std::move(why));
}

// The header is a Python literal: {'descr': '<f4', 'fortran_order': False, 'shape': (1, 3), }. Only that form, in any
// order.
class HeaderParser {
 public:
  explicit HeaderParser(std::string_view text) : rest_(text) {}

  struct Header {
    std::string descr;
    bool fortran_order = false;
    std::vector<std::int64_t> shape;
  };

  Result<Header> parse() {
    Header header;
    bool has_descr = false, has_order = false, has_shape = false;
    if (!take('{')) return refuse("its header is no dictionary");
    while (!take('}')) {
      auto key = quoted();
      if (!key || !take(':')) return refuse("its header has a malformed key");
      bool* seen = *key == "descr"           ? &has_descr
                   : *key == "fortran_order" ? &has_order
                   : *key == "shape"         ? &has_shape
                                             : nullptr;
      if (seen == nullptr) return refuse(std::format("its header has the unknown key '{}'", *key));
      if (*seen) return refuse(std::format("its header has the key '{}' twice", *key));
      *seen = true;
      if (seen == &has_descr) {
        auto descr = quoted();
        if (!descr) return refuse("its elements are no plain type (structures can't be sent)");
        header.descr = *descr;
      } else if (seen == &has_order) {
        if (word("True")) {
          header.fortran_order = true;
        } else if (!word("False")) {
          return refuse("fortran_order is neither True nor False");
        }
      } else if (!shape(header.shape)) {
        return refuse("its shape is malformed");
      }
      if (!take(',') && !at('}')) return refuse("its header is malformed");
    }
    skip_blanks();
    if (!rest_.empty()) return refuse("something follows its header's dictionary");
    if (!has_descr || !has_order || !has_shape) return refuse("its header lacks descr, fortran_order or shape");
    return header;
  }

 private:
  void skip_blanks() { rest_.remove_prefix(std::min(rest_.find_first_not_of(" \t\n"), rest_.size())); }
  bool at(char c) {
    skip_blanks();
    return rest_.starts_with(c);
  }
  bool take(char c) {
    if (!at(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }
  bool word(std::string_view wanted) {
    skip_blanks();
    if (!rest_.starts_with(wanted)) return false;
    rest_.remove_prefix(wanted.size());
    return true;
  }
  std::optional<std::string> quoted() {
    skip_blanks();
    if (rest_.empty() || (rest_[0] != '\'' && rest_[0] != '"')) return std::nullopt;
    std::size_t end = rest_.find(rest_[0], 1);
    if (end == std::string_view::npos) return std::nullopt;
    std::string text(rest_.substr(1, end - 1));
    if (text.find_first_of("\\\n") != std::string::npos) return std::nullopt;
    rest_.remove_prefix(end + 1);
    return text;
  }
  bool shape(std::vector<std::int64_t>& out) {
    if (!take('(')) return false;
    while (!take(')')) {
      skip_blanks();
      std::int64_t value = 0;
      auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
      if (error != std::errc() || value < 0 || out.size() == kMostDimensions) return false;
      rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
      out.push_back(value);
      if (rest_.starts_with('L')) rest_.remove_prefix(1);  // written by Python 2
      if (!take(',')) {
        // (3) without a comma is a number in Python, not a tuple.
        return out.size() > 1 && take(')');
      }
    }
    return true;
  }

  std::string_view rest_;
};

std::optional<DataType> plain_type(std::string_view descr) {
  if (descr.size() != 3) return std::nullopt;
  char order = descr[0];
  std::string_view kind = descr.substr(1);
  if (kind == "b1") return DataType::boolean;
  if (kind == "u1") return DataType::uint8;
  if (kind == "i1") return DataType::int8;
  if (order != '<') return std::nullopt;
  if (kind == "u2") return DataType::uint16;
  if (kind == "u4") return DataType::uint32;
  if (kind == "u8") return DataType::uint64;
  if (kind == "i2") return DataType::int16;
  if (kind == "i4") return DataType::int32;
  if (kind == "i8") return DataType::int64;
  if (kind == "f2") return DataType::fp16;
  if (kind == "f4") return DataType::fp32;
  if (kind == "f8") return DataType::fp64;
  return std::nullopt;
}

std::string_view descr_of(DataType type) {
  switch (type) {
    case DataType::boolean:
      return "|b1";
    case DataType::uint8:
      return "|u1";
    case DataType::int8:
      return "|i1";
    case DataType::bf16:
    case DataType::uint16:
      return "<u2";
    case DataType::uint32:
      return "<u4";
    case DataType::uint64:
      return "<u8";
    case DataType::int16:
      return "<i2";
    case DataType::int32:
      return "<i4";
    case DataType::int64:
      return "<i8";
    case DataType::fp16:
      return "<f2";
    case DataType::fp32:
      return "<f4";
    case DataType::fp64:
      return "<f8";
    case DataType::bytes:
      break;
  }
  return "";
}

// UTF-8 of one code point; false for what is none.
bool append_utf8(std::string& out, std::uint32_t c) {
  if (c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) return false;
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += {static_cast<char>(0xc0 | c >> 6), static_cast<char>(0x80 | (c & 0x3f))};
  } else if (c < 0x10000) {
    out += {static_cast<char>(0xe0 | c >> 12), static_cast<char>(0x80 | (c >> 6 & 0x3f)),
            static_cast<char>(0x80 | (c & 0x3f))};
  } else {
    out += {static_cast<char>(0xf0 | c >> 18), static_cast<char>(0x80 | (c >> 12 & 0x3f)),
            static_cast<char>(0x80 | (c >> 6 & 0x3f)), static_cast<char>(0x80 | (c & 0x3f))};
  }
  return true;
}

// '|S7' or '<U7': elements of a fixed number of characters, padded with zeros. Returns them as BYTES.
Result<Tensor> parse_strings(const HeaderParser::Header& header, std::uint64_t count, std::string_view data) {
  bool wide = header.descr[1] == 'U';
  std::uint64_t characters = 0;
  const char* end = header.descr.data() + header.descr.size();
  auto [stop, error] = std::from_chars(header.descr.data() + 2, end, characters);
  if (error != std::errc() || stop != end || characters > 1u << 30)
    return refuse(std::format("its type '{}' is malformed", header.descr));
  std::uint64_t width = characters * (wide ? 4 : 1);
  // count ≤ 2^48 and width ≤ 2^32: compare by division, the product may overflow. Elements of no width are bounded by
  // the header alone.
  if (width == 0 ? !data.empty() || count > 1u << 20 : data.size() % width != 0 || data.size() / width != count) {
    return refuse(std::format("{} elements of {} bytes don't make up its {} bytes of data", count, width, data.size()));
  }
  std::vector<std::string> values;
  values.reserve(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    std::string_view element = data.substr(i * width, width);
    std::string value;
    if (!wide) {
      value = element.substr(0, element.find_last_not_of('\0') + 1);
    } else {
      std::uint64_t length = characters;
      auto at = [&](std::uint64_t k) {
        std::uint32_t c = 0;
        std::memcpy(&c, element.data() + 4 * k, 4);
        return c;
      };
      while (length > 0 && at(length - 1) == 0) --length;
      for (std::uint64_t k = 0; k < length; ++k) {
        if (!append_utf8(value, at(k))) return refuse("a string in it is no valid Unicode");
      }
    }
    values.push_back(std::move(value));
  }
  return Tensor::of_strings("", header.shape, values);
}

}  // namespace

Result<Tensor> parse_npy(std::string_view file) {
  if (!file.starts_with(kMagic) || file.size() < 10) return refuse("it doesn't begin with NumPy's mark");
  auto major = static_cast<unsigned char>(file[6]);
  if (major < 1 || major > 3) return refuse(std::format("its format version {} is unknown", major));
  std::size_t length_bytes = major == 1 ? 2 : 4;
  if (file.size() < 8 + length_bytes) return refuse("it ends inside its header");
  std::size_t header_bytes = 0;
  for (std::size_t i = length_bytes; i-- > 0;)
    header_bytes = header_bytes << 8 | static_cast<unsigned char>(file[8 + i]);
  file.remove_prefix(8 + length_bytes);
  if (header_bytes > kLongestHeader) return refuse(std::format("its header claims {} bytes", header_bytes));
  if (file.size() < header_bytes) return refuse("it ends inside its header");
  auto header = HeaderParser(file.substr(0, header_bytes)).parse();
  if (!header) return std::unexpected(header.error());
  std::string_view data = file.substr(header_bytes);

  auto count = element_count(header->shape);
  if (!count) return refuse(count.error().message);
  if (header->fortran_order && header->shape.size() > 1) {
    return refuse("it is in Fortran order; save it with numpy.ascontiguousarray()");
  }
  if (header->descr.starts_with("|S") || header->descr.starts_with("<U")) return parse_strings(*header, *count, data);
  auto type = plain_type(header->descr);
  if (!type) {
    return refuse(std::format("its type '{}' has no counterpart in the protocol{}", header->descr,
                              header->descr.starts_with('>')
                                  ? " (big-endian; save it with .astype of a little-endian type)"
                              : header->descr == "|O" ? " (Python objects are never read)"
                                                      : ""));
  }
  if (data.size() != *count * data_type_size(*type)) {
    return refuse(std::format("{} elements of shape {} need {} bytes, it has {}", *count, shape_text(header->shape),
                              *count * data_type_size(*type), data.size()));
  }
  if (*type == DataType::boolean && std::ranges::any_of(data, [](char c) { return c != 0 && c != 1; })) {
    return refuse("a boolean in it is neither 0 nor 1");
  }
  return Tensor{"", *type, header->shape, std::string(data), {}};
}

Result<Tensor> read_npy(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  struct stat status{};
  if (!file || stat(path.c_str(), &status) != 0)
    return fail(Code::not_found, std::format("can't read {}: {}", path, std::strerror(errno)));
  if (S_ISDIR(status.st_mode)) return fail(Code::invalid_argument, std::format("{} is a directory", path));
  std::string content(std::istreambuf_iterator<char>(file), {});
  auto tensor = parse_npy(content);
  if (!tensor) tensor.error().message = std::format("{}: {}", path, tensor.error().message);
  return tensor;
}

Result<std::string> format_npy(const Tensor& tensor) {
  auto count = element_count(tensor.shape);
  if (!count) return std::unexpected(count.error());
  std::string descr(descr_of(tensor.type));
  std::string data;
  if (tensor.type == DataType::bytes) {
    auto values = tensor.strings();
    if (!values) return std::unexpected(values.error());
    if (values->size() != *count)
      return fail(Code::invalid_argument, std::format("tensor '{}' has {} strings for shape {}", tensor.name,
                                                      values->size(), shape_text(tensor.shape)));
    std::size_t longest = 1;
    for (const std::string& value : *values) {
      if (value.ends_with('\0'))
        return fail(Code::invalid_argument,
                    std::format("a string of tensor '{}' ends with a zero byte, which .npy can't hold", tensor.name));
      longest = std::max(longest, value.size());
    }
    descr = std::format("|S{}", longest);
    for (std::string& value : *values) {
      value.resize(longest, '\0');
      data += value;
    }
  } else if (tensor.data.size() != *count * data_type_size(tensor.type)) {
    return fail(Code::invalid_argument, std::format("tensor '{}' of shape {} has {} bytes", tensor.name,
                                                    shape_text(tensor.shape), tensor.data.size()));
  }
  std::string shape = "(";
  for (std::size_t i = 0; i < tensor.shape.size(); ++i)
    shape += std::format("{}{}", i == 0 ? "" : ", ", tensor.shape[i]);
  shape += tensor.shape.size() == 1 ? ",)" : ")";
  std::string header = std::format("{{'descr': '{}', 'fortran_order': False, 'shape': {}, }}", descr, shape);
  header.append(63 - (header.size() + 10) % 64, ' ');
  header += '\n';
  std::string file(kMagic);
  file += {'\x01', '\x00', static_cast<char>(header.size() & 0xff), static_cast<char>(header.size() >> 8)};
  file += header;
  file += tensor.type == DataType::bytes ? data : tensor.data;
  return file;
}

Result<> write_npy(const std::string& path, const Tensor& tensor) {
  auto content = format_npy(tensor);
  if (!content) return std::unexpected(content.error());
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(content->data(), static_cast<std::streamsize>(content->size()));
  file.close();
  if (!file) return fail(Code::unavailable, std::format("can't write {}: {}", path, std::strerror(errno)));
  return {};
}

}  // namespace npud::client
