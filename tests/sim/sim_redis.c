/* tests/sim/sim_redis.c - the simulated server's streams: the Internet sockets that the directory's
 * library opens (the linker directs its calls here), and the bytes on them.
 *
 * Bytes arrive in order, in pieces, after a delay. Bytes that a cut held back arrive after it, even
 * if the stream was closed or its process has died: the host's system resends them, unless
 * SO_LINGER of 0 s made it drop them. Streams of one host keep the order among each other except
 * for resent bytes. A stopped server still accepts connections. A server that dies ends all
 * streams. */
#include "tests/sim/sim_redis_internal.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define FD_FIRST       (1 << 28) /* above any real one, below those of sim_tcp.c */
#define STREAMS_MAX    64u
#define RESENT_NS      (200 * SL_NS_PER_MS) /* longest delay of held bytes after a cut */
#define PARTIAL_ONE_OF 8u
#define FULL_ONE_OF    16u
#define SAVE_NS        (700 * SL_NS_PER_MS) /* age of the data that SIM_REDIS_OLD restores */
#define BUFFER_BYTES   (2u * 1024u * 1024u)

struct piece {
    struct piece *next;
    uint64_t at_ns, sent_ns;
    bool held; /* by a cut: resent after that */
    size_t length, taken;
    char bytes[];
};
struct way { /* one direction of a stream */
    struct piece *first, *last;
    uint64_t order_ns;
};
struct stream {
    bool used, closed; /* closed: by the library, or its process has ended */
    uint64_t serial;
    uint32_t node;
    uint64_t incarnation;
    int epoll; /* -1: not watched yet */
    bool wants_out, forgets;
    bool connected, refused;
    uint64_t connected_ns, reset_ns; /* when it is known here; SL_NEVER_NS: not yet */
    struct way out, in;              /* to the server, from it */
    char *buffer;                    /* the server's: the start of a command */
    size_t length;
};
struct sim_redis {
    bool up;
    uint64_t stopped_until_ns, slow_until_ns, slow_ns, saved_ns;
    uint64_t cut_until_ns[SIM_HOSTS_MAX], order_ns[SIM_HOSTS_MAX];
    enum sim_redis_comes comes;
    struct redis_store store, saved;
    struct stream streams[STREAMS_MAX];
    uint64_t serial, commands;
    void (*set)(void *context, const char *key, const char *text, uint64_t sent_ns);
    void *set_context;
};

static struct sim_redis *redis_of(const struct sim *sim)
{
    SIM_CHECK(sim->redis != NULL, "no directory's server was started");
    return sim->redis;
}

/* ---- streams ---- */

static void way_free(struct way *way)
{
    while (way->first != NULL) {
        struct piece *piece = way->first;
        way->first = piece->next;
        free(piece);
    }
    way->last = NULL;
}

static void stream_free(struct stream *stream)
{
    way_free(&stream->out);
    way_free(&stream->in);
    free(stream->buffer);
    *stream = (struct stream){0};
}

static struct sim_node *stream_node(struct sim *sim, const struct stream *stream)
{
    struct sim_node *node = &sim->nodes[stream->node];
    return node->alive && node->incarnation == stream->incarnation && !stream->closed ? node : NULL;
}

/* Wakes the process at that time. */
static void stream_wakes(struct sim *sim, const struct stream *stream, uint64_t at_ns)
{
    const struct sim_node *node = stream_node(sim, stream);
    if (node != NULL && at_ns != SL_NEVER_NS) {
        sim_event_add(sim, sim_event_for(node, EVENT_STREAM, at_ns));
    }
}

static void server_wakes(struct sim *sim, uint64_t serial, uint64_t at_ns)
{
    struct sim_event event = {.at_ns = at_ns, .kind = EVENT_REDIS, .cookie = serial};
    sim_event_add(sim, event);
}

static uint32_t stream_host(const struct sim *sim, const struct stream *stream)
{
    return sim_host_number(&sim->nodes[stream->node]);
}

