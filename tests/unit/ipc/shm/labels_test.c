/* tests/unit/ipc/shm/labels_test.c - counters by name add up, whichever process registers a name
 * first, and however many names there are. */
#include "ipc/shm/sl_labels.h"
#include "tests/unit/ipc/shm/shm_support.h"

#include <pthread.h>
#include <sys/wait.h>

static char *dir;
static struct sl_label_sum sums[SL_LABELS_MAX];
static uint32_t sum_count;

static void setup(void)
{
    struct sl_error why = {0};
    dir = shm_dir_make();
    ck_assert_sl_ok(sl_labels_make(dir, &why), why);
}

static void teardown(void)
{
    shm_dir_remove(dir);
}

static struct sl_labels *opened(void)
{
    struct sl_labels *labels = NULL;
    struct sl_error why = {0};
    ck_assert_sl_ok(sl_labels_open(dir, &labels, &why), why);
    return labels;
}

static uint32_t found(struct sl_labels *labels, enum sl_label_kind kind, const char *id)
{
    struct sl_label_place place = {0};
    return sl_label_find(labels, kind, id, "", &place);
}

static void sums_read(void)
{
    struct sl_error why = {0};
    ck_assert_sl_ok(sl_labels_read(dir, sums, &sum_count, &why), why);
}

static bool is_read(enum sl_label_kind kind, const char *id)
{
    sums_read();
    for (uint32_t i = 0; i < sum_count; i++) {
        if (sums[i].kind == kind && strcmp(sums[i].id, id) == 0) {
            return true;
        }
    }
    return false;
}

static const struct sl_label_sum *read_of(enum sl_label_kind kind, const char *id)
{
    sums_read();
    for (uint32_t i = 0; i < sum_count; i++) {
        if (sums[i].kind == kind && strcmp(sums[i].id, id) == 0) {
            return &sums[i];
        }
    }
    ck_abort_msg("no row '%s'", id);
    return &sums[0];
}

START_TEST(a_name_is_one_row_for_all_and_kinds_are_apart)
    {
        struct sl_labels *a = opened(), *b = opened();
        struct sl_label_place place = {0};
        uint32_t model = sl_label_find(a, SL_LABEL_MODEL, "one", "Model One", &place);
        uint32_t tenant = found(a, SL_LABEL_TENANT, "one");

        sl_label_add(a, model, 0, SL_LABEL_DISK, 1);
        sl_label_add(b, found(b, SL_LABEL_MODEL, "one"), 7, SL_LABEL_DISK, 20);
        sl_label_add(b, found(b, SL_LABEL_MODEL, "one"), UINT32_MAX, SL_LABEL_DISK, 300);
        sl_label_add(b, found(b, SL_LABEL_TENANT, "one"), 0, SL_LABEL_NONE, 4000);

        ck_assert_uint_ne(model, tenant);
        ck_assert_uint_eq(read_of(SL_LABEL_MODEL, "one")->counts[SL_LABEL_DISK], 321);
        ck_assert_uint_eq(read_of(SL_LABEL_MODEL, "one")->counts[SL_LABEL_NONE], 0);
        ck_assert_str_eq(read_of(SL_LABEL_MODEL, "one")->name, "Model One");
        ck_assert_uint_eq(read_of(SL_LABEL_TENANT, "one")->counts[SL_LABEL_NONE], 4000);
        ck_assert_uint_eq(sum_count, 2); /* `other` counted nothing */
        sl_labels_close(&a);
        sl_labels_close(&b);
    }
END_TEST

START_TEST(names_that_find_no_row_are_counted_together)
    {
        struct sl_labels *labels = opened();
        char id[16];
        for (uint32_t i = 0; i < SL_LABELS_MAX + 10; i++) {
            (void)snprintf(id, sizeof id, "m%u", i);
            sl_label_add(labels, found(labels, SL_LABEL_MODEL, id), i, SL_LABEL_MEMORY, 1);
        }

        ck_assert_uint_eq(read_of(SL_LABEL_MODEL, "m0")->counts[SL_LABEL_MEMORY], 1);
        ck_assert_uint_eq(read_of(SL_LABEL_MODEL, "other")->counts[SL_LABEL_MEMORY],
                          SL_LABELS_MAX / 2 + 11);
        sl_labels_close(&labels);
    }
