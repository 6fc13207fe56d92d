/* tests/unit/client/tools/http_unauth_test.c - the HTTP server still answers requests while many
 * clients connect and send nothing. */
#include "client/tools/exporter/http.h"
#include "client/tools/exporter/listen.h"
#include "tests/support/flood.h"

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define FLOODED 390u /* connections: more than there are places */
/* Without a bound a slot would be kept for 10 s. */
#define ANSWERS_NS  (9 * A_SECOND)
#define A_SECOND    SL_NS_PER_S
#define LARGE_BYTES (16 * SL_MIB)

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
    ck_assert_msg(tcp_listen("127.0.0.1", 0, &listen_fd, &why) == SL_OK, "%s", why.text);
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

static void quick(void *context, struct http_answer *answer)
{
    (void)context;
    answer->text = strdup("quick");
    answer->length_bytes = 5;
}

/* Larger than the socket buffers: its reader occupies a slot until it reads. */
static void large(void *context, struct http_answer *answer)
{
    (void)context;
    answer->length_bytes = LARGE_BYTES;
    answer->text = calloc(1, LARGE_BYTES);
}

static const struct http_page pages[] = {{"/quick", quick, false}, {"/large", large, false}};

static struct sl_loop *loop;

static void *turned(void *unused)
{
    (void)unused;
    (void)sl_loop_run(loop, NULL);
    return NULL;
}

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
            (got < 0 && errno == EINTR))) { /* when this process was stopped and continued */
        used += got > 0 ? (size_t)got : 0;
    }
    answer[used] = '\0';
    (void)close(fd);
    return strstr(answer, want) != NULL;
}

START_TEST(requests_are_answered_while_a_flood_takes_every_place)
    {
        const struct sl_loop_options options = {.fds_max = HTTP_CONNECTIONS_MAX + 1,
                                                .timers_max = 1};
        struct http *http = NULL;
        pthread_t thread;
        ck_assert_int_eq(sl_loop_create(&options, &loop, NULL), SL_OK);
        ck_assert_int_eq(
            http_open(loop, listen_fd, pages, SL_COUNT(pages), NULL, NULL, &http, NULL), SL_OK);
        ck_assert_int_eq(pthread_create(&thread, NULL, turned, NULL), 0);
        int busy = http_ask("/large");
        char first;
        ck_assert_int_eq(recv(busy, &first, 1, 0), 1);
        flooded(floods[_i].addresses, floods[_i].drips);
        uint32_t tries = 0, answers = 0;
        uint64_t give_up_ns = sl_clock_monotonic_ns() + ANSWERS_NS;
        while (answers < 5) {
            ck_assert_msg(sl_clock_monotonic_ns() < give_up_ns, "%u of %u tries were answered",
                          answers, tries);
            tries++;
            answers += http_answers(http_ask("/quick"), "\r\n\r\nquick");
        }
        size_t got = 0; /* an answer in progress is not affected */
        char bytes[65536];
        for (ssize_t more; (more = recv(busy, bytes, sizeof bytes, 0)) > 0;) {
            got += (size_t)more;
        }
        ck_assert_uint_gt(got, LARGE_BYTES);
        /* The loop, its thread and the flood's connections end with this process. */
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("http_unauth");
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
