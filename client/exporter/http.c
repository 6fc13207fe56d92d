/* client/exporter/http.c - see http.h. */
#include "client/exporter/http.h"
#include "client/exporter/http_input.h"
#include "runtime/sl_clock.h"
#include "runtime/sl_strangers.h"

#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define IDLE_S           10u /* without a byte of a request */
#define STREAM_BLOCK     (64 * SL_KIB)
#define STACK_BYTES      (512 * SL_KIB)
#define REQUEST_NS       (60 * SL_NS_PER_S) /* until all of it is here */
#define ANSWER_S         300u /* until an answer is made, and until all of it is taken */
#define ANSWER_NS        (ANSWER_S * SL_NS_PER_S)
#define LINGER_NS        (2 * SL_NS_PER_S) /* for a peer to read a refusal while it still sends */
#define FROM_ONE_ADDRESS (MC_HTTP_CONNECTIONS_MAX / 2)
#define CUT              UINT64_MAX /* in until_ns: shut down already */
/* Connections are accepted over the bound: whom they push out takes a moment to end. */
#define PLACES (MC_HTTP_CONNECTIONS_MAX + 64u)

/* A connection, from its accept to its close. */
struct visitor {
    struct mc_http *http;
    int fd; /* -1: free */
    uint64_t until_ns;
    uint64_t body_room; /* memory that its body has */
    struct sockaddr_storage from;
};
struct mc_http {
    int listen_fd, wake_fd; /* wake_fd: it ends */
    pthread_t listener;
    const struct mc_route *routes;
    uint32_t route_count;
    struct mc_http_guard guard;
    void *context;
    pthread_mutex_t lock; /* of the visitors */
    pthread_cond_t gone;  /* one of them */
    struct visitor visitors[PLACES];
    uint32_t running;               /* visitors that have a thread */
    uint32_t here;                  /* visitors that were not cut */
    struct sl_strangers *strangers; /* visitors of whose request not all is here */
    struct sl_strangers *served;    /* and those whose answer is made and sent */
};
struct mc_request {
    struct visitor *visitor;
    enum mc_method method;
    bool head_only; /* HEAD */
    struct mc_input input;
};

enum mc_method mc_request_method(const struct mc_request *request)
{
    return request->method;
}

const char *mc_request_body(const struct mc_request *request, size_t *length_bytes)
{
    *length_bytes = request->input.body_bytes;
    return request->input.body != NULL ? request->input.body : "";
}

const char *mc_request_raw(const struct mc_request *request, const char *name)
{
    return mc_head_argument(&request->input.head, name);
}

static int hex_digit(char letter)
{
    if (letter >= '0' && letter <= '9') {
        return letter - '0';
    }
    char small = (char)(letter | 0x20);
    return small >= 'a' && small <= 'f' ? small - 'a' + 10 : -1;
}

ssize_t mc_unescape(const char *text, size_t length, char *out)
{
    size_t used = 0;
    for (size_t i = 0; i < length; i++) {
        char letter = text[i] == '+' ? ' ' : text[i];
        if (letter == '%') {
            int high = length - i > 2 ? hex_digit(text[i + 1]) : -1;
            int low = length - i > 2 ? hex_digit(text[i + 2]) : -1;
            if (high < 0 || low < 0) {
                return -1;
            }
            letter = (char)(high * 16 + low);
            i += 2;
        }
        if (letter == '\0') {
            return -1;
        }
        out[used++] = letter;
    }
    out[used] = '\0';
    return (ssize_t)used;
}

void mc_answer_text(struct mc_answer *answer, unsigned status, const char *format, ...)
{
    va_list arguments;
    char *text = NULL;
    va_start(arguments, format);
    int length = vasprintf(&text, format, arguments);
    va_end(arguments);
    free(answer->text);
    answer->status = length >= 0 ? status : 500;
    answer->text = length >= 0 ? text : NULL;
    answer->length_bytes = length >= 0 ? (size_t)length : 0;
}

/* ---- visitors ---- */

