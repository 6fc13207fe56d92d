/* cuda/cuda_device.c - looks for a CUDA driver at run time and says exactly why the back end cannot
 * be used. The driver is found with dlopen, so that programs run where there is none. */
#include "cuda/device_internal.h"

#include <dlfcn.h>
#include <string.h>

/* Of the driver API (cuda.h), which is not needed to build. */
typedef int cuda_result;
typedef cuda_result (*cuda_init_fn)(unsigned flags);
typedef cuda_result (*cuda_count_fn)(int *count);
typedef cuda_result (*cuda_error_fn)(cuda_result result, const char **text);

static void *driver_symbol(void *driver, const char *name, struct sl_error *why)
{
    void *symbol = dlsym(driver, name);
    if (symbol == NULL) {
        (void)sl_fail(why, SL_ERR_UNSUPPORTED, "device cuda: libcuda.so.1 has no %s", name);
    }
    return symbol;
}

static sl_err driver_fail(cuda_error_fn error_text, const char *call, cuda_result result,
                          struct sl_error *why)
{
    const char *text = NULL;
    if (error_text(result, &text) != 0 || text == NULL) {
        text = "unknown error";
    }
    sl_err err =
        sl_fail(why, SL_ERR_UNSUPPORTED, "device cuda: %s: %s (code %d)", call, text, result);
    if (why != NULL) {
        why->os_code = result;
    }
    return err;
}

static sl_err driver_check(void *driver, uint32_t device_index, struct sl_error *why)
{
    /* POSIX lets a data pointer from dlsym be used as a function; ISO C needs the copy. */
    void *symbols[3] = {driver_symbol(driver, "cuInit", why),
                        driver_symbol(driver, "cuDeviceGetCount", why),
                        driver_symbol(driver, "cuGetErrorString", why)};
    if (symbols[0] == NULL || symbols[1] == NULL || symbols[2] == NULL) {
        return SL_ERR_UNSUPPORTED;
    }
    cuda_init_fn init;
    cuda_count_fn device_count;
    cuda_error_fn error_text;
    memcpy(&init, &symbols[0], sizeof(init));
    memcpy(&device_count, &symbols[1], sizeof(device_count));
    memcpy(&error_text, &symbols[2], sizeof(error_text));
    cuda_result result = init(0);
    if (result != 0) {
        return driver_fail(error_text, "cuInit", result, why);
    }
    int count = 0;
    result = device_count(&count);
    if (result != 0) {
        return driver_fail(error_text, "cuDeviceGetCount", result, why);
    }
    if (device_index >= (uint32_t)count) {
        return sl_fail(why, SL_ERR_UNSUPPORTED, "device cuda: no GPU %u, the driver has %d",
                       device_index, count);
    }
    return sl_fail(
        why, SL_ERR_UNSUPPORTED,
        "device cuda: a driver and GPU %u are there, but this version has no kernels for them; use "
        "--device host",
        device_index);
}

sl_err sl_device_cuda_open(const struct sl_device_options *options, struct sl_device **out,
                           struct sl_error *why)
{
    (void)out;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (driver == NULL) {
        const char *reason = dlerror();
        return sl_fail(why, SL_ERR_UNSUPPORTED, "device cuda: no driver: %s",
                       reason == NULL ? "libcuda.so.1 did not load" : reason);
    }
    sl_err err = driver_check(driver, options->device_index, why);
    (void)dlclose(driver);
    return err;
}
