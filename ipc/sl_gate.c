/* ipc/sl_gate.c - the client's side of a gate, and which gate a directory's name stands for. */
#include "ipc/sl_gate.h"
#include "ipc/gate_protocol.h"
#include "runtime/sl_array.h"
#include "runtime/sl_clock.h"
#include "runtime/sl_door.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* An answer takes microseconds; a stand-in that was stopped must not stop its client for long. */
#define ANSWER_NS (2 * SL_NS_PER_S)
/* No path begins so: those of segments are absolute. */
#define MARK '@'

struct lent { /* memory of which the stand-in has a copy */
    uint64_t device, inode;
    uint32_t count;
    int number;
};

struct sl_gate {
    struct sl_gate *next; /* of all of this process; under the lock of gates */
    pthread_mutex_t lock;
    int fd;
    bool gone; /* it did not answer in time: answers would not be those to the questions */
    uint64_t pid_space;
    struct sl_proc_id self;
    struct lent *lent;
    uint32_t lent_count, lent_room;
    char directory[32];
};

static pthread_mutex_t gates_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sl_gate *gates;

static sl_err gate_path(const char *runtime_dir, char out[SL_DOOR_PATH_BYTES], struct sl_error *why)
{
    memset(out, 0, SL_DOOR_PATH_BYTES);
    int length = snprintf(out, SL_DOOR_PATH_BYTES, "%s/" SL_GATE_SOCKET, runtime_dir);
    return length > 0 && (size_t)length < SL_DOOR_PATH_BYTES
               ? SL_OK
               : sl_fail(why, SL_ERR_INVALID, "'%.80s...' is too long for a socket", runtime_dir);
}

bool sl_gate_there(const char *runtime_dir)
{
    char path[SL_DOOR_PATH_BYTES];
    return gate_path(runtime_dir, path, NULL) == SL_OK && access(path, F_OK) == 0;
}

/* ---- questions ---- */

static sl_err gone_fail(struct sl_error *why)
{
    return sl_fail(why, SL_ERR_UNREACHABLE, "the node's process for this client is gone");
}

static sl_err answer_check(const struct sl_gate_answer *answer, struct sl_error *why)
{
    if (memcmp(answer->magic, sl_gate_answer_magic, sizeof(answer->magic)) != 0 ||
        answer->code >= SL_ERR_COUNT || memchr(answer->text, '\0', sizeof(answer->text)) == NULL) {
        return sl_fail(why, SL_ERR_PROTOCOL, "the node's gate answered something else");
    }
    return answer->code == SL_OK ? SL_OK : sl_fail(why, (sl_err)answer->code, "%s", answer->text);
}

/* Under the lock. *got is the caller's, if any came; NULL: none is wanted. */
static sl_err ask_locked(struct sl_gate *gate, struct sl_gate_ask *ask, int fd,
                         uint64_t deadline_ns, struct sl_gate_answer *answer, int *got,
                         struct sl_error *why)
{
    int came = -1;
    memcpy(ask->magic, sl_gate_ask_magic, sizeof(ask->magic));
    ask->version = SL_GATE_VERSION;
    if (gate->gone || sl_gate_packet_send(gate->fd, ask, sizeof(*ask), fd) != 0) {
        return gone_fail(why);
    }
    if (!sl_door_wait(gate->fd, POLLIN, -1, deadline_ns)) {
        gate->gone = true;
        return sl_fail(why, SL_ERR_TIMEOUT, "the node's gate does not answer");
    }
    int os_code = sl_gate_packet_take(gate->fd, answer, sizeof(*answer), &came);
    if (os_code != 0) {
        gate->gone = os_code != EMFILE;
        return os_code == EPIPE ? gone_fail(why) : sl_fail_os(why, os_code, "answer of the gate");
    }
    sl_err err = answer_check(answer, why);
    if (err == SL_OK && got != NULL && came < 0) {
        err = sl_fail(why, SL_ERR_PROTOCOL, "the node's gate gave no descriptor");
    }
    if (err == SL_OK && got != NULL) {
        *got = came;
    } else if (came >= 0) {
        (void)close(came);
    }
    return err;
}

