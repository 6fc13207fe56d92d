/* ipc/msg/sl_lane.c - offers, accepts and checks a pair of rings over a Unix socket. */
#include "ipc/msg/sl_lane.h"
#include "ipc/msg/msg_internal.h"
#include "runtime/base/sl_limits.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

/* Connections that wait to be accepted: all clients connect at once to an actor that starts. */
#define BACKLOG        128
#define STALE_TRIES    20u
#define STALE_SLEEP_NS (10 * SL_NS_PER_MS)
/* Memory: one page for both rings' positions, then the offerer's ring, then the acceptor's. */
#define RINGS_OFFSET_BYTES  4096u
#define SECOND_OFFSET_BYTES 2048u
#define SEALS_NEEDED        (F_SEAL_SHRINK | F_SEAL_GROW)
#define SEALS_OF_LONG       (SEALS_NEEDED | F_SEAL_WRITE)
_Static_assert(sizeof(struct sl_queue_shared) <= SECOND_OFFSET_BYTES, "two of them in a page");

/* Sent over the socket, once each way. Fixed width, no padding. */
struct offer {
    char magic[8];
    uint32_t version;
    uint32_t reserved; /* 0 */
    uint64_t ring_bytes;
    char name[SL_LANE_NAME_BYTES]; /* zero-terminated */
};
struct answer {
    char magic[8];
    uint32_t version;
    uint32_t code;
};
_Static_assert(sizeof(struct offer) == 56 && sizeof(struct answer) == 16, "wire layout");
static const char offer_magic[8] = {'s', 'l', 'l', 'a', 'n', 'e', '>', '\n'};
static const char answer_magic[8] = {'s', 'l', 'l', 'a', 'n', 'e', '<', '\n'};

/* A doorbell holds one page of rings, and is emptied long before. There is at most one ring per
 * sleep, so only a hostile process can fill it. */
#define BELL_BYTES    4096
#define RINGS_AT_ONCE 64u
#define BELLS_NAME    "pipe:["

enum { FD_MEMORY, FD_OFFERERS_BELL, FD_ACCEPTORS_BELL, FD_COUNT };

void sl_lane_init(struct sl_lane *lane)
{
    *lane = (struct sl_lane){.socket_fd = -1, .doorbell_fd = -1, .peer_bell_fd = -1};
}

static void fd_close(int *fd)
{
    if (*fd >= 0) {
        (void)close(*fd);
        *fd = -1;
    }
}

void sl_lane_close(struct sl_lane *lane)
{
    if (lane->memory != NULL) {
        (void)munmap(lane->memory, lane->memory_bytes);
    }
    fd_close(&lane->socket_fd);
    fd_close(&lane->doorbell_fd);
    fd_close(&lane->peer_bell_fd);
    sl_lane_init(lane);
}

sl_err sl_lane_path(const char *runtime_dir, const char *name, char *out, size_t out_bytes)
{
    int length = snprintf(out, out_bytes, "%s/%.31s.sock", runtime_dir, name);
    size_t most = SL_MIN(out_bytes, sizeof(((struct sockaddr_un *)0)->sun_path));
    return length > 0 && (size_t)length < most ? SL_OK : SL_ERR_INVALID;
}

/* ----------------------------------------------- sockets */

static struct sockaddr_un address_of(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    return address;
}

static int socket_make(void)
{
    /* SEQPACKET: an offer arrives completely or not at all. */
    return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

/* Whether a process listens there. A killed one may seem to, until the kernel has removed its
 * mappings. */
static bool is_served(const struct sockaddr_un *address)
{
    bool served = true;
    for (uint32_t i = 0; i < STALE_TRIES && served; i++) {
        const struct timespec pause = {.tv_nsec = i == 0 ? 0 : (long)STALE_SLEEP_NS};
        (void)nanosleep(&pause, NULL);
        int fd = socket_make();
        served = fd >= 0 && (connect(fd, (const struct sockaddr *)address, sizeof(*address)) == 0 ||
                             (errno != ENOENT && errno != ECONNREFUSED));
        fd_close(&fd);
    }
    return served;
}

sl_err sl_lane_listen(const char *path, int *fd, struct sl_error *why)
{
    const struct sockaddr_un address = address_of(path);
    if (is_served(&address)) {
        return sl_fail(why, SL_ERR_EXISTS, "a process listens at %s already", path);
    }
    int made = socket_make();
    if (made < 0) {
        return sl_fail_os(why, errno, "socket for '%s'", path);
    }
    (void)unlink(path);
    mode_t before = umask(0177); /* never exists with wider rights; one thread so far */
    int rc = bind(made, (const struct sockaddr *)&address, sizeof(address));
    int os_code = errno;
    (void)umask(before);
    if (rc == 0 && listen(made, BACKLOG) != 0) {
        rc = -1;
        os_code = errno;
    }
    if (rc != 0) {
        (void)close(made);
        return sl_fail_os(why, os_code, "listen at '%s'", path);
    }
    *fd = made;
    return SL_OK;
}

/* Asks the kernel for the user at the other end. pid may be NULL. */
static bool is_same_user(int fd, uint32_t *pid)
{
    struct ucred peer;
    socklen_t size = sizeof(peer);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.uid != geteuid()) {
        return false;
    }
    if (pid != NULL) {
        *pid = (uint32_t)peer.pid;
    }
    return true;
}

