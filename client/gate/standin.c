/* client/gate/standin.c - see standin.h. One thread; it sleeps until the client asks or dies.
 *
 * What a client may open is one table. Whatever it asks, this process gives descriptors, and never writes
 * a byte of shared memory itself, but for pin segments that it makes. */
#include "client/gate/standin.h"
#include "ipc/gate_protocol.h"
#include "ipc/sl_pins.h"
#include "runtime/sl_door.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* Linux 6.5 */
#endif
/* Lives of the node of which a client may hold views (SL_CLIENT_ATTACHMENTS_MAX), and one more. */
#define PINS_MAX 65u
/* A client has until then to say who it is. */
#define HELLO_NS (2 * SL_NS_PER_S)
/* A client that is killed loses its socket before its locks. */
#define DEATH_MS 100
/* As much as a client's pool memory and buffers are in pieces. */
#define LENT_MAX 4096u

struct standin {
    const struct sl_paths *paths;
    int socket_fd, pidfd, signal_fd;
    struct sl_proc_id self;
    struct sl_pins *pins[PINS_MAX];
    char names[PINS_MAX][SL_GATE_NAME_BYTES]; /* of pins */
    bool lent[LENT_MAX];                      /* by descriptor */
};

/* Prefixes of names, and whether a client may write there. */
static const struct {
    const char *name;
    bool whole, writable;
} segments[] = {
    {"index", true, false}, {"seen", true, false},  {"arena.", false, true},
    {"leases", true, true}, {"counts", true, true}, {"labels", true, true},
};

/* ---- questions ---- */

static sl_err name_check(const struct sl_gate_ask *ask, struct sl_error *why)
{
    return memchr(ask->name, '\0', sizeof(ask->name)) != NULL && ask->name[0] != '\0' &&
                   ask->name[0] != '.' && strchr(ask->name, '/') == NULL
               ? SL_OK
               : sl_fail(why, SL_ERR_INVALID, "no name of a segment");
}

static uint32_t pins_find(const struct standin *self, const char *name)
{
    uint32_t at = 0;
    while (at < PINS_MAX && (self->pins[at] == NULL || strcmp(self->names[at], name) != 0)) {
        at++;
    }
    return at;
}

static sl_err may_open(const struct standin *self, const char *name, bool writable,
                       struct sl_error *why)
{
    for (size_t i = 0; i < SL_COUNT(segments); i++) {
        size_t length = strlen(segments[i].name);
        if (strncmp(name, segments[i].name, length) == 0 &&
            (name[length] == '\0' || !segments[i].whole) && (segments[i].writable || !writable)) {
            return SL_OK;
        }
    }
    return pins_find(self, name) < PINS_MAX
               ? SL_OK
               : sl_fail(why, SL_ERR_PERMISSION, "'%s' is not a client's to %s", name,
                         writable ? "write" : "read");
}

static sl_err segment_open(const struct standin *self, const struct sl_gate_ask *ask, int *fd,
                           struct sl_error *why)
{
    sl_err err = name_check(ask, why);
    if (err == SL_OK) {
        err = may_open(self, ask->name, ask->a != 0, why);
    }
    return err == SL_OK
               ? sl_segment_descriptor(self->paths->shm_dir, ask->name, ask->a != 0, fd, why)
               : err;
}

static sl_err segment_look(const struct standin *self, const struct sl_gate_ask *ask,
                           struct sl_gate_answer *answer, struct sl_error *why)
{
    char path[sizeof(self->paths->shm_dir) + SL_GATE_NAME_BYTES + 1];
    struct stat file;
    sl_err err = name_check(ask, why);
    if (err != SL_OK) {
        return err;
    }
    (void)snprintf(path, sizeof(path), "%s/%s", self->paths->shm_dir, ask->name);
    if (lstat(path, &file) != 0) {
        return sl_fail_os(why, errno, "'%s'", ask->name);
    }
    answer->a = file.st_dev;
    answer->b = file.st_ino;
    return SL_OK;
}

