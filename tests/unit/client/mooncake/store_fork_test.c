/* tests/unit/client/mooncake/store_fork_test.c - a forked child may register and free memory,
 * whatever the parent's other threads were doing. */
#include "client/mooncake/store/internal.h"

#include <check.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define MEMORIES   300u /* long lists: the thread holds the locks most of the time */
#define FORKS      60u
#define HANG_AFTER 30u /* seconds */

static _Atomic bool stop;
static char other[2];

/* Changes nothing, but under the locks for changes. Allocates nothing, since sanitizers' allocators
 * do not support a fork meanwhile. */
static void *thread_main(void *context)
{
    (void)context;
    while (!stop) {
        (void)sl_memory_unregister(&other[0], NULL);
        (void)sl_store_memory_free(&other[0]);
    }
    return NULL;
}

static int child_main(void)
{
    (void)alarm(HANG_AFTER);
    sl_err known = sl_memory_unregister(&other[1], NULL);
    return known == SL_ERR_NOT_FOUND && sl_store_memory_free(&other[1]) == SL_STORE_INTERNAL ? 0
                                                                                             : 1;
}

START_TEST(a_fork_finds_free_locks)
    {
        struct sl_store *store = NULL;
        void *memories[MEMORIES];
        pthread_t thread;
        ck_assert_int_eq(sl_store_create(&store), SL_OK);
        for (uint32_t i = 0; i < MEMORIES; i++) {
            memories[i] = sl_store_memory_alloc(4096);
            ck_assert_ptr_nonnull(memories[i]);
        }
        ck_assert_int_eq(pthread_create(&thread, NULL, thread_main, NULL), 0);

        for (uint32_t i = 0; i < FORKS; i++) {
            int status = -1;
            pid_t child = fork();
            if (child == 0) {
                _exit(child_main());
            }
            ck_assert_int_eq(waitpid(child, &status, 0), child);
            ck_assert_int_eq(status, 0);
        }

        stop = true;
        ck_assert_int_eq(pthread_join(thread, NULL), 0);
        for (uint32_t i = 0; i < MEMORIES; i++) {
            ck_assert_int_eq(sl_store_memory_free(memories[i]), SL_STORE_OK);
        }
        sl_store_destroy(&store);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("store_fork");
    TCase *tcase = tcase_create("store_fork");
    tcase_set_timeout(tcase, 2 * HANG_AFTER);
    tcase_add_test(tcase, a_fork_finds_free_locks);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
