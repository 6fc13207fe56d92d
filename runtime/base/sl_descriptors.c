/* runtime/base/sl_descriptors.c - see sl_descriptors.h. Serves one requester at a time: a reply
 * takes as long as the giver needs to make descriptors. A requester that does not read its reply is
 * dropped. */
#include "runtime/base/sl_descriptors.h"

#include "runtime/base/sl_clock.h"
#include "runtime/base/sl_signals.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define ASKER_NS (2 * SL_NS_PER_S) /* time limit for each packet of a requester */
#define KIND     "memory"
#define BACKLOG  16

static const char ask_magic[8] = "slfdask1", answer_magic[8] = "slfdans1";

struct ask_packet {
    char magic[8];
    struct sl_descriptors_request ask;
};
struct answer_packet {
    char magic[8];
    uint32_t code; /* not 0: an error with its text; this is the last packet */
    uint32_t count;
    uint32_t more;
    uint32_t reserved;
    uint64_t lengths[SL_DESCRIPTORS_BATCH];
    char text[SL_ERROR_TEXT_BYTES];
};

struct sl_descriptors {
    int fd, stop_fd; /* fd: the listening socket */
    uint64_t number;
    struct sockaddr_un place; /* set while it listens */
    sl_descriptors_give_fn give;
    void *context;
    pthread_t thread;
    bool started;
};

/* ---- sockets ---- */