static sl_err pins_make(struct standin *self, const struct sl_gate_ask *ask, struct sl_error *why)
{
    uint32_t at = 0;
    sl_err err = name_check(ask, why);
    if (err != SL_OK) {
        return err;
    }
    while (at < PINS_MAX && self->pins[at] != NULL) {
        at++;
    }
    if (at == PINS_MAX || strncmp(ask->name, "pins.", 5) != 0) {
        return sl_fail(why, at == PINS_MAX ? SL_ERR_LIMIT : SL_ERR_INVALID, "pin segment '%s'",
                       ask->name);
    }
    const struct sl_pins_options options = {.shm_dir = self->paths->shm_dir,
                                            .name = ask->name,
                                            .slot_count = (uint32_t)SL_MIN(ask->a, UINT32_MAX),
                                            .access_count = (uint32_t)SL_MIN(ask->b, UINT32_MAX),
                                            .self = self->self};
    err = sl_pins_create(&options, &self->pins[at], why);
    if (err == SL_OK) {
        memcpy(self->names[at], ask->name, sizeof(self->names[at]));
    }
    return err;
}

static sl_err pins_remove(struct standin *self, const struct sl_gate_ask *ask, struct sl_error *why)
{
    sl_err err = name_check(ask, why);
    uint32_t at = err == SL_OK ? pins_find(self, ask->name) : PINS_MAX;
    if (at == PINS_MAX) {
        return err != SL_OK ? err : sl_fail(why, SL_ERR_NOT_FOUND, "no pins '%s'", ask->name);
    }
    sl_pins_destroy(&self->pins[at]);
    return SL_OK;
}

/* Takes the descriptor. */
static sl_err lend(struct standin *self, int fd, struct sl_gate_answer *answer,
                   struct sl_error *why)
{
    if (fd < 0 || (uint32_t)fd >= LENT_MAX) {
        if (fd >= 0) {
            (void)close(fd);
        }
        return sl_fail(why, fd < 0 ? SL_ERR_INVALID : SL_ERR_LIMIT,
                       "a client may lend %u descriptors", LENT_MAX);
    }
    self->lent[fd] = true;
    answer->a = (uint64_t)fd;
    return SL_OK;
}

static sl_err unlend(struct standin *self, uint64_t number, struct sl_error *why)
{
    if (number >= LENT_MAX || !self->lent[number]) {
        return sl_fail(why, SL_ERR_NOT_FOUND, "descriptor %" PRIu64 " was not lent", number);
    }
    self->lent[number] = false;
    (void)close((int)number);
    return SL_OK;
}

