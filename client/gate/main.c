/* client/gate/main.c - the program sluice-gate: lets clients in that share nothing with the node but its
 * runtime directory (ipc/sl_gate.h). It starts a stand-in for each, and has no other state: killed and
 * started again, it goes on. */
#include "client/gate/allow.h"
#include "client/gate/standin.h"
#include "ipc/gate_protocol.h"
#include "runtime/sl_door.h"
#include "runtime/sl_proc.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define BACKLOG    128
#define GUESTS_MAX 64u

enum { EXIT_FINE, EXIT_FAILED, EXIT_WRONG_USE };

/* Where one comes in. */
struct entrance {
    int fd;
    struct sockaddr_un at;
    struct stat socket_file; /* of ours: st_ino is 0 while there is none */
};
enum { ENTRANCE_OWNER, ENTRANCE_GUESTS, ENTRANCES };

struct gate {
    struct sl_config *config;
    struct sl_paths paths;
    struct gate_allow allow;
    struct entrance entrances[ENTRANCES];
    int signal_fd;
    pid_t guests[GUESTS_MAX]; /* stand-ins of other users; 0: free */
};

/* ---- the sockets ---- */

static sl_err entrance_open(struct entrance *self, const char *directory, mode_t mode,
                            struct sl_error *why)
{
    self->at.sun_family = AF_UNIX;
    int length =
        snprintf(self->at.sun_path, sizeof(self->at.sun_path), "%s/" SL_GATE_SOCKET, directory);
    if (length < 0 || (size_t)length >= sizeof(self->at.sun_path)) {
        return sl_fail(why, SL_ERR_CONFIG, "'%.150s' is too long for a socket", directory);
    }
    SL_AUTO(close) int probe = sl_door_socket();
    self->fd = sl_door_socket();
    if (self->fd < 0 || probe < 0) {
        return sl_fail_os(why, errno, "socket");
    }
    if (connect(probe, (const struct sockaddr *)&self->at, sizeof(self->at)) == 0 ||
        errno == EAGAIN) {
        return sl_fail(why, SL_ERR_EXISTS, "another process listens at %s", self->at.sun_path);
    }
    if (errno == ECONNREFUSED && unlink(self->at.sun_path) != 0) { /* of one that was killed */
        return sl_fail_os(why, errno, "remove %s", self->at.sun_path);
    }
    mode_t before = umask(0777 & ~mode);
    int failed =
        bind(self->fd, (const struct sockaddr *)&self->at, sizeof(self->at)) != 0 ? errno : 0;
    (void)umask(before);
    if (failed == 0 &&
        (listen(self->fd, BACKLOG) != 0 || stat(self->at.sun_path, &self->socket_file) != 0)) {
        failed = errno;
    }
    return failed == 0 ? SL_OK : sl_fail_os(why, failed, "listen at %s", self->at.sun_path);
}

/* Only if it is still ours. */
static void entrance_remove(const struct entrance *self)
{
    struct stat now;
    if (self->socket_file.st_ino != 0 && stat(self->at.sun_path, &now) == 0 &&
        now.st_ino == self->socket_file.st_ino && now.st_dev == self->socket_file.st_dev) {
        (void)unlink(self->at.sun_path);
    }
}

/* Others reach it where it is mounted: the runtime directory itself is closed to them. */
static sl_err guests_open(struct gate *self, struct sl_error *why)
{
    char path[sizeof(self->paths.runtime_dir) + 16];
    if (self->allow.count == 0) {
        return SL_OK;
    }
    (void)snprintf(path, sizeof(path), "%s/guests", self->paths.runtime_dir);
    if ((mkdir(path, 0755) != 0 && errno != EEXIST) || chmod(path, 0755) != 0) {
        return sl_fail_os(why, errno, "make %s", path);
    }
    return entrance_open(&self->entrances[ENTRANCE_GUESTS], path, 0666, why);
}

/* ---- stand-ins ---- */

static sl_err folder_make(const struct gate *self, struct sl_error *why)
{
    char path[sizeof(self->paths.runtime_dir) + 16];
    (void)snprintf(path, sizeof(path), "%s/gate.d", self->paths.runtime_dir);
    return mkdir(path, 0700) == 0 || errno == EEXIST ? SL_OK
                                                     : sl_fail_os(why, errno, "make %s", path);
}

/* Of all gates that this runtime directory had; those that are gone have left their places. */
static void standins_look(const struct gate *self, bool ends)
{
    char path[sizeof(self->paths.runtime_dir) + 300];
    (void)snprintf(path, sizeof(path), "%s/gate.d", self->paths.runtime_dir);
    DIR *folder = opendir(path);
    const struct dirent *entry;
    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        struct sl_proc_id standin;
        int fd = -1;
        (void)snprintf(path, sizeof(path), "%s/gate.d/%s", self->paths.runtime_dir, entry->d_name);
        if (entry->d_name[0] == '.' || sl_proc_id_read(path, &standin, NULL) != SL_OK) {
            continue;
        }
        if (sl_proc_open(standin, &fd, NULL) == SL_OK) {
            (void)(ends && syscall(SYS_pidfd_send_signal, fd, SIGTERM, NULL, 0));
            (void)close(fd);
        } else {
            (void)unlink(path);
        }
    }
    if (folder != NULL) {
        (void)closedir(folder);
    }
}

/* One that was killed has left its place. */
static void standins_collect(struct gate *self)
{
    char path[sizeof(self->paths.runtime_dir) + 32];
    for (pid_t pid = waitpid(-1, NULL, WNOHANG); pid > 0; pid = waitpid(-1, NULL, WNOHANG)) {
        (void)snprintf(path, sizeof(path), "%s/gate.d/%d", self->paths.runtime_dir, (int)pid);
        (void)unlink(path);
        for (uint32_t i = 0; i < GUESTS_MAX; i++) {
            self->guests[i] = self->guests[i] == pid ? 0 : self->guests[i];
        }
    }
}

