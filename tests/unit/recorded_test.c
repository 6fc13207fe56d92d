/* tests/unit/recorded_test.c - a recording becomes the requests that were made. */
#include "client/model/recorded.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char path[64];
static unsigned char buffer[1 << 20];
static struct sl_recording_frame frame;
static uint64_t at_us;

static void recording_begin(void)
{
    at_us = 0;
    (void)snprintf(path, sizeof(path), "/dev/shm/sl-recorded-%d", (int)getpid());
    sl_recording_frame_begin(&frame, buffer, sizeof(buffer), 0);
}

static void recording_write(void)
{
    unsigned char head[SL_RECORDING_HEADER_BYTES];
    struct sl_recording_header header = {.file_id = 5, .memory_bytes = 1000, .policy = "density"};
    sl_recording_header_put(&header, head);
    uint64_t length = sl_recording_frame_end(&frame, 5);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ck_assert_int_eq(write(fd, head, sizeof(head)), (ssize_t)sizeof(head));
    ck_assert_int_eq(write(fd, buffer, length), (ssize_t)length);
    ck_assert_int_eq(close(fd), 0);
}

static struct model_recorded recorded_read(void)
{
    struct model_recorded recorded;
    struct sl_error why;
    recording_write();
    ck_assert_msg(model_recorded_read(path, &recorded, &why) == SL_OK, "%s", why.text);
    ck_assert_int_eq(unlink(path), 0);
    return recorded;
}

static void event(enum sl_recording_kind kind, uint64_t name, uint64_t parent, bool new_op)
{
    struct sl_recording_event one = {.kind = kind,
                                     .name = name,
                                     .parent = parent,
                                     .at_us = at_us,
                                     .new_op = new_op,
                                     .bytes = kind == SL_RECORDING_STORE ? 100 : 0,
                                     .tokens = kind == SL_RECORDING_STORE ? 16 : 0};
    ck_assert(sl_recording_frame_add(&frame, &one));
    at_us += 10;
}

/* Blocks first to last of a chain whose names count from base + 1. */
static void store(uint64_t base, uint32_t first, uint32_t last)
{
    for (uint32_t i = first; i <= last; i++) {
        event(SL_RECORDING_STORE, base + i, i > 1 ? base + i - 1 : 0, i == first);
    }
}

/* As engines note it: the end first. */
static void load(uint64_t base, uint32_t first, uint32_t last)
{
    for (uint32_t i = last; i >= first; i--) {
        event(SL_RECORDING_LOAD, base + i, i > 1 ? base + i - 1 : 0, false);
    }
}

static void request_is(const struct model_recorded *recorded, uint64_t number, uint32_t count,
                       bool uncounted)
{
    const struct replay_request *request = &recorded->trace.requests[number];
    ck_assert_uint_eq(request->id_count, count);
    ck_assert_int_eq(recorded->uncounted[number], uncounted);
}

START_TEST(a_load_and_the_store_behind_it_are_one_request)
    {
        recording_begin();
        store(1000, 1, 4);
        load(1000, 1, 4);
        store(1000, 5, 7);

        struct model_recorded recorded = recorded_read();

        ck_assert_uint_eq(recorded.trace.request_count, 2);
        request_is(&recorded, 0, 4, false);
        request_is(&recorded, 1, 7, false);
        const uint32_t *first = &recorded.trace.ids[recorded.trace.requests[0].first_id];
        const uint32_t *second = &recorded.trace.ids[recorded.trace.requests[1].first_id];
        ck_assert_mem_eq(first, second, 4 * sizeof(*first)); /* from the beginning to the end */
        ck_assert_uint_eq(recorded.trace.requests[1].input_length, 7 * 16);
        ck_assert_uint_eq(recorded.load_count, 4);
        ck_assert_uint_eq(recorded.store_count, 7);
        ck_assert_uint_eq(recorded.block_tokens, 16);
        ck_assert_uint_eq(recorded.block_bytes[first[0]], 100);
        model_recorded_free(&recorded);
    }
END_TEST

START_TEST(requests_that_overlap_are_told_apart)
    {
        recording_begin();
        store(1000, 1, 2);
        store(2000, 1, 3);
        load(1000, 1, 2); /* two that load, then store in the other order */
        load(2000, 1, 3);
        store(2000, 4, 4);
        store(1000, 3, 5);
        load(1000, 1, 5); /* one that stores nothing */

        struct model_recorded recorded = recorded_read();

        ck_assert_uint_eq(recorded.trace.request_count, 5);
        request_is(&recorded, 0, 2, false);
        request_is(&recorded, 1, 3, false);
        request_is(&recorded, 2, 5, false);
        request_is(&recorded, 3, 4, false);
        request_is(&recorded, 4, 5, false);
        model_recorded_free(&recorded);
    }
END_TEST

START_TEST(what_was_there_before_is_brought_in_uncounted)
    {
        recording_begin();
        load(1000, 1, 3);
        load(1000, 1, 3);

        struct model_recorded recorded = recorded_read();

        ck_assert_uint_eq(recorded.trace.request_count, 3);
        request_is(&recorded, 0, 3, true);
        request_is(&recorded, 1, 3, false);
        request_is(&recorded, 2, 3, false);
        ck_assert_uint_eq(recorded.before_count, 3);
        ck_assert_uint_eq(recorded.load_count, 6);
        model_recorded_free(&recorded);
    }
END_TEST

