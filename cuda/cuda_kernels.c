/* cuda/cuda_kernels.c - the image of kernels.cu, where there was an nvcc to make one. */
#include "cuda/device_internal.h"

#ifdef SL_KERNEL_IMAGE
__asm__(".section .rodata,\"a\",@progbits\n"
        ".balign 16\n"
        "sl_kernel_image_begin:\n"
        ".incbin \"" SL_KERNEL_IMAGE "\"\n"
        ".previous\n");
extern const unsigned char sl_kernel_image_begin[];

const void *sl_cuda_kernels(void)
{
    return sl_kernel_image_begin;
}
#else
const void *sl_cuda_kernels(void)
{
    return NULL;
}
#endif
