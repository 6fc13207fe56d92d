/* tests/unit/cuda/cuda_dmabuf_test.c - device memory for NICs: a dmabuf of a mapping, from the fake
 * driver, and everything that may refuse it. */
#include "cuda/cuda_internal.h"
#include "tests/support/fake_cuda.h"

#include <check.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define LENGTH (4 * SL_MIB)

static struct sl_driver engine; /* the process that has the memory */
static struct fake_cuda *fake;
static struct sl_device *device;
static sl_cu_ptr pool;

static void setup(void)
{
    struct sl_device_options options = {.name = "cuda",
                                        .staging_bytes = 256 * SL_KIB,
                                        .driver_path = FAKE_CUDA,
                                        .kernels = "image"};
    struct sl_error why = {0};
    (void)setenv("FAKE_CUDA_SHARED", "1", 1);
    ck_assert_int_eq(sl_driver_open(&engine, FAKE_CUDA, NULL), SL_OK);
    void *symbol = dlsym(engine.library, "fake_cuda_state");
    fake_cuda_state_fn state;
    memcpy(&state, &symbol, sizeof(state));
    fake = state();
    ck_assert_int_eq(engine.context_set(&fake), 0);
    ck_assert_int_eq(engine.memory_get(&pool, LENGTH + 100), 0); /* its end is no page's */
    ck_assert_msg(sl_device_open(&options, &device, &why) == SL_OK, "%s", why.text);
}

static void teardown(void)
{
    fake->fail_symbol = NULL;
    fake->fail_at = 0;
    sl_device_close(&device);
    ck_assert_int_eq(fake->ipc_opens, 0);
    ck_assert_int_eq(engine.memory_free(pool), 0);
    sl_driver_close(&engine);
}

static sl_err map(uint64_t offset_bytes, uint64_t length_bytes, struct sl_mapping *out)
{
    struct sl_cu_ipc ipc;
    struct sl_memory_handle handle = {
        .kind = SL_MEMORY_CUDA_IPC, .pid = (uint32_t)getpid(), .offset_bytes = offset_bytes};
    ck_assert_int_eq(engine.ipc_get(&ipc, pool), 0);
    memcpy(handle.ipc, ipc.bytes, sizeof(handle.ipc));
    return device->ops->map(device, &handle, length_bytes, out, NULL);
}

/* The memory outlives the mapping from which the descriptor was made. */
START_TEST(a_dmabuf_is_the_memory_of_the_mapping)
    {
        struct sl_mapping mapping;
        struct sl_device_dmabuf dmabuf = {.fd = -1};
        struct sl_error why = {0};
        ck_assert_int_eq(map(8192, SL_MIB, &mapping), SL_OK);
        ck_assert_msg(sl_device_dmabuf(device, &mapping, &dmabuf, &why) == SL_OK, "%s", why.text);
        ck_assert_uint_eq(dmabuf.offset_bytes, 8192);
        ck_assert_uint_eq(dmabuf.length_bytes, LENGTH);
        memcpy((unsigned char *)(uintptr_t)pool + 8192, "pool", 4);
        device->ops->unmap(device, &mapping);
        char there[4];
        ck_assert_int_eq(pread(dmabuf.fd, there, 4, (off_t)dmabuf.offset_bytes), 4);
        ck_assert_mem_eq(there, "pool", 4);
        close(dmabuf.fd);
    }
END_TEST

static const struct {
    const char *what;
    uint64_t offset_bytes, length_bytes;
    bool no_attribute, no_call;
    int code; /* of the driver */
    sl_err want;
} refusals[] = {
    {"the last bytes are no whole page", LENGTH, 100, false, false, 0, SL_ERR_UNSUPPORTED},
    {"the GPU has none", 0, LENGTH, true, false, 0, SL_ERR_UNSUPPORTED},
    {"the driver is old", 0, LENGTH, false, true, 0, SL_ERR_UNSUPPORTED},
    {"such memory has none", 0, LENGTH, false, false, SL_CU_INVALID_VALUE, SL_ERR_UNSUPPORTED},
    {"not here", 0, LENGTH, false, false, SL_CU_NOT_SUPPORTED, SL_ERR_UNSUPPORTED},
    {"not for us", 0, LENGTH, false, false, SL_CU_NOT_PERMITTED, SL_ERR_UNSUPPORTED},
    {"out of memory", 0, LENGTH, false, false, SL_CU_OUT_OF_MEMORY, SL_ERR_NO_MEMORY},
    {"the GPU is lost", 0, LENGTH, false, false, SL_CU_ILLEGAL_ADDRESS, SL_ERR_DEVICE},
};

