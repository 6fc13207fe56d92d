/* tests/unit/ipc/shm/seen_test.c - the filter of keys that were present: it forgets none of the
 * newest, and its error rate is as its header promises. */
#include "ipc/shm/sl_seen.h"
#include "runtime/base/sl_digest.h"
#include "tests/unit/ipc/shm/shm_support.h"

#define KEYS SL_SEEN_KEYS_MIN

static char *dir;

static void setup(void)
{
    dir = shm_dir_make();
}

static void teardown(void)
{
    shm_dir_remove(dir);
}

static struct sl_seen *made(void)
{
    struct sl_seen *seen = NULL;
    struct sl_error why = {0};
    ck_assert_sl_ok(sl_seen_make(dir, 1, &seen, &why), why);
    return seen;
}

static uint64_t hash_of(uint64_t number)
{
    return sl_key_hash(&number, sizeof number);
}

static uint64_t had(const struct sl_seen *seen, uint64_t from, uint64_t count)
{
    uint64_t sum = 0;
    for (uint64_t i = from; i < from + count; i++) {
        sum += sl_seen_has(seen, hash_of(i));
    }
    return sum;
}

START_TEST(the_newest_keys_are_known_and_strangers_are_rarely)
    {
        struct sl_seen *seen = made(), *reader = NULL;
        struct sl_error why = {0};
        ck_assert_sl_ok(sl_seen_open(dir, &reader, &why), why);
        ck_assert_uint_eq(had(reader, 0, 1000), 0);

        for (uint64_t i = 0; i < 2 * KEYS; i++) {
            sl_seen_add(seen, hash_of(i));
        }

        ck_assert_uint_eq(had(reader, 0, 2 * KEYS), 2 * KEYS);
        /* Both halves are full: the worst case. */
        uint64_t wrong = had(reader, UINT64_C(1) << 40, 10 * KEYS);
        ck_assert_uint_lt(wrong, 10 * KEYS / 200);
        sl_seen_close(&reader);
        sl_seen_close(&seen);
    }
END_TEST

START_TEST(older_keys_are_forgotten_and_what_comes_again_is_new)
    {
        struct sl_seen *seen = made();
        for (uint64_t i = 0; i < 4 * KEYS; i++) {
            sl_seen_add(seen, hash_of(i));
            sl_seen_add(seen, hash_of(i % 100)); /* these recur */
        }

        ck_assert_uint_eq(had(seen, 0, 100), 100);
        ck_assert_uint_lt(had(seen, 100, KEYS), KEYS / 100);
        ck_assert_uint_eq(had(seen, 3 * KEYS, KEYS), KEYS);
        sl_seen_close(&seen);
    }
END_TEST

START_TEST(a_successor_goes_on_and_another_size_begins_anew)
    {
        struct sl_seen *seen = made();
        sl_seen_add(seen, hash_of(7));
        sl_seen_close(&seen);
        seen = made();
        ck_assert(sl_seen_has(seen, hash_of(7)));
        sl_seen_close(&seen);
        ck_assert_int_eq(sl_seen_make(dir, 2 * KEYS, &seen, NULL), SL_OK);
        ck_assert(!sl_seen_has(seen, hash_of(7)));
        sl_seen_close(&seen);
    }
END_TEST

START_TEST(a_file_that_was_cut_is_made_anew_and_readers_follow)
    {
        struct sl_seen *seen = made(), *reader = NULL;
        char path[512];
        sl_seen_follow(dir, &reader);
        sl_seen_add(seen, hash_of(7));
        ck_assert(sl_seen_has(reader, hash_of(7)));
        (void)snprintf(path, sizeof path, "%s/seen", dir);
        ck_assert_int_eq(truncate(path, 9000), 0);
        ck_assert(sl_shm_file_file_is_short(dir, "seen", NULL));
        (void)sl_seen_has(reader, hash_of(7)); /* no process crashes */
        sl_seen_close(&seen);

        seen = made();

        sl_seen_add(seen, hash_of(8));
        sl_seen_follow(dir, &reader);
        ck_assert(sl_seen_has(reader, hash_of(8)));
        ck_assert(!sl_seen_has(reader, hash_of(7)));
        sl_seen_close(&reader);
        sl_seen_close(&seen);
        ck_assert(!sl_seen_has(NULL, 1));
        sl_seen_add(NULL, 1);
        ck_assert_int_eq(sl_seen_open("/nonexistent", &seen, NULL), SL_ERR_NOT_FOUND);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("seen");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, setup, teardown);
    tcase_add_test(all, the_newest_keys_are_known_and_strangers_are_rarely);
    tcase_add_test(all, older_keys_are_forgotten_and_what_comes_again_is_new);
    tcase_add_test(all, a_successor_goes_on_and_another_size_begins_anew);
    tcase_add_test(all, a_file_that_was_cut_is_made_anew_and_readers_follow);
    suite_add_tcase(suite, all);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
