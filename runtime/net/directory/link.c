/* runtime/net/directory/link.c - one connection to a Redis server: bounded in both directions, with
 * a deadline for each command, and reconnected with growing, jittered back-off.
 *
 * It counts as up only after a greeting was answered: the kernel of a stopped server still accepts
 * connections. */
#include "runtime/base/sl_backoff.h"
#include "runtime/net/directory/internal.h"

#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define WHAT_GREETING UINT32_MAX

/* ---- the parser's output, in fixed memory ---- */

/* Gives the result of the parser's callbacks: the parser only compares it with NULL. */
static void *parsed(struct directory_link *link)
{
    return link;
}

static void reply_begin(struct link_reply *reply, int type)
{
    reply->type = type;
    reply->integer = 0;
    reply->count = 0;
    reply->odd = false;
    reply->text_bytes = 0;
}

/* Stores the reply itself, or an item of its array; what does not fit is left out. */
static void reply_item(struct directory_link *link, const redisReadTask *task, const char *text,
                       size_t length)
{
    struct link_reply *reply = link->reply;
    if (task->parent != NULL && task->parent->parent != NULL) {
        reply->odd = true;
        return;
    }
    if (reply->count == LINK_ITEMS_MAX || length > LINK_TEXT_BYTES - reply->text_bytes) {
        return;
    }
    struct link_item *item = &reply->items[reply->count++];
    char *to = reply->text + reply->text_bytes;
    *item = (struct link_item){.text = to, .length = (uint32_t)length, .nil = text == NULL};
    if (text != NULL && length > 0) {
        memcpy(to, text, length);
        reply->text_bytes += (uint32_t)length;
    }
}

static void *parsed_text(const redisReadTask *task, char *text, size_t length)
{
    struct directory_link *link = task->privdata;
    if (task->parent == NULL) {
        reply_begin(link->reply, task->type);
    } else if (task->type != REDIS_REPLY_STRING) {
        link->reply->odd = true;
    }
    reply_item(link, task, text, length);
    return parsed(link);
}

static void *parsed_array(const redisReadTask *task, int elements)
{
    struct directory_link *link = task->privdata;
    if (elements > LINK_ELEMENTS_MAX) {
        return NULL; /* for the parser this is lack of memory, and it gives up */
    }
    if (task->parent == NULL) {
        reply_begin(link->reply, REDIS_REPLY_ARRAY);
    } else {
        link->reply->odd = true;
    }
    return parsed(link);
}

static void *parsed_integer(const redisReadTask *task, long long value)
{
    struct directory_link *link = task->privdata;
    if (task->parent == NULL) {
        reply_begin(link->reply, REDIS_REPLY_INTEGER);
        link->reply->integer = value;
    } else {
        link->reply->odd = true;
    }
    return parsed(link);
}

static void *parsed_nil(const redisReadTask *task)
{
    struct directory_link *link = task->privdata;
    if (task->parent == NULL) {
        reply_begin(link->reply, REDIS_REPLY_NIL);
    }
    reply_item(link, task, NULL, 0);
    return parsed(link);
}

static void parsed_free(void *object)
{
    (void)object;
}

/* ---- life ---- */

sl_err link_init(struct directory_link *link, struct sl_error *why)
{
    link->fd = -1;
    link->functions = (redisReplyObjectFunctions){.createString = parsed_text,
                                                  .createArray = parsed_array,
                                                  .createInteger = parsed_integer,
                                                  .createNil = parsed_nil,
                                                  .freeObject = parsed_free};
    link->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (link->epoll < 0) {
        return sl_fail_os(why, errno, "epoll of the directory");
    }
    link->reply = malloc(sizeof(*link->reply));
    link->out = malloc(LINK_OUT_BYTES);
    link->waiting = malloc(LINK_WAITING_MAX * sizeof(*link->waiting));
    if (link->reply == NULL || link->out == NULL || link->waiting == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "buffers of the directory's connection");
    }
    return SL_OK;
}

/* Discards unsent and unacknowledged data when the connection is closed, also if this process dies.
 * The kernel would send it again after a network failure, and an old withdrawal of a key could then
 * arrive after a newer publication. kept: does not discard. */
