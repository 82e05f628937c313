// SPDX-License-Identifier: Apache-2.0
// Reads one TOML file into a Config. Every key is taken from the parsed table; what is left at the end is unknown.
#include <charconv>
#include <format>
#include <optional>

#include <toml++/toml.hpp>

#include "service/config_schema.h"

namespace npud {
namespace {

std::string kind_of(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::table:
      return "a table";
    case toml::node_type::array:
      return "a list";
    case toml::node_type::string:
      return "a string";
    case toml::node_type::integer:
      return "an integer";
    case toml::node_type::floating_point:
      return "a number with a fraction";
    case toml::node_type::boolean:
      return "true or false";
    default:
      return "a date or time";
  }
}

// "64 MiB" → bytes.
std::optional<std::uint64_t> bytes_from_text(std::string_view text) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{}) {
    return std::nullopt;
  }
  std::string_view unit(end, text.data() + text.size());
  while (unit.starts_with(' ')) unit.remove_prefix(1);
  unsigned shift = 0;
  if (unit == "KiB")
    shift = 10;
  else if (unit == "MiB")
    shift = 20;
  else if (unit == "GiB")
    shift = 30;
  else if (unit == "TiB")
    shift = 40;
  else if (!unit.empty() && unit != "B")
    return std::nullopt;
  if (number > (~0ull >> shift)) {
    return std::nullopt;
  }
  return number << shift;
}

// Whether a section, or one that contains sections, has the name.
struct SectionNames {
  std::string_view wanted;
  bool found = false;
  bool section(std::string_view s) {
    found = found || s == wanted || (s.starts_with(wanted) && s[wanted.size()] == '.');
    return false;
  }
  template <class T>
  void value(std::string_view, T&&) {}
  void tenants(std::vector<TenantConfig>&) {}
};

class Reader {
 public:
  Reader(toml::table& root, std::string name) : root_(root), name_(std::move(name)) {}

  bool section(std::string_view name) {
    section_ = name;
    table_ = &root_;
    for (std::string_view rest = name; !rest.empty() && table_ != nullptr;) {
      const auto dot = rest.find('.');
      const std::string_view part = rest.substr(0, dot);
      rest = dot == std::string_view::npos ? std::string_view{} : rest.substr(dot + 1);
      toml::node* node = table_->get(part);
      if (node != nullptr && !node->is_table()) {
        complain(*node, std::format("{} is {}; it must be a table: [{}]", part, kind_of(*node), name));
        node = nullptr;
      }
      table_ = node == nullptr ? nullptr : node->as_table();
    }
    return table_ != nullptr && !error_;
  }

  void value(std::string_view key, std::string& out) {
    take(key, "a string", [&](toml::node& node) { return assign(node.value_exact<std::string>(), out); });
  }
  void value(std::string_view key, bool& out) {
    take(key, "true or false", [&](toml::node& node) { return assign(node.value_exact<bool>(), out); });
  }
  void value(std::string_view key, const Count& out) {
    take(key, std::format("an integer from {} to {}", out.min, out.max), [&](toml::node& node) {
      const auto v = node.value_exact<std::int64_t>();
      return v && *v >= out.min && *v <= out.max && (out.value = static_cast<std::uint32_t>(*v), true);
    });
  }
  void value(std::string_view key, const Millis& out) {
    take(key, std::format("an integer of milliseconds from {} to {}", out.min, out.max), [&](toml::node& node) {
      const auto v = node.value_exact<std::int64_t>();
      return v && *v >= out.min && *v <= out.max && (out.value = std::chrono::milliseconds(*v), true);
    });
  }
  void value(std::string_view key, const Bytes& out) {
    take(key, std::format("bytes from {} to {}, as an integer or a string such as \"64 MiB\"", out.min, out.max),
         [&](toml::node& node) {
           std::optional<std::uint64_t> v;
           if (const auto number = node.value_exact<std::int64_t>(); number && *number >= 0) {
             v = static_cast<std::uint64_t>(*number);
           } else if (const auto text = node.value_exact<std::string>()) {
             v = bytes_from_text(*text);
           }
           return v && *v >= out.min && *v <= out.max && (out.value = *v, true);
         });
  }
  void value(std::string_view key, const Choice& out) {
    std::string wanted;
    for (std::string_view choice : out.choices) {
      wanted += std::format("{}\"{}\"", wanted.empty() ? "" : ", ", choice);
    }
    take(key, "one of " + wanted, [&](toml::node& node) {
      const auto v = node.value_exact<std::string>();
      for (std::string_view choice : out.choices) {
        if (v && *v == choice) {
          out.value = *v;
          return true;
        }
      }
      return false;
    });
  }
  void value(std::string_view key, LogTarget& out) {
    take(key, "one of \"auto\", \"journal\", \"stderr\"", [&](toml::node& node) {
      const auto v = log_target_from_name(node.value_or(std::string{}));
      return v && (out = *v, true);
    });
  }
  void value(std::string_view key, LogLevel& out) {
    take(key, "one of \"error\", \"warning\", \"notice\", \"info\", \"debug\"", [&](toml::node& node) {
      const auto v = log_level_from_name(node.value_or(std::string{}));
      return v && (out = *v, true);
    });
  }
  void value(std::string_view key, std::vector<std::string>& out) {
    take(key, "a list of strings", [&](toml::node& node) {
      return list<std::string>(node, out, [](std::string s) { return std::optional(std::move(s)); });
    });
  }
  void value(std::string_view key, std::vector<uid_t>& out) {
    take(key, "a list of user ids (numbers)", [&](toml::node& node) {
      return list<std::int64_t>(node, out, [](std::int64_t v) {
        return v >= 0 && v < 0xffffffffll ? std::optional(static_cast<uid_t>(v)) : std::nullopt;
      });
    });
  }

