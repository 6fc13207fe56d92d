/* runtime/sl_door.c - see sl_door.h. */
#include "runtime/sl_door.h"

#include "runtime/sl_clock.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define BACKLOG 16

static_assert(sizeof(((struct sockaddr_un *)0)->sun_path) == SL_DOOR_PATH_BYTES, "a path fits");

/* mark: '.', or '-' until somebody listens: without that the socket looks as if a dead process had
 * left it. */
static sl_err path_make(const char *runtime_dir, const char *kind, char mark, uint32_t pid,
                        uint64_t number, char out[SL_DOOR_PATH_BYTES], struct sl_error *why)
{
    memset(out, 0, SL_DOOR_PATH_BYTES);
    int length = snprintf(out, SL_DOOR_PATH_BYTES, "%s/%s%c%" PRIu32 ".%016" PRIx64, runtime_dir,
                          kind, mark, pid, number);
    return length > 0 && (size_t)length < SL_DOOR_PATH_BYTES
               ? SL_OK
               : sl_fail(why, SL_ERR_INVALID, "'%.80s...' is too long for a socket", runtime_dir);
}

sl_err sl_door_path(const char *runtime_dir, const char *kind, uint32_t pid, uint64_t number,
                    char out[SL_DOOR_PATH_BYTES], struct sl_error *why)
{
    return path_make(runtime_dir, kind, '.', pid, number, out, why);
}

int sl_door_socket(void)
{
    return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

bool sl_door_same_user(int fd)
{
    struct ucred peer;
    socklen_t size = sizeof(peer);
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

bool sl_door_wait(int fd, short events, int other_fd, uint64_t deadline_ns)
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

/* A queue that is full (EAGAIN) is no error of the giver's, and cannot be polled for. */
int sl_door_connect(int fd, const char *path, uint64_t deadline_ns)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, path, sizeof(address.sun_path));
    const struct timespec pause = {.tv_nsec = (long)SL_NS_PER_MS};
    for (;;) {
        if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0) {
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

/* Whether the process of "kind-PID.NUMBER" is gone. Nobody listens there yet, so that only its
 * process can tell whether it was left. */
static bool maker_gone(const char *pid_and_number)
{
    char *end = NULL;
    long pid = strtol(pid_and_number, &end, 10);
    return pid > 0 && pid <= INT32_MAX && *end == '.' && kill((pid_t)pid, 0) != 0 && errno == ESRCH;
}

/* What is no socket is somebody else's file: connect() says the same of it. */
static bool door_is_left(const struct sockaddr_un *at)
{
    struct stat status;
    SL_AUTO(close) int fd = sl_door_socket();
    return fd >= 0 && lstat(at->sun_path, &status) == 0 && S_ISSOCK(status.st_mode) &&
           connect(fd, (const struct sockaddr *)at, sizeof(*at)) != 0 && errno == ECONNREFUSED;
}

/* A socket at which nobody listens any more was left by a process that was killed, and so was one
 * that was never finished by a process that is gone. */
static void leftovers_remove(const char *runtime_dir, const char *kind)
{
    DIR *directory = opendir(runtime_dir);
    size_t length = strlen(kind);
    const struct dirent *entry;
    while (directory != NULL && (entry = readdir(directory)) != NULL) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        if (strncmp(entry->d_name, kind, length) != 0 ||
            (entry->d_name[length] != '.' &&
             (entry->d_name[length] != '-' || !maker_gone(&entry->d_name[length + 1])))) {
            continue;
        }
        int used = snprintf(address.sun_path, sizeof(address.sun_path), "%s/%.60s", runtime_dir,
                            entry->d_name);
        if (used < 0 || (size_t)used >= sizeof(address.sun_path)) {
            continue;
        }
        if (door_is_left(&address)) {
            (void)unlink(address.sun_path);
        }
    }
    if (directory != NULL) {
        (void)closedir(directory);
    }
}

static sl_err door_listen(struct sl_door *door, const char *path, struct sl_error *why)
{
    struct sockaddr_un fresh = {.sun_family = AF_UNIX};
    memcpy(fresh.sun_path, door->path, sizeof(fresh.sun_path));
    door->fd = sl_door_socket();
    if (door->fd < 0) {
        return sl_fail_os(why, errno, "socket for '%s'", path);
    }
    /* The directory is closed to others, so that the moment before chmod is, too. */
    if (bind(door->fd, (const struct sockaddr *)&fresh, sizeof(fresh)) != 0) {
        return sl_fail_os(why, errno, "listen at '%s'", path);
    }
    if (chmod(fresh.sun_path, 0600) != 0 || listen(door->fd, BACKLOG) != 0 ||
        rename(fresh.sun_path, path) != 0) {
        int os_code = errno;
        (void)unlink(fresh.sun_path);
        return sl_fail_os(why, os_code, "listen at '%s'", path);
    }
    memcpy(door->path, path, sizeof(door->path));
    return SL_OK;
}

sl_err sl_door_open(const char *runtime_dir, const char *kind, uint64_t number, struct sl_door *out,
                    struct sl_error *why)
{
    struct sl_door door = {.fd = -1, .number = number};
    char path[SL_DOOR_PATH_BYTES];
    uint32_t pid = (uint32_t)getpid();
    if (number == 0 &&
        getrandom(&door.number, sizeof(door.number), 0) != (ssize_t)sizeof(door.number)) {
        return sl_fail_os(why, errno, "getrandom");
    }
    sl_err err = path_make(runtime_dir, kind, '-', pid, door.number, door.path, why);
    if (err == SL_OK) {
        err = path_make(runtime_dir, kind, '.', pid, door.number, path, why);
    }
    if (err != SL_OK) {
        return err;
    }
    leftovers_remove(runtime_dir, kind);
    err = door_listen(&door, path, why);
    if (err != SL_OK) {
        if (door.fd >= 0) {
            (void)close(door.fd);
        }
        return err;
    }
    *out = door;
    return SL_OK;
}

void sl_door_close(struct sl_door *door)
{
    if (door->fd >= 0) {
        (void)unlink(door->path);
        (void)close(door->fd);
    }
    *door = (struct sl_door){.fd = -1};
}
