/* client/mooncake/daemons/http.c - see http.h. */
#include "client/mooncake/daemons/http.h"
#include "runtime/sl_array.h"
#include "runtime/sl_clock.h"
#include "runtime/sl_strangers.h"

#include <inttypes.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#define IDLE_S           10u /* without a byte either way */
#define HEAD_BYTES_MAX   (32 * SL_KIB)
#define STREAM_BLOCK     (64 * SL_KIB)
#define STACK_BYTES      (512 * SL_KIB)
#define REQUEST_NS       (60 * SL_NS_PER_S) /* until all of it is here */
#define ANSWER_S         300u /* until an answer is made, and until all of it is taken */
#define ANSWER_NS        (ANSWER_S * SL_NS_PER_S)
#define FROM_ONE_ADDRESS (MC_HTTP_CONNECTIONS_MAX / 2)
#define CUT              UINT64_MAX /* in until_ns: shut down already */
/* Connections are accepted over the bound: whom they push out takes a moment to end. */
#define PLACES (MC_HTTP_CONNECTIONS_MAX + 64u)

/* A connection, from its accept to its close. */
struct visitor {
    struct mc_http *http;
    int fd; /* -1: free */
    uint64_t until_ns;
};
struct mc_http {
    struct MHD_Daemon *daemon;
    const struct mc_route *routes;
    uint32_t route_count;
    struct mc_http_guard guard;
    void *context;
    pthread_mutex_t lock; /* of the visitors */
    struct visitor visitors[PLACES];
    uint32_t here;                  /* visitors that were not cut */
    struct sl_strangers *strangers; /* visitors of whose request not all is here */
    struct sl_strangers *served;    /* and those whose answer is made and sent */
};
struct mc_request {
    struct MHD_Connection *connection;
    enum mc_method method;
    bool too_large;
    char *body; /* owned; NULL: empty */
    size_t body_bytes, body_room;
};

enum mc_method mc_request_method(const struct mc_request *request)
{
    return request->method;
}

const char *mc_request_body(const struct mc_request *request, size_t *length_bytes)
{
    *length_bytes = request->body_bytes;
    return request->body != NULL ? request->body : "";
}

const char *mc_request_raw(const struct mc_request *request, const char *name)
{
    return MHD_lookup_connection_value(request->connection, MHD_GET_ARGUMENT_KIND, name);
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
    answer->status = length >= 0 ? status : MHD_HTTP_INTERNAL_SERVER_ERROR;
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
    struct sockaddr_storage from = {.ss_family = AF_UNSPEC};
    socklen_t from_bytes = sizeof from;
    sl_strangers_remove(http->strangers, place);
    sl_strangers_remove(http->served, place);
    if (to == NULL || visitor->until_ns == CUT) {
        return;
    }
    if (getpeername(visitor->fd, (struct sockaddr *)&from, &from_bytes) != 0) {
        from.ss_family = AF_UNSPEC; /* gone already: its thread will see that */
    }
    uint32_t goes = sl_strangers_add(to, place, &from);
    if (goes != SL_STRANGERS_NONE) {
        visitor_cut(&http->visitors[goes]);
    }
}

static struct visitor *visitor_come(struct mc_http *http, int fd)
{
    for (size_t i = 0; i < PLACES; i++) {
        struct visitor *visitor = &http->visitors[i];
        if (visitor->fd < 0) {
            visitor->fd = fd;
            visitor->until_ns = sl_clock_monotonic_ns() + REQUEST_NS;
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

static void visitor_note(void *context, struct MHD_Connection *connection, void **own,
                         enum MHD_ConnectionNotificationCode code)
{
    struct mc_http *http = context;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct visitor *visitor = *own;
    pthread_mutex_lock(&http->lock);
    if (code != MHD_CONNECTION_NOTIFY_CLOSED) {
        *own = info == NULL ? NULL : visitor_come(http, info->connect_fd);
    } else if (visitor != NULL) {
        visitor_move(visitor, NULL);
        http->here -= visitor->until_ns != CUT;
        visitor->fd = -1;
        *own = NULL;
    }
    pthread_mutex_unlock(&http->lock);
}

static struct visitor *visitor_of(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info == NULL ? NULL : info->socket_context;
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
    if (visitor == NULL) {
        return;
    }
    pthread_mutex_lock(&visitor->http->lock);
    if (visitor->until_ns != CUT) {
        visitor->until_ns = sl_clock_monotonic_ns() + ns;
        if (among != NULL) {
            visitor_move(visitor, among);
        }
    }
    pthread_mutex_unlock(&visitor->http->lock);
}

/* ---- answers ---- */

static ssize_t stream_more(void *state, uint64_t position, char *out, size_t room)
{
    const struct mc_stream *stream = state;
    (void)position;
    ssize_t got = stream->more(stream->state, out, room);
    if (got == -1) {
        return MHD_CONTENT_READER_END_OF_STREAM;
    }
    return got < 0 ? MHD_CONTENT_READER_END_WITH_ERROR : got;
}

static void stream_end(void *state)
{
    struct mc_stream *stream = state;
    stream->end(stream->state);
    free(stream);
}

/* Takes the answer. NULL: no memory. */
static struct MHD_Response *response_make(struct mc_answer *answer)
{
    struct MHD_Response *response = NULL;
    if (answer->stream.more != NULL) {
        struct mc_stream *stream = malloc(sizeof *stream);
        if (stream != NULL) {
            *stream = answer->stream;
            response = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BLOCK,
                                                         stream_more, stream, stream_end);
        }
        if (response == NULL) {
            free(stream);
            answer->stream.end(answer->stream.state);
        }
        return response;
    }
    response =
        MHD_create_response_from_buffer(answer->length_bytes, answer->text, MHD_RESPMEM_MUST_FREE);
    if (response == NULL) {
        free(answer->text);
    }
    return response;
}

static enum MHD_Result answer_send(struct MHD_Connection *connection, struct mc_answer *answer,
                                   const char *allow)
{
    struct MHD_Response *response = response_make(answer);
    if (response == NULL) {
        return MHD_NO;
    }
    enum MHD_Result queued =
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE,
                                answer->type != NULL ? answer->type : "text/plain; charset=utf-8");
    if (queued == MHD_YES && allow != NULL) {
        queued = MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, allow);
    }
    if (queued == MHD_YES) {
        visitor_time(visitor_of(connection), ANSWER_NS, NULL);
        queued = MHD_queue_response(connection, answer->status != 0 ? answer->status : MHD_HTTP_OK,
                                    response);
    }
    MHD_destroy_response(response);
    return queued;
}

