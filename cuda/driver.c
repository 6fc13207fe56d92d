/* cuda/driver.c - see driver.h. */
#include "cuda/driver.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *symbol;
    size_t offset;
    bool needed;
} entries[] = {
#define ENTRY(field, symbol, needed, parameters) \
    {(symbol), offsetof(struct sl_driver, field), (needed)},
    SL_DRIVER_TABLE(ENTRY)
#undef ENTRY
};

static sl_err driver_symbols(struct sl_driver *driver, struct sl_error *why)
{
    for (size_t i = 0; i < SL_COUNT(entries); i++) {
        void *symbol = dlsym(driver->library, entries[i].symbol);
        if (symbol == NULL && entries[i].needed) {
            return sl_fail(why, SL_ERR_UNSUPPORTED, "device cuda: libcuda.so.1 has no %s",
                           entries[i].symbol);
        }
        /* POSIX lets a data pointer from dlsym be used as a function; ISO C needs the copy. */
        memcpy((unsigned char *)driver + entries[i].offset, &symbol, sizeof(symbol));
    }
    return SL_OK;
}

sl_err sl_driver_join(struct sl_driver *driver, struct sl_error *why)
{
    *driver = (struct sl_driver){
        .library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE | RTLD_NOLOAD)};
    if (driver->library == NULL) {
        return sl_fail(why, SL_ERR_NOT_FOUND, "device cuda: this process has no driver");
    }
    sl_err err = driver_symbols(driver, why);
    if (err == SL_OK) {
        err = sl_fail_cuda(driver, why, driver->version(&driver->number), "cuDriverGetVersion");
    }
    if (err != SL_OK) {
        sl_driver_close(driver);
        return SL_ERR_UNSUPPORTED;
    }
    return SL_OK;
}

void sl_driver_close(struct sl_driver *driver)
{
    if (driver->library != NULL) {
        (void)dlclose(driver->library);
    }
    *driver = (struct sl_driver){0};
}

sl_cu_result sl_driver_copy(const struct sl_driver *driver, sl_cu_ptr to, sl_cu_ptr from,
                            size_t length, bool to_host, sl_cu_stream stream)
{
    return to_host ? driver->to_host((void *)(uintptr_t)to, from, length, stream)
                   : driver->to_device(to, (const void *)(uintptr_t)from, length, stream);
}

bool sl_driver_has_batch(const struct sl_driver *driver)
{
    return driver->copy_batch != NULL || driver->copy_batch_12 != NULL;
}

sl_cu_result sl_driver_copy_batch(const struct sl_driver *driver, sl_cu_ptr *to, sl_cu_ptr *from,
                                  size_t *lengths, size_t count, sl_cu_stream stream)
{
    struct sl_cu_copy_kind kind = {.source_order = SL_CU_ORDER_STREAM};
    size_t start = 0, failed = 0;
    return driver->copy_batch != NULL
               ? driver->copy_batch(to, from, lengths, count, &kind, &start, 1, stream)
               : driver->copy_batch_12(to, from, lengths, count, &kind, &start, 1, &failed, stream);
}

bool sl_driver_sticky(sl_cu_result result)
{
    switch (result) {
    case 4: /* deinitialized */
    case SL_CU_UNAVAILABLE:
    case 201: /* invalid context: there is only ours */
    case 214: /* uncorrectable ECC error */
    case 220: /* uncorrectable NVLink error */
    case 226: /* contained memory error */
    case SL_CU_ILLEGAL_ADDRESS:
    case 702: /* launch timeout */
    case 709: /* context is destroyed */
    case 710: /* device-side assert */
    case 714: /* hardware stack error */
    case 715: /* illegal instruction */
    case 716: /* misaligned address */
    case 717: /* invalid address space */
    case 718: /* invalid program counter */
    case SL_CU_LAUNCH_FAILED:
    case 721:                  /* tensor memory leak */
    case SL_CU_MPS_CONNECTION: /* MPS: the driver contacts its daemon once in a process's life */
    case SL_CU_MPS_RPC:
    case SL_CU_MPS_SERVER:
    case 810: /* MPS client terminated */
    case 999: /* unknown */
        return true;
    default:
        return false;
    }
}

static sl_err code_of(sl_cu_result result)
{
    if (sl_driver_sticky(result)) {
        return SL_ERR_DEVICE;
    }
    switch (result) {
    case SL_CU_OUT_OF_MEMORY:
        return SL_ERR_NO_MEMORY;
    case SL_CU_NOT_READY:
        return SL_ERR_TIMEOUT;
    case SL_CU_NO_DEVICE:
    case SL_CU_INVALID_IMAGE:
    case SL_CU_NO_BINARY:
    case SL_CU_INVALID_PTX:
    case SL_CU_NO_COMPILER:
    case SL_CU_UNSUPPORTED_PTX:
    case SL_CU_COMPILER_OFF:
    case SL_CU_NOT_SUPPORTED:
    case SL_CU_MISMATCH:
    case SL_CU_NO_COMPATIBLE:
        return SL_ERR_UNSUPPORTED;
    default:
        return SL_ERR_IO;
    }
}