/* Receives one packet, with descriptors if fds is given: FD_COUNT of them, or none (-1 each). The
 * caller owns those received, whatever the result. Returns the length; 0: the end; -1: errno. */
static ssize_t packet_take(int fd, void *bytes, size_t room, int *fds)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int) * FD_COUNT)];
        struct cmsghdr align;
    } control;
    struct iovec part = {.iov_base = bytes, .iov_len = room};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (fds != NULL) {
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_LEN(sizeof(int) * FD_COUNT); /* padding fits one more */
    }
    ssize_t got = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0 && errno == ECONNRESET) { /* reported once, if the peer died with unread packets */
        got = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    }
    for (struct cmsghdr *at = got < 0 || fds == NULL ? NULL : CMSG_FIRSTHDR(&message); at != NULL;
         at = CMSG_NXTHDR(&message, at)) {
        if (at->cmsg_level == SOL_SOCKET && at->cmsg_type == SCM_RIGHTS) {
            size_t bytes_taken = SL_MIN(at->cmsg_len - CMSG_LEN(0), sizeof(int) * FD_COUNT);
            memcpy(fds, CMSG_DATA(at), bytes_taken);
        }
    }
    if (got >= 0 && (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
        /* Truncated although there was room for more: this process may have no more descriptors. */
        bool full = fds != NULL && fds[FD_COUNT - 1] < 0 && (message.msg_flags & MSG_TRUNC) == 0;
        errno = full ? EMFILE : EMSGSIZE;
        return -1;
    }
    return got;
}

/* ----------------------------------------------- memory */

static uint64_t memory_bytes_of(uint64_t ring_bytes)
{
    return RINGS_OFFSET_BYTES + 2 * ring_bytes;
}

/* Maps the rings. offers: we write the first ring, otherwise the second. */
static bool lane_map(struct sl_lane *lane, int memory_fd, uint64_t ring_bytes, bool offers)
{
    uint64_t bytes = memory_bytes_of(ring_bytes);
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory_fd, 0);
    if (at == MAP_FAILED) {
        return false;
    }
    lane->memory = at;
    lane->memory_bytes = bytes;
    unsigned char *base = at;
    struct sl_queue_shared *shared[] = {at, (void *)(base + SECOND_OFFSET_BYTES)};
    unsigned char *rings[] = {base + RINGS_OFFSET_BYTES, base + RINGS_OFFSET_BYTES + ring_bytes};
    int mine = offers ? 0 : 1;
    sl_queue_writer_init(&lane->writer, shared[mine], rings[mine], ring_bytes);
    sl_queue_reader_init(&lane->reader, shared[1 - mine], rings[1 - mine], ring_bytes);
    return true;
}

/* ----------------------------------------------- doorbells */

/* Only a pipe: another kind of descriptor could block the process that rings it. The link of a file
 * with a path begins differently. */
static bool is_doorbell(int fd)
{
    char link[32];
    char kind[sizeof(BELLS_NAME)] = {0};
    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    return readlink(link, kind, sizeof(kind) - 1) == (ssize_t)sizeof(kind) - 1 &&
           memcmp(kind, BELLS_NAME, sizeof(kind)) == 0;
}

/* Opens the pipe again, as an open file that only we have; -1: not possible. For both directions:
 * then a pipe that we ring has a reader, and a ring never raises SIGPIPE. */
