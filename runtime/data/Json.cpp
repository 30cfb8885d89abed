//===- Json.cpp - JSON from files, and what is wrong with it -------------------------===//

#include "runtime/data/Json.h"
#include "runtime/data/File.h"
#include <algorithm>

using namespace mpc;
using nlohmann::json;

json mpc::parseJson(std::string_view text, const std::string &path, uint64_t offset) {
  constexpr size_t kShown = 20; // bytes before the one where it ends
  try {
    return json::parse(text);
  } catch (const json::parse_error &error) {
    // `byte` counts what was read, the end as one, too.
    size_t at = std::min(error.byte - std::min<size_t>(error.byte, 1), text.size());
    size_t from = at - std::min(at, kShown);
    throw JsonError(path + ": no JSON " +
                    (at == text.size() ? "where it ends, at byte " : "at byte ") +
                    std::to_string(offset + at) + ", the last of " +
                    quote(std::string(text.substr(from, at + 1 - from))));
  } catch (const json::exception &) { // of what is well-formed, nothing else is refused
    throw JsonError(path + ": a number that no double holds");
  }
}

bool JsonValue::has(const char *key) const {
  if (!value.is_object())
    fail("an object expected");
  auto it = value.find(key);
  return it != value.end() && !it->is_null();
}

JsonValue JsonValue::operator[](const char *key) const {
  if (!has(key))
    fail(std::string("'") + key + "' is missing");
  return JsonValue(*value.find(key), path + "." + key);
}

std::string JsonValue::string() const {
  if (!value.is_string())
    fail("a string expected");
  return value.get<std::string>();
}

bool JsonValue::boolean() const {
  if (!value.is_boolean())
    fail("true or false expected");
  return value.get<bool>();
}

int64_t JsonValue::integer(int64_t low, int64_t high) const {
  if (!value.is_number_integer())
    fail("an integer expected");
  bool big = value.is_number_unsigned() && value.get<uint64_t>() > uint64_t(INT64_MAX);
  int64_t number = big ? 0 : value.get<int64_t>();
  if (big || number < low || number > high)
    fail(value.dump() + " is out of range");
  return number;
}

uint64_t JsonValue::natural() const {
  if (!value.is_number_unsigned())
    fail("an integer from 0 on expected");
  return value.get<uint64_t>();
}

double JsonValue::real() const {
  if (!value.is_number())
    fail("a number expected");
  return value.get<double>();
}

std::vector<JsonValue> JsonValue::list() const {
  if (!value.is_array())
    fail("a list expected");
  std::vector<JsonValue> items;
  for (size_t i = 0; i < value.size(); ++i)
    items.emplace_back(value[i], path + "[" + std::to_string(i) + "]");
  return items;
}

std::vector<std::pair<std::string, JsonValue>> JsonValue::members() const {
  if (!value.is_object())
    fail("an object expected");
  std::vector<std::pair<std::string, JsonValue>> items;
  for (auto it = value.begin(); it != value.end(); ++it)
    items.emplace_back(it.key(), JsonValue(*it, path + "[" + quote(it.key()) + "]"));
  return items;
}

std::vector<int64_t> JsonValue::integers(int64_t low) const {
  std::vector<int64_t> numbers;
  for (const JsonValue &item : list())
    numbers.push_back(item.integer(low));
  return numbers;
}
