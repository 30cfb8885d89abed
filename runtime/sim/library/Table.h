//===- Table.h - the objects of a simulated library -----------------------------------===//
//
// As in the simulated driver, handles are numbers that are looked up, never pointers, so that a
// dead one is always recognized.
//
//===----------------------------------------------------------------------------------===//

#ifndef MPC_RUNTIME_SIM_LIBRARY_TABLE_H
#define MPC_RUNTIME_SIM_LIBRARY_TABLE_H

#include <bit>
#include <cstdint>
#include <unordered_map>

namespace mpc::sim {

/// The live objects of a kind.
template <typename Opaque, typename T> class LibraryTable {
public:
  Opaque add(const T &object) {
    auto handle = std::bit_cast<Opaque>(last += 64);
    objects.emplace(handle, object);
    return handle;
  }
  /// Null for what is no live object.
  T *find(Opaque handle) {
    auto found = objects.find(handle);
    return found == objects.end() ? nullptr : &found->second;
  }
  bool remove(Opaque handle) { return objects.erase(handle) != 0; }

private:
  std::unordered_map<Opaque, T> objects;
  uintptr_t last = uintptr_t(1) << 61; // an address that no process has
};

} // namespace mpc::sim

#endif // MPC_RUNTIME_SIM_LIBRARY_TABLE_H