START_TEST(a_store_without_its_load_knows_what_comes_before_it)
    {
        recording_begin();
        store(1000, 1, 2);
        at_us += 120u * 1000000u; /* nobody goes on with that request any more */
        store(1000, 3, 3);

        struct model_recorded recorded = recorded_read();

        ck_assert_uint_eq(recorded.trace.request_count, 2);
        request_is(&recorded, 1, 1, false);
        ck_assert_uint_eq(recorded.before[0], MODEL_NO_BLOCK);
        ck_assert_uint_eq(recorded.before[1],
                          recorded.trace.ids[recorded.trace.requests[0].first_id + 1]);
        model_recorded_free(&recorded);
    }
END_TEST

START_TEST(a_block_that_was_removed_is_another_one_when_it_comes_again)
    {
        recording_begin();
        store(1000, 1, 1);
        event(SL_RECORDING_GONE, 1001, 0, false);
        store(1000, 1, 1);
        load(1000, 1, 1);

        struct model_recorded recorded = recorded_read();

        ck_assert_uint_eq(recorded.trace.id_count, 3);
        ck_assert_uint_ne(recorded.trace.ids[0], recorded.trace.ids[1]);
        ck_assert_uint_eq(recorded.trace.ids[1], recorded.trace.ids[2]);
        ck_assert_uint_eq(recorded.gone_count, 1);
        model_recorded_free(&recorded);
    }
END_TEST

START_TEST(what_came_from_disk_is_counted_so_once)
    {
        recording_begin();
        store(1000, 1, 2);
        event(SL_RECORDING_FETCH, 1002, 1001, false); /* once a part */
        event(SL_RECORDING_FETCH, 1002, 1001, false);
        load(1000, 1, 2);
        load(1000, 1, 2);

        struct model_recorded recorded = recorded_read();

        ck_assert_uint_eq(recorded.load_count, 4);
        ck_assert_uint_eq(recorded.disk_count, 1);
        ck_assert_uint_eq(recorded.trace.request_count, 3);
        model_recorded_free(&recorded);
    }
END_TEST

START_TEST(what_is_missing_is_told)
    {
        struct sl_recording_event lost = {.kind = SL_RECORDING_LOST, .count = 17};
        recording_begin();
        store(1000, 1, 1);
        ck_assert(sl_recording_frame_add(&frame, &lost));
        event(SL_RECORDING_AGAIN, 0, 0, false);
        event(SL_RECORDING_FULL, 0, 0, false);

        struct model_recorded recorded = recorded_read();

        ck_assert_uint_eq(recorded.lost_count, 17);
        ck_assert_uint_eq(recorded.restart_count, 1);
        ck_assert(recorded.full);
        model_recorded_free(&recorded);
    }
END_TEST

/* Chains that come from any order of events, cycles among them: nothing is read or written astray. */
START_TEST(any_events_are_read_safely)
    {
        uint64_t state = (uint64_t)_i * 77 + 1;
        recording_begin();
        for (uint32_t i = 0; i < 20000; i++) {
            state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
            uint64_t drawn = state >> 33;
            event((enum sl_recording_kind)(1 + drawn % 4), drawn / 4 % 50, drawn / 200 % 50,
                  drawn / 10000 % 2 == 0);
        }

        struct model_recorded recorded = recorded_read();

        struct model_options options = model_recorded_options(&recorded);
        const struct model_policy *const policies[] = {&model_lru, &model_density,
                                                       &model_clairvoyant, &model_unlimited};
        for (uint32_t i = 0; i < SL_COUNT(policies); i++) {
            struct model_result result = {0};
            options.capacity_bytes = 1500;
            options.disk.capacity_bytes = 0;
            ck_assert_int_eq(policies[i]->run(&recorded.trace, &options, &result), SL_OK);
            ck_assert_uint_le(result.hit_count, result.reference_count);
            options.disk.capacity_bytes = 2500;
            result = (struct model_result){0};
            sl_err err = policies[i]->run(&recorded.trace, &options, &result);
            ck_assert_int_eq(err, i < 2 ? SL_OK : SL_ERR_UNSUPPORTED);
        }
        model_recorded_free(&recorded);
    }
END_TEST

START_TEST(a_file_that_is_none_is_an_error_with_its_reason)
    {
        struct model_recorded recorded;
        struct sl_error why;
        recording_begin();

        ck_assert_int_eq(model_recorded_read(path, &recorded, &why), SL_ERR_NOT_FOUND);
        ck_assert_int_eq(model_recorded_read("/dev/null", &recorded, &why), SL_ERR_FOREIGN);
        ck_assert_ptr_nonnull(strstr(why.text, "no recording"));
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("recorded");
    TCase *all = tcase_create("all");
    tcase_set_timeout(all, 60);
    tcase_add_test(all, a_load_and_the_store_behind_it_are_one_request);
    tcase_add_test(all, requests_that_overlap_are_told_apart);
    tcase_add_test(all, what_was_there_before_is_brought_in_uncounted);
    tcase_add_test(all, a_store_without_its_load_knows_what_comes_before_it);
    tcase_add_test(all, a_block_that_was_removed_is_another_one_when_it_comes_again);
    tcase_add_test(all, what_came_from_disk_is_counted_so_once);
    tcase_add_test(all, what_is_missing_is_told);
    tcase_add_loop_test(all, any_events_are_read_safely, 0, 6);
    tcase_add_test(all, a_file_that_is_none_is_an_error_with_its_reason);
    suite_add_tcase(suite, all);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