static sl_err gate_ask(struct sl_gate *gate, struct sl_gate_ask *ask, int fd,
                       struct sl_gate_answer *answer, int *got, struct sl_error *why)
{
    pthread_mutex_lock(&gate->lock);
    sl_err err = ask_locked(gate, ask, fd, sl_deadline_ns(sl_clock_monotonic_ns(), ANSWER_NS),
                            answer, got, why);
    pthread_mutex_unlock(&gate->lock);
    return err;
}

static sl_err name_put(struct sl_gate_ask *ask, const char *name, struct sl_error *why)
{
    int length = snprintf(ask->name, sizeof(ask->name), "%s", name);
    return length > 0 && (size_t)length < sizeof(ask->name)
               ? SL_OK
               : sl_fail(why, SL_ERR_INVALID, "segment name '%.40s...' is too long", name);
}

/* ---- opening, closing ---- */

static sl_err gate_connect(struct sl_gate *gate, const char *runtime_dir, uint64_t deadline_ns,
                           struct sl_error *why)
{
    char path[SL_DOOR_PATH_BYTES];
    sl_err err = gate_path(runtime_dir, path, why);
    if (err != SL_OK) {
        return err;
    }
    gate->fd = sl_door_socket();
    if (gate->fd < 0) {
        return sl_fail_os(why, errno, "socket for '%s'", path);
    }
    int os_code = sl_door_connect(gate->fd, path, deadline_ns);
    if (os_code == ENOENT || os_code == ECONNREFUSED || os_code == EAGAIN) {
        return sl_fail(why, SL_ERR_UNREACHABLE, "nobody listens at '%s'", path);
    }
    if (os_code != 0) {
        return sl_fail_os(why, os_code, "connect to '%s'", path);
    }
    return sl_door_same_user(gate->fd)
               ? SL_OK
               : sl_fail(why, SL_ERR_PERMISSION,
                         "the node at '%s' is another user's: run a node of this user, as its peer",
                         runtime_dir);
}

static sl_err gate_greet(struct sl_gate *gate, uint64_t deadline_ns, struct sl_error *why)
{
    struct sl_gate_ask ask = {.question = SL_GATE_HELLO};
    struct sl_gate_answer answer = {0};
    /* For kernels whose sockets have none. */
    SL_AUTO(close) int pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);
    sl_err err = ask_locked(gate, &ask, pidfd, deadline_ns, &answer, NULL, why);
    if (err == SL_OK) {
        gate->self = (struct sl_proc_id){.pid = (uint32_t)answer.a, .start_time = answer.b};
        gate->pid_space = answer.c;
    }
    return err;
}

/* Gives a stand-in that is not in use yet. */
static sl_err gate_enter(struct sl_gate *gate, const char *runtime_dir, uint64_t deadline_ns,
                         struct sl_error *why)
{
    gate->fd = -1;
    sl_err err = gate_connect(gate, runtime_dir, deadline_ns, why);
    if (err == SL_OK) {
        err = gate_greet(gate, deadline_ns, why);
    }
    if (err != SL_OK && gate->fd >= 0) {
        (void)close(gate->fd);
    }
    return err;
}

sl_err sl_gate_open(const char *runtime_dir, uint64_t deadline_ns, struct sl_gate **out,
                    struct sl_error *why)
{
    static _Atomic uint32_t numbers;
    struct sl_gate *gate = calloc(1, sizeof(*gate));
    if (gate == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "gate");
    }
    sl_err err = gate_enter(gate, runtime_dir, deadline_ns, why);
    if (err != SL_OK) {
        free(gate);
        return err;
    }
    (void)snprintf(gate->directory, sizeof(gate->directory), "%cgate.%u", MARK, numbers++);
    pthread_mutex_init(&gate->lock, NULL);
    pthread_mutex_lock(&gates_lock);
    gate->next = gates;
    gates = gate;
    pthread_mutex_unlock(&gates_lock);
    *out = gate;
    return SL_OK;
}