/* ---- requests ---- */

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

/* A request that is here whole may take its time: nothing comes and goes while its handler runs. */
static void time_give(struct mc_http *http, struct MHD_Connection *connection)
{
    (void)MHD_set_connection_option(connection, MHD_CONNECTION_OPTION_TIMEOUT, ANSWER_S);
    visitor_time(visitor_of(connection), ANSWER_NS, http->served);
}

/* Without a length there is no body: who forgot it would put an empty one. */
static bool body_announced(struct MHD_Connection *connection)
{
    return MHD_lookup_connection_value(connection, MHD_HEADER_KIND,
                                       MHD_HTTP_HEADER_CONTENT_LENGTH) != NULL ||
           MHD_lookup_connection_value(connection, MHD_HEADER_KIND,
                                       MHD_HTTP_HEADER_TRANSFER_ENCODING) != NULL;
}

/* ---- who may ---- */

static const char *header_of(const struct mc_request *request, const char *name)
{
    return MHD_lookup_connection_value(request->connection, MHD_HEADER_KIND, name);
}

/* The address of this side of the connection: one that came by the loopback is of this host. */
static bool is_of_this_host(const struct mc_request *request)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(request->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    union {
        struct sockaddr any;
        struct sockaddr_in in;
        struct sockaddr_in6 in6;
    } at = {.any.sa_family = AF_UNSPEC};
    socklen_t at_bytes = sizeof at;
    if (info == NULL || getsockname(info->connect_fd, &at.any, &at_bytes) != 0) {
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
    const char *shown = header_of(request, MHD_HTTP_HEADER_AUTHORIZATION);
    if (guard->token == NULL || shown == NULL ||
        strncasecmp(shown, scheme, sizeof scheme - 1) != 0) {
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
    const char *origin = header_of(request, MHD_HTTP_HEADER_ORIGIN);
    if (origin != NULL && !origin_is_allowed(guard, origin)) {
        mc_answer_text(answer, MHD_HTTP_FORBIDDEN, "pages of %.200s are not allowed here\n",
                       origin);
        return false;
    }
    bool open = guard->token == NULL && guard->open_without_token;
    if ((route->guarded & request->method) == 0 || open || is_of_this_host(request) ||
        token_is_shown(guard, request)) {
        return true;
    }
    if (guard->token != NULL) {
        mc_answer_text(answer, MHD_HTTP_UNAUTHORIZED,
                       "%s wants the header Authorization: Bearer TOKEN here\n", route->path);
    } else {
        mc_answer_text(
            answer, MHD_HTTP_FORBIDDEN,
            "%s is for this host alone: ask by the loopback, or start the server with " MC_ADMIN_TOKEN
            " or " MC_ADMIN_TOKEN "_FILE\n",
            route->path);
    }
    return false;
}

static enum MHD_Result request_answer(struct mc_http *http, struct mc_request *request,
                                      const char *path, const char *word)
{
    struct mc_answer answer = {0};
    char allow[64] = "";
    enum mc_method method = MC_GET;
    bool known = method_of(word, &method);
    const struct mc_route *route = route_find(http, path);
    request->method = method;
    if (route == NULL) {
        mc_answer_text(&answer, MHD_HTTP_NOT_FOUND, "no such path; GET / lists them\n");
    } else if (!known || (route->methods & method) == 0) {
        allowed_text(route->methods, allow);
        mc_answer_text(&answer, MHD_HTTP_METHOD_NOT_ALLOWED, "%s takes %s\n", route->path, allow);
    } else if (method == MC_PUT && !body_announced(request->connection)) {
        mc_answer_text(&answer, MHD_HTTP_LENGTH_REQUIRED, "a body needs a Content-Length\n");
    } else if (request->too_large) {
        mc_answer_text(&answer, MHD_HTTP_CONTENT_TOO_LARGE,
                       "a body has at most %" PRIu64 " bytes\n", MC_HTTP_BODY_BYTES_MAX);
    } else if (is_allowed(http, request, route, &answer)) {
        time_give(http, request->connection);
        route->fn(http->context, request, &answer);
    }
    return answer_send(request->connection, &answer, allow[0] != '\0' ? allow : NULL);
}

static void body_take(struct mc_request *request, const char *bytes, size_t length)
{
    if (request->too_large || length > MC_HTTP_BODY_BYTES_MAX - request->body_bytes) {
        request->too_large = true;
        return;
    }
    if (!SL_ARRAY_ROOM(request->body, request->body_room, request->body_bytes + length)) {
        request->too_large = true;
        return;
    }
    memcpy(request->body + request->body_bytes, bytes, length);
    request->body_bytes += length;
}

/* Called when the head is here, for each part of the body, and at its end. */
static enum MHD_Result request_step(void *context, struct MHD_Connection *connection,
                                    const char *path, const char *method, const char *version,
                                    const char *bytes, size_t *length, void **own)
{
    struct mc_http *http = context;
    (void)version;
    if (*own == NULL) {
        struct mc_request *request = calloc(1, sizeof *request);
        if (request == NULL) {
            return MHD_NO;
        }
        request->connection = connection;
        *own = request;
        return MHD_YES;
    }
    struct mc_request *request = *own;
    if (*length > 0) {
        body_take(request, bytes, *length);
        *length = 0;
        return MHD_YES;
    }
    return request_answer(http, request, path, method);
}

static void request_end(void *context, struct MHD_Connection *connection, void **own,
                        enum MHD_RequestTerminationCode code)
{
    struct mc_request *request = *own;
    struct mc_http *http = context;
    (void)code;
    if (request != NULL) {
        free(request->body);
        free(request);
        *own = NULL;
    }
    (void)MHD_set_connection_option(connection, MHD_CONNECTION_OPTION_TIMEOUT, IDLE_S);
    visitor_time(visitor_of(connection), REQUEST_NS, http->strangers);
}

/* Escapes stay: handlers decode arguments themselves, strictly. A path with escapes is none of
 * ours. */
static size_t unescape_nothing(void *context, struct MHD_Connection *connection, char *text)
{
    (void)context;
    (void)connection;
    return strlen(text);
}

static void log_nothing(void *context, const char *format, va_list arguments)
{
    (void)context; /* it says what peers do wrong, at their pace */
    (void)format;
    (void)arguments;
}

static void http_free(struct mc_http **http)
{
    sl_strangers_destroy(&(*http)->strangers);
    sl_strangers_destroy(&(*http)->served);
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
    http->routes = routes;
    http->route_count = route_count;
    http->guard = *guard;
    http->context = context;
    pthread_mutex_init(&http->lock, NULL);
    for (size_t i = 0; i < PLACES; i++) {
        http->visitors[i] = (struct visitor){.http = http, .fd = -1};
    }
    sl_err err = sl_strangers_create(PLACES, FROM_ONE_ADDRESS, &http->strangers, why);
    if (err == SL_OK) {
        err = sl_strangers_create(PLACES, FROM_ONE_ADDRESS, &http->served, why);
    }
    if (err != SL_OK) {
        (void)close(fd);
        http_free(&http);
        return err;
    }
    http->daemon = MHD_start_daemon(
        MHD_USE_THREAD_PER_CONNECTION | MHD_USE_POLL_INTERNAL_THREAD | MHD_USE_ERROR_LOG, 0, NULL,
        NULL, request_step, http, MHD_OPTION_EXTERNAL_LOGGER, log_nothing, NULL,
        MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT, (unsigned)PLACES,
        MHD_OPTION_CONNECTION_TIMEOUT, IDLE_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)HEAD_BYTES_MAX, MHD_OPTION_THREAD_STACK_SIZE, (size_t)STACK_BYTES,
        MHD_OPTION_NOTIFY_CONNECTION, visitor_note, http, MHD_OPTION_NOTIFY_COMPLETED, request_end,
        http, MHD_OPTION_UNESCAPE_CALLBACK, unescape_nothing, NULL, MHD_OPTION_STRICT_FOR_CLIENT, 1,
        MHD_OPTION_END);
    if (http->daemon == NULL) {
        (void)close(fd);
        http_free(&http);
        return sl_fail(why, SL_ERR_OS, "the http server did not start");
    }
    *out = http;
    return SL_OK;
}

void mc_http_stop(struct mc_http **http)
{
    if (*http == NULL) {
        return;
    }
    MHD_stop_daemon((*http)->daemon); /* closes the listening descriptor too */
    http_free(http);
}
