/* client/tools/supervise/main.c - the program sluice-supervise. */
#include "client/tools/supervise/watch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* Exit code 1: the kernel reports that no process has the socket. 0: a process has or may have it.
 * Connects with another socket type: a live socket refuses that, without effect on its process. */
static int listens(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int length = snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    SL_AUTO(close) int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    return fd >= 0 && length > 0 && (size_t)length < sizeof(address.sun_path) &&
           connect(fd, (const struct sockaddr *)&address, sizeof(address)) != 0 &&
           errno == ECONNREFUSED;
}

int main(int argc, char **argv)
{
    struct sl_error why = {0};
    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        (void)printf("sluice-supervise %s\n", SL_VERSION);
        return 0;
    }
    if (argc == 3 && strcmp(argv[1], "listens") == 0) {
        return listens(argv[2]);
    }
    bool help = argc == 2 && strcmp(argv[1], "--help") == 0;
    char *end = NULL;
    unsigned long pid = argc == 5 ? strtoul(argv[4], &end, 10) : 0;
    if (help || argc != 5 || strcmp(argv[1], "watch") != 0 || *end != '\0' || pid == 0 ||
        pid > INT32_MAX) {
        (void)fprintf(
            help ? stdout : stderr,
            "usage: sluice-supervise watch RUNTIME_DIR SHM_DIR SCRIPT_PID\n"
            "       sluice-supervise listens SOCKET\n\n"
            "watch reports to the supervisor's script, which starts it, what happens to the actors: "
            "one line for each\nevent on standard output, one line for each command on standard "
            "input (client/tools/supervise/watch.h).\n"
            "listens ends with code 1 if no process has the socket any more.\n");
        return help ? 0 : 2;
    }
    const struct sup_watch_options options = {
        .runtime_dir = argv[2], .shm_dir = argv[3], .script_pid = (uint32_t)pid};
    if (sup_watch(&options, &why) != SL_OK) {
        (void)fprintf(stderr, "sluice-supervise: %s\n", why.text);
        return 1;
    }
    return 0;
}