static int socket_open(void)
{
    return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

/* The address of process pid's socket. mark: '.', or '-' before listen(): until then the socket
 * looks like the leftover of a dead process. */
static sl_err socket_place(const char *runtime_dir, char mark, uint32_t pid, uint64_t number,
                           struct sockaddr_un *out, struct sl_error *why)
{
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    int length = snprintf(out->sun_path, sizeof(out->sun_path),
                          "%s/" KIND "%c%" PRIu32 ".%016" PRIx64, runtime_dir, mark, pid, number);
    return length > 0 && (size_t)length < sizeof(out->sun_path)
               ? SL_OK
               : sl_fail(why, SL_ERR_INVALID, "'%.80s...' is too long for a socket", runtime_dir);
}

/* Whether the other side is a process of this user, as the kernel reports it. */
static bool is_same_user(int fd)
{
    struct ucred peer;
    socklen_t size = sizeof(peer);
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

/* Waits for events of fd. False: the deadline passed, or other_fd (-1: none) became readable. */
static bool socket_wait(int fd, short events, int other_fd, uint64_t deadline_ns)
{
    for (;;) {
        struct pollfd polled[2] = {{.fd = fd, .events = events},
                                   {.fd = other_fd, .events = POLLIN}};
        uint64_t left_ns = sl_budget_ns(sl_clock_monotonic_ns(), deadline_ns);
        int timeout_ms =
            left_ns == SL_NEVER_NS ? -1 : (int)SL_MIN(left_ns / SL_NS_PER_MS + 1, UINT64_C(60000));
        int ready = poll(polled, 2, left_ns == 0 ? 0 : timeout_ms);
        if (ready > 0) {
            return polled[1].revents == 0 && polled[0].revents != 0;
        }
        if ((ready < 0 && errno != EINTR) || left_ns == 0) {
            return false;
        }
    }
}

/* Whether the process of "memory-PID.NUMBER" is dead. No process listens at such a socket yet, so
 * only its maker's death shows that it is a leftover. */
static bool maker_ended(const char *pid_and_number)
{
    char *end = NULL;
    long pid = strtol(pid_and_number, &end, 10);
    return pid > 0 && pid <= INT32_MAX && *end == '.' && kill((pid_t)pid, 0) != 0 && errno == ESRCH;
}

/* Whether no process listens at this socket. Files of other types are not ours, although connect()
 * returns the same error for them. */
static bool is_leftover(const struct sockaddr_un *at)
{
    struct stat status;
    SL_AUTO(close) int fd = socket_open();
    return fd >= 0 && lstat(at->sun_path, &status) == 0 && S_ISSOCK(status.st_mode) &&
           connect(fd, (const struct sockaddr *)at, sizeof(*at)) != 0 && errno == ECONNREFUSED;
}

/* Removes sockets of dead processes: those without a listener, and those never finished. */
static void leftovers_remove(const char *runtime_dir)
{
    SL_AUTO(closedir) DIR *directory = opendir(runtime_dir);
    const struct dirent *entry;
    while (directory != NULL && (entry = readdir(directory)) != NULL) {
        struct sockaddr_un at = {.sun_family = AF_UNIX};
        const char *mark = entry->d_name + sizeof(KIND) - 1;
        if (strncmp(entry->d_name, KIND, sizeof(KIND) - 1) != 0 ||
            (*mark != '.' && (*mark != '-' || !maker_ended(mark + 1)))) {
            continue;
        }
        int used =
            snprintf(at.sun_path, sizeof(at.sun_path), "%s/%.60s", runtime_dir, entry->d_name);
        if (used > 0 && (size_t)used < sizeof(at.sun_path) && is_leftover(&at)) {
            (void)unlink(at.sun_path);
        }
    }
}

/* Listens under server->number; the socket gets its final name only then. */
static sl_err socket_listen(struct sl_descriptors *server, const char *runtime_dir,
                            struct sl_error *why)
{
    struct sockaddr_un fresh, place;
    uint32_t pid = (uint32_t)getpid();
    sl_err err = socket_place(runtime_dir, '-', pid, server->number, &fresh, why);
    if (err != SL_OK) {
        return err;
    }
    (void)socket_place(runtime_dir, '.', pid, server->number, &place, NULL); /* of equal length */
    leftovers_remove(runtime_dir);
    server->fd = socket_open();
    /* The directory is closed to others, so the socket is safe even before chmod. */
    if (server->fd < 0 || bind(server->fd, (const struct sockaddr *)&fresh, sizeof(fresh)) != 0) {
        return sl_fail_os(why, errno, "listen at '%s'", place.sun_path);
    }
    if (chmod(fresh.sun_path, 0600) != 0 || listen(server->fd, BACKLOG) != 0 ||
        rename(fresh.sun_path, place.sun_path) != 0) {
        int os_code = errno;
        (void)unlink(fresh.sun_path);
        return sl_fail_os(why, os_code, "listen at '%s'", place.sun_path);
    }
    server->place = place;
    return SL_OK;
}

/* ---- the giver ---- */

static void fds_close(const struct sl_descriptors_part *part)
{
    for (uint32_t i = 0; i < part->count; i++) {
        (void)close(part->fds[i]);
    }
}

static bool answer_send(int fd, const struct answer_packet *answer,
                        const struct sl_descriptors_part *part, int stop_fd)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int) * SL_DESCRIPTORS_BATCH)];
        struct cmsghdr align;
    } control = {.bytes = {0}};
    struct answer_packet copy = *answer;
    struct iovec bytes = {.iov_base = &copy, .iov_len = sizeof(copy)};
    struct msghdr message = {.msg_iov = &bytes, .msg_iovlen = 1};
    if (answer->count > 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(sizeof(int) * answer->count);
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(sizeof(int) * answer->count);
        memcpy(CMSG_DATA(head), part->fds, sizeof(int) * answer->count);
    }
    uint64_t deadline_ns = sl_deadline_ns(sl_clock_monotonic_ns(), ASKER_NS);
    while (socket_wait(fd, POLLOUT, stop_fd, deadline_ns)) {
        if (sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)sizeof(copy)) {
            return true;
        }
        if (errno != EAGAIN && errno != EINTR) {
            return false;
        }
    }
    return false;
}

