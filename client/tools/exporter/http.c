/* client/tools/exporter/http.c - connections, answers and limits of the HTTP server; see http.h. */
#include "client/tools/exporter/http.h"
#include "client/tools/exporter/http_head.h"
#include "runtime/net/sl_strangers.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#define TICK_NS    SL_NS_PER_S
#define REQUEST_NS (10 * SL_NS_PER_S) /* until the head is complete */
#define ANSWER_NS  (60 * SL_NS_PER_S) /* until the client has read the answer */
#define LINGER_NS  (2 * SL_NS_PER_S)  /* for a client that reads it while it still sends */

/* A connection, from its accept to its close. */
struct visitor {
    struct http *http;
    int fd; /* -1: free */
    uint64_t until_ns;
    char *out; /* the answer; NULL: the head is incomplete */
    size_t used, sent, out_bytes;
    char in[HTTP_HEAD_BYTES_MAX];
};
struct http {
    struct sl_loop *loop;
    int listen_fd;
    const struct http_page *pages;
    uint32_t page_count;
    const char *token;
    void *context;
    sl_loop_timer tick;
    struct sl_strangers *strangers; /* those with an incomplete request */
    struct sl_strangers *served;    /* those that are being answered */
    struct visitor visitors[HTTP_CONNECTIONS_MAX];
};

/* ---- visitors ---- */

static void visitor_go(struct visitor *visitor)
{
    struct http *http = visitor->http;
    uint32_t place = (uint32_t)(visitor - http->visitors);
    sl_strangers_remove(http->strangers, place);
    sl_strangers_remove(http->served, place);
    sl_loop_fd_remove(http->loop, visitor->fd);
    (void)close(visitor->fd);
    free(visitor->out);
    visitor->out = NULL;
    visitor->fd = -1;
}

/* Adds a visitor to a list. If its address has too many, the oldest of them is closed. */
static void visitor_among(struct visitor *visitor, struct sl_strangers *whom)
{
    struct sockaddr_storage from = {.ss_family = AF_UNSPEC}; /* stays so if it has disconnected */
    socklen_t from_bytes = sizeof from;
    (void)getpeername(visitor->fd, (struct sockaddr *)&from, &from_bytes);
    uint32_t place = (uint32_t)(visitor - visitor->http->visitors);
    uint32_t goes = sl_strangers_add(whom, place, &from);
    if (goes != SL_STRANGERS_NONE) {
        visitor_go(&visitor->http->visitors[goes]);
    }
}

static void on_tick(void *context, uint64_t now_ns)
{
    struct http *http = context;
    for (size_t i = 0; i < HTTP_CONNECTIONS_MAX; i++) {
        if (http->visitors[i].fd >= 0 && http->visitors[i].until_ns <= now_ns) {
            visitor_go(&http->visitors[i]);
        }
    }
    (void)sl_loop_fd_set(http->loop, http->listen_fd, SL_LOOP_READ, NULL);
    sl_loop_timer_set(http->loop, http->tick, now_ns + TICK_NS);
}

/* ---- answers ---- */

static void SL_PRINTF(3, 4)
    refuse(struct http_answer *answer, unsigned status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = vasprintf(&answer->text, format, arguments);
    va_end(arguments);
    answer->status = status;
    answer->text = length >= 0 ? answer->text : NULL;
    answer->length_bytes = length >= 0 ? (size_t)length : 0;
}

static const char *status_word(unsigned status)
{
    return status == 200   ? "OK"
           : status == 400 ? "Bad Request"
           : status == 401 ? "Unauthorized"
           : status == 403 ? "Forbidden"
           : status == 404 ? "Not Found"
           : status == 405 ? "Method Not Allowed"
           : status == 431 ? "Request Header Fields Too Large"
           : status == 503 ? "Service Unavailable"
                           : "Internal Server Error";
}

static bool token_is_shown(const struct http *http, const struct http_head *head)
{
    static const char scheme[] = "Bearer ";
    const char *shown = head->authorization;
    size_t length = strlen(http->token);
    if (shown == NULL || strncasecmp(shown, scheme, sizeof scheme - 1) != 0) {
        return false;
    }
    shown += sizeof scheme - 1;
    return strlen(shown) == length && sl_same_bytes(shown, http->token, length);
}

