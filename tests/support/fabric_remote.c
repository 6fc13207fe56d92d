/* tests/support/fabric_remote.c - see fabric_remote.h. */
#include "tests/support/fabric_remote.h"

#include <check.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum said {
    SAID_ADDRESS,
    SAID_READY,
    SAID_GRANT,
    SAID_END,
    SAID_ENDED,
    SAID_FILL,
    SAID_SET,
    SAID_IS_SET,
    SAID_IS_PATTERN,
    SAID_STATS,
    SAID_CPU,
    SAID_MOVE,
    SAID_DONE,
    SAID_JOB,
    SAID_ANSWER,
};
struct message {
    uint32_t said, handle, blob_bytes;
    sl_err code;
    uint64_t offset, length, value;
    union {
        unsigned char blob[SL_FABRIC_BLOB_MAX];
        struct sl_fabric_stats stats;
        struct sl_error why;
        struct end_done done;
    };
};
#define HEAD_BYTES offsetof(struct message, blob)

static void say(int control, const struct message *message)
{
    ssize_t sent = send(control, message, HEAD_BYTES + message->blob_bytes, MSG_NOSIGNAL);
    (void)sent; /* the other end may have closed: its process is watched elsewhere */
}

static bool hear(int control, struct message *message)
{
    return recv(control, message, sizeof(*message), MSG_DONTWAIT) >= (ssize_t)HEAD_BYTES;
}

/* ---- child ---- */

struct child {
    struct fabric_end end;
    const struct remote_options *options;
    int control;
    uint32_t ended_told, dones_told, granted_told;
    bool grant_waits; /* until granted() */
    struct message message, answer, grant;
};

static void child_grant(struct child *child)
{
    const struct message *asked = &child->message;
    struct message *answer = &child->answer;
    struct sl_error why = {0};
    struct sl_fabric_grant want = {.memory = child->end.memory,
                                   .peer = child->end.peer,
                                   .offset_bytes = asked->offset,
                                   .length_bytes = asked->length};
    answer->said = SAID_GRANT;
    answer->code = sl_fabric_grant_add(child->end.fabric, &want, &answer->handle, &why);
}

static void child_move(struct child *child)
{
    const struct message *asked = &child->message;
    uint32_t key = 0;
    sl_err err = sl_fabric_key_open(child->end.fabric, child->end.peer, asked->blob,
                                    asked->blob_bytes, &key, NULL);
    for (uint64_t i = 0; err == SL_OK && i < asked->value; i++) {
        err = end_post(&child->end, key, 0, asked->length, i,
                       sl_clock_monotonic_ns() + 100 * SL_NS_PER_S);
    }
    child->answer.code = err;
}

static bool child_bytes(struct child *child)
{
    const struct message *asked = &child->message;
    unsigned char *bytes = child->end.bytes;
    uint64_t length = child->end.length_bytes;
    switch ((enum said)asked->said) {
    case SAID_FILL:
        pattern_fill(bytes, length, asked->value);
        return true;
    case SAID_SET:
        memset(bytes, (int)asked->value, length);
        return true;
    case SAID_IS_SET:
        child->answer.value = bytes[0] == asked->value && memcmp(bytes, bytes + 1, length - 1) == 0;
        return true;
    case SAID_IS_PATTERN:
        child->answer.value = pattern_is(bytes, length, asked->value);
        return true;
    default:
        return false;
    }
}

