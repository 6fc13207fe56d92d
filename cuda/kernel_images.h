/* cuda/kernel_images.h - the built-in images of the kernels, and loading the first that the driver
 * accepts. For cuda/ and libsluice. */
#ifndef SL_KERNEL_IMAGES_H
#define SL_KERNEL_IMAGES_H

#include "cuda/driver.h"

/* An image of the kernels, for cuModuleLoadData. */
struct sl_kernel_image {
    const char *name; /* name of the compiler: "PTX 7.0" */
    const void *data;
    uint32_t capability; /* 90: machine code of sm_90; 0: the driver chooses or compiles */
};
/* The built-in images, in the order in which they are tried; NULL: none. */
const struct sl_kernel_image *sl_cuda_kernels(uint32_t *count);

struct sl_kernels {
    sl_cu_module module; /* NULL: the driver accepts none of the images */
    sl_cu_function gather, scatter, hash, hash_runs;
    char text[160]; /* the image that runs, or why none does */
};
/* Loads the first image that the driver accepts for a GPU of this capability (90: sm_90) into the
 * current context. None is not an error. *out is always set; the caller unloads its module. Errors:
 * driver errors that do not concern the image. */
sl_err sl_kernels_load(struct sl_driver *driver, uint32_t capability,
                       const struct sl_kernel_image *images_given, uint32_t count,
                       struct sl_kernels *out, struct sl_error *why);

#endif