static void link_linger(const struct directory_link *link, bool kept)
{
    const struct linger linger = {.l_onoff = kept ? 0 : 1};
    (void)setsockopt(link->fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
}

static void link_close(struct directory_link *link)
{
    if (link->fd >= 0) {
        (void)close(link->fd); /* also removes it from the epoll */
    }
    if (link->reader != NULL) {
        redisReaderFree(link->reader);
    }
    link->fd = -1;
    link->reader = NULL;
    link->out_at = link->out_end = 0;
    link->waiting_head = link->waiting_count = 0;
    link->writing = link->more = false;
}

void link_fini(struct directory_link *link)
{
    if (link->phase == LINK_UP) {
        link_linger(link, true); /* an orderly end */
    }
    link_close(link);
    if (link->epoll >= 0) {
        (void)close(link->epoll);
    }
    link->epoll = -1;
    free(link->reply);
    free(link->out);
    free(link->waiting);
    link->reply = NULL;
    link->out = NULL;
    link->waiting = NULL;
}

void link_fail(struct directory_link *link, sl_err code, const char *format, ...)
{
    struct sl_error why = {0};
    char text[160];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    if (link->phase == LINK_DOWN) {
        return;
    }
    (void)sl_fail(&why, code, "%s: %s", link->place.about, text);
    bool was_up = link->phase == LINK_UP;
    link->phase = LINK_DOWN;
    link_close(link);
    link->lost_count += was_up;
    /* xorshift64*: many nodes lose the server at once, and must not all reconnect at once. */
    link->random ^= link->random >> 12;
    link->random ^= link->random << 25;
    link->random ^= link->random >> 27;
    link->retry_ns = link->now_ns + sl_backoff_ns(link->backoff_min_ns, link->backoff_max_ns,
                                                  link->failures, link->random);
    link->failures += link->failures < UINT32_MAX;
    link->lost(link->context, was_up, &why);
}

/* ---- out ---- */

bool link_has_room(const struct directory_link *link, uint32_t commands, uint64_t bytes)
{
    return bytes <= LINK_OUT_BYTES - (link->out_end - link->out_at) &&
           commands <= LINK_WAITING_MAX - link->waiting_count;
}

static void out_append(struct directory_link *link, const char *bytes, size_t length)
{
    memcpy(link->out + link->out_end, bytes, length);
    link->out_end += (uint32_t)length;
}

#define COMMAND_HEAD_BYTES 16u /* "$1234567890\r\n" and more */

void link_send(struct directory_link *link, const char *const *words, uint32_t what, uint32_t arg)
{
    char head[COMMAND_HEAD_BYTES];
    uint64_t bytes = COMMAND_HEAD_BYTES;
    uint32_t count = 0;
    for (; words[count] != NULL; count++) {
        bytes += strlen(words[count]) + COMMAND_HEAD_BYTES + 2;
    }
    SL_ASSERT(link_has_room(link, 1, bytes));
    if (bytes > LINK_OUT_BYTES - link->out_end) {
        memmove(link->out, link->out + link->out_at, link->out_end - link->out_at);
        link->out_end -= link->out_at;
        link->out_at = 0;
    }
    int head_bytes = snprintf(head, sizeof(head), "*%u\r\n", count);
    out_append(link, head, (size_t)head_bytes);
    for (uint32_t i = 0; i < count; i++) {
        size_t length = strlen(words[i]);
        head_bytes = snprintf(head, sizeof(head), "$%zu\r\n", length);
        out_append(link, head, (size_t)head_bytes);
        out_append(link, words[i], length);
        out_append(link, "\r\n", 2);
    }
    uint32_t at = (link->waiting_head + link->waiting_count) % LINK_WAITING_MAX;
    link->waiting[at] = (struct link_waiting){
        .deadline_ns = link->now_ns + link->timeout_ns, .what = what, .arg = arg};
    link->waiting_count++;
}

static void link_watch(struct directory_link *link, bool writing, bool fresh)
{
    struct epoll_event event = {.events = EPOLLIN | (writing ? (uint32_t)EPOLLOUT : 0)};
    if (!fresh && writing == link->writing) {
        return;
    }
    link->writing = writing;
    if (epoll_ctl(link->epoll, fresh ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, link->fd, &event) != 0) {
        link_fail(link, SL_ERR_OS, "epoll: %s", strerror(errno));
    }
}

void link_flush(struct directory_link *link)
{
    if (link->phase < LINK_GREETING) {
        return;
    }
    while (link->out_at < link->out_end) {
        ssize_t sent = send(link->fd, link->out + link->out_at, link->out_end - link->out_at,
                            MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno == EINTR) {
            continue;
        }
        if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            break;
        }
        if (sent < 0) {
            link_fail(link, SL_ERR_UNREACHABLE, "send: %s", strerror(errno));
            return;
        }
        link->out_at += (uint32_t)sent;
    }
    if (link->out_at == link->out_end) {
        link->out_at = link->out_end = 0;
    }
    link_watch(link, link->out_end > 0, false);
}