static int bell_open(int from_fd)
{
    char link[32];
    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", from_fd);
    return open(link, O_RDWR | O_NONBLOCK | O_CLOEXEC);
}

/* Gives *fd, our own, and *others_fd, to be sent. */
static bool bell_make(int *fd, int *others_fd)
{
    int ends[2];
    if (pipe2(ends, O_NONBLOCK | O_CLOEXEC) != 0) {
        return false;
    }
    (void)close(ends[1]);
    /* A user has few pages for pipes: take no more than needed. */
    (void)fcntl(ends[0], F_SETPIPE_SZ, BELL_BYTES);
    *others_fd = ends[0];
    *fd = bell_open(ends[0]);
    return *fd >= 0;
}

/* ----------------------------------------------- offering */

/* Gives *memory_fd: zeros that cannot shrink under a process that maps them (no SIGBUS). */
static bool memory_make(uint64_t bytes, int *memory_fd)
{
    *memory_fd = memfd_create("sluice-lane", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    return *memory_fd >= 0 && sl_file_resize(*memory_fd, bytes) == 0 &&
           fcntl(*memory_fd, F_ADD_SEALS, SEALS_NEEDED) == 0;
}

static sl_err lane_connect(struct sl_lane *lane, const char *path)
{
    const struct sockaddr_un address = address_of(path);
    lane->socket_fd = socket_make();
    if (lane->socket_fd < 0) {
        return SL_ERR_LIMIT;
    }
    if (connect(lane->socket_fd, (const struct sockaddr *)&address, sizeof(address)) != 0) {
        return errno == ENOENT || errno == ECONNREFUSED ? SL_ERR_UNREACHABLE
               : errno == EACCES                        ? SL_ERR_PERMISSION
               : errno == EPROTOTYPE                    ? SL_ERR_VERSION /* lanes before 0.3 */
                                                        : SL_ERR_BUSY;                      /* too many at once */
    }
    return is_same_user(lane->socket_fd, NULL) ? SL_OK : SL_ERR_PERMISSION;
}

/* Sends one packet with at most FD_COUNT descriptors. False: errno. */
static bool packet_send(int fd, void *bytes, size_t length_bytes, const int *fds, uint32_t fd_count)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int) * FD_COUNT)];
        struct cmsghdr align;
    } control = {.bytes = {0}};
    struct iovec part = {.iov_base = bytes, .iov_len = length_bytes};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = CMSG_SPACE(sizeof(int) * fd_count)};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int) * fd_count);
    memcpy(CMSG_DATA(head), fds, sizeof(int) * fd_count);
    return sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)length_bytes;
}

static sl_err lane_make(struct sl_lane *lane, const char *name, uint64_t ring_bytes)
{
    struct offer offer = {.version = SL_LANE_VERSION, .ring_bytes = ring_bytes};
    memcpy(offer.magic, offer_magic, sizeof(offer.magic));
    (void)snprintf(offer.name, sizeof(offer.name), "%s", name);
    int fds[FD_COUNT] = {-1, -1, -1};
    sl_err err = bell_make(&lane->doorbell_fd, &fds[FD_OFFERERS_BELL]) &&
                         bell_make(&lane->peer_bell_fd, &fds[FD_ACCEPTORS_BELL]) &&
                         memory_make(memory_bytes_of(ring_bytes), &fds[FD_MEMORY]) &&
                         lane_map(lane, fds[FD_MEMORY], ring_bytes, true)
                     ? SL_OK
                     : SL_ERR_LIMIT;
    if (err == SL_OK && !packet_send(lane->socket_fd, &offer, sizeof(offer), fds, FD_COUNT)) {
        err = errno == EPIPE || errno == ECONNRESET ? SL_ERR_UNREACHABLE : SL_ERR_LIMIT;
    }
    int os_code = errno;
    for (int i = 0; i < FD_COUNT; i++) {
        fd_close(&fds[i]); /* the mappings keep the memory */
    }
    errno = os_code;
    return err;
}

sl_err sl_lane_offer(struct sl_lane *lane, const char *path, const char *name, const char *peer,
                     uint64_t ring_bytes)
{
    sl_lane_init(lane);
    (void)snprintf(lane->name, sizeof(lane->name), "%s", peer);
    sl_err err = lane_connect(lane, path);
    if (err == SL_OK) {
        err = lane_make(lane, name, ring_bytes);
    }
    if (err != SL_OK) {
        int os_code = errno;
        sl_lane_close(lane);
        errno = os_code;
    }
    return err;
}

