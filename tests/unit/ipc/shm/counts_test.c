/* tests/unit/ipc/shm/counts_test.c - clients' counters in shared memory add up, whichever client
 * dies. */
#include "ipc/shm/sl_counts.h"
#include "tests/unit/ipc/shm/shm_support.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

static char *dir;

static void setup(void)
{
    struct sl_error why = {0};
    dir = shm_dir_make();
    ck_assert_sl_ok(sl_counts_make(dir, &why), why);
}

static void teardown(void)
{
    shm_dir_remove(dir);
}

static struct sl_counts *opened(void)
{
    struct sl_counts *counts = NULL;
    struct sl_error why = {0};
    ck_assert_sl_ok(sl_counts_open(dir, sl_proc_id_client(), &counts, &why), why);
    return counts;
}

static struct sl_counts_sum sum(void)
{
    struct sl_counts_sum out;
    struct sl_error why = {0};
    ck_assert_sl_ok(sl_counts_read(dir, &out, &why), why);
    return out;
}

static void count(const struct sl_counts *counts, uint32_t thread, uint64_t amount)
{
    sl_count(sl_counts_row_of(counts, thread), SL_COUNT_GET_DISK, amount);
}

START_TEST(counts_of_threads_and_clients_add_up_and_stay)
    {
        struct sl_counts *a = opened(), *b = opened();
        count(a, 0, 1);
        count(a, 7, 20);
        count(a, SL_COUNTS_ROWS - 1, 300);
        count(a, SL_COUNTS_ROWS + 5, 4000);
        count(a, UINT32_MAX, 50000);
        count(b, 0, 600000);
        ck_assert_uint_eq(sum().counts[SL_COUNT_GET_DISK], 654321);
        ck_assert_uint_eq(sum().counts[SL_COUNT_GET_MEMORY], 0);
        ck_assert_uint_eq(sum().client_count, 2);
        sl_counts_close(&a);
        sl_counts_close(&b);
        ck_assert_uint_eq(sum().client_count, 0);
        a = opened(); /* reuses the block of one of the two */
        count(a, 0, 1000000);
        ck_assert_uint_eq(sum().counts[SL_COUNT_GET_DISK], 1654321);
        sl_counts_close(&a);
    }
END_TEST

START_TEST(times_fall_into_buckets)
    {
        struct sl_counts *counts = opened();
        struct sl_counts_row row = sl_counts_row_of(counts, 0);
        sl_counts_time(row, SL_TIER_MEMORY, 0, 1);
        sl_counts_time(row, SL_TIER_MEMORY, 1000, 16);
        sl_counts_time(row, SL_TIER_MEMORY, 1001, 2);
        sl_counts_time(row, SL_TIER_REMOTE, 10 * SL_NS_PER_S + 1, 1);
        sl_counts_time(row, SL_TIER_REMOTE, UINT64_MAX / 2, 1);
        sl_counts_time(row, SL_TIMED_BLOCKS, 150000, 1);
        sl_counts_time(row, SL_TIMED_KEYS, 100, 64);
        sl_counts_time(row, SL_TIMED_KEYS, 1001, 1);
        sl_counts_time(row, SL_TIMED_KEYS, 200 * SL_NS_PER_MS, 1);
        struct sl_counts_sum out = sum();
        ck_assert_uint_eq(out.times[SL_TIMED_BLOCKS].sum_ns, 150000);
        ck_assert_uint_eq(out.times[SL_TIMED_KEYS].sum_ns, 64 * 100 + 1001 + 200 * SL_NS_PER_MS);
        ck_assert_uint_eq(out.times[SL_TIMED_KEYS].buckets[0], 64);
        ck_assert_uint_eq(sl_counts_bucket_ends_ns[1], 2 * SL_NS_PER_US);
        ck_assert_uint_eq(out.times[SL_TIMED_KEYS].buckets[1], 1);
        ck_assert_uint_eq(sl_counts_bucket_ends_ns[16], 200 * SL_NS_PER_MS);
        ck_assert_uint_eq(out.times[SL_TIMED_KEYS].buckets[16], 1);
        ck_assert_uint_eq(out.times[SL_TIER_MEMORY].buckets[0], 17);
        ck_assert_uint_eq(out.times[SL_TIER_MEMORY].buckets[1], 2);
        ck_assert_uint_eq(out.times[SL_TIER_MEMORY].sum_ns, 16000 + 2002);
        ck_assert_uint_eq(out.times[SL_TIER_REMOTE].buckets[SL_COUNTS_BUCKETS - 1], 2);
        for (uint32_t i = 1; i < SL_COUNTS_BUCKETS; i++) {
            ck_assert_uint_lt(sl_counts_bucket_ends_ns[i - 1], sl_counts_bucket_ends_ns[i]);
        }
        sl_counts_close(&counts);
    }