END_TEST

START_TEST(many_of_a_kind_leave_room_for_those_of_the_other)
    {
        struct sl_labels *labels = opened();
        char id[16];
        for (uint32_t i = 0; i < SL_LABELS_MAX; i++) {
            (void)snprintf(id, sizeof id, "m%u", i);
            (void)found(labels, SL_LABEL_MODEL, id);
        }

        uint32_t tenant = found(labels, SL_LABEL_TENANT, "late");
        sl_label_add(labels, tenant, 0, SL_LABEL_BYTES, 5);

        ck_assert_uint_ne(tenant, SL_LABEL_TENANT); /* `other` */
        ck_assert_uint_eq(read_of(SL_LABEL_TENANT, "late")->counts[SL_LABEL_BYTES], 5);
        sl_labels_close(&labels);
    }
END_TEST

/* A remembered row is reused across shm files; a row that is no longer the label's is not. */
START_TEST(a_row_is_found_where_it_was_found_before)
    {
        struct sl_labels *labels = opened();
        struct sl_label_place one = {0}, other = {0};
        char id[16];
        uint32_t row = sl_label_find(labels, SL_LABEL_MODEL, "one", "", &one);
        ck_assert_uint_eq(sl_label_find(labels, SL_LABEL_MODEL, "one", "", &one), row);
        for (uint32_t i = 0; i < SL_LABELS_MAX; i++) {
            (void)snprintf(id, sizeof id, "m%u", i);
            (void)found(labels, SL_LABEL_MODEL, id);
        }
        for (uint32_t i = 0; i < 2; i++) {
            ck_assert_uint_eq(sl_label_find(labels, SL_LABEL_MODEL, "late", "", &other),
                              SL_LABEL_MODEL);
        }
        sl_labels_close(&labels);
        ck_assert_int_eq(sl_shm_file_remove(dir, "labels", NULL), SL_OK);
        ck_assert_int_eq(sl_labels_make(dir, NULL), SL_OK);
        labels = opened();
        uint32_t first = found(labels, SL_LABEL_TENANT, "a"); /* in the row that `one` had */

        uint32_t again = sl_label_find(labels, SL_LABEL_MODEL, "one", "", &one);
        uint32_t late = sl_label_find(labels, SL_LABEL_MODEL, "late", "", &other);

        ck_assert_uint_eq(first, row);
        ck_assert_uint_ne(again, first);
        ck_assert_uint_ne(late, SL_LABEL_MODEL);
        sl_label_add(labels, late, 0, SL_LABEL_DISK, 3);
        ck_assert_uint_eq(read_of(SL_LABEL_MODEL, "late")->counts[SL_LABEL_DISK], 3);
        sl_labels_close(&labels);
    }
END_TEST

START_TEST(what_is_no_text_is_none_in_monitoring_and_long_ids_are_cut)
    {
        struct sl_labels *labels = opened();
        char id[2 * SL_LABEL_ID_BYTES];
        memset(id, 'x', sizeof id);
        id[sizeof id - 1] = '\0';
        struct sl_label_place place = {0};
        uint32_t label = sl_label_find(labels, SL_LABEL_MODEL, id, "a\nb\x01\xc3\xa4", &place);
        sl_label_add(labels, label, 0, SL_LABEL_DISK, 1);
        ck_assert_uint_eq(found(labels, SL_LABEL_MODEL, id), label);
        id[SL_LABEL_ID_BYTES - 1] = '\0';

        ck_assert_str_eq(read_of(SL_LABEL_MODEL, id)->name, "a?b???");
        sl_labels_close(&labels);
    }
END_TEST