/* ---- in ---- */

/* Handles the reply of the oldest waiting command. */
static void link_reply(struct directory_link *link)
{
    if (link->waiting_count == 0) {
        link->bad_replies++;
        link_fail(link, SL_ERR_PROTOCOL, "a reply without a command");
        return;
    }
    struct link_waiting waiting = link->waiting[link->waiting_head];
    const struct link_reply *reply = link->reply;
    link->waiting_head = (link->waiting_head + 1) % LINK_WAITING_MAX;
    link->waiting_count--;
    if (waiting.what != WHAT_GREETING) {
        if (!link->replied(link->context, waiting.what, waiting.arg, reply)) {
            link->bad_replies++;
            link_fail(link, SL_ERR_PROTOCOL, "a reply of the wrong type for its command");
        }
        return;
    }
    if (reply->type != REDIS_REPLY_STATUS) {
        bool error = reply->type == REDIS_REPLY_ERROR && reply->count == 1;
        link_fail(link, SL_ERR_PERMISSION, "greeting refused: %.*s",
                  error ? (int)SL_MIN(reply->items[0].length, 80u) : 0,
                  error ? reply->items[0].text : "");
        return;
    }
    link->greetings--;
    if (link->greetings == 0) {
        link->phase = LINK_UP;
        link->failures = 0;
        link->up(link->context);
    }
}

/* Handles all complete replies in the buffer. */
static void link_parse(struct directory_link *link)
{
    while (link->phase >= LINK_GREETING) {
        void *whole = NULL;
        if (redisReaderGetReply(link->reader, &whole) != REDIS_OK) {
            link->bad_replies++;
            link_fail(link, SL_ERR_PROTOCOL, "%s", link->reader->errstr);
            return;
        }
        if (whole == NULL) {
            break;
        }
        link_reply(link);
    }
    if (link->phase >= LINK_GREETING && link->reader->len - link->reader->pos > LINK_UNREAD_MAX) {
        link->bad_replies++;
        link_fail(link, SL_ERR_PROTOCOL, "a text of more than %u bytes", LINK_UNREAD_MAX);
    }
}

static void link_read(struct directory_link *link)
{
    char bytes[LINK_READ_BYTES];
    link->more = true;
    for (uint32_t i = 0; i < LINK_TURN_READS && link->phase >= LINK_GREETING; i++) {
        ssize_t got = recv(link->fd, bytes, sizeof(bytes), MSG_DONTWAIT);
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
            link->more = errno == EINTR;
            return;
        }
        if (got <= 0) {
            link_fail(link, SL_ERR_UNREACHABLE, "%s",
                      got == 0 ? "the server closed the connection" : strerror(errno));
            return;
        }
        if (redisReaderFeed(link->reader, bytes, (size_t)got) != REDIS_OK) {
            link_fail(link, SL_ERR_NO_MEMORY, "no memory for received bytes");
            return;
        }
        link_parse(link);
    }
}

/* ---- connecting ---- */