static bool stream_is_cut(const struct sim *sim, const struct stream *stream)
{
    return sim->redis->cut_until_ns[stream_host(sim, stream)] > sim->now_ns;
}

static uint64_t arrival(struct sim *sim, const struct stream *stream)
{
    struct sim_redis *self = sim->redis;
    uint64_t max_ns = self->slow_until_ns > sim->now_ns ? self->slow_ns : sim->delay_ns_max;
    if (stream_is_cut(sim, stream)) {
        return self->cut_until_ns[stream_host(sim, stream)] + 1 + sim_random_below(sim, RESENT_NS);
    }
    return sim->now_ns + 1 + sim_random_below(sim, max_ns);
}

static uint64_t way_add(struct sim *sim, struct stream *stream, bool out, const char *bytes,
                        size_t length)
{
    struct way *way = out ? &stream->out : &stream->in;
    uint64_t *host_ns = &sim->redis->order_ns[stream_host(sim, stream)];
    struct piece *piece = malloc(sizeof(*piece) + length);
    SIM_CHECK(piece != NULL, "out of memory");
    bool held = stream_is_cut(sim, stream);
    uint64_t at_ns = arrival(sim, stream);
    way->order_ns = SL_MAX(at_ns, way->order_ns + 1);
    if (out && !held) {
        way->order_ns = *host_ns = SL_MAX(way->order_ns, *host_ns + 1);
    }
    *piece = (struct piece){
        .at_ns = way->order_ns, .sent_ns = sim->now_ns, .held = held, .length = length};
    memcpy(piece->bytes, bytes, length);
    if (way->last != NULL) {
        way->last->next = piece;
    } else {
        way->first = piece;
    }
    way->last = piece;
    return way->order_ns;
}

static struct piece *way_arrived(const struct sim *sim, const struct way *way)
{
    return way->first != NULL && way->first->at_ns <= sim->now_ns ? way->first : NULL;
}

static void way_pop(struct way *way)
{
    struct piece *piece = way->first;
    way->first = piece->next;
    way->last = way->first == NULL ? NULL : way->last;
    free(piece);
}

static void stream_reset(struct sim *sim, struct stream *stream)
{
    way_free(&stream->out);
    if (stream->reset_ns == SL_NEVER_NS) {
        uint64_t at_ns = arrival(sim, stream);
        stream->reset_ns = SL_MAX(at_ns, stream->in.order_ns + 1);
        stream_wakes(sim, stream, stream->reset_ns);
    }
}

/* ---- the server ---- */

/* Parses one command of the buffer. Returns its bytes; 0: it is incomplete. */
static size_t command_parse(char *at, size_t length, struct redis_command *out)
{
    char *end = memchr(at, '\n', length);
    if (end == NULL) {
        return 0;
    }
    SIM_CHECK(at[0] == '*', "the directory sent nonsense to its server");
    uint32_t count = (uint32_t)strtoul(at + 1, NULL, 10);
    SIM_CHECK(count > 0 && count <= REDIS_WORDS_MAX, "a command of %u words", count);
    size_t used = (size_t)(end + 1 - at);
    for (out->count = 0; out->count < count; out->count++) {
        end = memchr(at + used, '\n', length - used);
        if (end == NULL) {
            return 0;
        }
        SIM_CHECK(at[used] == '$', "the directory sent nonsense to its server");
        size_t bytes = strtoul(at + used + 1, NULL, 10);
        used = (size_t)(end + 1 - at);
        if (length - used < bytes + 2) {
            return 0;
        }
        SIM_CHECK(memcmp(at + used + bytes, "\r\n", 2) == 0, "a word has another length");
        out->words[out->count] = at + used;
        used += bytes + 2;
    }
    for (uint32_t i = 0; i < count; i++) { /* complete: now the words can be terminated */
        char *word = (char *)out->words[i];
        *strchr(word, '\r') = '\0';
    }
    return used;
}

static void server_save(struct sim *sim)
{
    struct sim_redis *self = sim->redis;
    if (sim->now_ns >= self->saved_ns + SAVE_NS) {
        redis_store_copy(&self->saved, &self->store);
        self->saved_ns = sim->now_ns;
    }
}