sl_err sl_gate_renew(struct sl_gate *gate, const char *runtime_dir, uint64_t deadline_ns,
                     struct sl_error *why)
{
    struct sl_gate fresh = {.fd = -1};
    sl_err err = gate_enter(&fresh, runtime_dir, deadline_ns, why);
    if (err != SL_OK) {
        return err;
    }
    pthread_mutex_lock(&gate->lock);
    (void)close(gate->fd);
    gate->fd = fresh.fd;
    gate->self = fresh.self;
    gate->pid_space = fresh.pid_space;
    gate->gone = false;
    gate->lent_count = 0;
    pthread_mutex_unlock(&gate->lock);
    return SL_OK;
}

void sl_gate_close(struct sl_gate **gate, bool keeps)
{
    struct sl_gate *gone = *gate;
    *gate = NULL;
    if (gone == NULL) {
        return;
    }
    pthread_mutex_lock(&gates_lock);
    for (struct sl_gate **at = &gates; *at != NULL; at = &(*at)->next) {
        if (*at == gone) {
            *at = gone->next;
            break;
        }
    }
    pthread_mutex_unlock(&gates_lock);
    if (!keeps) { /* the end of the socket says the same, unless a fork has it, too */
        struct sl_gate_ask ask = {.version = SL_GATE_VERSION, .question = SL_GATE_BYE};
        memcpy(ask.magic, sl_gate_ask_magic, sizeof(ask.magic));
        (void)sl_gate_packet_send(gone->fd, &ask, sizeof(ask), -1);
        (void)close(gone->fd);
    }
    pthread_mutex_destroy(&gone->lock);
    free(gone->lent);
    free(gone);
}

bool sl_gate_lives(struct sl_gate *gate)
{
    pthread_mutex_lock(&gate->lock);
    struct pollfd polled = {.fd = gate->fd, .events = 0};
    bool lives = !gate->gone && (poll(&polled, 1, 0) == 0 ||
                                 (polled.revents & (POLLHUP | POLLERR | POLLNVAL)) == 0);
    pthread_mutex_unlock(&gate->lock);
    return lives;
}

struct sl_proc_id sl_gate_self(struct sl_gate *gate)
{
    pthread_mutex_lock(&gate->lock);
    struct sl_proc_id self = gate->self;
    pthread_mutex_unlock(&gate->lock);
    return self;
}

const char *sl_gate_directory(const struct sl_gate *gate)
{
    return gate->directory;
}

bool sl_gate_is_directory(const char *directory)
{
    return directory[0] == MARK;
}

/* ---- descriptors ---- */

/* Under the lock. NULL: it is not lent. */
static struct lent *lent_find(const struct sl_gate *gate, const struct stat *file)
{
    for (uint32_t i = 0; i < gate->lent_count; i++) {
        if (gate->lent[i].device == file->st_dev && gate->lent[i].inode == file->st_ino) {
            return &gate->lent[i];
        }
    }
    return NULL;
}

static sl_err lend_locked(struct sl_gate *gate, int fd, int *number, struct sl_error *why)
{
    struct sl_gate_ask ask = {.question = SL_GATE_LEND};
    struct sl_gate_answer answer = {0};
    struct stat file;
    if (fstat(fd, &file) != 0) {
        return sl_fail_os(why, errno, "fstat of descriptor %d", fd);
    }
    struct lent *lent = lent_find(gate, &file);
    if (lent == NULL) {
        if (!SL_ARRAY_ROOM(gate->lent, gate->lent_room, gate->lent_count + 1)) {
            return sl_fail(why, SL_ERR_NO_MEMORY, "descriptors lent to the gate");
        }
        sl_err err = ask_locked(gate, &ask, fd, sl_deadline_ns(sl_clock_monotonic_ns(), ANSWER_NS),
                                &answer, NULL, why);
        if (err != SL_OK) {
            return err;
        }
        lent = &gate->lent[gate->lent_count++];
        *lent = (struct lent){.device = file.st_dev, .inode = file.st_ino, .number = (int)answer.a};
    }
    lent->count++;
    *number = lent->number;
    return SL_OK;
}

sl_err sl_gate_lend(struct sl_gate *gate, int fd, int *number, struct sl_proc_id *to,
                    struct sl_error *why)
{
    pthread_mutex_lock(&gate->lock);
    sl_err err = lend_locked(gate, fd, number, why);
    if (err == SL_OK) {
        *to = gate->self;
    }
    pthread_mutex_unlock(&gate->lock);
    return err;
}