END_TEST

static bool is_other(void *context, struct sl_proc_id client)
{
    return !sl_proc_id_equal(client, *(const struct sl_proc_id *)context);
}

START_TEST(who_is_killed_has_counted_and_the_registrar_gives_its_block_back)
    {
        struct sl_proc_id lives = sl_proc_id_client();
        struct sl_counts *living = NULL, *killed = opened();
        struct sl_error why = {0};
        ck_assert_sl_ok(sl_counts_open(dir, lives, &living, &why), why);
        count(killed, 0, 75);
        sl_counts_leave(&killed);
        ck_assert_uint_eq(sum().client_count, 2);

        ck_assert_int_eq(sl_counts_make(dir, NULL), SL_OK); /* a registrar restarts */
        sl_counts_free(dir, is_other, &lives);

        ck_assert_uint_eq(sum().counts[SL_COUNT_GET_DISK], 75);
        ck_assert_uint_eq(sum().client_count, 1);
        count(living, 0, 100);
        killed = opened();
        ck_assert(!sl_counts_row_of(killed, 0).shared);
        count(killed, 0, 1000);
        ck_assert_uint_eq(sum().counts[SL_COUNT_GET_DISK], 1175);
        sl_counts_close(&killed);
        sl_counts_close(&living);
    }
END_TEST

START_TEST(the_block_of_a_client_killed_while_it_takes_it_is_given_back)
    {
        struct sl_proc_id nobody = {0};
        const uint64_t comes = 1;
        char path[512];
        (void)snprintf(path, sizeof path, "%s/counts", dir);
        SL_AUTO(close) int fd = open(path, O_WRONLY);
        struct sl_counts *counts = opened();
        count(counts, 0, 75);
        sl_counts_close(&counts);
        ck_assert_int_eq(pwrite(fd, &comes, sizeof comes, SL_PAGE_BYTES + 64), sizeof comes);

        sl_counts_free(dir, is_other, &nobody);
        ck_assert_uint_eq(sum().client_count, 1); /* it may be about to register */
        sl_counts_free(dir, is_other, &nobody);

        ck_assert_uint_eq(sum().client_count, 0);
        ck_assert_uint_eq(sum().counts[SL_COUNT_GET_DISK], 75);
    }
END_TEST

START_TEST(readers_without_pins_share_a_block)
    {
        struct sl_counts *counts = NULL;
        struct sl_error why = {0};
        ck_assert_sl_ok(sl_counts_open(dir, (struct sl_proc_id){0}, &counts, &why), why);
        ck_assert(sl_counts_row_of(counts, 0).shared);
        count(counts, 0, 5);
        ck_assert_uint_eq(sum().counts[SL_COUNT_GET_DISK], 5);
        ck_assert_uint_eq(sum().client_count, 0);
        sl_counts_close(&counts);
    }
END_TEST

