/* runtime/sl_copier.c - see sl_copier.h. */
#include "runtime/sl_copier.h"

#include "runtime/sl_clock.h"
#include "runtime/sl_door.h"
#include "runtime/sl_limits.h"
#include "runtime/sl_signals.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define DOOR_KIND  "copier"
#define ASKERS_MAX 128u /* swappers of 64 ranks, and their successors */
#define CONNECT_NS (20 * SL_NS_PER_MS)
#define HEAD_BYTES 4096u
#define STEP_RUNS  1024u /* IOV_MAX */
#define PAUSE_NS   (100 * SL_NS_PER_MS)

static const char hello_magic[8] = "slcphel1", ask_magic[8] = "slcpask1",
                  answer_magic[8] = "slcpans1";

/* The first page of an area; runs follow. All three are seq_cst: who writes one reads another. */
struct area_head {
    _Atomic uint64_t
        cancelled;            /* of who asks: requests up to this number are not wanted any more */
    _Atomic uint64_t writing; /* of the copier: the request that it writes to its memory for; 0 */
    _Atomic uint32_t thread;  /* of the copier: the number of its thread */
};
struct hello_packet {
    char magic[8];
    uint64_t data_bytes;
    uint32_t run_count;
    uint32_t reserved;
};
struct ask_packet {
    char magic[8];
    uint64_t number; /* grows */
    uint32_t run_count;
    uint32_t to_process;
};
struct answer_packet {
    char magic[8];
    uint64_t number;
    uint32_t code;
    uint32_t reserved;
    char text[SL_ERROR_TEXT_BYTES];
};

/* Head and runs as they are mapped on one side. The data is a file of its own, which the copier
 * does not map: it may shrink at any time. */
struct area {
    unsigned char *base; /* NULL: none */
    uint64_t length_bytes, data_bytes;
    uint32_t run_count;
    int data_fd; /* -1: none */
};

static struct area area_shape(uint64_t data_bytes, uint32_t run_count)
{
    uint64_t runs_bytes = sl_align_up(run_count * sizeof(struct sl_copier_run), HEAD_BYTES);
    return (struct area){.data_bytes = data_bytes,
                         .run_count = run_count,
                         .length_bytes = HEAD_BYTES + runs_bytes,
                         .data_fd = -1};
}

static struct area_head *area_head(const struct area *area)
{
    return (struct area_head *)(void *)area->base;
}

static const volatile struct sl_copier_run *area_runs(const struct area *area)
{
    return (const volatile struct sl_copier_run *)(const void *)(area->base + HEAD_BYTES);
}

