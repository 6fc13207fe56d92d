/* tests/unit/client/tools/recording_test.c - writing recordings. python/recording_test reads them.
 */
#include "runtime/base/sl_base.h"
#include "tests/support/recording_reader.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define EVENTS_MAX 4096u
#define FILE_ID    UINT64_C(0x1122334455667788)

struct written {
    struct sl_recording_event events[EVENTS_MAX];
    uint32_t count;
    unsigned char bytes[256 * 1024];
    uint64_t length;
    uint32_t frame_count;
};
static void header_write(struct written *out)
{
    struct sl_recording_header header = {.file_id = FILE_ID,
                                         .began_unix_ns = 77,
                                         .memory_bytes = SL_GIB,
                                         .disk_bytes = 5,
                                         .policy = "density"};
    sl_recording_header_seal(&header);
    memcpy(out->bytes, &header, sizeof(header));
    out->length = sizeof(header);
}

/* Draws an event by seed: chains in both directions, sizes that change or stay, other fields. */
static struct sl_recording_event event_drawn(uint64_t *state, const struct sl_recording_event *last)
{
    *state = *state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    uint64_t drawn = *state >> 20;
    struct sl_recording_event event = {
        .kind = (enum sl_recording_kind)(1 + drawn % 7),
        .hint = (uint8_t)(drawn / 7 % 3),
        .new_op = drawn / 21 % 4 == 0,
        .at_us = last->at_us + (drawn / 84 % 3) * (drawn % 100000),
        .name = drawn / 84 % 3 == 0 ? last->parent : drawn * 0x9e3779b97f4a7c15u,
        .parent = drawn / 252 % 3 == 0   ? last->name
                  : drawn / 252 % 3 == 1 ? 0
                                         : drawn,
        .bytes = drawn / 756 % 2 == 0 ? last->bytes : drawn % (UINT64_C(1) << 40),
        .tokens = drawn / 756 % 2 == 0 ? last->tokens : drawn % 65536,
    };
    event.part_count = event.bytes != 0 ? (uint32_t)(drawn / 512 % 3) : 0;
    event.key_bytes = event.bytes != 0 ? (uint32_t)(drawn / 1024 % 2 * 100) : 0;
    event.count = event.kind == SL_RECORDING_LOST ? drawn % 1000000 : 0;
    return event;
}

static struct written *recording_of(uint64_t seed, uint32_t count)
{
    struct written *out = calloc(1, sizeof(*out));
    unsigned char buffer[4096];
    struct sl_recording_frame frame;
    struct sl_recording_event last = {0};
    header_write(out);
    sl_recording_frame_begin(&frame, buffer, sizeof(buffer), 0);
    for (uint32_t i = 0; i < count; i++) {
        struct sl_recording_event event = event_drawn(&seed, &last);
        if (!sl_recording_frame_add(&frame, &event)) {
            uint64_t bytes = sl_recording_frame_end(&frame, FILE_ID);
            memcpy(out->bytes + out->length, buffer, bytes);
            out->length += bytes;
            out->frame_count++;
            sl_recording_frame_begin(&frame, buffer, sizeof(buffer), event.at_us);
            ck_assert(sl_recording_frame_add(&frame, &event));
        }
        out->events[out->count++] = event;
        last = event;
    }
    uint64_t bytes = sl_recording_frame_end(&frame, FILE_ID);
    memcpy(out->bytes + out->length, buffer, bytes);
    out->length += bytes;
    out->frame_count++;
    return out;
}

static void events_equal(const struct recording_seen *seen, const struct written *written,
                         uint32_t count)
{
    ck_assert_uint_eq(seen->count, count);
    for (uint32_t i = 0; i < count; i++) {
        const struct sl_recording_event *got = &seen->events[i];
        const struct sl_recording_event *want = &written->events[i];
        ck_assert_int_eq(got->kind, want->kind);
        ck_assert_int_eq(got->hint, want->hint);
        ck_assert_int_eq(got->new_op, want->new_op);
        ck_assert_uint_eq(got->at_us, want->at_us);
        ck_assert_uint_eq(got->name, want->name);
        ck_assert_uint_eq(got->parent, want->parent);
        ck_assert_uint_eq(got->bytes, want->bytes);
        ck_assert_uint_eq(got->tokens, want->tokens);
        ck_assert_uint_eq(got->count, want->count);
    }
}

START_TEST(what_is_written_is_read)
    {
        struct written *written = recording_of((uint64_t)_i + 1, 3000);
        struct recording_seen *seen = calloc(1, sizeof(*seen));

        recording_bytes_read(written->bytes, written->length, seen);

        events_equal(seen, written, 3000);
        ck_assert_uint_eq(seen->head.file_id, FILE_ID);
        ck_assert_uint_eq(seen->torn_bytes, 0);
        ck_assert_uint_gt(written->frame_count, 3);
        free(seen);
        free(written);
    }
END_TEST

START_TEST(a_chain_costs_ten_bytes_a_block)
    {
        struct sl_recording_frame frame;
        static unsigned char buffer[1 << 16];
        sl_recording_frame_begin(&frame, buffer, sizeof(buffer), 0);
        for (uint64_t i = 1; i <= 1000; i++) {
            struct sl_recording_event event = {.kind = SL_RECORDING_STORE,
                                               .name = i * 12345,
                                               .parent = (i - 1) * 12345,
                                               .bytes = 8192,
                                               .tokens = 512};
            ck_assert(sl_recording_frame_add(&frame, &event));
        }
        uint64_t forwards = sl_recording_frame_end(&frame, FILE_ID);
        sl_recording_frame_begin(&frame, buffer, sizeof(buffer), 0);
        for (uint64_t i = 1000; i > 0; i--) {
            struct sl_recording_event event = {
                .kind = SL_RECORDING_LOAD, .name = i * 12345, .parent = (i - 1) * 12345};
            ck_assert(sl_recording_frame_add(&frame, &event));
        }
        uint64_t backwards = sl_recording_frame_end(&frame, FILE_ID);

        ck_assert_uint_le(forwards, 10 * 1000 + 64);
        ck_assert_uint_le(backwards, 10 * 1000 + 64);
    }
END_TEST

START_TEST(names_are_siphash_with_the_salt_of_the_file)
    {
        const struct sl_recording_salt salt = {
            {UINT64_C(0x0706050403020100), UINT64_C(0x0f0e0d0c0b0a0908)}};
        const struct sl_recording_salt other = {{salt.words[0], salt.words[1] ^ 1}};

        /* the vector of the paper's authors for the bytes 0 to 7 */
        ck_assert_uint_eq(sl_recording_name(&salt, UINT64_C(0x0706050403020100)),
                          UINT64_C(0x93f5f5799a932462));
        ck_assert_uint_ne(sl_recording_name(&other, 5), sl_recording_name(&salt, 5));
        ck_assert_uint_eq(sl_recording_name(&salt, 0), 0);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("recording");
    TCase *all = tcase_create("all");
    tcase_set_timeout(all, 60);
    tcase_add_loop_test(all, what_is_written_is_read, 0, 8);
    tcase_add_test(all, a_chain_costs_ten_bytes_a_block);
    tcase_add_test(all, names_are_siphash_with_the_salt_of_the_file);
    suite_add_tcase(suite, all);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
