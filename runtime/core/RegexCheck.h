//===- RegexCheck.h - whether a user's regular expression can be used ------------------------===//

#ifndef MPC_RUNTIME_CORE_REGEXCHECK_H
#define MPC_RUNTIME_CORE_REGEXCHECK_H

#include <algorithm>
#include <cstdlib>
#include <regex.h>
#include <string>

namespace mpc {

/// What is wrong with a POSIX extended regular expression, or nothing. The C library writes every
/// repetition out: `((a{1,255}){1,255}){1,255}` takes gigabytes, so the product of all repetitions
/// is limited first.
inline std::string regexProblem(const std::string &text) {
  constexpr double kMostCopies = 10000;
  double copies = 1;
  for (size_t at = text.find('{'); at != std::string::npos; at = text.find('{', at + 1)) {
    size_t end = text.find('}', at), comma = text.find(',', at);
    size_t last = comma < end ? comma + 1 : at + 1; // the upper bound, where there is one
    copies *= std::max(1.0, std::strtod(text.c_str() + last, nullptr));
    if (comma + 1 == end)
      copies *= std::max(1.0, std::strtod(text.c_str() + at + 1, nullptr));
  }
  if (!(copies <= kMostCopies))
    return "its repetitions multiply to more than 10000";
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
