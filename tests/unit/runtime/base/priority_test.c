/* tests/unit/runtime/base/priority_test.c - nice levels of a process and of its session, and the
 * kernel's count of waits for a core. */
#include "runtime/base/sl_clock.h"
#include "runtime/base/sl_priority.h"

#include <check.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define STRANGER_UID 4711u
#define NO_GROUP     100 /* the level of a session on a kernel without groups of sessions */

/* The state of a child after it raised its priority; returned by its exit code and a pipe. */
struct seen {
    sl_err err;
    int level, session_level;
    bool leads;
    char why[240];
};

static int session_level(void)
{
    int level = NO_GROUP;
    FILE *file = fopen("/proc/self/autogroup", "r");
    if (file != NULL) {
        if (fscanf(file, "/autogroup-%*d nice %d", &level) != 1) {
            level = NO_GROUP;
        }
        (void)fclose(file);
    }
    return level;
}

enum child { CHILD_PLAIN, CHILD_GROUP_LEADER, CHILD_STRANGER };

/* Raises the priority in a child of its own: lowering it again needs a privilege. */
static struct seen raise_in_child(enum child kind, uint32_t levels)
{
    int ends[2];
    struct seen seen = {0};
    ck_assert_int_eq(pipe(ends), 0);
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        struct sl_error why = {0};
        const struct rlimit none = {0};
        bool ready = kind == CHILD_PLAIN ? true
                     : kind == CHILD_GROUP_LEADER
                         ? setpgid(0, 0) == 0
                         : (setrlimit(RLIMIT_NICE, &none) == 0 && setuid(STRANGER_UID) == 0);
        seen.err = ready ? sl_priority_raise(levels, &why) : SL_ERR_INTERNAL;
        seen.level = getpriority(PRIO_PROCESS, 0);
        seen.session_level = session_level();
        seen.leads = getsid(0) == getpid();
        (void)snprintf(seen.why, sizeof(seen.why), "%s", why.text);
        _exit(write(ends[1], &seen, sizeof(seen)) != (ssize_t)sizeof(seen));
    }
    ck_assert_int_eq(read(ends[0], &seen, sizeof(seen)), (ssize_t)sizeof(seen));
    ck_assert_int_eq(waitpid(child, NULL, 0), child);
    (void)close(ends[0]);
    (void)close(ends[1]);
    return seen;
}

static bool may_raise(void)
{
    return raise_in_child(CHILD_PLAIN, 1).err == SL_OK;
}

START_TEST(priority_raises_process_and_its_own_session)
    {
        if (!may_raise()) {
            return; /* an ordinary user: see the test of CHILD_STRANGER */
        }
        struct seen before = raise_in_child(CHILD_PLAIN, 0);
        struct seen after = raise_in_child(CHILD_PLAIN, 7);
        ck_assert_int_eq(after.err, SL_OK);
        ck_assert_int_eq(after.level, SL_MAX(before.level - 7, -20));
        ck_assert(after.leads);
        if (after.session_level != NO_GROUP) {
            ck_assert_int_eq(after.session_level, -7);
        }
    }
END_TEST

START_TEST(priority_of_nothing_changes_nothing)
    {
        struct seen seen = raise_in_child(CHILD_PLAIN, 0);
        ck_assert_int_eq(seen.err, SL_OK);
        ck_assert_int_eq(seen.level, getpriority(PRIO_PROCESS, 0));
        ck_assert(!seen.leads);
    }
END_TEST

START_TEST(priority_leaves_the_session_of_others_alone)
    {
        if (!may_raise()) {
            return;
        }
        int before = session_level();
        struct seen seen = raise_in_child(CHILD_GROUP_LEADER, 7);
        ck_assert_int_eq(seen.err, SL_OK);
        ck_assert(!seen.leads);
        ck_assert_int_eq(seen.session_level, before);
    }
END_TEST

START_TEST(priority_without_the_right_is_refused_and_named)
    {
        if (geteuid() != 0) {
            return; /* cannot become another user */
        }
        struct seen before = raise_in_child(CHILD_STRANGER, 0);
        struct seen seen = raise_in_child(CHILD_STRANGER, 7);
        ck_assert_int_eq(seen.err, SL_ERR_PERMISSION);
        ck_assert_int_eq(seen.level, before.level);
        ck_assert_ptr_nonnull(strstr(seen.why, "nice level"));
    }
END_TEST

/* Two processes that never sleep on one core: each waits while the other runs. */
START_TEST(core_wait_counts_what_others_took)
    {
        uint64_t first_ns = 0, wait_ns = 0;
        sl_err err = sl_core_wait_ns((uint32_t)getpid(), &first_ns, NULL);
        if (err == SL_ERR_UNSUPPORTED) {
            return;
        }
        ck_assert_int_eq(err, SL_OK);
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET((size_t)sched_getcpu(), &one);
        ck_assert_int_eq(sched_setaffinity(0, sizeof(one), &one), 0);
        pid_t other = fork();
        ck_assert_int_ge(other, 0);
        if (other == 0) {
            for (;;) {
            }
        }
        uint64_t until_ns = sl_clock_monotonic_ns() + 20 * SL_NS_PER_S;
        while (wait_ns < first_ns + 10 * SL_NS_PER_MS && sl_clock_monotonic_ns() < until_ns) {
            ck_assert_int_eq(sl_core_wait_ns((uint32_t)getpid(), &wait_ns, NULL), SL_OK);
        }
        (void)kill(other, SIGKILL);
        ck_assert_int_eq(waitpid(other, NULL, 0), other);
        ck_assert_uint_ge(wait_ns, first_ns + 10 * SL_NS_PER_MS);
    }
END_TEST

START_TEST(core_wait_of_nobody_is_not_found)
    {
        uint64_t wait_ns = 0, own_ns = 0;
        struct sl_error why = {0};
        if (sl_core_wait_ns((uint32_t)getpid(), &own_ns, NULL) == SL_ERR_UNSUPPORTED) {
            return;
        }
        pid_t child = fork();
        ck_assert_int_ge(child, 0);
        if (child == 0) {
            _exit(0);
        }
        ck_assert_int_eq(waitpid(child, NULL, 0), child);
        ck_assert_int_eq(sl_core_wait_ns((uint32_t)child, &wait_ns, &why), SL_ERR_NOT_FOUND);
        ck_assert_ptr_nonnull(strstr(why.text, "no process"));
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("priority");
    TCase *cases = tcase_create("priority");
    tcase_set_timeout(cases, 60);
    tcase_add_test(cases, priority_raises_process_and_its_own_session);
    tcase_add_test(cases, priority_of_nothing_changes_nothing);
    tcase_add_test(cases, priority_leaves_the_session_of_others_alone);
    tcase_add_test(cases, priority_without_the_right_is_refused_and_named);
    tcase_add_test(cases, core_wait_counts_what_others_took);
    tcase_add_test(cases, core_wait_of_nobody_is_not_found);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
