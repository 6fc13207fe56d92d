/* cuda/cuda_kernels.c - the built-in images of kernels.cu, for which compilers were found, and
 * loading the first that the driver accepts. */
#include "cuda/cuda_internal.h"

#include <stdio.h>

/* ---- the images, newest first (cuda/kernels.cmake) ---- */

#ifdef SL_KERNEL_IMAGES_FILE
#include SL_KERNEL_IMAGES_FILE

/* With a terminating zero: PTX is a text. */
#define EMBED(symbol, capability, name, file)    \
    __asm__(".section .rodata,\"a\",@progbits\n" \
            ".balign 16\n"                       \
            "sl_kernel_image_" #symbol ":\n"     \
            ".incbin \"" file "\"\n"             \
            ".byte 0\n"                          \
            ".previous\n");                      \
    extern const unsigned char sl_kernel_image_##symbol[];
SL_KERNEL_IMAGES(EMBED)
#undef EMBED

static const struct sl_kernel_image images[] = {
#define ROW(symbol, capability, name, file) {(name), sl_kernel_image_##symbol, (capability)},
    SL_KERNEL_IMAGES(ROW)
#undef ROW
};

const struct sl_kernel_image *sl_cuda_kernels(uint32_t *count)
{
    *count = SL_COUNT(images);
    return images;
}
#else
const struct sl_kernel_image *sl_cuda_kernels(uint32_t *count)
{
    *count = 0;
    return NULL;
}
#endif

/* ---- loading ---- */

/* Machine code runs on its own and on later architectures of the same major number. */
static bool image_fits(const struct sl_kernel_image *image, uint32_t capability)
{
    return image->capability == 0 ||
           (image->capability / 10 == capability / 10 && image->capability <= capability);
}

/* Whether the error concerns only the image: the next one may work. */
static bool image_refused(sl_cu_result result)
{
    switch (result) {
    case SL_CU_INVALID_IMAGE: /* an ELF ABI that the driver does not know */
    case SL_CU_NO_BINARY:     /* no code for this architecture */
    case SL_CU_INVALID_PTX:
    case SL_CU_NO_COMPILER:     /* the driver's library for PTX is not installed */
    case SL_CU_UNSUPPORTED_PTX: /* of a later toolkit */
    case SL_CU_COMPILER_OFF:    /* CUDA_DISABLE_JIT */
    case SL_CU_NO_SYMBOL:       /* a kernel is missing */
    case SL_CU_NOT_SUPPORTED:
        return true;
    default:
        return false;
    }
}

static sl_err image_load(struct sl_driver *driver, const struct sl_kernel_image *image,
                         struct sl_kernels *out, sl_cu_result *result, struct sl_error *why)
{
    static const char *const names[] = {SL_KERNEL_GATHER, SL_KERNEL_SCATTER, SL_KERNEL_HASH,
                                        SL_KERNEL_HASH_RUNS};
    sl_cu_function *functions[] = {&out->gather, &out->scatter, &out->hash, &out->hash_runs};
    *result = driver->module_load(&out->module, image->data);
    if (*result != 0) {
        out->module = NULL;
        return sl_fail_cuda(driver, why, *result, "load the kernels (%s)", image->name);
    }
    for (size_t i = 0; i < SL_COUNT(names); i++) {
        *result = driver->module_function(functions[i], out->module, names[i]);
        if (*result != 0) {
            sl_err err = sl_fail_cuda(driver, why, *result, "find the kernel %s (%s)", names[i],
                                      image->name);
            (void)driver->module_unload(out->module);
            out->module = NULL;
            out->gather = out->scatter = out->hash = out->hash_runs = NULL;
            return err;
        }
    }
    return SL_OK;
}

sl_err sl_kernels_load(struct sl_driver *driver, uint32_t capability,
                       const struct sl_kernel_image *images_given, uint32_t count,
                       struct sl_kernels *out, struct sl_error *why)
{
    size_t room = sizeof(out->text), used = 0;
    *out = (struct sl_kernels){0};
    if (count == 0) {
        snprintf(out->text, room, "built without");
    } else {
        snprintf(out->text, room, "none for sm_%u", capability);
    }
    for (uint32_t i = 0; i < count; i++) {
        const struct sl_kernel_image *image = &images_given[i];
        struct sl_error reason = {0};
        sl_cu_result result = 0;
        if (!image_fits(image, capability)) {
            continue;
        }
        sl_err err = image_load(driver, image, out, &result, &reason);
        if (err == SL_OK) {
            snprintf(out->text, room, "%s", image->name);
            return SL_OK;
        }
        if (!image_refused(result)) {
            if (why != NULL) {
                *why = reason;
            }
            return err;
        }
        int wrote = snprintf(out->text + used, room - used, "%s%s: code %d",
                             used == 0 ? "refused by the driver: " : ", ", image->name, result);
        used = SL_MIN(used + (size_t)SL_MAX(wrote, 0), room - 1);
    }
    return SL_OK;
}
