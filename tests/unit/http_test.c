/* tests/unit/http_test.c - requests are read in one way or not at all, answered by their head
 * where that is enough, and have time until they are answered once they are whole. */
#include "client/exporter/http.h"
#include "client/exporter/listen.h"
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

static _Atomic uint32_t hidden_seen;

static void hidden_answer(void *context, const struct mc_request *request, struct mc_answer *answer)
{
    (void)context;
    (void)request;
    atomic_fetch_add(&hidden_seen, 1);
    mc_answer_text(answer, 200, "hidden");
}

static const struct mc_http_guard open_to_all = {.open_without_token = true};
static const struct mc_route routes[] = {
    {.path = "/slow", .methods = MC_GET, .fn = slow_answer},
    {.path = "/echo", .methods = MC_PUT | MC_POST, .fn = echo_answer, .guarded = MC_PUT},
    {.path = "/hidden", .methods = MC_GET | MC_POST, .fn = hidden_answer}};

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
        ck_assert_int_eq(mc_listen("127.0.0.1", 0, &server, &why), SL_OK);
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
        ck_assert_int_eq(mc_listen("127.0.0.1", 0, &server, &why), SL_OK);
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
        ck_assert_int_eq(mc_listen("127.0.0.1", 0, &server, &why), SL_OK);
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

/* ---- requests that two servers could read in two ways ---- */

static struct mc_http *http;
static int server;

static void started(const struct mc_http_guard *guard)
{
    struct sl_error why = {0};
    ck_assert_int_eq(mc_listen("127.0.0.1", 0, &server, &why), SL_OK);
    ck_assert_int_eq(mc_http_start(server, routes, SL_COUNT(routes), guard, NULL, &http, &why),
                     SL_OK);
    atomic_store(&hidden_seen, 0);
}

static void stopped(void)
{
    mc_http_stop(&http);
}

static int said(const char *text, size_t length)
{
    const struct timeval limit = {.tv_sec = 60};
    int fd = connect_to(server);
    ck_assert_int_eq(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit), 0);
    ck_assert_int_eq(send(fd, text, length, MSG_NOSIGNAL), (ssize_t)length);
    return fd;
}

static const char *head_of(int fd, char *out, size_t room)
{
    size_t used = 0;
    while (used + 1 < room && read(fd, out + used, 1) == 1) {
        out[++used] = '\0';
        if (used >= 4 && memcmp(out + used - 4, "\r\n\r\n", 4) == 0) {
            break;
        }
    }
    return out;
}