/* With the lock. Its thread sees that and closes it. */
static void visitor_cut(struct visitor *visitor)
{
    struct mc_http *http = visitor->http;
    uint32_t place = (uint32_t)(visitor - http->visitors);
    (void)shutdown(visitor->fd, SHUT_RDWR);
    visitor->until_ns = CUT;
    http->here--;
    sl_strangers_remove(http->strangers, place);
    sl_strangers_remove(http->served, place);
}

/* The visitor goes over to these, with the lock; NULL: to none. */
static void visitor_move(struct visitor *visitor, struct sl_strangers *to)
{
    struct mc_http *http = visitor->http;
    uint32_t place = (uint32_t)(visitor - http->visitors);
    sl_strangers_remove(http->strangers, place);
    sl_strangers_remove(http->served, place);
    if (to == NULL || visitor->until_ns == CUT) {
        return;
    }
    uint32_t goes = sl_strangers_add(to, place, &visitor->from);
    if (goes != SL_STRANGERS_NONE) {
        visitor_cut(&http->visitors[goes]);
    }
}

/* NULL: there are too many. */
static struct visitor *visitor_come(struct mc_http *http, int fd)
{
    for (size_t i = 0; i < PLACES; i++) {
        struct visitor *visitor = &http->visitors[i];
        if (visitor->fd < 0) {
            socklen_t from_bytes = sizeof visitor->from;
            *visitor = (struct visitor){
                .http = http, .fd = fd, .until_ns = sl_clock_monotonic_ns() + REQUEST_NS};
            if (getpeername(fd, (struct sockaddr *)&visitor->from, &from_bytes) != 0) {
                visitor->from.ss_family = AF_UNSPEC; /* gone already: its thread will see that */
            }
            http->here++;
            visitor_move(visitor, http->strangers);
            if (http->here > MC_HTTP_CONNECTIONS_MAX) { /* itself, when all others are served */
                visitor_cut(&http->visitors[sl_strangers_push(http->strangers)]);
            }
            return visitor;
        }
    }
    return NULL;
}

static void visitor_go(struct visitor *visitor)
{
    struct mc_http *http = visitor->http;
    pthread_mutex_lock(&http->lock);
    visitor_move(visitor, NULL);
    http->here -= visitor->until_ns != CUT;
    (void)close(visitor->fd);
    *visitor = (struct visitor){.http = http, .fd = -1};
    http->running--;
    pthread_cond_signal(&http->gone);
    pthread_mutex_unlock(&http->lock);
}

void mc_http_tend(struct mc_http *http, uint64_t now_ns)
{
    pthread_mutex_lock(&http->lock);
    for (size_t i = 0; i < PLACES; i++) {
        struct visitor *visitor = &http->visitors[i];
        if (visitor->fd >= 0 && visitor->until_ns <= now_ns) {
            visitor_cut(visitor);
        }
    }
    pthread_mutex_unlock(&http->lock);
}

/* It has so long from now on, as one of these; with none of them it stays what it is. */
static void visitor_time(struct visitor *visitor, uint64_t ns, struct sl_strangers *among)
{
    pthread_mutex_lock(&visitor->http->lock);
    if (visitor->until_ns != CUT) {
        visitor->until_ns = sl_clock_monotonic_ns() + ns;
        if (among != NULL) {
            visitor_move(visitor, among);
        }
    }
    pthread_mutex_unlock(&visitor->http->lock);
}

/* Whether a body may take so much memory: of an address bodies have MC_HTTP_BODIES_OF_ONE at most,
 * and all together MC_HTTP_BODIES_BYTES. */
static bool visitor_charge(void *context, uint64_t body_room)
{
    struct visitor *visitor = context;
    struct mc_http *http = visitor->http;
    uint64_t all = body_room, of_one = body_room;
    pthread_mutex_lock(&http->lock);
    for (size_t i = 0; i < PLACES; i++) {
        const struct visitor *other = &http->visitors[i];
        if (other != visitor && other->body_room > 0) {
            all += other->body_room;
            of_one += sl_strangers_same(&other->from, &visitor->from) ? other->body_room : 0;
        }
    }
    bool fits = all <= MC_HTTP_BODIES_BYTES && of_one <= MC_HTTP_BODIES_OF_ONE;
    if (fits) {
        visitor->body_room = body_room;
    }
    pthread_mutex_unlock(&http->lock);
    return fits;
}

