/* cuda/kernels.cu - the kernels: their bodies run by GPU threads. cuda_kernels.c loads them from a
 * built-in image. */
#include "cuda/sl_kernels.h"

static __device__ __forceinline__ uint64_t worker_index()
{
    return (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
}

static __device__ __forceinline__ uint64_t worker_count()
{
    return (uint64_t)gridDim.x * blockDim.x;
}

extern "C" __global__ void __launch_bounds__(SL_KERNEL_THREADS, SL_KERNEL_BLOCKS)
    sl_gather_kernel(const __grid_constant__ struct sl_swap swap)
{
    sl_gather_body(&swap, worker_index(), worker_count());
}

extern "C" __global__ void __launch_bounds__(SL_KERNEL_THREADS, SL_KERNEL_BLOCKS)
    sl_scatter_kernel(const __grid_constant__ struct sl_swap swap)
{
    sl_scatter_body(&swap, worker_index(), worker_count());
}

/* Sums the terms of four neighbouring threads, which share a chunk and stay in step. */
static __device__ __forceinline__ uint64_t terms_sum(uint64_t sum)
{
    unsigned mates = 0xfu << (threadIdx.x % 32 / SL_HASH_TERMS * SL_HASH_TERMS);
    sum += __shfl_xor_sync(mates, sum, 1);
    sum += __shfl_xor_sync(mates, sum, 2);
    return sum;
}

extern "C" __global__ void __launch_bounds__(SL_KERNEL_THREADS, SL_KERNEL_BLOCKS)
    sl_hash_kernel(const __grid_constant__ struct sl_hash_job job)
{
    uint64_t chunks = job.swap.block_count * job.value_chunks;
    uint32_t term = threadIdx.x % SL_HASH_TERMS;
    for (uint64_t i = worker_index() / SL_HASH_TERMS; i < chunks;
         i += worker_count() / SL_HASH_TERMS) {
        struct sl_hash_chunk chunk = sl_hash_locate(&job, i);
        uint64_t sum = terms_sum(sl_hash_chunk_term(&chunk, term));
        if (term == 0) {
            job.hashes[i] = sl_hash_chunk_finish(chunk.length_bytes, sum);
        }
    }
}

/* The same for chunks whose bytes are in several runs. */
extern "C" __global__ void __launch_bounds__(SL_KERNEL_THREADS, SL_KERNEL_BLOCKS)
    sl_hash_runs_kernel(const __grid_constant__ struct sl_hash_job job)
{
    uint64_t chunks = job.swap.block_count * job.value_chunks;
    uint32_t term = threadIdx.x % SL_HASH_TERMS, length_bytes;
    for (uint64_t i = worker_index() / SL_HASH_TERMS; i < chunks;
         i += worker_count() / SL_HASH_TERMS) {
        uint64_t sum = terms_sum(sl_hash_runs_chunk(&job, i, term, &length_bytes));
        if (term == 0) {
            job.hashes[i] = sl_hash_chunk_finish(length_bytes, sum);
        }
    }
}