static void child_obey(struct child *child)
{
    const struct message *asked = &child->message;
    struct message *answer = &child->answer;
    memset(answer, 0, HEAD_BYTES);
    answer->said = SAID_ANSWER;
    struct timespec cpu;
    switch ((enum said)asked->said) {
    case SAID_ADDRESS:
        (void)sl_fabric_peer_address(child->end.fabric, child->end.peer, asked->blob,
                                     asked->blob_bytes, NULL);
        return;
    case SAID_GRANT:
        child_grant(child);
        if (answer->code == SL_OK) {
            child->grant = *answer;
            child->grant_waits = true;
            return;
        }
        break;
    case SAID_END:
        answer->code = sl_fabric_grant_end(child->end.fabric, asked->handle);
        break;
    case SAID_STATS:
        answer->said = SAID_STATS;
        sl_fabric_stats(child->end.fabric, &answer->stats);
        answer->blob_bytes = sizeof(answer->stats);
        break;
    case SAID_CPU:
        (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
        answer->value = (uint64_t)cpu.tv_sec * SL_NS_PER_S + (uint64_t)cpu.tv_nsec;
        break;
    case SAID_MOVE:
        child_move(child);
        break;
    case SAID_JOB:
        child->options->job(child->control, child->end.bytes, child->end.length_bytes,
                            asked->offset, asked->length);
        return;
    default:
        if (!child_bytes(child)) {
            return;
        }
    }
    say(child->control, answer);
}

static void child_tell(struct child *child)
{
    struct message *answer = &child->answer;
    struct fabric_end *end = &child->end;
    memset(answer, 0, HEAD_BYTES);
    if (end->address_bytes > 0) {
        answer->said = SAID_ADDRESS;
        memcpy(answer->blob, end->address, end->address_bytes);
        answer->blob_bytes = end->address_bytes;
        end->address_bytes = 0;
        say(child->control, answer);
    }
    if (child->grant_waits && child->granted_told != end->granted) {
        child->granted_told = end->granted;
        child->grant_waits = false;
        child->grant.blob_bytes = end->key_bytes;
        memcpy(child->grant.blob, end->key, end->key_bytes);
        say(child->control, &child->grant);
    }
    while (child->ended_told < end->grants_ended) {
        child->ended_told++;
        *answer = (struct message){.said = SAID_ENDED};
        say(child->control, answer);
    }
    while (child->dones_told < end->done_count) {
        memset(answer, 0, HEAD_BYTES);
        answer->said = SAID_DONE;
        answer->done = end->dones[child->dones_told++ % END_DONES_MAX];
        answer->blob_bytes = sizeof(answer->done);
        say(child->control, answer);
    }
}

static void child_ready(struct child *child, sl_err code, const struct sl_error *why)
{
    memset(&child->answer, 0, HEAD_BYTES);
    child->answer.said = SAID_READY;
    child->answer.code = code;
    child->answer.why = *why;
    if (code == SL_OK) {
        snprintf(child->answer.why.text, sizeof(child->answer.why.text), "%s",
                 sl_fabric_about(child->end.fabric));
    }
    child->answer.blob_bytes = sizeof(*why);
    say(child->control, &child->answer);
}

static _Noreturn void child_run(const struct remote_options *options, int control)
{
    static struct child child;
    struct sl_error why = {0};
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    child.control = control;
    child.options = options;
    if (options->before != NULL) {
        options->before(NULL);
    }
    struct sl_fabric_options fabric = options->fabric, with_events;
    end_options(&child.end, &with_events, fabric.kind);
    fabric.events = with_events.events;
    child.end.stride_bytes = options->stride_bytes;
    child.end.unread = options->unread;
    sl_err err = end_open(&child.end, &fabric, options->length_bytes, options->chunk_bytes, &why);
    bool told = false;
    if (err != SL_OK) {
        child_ready(&child, err, &why);
        told = true;
    }
    for (;;) {
        struct pollfd ready[2] = {
            {.fd = control, .events = POLLIN},
            {.fd = err == SL_OK ? sl_fabric_fd(child.end.fabric) : -1, .events = POLLIN}};
        uint64_t now_ns = sl_clock_monotonic_ns();
        uint64_t at_ns = err == SL_OK ? sl_fabric_wake_at(child.end.fabric) : SL_NEVER_NS;
        uint64_t wait_ms = at_ns <= now_ns ? 0 : (at_ns - now_ns) / SL_NS_PER_MS + 1;
        if (wait_ms > 0) {
            (void)poll(ready, 2, (int)SL_MIN(wait_ms, UINT64_C(1000)));
        }
        if ((ready[0].revents & (POLLHUP | POLLERR)) != 0) {
            _exit(0);
        }
        while (hear(control, &child.message)) {
            child_obey(&child);
        }
        if (err == SL_OK) {
            sl_fabric_step(child.end.fabric, sl_clock_monotonic_ns());
            child_tell(&child);
            if (!told && (child.end.registered || child.end.refused)) {
                child_ready(&child, SL_OK, &why);
                told = true;
            }
        }
    }
}

/* ---- parent ---- */

void remote_start(struct remote *remote, const struct remote_options *options)
{
    int pair[2];
    int room = 4 * 1024 * 1024;
    memset(remote, 0, sizeof(*remote));
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    for (int i = 0; i < 2; i++) {
        (void)setsockopt(pair[i], SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
    }
    remote->pid = fork();
    ck_assert_int_ge(remote->pid, 0);
    if (remote->pid == 0) {
        close(pair[0]);
        child_run(options, pair[1]);
    }
    close(pair[1]);
    remote->control = pair[0];
}

void remote_stop(struct remote *remote)
{
    if (remote->pid > 0) {
        (void)kill(remote->pid, SIGKILL);
        (void)waitpid(remote->pid, NULL, 0);
        remote->pid = 0;
        close(remote->control);
    }
}

static void remote_heard(struct remote *remote, struct fabric_end *end,
                         const struct message *message)
{
    switch ((enum said)message->said) {
    case SAID_ADDRESS:
        ck_assert_int_eq(sl_fabric_peer_address(end->fabric, end->peer, message->blob,
                                                message->blob_bytes, NULL),
                         SL_OK);
        return;
    case SAID_READY:
        remote->ready = true;
        remote->open_code = message->code;
        remote->why = message->why;
        snprintf(remote->about, sizeof(remote->about), "%.190s", message->why.text);
        return;
    case SAID_ENDED:
        remote->grants_ended++;
        return;
    case SAID_DONE:
        remote->done = message->done;
        remote->done_count++;
        return;
    case SAID_GRANT:
        remote->grant = message->handle;
        remote->grant_code = message->code;
        remote->key_bytes = message->blob_bytes;
        memcpy(remote->key, message->blob, message->blob_bytes);
        break;
    case SAID_STATS:
        remote->stats = message->stats;
        break;
    default:
        break;
    }
    remote->value = message->value;
    remote->answers++;
}

void remote_step(struct remote *remote, struct fabric_end *end, int wait_ms)
{
    static struct message message;
    struct pollfd ready[2] = {
        {.fd = remote->pid > 0 ? remote->control : -1, .events = POLLIN},
        {.fd = end->fabric != NULL ? sl_fabric_fd(end->fabric) : -1, .events = POLLIN}};
    uint64_t now_ns = sl_clock_monotonic_ns();
    uint64_t at_ns = end->fabric != NULL ? sl_fabric_wake_at(end->fabric) : SL_NEVER_NS;
    uint64_t until_ms = at_ns <= now_ns ? 0 : (at_ns - now_ns) / SL_NS_PER_MS + 1;
    if (until_ms > 0) {
        (void)poll(ready, 2, (int)SL_MIN((uint64_t)wait_ms, until_ms));
    }
    while ((ready[0].revents & POLLIN) != 0 && hear(remote->control, &message)) {
        remote_heard(remote, end, &message);
    }
    if (end->fabric == NULL) {
        return;
    }
    sl_fabric_step(end->fabric, sl_clock_monotonic_ns());
    if (end->address_bytes > 0 && remote->pid > 0) {
        memset(&message, 0, HEAD_BYTES);
        message.said = SAID_ADDRESS;
        memcpy(message.blob, end->address, end->address_bytes);
        message.blob_bytes = end->address_bytes;
        end->address_bytes = 0;
        say(remote->control, &message);
    }
}

static void ask(struct remote *remote, struct fabric_end *end, const struct message *message)
{
    uint32_t before = remote->answers;
    say(remote->control, message);
    REMOTE_UNTIL(remote, end, remote->answers != before);
}

sl_err remote_grant(struct remote *remote, struct fabric_end *end, uint64_t offset_bytes,
                    uint64_t length_bytes)
{
    static struct message message;
    uint64_t give_up_ns = sl_clock_monotonic_ns() + 60 * SL_NS_PER_S;
    do { /* its side of the link may be up slightly later than ours */
        message =
            (struct message){.said = SAID_GRANT, .offset = offset_bytes, .length = length_bytes};
        ask(remote, end, &message);
    } while (remote->grant_code == SL_ERR_UNREACHABLE && sl_clock_monotonic_ns() < give_up_ns);
    return remote->grant_code;
}

uint32_t remote_key(struct remote *remote, struct fabric_end *end, uint64_t offset_bytes,
                    uint64_t length_bytes)
{
    uint32_t key = 0;
    struct sl_error why = {0};
    ck_assert_int_eq(remote_grant(remote, end, offset_bytes, length_bytes), SL_OK);
    sl_err err =
        sl_fabric_key_open(end->fabric, end->peer, remote->key, remote->key_bytes, &key, &why);
    ck_assert_msg(err == SL_OK, "%s", why.text);
    return key;
}

static uint64_t ask_simply(struct remote *remote, struct fabric_end *end, enum said said,
                           uint64_t value)
{
    static struct message message;
    memset(&message, 0, HEAD_BYTES);
    message.said = said;
    message.value = value;
    message.handle = (uint32_t)value;
    ask(remote, end, &message);
    return remote->value;
}

void remote_grant_end(struct remote *remote, struct fabric_end *end, uint32_t grant)
{
    (void)ask_simply(remote, end, SAID_END, grant);
}

void remote_fill(struct remote *remote, struct fabric_end *end, uint64_t seed)
{
    (void)ask_simply(remote, end, SAID_FILL, seed);
}

void remote_set(struct remote *remote, struct fabric_end *end, unsigned char with)
{
    (void)ask_simply(remote, end, SAID_SET, with);
}

bool remote_is_set(struct remote *remote, struct fabric_end *end, unsigned char with)
{
    return ask_simply(remote, end, SAID_IS_SET, with) == 1;
}

bool remote_is_pattern(struct remote *remote, struct fabric_end *end, uint64_t seed)
{
    return ask_simply(remote, end, SAID_IS_PATTERN, seed) == 1;
}

void remote_stats(struct remote *remote, struct fabric_end *end)
{
    (void)ask_simply(remote, end, SAID_STATS, 0);
}

uint64_t remote_cpu_ns(struct remote *remote, struct fabric_end *end)
{
    return ask_simply(remote, end, SAID_CPU, 0);
}

uint32_t remote_move_local(struct remote *remote, struct fabric_end *end, uint32_t count,
                           uint64_t length_bytes)
{
    static struct message message;
    memset(&message, 0, HEAD_BYTES);
    message.said = SAID_MOVE;
    message.value = count;
    message.length = length_bytes;
    const struct sl_fabric_grant want = {
        .memory = end->memory, .peer = end->peer, .length_bytes = length_bytes};
    uint32_t grant = end_grant(end, &want);
    message.blob_bytes = end->key_bytes;
    memcpy(message.blob, end->key, end->key_bytes);
    ask(remote, end, &message);
    return grant;
}

void remote_job(struct remote *remote, uint64_t argument, uint64_t other)
{
    static struct message message;
    memset(&message, 0, HEAD_BYTES);
    message.said = SAID_JOB;
    message.offset = argument;
    message.length = other;
    say(remote->control, &message);
}
