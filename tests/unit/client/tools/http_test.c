/* tests/unit/client/tools/http_test.c - requests are parsed in one way or refused, answered by
 * their head, one a connection, and have a time limit to be complete. */
#include "client/tools/exporter/http.h"
#include "client/tools/exporter/http_head.h"
#include "client/tools/exporter/listen.h"

#include <arpa/inet.h>
#include <check.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static _Atomic uint32_t seen;

static void page(void *context, struct http_answer *answer)
{
    (void)context;
    atomic_fetch_add(&seen, 1);
    answer->text = strdup("page");
    answer->length_bytes = 4;
}

static void large_page(void *context, struct http_answer *answer)
{
    (void)context;
    answer->length_bytes = 8 * SL_MIB;
    answer->text = calloc(1, answer->length_bytes);
}

static const struct http_page pages[] = {
    {"/page", page, false}, {"/guarded", page, true}, {"/large", large_page, false}};

/* ---- a server in a thread of its own ---- */

static struct sl_loop *loop;
static struct http *http;
static pthread_t thread;
static struct sockaddr_in at;

static void *turned(void *unused)
{
    (void)unused;
    (void)sl_loop_run(loop, NULL);
    return NULL;
}

static void on_wake(void *unused)
{
    (void)unused;
    sl_loop_stop(loop);
}

static void started(const char *token)
{
    const struct sl_loop_options options = {.fds_max = HTTP_CONNECTIONS_MAX + 1, .timers_max = 1};
    socklen_t at_bytes = sizeof(at);
    int fd = -1;
    ck_assert_int_eq(sl_loop_create(&options, &loop, NULL), SL_OK);
    ck_assert_int_eq(tcp_listen("127.0.0.1", 0, &fd, NULL), SL_OK);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&at, &at_bytes), 0);
    ck_assert_int_eq(http_open(loop, fd, pages, SL_COUNT(pages), token, NULL, &http, NULL), SL_OK);
    sl_loop_on_wake(loop, on_wake, NULL);
    atomic_store(&seen, 0);
    ck_assert_int_eq(pthread_create(&thread, NULL, turned, NULL), 0);
}

static void stopped(void)
{
    sl_loop_wake(loop);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    http_close(&http);
    sl_loop_destroy(&loop);
}

static int said(const char *text, size_t length)
{
    const struct timeval limit = {.tv_sec = 60};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&at, sizeof(at)), 0);
    ck_assert_int_eq(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit), 0);
    ck_assert_int_eq(send(fd, text, length, MSG_NOSIGNAL), (ssize_t)length);
    return fd;
}

/* Reads to the end of the connection; returns the number of bytes. */
static size_t all_read(int fd, char *out, size_t room)
{
    char rest[4096];
    size_t used = 0, all = 0;
    ssize_t got = 0;
    while ((got = read(fd, rest, sizeof rest)) > 0) {
        size_t kept = SL_MIN((size_t)got, room - 1 - used);
        memcpy(out + used, rest, kept);
        used += kept;
        all += (size_t)got;
    }
    out[used] = '\0';
    (void)close(fd);
    return all;
}

