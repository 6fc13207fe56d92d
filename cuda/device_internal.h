/* cuda/device_internal.h - the back ends' openers; private to cuda/. */
#ifndef SL_DEVICE_INTERNAL_H
#define SL_DEVICE_INTERNAL_H

#include "cuda/sl_device.h"

sl_err sl_device_host_open(const struct sl_device_options *options, struct sl_device **out,
                           struct sl_error *why);
sl_err sl_device_cuda_open(const struct sl_device_options *options, struct sl_device **out,
                           struct sl_error *why);
/* An image of the kernels, as cuModuleLoadData takes it. */
struct sl_kernel_image {
    const char *name; /* the compiler, for people: "PTX 7.0" */
    const void *data;
    uint32_t capability; /* 90: machine code of sm_90; 0: the driver chooses or compiles */
};
/* Those that were built in, in the order in which they are tried; NULL: built without. */
const struct sl_kernel_image *sl_cuda_kernels(uint32_t *count);

#endif