/* Memory of the node's other processes, as clients beside it open it. */
static sl_err fetch(const struct sl_gate_ask *ask, int *fd, struct sl_error *why)
{
    char path[64];
    struct stat file;
    const struct sl_proc_id holder = {.pid = (uint32_t)ask->a, .start_time = ask->b};
    (void)snprintf(path, sizeof(path), "/proc/%u/fd/%u", holder.pid, (uint32_t)ask->c);
    SL_AUTO(close) int opened = open(path, O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    int os_code = errno;
    if (!sl_proc_alive(holder) || (opened < 0 && os_code == ENOENT)) {
        return sl_fail(why, SL_ERR_NOT_FOUND, "process %u has it no more", holder.pid);
    }
    if (opened < 0 || fstat(opened, &file) != 0) {
        return sl_fail_os(why, opened < 0 ? os_code : errno, "open '%s'", path);
    }
    /* Files of tmpfs have seals, too; memory has no name. */
    if (!S_ISREG(file.st_mode) || file.st_nlink != 0 || fcntl(opened, F_GET_SEALS) < 0) {
        return sl_fail(why, SL_ERR_INVALID, "'%s' is no memory", path);
    }
    *fd = opened;
    opened = -1; /* NOLINT(clang-analyzer-deadcode.DeadStores): read by its clean-up */
    return SL_OK;
}

/* ---- who the client is ---- */

/* By a word that the kernel writes of no other descriptor. */
static bool is_pidfd(int fd)
{
    char path[48], line[64];
    long pid = -1;
    (void)snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
    FILE *about = fopen(path, "re");
    while (about != NULL && pid < 0 && fgets(line, sizeof(line), about) != NULL) {
        if (strncmp(line, "Pid:", 4) == 0) {
            pid = strtol(line + 4, NULL, 10);
        }
    }
    if (about != NULL) {
        (void)fclose(about);
    }
    return pid > 0;
}

/* Takes the descriptor. */
static sl_err client_know(struct standin *self, int fd, struct sl_gate_answer *answer,
                          struct sl_error *why)
{
    SL_AUTO(close) int sent = fd;
    int pidfd = -1;
    socklen_t size = sizeof(pidfd);
    if (self->pidfd >= 0) {
        return SL_OK;
    }
    if (getsockopt(self->socket_fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &size) != 0) {
        if (sent < 0 || !is_pidfd(sent)) {
            return sl_fail(why, SL_ERR_UNSUPPORTED,
                           "this kernel gives no descriptor of the client's process");
        }
        pidfd = sent;
        sent = -1; /* NOLINT(clang-analyzer-deadcode.DeadStores): read by its clean-up */
    }
    self->pidfd = pidfd;
    uint64_t space = sl_proc_space();
    if (space == 0) {
        return sl_fail_os(why, errno, "/proc/self/ns/pid");
    }
    answer->a = self->self.pid;
    answer->b = self->self.start_time;
    answer->c = space;
    return SL_OK;
}

/* ---- serving ---- */

/* *give: a descriptor of the answer; taken: that of the question, which is used up. */
static sl_err answer_make(struct standin *self, const struct sl_gate_ask *ask, int taken,
                          struct sl_gate_answer *answer, int *give, struct sl_error *why)
{
    if (ask->question == SL_GATE_HELLO) {
        return client_know(self, taken, answer, why);
    }
    if (ask->question == SL_GATE_LEND && self->pidfd >= 0) {
        return lend(self, taken, answer, why);
    }
    if (taken >= 0) {
        (void)close(taken);
    }
    if (self->pidfd < 0) {
        return sl_fail(why, SL_ERR_PROTOCOL, "no hello");
    }
    switch (ask->question) {
    case SL_GATE_OPEN:
        return segment_open(self, ask, give, why);
    case SL_GATE_LOOK:
        return segment_look(self, ask, answer, why);
    case SL_GATE_REMOVE:
        return pins_remove(self, ask, why);
    case SL_GATE_PINS:
        return pins_make(self, ask, why);
    case SL_GATE_UNLEND:
        return unlend(self, ask->a, why);
    case SL_GATE_FETCH:
        return fetch(ask, give, why);
    default:
        return sl_fail(why, SL_ERR_UNSUPPORTED, "question %u: this gate is of sluice %s",
                       ask->question, SL_VERSION);
    }
}

/* False: it is over. */
static bool question_serve(struct standin *self)
{
    struct sl_gate_ask ask;
    struct sl_gate_answer answer = {.version = SL_GATE_VERSION};
    struct sl_error why = {0};
    int taken = -1, give = -1;
    int os_code = sl_gate_packet_take(self->socket_fd, &ask, sizeof(ask), &taken);
    if (os_code != 0 && os_code != EMFILE) {
        return os_code == EAGAIN;
    }
    bool ours = memcmp(ask.magic, sl_gate_ask_magic, sizeof(ask.magic)) == 0;
    if (!ours || ask.question == SL_GATE_BYE) {
        if (taken >= 0) {
            (void)close(taken);
        }
        return false;
    }
    sl_err err = os_code == EMFILE
                     ? sl_fail(&why, SL_ERR_LIMIT,
                               "the node's process for this client has no descriptors left")
                 : ask.version != SL_GATE_VERSION
                     ? sl_fail(&why, SL_ERR_VERSION,
                               "the node's gate (sluice %s) speaks version %u, the client %u",
                               SL_VERSION, SL_GATE_VERSION, ask.version)
                     : answer_make(self, &ask, taken, &answer, &give, &why);
    memcpy(answer.magic, sl_gate_answer_magic, sizeof(answer.magic));
    answer.code = (uint32_t)err;
    if (err != SL_OK) {
        (void)snprintf(answer.text, sizeof(answer.text), "%s", why.text);
    }
    os_code = sl_gate_packet_send(self->socket_fd, &answer, sizeof(answer), give);
    if (give >= 0) {
        (void)close(give);
    }
    return os_code == 0;
}

/* Pins that a living client has are the registrar's to remove, when it lets go: here is only the end of
 * one of its processes. */
static void pins_end(struct standin *self)
{
    struct pollfd death[] = {{.fd = self->pidfd, .events = POLLIN},
                             {.fd = self->signal_fd, .events = POLLIN}};
    bool held = false;
    for (uint32_t i = 0; i < PINS_MAX; i++) {
        held |= self->pins[i] != NULL && sl_pins_held(self->pins[i]);
    }
    if (held) {
        (void)poll(death, SL_COUNT(death), DEATH_MS);
    }
    for (uint32_t i = 0; i < PINS_MAX; i++) {
        if (self->pins[i] != NULL && !sl_pins_held(self->pins[i])) {
            sl_pins_destroy(&self->pins[i]);
        }
    }
}

static void serve(struct standin *self)
{
    for (;;) {
        struct pollfd polled[] = {{.fd = self->socket_fd, .events = POLLIN},
                                  {.fd = self->signal_fd, .events = POLLIN},
                                  {.fd = self->pidfd, .events = POLLIN}}; /* -1: left out */
        int timeout_ms = self->pidfd >= 0 ? -1 : (int)(HELLO_NS / SL_NS_PER_MS);
        int ready = poll(polled, SL_COUNT(polled), timeout_ms);
        if (ready < 0 && errno == EINTR) {
            continue;
        }
        if (ready <= 0 || polled[1].revents != 0 || polled[2].revents != 0) {
            return;
        }
        if ((polled[0].revents & POLLIN) != 0 ? !question_serve(self) : polled[0].revents != 0) {
            return;
        }
    }
}

/* For who ends all: in the gate's folder, while this process runs. */
static sl_err place_write(const struct sl_proc_id *self, const char *path)
{
    SL_AUTO(close) int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || dprintf(fd, "%u %" PRIu64 "\n", self->pid, self->start_time) < 0) {
        return SL_ERR_OS;
    }
    return SL_OK;
}

void standin_run(const struct sl_paths *paths, int socket_fd)
{
    char place[sizeof(paths->runtime_dir) + 32];
    sigset_t signals;
    struct standin self = {
        .paths = paths, .socket_fd = socket_fd, .pidfd = -1, .self = sl_proc_id_self()};
    (void)setsid();
    (void)prctl(PR_SET_NAME, "sluice-standin");
    (void)sigemptyset(&signals);
    (void)sigaddset(&signals, SIGTERM);
    (void)sigprocmask(SIG_BLOCK, &signals, NULL);
    self.signal_fd = signalfd(-1, &signals, SFD_CLOEXEC);
    (void)snprintf(place, sizeof(place), "%s/gate.d/%u", paths->runtime_dir, self.self.pid);
    SL_AUTO(close) int folder = open(paths->runtime_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    /* Without a place it would outlive the node. */
    if (self.signal_fd >= 0 && folder >= 0 && place_write(&self.self, place) == SL_OK) {
        serve(&self);
    }
    pins_end(&self);
    (void)unlinkat(folder, place + strlen(paths->runtime_dir) + 1, 0);
}
