/* cuda/sl_clang_kernel.h - makes clang without a toolkit (-nocudainc -nocudalib) compile
 * kernels.cu: the keywords that nvcc defines, and the three functions that the bodies call.
 * Included only by the compiler's command line, before the kernels. */
#ifndef SL_CLANG_KERNEL_H
#define SL_CLANG_KERNEL_H

#if defined(__clang__) && defined(__CUDA__)
#include <string.h>

#include <__clang_cuda_builtin_vars.h> /* threadIdx and others; from clang's own headers */

#define __CUDACC__                     1
#define __host__                       __attribute__((host))
#define __device__                     __attribute__((device))
#define __global__                     __attribute__((global))
#define __constant__                   __attribute__((constant))
#define __forceinline__                __inline__ __attribute__((always_inline))
#define __align__(bytes)               __attribute__((aligned(bytes)))
#define __launch_bounds__(...)         __attribute__((launch_bounds(__VA_ARGS__)))
#define __grid_constant__              /* clang reads parameters in place anyway */
#define memcpy(to, from, length_bytes) __builtin_memcpy((to), (from), (length_bytes))

static __device__ __forceinline__ unsigned long __cvta_generic_to_global(const void *at)
{
    return (unsigned long)(const __attribute__((address_space(1))) void *)at;
}

static __device__ __forceinline__ unsigned long __umul64hi(unsigned long a, unsigned long b)
{
    return __nvvm_mulhi_ull(a, b);
}

/* Shuffles two 32-bit halves; 31: the whole warp takes part. */
static __device__ __forceinline__ unsigned long __shfl_xor_sync(unsigned mask, unsigned long value,
                                                                int lanes)
{
    unsigned low = (unsigned)__nvvm_shfl_sync_bfly_i32(mask, (int)value, lanes, 31);
    unsigned high = (unsigned)__nvvm_shfl_sync_bfly_i32(mask, (int)(value >> 32), lanes, 31);
    return (unsigned long)high << 32 | low;
}
#endif

/* Lets the header compile by itself, with any compiler. */
typedef int sl_clang_kernel_is_not_empty;

#endif
