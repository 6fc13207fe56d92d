/* cuda/kernel_images.h - the images of the kernels that are built in, and the one that a driver
 * takes. For cuda/ and libsluice. */
#ifndef SL_KERNEL_IMAGES_H
#define SL_KERNEL_IMAGES_H

#include "cuda/driver.h"

/* An image of the kernels, as cuModuleLoadData takes it. */
struct sl_kernel_image {
    const char *name; /* the compiler, for people: "PTX 7.0" */
    const void *data;
    uint32_t capability; /* 90: machine code of sm_90; 0: the driver chooses or compiles */
};
/* Those that were built in, in the order in which they are tried; NULL: built without. */
const struct sl_kernel_image *sl_cuda_kernels(uint32_t *count);

struct sl_kernels {
    sl_cu_module module; /* NULL: the driver takes none of the images */
    sl_cu_function gather, scatter, hash, hash_runs;
    char text[160]; /* which image runs, or why none does */
};
/* Loads the first image that the driver takes, for a GPU of this capability (90: sm_90), into the
 * current context. None is no error. *out is set in any case; its module is the caller's to unload.
 * Errors: those of the driver that are not the image's. */
sl_err sl_kernels_load(struct sl_driver *driver, uint32_t capability,
                       const struct sl_kernel_image *images_given, uint32_t count,
                       struct sl_kernels *out, struct sl_error *why);

#endif
