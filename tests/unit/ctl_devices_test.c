/* tests/unit/ctl_devices_test.c - what sluicectl says of engines' device memory, from a page that the test
 * makes. */
#include "client/ctl/devices.h"
#include "runtime/sl_metrics.h"
#include "tests/support/tmpdir.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct ctl ctl;
static struct sl_metrics *page;
static struct sl_tmpdir directory;

static void setup(void)
{
    struct sl_error why = {0};
    char path[1200];
    sl_tmpdir_make(&directory, "/tmp");
    memset(&ctl, 0, sizeof(ctl));
    (void)snprintf(ctl.paths.shm_dir, sizeof(ctl.paths.shm_dir), "%s", directory.path);
    (void)sl_tmpdir_at(&directory, "metrics.transporter.0", path, sizeof(path));
    const struct sl_metrics_options options = {.path = path,
                                               .actor = "transporter.0",
                                               .self = {.pid = (uint32_t)getpid()},
                                               .trace_events = 64};
    ck_assert_msg(sl_metrics_open(&options, &page, &why) == SL_OK, "%s", why.text);
}

static void teardown(void)
{
    sl_metrics_close(&page);
    sl_tmpdir_remove(&directory);
}

static const struct {
    const char *metric;
    uint64_t value;
    const char *json;
} cases[] = {
    {"pool_bytes", 5, "{\"dmabuf_bytes\":0,\"left_out\":[]}"},
    {"pool_device_bytes", 4096, "{\"dmabuf_bytes\":4096,\"left_out\":[]}"},
    {"pool_device_out_fabric_bytes", 1,
     "{\"dmabuf_bytes\":0,\"left_out\":[{\"cause\":\"fabric\",\"bytes\":1,\"why\":\"the fabric takes no dmabuf "
     "(tcp, or libibverbs without ibv_reg_dmabuf_mr)\"}]}"},
    {"pool_device_out_swapper_bytes", 2,
     "{\"dmabuf_bytes\":0,\"left_out\":[{\"cause\":\"swapper\",\"bytes\":2,\"why\":\"the driver or the GPU "
     "exports none, or the rank's swapper did not answer\"}]}"},
    {"pool_device_out_nic_bytes", 3,
     "{\"dmabuf_bytes\":0,\"left_out\":[{\"cause\":\"nic\",\"bytes\":3,\"why\":\"the NIC or its driver did not "
     "register it\"}]}"},
};
START_TEST(it_says_what_is_registered_and_why_the_rest_is_not)
    {
        struct ctl_devices devices;
        sl_metric_set(page, sl_metric_define(page, cases[_i].metric), cases[_i].value);
        ctl_devices_read(&ctl, &devices);
        json_t *object = ctl_devices_json(&devices);
        char *text = json_dumps(object, JSON_COMPACT);
        ck_assert_str_eq(text, cases[_i].json);
        free(text);
        json_decref(object);
    }
END_TEST

START_TEST(without_a_node_there_is_none)
    {
        struct ctl_devices devices = {.dmabuf_bytes = 7};
        (void)snprintf(ctl.paths.shm_dir, sizeof(ctl.paths.shm_dir), "%s/nowhere", directory.path);
        ctl_devices_read(&ctl, &devices);
        ck_assert_uint_eq(devices.dmabuf_bytes, 0);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("ctl_devices");
    TCase *tests = tcase_create("devices");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_loop_test(tests, it_says_what_is_registered_and_why_the_rest_is_not, 0,
                        (int)SL_COUNT(cases));
    tcase_add_test(tests, without_a_node_there_is_none);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