/* Sends one packet of a reply. False: it was the last. */
static bool answer_next(struct sl_descriptors *server, int fd,
                        const struct sl_descriptors_request *ask, uint32_t *first)
{
    struct sl_descriptors_part part = {0};
    struct answer_packet answer = {.count = 0};
    struct sl_error why = {0};
    memcpy(answer.magic, answer_magic, sizeof(answer.magic));
    sl_err err = server->give(server->context, ask, *first, &part, &why);
    if (err != SL_OK) {
        answer.code = (uint32_t)err;
        memcpy(answer.text, why.text, sizeof(answer.text));
        (void)answer_send(fd, &answer, &part, server->stop_fd);
        return false;
    }
    SL_ASSERT(part.count > 0 && part.count <= SL_DESCRIPTORS_BATCH);
    answer.count = part.count;
    answer.more = part.more;
    memcpy(answer.lengths, part.lengths, sizeof(answer.lengths));
    bool sent = answer_send(fd, &answer, &part, server->stop_fd);
    fds_close(&part);
    *first += part.count;
    return sent && part.more;
}

static void requester_serve(struct sl_descriptors *server, int fd)
{
    struct ask_packet packet;
    uint32_t first = 0;
    uint64_t deadline_ns = sl_deadline_ns(sl_clock_monotonic_ns(), ASKER_NS);
    if (!is_same_user(fd) || !socket_wait(fd, POLLIN, server->stop_fd, deadline_ns) ||
        recv(fd, &packet, sizeof(packet), MSG_DONTWAIT) != (ssize_t)sizeof(packet) ||
        memcmp(packet.magic, ask_magic, sizeof(ask_magic)) != 0) {
        return;
    }
    while (answer_next(server, fd, &packet.ask, &first)) {
    }
}

static void *server_run(void *at)
{
    struct sl_descriptors *server = at;
    while (socket_wait(server->fd, POLLIN, server->stop_fd, SL_NEVER_NS)) {
        int fd = accept4(server->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            requester_serve(server, fd);
            (void)close(fd);
        } else if (errno == EMFILE || errno == ENFILE) { /* the socket is ready again immediately */
            (void)socket_wait(-1, 0, server->stop_fd,
                              sl_deadline_ns(sl_clock_monotonic_ns(), 100 * SL_NS_PER_MS));
        }
    }
    return NULL;
}

sl_err sl_descriptors_file(const struct sl_descriptors_request *ask,
                           struct sl_descriptors_part *out, struct sl_error *why)
{
    struct stat file;
    int number = ask->address > INT32_MAX ? -1 : (int)ask->address;
    /* Checked before the dup: if the number is by now the pin file's, closing the copy would
     * release its lock. */
    if (ask->life != 0 && fstat(number, &file) == 0 && ask->life != (uint64_t)file.st_ino) {
        return sl_fail(why, SL_ERR_NOT_FOUND, "descriptor %d of process %d is another file now",
                       number, (int)getpid());
    }
    int copy = fcntl(number, F_DUPFD_CLOEXEC, 0);
    if (copy < 0) {
        return sl_fail(why, errno == EMFILE ? SL_ERR_LIMIT : SL_ERR_NOT_FOUND,
                       "process %d has no descriptor %d", (int)getpid(), number);
    }
    *out = (struct sl_descriptors_part){.count = 1, .fds = {copy}};
    return SL_OK;
}

