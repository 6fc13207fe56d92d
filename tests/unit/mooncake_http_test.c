/* tests/unit/mooncake_http_test.c - a request that is whole has time until it is answered, and a
 * PUT says how long it is. */
#include "client/mooncake/daemons/http.h"
#include "client/mooncake/daemons/listen.h"
#include "runtime/sl_clock.h"

#include <arpa/inet.h>
#include <check.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define SLOW_S 12 /* longer than a connection may be idle */

static _Atomic bool running;

static void slow_answer(void *context, const struct mc_request *request, struct mc_answer *answer)
{
    const struct timespec slow = {.tv_sec = SLOW_S};
    (void)context;
    (void)request;
    atomic_store(&running, true);
    (void)nanosleep(&slow, NULL);
    mc_answer_text(answer, 200, "slow");
}

static void echo_answer(void *context, const struct mc_request *request, struct mc_answer *answer)
{
    size_t length = 0;
    const char *body = mc_request_body(request, &length);
    (void)context;
    mc_answer_text(answer, 200, "'%.*s'", (int)length, body);
}

static const struct mc_http_guard open_to_all = {.open_without_token = true};
static const struct mc_route routes[] = {{"/slow", MC_GET, slow_answer, 0},
                                         {"/echo", MC_PUT | MC_POST, echo_answer, 0}};

static int connect_to(int server)
{
    struct sockaddr_in at;
    socklen_t at_bytes = sizeof(at);
    ck_assert_int_eq(getsockname(server, (struct sockaddr *)&at, &at_bytes), 0);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&at, at_bytes), 0);
    return fd;
}

static void all_read(int fd, char *out, size_t room)
{
    size_t used = 0;
    ssize_t got = 0;
    while (used + 1 < room && (got = read(fd, out + used, room - 1 - used)) > 0) {
        used += (size_t)got;
    }
    out[used] = '\0';
}

START_TEST(a_handler_may_take_longer_than_a_request)
    {
        static const char request[] = "GET /slow HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        struct mc_http *http = NULL;
        struct sl_error why = {0};
        char answer[1024];
        int server = -1;
        ck_assert_int_eq(mc_listen("127.0.0.1", "", 0, &server, &why), SL_OK);
        int fd = connect_to(server);
        ck_assert_int_eq(
            mc_http_start(server, routes, SL_COUNT(routes), &open_to_all, NULL, &http, &why),
            SL_OK);
        ck_assert_int_eq(write(fd, request, sizeof(request) - 1), sizeof(request) - 1);
        while (!atomic_load(&running)) {
            (void)usleep(1000);
        }
        mc_http_tend(http, sl_clock_monotonic_ns() + 120 * SL_NS_PER_S); /* minutes later */
        all_read(fd, answer, sizeof(answer));

        ck_assert_msg(strstr(answer, "\r\n\r\nslow") != NULL, "'%s'", answer);
        (void)close(fd);
        mc_http_stop(&http);
    }
END_TEST

START_TEST(who_says_nothing_is_cut)
    {
        struct mc_http *http = NULL;
        struct sl_error why = {0};
        char answer[1024];
        int server = -1;
        ck_assert_int_eq(mc_listen("127.0.0.1", "", 0, &server, &why), SL_OK);
        int fd = connect_to(server);
        ck_assert_int_eq(
            mc_http_start(server, routes, SL_COUNT(routes), &open_to_all, NULL, &http, &why),
            SL_OK);
        ck_assert_int_eq(write(fd, "GET /sl", 7), 7);
        all_read(fd, answer, sizeof(answer)); /* ends by itself */

        ck_assert_ptr_null(strstr(answer, "200"));
        (void)close(fd);
        mc_http_stop(&http);
    }
END_TEST

static const struct {
    const char *head, *body, *want, *want_end;
} bodies[] = {
    {"PUT /echo HTTP/1.1\r\nContent-Length: 3\r\n", "abc", "HTTP/1.1 200 ", "'abc'"},
    {"PUT /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n", "3\r\nabc\r\n0\r\n\r\n",
     "HTTP/1.1 200 ", "'abc'"},
    {"PUT /echo HTTP/1.1\r\nContent-Length: 0\r\n", "", "HTTP/1.1 200 ", "''"},
    {"PUT /echo HTTP/1.1\r\n", "", "HTTP/1.1 411 ", "Content-Length\n"},
    {"POST /echo HTTP/1.1\r\n", "", "HTTP/1.1 200 ", "''"},
};
START_TEST(a_put_says_how_long_it_is)
    {
        struct mc_http *http = NULL;
        struct sl_error why = {0};
        char text[1024];
        int server = -1;
        ck_assert_int_eq(mc_listen("127.0.0.1", "", 0, &server, &why), SL_OK);
        int fd = connect_to(server);
        ck_assert_int_eq(
            mc_http_start(server, routes, SL_COUNT(routes), &open_to_all, NULL, &http, &why),
            SL_OK);
        int length = snprintf(text, sizeof(text), "%sHost: x\r\nConnection: close\r\n\r\n%s",
                              bodies[_i].head, bodies[_i].body);

        ck_assert_int_eq(write(fd, text, (size_t)length), length);
        all_read(fd, text, sizeof(text));

        ck_assert_ptr_eq(strstr(text, bodies[_i].want), text);
        ck_assert_str_eq(text + strlen(text) - strlen(bodies[_i].want_end), bodies[_i].want_end);
        (void)close(fd);
        mc_http_stop(&http);
    }
END_TEST

int main(void)
{
    Suite *all = suite_create("mooncake_http");
    TCase *times = tcase_create("times");
    tcase_set_timeout(times, 300);
    tcase_add_test(times, a_handler_may_take_longer_than_a_request);
    tcase_add_test(times, who_says_nothing_is_cut);
    suite_add_tcase(all, times);
    TCase *answers = tcase_create("answers");
    tcase_add_loop_test(answers, a_put_says_how_long_it_is, 0, SL_COUNT(bodies));
    suite_add_tcase(all, answers);
    SRunner *runner = srunner_create(all);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