/* Whether the signal that is there says so. */
static bool signal_ends(struct gate *self)
{
    struct signalfd_siginfo came;
    if (read(self->signal_fd, &came, sizeof(came)) != (ssize_t)sizeof(came)) {
        return false;
    }
    standins_collect(self);
    return came.ssi_signo != SIGCHLD;
}

static uint32_t guest_free(const struct gate *self)
{
    uint32_t at = 0;
    while (at < GUESTS_MAX && self->guests[at] != 0) {
        at++;
    }
    return at;
}

static void client_let_in(struct gate *self, const struct entrance *entrance)
{
    int fd = accept4(entrance->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
        return;
    }
    enum standin_client client = sl_door_same_user(fd)           ? STANDIN_OWNER
                                 : gate_allows(&self->allow, fd) ? STANDIN_GUEST
                                                                 : STANDIN_REFUSED;
    uint32_t guest = guest_free(self);
    /* Others cannot make as many processes here as they like. */
    pid_t pid = client != STANDIN_OWNER && guest == GUESTS_MAX ? -1 : fork();
    if (pid == 0) {
        for (uint32_t i = 0; i < ENTRANCES; i++) {
            if (self->entrances[i].fd >= 0) {
                (void)close(self->entrances[i].fd);
            }
        }
        (void)close(self->signal_fd);
        standin_run(&self->paths, fd, client);
        _exit(EXIT_FINE);
    }
    if (pid > 0 && client != STANDIN_OWNER) {
        self->guests[guest] = pid;
    }
    (void)close(fd); /* where there is no process to be had, the client sees the end */
}

/* ---- running ---- */

static sl_err serve(struct gate *self, struct sl_error *why)
{
    sigset_t signals;
    (void)sigemptyset(&signals);
    (void)sigaddset(&signals, SIGTERM);
    (void)sigaddset(&signals, SIGINT);
    (void)sigaddset(&signals, SIGCHLD);
    (void)sigprocmask(SIG_BLOCK, &signals, NULL);
    self->signal_fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    if (self->signal_fd < 0) {
        return sl_fail_os(why, errno, "signalfd");
    }
    sl_err err = folder_make(self, why);
    if (err == SL_OK) {
        standins_look(self, false);
        err = entrance_open(&self->entrances[ENTRANCE_OWNER], self->paths.runtime_dir, 0600, why);
    }
    if (err == SL_OK) {
        err = guests_open(self, why);
    }
    while (err == SL_OK) {
        struct pollfd polled[] = {{.fd = self->signal_fd, .events = POLLIN},
                                  {.fd = self->entrances[ENTRANCE_OWNER].fd, .events = POLLIN},
                                  {.fd = self->entrances[ENTRANCE_GUESTS].fd, .events = POLLIN}};
        if (poll(polled, SL_COUNT(polled), -1) < 0) {
            err = errno == EINTR ? SL_OK : sl_fail_os(why, errno, "poll");
            continue;
        }
        if (polled[0].revents != 0 && signal_ends(self)) {
            break;
        }
        for (uint32_t i = 0; i < ENTRANCES; i++) {
            if (polled[i + 1].revents != 0) {
                client_let_in(self, &self->entrances[i]);
            }
        }
    }
    entrance_remove(&self->entrances[ENTRANCE_OWNER]);
    entrance_remove(&self->entrances[ENTRANCE_GUESTS]);
    return err;
}

static void usage(FILE *out)
{
    (void)fputs(
        "usage: sluice-gate [--end] [SETTINGS]\n\n"
        "Lets clients in that share nothing with the node but its runtime directory, as those in other "
        "containers,\nuntil SIGTERM. Each has a process of its own here, as long as it lives.\n\n"
        "  --end  ends these processes, and does nothing else: of a node that was stopped\n"
        "  --instance NAME, --runtime-dir DIR, --shm-dir DIR, --config FILE: as sluicectl\n\n"
        "Exit codes: 0 fine, 1 failed, 2 wrong use.\n",
        out);
}

int main(int argc, char **argv)
{
    struct gate self = {.entrances = {{.fd = -1}, {.fd = -1}}, .signal_fd = -1};
    struct sl_error why = {0};
    bool ends = argc > 1 && strcmp(argv[1], "--end") == 0;
    if (ends) {
        argv[1] = argv[0];
    }
    sl_err err = sl_config_create(&self.config, &why);
    if (err == SL_OK) {
        err = sl_config_load(self.config, NULL, argc - ends, argv + ends, NULL, &why);
    }
    if (err == SL_ERR_CANCELLED) {
        bool help = strstr(why.text, "help") != NULL;
        help ? usage(stdout) : (void)printf("sluice-gate %s\n", SL_VERSION);
        sl_config_destroy(&self.config);
        return EXIT_FINE;
    }
    if (err == SL_OK) {
        err = sl_paths_from(self.config, &self.paths, &why);
    }
    if (err == SL_OK) {
        err = gate_allow_read(sl_config_text(self.config, SL_SET_clients_allow), &self.allow, &why);
    }
    if (err == SL_OK && ends) {
        standins_look(&self, true);
    } else if (err == SL_OK) {
        err = serve(&self, &why);
    }
    if (err != SL_OK) {
        (void)fprintf(stderr, "sluice-gate: %s\n", why.text);
    }
    sl_config_destroy(&self.config);
    return err == SL_OK ? EXIT_FINE : err == SL_ERR_CONFIG ? EXIT_WRONG_USE : EXIT_FAILED;
}
