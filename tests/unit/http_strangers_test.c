/* tests/unit/http_strangers_test.c - the HTTP server among clients that connect and say nothing:
 * requests are answered all the same. */
#include "client/exporter/http.h"
#include "client/exporter/listen.h"
#include "runtime/sl_clock.h"
#include "tests/support/flood.h"

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define FLOODED 390u /* connections: more than there are places */
/* Without a bound a place is kept for 10 s. */
#define ANSWERS_NS (9 * A_SECOND)
#define A_SECOND   SL_NS_PER_S

static const struct {
    uint32_t addresses;
    const char *drips;
} floods[] = {{1, NULL}, {2, "G"}, {300, NULL}, {5000, "G"}};

static struct flood *flood;
static struct sockaddr_in to;
static int listen_fd;

static void setup(void)
{
    struct sl_error why = {0};
    socklen_t to_bytes = sizeof(to);
    ck_assert_msg(mc_listen("127.0.0.1", 0, &listen_fd, &why) == SL_OK, "%s", why.text);
    ck_assert_int_eq(getsockname(listen_fd, (struct sockaddr *)&to, &to_bytes), 0);
}

static void teardown(void)
{
    flood_stop(&flood);
}

static void flooded(uint32_t addresses, const char *drips)
{
    uint64_t give_up_ns = sl_clock_monotonic_ns() + 60 * A_SECOND;
    flood = flood_start(&to, addresses, drips);
    while (flood->connections < FLOODED) {
        ck_assert_uint_lt(sl_clock_monotonic_ns(), give_up_ns);
        (void)usleep(1000);
    }
}

static _Atomic bool running;

static void quick(void *context, const struct mc_request *request, struct mc_answer *answer)
{
    (void)context;
    (void)request;
    mc_answer_text(answer, 200, "quick");
}

static void slow(void *context, const struct mc_request *request, struct mc_answer *answer)
{
    (void)context;
    (void)request;
    atomic_store(&running, true);
    (void)nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
    mc_answer_text(answer, 200, "slow");
}

static const struct mc_http_guard open_to_all = {.open_without_token = true};
static const struct mc_route routes[] = {{"/quick", MC_GET, quick, 0}, {"/slow", MC_GET, slow, 0}};

static int http_ask(const char *path)
{
    char text[128];
    int fd = flood_connect(&to, 1, 1);
    ck_assert_int_ge(fd, 0);
    int length = snprintf(text, sizeof text,
                          "GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", path);
    (void)!send(fd, text, (size_t)length, MSG_NOSIGNAL);
    return fd;
}

/* Reads the answer to its end, for at most 5 s. */
static bool http_answers(int fd, const char *want)
{
    char answer[1024];
    size_t used = 0;
    const struct timeval limit = {.tv_sec = 5};
    ck_assert_int_eq(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit), 0);
    ssize_t got = 0;
    while (used + 1 < sizeof answer &&
           ((got = recv(fd, answer + used, sizeof answer - 1 - used, 0)) > 0 ||
            (got < 0 && errno == EINTR))) { /* where this process was stopped and goes on */
        used += got > 0 ? (size_t)got : 0;
    }
    answer[used] = '\0';
    (void)close(fd);
    return strstr(answer, want) != NULL;
}

START_TEST(requests_are_answered_while_a_flood_takes_every_place)
    {
        struct mc_http *http = NULL;
        struct sl_error why = {0};
        ck_assert_int_eq(
            mc_http_start(listen_fd, routes, SL_COUNT(routes), &open_to_all, NULL, &http, &why),
            SL_OK);
        atomic_store(&running, false);
        int busy = http_ask("/slow");
        while (!atomic_load(&running)) {
            (void)usleep(1000);
        }
        flooded(floods[_i].addresses, floods[_i].drips);
        uint32_t tries = 0, answers = 0;
        uint64_t give_up_ns = sl_clock_monotonic_ns() + ANSWERS_NS;
        while (answers < 5) {
            ck_assert_msg(sl_clock_monotonic_ns() < give_up_ns, "%u of %u tries were answered",
                          answers, tries);
            tries++;
            answers += http_answers(http_ask("/quick"), "\r\n\r\nquick");
        }
        ck_assert(http_answers(busy, "\r\n\r\nslow")); /* who is being answered stays */
        mc_http_stop(&http);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("http_strangers");
    TCase *tests = tcase_create("ports");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, requests_are_answered_while_a_flood_takes_every_place, 0,
                        SL_COUNT(floods));
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