/* ---- answers ---- */

static const char *status_word(unsigned status)
{
    static const struct {
        unsigned status;
        const char *word;
    } words[] = {{100, "Continue"},
                 {200, "OK"},
                 {400, "Bad Request"},
                 {401, "Unauthorized"},
                 {403, "Forbidden"},
                 {404, "Not Found"},
                 {405, "Method Not Allowed"},
                 {411, "Length Required"},
                 {413, "Content Too Large"},
                 {414, "URI Too Long"},
                 {417, "Expectation Failed"},
                 {431, "Request Header Fields Too Large"},
                 {500, "Internal Server Error"},
                 {501, "Not Implemented"},
                 {503, "Service Unavailable"},
                 {505, "HTTP Version Not Supported"},
                 {507, "Insufficient Storage"}};
    for (size_t i = 0; i < SL_COUNT(words); i++) {
        if (words[i].status == status) {
            return words[i].word;
        }
    }
    return "Other";
}

/* In chunks, or up to the end of the connection for HTTP/1.0. False: it was cut. */
static bool stream_send(int fd, const struct mc_stream *stream, bool chunks)
{
    char size[32];
    ssize_t got = -2;
    bool goes_on = true;
    char *block = malloc(STREAM_BLOCK);
    while (block != NULL && goes_on &&
           (got = stream->more(stream->state, block, STREAM_BLOCK)) > 0) {
        (void)snprintf(size, sizeof size, "%zx\r\n", (size_t)got);
        goes_on = (!chunks || mc_send(fd, size, strlen(size), true)) &&
                  mc_send(fd, block, (size_t)got, chunks) &&
                  (!chunks || mc_send(fd, "\r\n", 2, false));
    }
    free(block);
    return got == -1 && (!chunks || mc_send(fd, "0\r\n\r\n", 5, false));
}

/* Takes the answer. False: the connection ends. */
static bool answer_send(const struct mc_request *request, struct mc_answer *answer,
                        const char *allow, bool closes)
{
    char head[512], date[64] = "", size[64] = "";
    struct tm day;
    int fd = request->visitor->fd;
    time_t now = (time_t)(sl_clock_wall_ns() / SL_NS_PER_S);
    bool streams = answer->stream.more != NULL, chunks = streams && !request->input.head.http_1_0;
    unsigned status = answer->status != 0 ? answer->status : 200;
    (void)strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", gmtime_r(&now, &day));
    if (!streams) {
        (void)snprintf(size, sizeof size, "Content-Length: %zu\r\n", answer->length_bytes);
    } else if (chunks) {
        (void)snprintf(size, sizeof size, "Transfer-Encoding: chunked\r\n");
    }
    int length = snprintf(head, sizeof head,
                          "HTTP/1.1 %u %s\r\nDate: %s\r\nContent-Type: %s\r\n%s%s%s%s%s\r\n",
                          status, status_word(status), date,
                          answer->type != NULL ? answer->type : "text/plain; charset=utf-8", size,
                          allow != NULL ? "Allow: " : "", allow != NULL ? allow : "",
                          allow != NULL ? "\r\n" : "", closes ? "Connection: close\r\n" : "");
    bool body = !request->head_only && (streams || answer->length_bytes > 0);
    bool sent = mc_send(fd, head, (size_t)length, body);
    if (sent && body) {
        sent = streams ? stream_send(fd, &answer->stream, chunks)
                       : mc_send(fd, answer->text, answer->length_bytes, false);
    }
    if (streams) {
        answer->stream.end(answer->stream.state);
    }
    free(answer->text);
    return sent && !closes;
}

/* ---- requests ---- */

#define BODY_TOO_LARGE "a body has at most %" PRIu64 " bytes\n"