static void link_greet(struct directory_link *link)
{
    const struct directory_place *place = &link->place;
    char database[16];
    link->phase = LINK_GREETING;
    link->greetings = 1;
    if (place->password[0] != '\0') {
        link_send(link,
                  place->user[0] != '\0' ? LINK_WORDS("AUTH", place->user, place->password)
                                         : LINK_WORDS("AUTH", place->password),
                  WHAT_GREETING, 0);
        link->greetings++;
    }
    if (place->database != 0) {
        (void)snprintf(database, sizeof(database), "%u", place->database);
        link_send(link, LINK_WORDS("SELECT", database), WHAT_GREETING, 0);
        link->greetings++;
    }
    link_send(link, LINK_WORDS("PING"), WHAT_GREETING, 0);
    link_flush(link);
}

static void link_connected(struct directory_link *link)
{
    int os_code = 0;
    socklen_t length = sizeof(os_code);
    if (getsockopt(link->fd, SOL_SOCKET, SO_ERROR, &os_code, &length) != 0) {
        os_code = errno;
    }
    if (os_code != 0) {
        link_fail(link, SL_ERR_UNREACHABLE, "connect: %s", strerror(os_code));
        return;
    }
    link_greet(link);
}

static void link_connect(struct directory_link *link)
{
    const struct sockaddr *address = (const struct sockaddr *)&link->place.address;
    const int on = 1;
    link->phase = LINK_CONNECTING;
    link->phase_deadline_ns = link->now_ns + link->timeout_ns;
    link->fd = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (link->fd < 0) {
        link_fail(link, SL_ERR_OS, "socket: %s", strerror(errno));
        return;
    }
    link->reader = redisReaderCreateWithFunctions(&link->functions);
    if (link->reader == NULL) {
        link_fail(link, SL_ERR_NO_MEMORY, "no memory for the parser");
        return;
    }
    link->reader->privdata = link;
    if (address->sa_family != AF_UNIX) {
        (void)setsockopt(link->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        (void)setsockopt(link->fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
        link_linger(link, false);
    }
    int result = connect(link->fd, address, link->place.address_bytes);
    if (result != 0 && errno != EINPROGRESS) {
        link_fail(link, SL_ERR_UNREACHABLE, "connect: %s", strerror(errno));
        return;
    }
    link_watch(link, result != 0, true);
    if (result == 0 && link->phase == LINK_CONNECTING) {
        link_greet(link);
    }
}

/* ---- steps ---- */

static void link_deadlines(struct directory_link *link)
{
    bool late = link->phase == LINK_CONNECTING
                    ? link->now_ns >= link->phase_deadline_ns
                    : link->phase >= LINK_GREETING && link->waiting_count > 0 &&
                          link->now_ns >= link->waiting[link->waiting_head].deadline_ns;
    if (late) {
        link_fail(link, SL_ERR_TIMEOUT, "no answer within %" PRIu64 " ms",
                  link->timeout_ns / SL_NS_PER_MS);
    }
}

void link_step(struct directory_link *link, uint64_t now_ns)
{
    struct epoll_event event = {0};
    link->now_ns = now_ns;
    if (link->phase == LINK_DOWN) {
        if (now_ns >= link->retry_ns) {
            link_connect(link);
        }
        return;
    }
    bool ready = epoll_wait(link->epoll, &event, 1, 0) == 1;
    if (link->phase == LINK_CONNECTING) {
        if (ready) {
            link_connected(link);
        }
    } else if (ready || link->more) {
        link_read(link); /* read first: a reply that arrived in time counts */
        link_flush(link);
    }
    if (!link->more) { /* else an awaited reply may be in the socket */
        link_deadlines(link);
    }
}

uint64_t link_wake_at(const struct directory_link *link)
{
    switch (link->phase) {
    case LINK_DOWN:
        return link->retry_ns;
    case LINK_CONNECTING:
        return link->phase_deadline_ns;
    default:
        if (link->more) {
            return 0;
        }
        return link->waiting_count > 0 ? link->waiting[link->waiting_head].deadline_ns
                                       : SL_NEVER_NS;
    }
}
