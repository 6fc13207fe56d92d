/* client/gate/main.c - the program sluice-gate: lets clients in that share nothing with the node but its
 * runtime directory (ipc/sl_gate.h). It starts a stand-in for each, and has no other state: killed and
 * started again, it goes on. */
#include "client/gate/allow.h"
#include "client/gate/readonly.h"
#include "client/gate/standin.h"
#include "client/gate/stopped.h"
#include "client/gate/turns.h"
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
/* Stand-ins of other users, and of one of them: none takes all places. */
#define GUESTS_MAX          SHARES_MAX
#define GUESTS_OF_USER_MAX  (GUESTS_MAX / 2)
#define REFUSED_MAX         8u
#define REFUSED_OF_USER_MAX 2u
#define FULL_MAX            8u
/* Connections of other users that are looked at in a millisecond. */
#define LOOKS_MAX 8u
/* Without descriptors or memory none is let in. */
#define SHORT_MS 100
/* Stand-ins that are told to end, and those that are made to. */
#define END_NS SL_NS_PER_S

enum { EXIT_FINE, EXIT_FAILED, EXIT_WRONG_USE };

/* Where one comes in. */
struct entrance {
    int fd;
    struct sockaddr_un at;
    struct stat socket_file; /* of ours: st_ino is 0 while there is none */
};
enum { ENTRANCE_OWNER, ENTRANCE_GUESTS, ENTRANCES };

struct guest { /* a stand-in of another user */
    pid_t pid; /* 0: free */
    uint32_t uid;
};

struct pidfds {
    struct pollfd *at;
    uint32_t count, room;
};