static bool method_of(const char *word, enum mc_method *out)
{
    static const struct {
        const char *word;
        enum mc_method method;
    } known[] = {{"GET", MC_GET},
                 {"HEAD", MC_GET},
                 {"POST", MC_POST},
                 {"PUT", MC_PUT},
                 {"DELETE", MC_DELETE}};
    for (size_t i = 0; i < SL_COUNT(known); i++) {
        if (strcmp(word, known[i].word) == 0) {
            *out = known[i].method;
            return true;
        }
    }
    return false;
}

static void allowed_text(unsigned methods, char out[64])
{
    (void)snprintf(out, 64, "%s%s%s%s", (methods & MC_GET) != 0 ? "GET, HEAD, " : "",
                   (methods & MC_POST) != 0 ? "POST, " : "", (methods & MC_PUT) != 0 ? "PUT, " : "",
                   (methods & MC_DELETE) != 0 ? "DELETE, " : "");
    size_t length = strlen(out);
    out[length >= 2 ? length - 2 : 0] = '\0';
}

static const struct mc_route *route_find(const struct mc_http *http, const char *path)
{
    for (uint32_t i = 0; i < http->route_count; i++) {
        if (strcmp(http->routes[i].path, path) == 0) {
            return &http->routes[i];
        }
    }
    return NULL;
}

/* ---- who may ---- */

