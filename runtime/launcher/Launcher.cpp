//===- Launcher.cpp - the program that a bundle's user starts ---------------------------===//
//
// A bundle is FOLDER/NAME, this program, and FOLDER/lib with the trainer, NAME.trainer, and the
// shared libraries it needs. The trainer looks for them in $ORIGIN, which the loader takes from
// /proc/self/exe: without /proc (a chroot, an early boot) it finds none of them and ends before a
// line of the trainer has run. Only the loader's variable LD_ORIGIN_PATH helps then, so something
// has to set it: this program, which needs nothing but the C library.
//
//===------------------------------------------------------------------------------------===//

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/auxv.h>
#include <unistd.h>

int main(int argc, char **argv) {
  const char *name = argc > 0 ? argv[0] : "trainer";
  // Where this program may lie, the surest first. /proc is not always there, and if a loader was
  // asked to run this program, the first two are the loader's path.
  const char *candidates[] = {"/proc/self/exe",
                              reinterpret_cast<const char *>(getauxval(AT_EXECFN)), name};
  char self[PATH_MAX], library[PATH_MAX], trainer[PATH_MAX];
  for (const char *candidate : candidates) {
    if (!candidate || !realpath(candidate, self))
      continue;
    char *slash = std::strrchr(self, '/');
    *slash = 0;
    int length = std::snprintf(library, sizeof library, "%s/lib", self);
    if (length < 0 || length >= PATH_MAX)
      continue;
    length = std::snprintf(trainer, sizeof trainer, "%s/%s.trainer", library, slash + 1);
    if (length < 0 || length >= PATH_MAX || access(trainer, F_OK) != 0)
      continue;
    if (setenv("LD_ORIGIN_PATH", library, 1) == 0)
      execv(trainer, argv);
    std::fprintf(stderr, "%s: error: cannot start '%s': %s\n", name, trainer, std::strerror(errno));
    return 1;
  }
  std::fprintf(stderr,
               "%s: error: the folder 'lib' with this program's libraries is not beside it; copy "
               "the whole bundle, and leave the names in it as they are\n",
               name);
  return 1;
}
