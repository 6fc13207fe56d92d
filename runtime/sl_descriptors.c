/* runtime/sl_descriptors.c - see sl_descriptors.h. One asker at a time: an answer takes as long as
 * the giver needs to make descriptors, and an asker that does not read its answer is left. */
#include "runtime/sl_descriptors.h"

#include "runtime/sl_clock.h"

#include <dirent.h>
#include <errno.h>
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

#define BACKLOG     16
#define ASKER_NS    (2 * SL_NS_PER_S) /* for each packet of an asker */
#define FILE_PREFIX "memory."
/* Until somebody listens: without that the socket looks as if a dead process had left it. */
#define FRESH_PREFIX "memory-"

static const char ask_magic[8] = "slfdask1", answer_magic[8] = "slfdans1";

struct ask_packet {
    char magic[8];
    struct sl_descriptors_ask ask;
};
struct answer_packet {
    char magic[8];
    uint32_t code; /* not 0: text says why, and this is the last packet */
    uint32_t count;
    uint32_t more;
    uint32_t reserved;
    uint64_t lengths[SL_DESCRIPTORS_BATCH];
    char text[SL_ERROR_TEXT_BYTES];
};

struct sl_descriptors {
    int listen_fd, stop_fd;
    char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
    uint64_t number;
    sl_descriptors_give_fn give;
    void *context;
    pthread_t thread;
    bool started;
};

/* ---- sockets ---- */

static sl_err address_of(const char *runtime_dir, const char *prefix, uint32_t pid, uint64_t number,
                         struct sockaddr_un *out, struct sl_error *why)
{
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    int length = snprintf(out->sun_path, sizeof(out->sun_path), "%s/%s%" PRIu32 ".%016" PRIx64,
                          runtime_dir, prefix, pid, number);
    return length > 0 && (size_t)length < sizeof(out->sun_path)
               ? SL_OK
               : sl_fail(why, SL_ERR_INVALID, "'%.80s...' is too long for a socket", runtime_dir);
}

static int socket_make(void)
{
    return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

static bool is_same_user(int fd)
{
    struct ucred peer;
    socklen_t size = sizeof(peer);
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

/* Waits until something can be done with fd, or other_fd (-1: none) is readable. False: neither by
 * the deadline, or the other. */
static bool fd_wait(int fd, short events, int other_fd, uint64_t deadline_ns)
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
    while (fd_wait(fd, POLLOUT, stop_fd, deadline_ns)) {
        if (sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)sizeof(copy)) {
            return true;
        }
        if (errno != EAGAIN && errno != EINTR) {
            return false;
        }
    }
    return false;
}

/* One packet of an answer. False: it was the last. */
static bool answer_next(struct sl_descriptors *server, int fd, const struct sl_descriptors_ask *ask,
                        uint32_t *first)
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

static void asker_serve(struct sl_descriptors *server, int fd)
{
    struct ask_packet packet;
    uint32_t first = 0;
    uint64_t deadline_ns = sl_deadline_ns(sl_clock_monotonic_ns(), ASKER_NS);
    if (!is_same_user(fd) || !fd_wait(fd, POLLIN, server->stop_fd, deadline_ns) ||
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
    while (fd_wait(server->listen_fd, POLLIN, server->stop_fd, SL_NEVER_NS)) {
        int fd = accept4(server->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            asker_serve(server, fd);
            (void)close(fd);
        } else if (errno == EMFILE || errno == ENFILE) { /* it would be ready again at once */
            (void)fd_wait(-1, 0, server->stop_fd,
                          sl_deadline_ns(sl_clock_monotonic_ns(), 100 * SL_NS_PER_MS));
        }
    }
    return NULL;
}

/* A socket at which nobody listens any more was left by a process that was killed. */
static void leftovers_remove(const char *runtime_dir)
{
    DIR *directory = opendir(runtime_dir);
    const struct dirent *entry;
    while (directory != NULL && (entry = readdir(directory)) != NULL) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        int length = snprintf(address.sun_path, sizeof(address.sun_path), "%s/%.40s", runtime_dir,
                              entry->d_name);
        if (strncmp(entry->d_name, FILE_PREFIX, strlen(FILE_PREFIX)) != 0 || length < 0 ||
            (size_t)length >= sizeof(address.sun_path)) {
            continue;
        }
        SL_AUTO(close) int fd = socket_make();
        if (fd >= 0 && connect(fd, (const struct sockaddr *)&address, sizeof(address)) != 0 &&
            errno == ECONNREFUSED) {
            (void)unlink(address.sun_path);
        }
    }
    if (directory != NULL) {
        (void)closedir(directory);
    }
}