#define NEXT    "GET /page HTTP/1.1\r\nHost: x\r\n\r\n"
#define GET     "GET /page HTTP/1.1\r\n"
#define POST    "POST /page HTTP/1.1\r\nHost: x\r\n"
#define Z(text) text, sizeof(text) - 1
static const struct {
    const char *text;
    size_t length;
    unsigned status;
} requests[] = {
    {Z(NEXT), 200},
    {Z(GET "host:\tx:80 \r\nA: b\xe9 \t c\r\nEmpty:\r\n\r\n"), 200},
    {Z(GET "Host: [::1]:80\r\nConnection: keep-alive, x\r\n\r\n"), 200},
    {Z("GET /page HTTP/1.0\r\n\r\n"), 200},
    {Z("GET /page?a=b&c HTTP/1.1\r\nHost: x\r\n\r\n"), 200},
    {Z("GET //x/page HTTP/1.1\r\nHost: x\r\n\r\n"), 404},
    {Z("PUT /nowhere HTTP/1.1\r\nContent-Length: 1000000\r\nHost: x\r\n\r\n"), 404},
    {Z("DELETE /page HTTP/1.1\r\nContent-Length: 1000000\r\nHost: x\r\n\r\n"), 405},
    {Z(GET "Host: x\r\nOrigin: http://evil\r\n\r\n"), 403},
    /* A body's length is ignored: no body is read. */
    {Z(GET "Host: x\r\nContent-Length: 3\r\n\r\nGET"), 200},
    {Z(GET "Host: x\r\nTransfer-Encoding: chunked\r\n\r\n00A\r\n0123456789\r\n0\r\n\r\n"), 200},
    {Z(POST "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), 405},
    {Z(POST "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"), 405},
    {Z(POST "Content-Length: 5\r\nContent-Length: 0\r\n\r\n"), 405},
    {Z(POST "Content-Length: 18446744073709551617\r\n\r\n"), 405},
    {Z(POST "Expect: 100-continue\r\nContent-Length: 5\r\n\r\n"), 405},
    {Z(POST "Content-Length : 5\r\n\r\nabcde"), 400},
    {Z(POST " Content-Length: 5\r\n\r\nabcde"), 400},
    {Z(POST "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n"), 400},
    {Z(POST "Transfer-Encoding:\x0b"
            "chunked\r\n\r\n0\r\n\r\n"),
     400},
    /* where does a line end? */
    {Z("GET /page HTTP/1.1\nHost: x\r\n\r\n"), 400},
    {Z(GET "Host: x\n\r\n"), 400},
    {Z(GET "Host: x\r\n\n"), 400},
    {Z(GET "Host: x\n\n"), 400},
    {Z(GET "Host: x\r\r\n\r\n"), 400},
    {Z(GET "Host: x\rContent-Length: 5\r\n\r\n"), 400},
    {Z(GET "Host: x\r\nA: b\r\n c\r\n\r\n"), 400},
    {Z(GET "Host: x\r\nA: b\r\n\tc\r\n\r\n"), 400},
    {Z(GET " Host: x\r\n\r\n"), 400},
    {Z("\r\n" NEXT), 400},
    {Z("\n" NEXT), 400},
    /* what is in it? */
    {Z(GET "Host: x\r\nA: b\0c\r\n\r\n"), 400},
    {Z("GET /pa\0ge HTTP/1.1\r\nHost: x\r\n\r\n"), 400},
    {Z(GET "Host: x\r\nA\x7f: b\r\n\r\n"), 400},
    {Z(GET "Host: x\r\nno colon\r\n\r\n"), 400},
    {Z(GET "Host: x\r\n: b\r\n\r\n"), 400},
    {Z(GET "Host: x\r\nA(b): c\r\n\r\n"), 400},
    {Z("GET  /page HTTP/1.1\r\nHost: x\r\n\r\n"), 400},
    {Z("GET /page  HTTP/1.1\r\nHost: x\r\n\r\n"), 400},
    {Z("GET /page HTTP/1.1 \r\nHost: x\r\n\r\n"), 400},
    {Z("GET\t/page\tHTTP/1.1\r\nHost: x\r\n\r\n"), 400},
    {Z("GET /pa ge HTTP/1.1\r\nHost: x\r\n\r\n"), 400},
    {Z("GET /page#a HTTP/1.1\r\nHost: x\r\n\r\n"), 400},
    {Z("GET /page\r\n\r\n"), 400},
    {Z("GET page HTTP/1.1\r\nHost: x\r\n\r\n"), 400},
    {Z("GET http://x/page HTTP/1.1\r\nHost: x\r\n\r\n"), 400},
    {Z("OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n"), 400},
    {Z("CONNECT x:80 HTTP/1.1\r\nHost: x\r\n\r\n"), 400},
    {Z("G(T /page HTTP/1.1\r\nHost: x\r\n\r\n"), 400},
    {Z("GET /page HTTP/1.2\r\nHost: x\r\n\r\n"), 400},
    {Z("GET /page HTTP/2.0\r\nHost: x\r\n\r\n"), 400},
    {Z("GET /page http/1.1\r\nHost: x\r\n\r\n"), 400},
    {Z("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 400},
    {Z("\x16\x03\x01\x02\x00\x01"), 400}, /* TLS */
    {Z(GET "Host: x\r\nHost: x\r\n\r\n"), 400},
    {Z(GET "Host: x\r\nAuthorization: Bearer a\r\nAuthorization: Bearer b\r\n\r\n"), 400},
    {Z(GET "Host: x\r\nOrigin: a\r\nOrigin: b\r\n\r\n"), 400},
};
START_TEST(a_request_is_answered_once_and_hides_no_other)
    {
        char text[4096], want[32];
        started(NULL);
        memcpy(text, requests[_i].text, requests[_i].length);
        memcpy(text + requests[_i].length, NEXT, sizeof(NEXT) - 1);

        (void)all_read(said(text, requests[_i].length + sizeof(NEXT) - 1), text, sizeof text);

        (void)snprintf(want, sizeof want, "HTTP/1.1 %u ", requests[_i].status);
        ck_assert_msg(strstr(text, want) == text, "'%s'", text);
        ck_assert_msg(strstr(text + 1, "HTTP/1.1 ") == NULL, "'%s'", text);
        ck_assert_ptr_nonnull(strstr(text, "Connection: close\r\n"));
        ck_assert_uint_eq(atomic_load(&seen), requests[_i].status == 200 ? 1 : 0);
        stopped();
    }
END_TEST

#define TOKEN "a token of some length"
static const struct {
    const char *path, *head;
    unsigned status;
} tokens[] = {
    {"/page", "", 200},
    {"/guarded", "", 401},
    {"/guarded", "Authorization: " TOKEN "\r\n", 401},
    {"/guarded", "Authorization: Bearer a token\r\n", 401},
    {"/guarded", "Authorization: Bearer " TOKEN "s\r\n", 401},
    {"/guarded", "Authorization: Bearer " TOKEN "\r\n", 200},
    {"/guarded", "authorization: bearer " TOKEN "\r\n", 200},
    {"/guarded", "Authorization: Bearer " TOKEN "\r\nOrigin: http://evil\r\n", 403},
};
START_TEST(a_guarded_page_wants_the_token)
    {
        char text[1024], want[32];
        started(TOKEN);
        int length = snprintf(text, sizeof text, "GET %s HTTP/1.1\r\nHost: x\r\n%s\r\n",
                              tokens[_i].path, tokens[_i].head);
        (void)all_read(said(text, (size_t)length), text, sizeof text);
        (void)snprintf(want, sizeof want, "HTTP/1.1 %u ", tokens[_i].status);
        ck_assert_msg(strstr(text, want) == text, "'%s'", text);
        stopped();
    }
END_TEST

START_TEST(head_is_get_without_its_text)
    {
        static const char request[] = "HEAD /page HTTP/1.1\r\nHost: x\r\n\r\n";
        char text[1024];
        started(NULL);
        (void)all_read(said(request, sizeof request - 1), text, sizeof text);
        ck_assert_ptr_nonnull(strstr(text, "Content-Length: 4\r\n"));
        ck_assert_str_eq(text + strlen(text) - 4, "\r\n\r\n");
        stopped();
    }
END_TEST

START_TEST(a_request_may_come_in_pieces)
    {
        char text[1024];
        started(NULL);
        int fd = said(NEXT, 1);
        for (size_t i = 1; i + 1 < sizeof(NEXT); i++) {
            (void)usleep(1000);
            ck_assert_int_eq(send(fd, &NEXT[i], 1, MSG_NOSIGNAL), 1);
        }
        (void)all_read(fd, text, sizeof text);
        ck_assert_ptr_nonnull(strstr(text, "\r\n\r\npage"));
        stopped();
    }
END_TEST

START_TEST(a_head_has_a_bound)
    {
        static char text[HTTP_HEAD_BYTES_MAX + 100];
        char answer[1024];
        started(NULL);
        int length = snprintf(text, sizeof text, GET "Host: x\r\nA: ");
        memset(text + length, 'a', sizeof text - (size_t)length);
        (void)all_read(said(text, sizeof text), answer, sizeof answer);
        ck_assert_msg(strstr(answer, "HTTP/1.1 431 ") == answer, "'%s'", answer);
        stopped();
    }
END_TEST

START_TEST(who_says_nothing_is_cut)
    {
        char answer[1024];
        started(NULL);
        ck_assert_uint_eq(all_read(said("GET /pa", 7), answer, sizeof answer), 0);
        stopped();
    }
END_TEST

/* While a reader does not take an answer larger than the socket buffers, others are answered. */
START_TEST(a_slow_reader_holds_up_nobody)
    {
        static const char request[] = "GET /large HTTP/1.1\r\nHost: x\r\n\r\n";
        char text[1024];
        started(NULL);
        int slow = said(request, sizeof request - 1);
        (void)usleep(100000);
        (void)all_read(said(NEXT, sizeof NEXT - 1), text, sizeof text);
        ck_assert_ptr_nonnull(strstr(text, "\r\n\r\npage"));
        ck_assert_uint_gt(all_read(slow, text, sizeof text), 8 * SL_MIB);
        stopped();
    }
END_TEST

int main(void)
{
    Suite *all = suite_create("http");
    TCase *tests = tcase_create("requests");
    tcase_set_timeout(tests, 60);
    tcase_add_loop_test(tests, a_request_is_answered_once_and_hides_no_other, 0,
                        SL_COUNT(requests));
    tcase_add_loop_test(tests, a_guarded_page_wants_the_token, 0, SL_COUNT(tokens));
    tcase_add_test(tests, head_is_get_without_its_text);
    tcase_add_test(tests, a_request_may_come_in_pieces);
    tcase_add_test(tests, a_head_has_a_bound);
    tcase_add_test(tests, who_says_nothing_is_cut);
    tcase_add_test(tests, a_slow_reader_holds_up_nobody);
    suite_add_tcase(all, tests);
    SRunner *runner = srunner_create(all);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