sl_err sl_fail_cuda(struct sl_driver *driver, struct sl_error *why, sl_cu_result result,
                    const char *doing, ...)
{
    if (result == 0) {
        return SL_OK;
    }
    char what[128];
    const char *name = NULL, *text = NULL;
    va_list list;
    va_start(list, doing);
    (void)vsnprintf(what, sizeof(what), doing, list);
    va_end(list);
    if (driver->error_name(result, &name) != 0 || name == NULL) {
        name = "error";
    }
    if (driver->error_text(result, &text) != 0 || text == NULL) {
        text = "unknown to the driver";
    }
    driver->lost |= sl_driver_sticky(result);
    sl_err err = sl_fail(why, code_of(result), "device cuda: %s: %s (%s, code %d)", what, text,
                         name, result);
    if (why != NULL) {
        why->os_code = result;
    }
    return err;
}

/* ---- errors at start ---- */

struct start {
    sl_cu_result result;
    sl_err err;
    const char *help;
};

static const struct start *start_of(sl_cu_result result)
{
    static const struct start starts[] = {
        {SL_CU_UNAVAILABLE, SL_ERR_CONFIG,
         "nvidia-smi shows its compute mode and its process; -c DEFAULT admits others"},
        {SL_CU_SYSTEM_NOT_READY, SL_ERR_UNREACHABLE,
         "will be retried; with NVSwitch nvidia-fabricmanager must be up"},
        {SL_CU_MISMATCH, SL_ERR_UNSUPPORTED,
         "the driver was updated: reboot, or load its new kernel module"},
        {SL_CU_NO_COMPATIBLE, SL_ERR_UNSUPPORTED,
         "take libcuda of cuda-compat out of the library path"},
        {SL_CU_MPS_CONNECTION, SL_ERR_DEVICE,
         "will be retried; run nvidia-cuda-mps-control -d as this user, or unset "
         "CUDA_MPS_PIPE_DIRECTORY"},
        {SL_CU_MPS_RPC, SL_ERR_DEVICE, "will be retried; the MPS server's log says more"},
        {SL_CU_MPS_SERVER, SL_ERR_DEVICE, "will be retried; the MPS server recovers"},
        {SL_CU_MPS_CLIENTS, SL_ERR_DEVICE, "will be retried; the MPS server is full"},
        {SL_CU_MPS_CONNECTIONS, SL_ERR_DEVICE, "will be retried; the MPS server is full"},
    };
    for (size_t i = 0; i < SL_COUNT(starts); i++) {
        if (starts[i].result == result) {
            return &starts[i];
        }
    }
    return NULL;
}

sl_err sl_fail_cuda_start(struct sl_driver *driver, struct sl_error *why, sl_cu_result result,
                          const char *doing)
{
    const struct start *start = start_of(result);
    struct sl_error reason = {0};
    if (result == 0 || start == NULL) {
        return sl_fail_cuda(driver, why, result, "%s", doing);
    }
    (void)sl_fail_cuda(driver, &reason, result, "%s", doing);
    (void)sl_fail(why, start->err, "%s: %s", reason.text, start->help);
    if (why != NULL) {
        why->os_code = result;
    }
    return start->err;
}

sl_err sl_driver_open(struct sl_driver *driver, const char *library, struct sl_error *why)
{
    /* Never unloaded: the driver has threads of its own that outlive its contexts. */
    int flags = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE;
    *driver =
        (struct sl_driver){.library = dlopen(library == NULL ? "libcuda.so.1" : library, flags)};
    if (driver->library == NULL) {
        const char *reason = dlerror();
        return sl_fail(why, SL_ERR_UNSUPPORTED, "device cuda: no driver: %s",
                       reason == NULL ? "libcuda.so.1 did not load" : reason);
    }
    sl_err err = driver_symbols(driver, why);
    if (err == SL_OK) {
        sl_cu_result result = driver->init(0);
        err = sl_fail_cuda_start(driver, why, result, "cuInit");
        if (err != SL_OK && start_of(result) == NULL) {
            err = SL_ERR_UNSUPPORTED; /* for any other reason, which the text has */
        }
    }
    if (err == SL_OK && sl_fail_cuda(driver, why, driver->version(&driver->number),
                                     "cuDriverGetVersion") != SL_OK) {
        err = SL_ERR_UNSUPPORTED;
    }
    if (err != SL_OK) {
        sl_driver_close(driver);
    }
    return err;
}
