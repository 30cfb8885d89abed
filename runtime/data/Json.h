//===- Json.h - JSON from files, and what is wrong with it ---------------------------===//
//
// A table in a program, a checkpoint's header: text that was written by our own tools, and may have
// been damaged or made by hand since. What is wrong is told in words of our own, by the place, with
// whatever a terminal would obey escaped.
//
//===----------------------------------------------------------------------------===//

#ifndef MPC_RUNTIME_DATA_JSON_H
#define MPC_RUNTIME_DATA_JSON_H

#include "runtime/core/Error.h"
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mpc {

/// "PATH: what is wrong there".
struct JsonError : Error {
  using Error::Error;
};

/// Throws JsonError, with the byte at which `text` is no JSON; `offset` is the text's own in what
/// the user sees.
nlohmann::json parseJson(std::string_view text, const std::string &path, uint64_t offset = 0);

/// A JSON value and the way to it, for messages. It throws JsonError where the value, or a member,
/// is another than what is asked for. The value has to outlive it.
class JsonValue {
public:
  JsonValue(const nlohmann::json &value, std::string path) : value(value), path(std::move(path)) {}

  [[noreturn]] void fail(const std::string &why) const { throw JsonError(path + ": " + why); }

  /// Whether the object has a member of that name, which is not null.
  bool has(const char *key) const;
  JsonValue operator[](const char *key) const;

  std::string string() const;
  bool boolean() const;
  int64_t integer(int64_t low = INT64_MIN, int64_t high = INT64_MAX) const;
  uint64_t natural() const;
  double real() const;
  std::vector<JsonValue> list() const;
  std::vector<std::pair<std::string, JsonValue>> members() const;
  std::vector<int64_t> integers(int64_t low = INT64_MIN) const;

  // Members that may be left out.
  std::string text(const char *key) const { return has(key) ? (*this)[key].string() : ""; }
  bool flag(const char *key) const { return has(key) && (*this)[key].boolean(); }
  int64_t number(const char *key, int64_t otherwise) const {
    return has(key) ? (*this)[key].integer() : otherwise;
  }
  std::vector<int64_t> numbers(const char *key, int64_t low = INT64_MIN) const {
    return has(key) ? (*this)[key].integers(low) : std::vector<int64_t>();
  }

  const nlohmann::json &value;
  std::string path;
};

} // namespace mpc

#endif // MPC_RUNTIME_DATA_JSON_H