sl_err sl_descriptors_serve(const char *runtime_dir, uint64_t number, sl_descriptors_give_fn give,
                            void *context, struct sl_descriptors **out, struct sl_error *why)
{
    struct sl_descriptors *server = calloc(1, sizeof(*server));
    sigset_t all, before;
    if (server == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for a server of descriptors");
    }
    server->fd = -1;
    server->number = number;
    server->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    server->give = give;
    server->context = context;
    sl_err err = SL_OK;
    if (server->stop_fd < 0 ||
        (number == 0 && getrandom(&server->number, sizeof(number), 0) != (ssize_t)sizeof(number))) {
        err = sl_fail_os(why, errno, "server of descriptors");
    }
    err = err == SL_OK ? socket_listen(server, runtime_dir, why) : err;
    if (err == SL_OK) { /* this thread must not take the process's signals */
        sl_signals_of_others(&all);
        (void)pthread_sigmask(SIG_SETMASK, &all, &before);
        int os_code = pthread_create(&server->thread, NULL, server_run, server);
        (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
        server->started = os_code == 0;
        err = os_code == 0 ? SL_OK : sl_fail_os(why, os_code, "thread for descriptors");
    }
    if (err != SL_OK) {
        sl_descriptors_stop(&server);
        return err;
    }
    *out = server;
    return SL_OK;
}

uint64_t sl_descriptors_number(const struct sl_descriptors *server)
{
    return server->number;
}

void sl_descriptors_stop(struct sl_descriptors **server)
{
    struct sl_descriptors *gone = *server;
    if (gone == NULL) {
        return;
    }
    if (gone->started) {
        (void)eventfd_write(gone->stop_fd, 1);
        (void)pthread_join(gone->thread, NULL);
    }
    if (gone->place.sun_family != AF_UNSPEC) {
        (void)unlink(gone->place.sun_path);
    }
    if (gone->fd >= 0) {
        (void)close(gone->fd);
    }
    if (gone->stop_fd >= 0) {
        (void)close(gone->stop_fd);
    }
    free(gone);
    *server = NULL;
}

/* ---- the requester ---- */

/* Receives a packet. Its descriptors are the caller's to close, whatever the result. */
static sl_err answer_take(int fd, struct answer_packet *answer, struct sl_descriptors_part *part,
                          struct sl_error *why)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int) * SL_DESCRIPTORS_BATCH)];
        struct cmsghdr align;
    } control;
    struct iovec bytes = {.iov_base = answer, .iov_len = sizeof(*answer)};
    struct msghdr message = {.msg_iov = &bytes,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = CMSG_LEN(sizeof(part->fds))};
    ssize_t got = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    int os_code = errno;
    part->count = 0;
    for (struct cmsghdr *at = got < 0 ? NULL : CMSG_FIRSTHDR(&message); at != NULL;
         at = CMSG_NXTHDR(&message, at)) {
        if (at->cmsg_level == SOL_SOCKET && at->cmsg_type == SCM_RIGHTS) {
            size_t taken = SL_MIN(at->cmsg_len - CMSG_LEN(0), sizeof(part->fds));
            memcpy(part->fds, CMSG_DATA(at), taken);
            part->count = (uint32_t)(taken / sizeof(int));
        }
    }
    if (got < 0) {
        return sl_fail_os(why, os_code, "take descriptors");
    }
    if (got == 0) {
        return sl_fail(why, SL_ERR_NOT_FOUND, "the process that owns the memory has ended");
    }
    bool whole = got == (ssize_t)sizeof(*answer) &&
                 (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0 &&
                 memcmp(answer->magic, answer_magic, sizeof(answer->magic)) == 0;
    if (whole && answer->code != 0) {
        answer->text[sizeof(answer->text) - 1] = '\0';
        sl_err code = sl_err_received(answer->code);
        if (sl_err_class(code) ==
            SL_CLASS_RESTART) { /* the giver has to restart, not this process */
            code = SL_ERR_IO;
        }
        return sl_fail(why, code, "%s", answer->text);
    }
    if (!whole || answer->count == 0 || answer->count != part->count) {
        return sl_fail(why, SL_ERR_PROTOCOL,
                       "answer with %u of %u descriptors (too many are open?)", part->count,
                       whole ? answer->count : 0);
    }
    part->more = answer->more != 0;
    memcpy(part->lengths, answer->lengths, sizeof(part->lengths));
    return SL_OK;
}

/* Connects, retrying while the listen queue is full (EAGAIN): that is no error of the giver and
 * cannot be polled for. */