/* In pieces: a stream does not keep the borders of messages. */
static void server_answers(struct sim *sim, struct stream *stream, const struct redis_answer *all)
{
    for (size_t at = 0; at < all->length;) {
        size_t length = all->length - at;
        if (sim_random_below(sim, PARTIAL_ONE_OF) == 0) {
            length = 1 + sim_random_below(sim, length);
        }
        stream_wakes(sim, stream, way_add(sim, stream, false, all->at + at, length));
        at += length;
    }
}

static void server_runs(struct sim *sim, struct stream *stream, uint64_t sent_ns)
{
    struct sim_redis *self = sim->redis;
    struct redis_answer all = {0};
    size_t at = 0, used = 0;
    struct redis_command command = {.now_ns = sim->now_ns};
    while ((used = command_parse(stream->buffer + at, stream->length - at, &command)) > 0) {
        bool fresh = redis_command_run(&self->store, &command, &all);
        self->commands++;
        sim_mix(sim, sl_digest_of(command.words[0], strlen(command.words[0])).low);
        if (fresh && self->set != NULL) {
            self->set(self->set_context, command.words[1], command.words[2], sent_ns);
        }
        at += used;
    }
    memmove(stream->buffer, stream->buffer + at, stream->length - at);
    stream->length -= at;
    server_answers(sim, stream, &all);
    free(all.at);
}

static void server_gets(struct sim *sim, struct stream *stream)
{
    const struct piece *piece = NULL;
    while ((piece = way_arrived(sim, &stream->out)) != NULL) {
        if (piece->held && stream->forgets && stream_node(sim, stream) == NULL) {
            way_free(&stream->out); /* bytes after a gap are dropped */
            return;
        }
        if (stream->buffer == NULL) {
            stream->buffer = malloc(BUFFER_BYTES);
        }
        SIM_CHECK(stream->buffer != NULL && piece->length <= BUFFER_BYTES - stream->length,
                  "the directory says too much at once");
        memcpy(stream->buffer + stream->length, piece->bytes, piece->length);
        stream->length += piece->length;
        uint64_t sent_ns = piece->sent_ns;
        way_pop(&stream->out);
        server_runs(sim, stream, sent_ns);
    }
}

static void server_comes(struct sim *sim)
{
    struct sim_redis *self = sim->redis;
    self->up = true;
    if (self->comes == SIM_REDIS_EMPTY) {
        redis_store_free(&self->store);
    } else if (self->comes == SIM_REDIS_OLD) {
        redis_store_copy(&self->store, &self->saved);
    }
    sim_log(sim, "the directory's server is back with %u keys", self->store.count);
    redis_store_copy(&self->saved, &self->store);
}

void sim_redis_event(struct sim *sim, const struct sim_event *event)
{
    struct sim_redis *self = sim->redis;
    if (event->cookie == 0) {
        server_comes(sim);
        return;
    }
    if (self->stopped_until_ns > sim->now_ns) {
        server_wakes(sim, event->cookie, self->stopped_until_ns);
        return;
    }
    for (uint32_t i = 0; i < STREAMS_MAX; i++) {
        if (self->streams[i].used && self->streams[i].serial == event->cookie) {
            server_save(sim);
            server_gets(sim, &self->streams[i]);
        }
    }
}

/* ---- calls of tests ---- */

void sim_redis_start(struct sim *sim)
{
    SIM_CHECK(sim->redis == NULL, "there is a server already");
    sim->redis = calloc(1, sizeof(*sim->redis));
    SIM_CHECK(sim->redis != NULL, "out of memory");
    sim->redis->up = true;
}

void sim_redis_end(struct sim *sim)
{
    struct sim_redis *self = sim->redis;
    for (uint32_t i = 0; self != NULL && i < STREAMS_MAX; i++) {
        stream_free(&self->streams[i]);
    }
    if (self != NULL) {
        redis_store_free(&self->store);
        redis_store_free(&self->saved);
    }
    free(self);
    sim->redis = NULL;
}