/* The address of this side of the connection: one that came by the loopback is of this host. */
static bool is_of_this_host(const struct mc_request *request)
{
    union {
        struct sockaddr any;
        struct sockaddr_in in;
        struct sockaddr_in6 in6;
    } at = {.any.sa_family = AF_UNSPEC};
    socklen_t at_bytes = sizeof at;
    if (getsockname(request->visitor->fd, &at.any, &at_bytes) != 0) {
        return false;
    }
    if (at.any.sa_family == AF_INET) {
        return ntohl(at.in.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
    }
    return at.any.sa_family == AF_INET6 && (IN6_IS_ADDR_LOOPBACK(&at.in6.sin6_addr) ||
                                            (IN6_IS_ADDR_V4MAPPED(&at.in6.sin6_addr) &&
                                             at.in6.sin6_addr.s6_addr[12] == IN_LOOPBACKNET));
}

static bool origin_is_allowed(const struct mc_http_guard *guard, const char *origin)
{
    size_t length = strlen(origin);
    for (const char *at = guard->origins; at != NULL && *at != '\0'; at += *at == ',' ? 1 : 0) {
        size_t entry = strcspn(at, ",");
        if (entry == length && memcmp(at, origin, length) == 0) {
            return true;
        }
        at += entry;
    }
    return false;
}

static bool token_is_shown(const struct mc_http_guard *guard, const struct mc_request *request)
{
    static const char scheme[] = "Bearer ";
    const char *shown = mc_head_field(&request->input.head, "Authorization");
    if (shown == NULL || strncasecmp(shown, scheme, sizeof scheme - 1) != 0) {
        return false;
    }
    shown += sizeof scheme - 1;
    size_t length = strlen(guard->token);
    return strlen(shown) == length && sl_same_bytes(shown, guard->token, length);
}

/* False: the answer says why not. */
static bool is_allowed(const struct mc_http *http, const struct mc_request *request,
                       const struct mc_route *route, struct mc_answer *answer)
{
    const struct mc_http_guard *guard = &http->guard;
    const char *origin = mc_head_field(&request->input.head, "Origin");
    if (origin != NULL && !origin_is_allowed(guard, origin)) {
        mc_answer_text(answer, 403, "pages of %.200s are not allowed here\n", origin);
        return false;
    }
    bool fine = guard->token != NULL ? token_is_shown(guard, request)
                                     : guard->open_without_token || is_of_this_host(request);
    if ((route->guarded & request->method) == 0 || fine) {
        return true;
    }
    if (guard->token != NULL) {
        mc_answer_text(answer, 401, "%s wants the header Authorization: Bearer TOKEN here\n",
                       route->path);
    } else {
        mc_answer_text(
            answer, 403,
            "%s is for this host alone: ask by the loopback, or start the server with a token\n",
            route->path);
    }
    return false;
}

/* By the head alone. NULL: the answer says why not. */
static const struct mc_route *request_route(const struct mc_http *http, struct mc_request *request,
                                            char allow[64], struct mc_answer *answer)
{
    const struct mc_head *head = &request->input.head;
    const struct mc_route *route = route_find(http, head->path);
    if (route == NULL) {
        mc_answer_text(answer, 404, "no such path; GET / lists them\n");
    } else if (!method_of(head->method, &request->method) ||
               (route->methods & request->method) == 0) {
        allowed_text(route->methods, allow);
        mc_answer_text(answer, 405, "%s takes %s\n", route->path, allow);
    } else if (!is_allowed(http, request, route, answer)) {
        return NULL;
    } else if (request->method == MC_PUT && !head->has_length && !head->chunked) {
        /* without a length there is no body: who forgot it would put an empty one */
        mc_answer_text(answer, 411, "a body needs a Content-Length\n");
    } else if (head->body_bytes > MC_HTTP_BODY_BYTES_MAX) {
        mc_answer_text(answer, 413, BODY_TOO_LARGE, MC_HTTP_BODY_BYTES_MAX);
    } else {
        return route;
    }
    return NULL;
}

/* ---- serving ---- */

/* Bodies are read when the head was accepted, and no sooner. False: the connection ends. */
static bool request_serve(struct mc_http *http, struct mc_request *request)
{
    char allow[64] = "";
    struct mc_answer answer = {0};
    struct mc_refusal refusal = {0};
    const struct mc_route *route = NULL;
    request->head_only = false;
    enum mc_read end = mc_head_read(&request->input, &refusal);
    if (end == MC_READ_FINE) {
        request->head_only = strcmp(request->input.head.method, "HEAD") == 0;
        route = request_route(http, request, allow, &answer);
    }
    if (route != NULL) {
        end = mc_body_read(&request->input, request->method == MC_PUT, &refusal);
    }
    if (end == MC_READ_GONE) {
        return false;
    }
    if (end == MC_READ_REFUSED) {
        mc_answer_text(&answer, refusal.status, "%s\n", refusal.text);
    } else if (route != NULL) { /* all of it is here: it may take its time */
        visitor_time(request->visitor, ANSWER_NS, http->served);
        route->fn(http->context, request, &answer);
    }
    bool fine = end == MC_READ_FINE && route != NULL;
    visitor_time(request->visitor, ANSWER_NS, NULL);
    return answer_send(request, &answer, allow[0] != '\0' ? allow : NULL,
                       !fine || request->input.head.closes);
}

/* A peer that is still sending reads its answer only if what it sends is taken. */
static void linger(struct mc_http *http, struct mc_request *request)
{
    visitor_time(request->visitor, LINGER_NS, http->strangers);
    (void)shutdown(request->visitor->fd, SHUT_WR);
    while (mc_input_drop(&request->input)) {
    }
}

static void *visitor_serve(void *argument)
{
    struct visitor *visitor = argument;
    struct mc_http *http = visitor->http;
    struct mc_request *request = calloc(1, sizeof *request);
    if (request != NULL) {
        request->visitor = visitor;
        request->input.fd = visitor->fd;
        request->input.charge = visitor_charge;
        request->input.context = visitor;
        while (request_serve(http, request)) {
            mc_input_next(&request->input);
            visitor_time(visitor, REQUEST_NS, http->strangers);
        }
        linger(http, request);
        mc_input_next(&request->input);
        free(request);
    }
    visitor_go(visitor);
    return NULL;
}

static void visitor_start(struct mc_http *http, int fd)
{
    const struct timeval reads = {.tv_sec = IDLE_S}, writes = {.tv_sec = ANSWER_S};
    pthread_attr_t attributes;
    pthread_t thread;
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &reads, sizeof reads);
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &writes, sizeof writes);
    pthread_mutex_lock(&http->lock);
    struct visitor *visitor = visitor_come(http, fd);
    http->running += visitor != NULL;
    pthread_mutex_unlock(&http->lock);
    if (visitor == NULL) {
        (void)close(fd);
        return;
    }
    (void)pthread_attr_init(&attributes);
    (void)pthread_attr_setstacksize(&attributes, STACK_BYTES);
    (void)pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    if (pthread_create(&thread, &attributes, visitor_serve, visitor) != 0) {
        visitor_go(visitor);
    }
    (void)pthread_attr_destroy(&attributes);
}

