/* tests/unit/ipc/shm/settled_test.c - completed requests are known to the next registrar. */
#include "ipc/shm/sl_settled.h"
#include "tests/unit/ipc/shm/shm_support.h"

static struct sl_settled *settled_open(const char *dir)
{
    struct sl_settled *settled = NULL;
    struct sl_error why = {0};
    ck_assert_sl_ok(sl_settled_open(dir, &settled, &why), why);
    return settled;
}

START_TEST(the_next_one_knows)
    {
        char *dir = shm_dir_make();
        enum sl_settled_end end = SL_SETTLED_REMOVED;
        uint64_t hash = 0;
        struct sl_settled *settled = settled_open(dir);
        ck_assert(!sl_settled_committed(settled, 7, NULL) &&
                  !sl_settled_removed(settled, 400, &end));
        ck_assert(!sl_settled_committed(settled, 0, NULL) && !sl_settled_removed(settled, 0, &end));
        sl_settled_commit(settled, 7, 77);
        sl_settled_remove(settled, 400, SL_SETTLED_LEASED);
        sl_settled_close(&settled);

        settled = settled_open(dir);
        ck_assert(sl_settled_committed(settled, 7, &hash));
        ck_assert_uint_eq(hash, 77);
        ck_assert(sl_settled_removed(settled, 400, &end));
        ck_assert_int_eq(end, SL_SETTLED_LEASED);
        ck_assert(!sl_settled_committed(settled, 8, NULL) &&
                  !sl_settled_removed(settled, 404, &end));
        sl_settled_close(&settled);
        shm_dir_remove(dir);
    }
END_TEST

START_TEST(what_is_new_takes_the_place_of_what_is_old)
    {
        char *dir = shm_dir_make();
        struct sl_settled *settled = settled_open(dir);
        enum sl_settled_end end;
        uint64_t seed = random_seed("settled"), last[1000] = {0};
        for (uint64_t i = 1; i <= 600000; i++) {
            sl_settled_commit(settled, i, i);
            last[i % 1000] = random_next(&seed);
            sl_settled_remove(settled, last[i % 1000], SL_SETTLED_REMOVED);
        }
        ck_assert(!sl_settled_committed(settled, 1000, NULL));
        for (uint64_t i = 590000; i <= 600000; i++) {
            must(sl_settled_committed(settled, i, NULL));
        }
        for (uint32_t i = 0; i < 1000;
             i++) { /* eight newer ones of one place in a thousand: none */
            must(sl_settled_removed(settled, last[i], &end));
        }
        sl_settled_close(&settled);
        shm_dir_remove(dir);
    }
END_TEST

START_TEST(a_damaged_file_is_made_anew)
    {
        char *dir = shm_dir_make(), path[128];
        struct sl_settled *settled = settled_open(dir);
        sl_settled_commit(settled, 7, 77);
        sl_settled_close(&settled);
        snprintf(path, sizeof(path), "%s/settled", dir);
        ck_assert_int_eq(truncate(path, 100), 0);

        settled = settled_open(dir);
        ck_assert(!sl_settled_committed(settled, 7, NULL));
        sl_settled_close(&settled);
        shm_dir_remove(dir);
    }
END_TEST

START_TEST(a_full_file_system_is_an_error)
    {
        char *dir = shm_dir_make();
        struct sl_settled *settled = NULL;
        struct sl_error why = {0};
        if (shm_dir_limit(dir, "1m")) {
            ck_assert_int_eq(sl_settled_open(dir, &settled, &why), SL_ERR_NO_SPACE);
            ck_assert_int_eq(umount(dir), 0);
        }
        shm_dir_remove(dir);
    }
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("settled");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, the_next_one_knows);
    tcase_add_test(tcase, what_is_new_takes_the_place_of_what_is_old);
    tcase_add_test(tcase, a_damaged_file_is_made_anew);
    tcase_add_test(tcase, a_full_file_system_is_an_error);
    return suite_run(tcase, "settled");
}