sl_err sl_lane_answered(struct sl_lane *lane)
{
    struct answer answer;
    ssize_t got = packet_take(lane->socket_fd, &answer, sizeof(answer), NULL);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
        return SL_ERR_NOT_FOUND;
    }
    if (got <= 0) {
        return got == 0 || errno == ECONNRESET ? SL_ERR_PEER_DIED : SL_ERR_PROTOCOL;
    }
    if (got != (ssize_t)sizeof(answer) ||
        memcmp(answer.magic, answer_magic, sizeof(answer.magic)) != 0 ||
        answer.code >= SL_ERR_COUNT) {
        return SL_ERR_PROTOCOL;
    }
    if (answer.code != SL_OK) {
        return (sl_err)answer.code;
    }
    return answer.version == SL_LANE_VERSION ? SL_OK : SL_ERR_VERSION;
}

/* ----------------------------------------------- accepting */

sl_err sl_lane_accept(struct sl_lane *lane, int listen_fd)
{
    sl_lane_init(lane);
    int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
        return errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS
                   ? SL_ERR_LIMIT
               : errno == EAGAIN || errno == EINTR || errno == ECONNABORTED ? SL_ERR_NOT_FOUND
                                                                            : SL_ERR_OS;
    }
    if (!is_same_user(fd, &lane->pid)) {
        (void)close(fd);
        return SL_ERR_PERMISSION;
    }
    lane->socket_fd = fd;
    return SL_OK;
}

/* Memory whose size can change could kill a process that reads past its end. Returns its bytes; 0:
 * it does not have exactly these seals, of those that matter. */
static uint64_t sealed_bytes(int fd, int wanted)
{
    struct stat about;
    int seals = fcntl(fd, F_GET_SEALS); /* fails if it is not a memfd */
    return seals >= 0 && (seals & (SEALS_OF_LONG | F_SEAL_FUTURE_WRITE)) == wanted &&
                   fstat(fd, &about) == 0
               ? (uint64_t)about.st_size
               : 0;
}

static sl_err offer_check(const struct offer *offer, ssize_t length_bytes, const int *fds)
{
    if (length_bytes != (ssize_t)sizeof(*offer) ||
        memcmp(offer->magic, offer_magic, sizeof(offer->magic)) != 0) {
        return SL_ERR_PROTOCOL;
    }
    if (offer->version != SL_LANE_VERSION) {
        return SL_ERR_VERSION;
    }
    uint64_t name_length = strnlen(offer->name, sizeof(offer->name));
    bool good = name_length < sizeof(offer->name) &&
                sl_actor_name_is_clean(offer->name, name_length) && offer->reserved == 0 &&
                sl_queue_bytes_valid(offer->ring_bytes) &&
                sealed_bytes(fds[FD_MEMORY], SEALS_NEEDED) == memory_bytes_of(offer->ring_bytes) &&
                is_doorbell(fds[FD_OFFERERS_BELL]) && is_doorbell(fds[FD_ACCEPTORS_BELL]);
    return good ? SL_OK : SL_ERR_PROTOCOL;
}

sl_err sl_lane_take_offer(struct sl_lane *lane)
{
    struct offer offer = {0};
    int fds[FD_COUNT] = {-1, -1, -1};
    ssize_t got = packet_take(lane->socket_fd, &offer, sizeof(offer), fds);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
        return SL_ERR_NOT_FOUND;
    }
    sl_err err = got == 0 || (got < 0 && errno == ECONNRESET) ? SL_ERR_PEER_DIED
                 : got < 0 && errno == EMFILE                 ? SL_ERR_LIMIT
                                                              : offer_check(&offer, got, fds);
    if (err == SL_OK) {
        memcpy(lane->name, offer.name, sizeof(lane->name));
        err = lane_map(lane, fds[FD_MEMORY], offer.ring_bytes, false) ? SL_OK : SL_ERR_LIMIT;
    }
    if (err == SL_OK) {
        lane->peer_bell_fd = bell_open(fds[FD_OFFERERS_BELL]);
        lane->doorbell_fd = bell_open(fds[FD_ACCEPTORS_BELL]);
        err = lane->peer_bell_fd >= 0 && lane->doorbell_fd >= 0 ? SL_OK : SL_ERR_LIMIT;
    }
    for (int i = 0; i < FD_COUNT; i++) {
        fd_close(&fds[i]);
    }
    return err;
}

