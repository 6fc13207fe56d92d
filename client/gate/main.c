/* client/gate/main.c - the program sluice-gate: lets clients in that share nothing with the node but its
 * runtime directory (ipc/sl_gate.h). It starts a stand-in for each, and has no other state: killed and
 * started again, it goes on. */
#include "client/gate/standin.h"
#include "client/gate/stopped.h"
#include "ipc/gate_protocol.h"
#include "runtime/sl_array.h"
#include "runtime/sl_clock.h"
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

#define BACKLOG 128
/* Without descriptors or memory none is let in. */
#define SHORT_MS 100
/* Stand-ins that are told to end, and those that are made to. */
#define END_NS SL_NS_PER_S

enum { EXIT_FINE, EXIT_FAILED, EXIT_WRONG_USE };

struct pidfds {
    struct pollfd *at;
    uint32_t count, room;
};

struct gate {
    struct sl_config *config;
    struct sl_paths paths;
    int fd; /* where clients come in */
    struct sockaddr_un at;
    struct stat socket_file; /* of ours: st_ino is 0 while there is none */
    int signal_fd;
    struct stopped stopped;
};

/* ---- the socket ---- */

static sl_err entrance_open(struct gate *self, struct sl_error *why)
{
    self->at.sun_family = AF_UNIX;
    int length = snprintf(self->at.sun_path, sizeof(self->at.sun_path), "%s/" SL_GATE_SOCKET,
                          self->paths.runtime_dir);
    if (length < 0 || (size_t)length >= sizeof(self->at.sun_path)) {
        return sl_fail(why, SL_ERR_CONFIG, "'%.150s' is too long for a socket",
                       self->paths.runtime_dir);
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
    mode_t before = umask(0177);
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
static void entrance_remove(const struct gate *self)
{
    struct stat now;
    if (self->socket_file.st_ino != 0 && stat(self->at.sun_path, &now) == 0 &&
        now.st_ino == self->socket_file.st_ino && now.st_dev == self->socket_file.st_dev) {
        (void)unlink(self->at.sun_path);
    }
}

/* ---- stand-ins ---- */

static sl_err folder_make(const struct gate *self, struct sl_error *why)
{
    char path[sizeof(self->paths.runtime_dir) + 16];
    (void)snprintf(path, sizeof(path), "%s/gate.d", self->paths.runtime_dir);
    return mkdir(path, 0700) == 0 || errno == EEXIST ? SL_OK
                                                     : sl_fail_os(why, errno, "make %s", path);
}

/* Of all gates that this runtime directory had. Removes the places of those that are gone, and gives pidfds
 * of the others; all may be NULL. */
static sl_err standins_look(const struct gate *self, struct pidfds *all, struct sl_error *why)
{
    char path[sizeof(self->paths.runtime_dir) + 300];
    sl_err err = SL_OK;
    (void)snprintf(path, sizeof(path), "%s/gate.d", self->paths.runtime_dir);
    DIR *folder = opendir(path);
    const struct dirent *entry;
    while (folder != NULL && err == SL_OK && (entry = readdir(folder)) != NULL) {
        struct sl_proc_id standin;
        int fd = -1;
        (void)snprintf(path, sizeof(path), "%s/gate.d/%s", self->paths.runtime_dir, entry->d_name);
        if (entry->d_name[0] == '.' || sl_proc_id_read(path, &standin, NULL) != SL_OK) {
            continue;
        }
        sl_err opened = sl_proc_open(standin, &fd, all == NULL ? NULL : why);
        if (opened == SL_ERR_NOT_FOUND) {
            (void)unlink(path);
        } else if (all != NULL && opened != SL_OK) {
            err = opened;
        } else if (all != NULL && SL_ARRAY_ROOM(all->at, all->room, all->count + 1)) {
            all->at[all->count++] = (struct pollfd){.fd = fd, .events = POLLIN};
            fd = -1;
        } else if (all != NULL) {
            err = sl_fail(why, SL_ERR_NO_MEMORY, "%u stand-ins", all->count);
        }
        if (fd >= 0) {
            (void)close(fd);
        }
    }
    if (folder != NULL) {
        (void)closedir(folder);
    }
    return err;
}

/* Sends the signal to those that live, and waits for their end. Gives how many live still. */
static uint32_t pidfds_end(struct pidfds *all, int signal_number)
{
    uint64_t deadline_ns = sl_clock_monotonic_ns() + END_NS;
    uint32_t living = 0;
    for (uint32_t i = 0; i < all->count; i++) {
        (void)syscall(SYS_pidfd_send_signal, all->at[i].fd, signal_number, NULL, 0);
    }
    for (uint32_t i = 0; i < all->count; i++) {
        living += !sl_door_wait(all->at[i].fd, POLLIN, -1, deadline_ns);
    }
    return living;
}

static sl_err standins_end(const struct gate *self, struct sl_error *why)
{
    struct pidfds all = {0};
    sl_err err = standins_look(self, &all, why);
    if (pidfds_end(&all, SIGTERM) > 0) {
        uint32_t living = pidfds_end(&all, SIGKILL);
        if (living > 0 && err == SL_OK) {
            err = sl_fail(why, SL_ERR_TIMEOUT, "%u processes of clients do not end", living);
        }
    }
    for (uint32_t i = 0; i < all.count; i++) {
        (void)close(all.at[i].fd);
    }
    free(all.at);
    (void)standins_look(self, NULL, NULL); /* those that were killed have left their places */
    return err;
}

/* One that was killed has left its place. */
static void standin_ended(const struct gate *self, pid_t pid)
{
    char path[sizeof(self->paths.runtime_dir) + 32];
    (void)snprintf(path, sizeof(path), "%s/gate.d/%d", self->paths.runtime_dir, (int)pid);
    (void)unlink(path);
}

/* What became of them. */
static void standins_collect(struct gate *self)
{
    for (;;) {
        int status = 0;
        pid_t pid = waitpid(-1, &status, WNOHANG | WUNTRACED | WCONTINUED);
        if (pid <= 0) {
            return;
        }
        if (WIFSTOPPED(status)) {
            stopped_add(&self->stopped, pid, sl_clock_monotonic_ns());
            continue;
        }
        stopped_remove(&self->stopped, pid);
        if (!WIFCONTINUED(status)) {
            standin_ended(self, pid);
        }
    }
}

static void stopped_end(struct gate *self)
{
    standins_collect(self); /* those that go on by now */
    for (pid_t pid = stopped_take(&self->stopped, sl_clock_monotonic_ns()); pid != 0;
         pid = stopped_take(&self->stopped, sl_clock_monotonic_ns())) {
        (void)fprintf(stderr,
                      "sluice-gate: a client's process, %d, is stopped for over 1000 ms: killed\n",
                      (int)pid);
        (void)kill(pid, SIGKILL);
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

/* Takes the descriptor. */
static void standin_start(struct gate *self, int fd)
{
    pid_t pid = fork();
    if (pid == 0) {
        (void)close(self->fd);
        (void)close(self->signal_fd);
        standin_run(&self->paths, fd);
        _exit(EXIT_FINE);
    }
    (void)close(fd); /* where there is no process to be had, the client sees the end */
}

static void client_let_in(struct gate *self)
{
    int fd = accept4(self->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0 && sl_door_same_user(fd)) {
        standin_start(self, fd);
    } else if (fd >= 0) {
        (void)close(fd);
    } else if (errno == ENFILE || errno == EMFILE || errno == ENOMEM || errno == ENOBUFS) {
        (void)poll(NULL, 0, SHORT_MS);
    }
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
        (void)standins_look(self, NULL, NULL);
        err = entrance_open(self, why);
    }
    while (err == SL_OK) {
        struct pollfd polled[] = {{.fd = self->signal_fd, .events = POLLIN},
                                  {.fd = self->fd, .events = POLLIN}};
        uint64_t now_ns = sl_clock_monotonic_ns();
        uint64_t stopped_ns = stopped_next_ns(&self->stopped);
        uint64_t next_ns = stopped_ns == SL_NEVER_NS ? stopped_ns : SL_MAX(stopped_ns, now_ns);
        int wait_ms = next_ns == SL_NEVER_NS
                          ? -1
                          : (int)((next_ns - now_ns + SL_NS_PER_MS - 1) / SL_NS_PER_MS);
        if (poll(polled, SL_COUNT(polled), wait_ms) < 0) {
            err = errno == EINTR ? SL_OK : sl_fail_os(why, errno, "poll");
            continue;
        }
        if (polled[0].revents != 0 && signal_ends(self)) {
            break;
        }
        if (polled[1].revents != 0) {
            client_let_in(self);
        }
        if (sl_clock_monotonic_ns() >= stopped_ns) {
            stopped_end(self);
        }
    }
    entrance_remove(self);
    return err;
}

static void usage(FILE *out)
{
    (void)fputs(
        "usage: sluice-gate [--end] [SETTINGS]\n\n"
        "Lets clients in that share nothing with the node but its runtime directory, as those in other "
        "containers,\nuntil SIGTERM. Each has a process of its own here, as long as it lives.\n\n"
        "  --end    ends these processes, and does nothing else: of a node that was stopped\n"
        "  --instance NAME, --runtime-dir DIR, --shm-dir DIR, --config FILE: as sluicectl\n\n"
        "Exit codes: 0 fine, 1 failed, 2 wrong use.\n",
        out);
}

int main(int argc, char **argv)
{
    struct gate self = {.fd = -1, .signal_fd = -1};
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
    if (err == SL_OK && ends) {
        err = standins_end(&self, &why);
    } else if (err == SL_OK) {
        sl_proc_descriptors_raise(); /* of clients' memory */
        err = serve(&self, &why);
    }
    if (err != SL_OK) {
        (void)fprintf(stderr, "sluice-gate: %s\n", why.text);
    }
    sl_config_destroy(&self.config);
    return err == SL_OK ? EXIT_FINE : err == SL_ERR_CONFIG ? EXIT_WRONG_USE : EXIT_FAILED;
}
