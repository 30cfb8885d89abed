//===- RegexCheck.h - whether a user's regular expression can be used ------------------------===//

#ifndef MPC_RUNTIME_CORE_REGEXCHECK_H
#define MPC_RUNTIME_CORE_REGEXCHECK_H

#include <algorithm>
#include <cstdlib>
#include <regex.h>
#include <string>
#include <vector>

namespace mpc {

/// The place of the ']' that closes the set of characters which begins at `at`: none that comes
/// first, nor one within [:alpha:], [=a=] or [.a.].
inline size_t endOfSet(const std::string &text, size_t at) {
  at += 1 + (text.compare(at + 1, 1, "^") == 0);
  for (size_t first = at; at < text.size(); ++at) {
    if (text[at] == ']' && at != first)
      return at;
    char kind = text[at] == '[' && at + 1 < text.size() ? text[at + 1] : '\0';
    if (kind == ':' || kind == '=' || kind == '.')
      at = std::min(text.find(std::string{kind, ']'}, at + 2), text.size()) + 1;
  }
  return text.size();
}

/// How large the C library makes an expression, and how deep it nests: it writes every repetition
/// out (`a{9}` is nine a, `a+` two), and follows parentheses by recursion.
struct RegexExtent {
  double size = 0;
  size_t depth = 0;

  explicit RegexExtent(const std::string &text) {
    std::vector<double> open(1); // the size of every group that is not closed yet
    double last = 0;             // of the piece that a repetition would repeat
    auto append = [&](double piece) { open.back() += last = piece; };
    auto repeat = [&](double times) {
      open.back() += last * (times - 1);
      last *= times;
    };
    for (size_t at = 0; at < text.size(); ++at) {
      switch (text[at]) {
      case '(':
        open.push_back(0);
        depth = std::max(depth, open.size());
        break;
      case ')':
        if (open.size() > 1) {
          double group = open.back() + 1;
          open.pop_back();
          append(group);
        }
        break;
      case '[':
        at = endOfSet(text, at);
        append(1);
        break;
      case '+':
        repeat(2);
        break;
      case '{': {
        size_t end = std::min(text.find('}', at), text.size()), comma = text.find(',', at);
        auto number = [&](size_t from) { return std::strtod(text.c_str() + from, nullptr); };
        double least = number(at + 1);
        bool hasMost = comma < end && comma + 1 != end;
        // `a{3,}` is three a and a starred one.
        repeat(std::max(1.0, hasMost ? number(comma + 1) : least + (comma < end)));
        at = end;
        break;
      }
      case '*':
      case '?':
        break;
      case '\\':
        ++at;
        append(1);
        break;
      default:
        append(1);
      }
    }
    for (double group : open)
      size += group;
  }
};

/// What is wrong with a POSIX extended regular expression, or nothing. What would take the C
/// library gigabytes or the stack is refused before it sees it.
inline std::string regexProblem(const std::string &text) {
  constexpr double kLargest = 10000;
  constexpr size_t kDeepest = 200;
  RegexExtent extent(text);
  if (!(extent.size <= std::max(kLargest, double(text.size()))))
    return "its repetitions, written out, are longer than 10000 characters";
  if (extent.depth > kDeepest)
    return "its parentheses are nested deeper than 200";
  regex_t compiled;
  int code = regcomp(&compiled, text.c_str(), REG_EXTENDED | REG_NOSUB);
  if (code == 0) {
    regfree(&compiled);
    return "";
  }
  char why[256];
  regerror(code, &compiled, why, sizeof why);
  return why;
}

} // namespace mpc

#endif // MPC_RUNTIME_CORE_REGEXCHECK_H