sl_err sl_lane_confirm(struct sl_lane *lane, sl_err code)
{
    struct answer answer = {.version = SL_LANE_VERSION, .code = (uint32_t)code};
    memcpy(answer.magic, answer_magic, sizeof(answer.magic));
    if (send(lane->socket_fd, &answer, sizeof(answer), MSG_DONTWAIT | MSG_NOSIGNAL) !=
        (ssize_t)sizeof(answer)) {
        return SL_ERR_PEER_DIED;
    }
    return SL_OK;
}

/* ----------------------------------------------- open lanes */

/* Whether one more may follow those that the other side has not received. */
static bool long_has_room(struct sl_lane *lane, uint64_t length_bytes, uint64_t bytes_max)
{
    uint64_t head = sl_queue_head(&lane->writer), bytes = length_bytes;
    uint32_t count = 0;
    for (uint32_t i = 0; i < lane->untaken_count; i++) {
        if ((int64_t)(head - lane->untaken[i].position) <= 0) {
            bytes += lane->untaken[i].bytes;
            lane->untaken[count++] = lane->untaken[i];
        }
    }
    lane->untaken_count = count;
    return count < SL_LANE_LONG_MAX && bytes <= bytes_max;
}

sl_err sl_lane_send_long(struct sl_lane *lane, const void *frame, size_t length_bytes,
                         uint64_t bytes_max)
{
    char byte = 0;
    int fd = -1;
    sl_err err = SL_OK;
    if (!long_has_room(lane, length_bytes, bytes_max)) {
        return SL_ERR_LIMIT;
    }
    if (!memory_make(length_bytes, &fd) ||
        write(fd, frame, length_bytes) != (ssize_t)length_bytes ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) != 0 ||
        !packet_send(lane->socket_fd, &byte, sizeof(byte), &fd, 1)) {
        err = errno == EPIPE || errno == ECONNRESET ? SL_ERR_PEER_DIED : SL_ERR_LIMIT;
    }
    fd_close(&fd);
    if (err == SL_OK) {
        lane->untaken[lane->untaken_count].position = lane->writer.tail;
        lane->untaken[lane->untaken_count++].bytes = length_bytes;
    }
    return err;
}

sl_err sl_lane_take_long(const struct sl_lane *lane, uint64_t bytes_max, void **frame,
                         size_t *length_bytes)
{
    char byte;
    int fds[FD_COUNT] = {-1, -1, -1};
    ssize_t got = packet_take(lane->socket_fd, &byte, sizeof(byte), fds);
    sl_err err = got < 0 && errno == EMFILE ? SL_ERR_LIMIT : SL_ERR_PROTOCOL;
    uint64_t bytes = sealed_bytes(fds[0], SEALS_OF_LONG);
    void *at = MAP_FAILED;
    if (got == (ssize_t)sizeof(byte) && bytes > 0 && bytes <= bytes_max) {
        /* Private: shared mappings of files sealed against writing need Linux 6.7. */
        at = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fds[0], 0);
    }
    for (int i = 0; i < FD_COUNT; i++) {
        fd_close(&fds[i]);
    }
    if (at == MAP_FAILED) {
        return err;
    }
    *frame = at;
    *length_bytes = bytes;
    return SL_OK;
}

bool sl_lane_holds(const struct sl_lane *lane)
{
    struct pollfd polled = {.fd = lane->socket_fd, .events = POLLRDHUP};
    (void)poll(&polled, 1, 0); /* revents are those of the lane, even if a signal interrupts it */
    return polled.revents == 0;
}

void sl_lane_ring(const struct sl_lane *lane)
{
    const char one = 1;
    /* A full pipe has been rung often enough; a sleeper polls by itself anyway. */
    ssize_t written = write(lane->peer_bell_fd, &one, sizeof(one));
    (void)written;
}

void sl_lane_bell_drain(struct sl_lane *lane)
{
    char bytes[BELL_BYTES];
    /* Each ring is an event, even of a pipe that is not empty: reading each would be another
     * call. */
    if (++lane->rung >= RINGS_AT_ONCE) {
        lane->rung = 0;
        ssize_t taken = read(lane->doorbell_fd, bytes, sizeof(bytes));
        (void)taken;
    }
}