START_TEST(what_refuses_a_dmabuf_is_told)
    {
        struct sl_mapping mapping;
        struct sl_device_dmabuf dmabuf = {.fd = -1};
        struct sl_error why = {0};
        ck_assert_int_eq(map(refusals[_i].offset_bytes, refusals[_i].length_bytes, &mapping),
                         SL_OK);
        fake->no_dmabuf = refusals[_i].no_attribute;
        if (refusals[_i].no_call) {
            cuda_of(device)->driver.range_export = NULL;
        }
        if (refusals[_i].code != 0) {
            fake->fail_symbol = "fake_range_export";
            fake->fail_code = refusals[_i].code;
        }
        ck_assert_msg(sl_device_dmabuf(device, &mapping, &dmabuf, &why) == refusals[_i].want,
                      "%s: %s", refusals[_i].what, why.text);
        ck_assert_int_eq(dmabuf.fd, -1);
        ck_assert_uint_gt(strlen(why.text), 0);
        device->ops->unmap(device, &mapping);
    }
END_TEST

/* Of a pool that was made here, which other processes map by its descriptor. */
START_TEST(memory_that_was_made_here_has_one)
    {
        struct sl_device_memory memory;
        struct sl_memory_handle handle;
        struct sl_mapping mapping;
        struct sl_device_dmabuf dmabuf = {.fd = -1};
        struct sl_error why = {0};
        ck_assert_int_eq(sl_device_memory_create(device, 3 * SL_MIB, &memory, &why), SL_OK);
        ck_assert_int_eq(sl_device_memory_export(device, &memory, &handle, &why), SL_OK);
        ck_assert_int_eq(device->ops->map(device, &handle, 3 * SL_MIB, &mapping, &why), SL_OK);
        ck_assert_msg(sl_device_dmabuf(device, &mapping, &dmabuf, &why) == SL_OK, "%s", why.text);
        ck_assert_uint_eq(dmabuf.offset_bytes, 0);
        ck_assert_uint_eq(dmabuf.length_bytes, 4 * SL_MIB); /* whole granules */
        ck_assert_int_eq(pwrite(dmabuf.fd, "pool", 4, SL_MIB), 4);
        ck_assert_mem_eq((unsigned char *)mapping.base + SL_MIB, "pool", 4);
        close(dmabuf.fd);
        device->ops->unmap(device, &mapping);
        sl_device_memory_free(device, &memory);
        ck_assert_int_eq(fake->physicals + fake->reservations + fake->mappings, 0);
    }
END_TEST

START_TEST(the_host_has_none)
    {
        struct sl_device *host = NULL;
        struct sl_mapping mapping = {0};
        struct sl_device_dmabuf dmabuf;
        struct sl_error why = {0};
        ck_assert_int_eq(sl_device_open(&(struct sl_device_options){.name = "host",
                                                                    .staging_bytes = 64 * SL_KIB},
                                        &host, &why),
                         SL_OK);
        ck_assert_int_eq(sl_device_dmabuf(host, &mapping, &dmabuf, &why), SL_ERR_UNSUPPORTED);
        mapping.remote = 1;
        ck_assert_int_eq(sl_device_dmabuf(device, &mapping, &dmabuf, &why), SL_ERR_UNSUPPORTED);
        sl_device_close(&host);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("cuda_dmabuf");
    TCase *tests = tcase_create("dmabuf");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, a_dmabuf_is_the_memory_of_the_mapping);
    tcase_add_loop_test(tests, what_refuses_a_dmabuf_is_told, 0, (int)SL_COUNT(refusals));
    tcase_add_test(tests, memory_that_was_made_here_has_one);
    tcase_add_test(tests, the_host_has_none);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
