/* tests/unit/recording_test.c - recordings: what is written is read, whatever happens to its end. */
#include "runtime/sl_base.h"
#include "runtime/sl_digest.h"
#include "runtime/sl_recording.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define EVENTS_MAX 4096u
#define FILE_ID    UINT64_C(0x1122334455667788)

struct written {
    struct sl_recording_event events[EVENTS_MAX];
    uint32_t count;
    unsigned char bytes[256 * 1024];
    uint64_t length;
    uint64_t frame_ends[64];
    uint32_t frame_events[64]; /* up to its end */
    uint32_t frame_count;
};
struct seen {
    struct sl_recording_event events[EVENTS_MAX];
    uint32_t count, limit;
};

static bool see(void *context, const struct sl_recording_event *event)
{
    struct seen *seen = context;
    ck_assert_uint_lt(seen->count, EVENTS_MAX);
    seen->events[seen->count++] = *event;
    return seen->limit == 0 || seen->count < seen->limit;
}

static void header_write(struct written *out)
{
    struct sl_recording_header header = {.file_id = FILE_ID,
                                         .began_unix_ns = 77,
                                         .memory_bytes = SL_GIB,
                                         .disk_bytes = 5,
                                         .policy = "density"};
    sl_recording_header_put(&header, out->bytes);
    out->length = SL_RECORDING_HEADER_BYTES;
}

/* Chains forwards and backwards, sizes that change and stay, and whatever else a seed draws. */
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
            out->frame_events[out->frame_count] = i;
            out->frame_ends[out->frame_count++] = out->length;
            sl_recording_frame_begin(&frame, buffer, sizeof(buffer), event.at_us);
            ck_assert(sl_recording_frame_add(&frame, &event));
        }
        out->events[out->count++] = event;
        last = event;
    }
    uint64_t bytes = sl_recording_frame_end(&frame, FILE_ID);
    memcpy(out->bytes + out->length, buffer, bytes);
    out->length += bytes;
    out->frame_events[out->frame_count] = count;
    out->frame_ends[out->frame_count++] = out->length;
    return out;
}

static sl_err read_back(const unsigned char *bytes, uint64_t length, struct seen *seen,
                        struct sl_recording_info *info)
{
    struct sl_error why;
    int fd = memfd_create("recording", MFD_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, bytes, length), (ssize_t)length);
    sl_err err = sl_recording_read(fd, see, seen, info, &why);
    ck_assert_int_eq(close(fd), 0);
    return err;
}

static void events_equal(const struct seen *seen, const struct written *written, uint32_t count)
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
        struct seen *seen = calloc(1, sizeof(*seen));
        struct sl_recording_info info;

        ck_assert_int_eq(read_back(written->bytes, written->length, seen, &info), SL_OK);

        events_equal(seen, written, 3000);
        ck_assert_uint_eq(info.header.file_id, FILE_ID);
        ck_assert_uint_eq(info.header.began_unix_ns, 77);
        ck_assert_uint_eq(info.header.memory_bytes, SL_GIB);
        ck_assert_uint_eq(info.header.disk_bytes, 5);
        ck_assert_str_eq(info.header.policy, "density");
        ck_assert_uint_eq(info.good_bytes, written->length);
        ck_assert_uint_eq(info.torn_bytes, 0);
        ck_assert_uint_eq(info.event_count, 3000);
        ck_assert_uint_gt(info.frame_count, 3);
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

START_TEST(a_torn_tail_costs_its_frame_alone)
    {
        struct written *written = recording_of(5, 1200);
        struct seen *seen = calloc(1, sizeof(*seen));
        uint32_t whole = written->frame_count - 1;
        ck_assert_uint_gt(whole, 2);
        for (uint64_t cut = written->frame_ends[whole - 1]; cut < written->length; cut++) {
            struct sl_recording_info info;
            seen->count = 0;

            ck_assert_int_eq(read_back(written->bytes, cut, seen, &info), SL_OK);

            events_equal(seen, written, written->frame_events[whole - 1]);
            ck_assert_uint_eq(info.good_bytes, written->frame_ends[whole - 1]);
            ck_assert_uint_eq(info.torn_bytes, cut - info.good_bytes);
        }
        free(seen);
        free(written);
    }
END_TEST

START_TEST(a_damaged_frame_costs_itself)
    {
        struct written *written = recording_of(6, 1200);
        struct seen *seen = calloc(1, sizeof(*seen));
        for (uint64_t at = written->frame_ends[0]; at < written->frame_ends[1]; at += 7) {
            struct sl_recording_info info;
            written->bytes[at] ^= 0x10;
            seen->count = 0;

            ck_assert_int_eq(read_back(written->bytes, written->length, seen, &info), SL_OK);

            uint32_t before = written->frame_events[0];
            uint32_t gone = written->frame_events[1] - before;
            ck_assert_uint_eq(seen->count, written->count - gone);
            ck_assert_uint_eq(seen->events[before - 1].name, written->events[before - 1].name);
            for (uint32_t i = before; i < seen->count; i++) {
                ck_assert_uint_eq(seen->events[i].name, written->events[i + gone].name);
            }
            ck_assert_uint_eq(info.damaged_count, 1);
            ck_assert_uint_eq(info.damaged_bytes, written->frame_ends[1] - written->frame_ends[0]);
            ck_assert_uint_eq(info.frame_count, written->frame_count - 1);
            ck_assert_uint_eq(info.event_count, seen->count);
            ck_assert_uint_eq(info.good_bytes, written->length);
            ck_assert_uint_eq(info.torn_bytes, 0);
            written->bytes[at] ^= 0x10;
        }
        free(seen);
        free(written);
    }
END_TEST