static bool area_map(struct area *area, int fd)
{
    void *base = mmap(NULL, area->length_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    area->base = base == MAP_FAILED ? NULL : base;
    return base != MAP_FAILED;
}

static void area_unmap(struct area *area)
{
    if (area->base != NULL) {
        (void)munmap(area->base, area->length_bytes);
        area->base = NULL;
    }
    if (area->data_fd >= 0) {
        (void)close(area->data_fd);
        area->data_fd = -1;
    }
}

/* ---- the copier ---- */

struct asker {
    int fd; /* -1: free */
    struct area area;
};

struct sl_copier {
    struct sl_door door;
    int stop_fd;
    struct sl_copier_range *ranges; /* owned; by address */
    uint32_t range_count;
    struct asker askers[ASKERS_MAX];
    pthread_t thread;
    bool started;
};

static bool run_allowed(const struct sl_copier *copier, const struct sl_copier_run *run)
{
    uint32_t low = 0, high = copier->range_count;
    while (high - low > 1) { /* the last range that does not begin behind it */
        uint32_t middle = low + (high - low) / 2;
        if (copier->ranges[middle].address <= run->address) {
            low = middle;
        } else {
            high = middle;
        }
    }
    const struct sl_copier_range *range = &copier->ranges[low];
    return run->address >= range->address && run->length_bytes <= range->length_bytes &&
           run->address - range->address <= range->length_bytes - run->length_bytes;
}

/* What was asked for is still wanted. */
static bool asker_wants(const struct asker *asker, uint64_t number, int stop_fd)
{
    struct pollfd polled[2] = {{.fd = asker->fd}, {.fd = stop_fd, .events = POLLIN}};
    return atomic_load(&area_head(&asker->area)->cancelled) < number && poll(polled, 2, 0) == 0;
}

/* Runs of a step. */
struct step {
    struct iovec rows[STEP_RUNS];
    uint32_t count;
    uint64_t bytes;
};

/* By the kernel, from and to the file: memory that is not there is an error and no signal, a file
 * that was cut off gives nothing, and who is stopped is stopped before or behind a call. */
static sl_err step_copy(struct step *step, int data_fd, uint64_t *at_bytes, bool to_process,
                        struct sl_error *why)
{
    struct iovec *row = step->rows;
    while (step->count > 0) {
        ssize_t took = to_process ? preadv(data_fd, row, (int)step->count, (off_t)*at_bytes)
                                  : pwritev(data_fd, row, (int)step->count, (off_t)*at_bytes);
        if (took < 0 && errno == EINTR) {
            continue;
        }
        if (took < 0) {
            int os_code = errno;
            step->count = 0;
            return os_code == EFAULT
                       ? sl_fail(why, SL_ERR_STALE, "memory at %p is gone", row->iov_base)
                       : sl_fail_os(why, os_code, "copy %" PRIu64 " bytes", step->bytes);
        }
        if (took == 0) {
            step->count = 0;
            return sl_fail(why, SL_ERR_CANCELLED, "the copy was cancelled");
        }
        *at_bytes += (uint64_t)took;
        for (uint64_t left = (uint64_t)took; left > 0;) {
            uint64_t part = SL_MIN(left, (uint64_t)row->iov_len);
            row->iov_base = (unsigned char *)row->iov_base + part;
            row->iov_len -= part;
            left -= part;
            if (row->iov_len == 0) {
                row++;
                step->count--;
            }
        }
    }
    step->bytes = 0;
    return SL_OK;
}

static sl_err step_send(const struct sl_copier *copier, const struct asker *asker,
                        const struct ask_packet *ask, struct step *step, uint64_t *at_bytes,
                        struct sl_error *why)
{
    return asker_wants(asker, ask->number, copier->stop_fd)
               ? step_copy(step, asker->area.data_fd, at_bytes, ask->to_process != 0, why)
               : sl_fail(why, SL_ERR_CANCELLED, "the copy was cancelled");
}

static sl_err runs_serve(const struct sl_copier *copier, const struct asker *asker,
                         const struct ask_packet *ask, struct sl_error *why)
{
    const struct area *area = &asker->area;
    struct step step = {.count = 0};
    uint64_t added_bytes = 0, at_bytes = 0;
    if (ask->run_count > area->run_count) {
        return sl_fail(why, SL_ERR_PROTOCOL, "%u runs of %u", ask->run_count, area->run_count);
    }
    for (uint32_t i = 0; i < ask->run_count; i++) {
        struct sl_copier_run run = {.address = area_runs(area)[i].address,
                                    .length_bytes = area_runs(area)[i].length_bytes};
        if (run.length_bytes > area->data_bytes - added_bytes || !run_allowed(copier, &run)) {
            return sl_fail(why, SL_ERR_STALE,
                           "run %u, %" PRIu64 " bytes at 0x%" PRIx64 ", is not registered", i,
                           run.length_bytes, run.address);
        }
        added_bytes += run.length_bytes;
        for (uint64_t done = 0; done < run.length_bytes;) {
            uint64_t part = SL_MIN(run.length_bytes - done, SL_COPIER_STEP_BYTES - step.bytes);
            step.rows[step.count++] = (struct iovec){
                .iov_base = (unsigned char *)(uintptr_t)run.address + done, .iov_len = part};
            step.bytes += part;
            done += part;
            if (step.count == STEP_RUNS || step.bytes == SL_COPIER_STEP_BYTES) {
                sl_err err = step_send(copier, asker, ask, &step, &at_bytes, why);
                if (err != SL_OK) {
                    return err;
                }
            }
        }
    }
    return step.count == 0 ? SL_OK : step_send(copier, asker, ask, &step, &at_bytes, why);
}

/* Who takes the request back looks at `writing` after that, so one of the two sees the other. */
static sl_err ask_serve(const struct sl_copier *copier, const struct asker *asker,
                        const struct ask_packet *ask, struct sl_error *why)
{
    struct area_head *head = area_head(&asker->area);
    atomic_store(&head->writing, ask->to_process != 0 ? ask->number : 0);
    sl_err err = runs_serve(copier, asker, ask, why);
    atomic_store(&head->writing, 0);
    return err;
}

static void asker_end(struct asker *asker)
{
    area_unmap(&asker->area);
    (void)close(asker->fd);
    asker->fd = -1;
}

/* What the first packet brings: the area, which may not shrink, since a page that is gone would end
 * this process; and the data. */
static bool asker_hello(struct asker *asker)
{
    union {
        char bytes[CMSG_SPACE(2 * sizeof(int))];
        struct cmsghdr align;
    } control;
    struct hello_packet hello = {.data_bytes = 0};
    struct iovec bytes = {.iov_base = &hello, .iov_len = sizeof(hello)};
    struct msghdr message = {.msg_iov = &bytes,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = CMSG_LEN(2 * sizeof(int))};
    struct stat status;
    int fds[2] = {-1, -1};
    ssize_t got = recvmsg(asker->fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    struct cmsghdr *head = got < 0 ? NULL : CMSG_FIRSTHDR(&message);
    if (head != NULL && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS &&
        head->cmsg_len >= CMSG_LEN(sizeof(int))) {
        memcpy(fds, CMSG_DATA(head), SL_MIN(head->cmsg_len - CMSG_LEN(0), sizeof(fds)));
    }
    bool whole = fds[1] >= 0 && got == (ssize_t)sizeof(hello) &&
                 memcmp(hello.magic, hello_magic, sizeof(hello.magic)) == 0 &&
                 hello.data_bytes <= SL_COPIER_AREA_MAX && fstat(fds[0], &status) == 0;
    if (whole) {
        struct area area = area_shape(hello.data_bytes, hello.run_count);
        int seals = fcntl(fds[0], F_GET_SEALS);
        whole = seals >= 0 && (seals & F_SEAL_SHRINK) != 0 &&
                (uint64_t)status.st_size >= area.length_bytes && area_map(&area, fds[0]);
        if (whole) {
            area.data_fd = fds[1];
            fds[1] = -1;
            asker->area = area;
            atomic_store(&area_head(&area)->thread, (uint32_t)gettid());
        }
    }
    for (unsigned i = 0; i < 2; i++) {
        if (fds[i] >= 0) {
            (void)close(fds[i]);
        }
    }
    return whole;
}

/* A packet of an asker. False: it is left. */
static bool asker_packet(const struct sl_copier *copier, struct asker *asker)
{
    struct ask_packet ask;
    struct answer_packet answer = {.code = SL_OK};
    struct sl_error why = {0};
    if (asker->area.base == NULL) {
        return asker_hello(asker);
    }
    ssize_t got = recv(asker->fd, &ask, sizeof(ask), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
        return true;
    }
    if (got != (ssize_t)sizeof(ask) || memcmp(ask.magic, ask_magic, sizeof(ask.magic)) != 0) {
        return false;
    }
    memcpy(answer.magic, answer_magic, sizeof(answer.magic));
    answer.number = ask.number;
    answer.code = (uint32_t)ask_serve(copier, asker, &ask, &why);
    memcpy(answer.text, why.text, sizeof(answer.text));
    return send(asker->fd, &answer, sizeof(answer), MSG_DONTWAIT | MSG_NOSIGNAL) ==
           (ssize_t)sizeof(answer);
}

/* False: descriptors ran out, and it would be ready again at once. */
static bool asker_accept(struct sl_copier *copier)
{
    int fd = accept4(copier->door.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
        return errno != EMFILE && errno != ENFILE;
    }
    for (uint32_t i = 0; i < ASKERS_MAX && sl_door_same_user(fd); i++) {
        if (copier->askers[i].fd < 0) {
            copier->askers[i] = (struct asker){.fd = fd, .area = {.data_fd = -1}};
            return true;
        }
    }
    (void)close(fd);
    return true;
}

static void *copier_run(void *at)
{
    struct sl_copier *copier = at;
    for (;;) {
        struct pollfd polled[ASKERS_MAX + 2] = {{.fd = copier->stop_fd, .events = POLLIN},
                                                {.fd = copier->door.fd, .events = POLLIN}};
        for (uint32_t i = 0; i < ASKERS_MAX; i++) {
            polled[i + 2] = (struct pollfd){.fd = copier->askers[i].fd, .events = POLLIN};
        }
        if (poll(polled, SL_COUNT(polled), -1) < 0 && errno != EINTR) {
            break;
        }
        if (polled[0].revents != 0) {
            break;
        }
        for (uint32_t i = 0; i < ASKERS_MAX; i++) {
            if (polled[i + 2].revents != 0 && !asker_packet(copier, &copier->askers[i])) {
                asker_end(&copier->askers[i]);
            }
        }
        if (polled[1].revents != 0 && !asker_accept(copier)) {
            (void)sl_door_wait(-1, 0, copier->stop_fd,
                               sl_deadline_ns(sl_clock_monotonic_ns(), PAUSE_NS));
        }
    }
    return NULL;
}

static int range_order(const void *a, const void *b)
{
    const struct sl_copier_range *left = a, *right = b;
    return (left->address > right->address) - (left->address < right->address);
}

/* By address, and those that meet or overlap as one, so that a run may lie in both. */
static sl_err ranges_copy(struct sl_copier *copier, const struct sl_copier_range *ranges,
                          uint32_t range_count, struct sl_error *why)
{
    if (range_count == 0 || range_count > SL_COPIER_RANGES_MAX) {
        return sl_fail(why, range_count == 0 ? SL_ERR_INVALID : SL_ERR_LIMIT,
                       "%u ranges of memory: 1..%u are possible", range_count,
                       SL_COPIER_RANGES_MAX);
    }
    copier->ranges = calloc(range_count, sizeof(*ranges));
    if (copier->ranges == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for %u ranges", range_count);
    }
    memcpy(copier->ranges, ranges, range_count * sizeof(*ranges));
    qsort(copier->ranges, range_count, sizeof(*ranges), range_order);
    for (uint32_t i = 0; i < range_count; i++) {
        struct sl_copier_range range = copier->ranges[i];
        uint64_t end = 0;
        if (range.length_bytes == 0 ||
            __builtin_add_overflow((uint64_t)range.address, range.length_bytes, &end)) {
            return sl_fail(why, SL_ERR_INVALID, "range of %" PRIu64 " bytes at 0x%" PRIxPTR,
                           range.length_bytes, range.address);
        }
        struct sl_copier_range *last =
            copier->range_count == 0 ? NULL : &copier->ranges[copier->range_count - 1];
        if (last != NULL && range.address - last->address <= last->length_bytes) {
            last->length_bytes =
                SL_MAX(last->length_bytes, range.address - last->address + range.length_bytes);
        } else {
            copier->ranges[copier->range_count++] = range;
        }
    }
    return SL_OK;
}

sl_err sl_copier_start(const char *runtime_dir, const struct sl_copier_range *ranges,
                       uint32_t range_count, struct sl_copier **out, struct sl_error *why)
{
    struct sl_copier *copier = calloc(1, sizeof(*copier));
    sigset_t all, before;
    if (copier == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for a copier");
    }
    copier->door.fd = -1;
    for (uint32_t i = 0; i < ASKERS_MAX; i++) {
        copier->askers[i].fd = -1;
    }
    copier->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    sl_err err = copier->stop_fd < 0 ? sl_fail_os(why, errno, "eventfd for a copier")
                                     : ranges_copy(copier, ranges, range_count, why);
    if (err == SL_OK) {
        err = sl_door_open(runtime_dir, DOOR_KIND, &copier->door, why);
    }
    if (err == SL_OK) { /* the process's signals are not this thread's */
        sl_signals_of_others(&all);
        (void)pthread_sigmask(SIG_SETMASK, &all, &before);
        int os_code = pthread_create(&copier->thread, NULL, copier_run, copier);
        (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
        copier->started = os_code == 0;
        err = os_code == 0 ? SL_OK : sl_fail_os(why, os_code, "thread for a copier");
    }
    if (err != SL_OK) {
        sl_copier_stop(&copier);
        return err;
    }
    *out = copier;
    return SL_OK;
}

uint64_t sl_copier_number(const struct sl_copier *copier)
{
    return copier->door.number;
}

void sl_copier_stop(struct sl_copier **copier)
{
    struct sl_copier *gone = *copier;
    if (gone == NULL) {
        return;
    }
    if (gone->started) {
        (void)eventfd_write(gone->stop_fd, 1);
        (void)pthread_join(gone->thread, NULL);
    }
    for (uint32_t i = 0; i < ASKERS_MAX; i++) {
        if (gone->askers[i].fd >= 0) {
            asker_end(&gone->askers[i]);
        }
    }
    sl_door_close(&gone->door);
    if (gone->stop_fd >= 0) {
        (void)close(gone->stop_fd);
    }
    free(gone->ranges);
    free(gone);
    *copier = NULL;
}

/* ---- who asks ---- */

struct sl_copier_link {
    int fd;
    uint32_t pid;
    uint64_t number; /* of the last request */
    struct area area;
    unsigned char *data; /* NULL: none, or it was taken back */
    bool over;           /* the request that was taken back has ended, or the process */
};

static sl_err peer_check(int fd, struct sl_proc_id proc, struct sl_error *why)
{
    struct ucred peer;
    socklen_t size = sizeof(peer);
    struct sl_proc_id id = {0};
    if (!sl_door_same_user(fd)) {
        return sl_fail(why, SL_ERR_PERMISSION, "the copier of process %u is another user's",
                       proc.pid);
    }
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
        return sl_fail_os(why, errno, "ask who the copier is");
    }
    sl_err err = sl_proc_id_of((uint32_t)peer.pid, &id, why);
    if (err == SL_OK && !sl_proc_id_equal(id, proc)) {
        err = sl_fail(why, SL_ERR_NOT_FOUND, "the copier of process %u is process %u's", proc.pid,
                      (uint32_t)peer.pid);
    }
    return err;
}

/* The area, which nobody can shrink, and the data, which we shrink when we take it back. */
static sl_err area_make(struct sl_copier_link *link, const struct sl_copier_room *room, int *fd,
                        struct sl_error *why)
{
    link->area = area_shape(room->data_bytes, room->run_count);
    if (room->data_bytes > SL_COPIER_AREA_MAX) {
        return sl_fail(why, SL_ERR_LIMIT,
                       "a copier takes up to %" PRIu64 " bytes at a time, not %" PRIu64,
                       SL_COPIER_AREA_MAX, room->data_bytes);
    }
    *fd = memfd_create("sluice-copier", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (*fd < 0 || sl_file_resize(*fd, link->area.length_bytes) != 0 ||
        fcntl(*fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0 ||
        !area_map(&link->area, *fd)) {
        return sl_fail_os(why, errno, "%" PRIu64 " bytes for a copier", link->area.length_bytes);
    }
    link->area.data_fd = memfd_create("sluice-copies", MFD_CLOEXEC);
    if (link->area.data_fd < 0 || sl_file_resize(link->area.data_fd, room->data_bytes) != 0) {
        return sl_fail_os(why, errno, "%" PRIu64 " bytes for a copier", room->data_bytes);
    }
    void *data =
        mmap(NULL, room->data_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, link->area.data_fd, 0);
    if (data == MAP_FAILED) {
        return sl_fail_os(why, errno, "map %" PRIu64 " bytes for a copier", room->data_bytes);
    }
    link->data = data;
    return SL_OK;
}

static sl_err hello_send(const struct sl_copier_link *link, int area_fd, struct sl_error *why)
{
    union {
        char bytes[CMSG_SPACE(2 * sizeof(int))];
        struct cmsghdr align;
    } control = {.bytes = {0}};
    struct hello_packet hello = {.data_bytes = link->area.data_bytes,
                                 .run_count = link->area.run_count};
    const int fds[2] = {area_fd, link->area.data_fd};
    struct iovec bytes = {.iov_base = &hello, .iov_len = sizeof(hello)};
    struct msghdr message = {.msg_iov = &bytes,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    memcpy(hello.magic, hello_magic, sizeof(hello.magic));
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(fds));
    memcpy(CMSG_DATA(head), fds, sizeof(fds));
    return sendmsg(link->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)sizeof(hello)
               ? SL_OK
               : sl_fail_os(why, errno, "greet the copier of process %u", link->pid);
}

static sl_err link_connect(struct sl_copier_link *link, const char *path, struct sl_error *why)
{
    link->fd = sl_door_socket();
    if (link->fd < 0) {
        return sl_fail_os(why, errno, "socket for '%s'", path);
    }
    int os_code =
        sl_door_connect(link->fd, path, sl_deadline_ns(sl_clock_monotonic_ns(), CONNECT_NS));
    switch (os_code) {
    case 0:
        return SL_OK;
    case EAGAIN:
        return sl_fail(why, SL_ERR_TIMEOUT, "process %u does not copy: too many have asked it",
                       link->pid);
    case ENOENT:
    case ECONNREFUSED:
        return sl_fail(why, SL_ERR_NOT_FOUND, "process %u does not copy: nobody at '%s'", link->pid,
                       path);
    default:
        return sl_fail_os(why, os_code, "connect to '%s'", path);
    }
}

sl_err sl_copier_connect(const char *runtime_dir, struct sl_proc_id proc, uint64_t number,
                         const struct sl_copier_room *room, struct sl_copier_link **out,
                         struct sl_error *why)
{
    char path[SL_DOOR_PATH_BYTES];
    int area_fd = -1;
    struct sl_copier_link *link = calloc(1, sizeof(*link));
    if (link == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for a link to process %u", proc.pid);
    }
    *link = (struct sl_copier_link){.fd = -1, .pid = proc.pid, .area = {.data_fd = -1}};
    sl_err err = sl_door_path(runtime_dir, DOOR_KIND, proc.pid, number, path, why);
    if (err == SL_OK) {
        err = link_connect(link, path, why);
    }
    if (err == SL_OK) {
        err = peer_check(link->fd, proc, why);
    }
    if (err == SL_OK) {
        err = area_make(link, room, &area_fd, why);
    }
    if (err == SL_OK) {
        err = hello_send(link, area_fd, why);
    }
    if (area_fd >= 0) {
        (void)close(area_fd);
    }
    if (err != SL_OK) {
        sl_copier_disconnect(&link);
        return err;
    }
    *out = link;
    return SL_OK;
}

struct sl_copier_run *sl_copier_runs(struct sl_copier_link *link)
{
    return (struct sl_copier_run *)(void *)(link->area.base + HEAD_BYTES);
}

unsigned char *sl_copier_data(struct sl_copier_link *link)
{
    SL_ASSERT(link->data != NULL);
    return link->data;
}

sl_err sl_copier_ask(struct sl_copier_link *link, uint32_t run_count, bool to_process,
                     struct sl_error *why)
{
    struct ask_packet ask = {
        .number = ++link->number, .run_count = run_count, .to_process = to_process};
    memcpy(ask.magic, ask_magic, sizeof(ask.magic));
    if (send(link->fd, &ask, sizeof(ask), MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)sizeof(ask)) {
        return SL_OK;
    }
    return errno == EPIPE || errno == ECONNRESET
               ? sl_fail(why, SL_ERR_NOT_FOUND, "process %u copies no more", link->pid)
               : sl_fail_os(why, errno, "ask process %u to copy", link->pid);
}

sl_err sl_copier_poll(struct sl_copier_link *link, bool *over, struct sl_error *why)
{
    struct answer_packet answer;
    *over = false;
    ssize_t got = recv(link->fd, &answer, sizeof(answer), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
        return SL_OK;
    }
    *over = true;
    if (got <= 0) {
        return sl_fail(why, SL_ERR_NOT_FOUND, "process %u is gone, or copies no more", link->pid);
    }
    if (got != (ssize_t)sizeof(answer) || answer.number != link->number ||
        memcmp(answer.magic, answer_magic, sizeof(answer.magic)) != 0) {
        return sl_fail(why, SL_ERR_PROTOCOL, "process %u answers something else", link->pid);
    }
    if (answer.code == SL_OK) {
        return SL_OK;
    }
    answer.text[sizeof(answer.text) - 1] = '\0';
    sl_err code = sl_err_received(answer.code);
    if (code != SL_ERR_STALE && code != SL_ERR_CANCELLED) {
        code = SL_ERR_PROTOCOL;
    }
    return sl_fail(why, code, "process %u: %s", link->pid, answer.text);
}

void sl_copier_cancel(struct sl_copier_link *link)
{
    atomic_store(&area_head(&link->area)->cancelled, link->number);
}

static void data_unmap(struct sl_copier_link *link)
{
    if (link->data != NULL) {
        (void)munmap(link->data, link->area.data_bytes);
        link->data = NULL;
    }
}

void sl_copier_revoke(struct sl_copier_link *link)
{
    sl_copier_cancel(link);
    data_unmap(link); /* a page that is gone would end this process */
    int gone;
    do {
        gone = ftruncate(link->area.data_fd, 0);
    } while (gone != 0 && errno == EINTR);
    SL_ASSERT(gone == 0);
}

/* Whether the copier's thread is stopped: then it is in no call of the kernel, and its next one
 * finds no data. */
static bool thread_stopped(const struct sl_copier_link *link)
{
    char path[64], text[512];
    (void)snprintf(path, sizeof(path), "/proc/%u/task/%u/stat", link->pid,
                   atomic_load(&area_head(&link->area)->thread));
    SL_AUTO(close) int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (length <= 0) {
        return false;
    }
    text[length] = '\0';
    const char *name_end = strrchr(text, ')'); /* the name may be anything */
    return name_end != NULL && name_end[1] == ' ' && strchr("TtZX", name_end[2]) != NULL;
}

bool sl_copier_settled(struct sl_copier_link *link)
{
    struct sl_error why;
    if (!link->over) {
        (void)sl_copier_poll(link, &link->over, &why);
    }
    return link->over || atomic_load(&area_head(&link->area)->writing) != link->number ||
           thread_stopped(link);
}

void sl_copier_disconnect(struct sl_copier_link **link)
{
    struct sl_copier_link *gone = *link;
    if (gone == NULL) {
        return;
    }
    if (gone->data != NULL) {
        sl_copier_revoke(gone);
    }
    area_unmap(&gone->area);
    if (gone->fd >= 0) {
        (void)close(gone->fd);
    }
    free(gone);
    *link = NULL;
}