START_TEST(a_successor_of_the_registrar_goes_on_and_a_damaged_segment_begins_anew)
    {
        struct sl_labels *labels = NULL;
        char path[512];
        sl_labels_follow(dir, &labels);
        ck_assert_ptr_nonnull(labels);
        sl_label_add(labels, found(labels, SL_LABEL_MODEL, "m"), 0, SL_LABEL_DISK, 1);
        ck_assert_int_eq(sl_labels_make(dir, NULL), SL_OK);
        ck_assert_uint_eq(read_of(SL_LABEL_MODEL, "m")->counts[SL_LABEL_DISK], 1);
        (void)snprintf(path, sizeof path, "%s/labels", dir);
        ck_assert_int_eq(truncate(path, 5000), 0);
        ck_assert(sl_shm_file_file_is_short(dir, "labels", NULL));

        ck_assert_int_eq(sl_labels_make(dir, NULL), SL_OK);

        ck_assert(!is_read(SL_LABEL_MODEL, "m"));
        sl_labels_follow(dir, &labels); /* its file is gone: it is the new one */
        sl_label_add(labels, found(labels, SL_LABEL_MODEL, "m"), 0, SL_LABEL_DISK, 7);
        ck_assert_uint_eq(read_of(SL_LABEL_MODEL, "m")->counts[SL_LABEL_DISK], 7);
        sl_labels_close(&labels);
    }
END_TEST

enum { THREADS = 8, TURNS = 50000 };
static void *counting(void *at)
{
    struct sl_labels *labels = at;
    static _Atomic uint32_t number;
    uint32_t thread = atomic_fetch_add(&number, 1);
    for (uint32_t i = 0; i < TURNS; i++) {
        sl_label_add(labels, found(labels, SL_LABEL_MODEL, i % 2 == 0 ? "even" : "odd"), thread,
                     SL_LABEL_MEMORY, 1);
    }
    return NULL;
}

START_TEST(threads_and_the_killed_lose_nothing)
    {
        struct sl_labels *labels = opened();
        pthread_t threads[THREADS];
        for (unsigned i = 0; i < THREADS; i++) {
            ck_assert_int_eq(pthread_create(&threads[i], NULL, counting, labels), 0);
        }
        for (unsigned i = 0; i < THREADS; i++) {
            ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
        }
        pid_t pid = fork();
        if (pid == 0) {
            struct sl_labels *own = NULL;
            if (sl_labels_open(dir, &own, NULL) == SL_OK) {
                sl_label_add(own, found(own, SL_LABEL_MODEL, "odd"), 0, SL_LABEL_MEMORY, 1);
            }
            (void)raise(SIGKILL);
        }
        ck_assert_int_eq(waitpid(pid, NULL, 0), pid);

        ck_assert_uint_eq(read_of(SL_LABEL_MODEL, "even")->counts[SL_LABEL_MEMORY],
                          (uint64_t)THREADS * TURNS / 2);
        ck_assert_uint_eq(read_of(SL_LABEL_MODEL, "odd")->counts[SL_LABEL_MEMORY],
                          (uint64_t)THREADS * TURNS / 2 + 1);
        sl_labels_close(&labels);
    }
END_TEST

START_TEST(without_a_segment_nothing_is_counted)
    {
        struct sl_labels *labels = NULL;
        ck_assert_int_eq(sl_labels_open("/nonexistent", &labels, NULL), SL_ERR_NOT_FOUND);
        sl_labels_follow("/nonexistent", &labels);
        ck_assert_ptr_null(labels);
        sl_label_add(NULL, found(NULL, SL_LABEL_TENANT, "t"), 0, SL_LABEL_DISK, 1);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("labels");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, setup, teardown);
    tcase_add_test(all, a_name_is_one_row_for_all_and_kinds_are_apart);
    tcase_add_test(all, names_that_find_no_row_are_counted_together);
    tcase_add_test(all, many_of_a_kind_leave_room_for_those_of_the_other);
    tcase_add_test(all, a_row_is_found_where_it_was_found_before);
    tcase_add_test(all, what_is_no_text_is_none_in_monitoring_and_long_ids_are_cut);
    tcase_add_test(all, a_successor_of_the_registrar_goes_on_and_a_damaged_segment_begins_anew);
    tcase_add_test(all, threads_and_the_killed_lose_nothing);
    tcase_add_test(all, without_a_segment_nothing_is_counted);
    suite_add_tcase(suite, all);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