static sl_err server_listen(struct sl_descriptors *server, const char *runtime_dir,
                            struct sl_error *why)
{
    struct sockaddr_un address, fresh;
    if (getrandom(&server->number, sizeof(server->number), 0) != (ssize_t)sizeof(server->number)) {
        return sl_fail_os(why, errno, "getrandom");
    }
    uint32_t pid = (uint32_t)getpid();
    sl_err err = address_of(runtime_dir, FILE_PREFIX, pid, server->number, &address, why);
    if (err == SL_OK) {
        err = address_of(runtime_dir, FRESH_PREFIX, pid, server->number, &fresh, why);
    }
    if (err != SL_OK) {
        return err;
    }
    server->listen_fd = socket_make();
    server->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (server->listen_fd < 0 || server->stop_fd < 0) {
        return sl_fail_os(why, errno, "socket for '%s'", address.sun_path);
    }
    /* The directory is closed to others, so that the moment before chmod is, too. */
    if (bind(server->listen_fd, (const struct sockaddr *)&fresh, sizeof(fresh)) != 0) {
        return sl_fail_os(why, errno, "listen at '%s'", address.sun_path);
    }
    memcpy(server->path, fresh.sun_path, sizeof(server->path));
    if (chmod(fresh.sun_path, 0600) != 0 || listen(server->listen_fd, BACKLOG) != 0 ||
        rename(fresh.sun_path, address.sun_path) != 0) {
        return sl_fail_os(why, errno, "listen at '%s'", address.sun_path);
    }
    memcpy(server->path, address.sun_path, sizeof(server->path));
    return SL_OK;
}

sl_err sl_descriptors_serve(const char *runtime_dir, sl_descriptors_give_fn give, void *context,
                            struct sl_descriptors **out, struct sl_error *why)
{
    struct sl_descriptors *server = calloc(1, sizeof(*server));
    sigset_t all, before;
    if (server == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for a server of descriptors");
    }
    server->listen_fd = server->stop_fd = -1;
    server->give = give;
    server->context = context;
    leftovers_remove(runtime_dir);
    sl_err err = server_listen(server, runtime_dir, why);
    if (err == SL_OK) { /* the process's signals are not this thread's */
        (void)sigfillset(&all);
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
    if (gone->path[0] != '\0') {
        (void)unlink(gone->path);
    }
    if (gone->listen_fd >= 0) {
        (void)close(gone->listen_fd);
    }
    if (gone->stop_fd >= 0) {
        (void)close(gone->stop_fd);
    }
    free(gone);
    *server = NULL;
}

/* ---- the asker ---- */

/* Descriptors that came are the caller's to close, whatever the result. */
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
                             .msg_controllen = sizeof(control.bytes)};
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
        return sl_fail(why, SL_ERR_NOT_FOUND, "the process that has the memory is gone");
    }
    bool whole = got == (ssize_t)sizeof(*answer) &&
                 (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0 &&
                 memcmp(answer->magic, answer_magic, sizeof(answer->magic)) == 0;
    if (whole && answer->code != 0) {
        answer->text[sizeof(answer->text) - 1] = '\0';
        sl_err code = sl_err_received(answer->code);
        if (sl_err_class(code) == SL_CLASS_RESTART) { /* the giver has to restart, not we */
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

/* A queue that is full (EAGAIN) is no error of the giver's, and cannot be polled for. */
static int connect_wait(int fd, const struct sockaddr_un *address, uint64_t deadline_ns)
{
    const struct timespec pause = {.tv_nsec = (long)SL_NS_PER_MS};
    for (;;) {
        if (connect(fd, (const struct sockaddr *)address, sizeof(*address)) == 0) {
            return 0;
        }
        if (errno != EAGAIN && errno != EINTR) {
            return errno;
        }
        if (sl_clock_monotonic_ns() >= deadline_ns) {
            return EAGAIN;
        }
        (void)nanosleep(&pause, NULL);
    }
}

static sl_err source_connect(const struct sl_descriptors_source *source, int fd,
                             uint64_t deadline_ns, struct sl_error *why)
{
    struct sockaddr_un address;
    sl_err err =
        address_of(source->runtime_dir, FILE_PREFIX, source->pid, source->number, &address, why);
    if (err != SL_OK) {
        return err;
    }
    if (fd < 0) {
        return sl_fail_os(why, errno, "socket for '%s'", address.sun_path);
    }
    int os_code = connect_wait(fd, &address, deadline_ns);
    if (os_code == EAGAIN) {
        return sl_fail(why, SL_ERR_TIMEOUT, "process %u does not hand out its memory: too many ask",
                       source->pid);
    }
    if (os_code != 0) {
        return os_code == ENOENT || os_code == ECONNREFUSED
                   ? sl_fail(why, SL_ERR_NOT_FOUND,
                             "process %u hands out no memory: nobody at '%s'", source->pid,
                             address.sun_path)
                   : sl_fail_os(why, os_code, "connect to '%s'", address.sun_path);
    }
    return is_same_user(fd) ? SL_OK
                            : sl_fail(why, SL_ERR_PERMISSION, "who listens at '%s' is another user",
                                      address.sun_path);
}

sl_err sl_descriptors_fetch(const struct sl_descriptors_source *source,
                            const struct sl_descriptors_ask *ask, sl_descriptors_take_fn take,
                            void *context, uint64_t deadline_ns, struct sl_error *why)
{
    struct ask_packet packet = {.ask = *ask};
    struct answer_packet answer;
    struct sl_descriptors_part part = {.more = true};
    uint64_t total = 0;
    SL_AUTO(close) int fd = socket_make();
    sl_err err = source_connect(source, fd, deadline_ns, why);
    memcpy(packet.magic, ask_magic, sizeof(packet.magic));
    if (err == SL_OK &&
        send(fd, &packet, sizeof(packet), MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)sizeof(packet)) {
        err = sl_fail_os(why, errno, "ask process %u for memory", source->pid);
    }
    while (err == SL_OK && part.more) {
        if (sl_clock_monotonic_ns() >= deadline_ns || !fd_wait(fd, POLLIN, -1, deadline_ns)) {
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