START_TEST(a_frame_of_another_file_is_not_believed)
    {
        struct written *written = recording_of(7, 600);
        struct seen *seen = calloc(1, sizeof(*seen));
        struct sl_recording_info info;
        struct sl_recording_header other = {.file_id = FILE_ID + 1, .policy = "lru"};
        sl_recording_header_put(&other, written->bytes);

        ck_assert_int_eq(read_back(written->bytes, written->length, seen, &info), SL_OK);

        ck_assert_uint_eq(seen->count, 0);
        ck_assert_uint_eq(info.torn_bytes, written->length - SL_RECORDING_HEADER_BYTES);
        free(seen);
        free(written);
    }
END_TEST

START_TEST(who_has_seen_enough_is_asked_no_more)
    {
        struct written *written = recording_of(8, 600);
        struct seen *seen = calloc(1, sizeof(*seen));
        struct sl_recording_info info;
        seen->limit = 10;

        ck_assert_int_eq(read_back(written->bytes, written->length, seen, &info), SL_OK);

        ck_assert_uint_eq(seen->count, 10);
        free(seen);
        free(written);
    }
END_TEST

START_TEST(a_head_tells_of_disks_and_one_of_the_first_version_does_not)
    {
        unsigned char bytes[SL_RECORDING_HEADER_BYTES];
        const struct sl_recording_header put = {.file_id = FILE_ID,
                                                .disk_bytes = SL_GIB,
                                                .policy = "density",
                                                .segment_bytes = SL_MIB,
                                                .budget_bytes = 7,
                                                .path_count = 3};
        struct sl_recording_header got, old;
        sl_recording_header_put(&put, bytes);
        ck_assert_int_eq(sl_recording_header_get(bytes, sizeof(bytes), &got, NULL), SL_OK);
        bytes[8] = 1; /* which has zeros where version 2 tells more */
        memset(bytes + 64, 0, 24);
        uint64_t check = sl_digest_chunk(bytes, sizeof(bytes) - 8);
        memcpy(bytes + sizeof(bytes) - 8, &check, 8);

        ck_assert_int_eq(sl_recording_header_get(bytes, sizeof(bytes), &old, NULL), SL_OK);

        ck_assert_uint_eq(got.version, 2);
        ck_assert_uint_eq(got.segment_bytes, SL_MIB);
        ck_assert_uint_eq(got.budget_bytes, 7);
        ck_assert_uint_eq(got.path_count, 3);
        ck_assert_uint_eq(old.version, 1);
        ck_assert_uint_eq(old.disk_bytes, SL_GIB);
        ck_assert_uint_eq(old.segment_bytes + old.budget_bytes + old.path_count, 0);
    }
END_TEST

START_TEST(heads_that_are_wrong_are_named)
    {
        struct written *written = recording_of(9, 10);
        struct seen *seen = calloc(1, sizeof(*seen));
        struct sl_recording_info info;

        ck_assert_int_eq(read_back(written->bytes, 100, seen, &info), SL_ERR_FOREIGN);
        ck_assert_int_eq(read_back((const unsigned char *)"", 0, seen, &info), SL_ERR_FOREIGN);
        written->bytes[8] = SL_RECORDING_VERSION + 1;
        ck_assert_int_eq(read_back(written->bytes, written->length, seen, &info), SL_ERR_VERSION);
        written->bytes[8] = 0;
        ck_assert_int_eq(read_back(written->bytes, written->length, seen, &info), SL_ERR_VERSION);
        written->bytes[8] = SL_RECORDING_VERSION;
        written->bytes[30] ^= 1;
        ck_assert_int_eq(read_back(written->bytes, written->length, seen, &info), SL_ERR_CORRUPT);
        written->bytes[0] = 'X';
        ck_assert_int_eq(read_back(written->bytes, written->length, seen, &info), SL_ERR_FOREIGN);
        ck_assert_uint_eq(seen->count, 0);
        free(seen);
        free(written);
    }
END_TEST

/* A frame with a right check may still say anything. */
START_TEST(any_bytes_in_a_frame_are_read_safely)
    {
        struct written *written = calloc(1, sizeof(*written));
        struct seen *seen = calloc(1, sizeof(*seen));
        uint64_t state = (uint64_t)_i + 99;
        for (uint32_t round = 0; round < 2000; round++) {
            struct sl_recording_frame frame;
            struct sl_recording_info info;
            header_write(written);
            sl_recording_frame_begin(&frame, written->bytes + written->length, 4096, 0);
            for (uint32_t i = 0; i < 60; i++) {
                state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
                frame.bytes[frame.length++] = (unsigned char)(state >> 40);
            }
            frame.count = (uint32_t)(state >> 33) % 12;
            written->length += sl_recording_frame_end(&frame, FILE_ID);
            seen->count = 0;

            sl_err err = read_back(written->bytes, written->length, seen, &info);

            ck_assert_int_eq(err, SL_OK);
            ck_assert_uint_eq(info.frame_count + info.damaged_count, 1);
        }
        free(seen);
        free(written);
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
    tcase_add_test(all, a_torn_tail_costs_its_frame_alone);
    tcase_add_test(all, a_damaged_frame_costs_itself);
    tcase_add_test(all, a_frame_of_another_file_is_not_believed);
    tcase_add_test(all, who_has_seen_enough_is_asked_no_more);
    tcase_add_test(all, a_head_tells_of_disks_and_one_of_the_first_version_does_not);
    tcase_add_test(all, heads_that_are_wrong_are_named);
    tcase_add_loop_test(all, any_bytes_in_a_frame_are_read_safely, 0, 4);
    tcase_add_test(all, names_are_siphash_with_the_salt_of_the_file);
    suite_add_tcase(suite, all);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
