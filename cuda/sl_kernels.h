/* cuda/sl_kernels.h - names and launch shape of the kernels in kernels.cu. */
#ifndef SL_KERNELS_H
#define SL_KERNELS_H

#include "cuda/sl_digest_runs_body.h"

#define SL_KERNEL_GATHER    "sl_gather_kernel"    /* one argument: struct sl_swap */
#define SL_KERNEL_SCATTER   "sl_scatter_kernel"   /* the same */
#define SL_KERNEL_HASH      "sl_hash_kernel"      /* one argument: struct sl_hash_job */
#define SL_KERNEL_HASH_RUNS "sl_hash_runs_kernel" /* the same: blocks, wherever their bytes lie */

/* Threads of a block. 256 leave each the 64 registers and more that the digest wants with two
 * blocks on a multiprocessor, and eight warps with four loads each on their way fill its queue. */
#define SL_KERNEL_THREADS 256u
/* That a multiprocessor shall hold: 128 registers a thread. A compiler that is not told takes more:
 * clang 212 for the digest, which then has one block there. */
#define SL_KERNEL_BLOCKS 2

#endif