void sim_redis_kill(struct sim *sim, uint64_t restart_ns, enum sim_redis_comes comes)
{
    struct sim_redis *self = redis_of(sim);
    if (!self->up) {
        return;
    }
    sim_log(sim, "the directory's server dies for %llu us",
            (unsigned long long)(restart_ns / SL_NS_PER_US));
    self->up = false;
    self->comes = comes;
    self->stopped_until_ns = 0;
    for (uint32_t i = 0; i < STREAMS_MAX; i++) {
        if (self->streams[i].used) {
            stream_reset(sim, &self->streams[i]);
        }
    }
    server_wakes(sim, 0, sim->now_ns + restart_ns);
    sim->disturbed_ns = SL_MAX(sim->disturbed_ns, sim->now_ns + restart_ns);
}

void sim_redis_stop(struct sim *sim, uint64_t duration_ns)
{
    struct sim_redis *self = redis_of(sim);
    sim_log(sim, "the directory's server stops for %llu us",
            (unsigned long long)(duration_ns / SL_NS_PER_US));
    self->stopped_until_ns = SL_MAX(self->stopped_until_ns, sim->now_ns + duration_ns);
    sim->disturbed_ns = SL_MAX(sim->disturbed_ns, self->stopped_until_ns);
}

void sim_redis_slow(struct sim *sim, uint64_t delay_ns_max, uint64_t duration_ns)
{
    struct sim_redis *self = redis_of(sim);
    sim_log(sim, "the directory's server is slow for %llu us",
            (unsigned long long)(duration_ns / SL_NS_PER_US));
    self->slow_ns = delay_ns_max;
    self->slow_until_ns = sim->now_ns + duration_ns;
    sim->disturbed_ns = SL_MAX(sim->disturbed_ns, self->slow_until_ns + delay_ns_max);
}

void sim_redis_cut(struct sim *sim, uint32_t host, uint64_t duration_ns)
{
    uint64_t *until_ns = &redis_of(sim)->cut_until_ns[host];
    sim_log(sim, "host %u does not reach the directory's server for %llu us", host,
            (unsigned long long)(duration_ns / SL_NS_PER_US));
    *until_ns = SL_MAX(*until_ns, sim->now_ns + duration_ns);
    sim->disturbed_ns = SL_MAX(sim->disturbed_ns, *until_ns);
}

const char *sim_redis_get(struct sim *sim, const char *key, const char *field)
{
    const struct redis_entry *entry = redis_entry_find(&redis_of(sim)->store, key, sim->now_ns);
    const struct redis_field *found = redis_field_find(entry, field == NULL ? "" : field);
    return found == NULL ? NULL : found->value;
}

void sim_redis_each(struct sim *sim,
                    void (*each)(void *context, const char *key, const char *field,
                                 const char *value),
                    void *context)
{
    const struct redis_store *store = &redis_of(sim)->store;
    for (uint32_t i = 0; i < store->count; i++) {
        const struct redis_entry *entry = &store->entries[i];
        bool counts = entry->kind == REDIS_HASH && entry->expires_ns > sim->now_ns;
        for (uint32_t k = 0; counts && k < entry->count; k++) {
            each(context, entry->key, entry->fields[k].name, entry->fields[k].value);
        }
    }
}

void sim_redis_observe(struct sim *sim,
                       void (*set)(void *context, const char *key, const char *text,
                                   uint64_t sent_ns),
                       void *context)
{
    redis_of(sim)->set = set;
    redis_of(sim)->set_context = context;
}

uint64_t sim_redis_commands(const struct sim *sim)
{
    return redis_of(sim)->commands;
}

/* ---- system calls of the library ---- */

static struct stream *stream_of(int fd)
{
    if (fd < FD_FIRST || sim_tcp_has(fd) || sim_world == NULL || sim_world->redis == NULL) {
        return NULL;
    }
    return &sim_world->redis->streams[fd - FD_FIRST];
}

