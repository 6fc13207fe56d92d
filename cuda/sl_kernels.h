/* cuda/sl_kernels.h - names and launch shape of the kernels in kernels.cu. */
#ifndef SL_KERNELS_H
#define SL_KERNELS_H

#include "cuda/sl_digest_runs_body.h"

#define SL_KERNEL_GATHER    "sl_gather_kernel"    /* one argument: struct sl_swap */
#define SL_KERNEL_SCATTER   "sl_scatter_kernel"   /* the same */
#define SL_KERNEL_HASH      "sl_hash_kernel"      /* one argument: struct sl_hash_job */
#define SL_KERNEL_HASH_RUNS "sl_hash_runs_kernel" /* the same: for blocks of any layout */

/* Threads per block. With 256 and two blocks per multiprocessor each thread has the 64 or more
 * registers that the digest needs, and eight warps with four loads each in flight fill the
 * multiprocessor's queue. */
#define SL_KERNEL_THREADS 256u
/* Blocks per multiprocessor: 128 registers per thread. Without this bound a compiler uses more:
 * clang takes 212 for the digest, and one block fits. */
#define SL_KERNEL_BLOCKS 2

#endif