struct gate {
    struct sl_config *config;
    struct sl_paths paths;
    struct gate_allow allow, write; /* who may read, and who may write, too */
    struct entrance entrances[ENTRANCES];
    int signal_fd;
    struct guest guests[GUESTS_MAX];
    struct share *shares; /* of each of them */
    struct guest refused[REFUSED_MAX];
    int full[FULL_MAX]; /* clients that were told so, until they have read it; -1: free */
    uint32_t full_next;
    uint32_t of_user; /* clients of each other user */
    bool shuts;       /* stand-ins of other users see all file systems read-only */
    struct turns turns;
    struct stopped stopped;
    uint64_t looks_since_ns; /* that the last millisecond began in which some were looked at: ... */
    uint32_t looks;          /* ... so many */
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
    if (self->allow.count == 0 && self->write.count == 0) {
        return SL_OK;
    }
    (void)snprintf(path, sizeof(path), "%s/guests", self->paths.runtime_dir);
    if ((mkdir(path, 0755) != 0 && errno != EEXIST) || chmod(path, 0755) != 0) {
        return sl_fail_os(why, errno, "make %s", path);
    }
    self->shuts = readonly_works();
    if (!self->shuts) {
        (void)fputs("sluice-gate: no namespaces here (unshare): a client of another user that has "
                    "CAP_DAC_OVERRIDE over the node's user can write what it may only read; root "
                    "is not let in\n",
                    stderr);
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
static void standin_ended(struct gate *self, pid_t pid)
{
    char path[sizeof(self->paths.runtime_dir) + 32];
    (void)snprintf(path, sizeof(path), "%s/gate.d/%d", self->paths.runtime_dir, (int)pid);
    (void)unlink(path);
    for (uint32_t i = 0; i < GUESTS_MAX; i++) {
        if (self->guests[i].pid == pid) {
            self->guests[i].pid = 0;
            share_empty(&self->shares[i], self->guests[i].uid);
        }
    }
    for (uint32_t i = 0; i < REFUSED_MAX; i++) {
        self->refused[i].pid = self->refused[i].pid == pid ? 0 : self->refused[i].pid;
    }
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

/* NULL: others cannot make as many processes here as they like, nor one of them take all. */
static struct guest *guest_free(struct gate *self, enum standin_client client, uint32_t uid)
{
    bool refused = client == STANDIN_REFUSED;
    struct guest *all = refused ? self->refused : self->guests;
    /* Who writes has two, engines a third; how many of each is looked at when they ask to. */
    uint32_t most = refused                    ? REFUSED_OF_USER_MAX
                    : client == STANDIN_WRITER ? 3 * self->of_user
                                               : self->of_user;
    struct guest *free_one = NULL;
    uint32_t same = 0;
    for (uint32_t i = 0; i < (refused ? REFUSED_MAX : GUESTS_MAX); i++) {
        same += all[i].pid != 0 && all[i].uid == uid;
        free_one = all[i].pid == 0 ? &all[i] : free_one;
    }
    return same < SL_MIN(most, GUESTS_OF_USER_MAX) ? free_one : NULL;
}

/* Takes the descriptor. The client may have asked by now, and would not hear the answer of a socket that
 * is closed with a question in it. */
static void full_tell(struct gate *self, int fd, bool waiting)
{
    struct sl_gate_answer answer = {.version = SL_GATE_VERSION, .code = SL_ERR_LIMIT};
    int *place = &self->full[self->full_next++ % FULL_MAX];
    memcpy(answer.magic, sl_gate_answer_magic, sizeof(answer.magic));
    if (waiting) {
        (void)snprintf(answer.text, sizeof(answer.text),
                       "too many clients of other users wait to be let in: try again");
    } else {
        (void)snprintf(answer.text, sizeof(answer.text),
                       "too many clients of other users: %u of each (clients_of_user)",
                       self->of_user);
    }
    (void)sl_gate_packet_send(fd, &answer, sizeof(answer), -1);
    if (*place >= 0) {
        (void)close(*place);
    }
    *place = fd;
}

static enum standin_client client_of(const struct gate *self, const struct entrance *entrance,
                                     int fd, uint32_t *uid)
{
    if (!gate_peer(fd, uid)) {
        return STANDIN_REFUSED;
    }
    /* Who reaches the other entrance alone has only what it gives, whatever number its process took. */
    if (entrance == &self->entrances[ENTRANCE_OWNER] && sl_door_same_user(fd)) {
        return STANDIN_OWNER;
    }
    if (gate_allows(&self->write, fd, self->shuts)) {
        return STANDIN_WRITER;
    }
    return gate_allows(&self->allow, fd, self->shuts) ? STANDIN_GUEST : STANDIN_REFUSED;
}

static void standin_start(struct gate *self, int fd, enum standin_client client,
                          struct guest *guest)
{
    pid_t pid = fork();
    if (pid == 0) {
        for (uint32_t i = 0; i < ENTRANCES; i++) {
            if (self->entrances[i].fd >= 0) {
                (void)close(self->entrances[i].fd);
            }
        }
        for (uint32_t i = 0; i < FULL_MAX; i++) {
            if (self->full[i] >= 0) {
                (void)close(self->full[i]);
            }
        }
        for (uint32_t i = 0; i < self->turns.count; i++) {
            (void)close(self->turns.waiting[i].fd);
        }
        (void)close(self->signal_fd);
        bool of_guest = guest >= self->guests && guest < self->guests + GUESTS_MAX;
        const struct writer_options options = {
            .config = self->config,
            .paths = &self->paths,
            .shares = {.all = self->shares,
                       .own = of_guest ? &self->shares[guest - self->guests] : NULL}};
        standin_run(&options, fd, client, self->shuts);
        _exit(EXIT_FINE);
    }
    if (pid > 0 && guest != NULL) {
        guest->pid = pid;
    }
    (void)close(fd); /* where there is no process to be had, the client sees the end */
}

static void client_let_in(struct gate *self, const struct entrance *entrance)
{
    int fd = accept4(entrance->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
        if (errno == ENFILE || errno == EMFILE || errno == ENOMEM || errno == ENOBUFS) {
            (void)poll(NULL, 0, SHORT_MS);
        }
        return;
    }
    struct turn turn = {.fd = fd, .uid = UINT32_MAX};
    turn.client = client_of(self, entrance, fd, &turn.uid);
    turn.refused = turn.client == STANDIN_REFUSED;
    if (turn.client == STANDIN_OWNER) {
        standin_start(self, fd, STANDIN_OWNER, NULL);
    } else if (!turns_add(&self->turns, &turn)) {
        full_tell(self, fd, true);
    }
}

/* ---- other users, in turns ---- */

static bool client_has_left(int fd)
{
    struct pollfd polled = {.fd = fd};
    return poll(&polled, 1, 0) > 0 && (polled.revents & (POLLHUP | POLLERR)) != 0;
}

static void guests_let_in(struct gate *self)
{
    struct turn turn;
    while (turns_take(&self->turns, sl_clock_monotonic_ns(), &turn)) {
        enum standin_client client = (enum standin_client)turn.client;
        if (client_has_left(turn.fd)) {
            (void)close(turn.fd);
            turns_skip(&self->turns, &turn);
            continue;
        }
        struct guest *guest = guest_free(self, client, turn.uid);
        if (guest == NULL) {
            full_tell(self, turn.fd, false);
            continue;
        }
        guest->uid = turn.uid;
        if (client != STANDIN_REFUSED) {
            share_empty(&self->shares[guest - self->guests], turn.uid);
        }
        standin_start(self, turn.fd, client, guest);
    }
}

/* When one may be let in, or looked at. */
static uint64_t guests_next_ns(const struct gate *self, uint64_t now_ns)
{
    uint64_t looks_ns = self->looks < LOOKS_MAX ? now_ns : self->looks_since_ns + SL_NS_PER_MS;
    return SL_MIN(turns_next_ns(&self->turns, now_ns), looks_ns > now_ns ? looks_ns : SL_NEVER_NS);
}

static void guests_count(struct gate *self, uint64_t now_ns)
{
    if (now_ns - self->looks_since_ns >= SL_NS_PER_MS) {
        self->looks_since_ns = now_ns;
        self->looks = 0;
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
        err = entrance_open(&self->entrances[ENTRANCE_OWNER], self->paths.runtime_dir, 0600, why);
    }
    if (err == SL_OK) {
        err = guests_open(self, why);
    }
    while (err == SL_OK) {
        struct pollfd polled[] = {{.fd = self->signal_fd, .events = POLLIN},
                                  {.fd = self->entrances[ENTRANCE_OWNER].fd, .events = POLLIN},
                                  {.fd = self->entrances[ENTRANCE_GUESTS].fd, .events = POLLIN}};
        uint64_t now_ns = sl_clock_monotonic_ns();
        guests_count(self, now_ns);
        uint64_t stopped_ns = stopped_next_ns(&self->stopped);
        uint64_t next_ns = SL_MIN(guests_next_ns(self, now_ns), SL_MAX(stopped_ns, now_ns));
        int wait_ms = next_ns == SL_NEVER_NS
                          ? -1
                          : (int)((next_ns - now_ns + SL_NS_PER_MS - 1) / SL_NS_PER_MS);
        if (self->looks == LOOKS_MAX) {
            polled[1 + ENTRANCE_GUESTS].fd = -1;
        }
        if (poll(polled, SL_COUNT(polled), wait_ms) < 0) {
            err = errno == EINTR ? SL_OK : sl_fail_os(why, errno, "poll");
            continue;
        }
        if (polled[0].revents != 0 && signal_ends(self)) {
            break;
        }
        for (uint32_t i = 0; i < ENTRANCES; i++) {
            if (polled[i + 1].revents != 0) {
                self->looks += i == ENTRANCE_GUESTS;
                client_let_in(self, &self->entrances[i]);
            }
        }
        guests_let_in(self);
        if (sl_clock_monotonic_ns() >= stopped_ns) {
            stopped_end(self);
        }
    }
    entrance_remove(&self->entrances[ENTRANCE_OWNER]);
    entrance_remove(&self->entrances[ENTRANCE_GUESTS]);
    return err;
}

static void usage(FILE *out)
{
    (void)fputs(
        "usage: sluice-gate [--end | --check] [SETTINGS]\n\n"
        "Lets clients in that share nothing with the node but its runtime directory, as those in other "
        "containers,\nuntil SIGTERM. Each has a process of its own here, as long as it lives.\n\n"
        "  --end    ends these processes, and does nothing else: of a node that was stopped\n"
        "  --check  says whether clients_allow and clients_write can be read, and does nothing else\n"
        "  --instance NAME, --runtime-dir DIR, --shm-dir DIR, --config FILE: as sluicectl\n\n"
        "Exit codes: 0 fine, 1 failed, 2 wrong use.\n",
        out);
}

/* Who is named by the settings. */
static sl_err users_read(struct gate *self, struct sl_error *why)
{
    sl_err err = gate_allow_read(
        "clients_allow", sl_config_text(self->config, SL_SET_clients_allow), &self->allow, why);
    return err != SL_OK ? err
                        : gate_allow_read("clients_write",
                                          sl_config_text(self->config, SL_SET_clients_write),
                                          &self->write, why);
}

int main(int argc, char **argv)
{
    struct gate self = {.entrances = {{.fd = -1}, {.fd = -1}}, .signal_fd = -1};
    struct sl_error why = {0};
    bool ends = argc > 1 && strcmp(argv[1], "--end") == 0;
    bool checks = argc > 1 && strcmp(argv[1], "--check") == 0;
    bool one_thing = ends || checks;
    if (one_thing) {
        argv[1] = argv[0];
    }
    sl_err err = sl_config_create(&self.config, &why);
    if (err == SL_OK) {
        err = sl_config_load(self.config, NULL, argc - one_thing, argv + one_thing, NULL, &why);
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
    for (uint32_t i = 0; i < FULL_MAX; i++) {
        self.full[i] = -1;
    }
    if (err == SL_OK && ends) { /* also where a user of clients_allow is no more */
        err = standins_end(&self, &why);
    } else if (err == SL_OK) {
        err = sl_config_bool(self.config, SL_SET_gate) || !checks ? users_read(&self, &why) : SL_OK;
    }
    if (err == SL_OK && !one_thing) {
        sl_proc_descriptors_raise(); /* of clients' memory */
        self.shares = shares_make();
        self.of_user = (uint32_t)sl_config_u64(self.config, SL_SET_clients_of_user);
        err = self.shares == NULL ? sl_fail(&why, SL_ERR_NO_MEMORY, "memory shared with stand-ins")
                                  : serve(&self, &why);
    }
    if (err != SL_OK) {
        (void)fprintf(stderr, "sluice-gate: %s\n", why.text);
    }
    sl_config_destroy(&self.config);
    return err == SL_OK ? EXIT_FINE : err == SL_ERR_CONFIG ? EXIT_WRONG_USE : EXIT_FAILED;
}
