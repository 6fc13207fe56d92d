/* client/tools/exporter/http.c - connections, answers and limits of the HTTP server; see http.h. */
#include "client/tools/exporter/http.h"
#include "client/tools/exporter/http_head.h"
#include "runtime/net/sl_unauth.h"

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
struct client_conn {
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
    struct sl_unauth *unauth; /* connections with an incomplete request */
    struct sl_unauth *served; /* connections that are being answered */
    struct client_conn client_conns[HTTP_CONNECTIONS_MAX];
};

/* ---- connections ---- */

static void conn_close(struct client_conn *client_conn)
{
    struct http *http = client_conn->http;
    uint32_t place = (uint32_t)(client_conn - http->client_conns);
    sl_unauth_remove(http->unauth, place);
    sl_unauth_remove(http->served, place);
    sl_loop_fd_remove(http->loop, client_conn->fd);
    (void)close(client_conn->fd);
    free(client_conn->out);
    client_conn->out = NULL;
    client_conn->fd = -1;
}

/* Adds a connection to a list. If its address has too many, the oldest of them is closed. */
static void conn_list_add(struct client_conn *client_conn, struct sl_unauth *whom)
{
    struct sockaddr_storage from = {.ss_family = AF_UNSPEC}; /* stays so if it has disconnected */
    socklen_t from_bytes = sizeof from;
    (void)getpeername(client_conn->fd, (struct sockaddr *)&from, &from_bytes);
    uint32_t place = (uint32_t)(client_conn - client_conn->http->client_conns);
    uint32_t goes = sl_unauth_add(whom, place, &from);
    if (goes != SL_UNAUTH_NONE) {
        conn_close(&client_conn->http->client_conns[goes]);
    }
}

static void on_tick(void *context, uint64_t now_ns)
{
    struct http *http = context;
    for (size_t i = 0; i < HTTP_CONNECTIONS_MAX; i++) {
        if (http->client_conns[i].fd >= 0 && http->client_conns[i].until_ns <= now_ns) {
            conn_close(&http->client_conns[i]);
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
static bool answer_begin(struct client_conn *client_conn, const struct http_answer *answer,
                         bool head_only)
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
    client_conn->sent = 0;
    client_conn->out_bytes = (size_t)length + (head_only ? 0 : body_bytes);
    client_conn->out = malloc(client_conn->out_bytes);
    if (client_conn->out != NULL) {
        memcpy(client_conn->out, head, (size_t)length);
        memcpy(client_conn->out + length, text, client_conn->out_bytes - (size_t)length);
    }
    free(answer->text);
    client_conn->until_ns = sl_clock_monotonic_ns() + ANSWER_NS;
    sl_unauth_remove(client_conn->http->unauth,
                     (uint32_t)(client_conn - client_conn->http->client_conns));
    conn_list_add(client_conn, client_conn->http->served);
    return client_conn->out != NULL &&
           sl_loop_fd_set(client_conn->http->loop, client_conn->fd, SL_LOOP_WRITE, NULL) == SL_OK;
}

/* ---- steps of a connection; false: it is closed ---- */

static bool head_read(struct client_conn *client_conn)
{
    struct http_head head = {0};
    struct http_answer answer = {0};
    ssize_t got = recv(client_conn->fd, client_conn->in + client_conn->used,
                       sizeof client_conn->in - client_conn->used, 0);
    if (got <= 0) {
        return got < 0 && (errno == EAGAIN || errno == EINTR);
    }
    client_conn->used += (size_t)got;
    ssize_t length = http_head_bytes(client_conn->in, client_conn->used);
    const char *wrong = length < 0   ? "a line ends with CR LF, and has no control characters"
                        : length > 0 ? http_head_parse(client_conn->in, (size_t)length, &head)
                                     : NULL;
    if (wrong != NULL) {
        refuse(&answer, 400, "%s\n", wrong);
    } else if (length > 0) {
        request_answer(client_conn->http, &head, &answer);
    } else if (client_conn->used < sizeof client_conn->in) {
        return true;
    } else {
        refuse(&answer, 431, "a head has less than %u KiB\n",
               (unsigned)(sizeof client_conn->in >> 10));
    }
    return answer_begin(client_conn, &answer,
                        head.method != NULL && strcmp(head.method, "HEAD") == 0);
}

static bool answer_send(struct client_conn *client_conn)
{
    ssize_t sent = send(client_conn->fd, client_conn->out + client_conn->sent,
                        client_conn->out_bytes - client_conn->sent, MSG_NOSIGNAL);
    if (sent < 0) {
        return errno == EAGAIN || errno == EINTR;
    }
    client_conn->sent += (size_t)sent;
    if (client_conn->sent < client_conn->out_bytes) {
        return true;
    }
    client_conn->until_ns = sl_clock_monotonic_ns() + LINGER_NS;
    return shutdown(client_conn->fd, SHUT_WR) == 0 &&
           sl_loop_fd_set(client_conn->http->loop, client_conn->fd, SL_LOOP_READ, NULL) == SL_OK;
}

static bool rest_drop(struct client_conn *client_conn)
{
    ssize_t got = recv(client_conn->fd, client_conn->in, sizeof client_conn->in, 0);
    return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
}

static void on_visitor(void *context, int fd, uint32_t events)
{
    struct client_conn *client_conn = context;
    (void)fd, (void)events; /* the next call reports a hang-up */
    bool stays = client_conn->out == NULL                     ? head_read(client_conn)
                 : client_conn->sent < client_conn->out_bytes ? answer_send(client_conn)
                                                              : rest_drop(client_conn);
    if (!stays) {
        conn_close(client_conn);
    }
}

/* ---- the server ---- */

static struct client_conn *place_find(struct http *http)
{
    for (size_t i = 0; i < HTTP_CONNECTIONS_MAX; i++) {
        if (http->client_conns[i].fd < 0) {
            return &http->client_conns[i];
        }
    }
    uint32_t goes = sl_unauth_displace(http->unauth);
    if (goes == SL_UNAUTH_NONE) { /* all connections are being answered */
        return NULL;
    }
    conn_close(&http->client_conns[goes]);
    return &http->client_conns[goes];
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
    struct client_conn *client_conn = place_find(http);
    if (client_conn == NULL ||
        sl_loop_fd_add(http->loop, fd, SL_LOOP_READ, on_visitor, client_conn, NULL) != SL_OK) {
        (void)close(fd);
        return;
    }
    client_conn->fd = fd;
    client_conn->used = 0;
    client_conn->until_ns = sl_clock_monotonic_ns() + REQUEST_NS;
    conn_list_add(client_conn, http->unauth);
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
        http->client_conns[i].http = http;
        http->client_conns[i].fd = -1;
    }
    sl_err err =
        sl_unauth_create(HTTP_CONNECTIONS_MAX, HTTP_CONNECTIONS_MAX / 2, &http->unauth, why);
    if (err == SL_OK) {
        err = sl_unauth_create(HTTP_CONNECTIONS_MAX, HTTP_CONNECTIONS_MAX / 2, &http->served, why);
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
        if (gone->client_conns[i].fd >= 0) {
            conn_close(&gone->client_conns[i]);
        }
    }
    sl_loop_fd_remove(gone->loop, gone->listen_fd);
    (void)close(gone->listen_fd);
    sl_loop_timer_destroy(gone->loop, &gone->tick);
    sl_unauth_destroy(&gone->unauth);
    sl_unauth_destroy(&gone->served);
    free(gone);
    *http = NULL;
}