static sl_err source_connect(const struct sl_descriptors_source *source, int fd,
                             uint64_t deadline_ns, struct sl_error *why)
{
    const struct timespec pause = {.tv_nsec = (long)SL_NS_PER_MS};
    struct sockaddr_un at;
    sl_err err = socket_place(source->runtime_dir, '.', source->pid, source->number, &at, why);
    if (err != SL_OK) {
        return err;
    }
    if (fd < 0) {
        return sl_fail_os(why, errno, "socket for '%s'", at.sun_path);
    }
    while (connect(fd, (const struct sockaddr *)&at, sizeof(at)) != 0) {
        if (errno == ENOENT || errno == ECONNREFUSED) {
            return sl_fail(why, SL_ERR_NOT_FOUND,
                           "process %u hands out no memory: no process listens at '%s'",
                           source->pid, at.sun_path);
        }
        if (errno != EAGAIN && errno != EINTR) {
            return sl_fail_os(why, errno, "connect to '%s'", at.sun_path);
        }
        if (sl_clock_monotonic_ns() >= deadline_ns) {
            return sl_fail(why, SL_ERR_TIMEOUT,
                           "process %u does not hand out its memory: too many requests",
                           source->pid);
        }
        (void)nanosleep(&pause, NULL);
    }
    return is_same_user(fd)
               ? SL_OK
               : sl_fail(why, SL_ERR_PERMISSION,
                         "the process that listens at '%s' is another user's", at.sun_path);
}

sl_err sl_descriptors_fetch(const struct sl_descriptors_source *source,
                            const struct sl_descriptors_request *ask, sl_descriptors_take_fn take,
                            void *context, uint64_t deadline_ns, struct sl_error *why)
{
    struct ask_packet packet = {.ask = *ask};
    struct answer_packet answer;
    struct sl_descriptors_part part = {.more = true};
    uint64_t total = 0;
    SL_AUTO(close) int fd = socket_open();
    sl_err err = source_connect(source, fd, deadline_ns, why);
    memcpy(packet.magic, ask_magic, sizeof(packet.magic));
    if (err == SL_OK &&
        send(fd, &packet, sizeof(packet), MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)sizeof(packet)) {
        err = sl_fail_os(why, errno, "ask process %u for memory", source->pid);
    }
    while (err == SL_OK && part.more) {
        if (sl_clock_monotonic_ns() >= deadline_ns || !socket_wait(fd, POLLIN, -1, deadline_ns)) {
            return sl_fail(why, SL_ERR_TIMEOUT, "process %u does not hand out its memory",
                           source->pid);
        }
        err = answer_take(fd, &answer, &part, why);
        total += part.count;
        if (err == SL_OK && total > SL_DESCRIPTORS_MAX) {
            err = sl_fail(why, SL_ERR_LIMIT, "more than %u descriptors", SL_DESCRIPTORS_MAX);
        }
        if (err == SL_OK) {
            err = take(context, &part, why);
        }
        fds_close(&part);
    }
    return err;
}

static sl_err file_take(void *context, const struct sl_descriptors_part *part, struct sl_error *why)
{
    int *fd = context;
    if (*fd >= 0 || part->count != 1) {
        return sl_fail(why, SL_ERR_PROTOCOL, "several descriptors of one file");
    }
    *fd = fcntl(part->fds[0], F_DUPFD_CLOEXEC, 0);
    return *fd >= 0 ? SL_OK : sl_fail_os(why, errno, "copy of a descriptor");
}

sl_err sl_descriptors_fetch_file(const struct sl_descriptors_source *source, int number,
                                 uint64_t inode, uint64_t deadline_ns, int *fd,
                                 struct sl_error *why)
{
    const struct sl_descriptors_request ask = {.address = (uint64_t)number, .life = inode};
    int taken = -1;
    sl_err err = sl_descriptors_fetch(source, &ask, file_take, &taken, deadline_ns, why);
    if (err == SL_OK) {
        *fd = taken;
    } else if (taken >= 0) {
        (void)close(taken);
    }
    return err;
}
