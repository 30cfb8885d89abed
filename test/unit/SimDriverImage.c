/*===- SimDriverImage.c - kernels for the tests of the simulated driver ---------------------===
 *
 * What the compiler makes of its kernels, by hand (runtime/sim/Image.h).
 *
 *===--------------------------------------------------------------------------------------===*/

#include "runtime/sim/Image.h"

static uint32_t *argument(void **parameters, int i) { return *(uint32_t **)parameters[i]; }

static uint32_t load(const uint32_t *address) {
  mpc_sim_access(address, sizeof *address, 0, sizeof *address);
  return *address;
}

static void store(uint32_t *address, uint32_t value) {
  mpc_sim_access(address, sizeof *address, 1, sizeof *address);
  *address = value;
}

static uint32_t thread(void) { return mpc_sim_ctaid_x() * 32 + mpc_sim_tid_x(); }

static void addOne(void **parameters) {
  uint32_t *own = argument(parameters, 0) + thread();
  store(own, load(own) + 1);
}

static void copy(void **parameters) {
  store(argument(parameters, 0) + thread(), load(argument(parameters, 1) + thread()));
}

/* Blocks of 64 threads. */
static void reverse(void **parameters) {
  uint32_t *data = argument(parameters, 0), *shared = (uint32_t *)mpc_sim_shared();
  uint32_t own = mpc_sim_tid_x();
  store(shared + own, load(data + own));
  mpc_sim_barrier();
  store(data + own, load(shared + 63 - own));
}

/* Every other element. */
static void sparse(void **parameters) { store(argument(parameters, 0) + 2 * thread(), 7); }

static void allWriteFirst(void **parameters) { store(argument(parameters, 0), thread()); }

/* Beside a pointer a structure by value: a block's index into the data, and what it stores there.
 */
typedef struct {
  uint32_t at, value;
} Record;
static const uint32_t kScatterBytes[] = {sizeof(void *), 3 * sizeof(Record)};
static void scatter(void **parameters) {
  const Record *own = (const Record *)parameters[1] + mpc_sim_ctaid_x();
  if (mpc_sim_tid_x() == 0)
    store(argument(parameters, 0) + load(&own->at), load(&own->value));
}

static void nothing(void **parameters) { (void)parameters; }

const MpcSimKernel mpc_sim_kernels[] = {
    {"addOne", addOne, 1, 0, 0, 0, 0},
    {"copy", copy, 2, 0, 0, 0, 0},
    {"reverse", reverse, 1, 1, 256, 64, 0},
    {"sparse", sparse, 1, 0, 0, 0, 0},
    {"allWriteFirst", allWriteFirst, 1, 0, 0, 0, 0},
    {"scatter", scatter, 2, 0, 0, 0, kScatterBytes},
    {"nothing", nothing, 0, 0, 0, 0, 0},
    {0, 0, 0, 0, 0, 0, 0},
};