static struct stream *stream_make(struct sim *sim)
{
    struct sim_redis *self = redis_of(sim);
    const struct sim_node *node = sim->turn;
    SIM_CHECK(node != NULL, "a socket, but no process runs");
    for (uint32_t i = 0; i < STREAMS_MAX; i++) {
        struct stream *stream = &self->streams[i];
        bool over = stream->used && stream_node(sim, stream) == NULL && stream->out.first == NULL;
        if (over) {
            stream_free(stream);
        }
        if (!stream->used) {
            *stream = (struct stream){.used = true,
                                      .serial = ++self->serial,
                                      .node = sim_number(node),
                                      .incarnation = node->incarnation,
                                      .epoll = -1,
                                      .connected_ns = SL_NEVER_NS,
                                      .reset_ns = SL_NEVER_NS};
            return stream;
        }
    }
    sim_fail("too many streams to the directory's server");
}

static bool stream_ready(const struct sim *sim, const struct stream *stream)
{
    uint64_t now_ns = sim->now_ns;
    if (!stream->connected) {
        return now_ns >= SL_MIN(stream->connected_ns, stream->reset_ns);
    }
    return stream->wants_out || way_arrived(sim, &stream->in) != NULL || now_ns >= stream->reset_ns;
}

#define REAL(name) __real_##name
/* The linker's names. NOLINTBEGIN(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp) */

int REAL(socket)(int family, int type, int protocol);
int __wrap_socket(int family, int type, int protocol);
int __wrap_socket(int family, int type, int protocol)
{
    if (family == AF_INET && sim_thread_running() != NULL) {
        return sim_tcp_socket();
    }
    if (family != AF_INET || sim_world == NULL || sim_world->redis == NULL) {
        return REAL(socket)(family, type, protocol);
    }
    return FD_FIRST + (int)(stream_make(sim_world) - sim_world->redis->streams);
}

int REAL(connect)(int fd, const struct sockaddr *address, socklen_t bytes);
int __wrap_connect(int fd, const struct sockaddr *address, socklen_t bytes);
int __wrap_connect(int fd, const struct sockaddr *address, socklen_t bytes)
{
    struct stream *stream = stream_of(fd);
    if (stream == NULL) {
        return sim_tcp_has(fd) ? sim_tcp_connect(fd, address, bytes)
                               : REAL(connect)(fd, address, bytes);
    }
    struct sim *sim = sim_world;
    stream->refused = !sim->redis->up;
    if (!stream_is_cut(sim, stream)) { /* otherwise no answer ever arrives */
        stream->connected_ns = arrival(sim, stream);
        stream->in.order_ns = stream->out.order_ns = stream->connected_ns;
        stream_wakes(sim, stream, stream->connected_ns);
    }
    errno = EINPROGRESS;
    return -1;
}

int REAL(getsockopt)(int fd, int level, int name, void *value, socklen_t *bytes);
int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *bytes);
int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *bytes)
{
    struct stream *stream = stream_of(fd);
    if (stream == NULL) {
        return sim_tcp_has(fd) ? sim_tcp_error(fd, value)
                               : REAL(getsockopt)(fd, level, name, value, bytes);
    }
    SIM_CHECK(level == SOL_SOCKET && name == SO_ERROR, "an option that streams do not have");
    int os_code = stream->refused                         ? ECONNREFUSED
                  : sim_world->now_ns >= stream->reset_ns ? ECONNRESET
                                                          : 0;
    memcpy(value, &os_code, sizeof(os_code));
    stream->connected = os_code == 0;
    return 0;
}

int REAL(setsockopt)(int fd, int level, int name, const void *value, socklen_t bytes);
int __wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t bytes);
int __wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t bytes)
{
    struct stream *stream = stream_of(fd);
    if (stream == NULL) {
        return sim_tcp_has(fd) ? 0 : REAL(setsockopt)(fd, level, name, value, bytes);
    }
    if (level == SOL_SOCKET && name == SO_LINGER) {
        struct linger linger;
        memcpy(&linger, value, sizeof(linger));
        stream->forgets = linger.l_onoff != 0 && linger.l_linger == 0;
    }
    return 0;
}

