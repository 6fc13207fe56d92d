/* tests/support/flood.c - see flood.h. */
#include "tests/support/flood.h"

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define OPEN 400u

int flood_connect(const struct sockaddr_in *to, uint32_t host, int waits)
{
    struct sockaddr_in own = {.sin_family = AF_INET,
                              .sin_addr.s_addr = htonl(0x7f000000u | (host & 0xffffu))};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | (waits != 0 ? 0 : SOCK_NONBLOCK), 0);
    if (fd >= 0 &&
        (bind(fd, (struct sockaddr *)&own, sizeof(own)) != 0 ||
         (connect(fd, (const struct sockaddr *)to, sizeof(*to)) != 0 && errno != EINPROGRESS))) {
        (void)close(fd);
        fd = -1;
    }
    return fd;
}

/* Whether the other side has closed it; discards what it sent. */
static bool is_over(int fd)
{
    char scrap[512];
    ssize_t got = 0;
    while ((got = recv(fd, scrap, sizeof(scrap), MSG_DONTWAIT)) > 0) {
    }
    return got == 0 || (errno != EAGAIN && errno != ENOTCONN);
}

static void flood_run(struct flood *flood, const struct sockaddr_in *to, uint32_t addresses,
                      const char *drips)
{
    static int fds[OPEN];
    memset(fds, 0xff, sizeof(fds));
    for (uint32_t i = 0;; i++) {
        uint32_t at = i % OPEN;
        if (fds[at] >= 0 && is_over(fds[at])) {
            (void)close(fds[at]);
            fds[at] = -1;
        }
        if (fds[at] < 0) {
            fds[at] = flood_connect(to, 2 + i % addresses, 0);
            flood->connections++;
        }
        if (drips != NULL) {
            (void)!send(fds[(i * 7) % OPEN], drips, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
        }
        if (i % 8 == 0) {
            (void)nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
        }
    }
}

struct flood *flood_start(const struct sockaddr_in *to, uint32_t addresses, const char *drips)
{
    struct flood *flood =
        mmap(NULL, sizeof(*flood), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert(flood != MAP_FAILED);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        flood_run(flood, to, addresses, drips);
    }
    flood->pid = pid;
    return flood;
}

void flood_stop(struct flood **flood)
{
    if (*flood != NULL) {
        (void)kill((*flood)->pid, SIGKILL);
        (void)waitpid((*flood)->pid, NULL, 0);
        (void)munmap(*flood, sizeof(**flood));
        *flood = NULL;
    }
}