#define HIDDEN "GET /hidden HTTP/1.1\r\nHost: x\r\n\r\n"
#define ECHO   "POST /echo HTTP/1.1\r\nHost: x\r\n"
#define GET    "GET /hidden HTTP/1.1\r\n"
static const struct {
    const char *text;
    size_t length; /* 0: up to its zero */
    unsigned status;
} doubtful[] = {
    /* how long is it? */
    {ECHO "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 0, 400},
    {ECHO "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", 0, 400},
    {ECHO "Transfer-Encoding: identity\r\nContent-Length: 5\r\n\r\nabcde", 0, 400},
    {ECHO "transfer-encoding:\r\nContent-Length: 5\r\n\r\nabcde", 0, 400},
    {ECHO "Content-Length: 5\r\nContent-Length: 0\r\n\r\n", 0, 400},
    {ECHO "Content-Length: 5\r\nContent-Length: 5\r\n\r\nabcde", 0, 400},
    {ECHO "Content-Length: 5\r\ncontent-length: 5\r\n\r\nabcde", 0, 400},
    {ECHO "Content-Length: 5, 5\r\n\r\nabcde", 0, 400},
    {ECHO "Content-Length: +5\r\n\r\nabcde", 0, 400},
    {ECHO "Content-Length: -5\r\n\r\nabcde", 0, 400},
    {ECHO "Content-Length: 0x5\r\n\r\nabcde", 0, 400},
    {ECHO "Content-Length: 5 5\r\n\r\nabcde", 0, 400},
    {ECHO "Content-Length: 5;\r\n\r\nabcde", 0, 400},
    {ECHO "Content-Length: \r\n\r\n", 0, 400},
    {ECHO "Content-Length: 18446744073709551617\r\n\r\n", 0, 413},
    {ECHO "Content-Length: 99999999999999999999999999\r\n\r\n", 0, 413},
    {ECHO "Content-Length : 5\r\n\r\nabcde", 0, 400},
    {ECHO "Content-Length\t: 5\r\n\r\nabcde", 0, 400},
    {ECHO " Content-Length: 5\r\n\r\nabcde", 0, 400},
    {ECHO "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n", 0, 400},
    {ECHO "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 0, 400},
    {ECHO "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n", 0, 400},
    {ECHO "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 0, 501},
    {ECHO "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n", 0, 501},
    {ECHO "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 0, 501},
    {ECHO "Transfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n", 0, 501},
    {ECHO "Transfer-Encoding:\x0b"
          "chunked\r\n\r\n0\r\n\r\n",
     0, 400},
    {ECHO "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n", 0, 400},
    {"POST /echo HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 0, 400},
    /* chunks */
    {ECHO "Transfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\n\r\n", 0, 400},
    {ECHO "Transfer-Encoding: chunked\r\n\r\n3\nabc\r\n0\r\n\r\n", 0, 400},
    {ECHO "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\n0\r\n\r\n", 0, 400},
    {ECHO "Transfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n", 0, 400},
    {ECHO "Transfer-Encoding: chunked\r\n\r\n0x3\r\nabc\r\n0\r\n\r\n", 0, 400},
    {ECHO "Transfer-Encoding: chunked\r\n\r\n-3\r\nabc\r\n0\r\n\r\n", 0, 400},
    {ECHO "Transfer-Encoding: chunked\r\n\r\n 3\r\nabc\r\n0\r\n\r\n", 0, 400},
    {ECHO "Transfer-Encoding: chunked\r\n\r\n3 \r\nabc\r\n0\r\n\r\n", 0, 400},
    {ECHO "Transfer-Encoding: chunked\r\n\r\n\r\nabc\r\n0\r\n\r\n", 0, 400},
    {ECHO "Transfer-Encoding: chunked\r\n\r\n100000003\r\nabc\r\n0\r\n\r\n", 0, 400},
    {ECHO "Transfer-Encoding: chunked\r\n\r\nffffffff\r\nabc\r\n0\r\n\r\n", 0, 413},
    {ECHO "Transfer-Encoding: chunked\r\n\r\n0\r\nHost: y\r\n\r\n", 0, 400},
    {ECHO "Transfer-Encoding: chunked\r\n\r\n0\r\n\n", 0, 400},
    /* where does a line end? */
    {"GET /hidden HTTP/1.1\nHost: x\r\n\r\n", 0, 400},
    {GET "Host: x\n\r\n", 0, 400},
    {GET "Host: x\r\n\n", 0, 400},
    {GET "Host: x\n\n", 0, 400},
    {GET "Host: x\r\r\n\r\n", 0, 400},
    {GET "Host: x\rContent-Length: 5\r\n\r\n", 0, 400},
    {GET "Host: x\r\nA: b\r\n c\r\n\r\n", 0, 400},
    {GET "Host: x\r\nA: b\r\n\tc\r\n\r\n", 0, 400},
    {GET " Host: x\r\n\r\n", 0, 400},
    {"\r\n" HIDDEN, 0, 400},
    {"\n" HIDDEN, 0, 400},
    /* what is in it? */
    {GET "Host: x\r\nA: b\0c\r\n\r\n", sizeof(GET "Host: x\r\nA: b\0c\r\n\r\n") - 1, 400},
    {"GET /hid\0den HTTP/1.1\r\nHost: x\r\n\r\n",
     sizeof("GET /hid\0den HTTP/1.1\r\nHost: x\r\n\r\n") - 1, 400},
    {GET "Host: x\r\nA\x7f: b\r\n\r\n", 0, 400},
    {GET "Host: x\r\nno colon\r\n\r\n", 0, 400},
    {GET "Host: x\r\n: b\r\n\r\n", 0, 400},
    {GET "Host: x\r\nA(b): c\r\n\r\n", 0, 400},
    {"GET  /hidden HTTP/1.1\r\nHost: x\r\n\r\n", 0, 400},
    {"GET /hidden  HTTP/1.1\r\nHost: x\r\n\r\n", 0, 400},
    {"GET /hidden HTTP/1.1 \r\nHost: x\r\n\r\n", 0, 400},
    {"GET\t/hidden\tHTTP/1.1\r\nHost: x\r\n\r\n", 0, 400},
    {"GET /hid den HTTP/1.1\r\nHost: x\r\n\r\n", 0, 400},
    {"GET /hidden#a HTTP/1.1\r\nHost: x\r\n\r\n", 0, 400},
    {"GET /hidden\r\n\r\n", 0, 400},
    {"GET hidden HTTP/1.1\r\nHost: x\r\n\r\n", 0, 400},
    {"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", 0, 400},
    {"CONNECT x:80 HTTP/1.1\r\nHost: x\r\n\r\n", 0, 400},
    {"G(T /hidden HTTP/1.1\r\nHost: x\r\n\r\n", 0, 400},
    {"GET /hidden HTTP/1.2\r\nHost: x\r\n\r\n", 0, 505},
    {"GET /hidden HTTP/2.0\r\nHost: x\r\n\r\n", 0, 505},
    {"GET /hidden HTTP/11\r\nHost: x\r\n\r\n", 0, 505},
    {"GET /hidden http/1.1\r\nHost: x\r\n\r\n", 0, 400},
    {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 0, 505},
    {"\x16\x03\x01\x02\x00\x01", 6, 400}, /* TLS */
    /* to whom? */
    {GET "\r\n", 0, 400},
    {GET "Host:\r\n\r\n", 0, 400},
    {GET "Host: x\r\nHost: x\r\n\r\n", 0, 400},
    {GET "Host: x\r\nHost: y\r\n\r\n", 0, 400},
    {GET "Host: x y\r\n\r\n", 0, 400},
    {GET "Host: x,y\r\n\r\n", 0, 400},
    {GET "Host: x/y\r\n\r\n", 0, 400},
    {GET "Host: u@x\r\n\r\n", 0, 400},
    {"GET http://y/hidden HTTP/1.1\r\nHost: x\r\n\r\n", 0, 400},
    {"GET http://x/hidden HTTP/1.1\r\n\r\n", 0, 400},
    {"GET https://x/hidden HTTP/1.1\r\nHost: x\r\n\r\n", 0, 400},
    {"GET //x/hidden HTTP/1.1\r\nHost: x\r\n\r\n", 0, 404},
    {GET "Host: x\r\nAuthorization: Bearer a\r\nAuthorization: Bearer b\r\n\r\n", 0, 400},
    {GET "Host: x\r\nOrigin: a\r\nOrigin: b\r\n\r\n", 0, 400},
    {GET "Host: x\r\nExpect: gold\r\n\r\n", 0, 417},
};
START_TEST(a_doubtful_request_is_refused_and_hides_no_other)
    {
        char text[4096], want[32];
        size_t length = doubtful[_i].length != 0 ? doubtful[_i].length : strlen(doubtful[_i].text);
        started(&open_to_all);
        memcpy(text, doubtful[_i].text, length);
        memcpy(text + length, HIDDEN, sizeof(HIDDEN) - 1);

        int fd = said(text, length + sizeof(HIDDEN) - 1);
        all_read(fd, text, sizeof text); /* to the end of the connection */

        (void)snprintf(want, sizeof want, "HTTP/1.1 %u ", doubtful[_i].status);
        ck_assert_msg(strstr(text, want) == text, "'%s'", text);
        ck_assert_msg(strstr(text, "HTTP/1.1 200") == NULL, "'%s'", text);
        ck_assert_ptr_nonnull(strstr(text, "Connection: close\r\n"));
        ck_assert_uint_eq(atomic_load(&hidden_seen), 0);
        (void)close(fd);
        stopped();
    }
END_TEST

static const struct {
    const char *text;
    uint32_t hidden; /* answers that two requests of this text have together */
} plain[] = {
    {HIDDEN, 2},
    {"GET http://x/hidden HTTP/1.1\r\nHost: X\r\n\r\n", 2},
    {GET "host:\tx:80 \r\nA: b\xe9 \t c\r\nEmpty:\r\n\r\n", 2},
    {GET "Host: [::1]:80\r\nConnection: keep-alive, x\r\n\r\n", 2},
    {GET "Host: x\r\nContent-Length: 3\r\n\r\nGET", 2},
    {GET "Host: x\r\nTransfer-Encoding: Chunked\r\n\r\n00A\r\n0123456789\r\n0\r\n\r\n", 2},
    {"POST /hidden HTTP/1.1\r\nHost: x\r\nContent-Length: 003\r\n\r\nGET", 2},
    {GET "Host: x\r\nConnection: x, Close\r\n\r\n", 1},
    {"GET /hidden HTTP/1.0\r\n\r\n", 1},
    {"GET /hidden HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", 1},
};
START_TEST(requests_follow_each_other_on_a_connection)
    {
        char text[4096];
        started(&open_to_all);
        int length = snprintf(text, sizeof text,
                              "%s%sGET /hidden HTTP/1.1\r\nHost: x\r\n"
                              "Connection: close\r\n\r\n",
                              plain[_i].text, plain[_i].text);

        int fd = said(text, (size_t)length);
        all_read(fd, text, sizeof text);

        uint32_t answers = 0;
        for (const char *at = text; (at = strstr(at, "HTTP/1.1 200 ")) != NULL; at++) {
            answers++;
        }
        uint32_t want = plain[_i].hidden == 2 ? 3 : 1;
        ck_assert_msg(answers == want, "'%s'", text);
        ck_assert_uint_eq(atomic_load(&hidden_seen), want);
        (void)close(fd);
        stopped();
    }
END_TEST

START_TEST(a_head_has_a_bound)
    {
        static const struct {
            const char *line;
            uint32_t count;
            bool in_target;
            unsigned status;
        } heads[] = {{"A: b\r\n", 63, false, 200}, /* and Host */
                     {"A: b\r\n", 64, false, 431},
                     {"A: b\r\n", 20000, false, 431},
                     {"A", 40000, false, 431},
                     {"A", 40000, true, 414}};
        char want[32];
        started(&open_to_all);
        for (size_t i = 0; i < SL_COUNT(heads); i++) {
            size_t line = strlen(heads[i].line), used = 0;
            char *text = malloc(100 + line * heads[i].count);
            used += (size_t)sprintf(text, heads[i].in_target ? "GET /hidden?" : GET "Host: x\r\n");
            for (uint32_t k = 0; k < heads[i].count; k++, used += line) {
                memcpy(text + used, heads[i].line, line);
            }
            used += (size_t)sprintf(text + used, "\r\n");
            char answer[1024];
            int fd = said(text, used);
            (void)snprintf(want, sizeof want, "HTTP/1.1 %u ", heads[i].status);
            ck_assert_msg(strstr(head_of(fd, answer, sizeof answer), want) == answer, "%zu: '%s'",
                          i, answer);
            (void)close(fd);
            free(text);
        }
        stopped();
    }
END_TEST

static const struct mc_http_guard with_token = {.token = "a token of some length",
                                                .open_without_token = true};
#define TOKEN "Authorization: Bearer a token of some length\r\n"
static const struct {
    const char *head;
    unsigned status;
} heads_alone[] = {
    {"PUT /nowhere HTTP/1.1\r\nContent-Length: 1000000\r\n", 404},
    {"DELETE /echo HTTP/1.1\r\nContent-Length: 1000000\r\n", 405},
    {"PATCH /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n", 405},
    {"PUT /echo HTTP/1.1\r\nContent-Length: 1000000\r\n", 401},
    {"PUT /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n", 401},
    {"PUT /echo HTTP/1.1\r\nContent-Length: 1000000\r\nAuthorization: Bearer a token\r\n", 401},
    {"PUT /echo HTTP/1.1\r\nContent-Length: 99999999\r\n", 401},
    {"PUT /echo HTTP/1.1\r\n", 401},
    {"PUT /echo HTTP/1.1\r\n" TOKEN, 411},
    {"PUT /echo HTTP/1.1\r\nContent-Length: 4194305\r\n" TOKEN, 413},
    {"POST /echo HTTP/1.1\r\nContent-Length: 1\r\nOrigin: http://evil\r\n", 403},
    {"POST /hidden HTTP/1.1\r\nContent-Length: 4194305\r\n", 413},
};
START_TEST(the_head_is_answered_before_its_body_comes)
    {
        char text[1024], want[32];
        started(&with_token);
        int length = snprintf(text, sizeof text, "%sHost: x\r\nExpect: 100-continue\r\n\r\n",
                              heads_alone[_i].head);

        int fd = said(text, (size_t)length);
        all_read(fd, text, sizeof text); /* though the body never comes */

        (void)snprintf(want, sizeof want, "HTTP/1.1 %u ", heads_alone[_i].status);
        ck_assert_msg(strstr(text, want) == text, "'%s'", text);
        ck_assert_ptr_nonnull(strstr(text, "Connection: close\r\n"));
        (void)close(fd);
        stopped();
    }
END_TEST

START_TEST(a_body_that_waits_is_called)
    {
        static const char head[] = "PUT /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n" TOKEN
                                   "Expect: 100-continue\r\nConnection: close\r\n\r\n";
        char text[1024];
        started(&with_token);
        int fd = said(head, sizeof head - 1);
        ck_assert_str_eq(head_of(fd, text, sizeof text), "HTTP/1.1 100 Continue\r\n\r\n");
        ck_assert_int_eq(send(fd, "abc", 3, MSG_NOSIGNAL), 3);
        all_read(fd, text, sizeof text);
        ck_assert_msg(strstr(text, "\r\n\r\n'abc'") != NULL, "'%s'", text);
        (void)close(fd);
        stopped();
    }
END_TEST

/* Bodies of one address have 16 MiB of memory: four of 4 MiB that are not whole leave none for a fifth.
 * Bodies that no handler reads take none. */
START_TEST(bodies_of_one_address_have_a_bound)
    {
        static const char to_echo[] =
            "PUT /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 4194304\r\nConnection: close\r\n\r\n";
        static const char to_hidden[] =
            "POST /hidden HTTP/1.1\r\nHost: x\r\nContent-Length: 4194304\r\n\r\n";
        char *body = calloc(1, MC_HTTP_BODY_BYTES_MAX), text[1024];
        size_t most = MC_HTTP_BODY_BYTES_MAX - 1;
        int fds[4];
        started(&open_to_all);
        for (size_t i = 0; i < SL_COUNT(fds); i++) {
            fds[i] = said(to_echo, sizeof to_echo - 1);
            for (size_t sent = 0;
                 sent < most;) { /* all of it was taken, but for what sockets hold */
                ssize_t now = send(fds[i], body + sent, most - sent, MSG_NOSIGNAL);
                ck_assert_int_gt(now, 0);
                sent += (size_t)now;
            }
        }
        bool refused = false;
        while (!refused) { /* until the others were read; the suite has a limit */
            int fd = said(to_echo, sizeof to_echo - 1);
            for (size_t sent = 0; sent < most;) {
                ssize_t now = send(fd, body + sent, most - sent, MSG_NOSIGNAL);
                if (now <= 0) {
                    break;
                }
                sent += (size_t)now;
            }
            (void)shutdown(fd, SHUT_WR);
            all_read(fd, text, sizeof text);
            refused = strstr(text, "HTTP/1.1 503 ") == text;
            (void)close(fd);
        }
        int fd = said(to_hidden, sizeof to_hidden - 1);
        for (size_t sent = 0; sent < MC_HTTP_BODY_BYTES_MAX;) {
            ssize_t now = send(fd, body + sent, MC_HTTP_BODY_BYTES_MAX - sent, MSG_NOSIGNAL);
            ck_assert_int_gt(now, 0);
            sent += (size_t)now;
        }
        ck_assert_ptr_nonnull(strstr(head_of(fd, text, sizeof text), "HTTP/1.1 200 "));
        (void)close(fd);
        ck_assert_int_eq(send(fds[0], "", 1, MSG_NOSIGNAL), 1); /* and who was first is served */
        ck_assert_ptr_nonnull(strstr(head_of(fds[0], text, sizeof text), "HTTP/1.1 200 "));
        for (size_t i = 0; i < SL_COUNT(fds); i++) {
            (void)close(fds[i]);
        }
        free(body);
        stopped();
    }
END_TEST

int main(void)
{
    Suite *all = suite_create("http");
    TCase *times = tcase_create("times");
    tcase_set_timeout(times, 300);
    tcase_add_test(times, a_handler_may_take_longer_than_a_request);
    tcase_add_test(times, who_says_nothing_is_cut);
    suite_add_tcase(all, times);
    TCase *answers = tcase_create("answers");
    tcase_add_loop_test(answers, a_put_says_how_long_it_is, 0, SL_COUNT(bodies));
    tcase_add_loop_test(answers, the_head_is_answered_before_its_body_comes, 0,
                        SL_COUNT(heads_alone));
    tcase_add_test(answers, a_body_that_waits_is_called);
    tcase_add_test(answers, bodies_of_one_address_have_a_bound);
    tcase_set_timeout(answers, 60);
    suite_add_tcase(all, answers);
    TCase *reading = tcase_create("reading");
    tcase_add_loop_test(reading, a_doubtful_request_is_refused_and_hides_no_other, 0,
                        SL_COUNT(doubtful));
    tcase_add_loop_test(reading, requests_follow_each_other_on_a_connection, 0, SL_COUNT(plain));
    tcase_add_test(reading, a_head_has_a_bound);
    tcase_set_timeout(reading, 60);
    suite_add_tcase(all, reading);
    SRunner *runner = srunner_create(all);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