/* Answers a request by its head. */
static void request_answer(const struct http *http, const struct http_head *head,
                           struct http_answer *answer)
{
    const struct http_page *page = NULL;
    for (uint32_t i = 0; i < http->page_count; i++) {
        page = strcmp(http->pages[i].path, head->path) == 0 ? &http->pages[i] : page;
    }
    if (page == NULL) {
        refuse(answer, 404, "no such path; GET / lists them\n");
    } else if (strcmp(head->method, "GET") != 0 && strcmp(head->method, "HEAD") != 0) {
        refuse(answer, 405, "%s takes GET, HEAD\n", page->path);
    } else if (head->origin != NULL) {
        refuse(answer, 403, "pages of %.200s are not allowed here\n", head->origin);
    } else if (page->guarded && http->token != NULL && !token_is_shown(http, head)) {
        refuse(answer, 401, "%s requires the header Authorization: Bearer TOKEN\n", page->path);
    } else {
        page->fn(http->context, answer);
    }
}

/* Prepares the answer (taken) for sending. False: no memory. */
static bool answer_begin(struct visitor *visitor, const struct http_answer *answer, bool head_only)
{
    const char *text = answer->text != NULL ? answer->text : ""; /* NULL: no memory */
    size_t body_bytes = answer->text != NULL ? answer->length_bytes : 0;
    char head[512], date[64] = "";
    struct tm day;
    time_t now = (time_t)(sl_clock_wall_ns() / SL_NS_PER_S);
    unsigned status = answer->text == NULL ? 500 : answer->status != 0 ? answer->status : 200;
    (void)strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", gmtime_r(&now, &day));
    int length = snprintf(head, sizeof head,
                          "HTTP/1.1 %u %s\r\nDate: %s\r\nContent-Type: %s\r\n"
                          "Content-Length: %zu\r\n%sConnection: close\r\n\r\n",
                          status, status_word(status), date,
                          answer->type != NULL ? answer->type : "text/plain; charset=utf-8",
                          body_bytes, status == 405 ? "Allow: GET, HEAD\r\n" : "");
    visitor->sent = 0;
    visitor->out_bytes = (size_t)length + (head_only ? 0 : body_bytes);
    visitor->out = malloc(visitor->out_bytes);
    if (visitor->out != NULL) {
        memcpy(visitor->out, head, (size_t)length);
        memcpy(visitor->out + length, text, visitor->out_bytes - (size_t)length);
    }
    free(answer->text);
    visitor->until_ns = sl_clock_monotonic_ns() + ANSWER_NS;
    sl_strangers_remove(visitor->http->strangers, (uint32_t)(visitor - visitor->http->visitors));
    visitor_among(visitor, visitor->http->served);
    return visitor->out != NULL &&
           sl_loop_fd_set(visitor->http->loop, visitor->fd, SL_LOOP_WRITE, NULL) == SL_OK;
}

/* ---- steps of a connection; false: it is closed ---- */

static bool head_read(struct visitor *visitor)
{
    struct http_head head = {0};
    struct http_answer answer = {0};
    ssize_t got =
        recv(visitor->fd, visitor->in + visitor->used, sizeof visitor->in - visitor->used, 0);
    if (got <= 0) {
        return got < 0 && (errno == EAGAIN || errno == EINTR);
    }
    visitor->used += (size_t)got;
    ssize_t length = http_head_bytes(visitor->in, visitor->used);
    const char *wrong = length < 0   ? "a line ends with CR LF, and has no control characters"
                        : length > 0 ? http_head_parse(visitor->in, (size_t)length, &head)
                                     : NULL;
    if (wrong != NULL) {
        refuse(&answer, 400, "%s\n", wrong);
    } else if (length > 0) {
        request_answer(visitor->http, &head, &answer);
    } else if (visitor->used < sizeof visitor->in) {
        return true;
    } else {
        refuse(&answer, 431, "a head has less than %u KiB\n", (unsigned)(sizeof visitor->in >> 10));
    }
    return answer_begin(visitor, &answer, head.method != NULL && strcmp(head.method, "HEAD") == 0);
}

static bool answer_send(struct visitor *visitor)
{
    ssize_t sent = send(visitor->fd, visitor->out + visitor->sent,
                        visitor->out_bytes - visitor->sent, MSG_NOSIGNAL);
    if (sent < 0) {
        return errno == EAGAIN || errno == EINTR;
    }
    visitor->sent += (size_t)sent;
    if (visitor->sent < visitor->out_bytes) {
        return true;
    }
    visitor->until_ns = sl_clock_monotonic_ns() + LINGER_NS;
    return shutdown(visitor->fd, SHUT_WR) == 0 &&
           sl_loop_fd_set(visitor->http->loop, visitor->fd, SL_LOOP_READ, NULL) == SL_OK;
}

