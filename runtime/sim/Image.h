/*===- Image.h - between simulated kernels and the simulator ------------------------------===
 *
 * An image for the simulator is a shared object that the compiler made of the kernels' LLVM IR
 * (compiler/target/cuda/SimulatorImage.cpp). It calls the functions below, which the simulator's
 * libcuda.so.1 defines, for whatever belongs to the hardware of a GPU. All of them are about the
 * thread of the grid that runs now.
 *
 *===--------------------------------------------------------------------------------------===*/

#ifndef MPC_RUNTIME_SIM_IMAGE_H
#define MPC_RUNTIME_SIM_IMAGE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An entry of the image's symbol mpc_sim_kernels; the last one has no name. */
typedef struct {
  const char *name;
  void (*function)(void **parameters); /* parameters[i] points to argument i */
  uint32_t parameters;                 /* how many there are */
  uint32_t synchronizes;               /* has barriers, shuffles or votes */
  uint32_t shared_bytes;               /* static shared memory of a block */
  uint32_t threads;                    /* that a block must have; 0: any number */
  const uint32_t *parameter_bytes;     /* of each; null: pointers all */
} MpcSimKernel;

uint32_t mpc_sim_tid_x(void), mpc_sim_tid_y(void), mpc_sim_tid_z(void);
uint32_t mpc_sim_ctaid_x(void), mpc_sim_ctaid_y(void), mpc_sim_ctaid_z(void);

/* Waits for all threads of the block. */
void mpc_sim_barrier(void);

/* Exchange inside the warp: the value of lane (own ^ lane) or of lane `lane`. Waits for the lanes
 * of the mask. */
enum { MPC_SIM_BUTTERFLY = 0, MPC_SIM_INDEX = 1 };
uint32_t mpc_sim_shuffle(uint32_t kind, uint32_t mask, uint32_t value, uint32_t lane);
/* Bit l: the predicate of lane l. Waits for the lanes of the mask. */
uint32_t mpc_sim_ballot(uint32_t mask, uint32_t predicate);

/* Waits for the lanes of the mask; what they did before is seen by all of them. */
void mpc_sim_warp_barrier(uint32_t mask);

/* Tensor cores: d = a · b + c of the whole warp, with f32 sums (PTX: mma.sync). `words` are this
 * lane's, of two halves or one f32:
 *
 *   m16n8k16   a 16×16 (4 words), b 16×8 (2), c and d 16×8 (4)
 *   m16n8k8    a 16×8 (2), b 8×8 (1), c and d 16×8 (4)                             f16
 *   m8n8k4     four products: a 8×4 (2), b 4×8 (2), c and d 8×8 (8)                f16
 *              + MPC_SIM_COLUMN_A: a's columns are one behind the other, not its rows;
 *              + MPC_SIM_ROW_B: b's rows are, not its columns
 *
 * The first words become d. Sums are taken in f32 in the order of the depth. */
enum {
  MPC_SIM_M16N8K16_F16 = 0,
  MPC_SIM_M16N8K16_BF16 = 1,
  MPC_SIM_M16N8K8 = 2,
  MPC_SIM_COLUMN_A = 1,
  MPC_SIM_ROW_B = 2,
  MPC_SIM_M8N8K4 = 4
};
void mpc_sim_multiply(uint32_t kind, uint32_t *words);
/* Four 8×8 matrices of halves from shared memory (PTX: ldmatrix, x4): lane l has the address of row
 * l mod 8 of matrix l / 8, and gets two neighbors of a row of each matrix, or of a column. */
void mpc_sim_load_matrices(uint32_t transposed, const void *row, uint32_t *words);

/* The block's static shared memory. */
void *mpc_sim_shared(void);

/* Before every load (is_store = 0) and store. Stops the kernel with an error where the bytes belong
 * to no live allocation, block memory or, of a load, parameter, where the address is no multiple of
 * the alignment that the code counts on, or where two threads touch the same byte with nothing that
 * orders them and one of them writes. */
void mpc_sim_access(const void *address, uint32_t bytes, uint32_t is_store, uint32_t alignment);

/* To the nearest bf16, ties to even, as a GPU does it; NaN stays NaN. (An x86-64 CPU has no
 * instruction that keeps subnormal numbers.) */
uint16_t mpc_sim_round_bf16(float value);

#ifdef __cplusplus
}
#endif

#endif /* MPC_RUNTIME_SIM_IMAGE_H */
