/* tests/unit/client/tools/supervise_test.c - the watcher's test for hangs, and its messages to
 * systemd. */
#include "client/tools/supervise/hang.h"
#include "client/tools/supervise/notify.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#define MS SL_NS_PER_MS

/* ---- hangs: looks at an actor every 250 ms ---- */

static const struct {
    const char *looks;    /* R: runs, T: stopped, S: silent, B: both */
    const char *verdicts; /* at each look: . fine, t stopped, s silent */
    bool starting;
} histories[] = {
    {"TTTTT", "....t", false},
    {"TTTRTTTT", "........", false}, /* it ran in between */
    {"SSSSS", "....s", false},       /* from the first check at which it had been silent for long */
    {"SSSSRSSSS", ".........", false},
    {"BSSSTT", "......", false}, /* silent, then stopped: neither for long */
    {"BSSSS", "....s", false},
    {"BBBBB", "....t", false},           /* a stopped process is silent as well */
    {"TTTTTTTTTT", "....t....t", false}, /* reported again if nothing happens */
    {"RRRRRRRRRRRR", "............", false},
    {"SSSSSSSSS", ".........", true}, /* a start is given time */
    {"TTTTT", "....t", true},
};

START_TEST(what_hangs_is_told_and_what_runs_in_between_is_not)
    {
        const char *looks = histories[_i].looks;
        struct sup_hang hang = {0};
        char got[32] = "";
        uint64_t now_ns = 100 * SL_NS_PER_S;
        for (size_t i = 0; looks[i] != '\0'; i++, now_ns += 250 * MS) {
            bool silent = looks[i] == 'S' || looks[i] == 'B';
            const struct sup_seen seen = {.beat_ns = now_ns - (silent ? 1001 : 100) * MS,
                                          .stopped = looks[i] == 'T' || looks[i] == 'B',
                                          .starting = histories[_i].starting};

            got[i] = ".ts"[sup_hang_look(&hang, &seen, now_ns)];
        }
        ck_assert_str_eq(got, histories[_i].verdicts);
    }
END_TEST

START_TEST(who_has_not_told_of_its_loop_is_not_silent)
    {
        struct sup_hang hang = {0};
        const struct sup_seen seen = {.beat_ns = 0, .starting = true};

        for (uint64_t s = 100; s < 200; s++) {
            ck_assert_int_eq(sup_hang_look(&hang, &seen, s * SL_NS_PER_S), SUP_FINE);
        }
    }
END_TEST

START_TEST(a_start_is_silent_after_ten_times_as_long)
    {
        struct sup_hang hang = {0};
        const struct sup_seen seen = {.beat_ns = SL_NS_PER_S, .starting = true};

        ck_assert_int_eq(sup_hang_look(&hang, &seen, 11 * SL_NS_PER_S + 1), SUP_FINE);
        ck_assert_int_eq(sup_hang_look(&hang, &seen, 12 * SL_NS_PER_S), SUP_FINE);
        ck_assert_int_eq(sup_hang_look(&hang, &seen, 12 * SL_NS_PER_S + 1), SUP_SILENT);
    }
END_TEST

/* Everything was suspended between the checks, including the watcher: earlier silence does not
 * count. */
START_TEST(a_look_that_comes_late_begins_anew)
    {
        struct sup_hang hang = {0};
        const struct sup_seen seen = {.beat_ns = SL_NS_PER_S};

        ck_assert_int_eq(sup_hang_look(&hang, &seen, 10 * SL_NS_PER_S), SUP_FINE);
        ck_assert_int_eq(sup_hang_look(&hang, &seen, 40 * SL_NS_PER_S), SUP_FINE);
        ck_assert_int_eq(sup_hang_look(&hang, &seen, 40 * SL_NS_PER_S + 900 * MS), SUP_FINE);
        ck_assert_int_eq(sup_hang_look(&hang, &seen, 41 * SL_NS_PER_S), SUP_SILENT);
    }
END_TEST

/* A process that sends heartbeats is checked when the next one is late; then often, until the
 * verdict. */
START_TEST(who_beats_is_left_alone)
    {
        struct sup_hang hang = {0};
        struct sup_seen seen = {.beat_ns = 1000 * MS};

        ck_assert_uint_eq(sup_hang_next_ns(&hang, &seen, 1010 * MS), 1600 * MS);
        ck_assert_uint_eq(sup_hang_next_ns(&hang, &seen, 1600 * MS), 1850 * MS);
        seen.stopped = true;
        (void)sup_hang_look(&hang, &seen, 1600 * MS);
        ck_assert_uint_eq(sup_hang_next_ns(&hang, &seen, 2400 * MS), 2600 * MS);
        seen.beat_ns = 0;
        ck_assert_uint_eq(sup_hang_next_ns(&hang, &seen, 2600 * MS), 2600 * MS + 1);
    }
END_TEST

/* ---- sd_notify ---- */

static int listener_make(struct sockaddr_un *address, socklen_t length)
{
    const struct timeval limit = {.tv_sec = 5};
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)), 0);
    ck_assert_int_eq(bind(fd, (const struct sockaddr *)address, length), 0);
    return fd;
}