START_TEST(a_fork_that_closes_its_copy_leaves_the_block_to_its_parent)
    {
        struct sl_counts *counts = opened();
        pid_t pid = fork();
        ck_assert_int_ge(pid, 0);
        if (pid == 0) {
            sl_counts_leave(&counts);
            _exit(0);
        }
        ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
        ck_assert_uint_eq(sum().client_count, 1);
        sl_counts_close(&counts);
        ck_assert_uint_eq(sum().client_count, 0);
    }
END_TEST

START_TEST(more_clients_than_blocks_share_one)
    {
        enum { EXTRA = 3 };
        static struct sl_counts *all[SL_COUNTS_BLOCKS + EXTRA];
        for (uint32_t i = 0; i < SL_COUNT(all); i++) {
            all[i] = opened();
            count(all[i], 0, 1);
            struct sl_counts_row row = sl_counts_row_of(all[i], 0);
            ck_assert_int_eq(row.shared, i >= SL_COUNTS_BLOCKS);
        }
        ck_assert_uint_eq(sum().counts[SL_COUNT_GET_DISK], SL_COUNT(all));
        for (uint32_t i = 0; i < SL_COUNT(all); i++) {
            sl_counts_close(&all[i]);
        }
        ck_assert_uint_eq(sum().client_count, 0);
    }
END_TEST

enum { THREADS = 8, TURNS = 200000 };
static void *counting(void *at)
{
    const struct sl_counts *counts = at;
    for (uint32_t i = 0; i < TURNS; i++) {
        count(counts, UINT32_MAX, 1);
    }
    return NULL;
}

START_TEST(threads_that_share_a_row_lose_nothing)
    {
        struct sl_counts *counts = opened();
        pthread_t threads[THREADS];
        for (unsigned i = 0; i < THREADS; i++) {
            ck_assert_int_eq(pthread_create(&threads[i], NULL, counting, counts), 0);
        }
        for (unsigned i = 0; i < THREADS; i++) {
            ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
        }
        ck_assert_uint_eq(sum().counts[SL_COUNT_GET_DISK], (uint64_t)THREADS * TURNS);
        sl_counts_close(&counts);
    }
END_TEST

START_TEST(a_segment_that_is_damaged_is_made_anew)
    {
        char path[512];
        (void)snprintf(path, sizeof path, "%s/counts", dir);
        ck_assert_int_eq(truncate(path, 100), 0);
        struct sl_counts_sum out;
        ck_assert_int_ne(sl_counts_read(dir, &out, NULL), SL_OK);
        ck_assert_int_eq(sl_counts_make(dir, NULL), SL_OK);
        ck_assert_int_eq(sl_counts_read(dir, &out, NULL), SL_OK);
    }
END_TEST

START_TEST(without_a_segment_nothing_is_counted)
    {
        struct sl_counts *counts = NULL;
        ck_assert_int_eq(sl_counts_open("/nonexistent", sl_proc_id_client(), &counts, NULL),
                         SL_ERR_NOT_FOUND);
        ck_assert_ptr_null(counts);
        count(NULL, 0, 1);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("counts");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, setup, teardown);
    tcase_add_test(all, counts_of_threads_and_clients_add_up_and_stay);
    tcase_add_test(all, times_fall_into_buckets);
    tcase_add_test(all, who_is_killed_has_counted_and_the_registrar_gives_its_block_back);
    tcase_add_test(all, the_block_of_a_client_killed_while_it_takes_it_is_given_back);
    tcase_add_test(all, a_fork_that_closes_its_copy_leaves_the_block_to_its_parent);
    tcase_add_test(all, more_clients_than_blocks_share_one);
    tcase_add_test(all, readers_without_pins_share_a_block);
    tcase_add_test(all, threads_that_share_a_row_lose_nothing);
    tcase_add_test(all, a_segment_that_is_damaged_is_made_anew);
    tcase_add_test(all, without_a_segment_nothing_is_counted);
    suite_add_tcase(suite, all);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