void sl_gate_unlend(struct sl_gate *gate, int fd, struct sl_proc_id to)
{
    struct sl_gate_ask ask = {.question = SL_GATE_UNLEND};
    struct sl_gate_answer answer = {0};
    struct stat file;
    pthread_mutex_lock(&gate->lock);
    bool ours = sl_proc_id_equal(gate->self, to) && fstat(fd, &file) == 0;
    struct lent *lent = ours ? lent_find(gate, &file) : NULL;
    if (lent != NULL && --lent->count == 0) {
        ask.a = (uint64_t)lent->number;
        *lent = gate->lent[--gate->lent_count];
        /* Unheard, it ends with the stand-in. */
        (void)ask_locked(gate, &ask, -1, sl_deadline_ns(sl_clock_monotonic_ns(), ANSWER_NS),
                         &answer, NULL, NULL);
    }
    pthread_mutex_unlock(&gate->lock);
}

sl_err sl_gate_fetch(struct sl_gate *gate, struct sl_proc_id holder, int number, int *fd,
                     struct sl_error *why)
{
    struct sl_gate_ask ask = {
        .question = SL_GATE_FETCH, .a = holder.pid, .b = holder.start_time, .c = (uint64_t)number};
    struct sl_gate_answer answer = {0};
    return gate_ask(gate, &ask, -1, &answer, fd, why);
}

/* ---- segments ---- */

/* It is not closed while one of its directory's segments is asked for: both are its client's. */
static struct sl_gate *gate_of(const char *directory)
{
    pthread_mutex_lock(&gates_lock);
    struct sl_gate *gate = gates;
    while (gate != NULL && strcmp(gate->directory, directory) != 0) {
        gate = gate->next;
    }
    pthread_mutex_unlock(&gates_lock);
    return gate;
}

static sl_err segment_ask(const char *directory, struct sl_gate_ask *ask, const char *name,
                          struct sl_gate_answer *answer, int *fd, struct sl_error *why)
{
    struct sl_gate *gate = gate_of(directory);
    sl_err err = name_put(ask, name, why);
    return err != SL_OK   ? err
           : gate == NULL ? gone_fail(why)
                          : gate_ask(gate, ask, -1, answer, fd, why);
}

sl_err sl_gate_segment_open(const char *directory, const char *name, bool writable, int *fd,
                            struct sl_error *why)
{
    struct sl_gate_ask ask = {.question = SL_GATE_OPEN, .a = writable};
    struct sl_gate_answer answer = {0};
    return segment_ask(directory, &ask, name, &answer, fd, why);
}

sl_err sl_gate_segment_look(const char *directory, const char *name, uint64_t *device,
                            uint64_t *inode)
{
    struct sl_gate_ask ask = {.question = SL_GATE_LOOK};
    struct sl_gate_answer answer = {0};
    if (segment_ask(directory, &ask, name, &answer, NULL, NULL) != SL_OK) {
        return SL_ERR_NOT_FOUND;
    }
    *device = answer.a;
    *inode = answer.b;
    return SL_OK;
}

sl_err sl_gate_segment_remove(const char *directory, const char *name, struct sl_error *why)
{
    struct sl_gate_ask ask = {.question = SL_GATE_REMOVE};
    struct sl_gate_answer answer = {0};
    return segment_ask(directory, &ask, name, &answer, NULL, why);
}

sl_err sl_gate_pins_make(const char *directory, const struct sl_gate_pins *pins,
                         struct sl_error *why)
{
    struct sl_gate_ask ask = {
        .question = SL_GATE_PINS, .a = pins->slot_count, .b = pins->access_count};
    struct sl_gate_answer answer = {0};
    return segment_ask(directory, &ask, pins->name, &answer, NULL, why);
}

uint64_t sl_gate_pid_space(const char *directory)
{
    const struct sl_gate *gate = sl_gate_is_directory(directory) ? gate_of(directory) : NULL;
    return gate == NULL ? 0 : gate->pid_space;
}