START_TEST(a_word_arrives_at_a_path_and_at_an_abstract_name)
    {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        char name[64], got[64] = "";
        struct sup_notify notify;
        int length = snprintf(name, sizeof(name), "%ssluice-supervise-test-%d",
                              _i == 0 ? "@" : "/tmp/", (int)getpid());
        memcpy(address.sun_path, name, (size_t)length);
        address.sun_path[0] = _i == 0 ? '\0' : '/';
        int fd = listener_make(&address, (socklen_t)(sizeof(sa_family_t) + (size_t)length));
        ck_assert_int_eq(setenv("NOTIFY_SOCKET", name, 1), 0);

        ck_assert_int_eq(sup_notify_open(7, &notify, NULL), SL_OK);
        ck_assert_int_eq(sup_notify_send(&notify, "READY=1", NULL), SL_OK);

        ck_assert_int_eq(recv(fd, got, sizeof(got) - 1, 0), 7);
        ck_assert_str_eq(got, "READY=1");
        sup_notify_close(&notify);
        (void)close(fd);
        (void)unlink(name);
        ck_assert_int_eq(sup_notify_open(7, &notify, NULL), SL_OK);
        ck_assert_int_ne(sup_notify_send(&notify, "READY=1", NULL), SL_OK); /* no listener */
        sup_notify_close(&notify);
    }
END_TEST

START_TEST(without_a_socket_nothing_is_told)
    {
        struct sup_notify notify;
        ck_assert_int_eq(unsetenv("NOTIFY_SOCKET"), 0);

        ck_assert_int_eq(sup_notify_open(7, &notify, NULL), SL_OK);

        ck_assert_int_eq(sup_notify_send(&notify, "READY=1", NULL), SL_OK);
        sup_notify_close(&notify);
    }
END_TEST

START_TEST(addresses_of_other_kinds_are_refused)
    {
        static const char *const bad[] = {"vsock:2:1234", "relative", NULL};
        char longest[200];
        struct sup_notify notify;
        memset(longest, 'x', sizeof(longest));
        longest[0] = '/';
        longest[sizeof(longest) - 1] = '\0';
        ck_assert_int_eq(setenv("NOTIFY_SOCKET", bad[_i] != NULL ? bad[_i] : longest, 1), 0);

        ck_assert_int_eq(sup_notify_open(7, &notify, NULL), SL_ERR_CONFIG);

        ck_assert_int_eq(sup_notify_send(&notify, "READY=1", NULL),
                         SL_OK); /* and nothing is sent */
    }
END_TEST

static const struct {
    const char *usec, *pid;
    uint64_t want_ns;
} watchdogs[] = {
    {"3000000", "7", 3 * SL_NS_PER_S},
    {"3000000", NULL, 3 * SL_NS_PER_S},
    {"3000000", "8", 0}, /* meant for another process */
    {NULL, "7", 0},
    {"-5", NULL, 0},
    {"1s", NULL, 0},
    {"99999999999999999999", NULL, 0},
};

START_TEST(the_watchdog_is_of_the_main_process)
    {
        struct sup_notify notify;
        ck_assert_int_eq(setenv("NOTIFY_SOCKET", "@nobody", 1), 0);
        (void)unsetenv("WATCHDOG_USEC");
        (void)unsetenv("WATCHDOG_PID");
        if (watchdogs[_i].usec != NULL) {
            ck_assert_int_eq(setenv("WATCHDOG_USEC", watchdogs[_i].usec, 1), 0);
        }
        if (watchdogs[_i].pid != NULL) {
            ck_assert_int_eq(setenv("WATCHDOG_PID", watchdogs[_i].pid, 1), 0);
        }

        ck_assert_int_eq(sup_notify_open(7, &notify, NULL), SL_OK);

        ck_assert_uint_eq(notify.watchdog_ns, watchdogs[_i].want_ns);
        sup_notify_close(&notify);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("supervise");
    TCase *hangs = tcase_create("hangs");
    tcase_add_loop_test(hangs, what_hangs_is_told_and_what_runs_in_between_is_not, 0,
                        SL_COUNT(histories));
    tcase_add_test(hangs, who_has_not_told_of_its_loop_is_not_silent);
    tcase_add_test(hangs, a_start_is_silent_after_ten_times_as_long);
    tcase_add_test(hangs, a_look_that_comes_late_begins_anew);
    tcase_add_test(hangs, who_beats_is_left_alone);
    suite_add_tcase(suite, hangs);
    TCase *notify = tcase_create("notify");
    tcase_add_loop_test(notify, a_word_arrives_at_a_path_and_at_an_abstract_name, 0, 2);
    tcase_add_test(notify, without_a_socket_nothing_is_told);
    tcase_add_loop_test(notify, addresses_of_other_kinds_are_refused, 0, 3);
    tcase_add_loop_test(notify, the_watchdog_is_of_the_main_process, 0, SL_COUNT(watchdogs));
    suite_add_tcase(suite, notify);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
