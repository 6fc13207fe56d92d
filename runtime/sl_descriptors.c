/* runtime/sl_descriptors.c - see sl_descriptors.h. One asker at a time: an answer takes as long as
 * the giver needs to make descriptors, and an asker that does not read its answer is left. */
#include "runtime/sl_descriptors.h"

#include "runtime/sl_clock.h"
#include "runtime/sl_door.h"
#include "runtime/sl_signals.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define ASKER_NS  (2 * SL_NS_PER_S) /* for each packet of an asker */
#define DOOR_KIND "memory"

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
    struct sl_door door;
    int stop_fd;
    sl_descriptors_give_fn give;
    void *context;
    pthread_t thread;
    bool started;
};

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
    while (sl_door_wait(fd, POLLOUT, stop_fd, deadline_ns)) {
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
    if (!sl_door_same_user(fd) || !sl_door_wait(fd, POLLIN, server->stop_fd, deadline_ns) ||
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
    while (sl_door_wait(server->door.fd, POLLIN, server->stop_fd, SL_NEVER_NS)) {
        int fd = accept4(server->door.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            asker_serve(server, fd);
            (void)close(fd);
        } else if (errno == EMFILE || errno == ENFILE) { /* it would be ready again at once */
            (void)sl_door_wait(-1, 0, server->stop_fd,
                               sl_deadline_ns(sl_clock_monotonic_ns(), 100 * SL_NS_PER_MS));
        }
    }
    return NULL;
}

sl_err sl_descriptors_file(const struct sl_descriptors_ask *ask, struct sl_descriptors_part *out,
                           struct sl_error *why)
{
    struct stat file;
    int number = ask->address > INT32_MAX ? -1 : (int)ask->address;
    /* Before it is copied: to close a copy of what is the pin file by now would end its lock. */
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
    server->door.fd = -1;
    server->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    server->give = give;
    server->context = context;
    sl_err err = server->stop_fd < 0
                     ? sl_fail_os(why, errno, "eventfd for descriptors")
                     : sl_door_open(runtime_dir, DOOR_KIND, number, &server->door, why);
    if (err == SL_OK) { /* the process's signals are not this thread's */
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
    return server->door.number;
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
    sl_door_close(&gone->door);
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

static sl_err source_connect(const struct sl_descriptors_source *source, int fd,
                             uint64_t deadline_ns, struct sl_error *why)
{
    char path[SL_DOOR_PATH_BYTES];
    sl_err err =
        sl_door_path(source->runtime_dir, DOOR_KIND, source->pid, source->number, path, why);
    if (err != SL_OK) {
        return err;
    }
    if (fd < 0) {
        return sl_fail_os(why, errno, "socket for '%s'", path);
    }
    int os_code = sl_door_connect(fd, path, deadline_ns);
    if (os_code == EAGAIN) {
        return sl_fail(why, SL_ERR_TIMEOUT, "process %u does not hand out its memory: too many ask",
                       source->pid);
    }
    if (os_code != 0) {
        return os_code == ENOENT || os_code == ECONNREFUSED
                   ? sl_fail(why, SL_ERR_NOT_FOUND,
                             "process %u hands out no memory: nobody at '%s'", source->pid, path)
                   : sl_fail_os(why, os_code, "connect to '%s'", path);
    }
    return sl_door_same_user(fd)
               ? SL_OK
               : sl_fail(why, SL_ERR_PERMISSION, "who listens at '%s' is another user", path);
}

sl_err sl_descriptors_fetch(const struct sl_descriptors_source *source,
                            const struct sl_descriptors_ask *ask, sl_descriptors_take_fn take,
                            void *context, uint64_t deadline_ns, struct sl_error *why)
{
    struct ask_packet packet = {.ask = *ask};
    struct answer_packet answer;
    struct sl_descriptors_part part = {.more = true};
    uint64_t total = 0;
    SL_AUTO(close) int fd = sl_door_socket();
    sl_err err = source_connect(source, fd, deadline_ns, why);
    memcpy(packet.magic, ask_magic, sizeof(packet.magic));
    if (err == SL_OK &&
        send(fd, &packet, sizeof(packet), MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)sizeof(packet)) {
        err = sl_fail_os(why, errno, "ask process %u for memory", source->pid);
    }
    while (err == SL_OK && part.more) {
        if (sl_clock_monotonic_ns() >= deadline_ns || !sl_door_wait(fd, POLLIN, -1, deadline_ns)) {
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
    const struct sl_descriptors_ask ask = {.address = (uint64_t)number, .life = inode};
    int taken = -1;
    sl_err err = sl_descriptors_fetch(source, &ask, file_take, &taken, deadline_ns, why);
    if (err == SL_OK) {
        *fd = taken;
    } else if (taken >= 0) {
        (void)close(taken);
    }
    return err;
}