static void *listener_run(void *argument)
{
    struct mc_http *http = argument;
    struct pollfd both[] = {{.fd = http->wake_fd, .events = POLLIN},
                            {.fd = http->listen_fd, .events = POLLIN}};
    while (both[0].revents == 0) {
        (void)poll(both, 2, -1);
        int fd = both[1].revents != 0 ? accept4(http->listen_fd, NULL, NULL, SOCK_CLOEXEC) : -1;
        if (fd >= 0) {
            visitor_start(http, fd);
        } else if (both[1].revents != 0) { /* no descriptor is left, say: not again at once */
            (void)poll(both, 1, 100);
        }
    }
    return NULL;
}

static void http_free(struct mc_http **http)
{
    if ((*http)->wake_fd >= 0) {
        (void)close((*http)->wake_fd);
    }
    (void)close((*http)->listen_fd);
    sl_strangers_destroy(&(*http)->strangers);
    sl_strangers_destroy(&(*http)->served);
    pthread_cond_destroy(&(*http)->gone);
    pthread_mutex_destroy(&(*http)->lock);
    free(*http);
    *http = NULL;
}

sl_err mc_http_start(int fd, const struct mc_route *routes, uint32_t route_count,
                     const struct mc_http_guard *guard, void *context, struct mc_http **out,
                     struct sl_error *why)
{
    struct mc_http *http = calloc(1, sizeof *http);
    if (http == NULL) {
        (void)close(fd);
        return sl_fail(why, SL_ERR_NO_MEMORY, "http server");
    }
    http->listen_fd = fd;
    http->routes = routes;
    http->route_count = route_count;
    http->guard = *guard;
    http->context = context;
    pthread_mutex_init(&http->lock, NULL);
    pthread_cond_init(&http->gone, NULL);
    for (size_t i = 0; i < PLACES; i++) {
        http->visitors[i] = (struct visitor){.http = http, .fd = -1};
    }
    http->wake_fd = eventfd(0, EFD_CLOEXEC);
    sl_err err = http->wake_fd >= 0 ? SL_OK : sl_fail_os(why, errno, "eventfd");
    if (err == SL_OK) {
        err = sl_strangers_create(PLACES, FROM_ONE_ADDRESS, &http->strangers, why);
    }
    if (err == SL_OK) {
        err = sl_strangers_create(PLACES, FROM_ONE_ADDRESS, &http->served, why);
    }
    if (err == SL_OK) {
        int failed = pthread_create(&http->listener, NULL, listener_run, http);
        err = failed == 0 ? SL_OK : sl_fail_os(why, failed, "a thread of the http server");
    }
    if (err != SL_OK) {
        http_free(&http);
        return err;
    }
    *out = http;
    return SL_OK;
}

void mc_http_stop(struct mc_http **http)
{
    struct mc_http *gone = *http;
    const uint64_t one = 1;
    if (gone == NULL) {
        return;
    }
    (void)!write(gone->wake_fd, &one, sizeof one);
    (void)pthread_join(gone->listener, NULL);
    pthread_mutex_lock(&gone->lock);
    for (size_t i = 0; i < PLACES; i++) {
        if (gone->visitors[i].fd >= 0 && gone->visitors[i].until_ns != CUT) {
            visitor_cut(&gone->visitors[i]);
        }
    }
    while (gone->running > 0) {
        (void)pthread_cond_wait(&gone->gone, &gone->lock);
    }
    pthread_mutex_unlock(&gone->lock);
    http_free(http);
}