  // A [[tenant]] whose name is known already (from an earlier file) changes that one.
  void tenants(std::vector<TenantConfig>& tenants) {
    toml::node* node = root_.get("tenant");
    if (node == nullptr || error_) {
      return;
    }
    toml::array* list = node->as_array();
    if (list == nullptr) {
      return complain(*node, "tenant must be written as [[tenant]], once for each");
    }
    for (toml::node& item : *list) {
      table_ = item.as_table();
      section_ = "tenant";
      if (table_ == nullptr) {
        return complain(item, "tenant must be written as [[tenant]], once for each");
      }
      const std::string name = (*table_)["name"].value_or(std::string{});
      if (name.empty()) {
        return complain(item, "this [[tenant]] has no name: add name = \"…\"");
      }
      auto known = std::ranges::find(tenants, name, &TenantConfig::name);
      if (known == tenants.end()) {
        known = tenants.insert(known, TenantConfig{});
      }
      visit_tenant(*this, *known);
      unknown_keys(*table_, "tenant");
    }
    root_.erase("tenant");
  }

  Result<> finish() {
    unknown_keys(root_, "");
    if (error_) {
      return fail(ErrorCode::invalid_argument, *error_);
    }
    return {};
  }

 private:
  template <class T, class U>
  static bool assign(std::optional<T> from, U& to) {
    if (from) to = std::move(*from);
    return from.has_value();
  }

  template <class T, class U, class Convert>
  static bool list(toml::node& node, std::vector<U>& out, Convert convert) {
    toml::array* array = node.as_array();
    if (array == nullptr) {
      return false;
    }
    std::vector<U> values;
    for (toml::node& item : *array) {
      auto raw = item.value_exact<T>();
      auto value = raw ? convert(std::move(*raw)) : std::nullopt;
      if (!value) {
        return false;
      }
      values.push_back(std::move(*value));
    }
    out = std::move(values);
    return true;
  }

  template <class Parse>
  void take(std::string_view key, const std::string& expected, Parse parse) {
    toml::node* node = table_ == nullptr || error_ ? nullptr : table_->get(key);
    if (node == nullptr) {
      return;
    }
    if (!parse(*node)) {
      return complain(
          *node, std::format("{}.{} is {} that doesn't fit: expected {}", section_, key, kind_of(*node), expected));
    }
    table_->erase(key);
  }

  // Tables that are empty by now were sections; anything else was read by nobody.
  void unknown_keys(const toml::table& table, const std::string& path) {
    for (const auto& [key, node] : table) {
      const std::string name = path.empty() ? std::string(key.str()) : std::format("{}.{}", path, key.str());
      if (const toml::table* inner = node.as_table(); inner != nullptr && known_section(name)) {
        unknown_keys(*inner, name);
      } else {
        complain(key.source(), std::format("unknown key {}; npud.toml(5) lists the known ones", name));
      }
    }
  }

  static bool known_section(std::string_view name) {
    SectionNames names{name};
    Config scratch;
    visit_config(names, scratch);
    return names.found;
  }

  void complain(const toml::node& node, const std::string& what) { complain(node.source(), what); }
  void complain(const toml::source_region& at, const std::string& what) {
    if (!error_) {  // the first is enough; the next ones often follow from it
      error_ = std::format("{}:{}:{}: {}", name_, at.begin.line, at.begin.column, what);
    }
  }

  toml::table& root_;
  std::string name_;
  std::string section_;
  toml::table* table_ = nullptr;
  std::optional<std::string> error_;
};

}  // namespace

Result<> apply_config_text(Config& config, std::string_view text, const std::string& name) {
  toml::table root;
  try {
    root = toml::parse(text, name);
  } catch (const toml::parse_error& error) {
    return fail(ErrorCode::invalid_argument, std::format("{}:{}:{}: {}", name, error.source().begin.line,
                                                         error.source().begin.column, error.description()));
  }
  Config changed = config;
  Reader reader(root, name);
  visit_config(reader, changed);
  if (auto finished = reader.finish(); !finished) {
    return finished;
  }
  config = std::move(changed);
  return {};
}

}  // namespace npud