static bool rest_drop(struct visitor *visitor)
{
    ssize_t got = recv(visitor->fd, visitor->in, sizeof visitor->in, 0);
    return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
}

static void on_visitor(void *context, int fd, uint32_t events)
{
    struct visitor *visitor = context;
    (void)fd, (void)events; /* the next call reports a hang-up */
    bool stays = visitor->out == NULL                 ? head_read(visitor)
                 : visitor->sent < visitor->out_bytes ? answer_send(visitor)
                                                      : rest_drop(visitor);
    if (!stays) {
        visitor_go(visitor);
    }
}

/* ---- the server ---- */

static struct visitor *place_find(struct http *http)
{
    for (size_t i = 0; i < HTTP_CONNECTIONS_MAX; i++) {
        if (http->visitors[i].fd < 0) {
            return &http->visitors[i];
        }
    }
    uint32_t goes = sl_strangers_push(http->strangers);
    if (goes == SL_STRANGERS_NONE) { /* all connections are being answered */
        return NULL;
    }
    visitor_go(&http->visitors[goes]);
    return &http->visitors[goes];
}

static void on_connection(void *context, int listen_fd, uint32_t events)
{
    struct http *http = context;
    (void)events;
    int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) { /* as when no descriptor is left: try again at the next tick */
        (void)sl_loop_fd_set(http->loop, listen_fd, 0, NULL);
        return;
    }
    struct visitor *visitor = place_find(http);
    if (visitor == NULL ||
        sl_loop_fd_add(http->loop, fd, SL_LOOP_READ, on_visitor, visitor, NULL) != SL_OK) {
        (void)close(fd);
        return;
    }
    visitor->fd = fd;
    visitor->used = 0;
    visitor->until_ns = sl_clock_monotonic_ns() + REQUEST_NS;
    visitor_among(visitor, http->strangers);
}

sl_err http_open(struct sl_loop *loop, int fd, const struct http_page *pages, uint32_t page_count,
                 const char *token, void *context, struct http **out, struct sl_error *why)
{
    struct http *http = calloc(1, sizeof *http);
    if (http == NULL) {
        (void)close(fd);
        return sl_fail(why, SL_ERR_NO_MEMORY, "http server");
    }
    *http = (struct http){.loop = loop,
                          .listen_fd = fd,
                          .pages = pages,
                          .page_count = page_count,
                          .token = token,
                          .context = context};
    for (size_t i = 0; i < HTTP_CONNECTIONS_MAX; i++) {
        http->visitors[i].http = http;
        http->visitors[i].fd = -1;
    }
    sl_err err =
        sl_strangers_create(HTTP_CONNECTIONS_MAX, HTTP_CONNECTIONS_MAX / 2, &http->strangers, why);
    if (err == SL_OK) {
        err =
            sl_strangers_create(HTTP_CONNECTIONS_MAX, HTTP_CONNECTIONS_MAX / 2, &http->served, why);
    }
    if (err == SL_OK) {
        err = sl_loop_timer_create(loop, on_tick, http, &http->tick, why);
    }
    if (err == SL_OK) {
        err = sl_loop_fd_add(loop, fd, SL_LOOP_READ, on_connection, http, why);
    }
    if (err != SL_OK) {
        http_close(&http);
        return err;
    }
    sl_loop_timer_set(loop, http->tick, sl_clock_monotonic_ns() + TICK_NS);
    *out = http;
    return SL_OK;
}

void http_close(struct http **http)
{
    struct http *gone = *http;
    if (gone == NULL) {
        return;
    }
    for (size_t i = 0; i < HTTP_CONNECTIONS_MAX; i++) {
        if (gone->visitors[i].fd >= 0) {
            visitor_go(&gone->visitors[i]);
        }
    }
    sl_loop_fd_remove(gone->loop, gone->listen_fd);
    (void)close(gone->listen_fd);
    sl_loop_timer_destroy(gone->loop, &gone->tick);
    sl_strangers_destroy(&gone->strangers);
    sl_strangers_destroy(&gone->served);
    free(gone);
    *http = NULL;
}
