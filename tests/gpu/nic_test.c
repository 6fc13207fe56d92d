/* tests/gpu/nic_test.c - device memory and a NIC, both real: the NIC reads and writes what the
 * driver exports as a dmabuf, and the GPU finds the same bytes there. Skipped, with the reason,
 * where one of them is missing or does not support this. With SLUICE_TEST_DRIVER both are
 * played, which tests the suite itself. */
#include "cuda/sl_device.h"
#include "tests/support/fabric_end.h"
#include "tests/support/fake_verbs.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BLOCK     (64 * SL_KIB)
#define BLOCKS    64u
#define LENGTH    (BLOCKS * BLOCK)
#define SKIP_CODE 77

static char skipped[SL_ERROR_TEXT_BYTES + 32];
static struct fabric_end a, b; /* a has device memory, b an arena */
static struct sl_device *device;
static struct sl_device_memory memory;
static struct sl_mapping mapping;
static struct sl_error told;

static bool can(const char *what, sl_err err, const struct sl_error *why)
{
    if (err != SL_OK && skipped[0] == '\0') {
        (void)snprintf(skipped, sizeof(skipped), "%s: %s", what, why->text);
    }
    return err == SL_OK;
}

static void registered(void *context, uint32_t number, uint32_t region_index,
                       const struct sl_error *why)
{
    (void)number;
    (void)region_index;
    told = *why;
    ((struct fabric_end *)context)->registered = why->code == SL_OK;
    ((struct fabric_end *)context)->refused = why->code != SL_OK;
}

static bool device_open(void)
{
    struct sl_error why = {0};
    struct sl_memory_handle handle;
    const char *played = getenv("SLUICE_TEST_DRIVER");
    struct sl_device_options options = {.name = "cuda",
                                        .staging_bytes = SL_MIB,
                                        .driver_path = played,
                                        .kernels = played != NULL ? "image" : NULL};
    return can("GPU", sl_device_open(&options, &device, &why), &why) &&
           can("memory", sl_device_memory_create(device, LENGTH, &memory, &why), &why) &&
           can("memory", sl_device_memory_export(device, &memory, &handle, &why), &why) &&
           can("memory", device->ops->map(device, &handle, LENGTH, &mapping, &why), &why);
}

static bool fabrics_open(void)
{
    struct sl_error why = {0};
    struct sl_fabric_options ours, theirs;
    bool played = getenv("SLUICE_TEST_DRIVER") != NULL;
    end_options(&a, &ours, "verbs");
    end_options(&b, &theirs, "verbs");
    ours.backend_context = theirs.backend_context = played ? fake_verbs_lib() : NULL;
    ours.events.registered = registered;
    if (!can("NIC", end_open(&a, &ours, 0, 0, &why), &why)) {
        return false;
    }
    ck_assert_int_eq(end_open(&b, &theirs, LENGTH, 0, &why), SL_OK);
    return true;
}

static bool memory_register(void)
{
    struct sl_error why = {0};
    struct sl_device_dmabuf given = {.fd = -1};
    if (!can("dmabuf", sl_device_dmabuf(device, &mapping, &given, &why), &why)) {
        return false;
    }
    const struct sl_fabric_dmabuf dmabuf = {.fd = given.fd, .offset_bytes = given.offset_bytes};
    const struct sl_fabric_memory what = {
        .dmabuf = &dmabuf, .length_bytes = LENGTH, .stride_bytes = BLOCK, .unread = true};
    sl_err err = sl_fabric_memory_add(a.fabric, &what, &a.memory, &why);
    (void)close(given.fd);
    if (!can("NIC", err, &why)) {
        return false;
    }
    PAIR_UNTIL(&a, &b, a.registered || a.refused);
    return can("NIC", told.code, &told);
}

/* Checks the bytes as the GPU sees them. */
static void digests_are(const unsigned char *bytes)
{
    struct sl_error why = {0};
    struct sl_layer layer = {.base = mapping.base,
                             .block_stride_bytes = BLOCK,
                             .piece_bytes = BLOCK,
                             .block_count = BLOCKS};
    static struct sl_move moves[BLOCKS];
    uint32_t table = 0;
    ck_assert_int_eq(device->ops->layers_add(device, &layer, 1, &table, &why), SL_OK);
    for (uint32_t i = 0; i < BLOCKS; i++) {
        moves[i] = (struct sl_move){.device_block = i, .layers_index = table};
    }
    sl_err err = sl_device_digest_begin(device, moves, BLOCKS, &why);
    err = err == SL_OK ? sl_device_move_end(device, true, &why) : err;
    ck_assert_msg(err == SL_OK, "%s", why.text);
    for (uint32_t i = 0; i < BLOCKS; i++) {
        ck_assert_msg(sl_digest_equal(moves[i].digest, sl_digest_of(bytes + i * BLOCK, BLOCK)),
                      "block %u is not what came", i);
    }
    device->ops->layers_remove(device, table);
}

static sl_err moved(uint64_t offset_bytes, uint64_t length_bytes)
{
    static uint64_t cookie;
    uint32_t key = 0;
    uint32_t grant = pair_grant(&b, &a, 0, LENGTH, &key);
    ck_assert_int_eq(end_post(&a, key, offset_bytes, length_bytes, ++cookie, SL_NEVER_NS), SL_OK);
    PAIR_UNTIL(&a, &b, end_done_of(&a, cookie) != NULL);
    (void)sl_fabric_grant_end(b.fabric, grant);
    return end_done_of(&a, cookie)->code;
}

START_TEST(a_nic_reads_into_and_from_device_memory)
    {
        if (device_open() && fabrics_open() && memory_register()) {
            PAIR_UNTIL(&a, &b, b.registered && a.link == SL_FABRIC_UP && b.link == SL_FABRIC_UP);
            for (uint64_t round = 1; round <= 8; round++) {
                pattern_fill(b.bytes, LENGTH, round);
                ck_assert_int_eq(moved(0, LENGTH), SL_OK);
                digests_are(b.bytes);
            }
            uint32_t key = 0;
            memset(b.bytes, 0, LENGTH);
            uint32_t grant = pair_grant(&a, &b, 0, LENGTH, &key); /* a ticket: it is unread */
            ck_assert_int_eq(end_post(&b, key, 0, LENGTH, 1, SL_NEVER_NS), SL_OK);
            PAIR_UNTIL(&a, &b, end_done_of(&b, 1) != NULL);
            ck_assert_int_eq(end_done_of(&b, 1)->code, SL_OK);
            ck_assert(pattern_is(b.bytes, LENGTH, 8));
            ck_assert_int_eq(sl_fabric_grant_end(a.fabric, grant), SL_OK);
            PAIR_UNTIL(&a, &b, a.grants_ended == 1);
        }
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("nic");
    TCase *cases = tcase_create("nic");
    tcase_set_timeout(cases, 120);
    tcase_add_test(cases, a_nic_reads_into_and_from_device_memory);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_set_fork_status(runner, CK_NOFORK); /* so that it can print why it skips */
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    if (a.fabric != NULL) {
        end_close(&a);
    }
    if (b.fabric != NULL) {
        end_close(&b);
    }
    if (device != NULL) {
        device->ops->unmap(device, &mapping);
        sl_device_memory_free(device, &memory);
        sl_device_close(&device);
    }
    if (failed == 0 && skipped[0] != '\0') {
        printf("skipped: %s\n", skipped);
        return SKIP_CODE;
    }
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