int REAL(epoll_ctl)(int epoll, int op, int fd, struct epoll_event *event);
int __wrap_epoll_ctl(int epoll, int op, int fd, struct epoll_event *event);
int __wrap_epoll_ctl(int epoll, int op, int fd, struct epoll_event *event)
{
    struct stream *stream = stream_of(fd);
    if (stream == NULL) {
        return REAL(epoll_ctl)(epoll, op, fd, event);
    }
    stream->epoll = epoll;
    stream->wants_out = (event->events & EPOLLOUT) != 0;
    return 0;
}

int REAL(epoll_wait)(int epoll, struct epoll_event *events, int max, int timeout_ms);
int __wrap_epoll_wait(int epoll, struct epoll_event *events, int max, int timeout_ms);
int __wrap_epoll_wait(int epoll, struct epoll_event *events, int max, int timeout_ms)
{
    struct sim *sim = sim_world;
    for (uint32_t i = 0; sim != NULL && sim->redis != NULL && i < STREAMS_MAX; i++) {
        struct stream *stream = &sim->redis->streams[i];
        if (stream->used && stream->epoll == epoll && stream_node(sim, stream) != NULL) {
            return stream_ready(sim, stream) ? 1 : 0;
        }
    }
    return REAL(epoll_wait)(epoll, events, max, timeout_ms);
}

ssize_t REAL(send)(int fd, const void *bytes, size_t length, int flags);
ssize_t __wrap_send(int fd, const void *bytes, size_t length, int flags);
ssize_t __wrap_send(int fd, const void *bytes, size_t length, int flags)
{
    struct stream *stream = stream_of(fd);
    struct sim *sim = sim_world;
    if (stream == NULL) {
        return sim_tcp_has(fd) ? sim_tcp_send(fd, bytes, length)
                               : REAL(send)(fd, bytes, length, flags);
    }
    if (sim->now_ns >= stream->reset_ns) {
        errno = EPIPE;
        return -1;
    }
    if (sim_random_below(sim, FULL_ONE_OF) == 0) {
        stream_wakes(sim, stream, sim->now_ns + 1 + sim_random_below(sim, sim->delay_ns_max));
        errno = EAGAIN;
        return -1;
    }
    if (sim_random_below(sim, PARTIAL_ONE_OF) == 0) {
        length = 1 + sim_random_below(sim, length);
    }
    if (stream->reset_ns == SL_NEVER_NS) { /* else it has ended, which is not known yet */
        server_wakes(sim, stream->serial, way_add(sim, stream, true, bytes, length));
    }
    return (ssize_t)length;
}

ssize_t REAL(recv)(int fd, void *to, size_t length, int flags);
ssize_t __wrap_recv(int fd, void *to, size_t length, int flags);
ssize_t __wrap_recv(int fd, void *to, size_t length, int flags)
{
    struct stream *stream = stream_of(fd);
    struct sim *sim = sim_world;
    if (stream == NULL) {
        return sim_tcp_has(fd) ? sim_tcp_recv(fd, to, length) : REAL(recv)(fd, to, length, flags);
    }
    struct piece *piece = way_arrived(sim, &stream->in);
    if (piece == NULL) {
        errno = sim->now_ns >= stream->reset_ns ? ECONNRESET : EAGAIN;
        return -1;
    }
    size_t got = SL_MIN(length, piece->length - piece->taken);
    memcpy(to, piece->bytes + piece->taken, got);
    piece->taken += got;
    if (piece->taken == piece->length) {
        way_pop(&stream->in);
    }
    return (ssize_t)got;
}

int REAL(close)(int fd);
int __wrap_close(int fd);
int __wrap_close(int fd)
{
    struct stream *stream = stream_of(fd);
    if (stream == NULL) {
        return sim_tcp_has(fd) ? sim_tcp_close(fd) : REAL(close)(fd);
    }
    stream->closed = true; /* bytes it sent still arrive */
    return 0;
}
/* NOLINTEND(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp) */
