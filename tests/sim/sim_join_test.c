/* tests/sim/sim_join_test.c - hosts that join masters, under chance: the masters' daemons as shipped,
 * but for the node behind them (client/mooncake/daemons: cluster, join, members, rpc), each a process
 * with threads, sockets and files.
 *
 * Masters and hosts are killed, stopped, ended and cut off, lose power, come back at another address,
 * and move to another master. Two hosts join at once under one name. The table is full of names that
 * nobody hears. Strangers hold connections, say garbage, know another secret, and replay what they saw,
 * also in the place of a master that is away.
 *
 * Checked: a host keeps its name, keys and port over all of that; who was told that it joined is known
 * to the master, also after a power cut; nobody gets in who does not know the secret, and no false
 * master is believed; every join, and every end, takes no longer than it may; and when the trouble is
 * over, all hosts of a master know each other as they are now, in memory and in files, and the files
 * hold nobody else's key. How to choose seeds: sim_seeds.h. */
#include "client/mooncake/daemons/cluster.h"
#include "client/mooncake/daemons/listen.h"
#include "ipc/sl_curve.h"
#include "runtime/sl_clock.h"
#include "tests/sim/sim.h"
#include "tests/sim/sim_join_mutants.h"
#include "tests/sim/sim_process.h"
#include "tests/sim/sim_seeds.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef SEEDS_STANDARD
#define SEEDS_STANDARD 240u
#endif
#define HOSTS        4u
#define PORT         50051u
#define SECRET       "the secret of the cluster"
#define OTHER_SECRET "the secret of somebody else"
#define ACTIVE_NS    (40 * SL_NS_PER_S)
#define RESTART_NS   (2 * SL_NS_PER_S)  /* until who ended is started again */
#define JOIN_NS_MAX  (10 * SL_NS_PER_S) /* of one try (cluster.c) */
#define SLACK_NS     (300 * SL_NS_PER_MS)
#define END_NS_MAX   (JOIN_NS_MAX + 2 * SL_NS_PER_S) /* of a daemon: a join is on its way */
/* A join that fails late, the pause after it, and one more until others have heard of it. */
#define REST_NS      (JOIN_NS_MAX + RESTART_NS + 2 * (5 * SL_NS_PER_S) + 2 * SL_NS_PER_S)
#define CROWD        62u
#define CROWD_TTL_NS (12 * SL_NS_PER_S)
#define LINE_BYTES   16384u
#define FLOOD        20u /* more connections than one address may have */

enum trouble {
    MASTERS = 1, /* are killed, stopped and ended */
    MEMBERS = 2, /* hosts, likewise; and come back at another address */
    LINKS = 4,
    POWER = 8,
    ONE_NAME = 16,
    FULL = 32, /* the table: of names that are not heard */
    STRANGERS = 64,
    MOVES = 128, /* there are two masters, and hosts go from one to the other */
    FILES = 256, /* cannot be written for a while */
    LOST = 512   /* a host has lost its directory, and is another one from then on */
};
static const struct scenario {
    const char *name;
    uint32_t trouble;
} scenarios[] = {
    {"undisturbed", 0},
    {"masters", MASTERS},
    {"hosts", MEMBERS},
    {"links", LINKS | MEMBERS},
    {"power", POWER},
    {"one name", ONE_NAME | MEMBERS},
    {"a full table", FULL | MEMBERS | MASTERS},
    {"strangers", STRANGERS | MASTERS},
    {"two masters", MOVES | MEMBERS | POWER},
    {"full disks", FILES | MEMBERS},
    {"lost directories", LOST | MASTERS | MEMBERS},
    {"everything", MASTERS | MEMBERS | LINKS | POWER | STRANGERS},
};

struct run;
struct daemon { /* of a host */
    struct run *run;
    uint32_t host, master; /* whom it joins; itself: it is one */
    uint32_t process;      /* of its life; 0: none */
    uint64_t lives, start_ns;
    bool ready, ends, ended;
    struct mc_cluster *cluster;
    struct mc_join_server server;
    char ip[16];
    char name[32], key[41]; /* as it was when it first joined; "": not yet */
    uint16_t port;
    bool told[HOSTS]; /* that it joined that master, with these */
};
#define FORMER_MAX 128u
struct run {
    struct sim *sim;
    const struct scenario *scenario;
    struct daemon daemons[HOSTS];
    uint32_t count; /* of hosts with a daemon */
    bool quiet, crowded;
    char former[FORMER_MAX][32]; /* names of hosts that are others by now */
    uint32_t former_count;
    uint32_t strangers, false_master; /* processes */
    uint64_t false_ns;                /* since when there is a false master; 0: there is none */
    uint64_t disturbed_ns;            /* until when files cannot be written */
    uint64_t joins, refusals, replays, changes;
};
static struct run *the_run;
static char seen_join[LINE_BYTES], seen_nodes[LINE_BYTES]; /* what strangers saw */

static bool has(const struct run *run, uint32_t trouble)
{
    return (run->scenario->trouble & trouble) != 0;
}

static bool is_master(const struct daemon *daemon)
{
    return daemon->master == daemon->host;
}

static bool is_twin(const struct daemon *daemon)
{
    return has(daemon->run, ONE_NAME) && daemon->host >= 2;
}

static const char *directory_of(const struct daemon *daemon)
{
    return sim_shm_dir(daemon->run->sim, daemon->host);
}

static bool lives(const struct daemon *daemon)
{
    return daemon->process != 0 && sim_process_threads(daemon->run->sim, daemon->process) > 0;
}

/* ---- files ---- */

static bool peers_have(const struct daemon *at, const char *name, const char *control)
{
    char path[400], line[256], want[256];
    bool found = false;
    (void)snprintf(path, sizeof(path), "%s/peers", directory_of(at));
    (void)snprintf(want, sizeof(want), "%.31s@%.128s\n", name, control);
    FILE *file = fopen(path, "re");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        found = found || strcmp(line, want) == 0;
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return found;
}

static bool key_is(const struct daemon *at, const char *name, const char *key)
{
    char is[SL_CURVE_TEXT_BYTES];
    return sl_curve_load_public(directory_of(at), name, is, NULL) == SL_OK && strcmp(is, key) == 0;
}

static void control_of(const struct daemon *daemon, char out[64])
{
    (void)snprintf(out, 64, "%s:%u", daemon->ip, daemon->port);
}

/* ---- joins ---- */

struct join_try join_begins(void)
{
    return (struct join_try){.began_ns = sl_clock_monotonic_ns(), .stalled_ns = sim_stalled_ns()};
}

/* But for what its process was stopped. */
static uint64_t took_ns_since(struct join_try tried)
{
    return sl_clock_monotonic_ns() - tried.began_ns - (sim_stalled_ns() - tried.stalled_ns);
}

static struct daemon *daemon_of(const struct mc_join *join)
{
    for (uint32_t i = 0; i < HOSTS; i++) {
        if (strcmp(directory_of(&the_run->daemons[i]), mc_members_directory(join->members)) == 0) {
            return &the_run->daemons[i];
        }
    }
    return NULL;
}

void join_asked(const struct mc_join *join, struct join_try tried, sl_err err)
{
    struct run *run = the_run;
    struct daemon *daemon = daemon_of(join);
    const struct daemon *master = &run->daemons[daemon->master];
    uint64_t took_ns = took_ns_since(tried);
    SIM_CHECK(took_ns < JOIN_NS_MAX + SLACK_NS, "a join of host %u took %" PRIu64 " ms",
              daemon->host, took_ns / SL_NS_PER_MS);
    run->joins += err == SL_OK ? 1 : 0;
    run->refusals += err == SL_OK ? 0 : 1;
    if (err != SL_OK || is_twin(daemon)) {
        return;
    }
    bool false_one = run->false_ns != 0 && tried.began_ns > run->false_ns && !lives(master);
    SIM_CHECK(!false_one, "host %u believes a false master", daemon->host);
    bool known = key_is(master, mc_members_name(join->members), mc_members_key(join->members));
    SIM_CHECK(known, "host %u was told that it joined, and host %u has not got its key",
              daemon->host, master->host);
    (void)snprintf(daemon->name, sizeof(daemon->name), "%s", mc_members_name(join->members));
    (void)snprintf(daemon->key, sizeof(daemon->key), "%s", mc_members_key(join->members));
    daemon->told[daemon->master] = true;
}

/* ---- a daemon, as its main function has it ---- */

/* It is who it was. */
static void identity_check(struct daemon *self)
{
    const char *name = mc_members_name(self->server.members);
    const char *key = mc_members_key(self->server.members);
    uint16_t port = self->server.control_port;
    if (self->name[0] != '\0') {
        SIM_CHECK(strcmp(self->name, name) == 0 && strcmp(self->key, key) == 0,
                  "host %u was %s, and is %s%s now", self->host, self->name, name,
                  strcmp(self->key, key) == 0 ? "" : " with other keys");
    }
    SIM_CHECK(self->port == 0 || self->port == port, "host %u had port %u, and has %u now",
              self->host, self->port, port);
    (void)snprintf(self->name, sizeof(self->name), "%s", name);
    (void)snprintf(self->key, sizeof(self->key), "%s", key);
    self->port = port;
}

static bool is_listed(const struct daemon *at, const char *name)
{
    struct mc_member list[MC_MEMBERS_MAX];
    uint32_t count = mc_members_list(at->server.members, list);
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(list[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

/* Whom an earlier life told that they joined. */
static void memory_check(const struct daemon *self)
{
    for (uint32_t i = 0; i < HOSTS; i++) {
        const struct daemon *other = &self->run->daemons[i];
        bool may_be_gone = has(self->run, FULL) || is_twin(other);
        SIM_CHECK(may_be_gone || !other->told[self->host] || is_listed(self, other->name),
                  "host %u does not know host %u any more, which has joined it", self->host, i);
    }
}

static void said(void *context, const char *text)
{
    const struct daemon *self = context;
    sim_say(self->run->sim, "host %u: %s", self->host, text);
}

static void opening_check(const struct daemon *self, sl_err err, const char *text)
{
    bool fine =
        err == SL_OK || err == SL_ERR_UNREACHABLE || err == SL_ERR_TIMEOUT ||
        ((err == SL_ERR_PERMISSION || err == SL_ERR_PROTOCOL) && has(self->run, STRANGERS)) ||
        (err == SL_ERR_PERMISSION && has(self->run, FULL | FILES)) || /* of the master */
        (err == SL_ERR_NO_SPACE && has(self->run, FILES));
    SIM_CHECK(fine, "host %u does not start: %s: %s", self->host, sl_err_name(err), text);
}

static void daemon_run(void *context)
{
    struct daemon *self = context;
    struct sl_error why = {0};
    struct mc_rpc *rpc = NULL;
    char join[32] = "";
    int fd = -1;
    SIM_CHECK(mc_listen("0.0.0.0", "", PORT, &fd, &why) == SL_OK, "%s", why.text);
    if (!is_master(self)) {
        (void)snprintf(join, sizeof(join), "%s:%u", self->run->daemons[self->master].ip, PORT);
    }
    const struct mc_cluster_options options = {
        .directory = directory_of(self),
        .quiet_ns = has(self->run, FULL) ? CROWD_TTL_NS : 3600 * SL_NS_PER_S,
        .address = is_master(self) ? self->ip : "",
        .join = join};
    sl_err err = mc_cluster_open(&options, &self->cluster, &why);
    opening_check(self, err, why.text);
    if (err == SL_OK) {
        self->server = (struct mc_join_server){.instance = "mooncake-50051"};
        mc_cluster_serve(self->cluster, &self->server);
        identity_check(self);
        memory_check(self);
        SIM_CHECK(mc_cluster_start(self->cluster, said, self, &why) == SL_OK &&
                      mc_rpc_start(fd, &self->server, &rpc, &why) == SL_OK,
                  "%s", why.text);
        self->ready = true;
    }
    while (err == SL_OK && !self->ends) {
        sim_sleep(20 * SL_NS_PER_MS);
    }
    struct join_try began = join_begins();
    self->ready = false;
    mc_rpc_stop(&rpc);
    mc_cluster_close(&self->cluster);
    SIM_CHECK(took_ns_since(began) < END_NS_MAX, "host %u takes too long to end", self->host);
    self->ended = true;
}

static void daemon_start(struct daemon *self)
{
    self->ready = self->ends = self->ended = false;
    self->lives++;
    self->process = sim_process_start(self->run->sim, self->host, daemon_run, self);
}

static void daemon_start_later(struct daemon *self, uint64_t ns)
{
    self->ready = false;
    self->start_ns = SL_MAX(self->start_ns, sim_now_ns(self->run->sim) + ns);
}

/* ---- strangers ---- */

static void spy(const char *bytes, size_t length)
{
    bool whole = length < LINE_BYTES && length > 9 && bytes[length - 1] == '\n';
    char *to = whole && memcmp(bytes, "{\"join\":", 8) == 0    ? seen_join
               : whole && memcmp(bytes, "{\"nodes\":", 9) == 0 ? seen_nodes
                                                               : NULL;
    if (to != NULL) {
        memcpy(to, bytes, length);
        to[length] = '\0';
    }
}

static int stranger_connect(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    struct pollfd one = {.fd = socket(AF_INET, SOCK_STREAM, 0), .events = POLLOUT};
    (void)inet_pton(AF_INET, the_run->daemons[0].ip, &at.sin_addr);
    (void)connect(one.fd, (struct sockaddr *)&at, sizeof(at));
    (void)poll(&one, 1, 2000);
    return one.fd;
}

static void line_say(int fd, const char *text)
{
    (void)send(fd, text, strlen(text), MSG_NOSIGNAL);
}

/* One line; "": none came. */
static void line_hear(int fd, char out[LINE_BYTES])
{
    size_t length = 0;
    struct pollfd one = {.fd = fd, .events = POLLIN};
    out[0] = '\0';
    while (length + 1 < LINE_BYTES && strchr(out, '\n') == NULL && poll(&one, 1, 3000) > 0) {
        ssize_t got = recv(fd, out + length, LINE_BYTES - 1 - length, 0);
        if (got <= 0) {
            return;
        }
        length += (size_t)got;
        out[length] = '\0';
    }
}

/* What it saw another host say. */
static void stranger_replays(struct run *run)
{
    static char answer[LINE_BYTES];
    int fd = stranger_connect();
    line_hear(fd, answer);
    if (seen_join[0] != '\0' && answer[0] != '\0') {
        line_say(fd, seen_join);
        line_hear(fd, answer);
        SIM_CHECK(run->false_ns != 0 || strncmp(answer, "{\"nodes\"", 8) != 0,
                  "a join that was seen counts again");
        run->replays++;
    }
    (void)close(fd);
}

/* As a host would, with a secret of its own. */
static void stranger_joins(struct run *run)
{
    struct mc_members *members = NULL;
    char ip[64];
    bool changed = false;
    struct sl_error why = {0};
    SIM_CHECK(mc_members_open(sim_shm_dir(run->sim, HOSTS - 1), &members, &why) == SL_OK, "%s",
              why.text);
    const struct mc_join join = {.host = run->daemons[0].ip,
                                 .port = PORT,
                                 .secret = OTHER_SECRET,
                                 .members = members,
                                 .control_port = 7400,
                                 .timeout_ns = 5 * SL_NS_PER_S};
    sl_err err = mc_join_ask(&join, ip, &changed, &why);
    SIM_CHECK(err != SL_OK, "a host with another secret has joined");
    mc_members_close(&members);
}

static void stranger_floods(struct run *run)
{
    int fds[FLOOD];
    for (uint32_t i = 0; i < FLOOD; i++) {
        fds[i] = stranger_connect();
        if (sim_random_below(run->sim, 2) == 0) {
            line_say(fds[i], "{\"join\": \"");
        }
    }
    sim_sleep(sim_random_below(run->sim, 4 * SL_NS_PER_S));
    for (uint32_t i = 0; i < FLOOD; i++) {
        (void)close(fds[i]);
    }
}

static void strangers_run(void *context)
{
    static const char *const garbage[] = {"\n", "{}\n", "[[[[[[\n", "GET / HTTP/1.1\r\n\r\n",
                                          "{\"join\": \"{}\", \"mac\": \"00\"}\n"};
    struct run *run = context;
    while (!run->quiet) {
        uint64_t what = sim_random_below(run->sim, 4);
        if (what == 0) {
            stranger_replays(run);
        } else if (what == 1) {
            stranger_joins(run);
        } else if (what == 2) {
            stranger_floods(run);
        } else {
            int fd = stranger_connect();
            line_say(fd, garbage[sim_random_below(run->sim, SL_COUNT(garbage))]);
            sim_sleep(sim_random_below(run->sim, SL_NS_PER_S));
            (void)close(fd);
        }
        sim_sleep(sim_random_below(run->sim, SL_NS_PER_S));
    }
}

/* At the address of a master that is away: says what that said to another host. */
static void false_master_run(void *context)
{
    static const char greeting[] =
        "{\"sluice\":\"1\",\"challenge\":"
        "\"00000000000000000000000000000000000000000000000000000000deadbeef\"}\n";
    static char line[LINE_BYTES];
    struct run *run = context;
    int fd = -1;
    uint64_t until_ns = sim_now_ns(run->sim) + 8 * SL_NS_PER_S;
    SIM_CHECK(mc_listen("0.0.0.0", "", PORT, &fd, NULL) == SL_OK, "no port for a false master");
    while (sim_now_ns(run->sim) < until_ns) {
        struct pollfd one = {.fd = fd, .events = POLLIN};
        int caller = poll(&one, 1, 500) > 0 ? accept4(fd, NULL, NULL, SOCK_CLOEXEC) : -1;
        if (caller >= 0) {
            line_say(caller, greeting);
            line_hear(caller, line);
            line_say(caller, seen_nodes);
            sim_sleep(50 * SL_NS_PER_MS);
            (void)close(caller);
            run->replays++;
        }
    }
    (void)close(fd);
}

/* ---- trouble ---- */

/* Names of hosts that are gone, as an earlier life of the master knew them. */
static void crowd_run(void *context)
{
    struct run *run = context;
    struct mc_members *members = NULL;
    struct sl_error why = {0};
    SIM_CHECK(mc_members_open(directory_of(&run->daemons[0]), &members, &why) == SL_OK, "%s",
              why.text);
    for (uint32_t i = 0; i < CROWD; i++) {
        struct mc_member member = {.control = "10.9.9.9:7400"};
        (void)snprintf(member.name, sizeof(member.name), "gone-%u", i);
        (void)snprintf(member.key, sizeof(member.key), "%040u", i);
        SIM_CHECK(mc_members_add(members, &member, NULL, &why) == SL_OK, "%s", why.text);
    }
    mc_members_close(&members);
    run->crowded = true;
}

/* The host of the last number has the name of the one before it, and its keys too, or others. */
static void twin_make(struct run *run)
{
    struct mc_members *members = NULL;
    struct sl_error why = {0};
    char name[64], from[400], to[400], text[256];
    const char *first = sim_shm_dir(run->sim, 2), *second = sim_shm_dir(run->sim, 3);
    SIM_CHECK(mc_members_open(first, &members, &why) == SL_OK, "%s", why.text);
    uint64_t count = sim_random_below(run->sim, 2) == 0 ? 1 : 3;
    for (uint64_t i = 0; i < count; i++) {
        (void)snprintf(name, sizeof(name),
                       i == 0   ? "name"
                       : i == 1 ? "%s.secret"
                                : "%s.pub",
                       mc_members_name(members));
        (void)snprintf(from, sizeof(from), "%s/%s", first, name);
        (void)snprintf(to, sizeof(to), "%s/%s", second, name);
        int in = open(from, O_RDONLY | O_CLOEXEC);
        int out = open(to, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        ssize_t length = read(in, text, sizeof(text));
        SIM_CHECK(length > 0 && write(out, text, (size_t)length) == length, "cannot copy %s", from);
        (void)close(in);
        (void)close(out);
    }
    mc_members_close(&members);
}

static uint64_t span(struct sim *sim)
{
    static const uint64_t spans_ns[] = {300 * SL_NS_PER_MS, SL_NS_PER_S, 4 * SL_NS_PER_S,
                                        15 * SL_NS_PER_S};
    return 1 + sim_random_below(sim, spans_ns[sim_random_below(sim, SL_COUNT(spans_ns))]);
}

static void daemon_trouble(struct daemon *daemon, bool may_be_replaced)
{
    struct run *run = daemon->run;
    struct sim *sim = run->sim;
    uint64_t how = sim_random_below(sim, 4), ns = span(sim);
    if (!lives(daemon)) {
        return;
    }
    if (how == 0) {
        sim_process_stop(sim, daemon->process, ns);
    } else if (how == 1) {
        daemon->ends = true; /* SIGTERM */
        daemon_start_later(daemon, sim_random_below(sim, RESTART_NS));
    } else {
        sim_process_kill(daemon->process);
        daemon_start_later(daemon, sim_random_below(sim, RESTART_NS));
        if (may_be_replaced && sim_random_below(sim, 2) == 0 && seen_nodes[0] != '\0') {
            run->false_ns = sim_now_ns(sim);
            run->false_master = sim_process_start(sim, daemon->host, false_master_run, run);
        }
    }
}

static void host_power(struct daemon *daemon)
{
    struct sim *sim = daemon->run->sim;
    sim_say(sim, "power cut of host %u", daemon->host);
    sim_process_power(sim, daemon->host);
    sim_files_cut(sim, daemon->host);
    sim_tcp_off(daemon->host, true);
    daemon_start_later(daemon, span(sim));
}

static void daemon_lose(struct daemon *daemon)
{
    struct run *run = daemon->run;
    char path[400], name[32];
    (void)snprintf(path, sizeof(path), "%s/name", directory_of(daemon));
    FILE *file = fopen(path, "re");
    if (file != NULL && fgets(name, sizeof(name), file) != NULL && run->former_count < FORMER_MAX) {
        memcpy(run->former[run->former_count++], name, sizeof(name));
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    sim_files_lose(daemon->host);
    daemon->name[0] = daemon->key[0] = '\0';
    daemon->port = 0;
    memset(daemon->told, 0, sizeof(daemon->told));
}

/* Between two lives: its host has another address, or it joins another master. */
static void daemon_changes(struct daemon *daemon)
{
    struct run *run = daemon->run;
    struct sim *sim = run->sim;
    if (!lives(daemon) || is_master(daemon)) {
        return;
    }
    sim_process_kill(daemon->process);
    daemon_start_later(daemon, sim_random_below(sim, RESTART_NS));
    if (has(run, LOST) && sim_random_below(sim, 2) == 0) {
        daemon_lose(daemon);
    } else if (has(run, MOVES) && sim_random_below(sim, 2) == 0) {
        daemon->master = daemon->master == 0 ? 1 : 0;
    } else {
        (void)snprintf(daemon->ip, sizeof(daemon->ip), "10.0.%u.%u",
                       (uint32_t)sim_random_below(sim, 3), daemon->host + 1);
        sim_tcp_address(daemon->host, daemon->ip);
    }
    run->changes++;
}

static void make_trouble(struct run *run)
{
    struct sim *sim = run->sim;
    static const uint32_t troubles[] = {MASTERS, MEMBERS, LINKS, POWER, FILES};
    uint32_t trouble = troubles[sim_random_below(sim, SL_COUNT(troubles))];
    uint32_t host = (uint32_t)sim_random_below(sim, run->count);
    uint32_t other = (uint32_t)sim_random_below(sim, run->count);
    if (!has(run, trouble)) {
        return;
    }
    if (trouble == MASTERS) {
        daemon_trouble(&run->daemons[0], has(run, STRANGERS));
    } else if (trouble == MEMBERS) {
        if (sim_random_below(sim, 2) == 0) {
            daemon_changes(&run->daemons[host]);
        } else if (!is_master(&run->daemons[host])) {
            daemon_trouble(&run->daemons[host], false);
        }
    } else if (trouble == LINKS && host != other) {
        if (sim_random_below(sim, 2) == 0) {
            sim_link_cut(sim, host, other, span(sim));
        } else {
            sim_link_slow(sim, host, other, SL_NS_PER_S, span(sim));
        }
    } else if (trouble == POWER) {
        host_power(&run->daemons[host]);
    } else if (trouble == FILES) {
        uint64_t until_ns = sim_now_ns(sim) + span(sim);
        sim_files_full(host, until_ns);
        run->disturbed_ns = SL_MAX(run->disturbed_ns, until_ns);
    }
}

/* Who ended is started again, as a service is. */
static void daemons_tend(struct run *run)
{
    for (uint32_t i = 0; i < run->count; i++) {
        struct daemon *daemon = &run->daemons[i];
        bool false_one = i == 0 && run->false_master != 0 &&
                         sim_process_threads(run->sim, run->false_master) > 0;
        if (!lives(daemon) && sim_now_ns(run->sim) >= daemon->start_ns && !false_one) {
            run->false_ns = i == 0 ? 0 : run->false_ns;
            sim_tcp_off(i, false);
            daemon_start(daemon);
        }
    }
}

static void run_for(struct run *run, uint64_t ns, bool troubled)
{
    struct sim *sim = run->sim;
    uint64_t end_ns = sim_now_ns(sim) + ns;
    while (sim_now_ns(sim) < end_ns) {
        uint64_t step_ns = troubled ? sim_random_below(sim, 400 * SL_NS_PER_MS) : 0;
        sim_run_until(sim, SL_MIN(end_ns, sim_now_ns(sim) + 10 * SL_NS_PER_MS + step_ns));
        if (troubled) {
            make_trouble(run);
        }
        daemons_tend(run);
    }
}

/* ---- at rest ---- */

static bool is_of_somebody(const struct run *run, const char *name)
{
    for (uint32_t i = 0; i < run->count; i++) {
        if (strcmp(run->daemons[i].name, name) == 0) {
            return true;
        }
    }
    for (uint32_t i = 0; i < run->former_count; i++) {
        if (strcmp(run->former[i], name) == 0) {
            return true;
        }
    }
    return has(run, FULL) && strncmp(name, "gone-", 5) == 0;
}

/* A table is what its files are, and nobody is in it who did not join. */
static void table_check(const struct daemon *at)
{
    struct mc_member list[MC_MEMBERS_MAX];
    uint32_t count = mc_members_list(at->server.members, list), keys = 0;
    for (uint32_t i = 0; i < count; i++) {
        SIM_CHECK(is_of_somebody(at->run, list[i].name), "host %u knows %s, who did not join",
                  at->host, list[i].name);
        SIM_CHECK(key_is(at, list[i].name, list[i].key) &&
                      peers_have(at, list[i].name, list[i].control),
                  "host %u knows %s, and its files say another thing", at->host, list[i].name);
    }
    DIR *directory = opendir(directory_of(at));
    SIM_CHECK(directory != NULL, "no directory");
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        const char *end = strrchr(entry->d_name, '.');
        keys += end != NULL && strcmp(end, ".pub") == 0 ? 1 : 0;
    }
    (void)closedir(directory);
    SIM_CHECK(keys == count + 1, "host %u knows %u hosts, and has keys of %u", at->host, count,
              keys - 1);
}

static void pair_check(const struct daemon *at, const struct daemon *other)
{
    struct mc_member list[MC_MEMBERS_MAX];
    char control[64];
    uint32_t count = mc_members_list(at->server.members, list);
    control_of(other, control);
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(list[i].name, other->name) == 0) {
            SIM_CHECK(strcmp(list[i].key, other->key) == 0 && strcmp(list[i].control, control) == 0,
                      "host %u knows host %u at %s, and it is at %s%s", at->host, other->host,
                      list[i].control, control,
                      strcmp(list[i].key, other->key) == 0 ? "" : ", with other keys");
            return;
        }
    }
    sim_fail("host %u does not know host %u", at->host, other->host);
}

/* Of two hosts with one name the last one counts: name, key and address are of one of them. */
static void twins_check(const struct daemon *at)
{
    struct mc_member list[MC_MEMBERS_MAX];
    char control[64];
    uint32_t count = mc_members_list(at->server.members, list), found = 0;
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t k = 2; k < HOSTS; k++) {
            const struct daemon *twin = &at->run->daemons[k];
            control_of(twin, control);
            found += strcmp(list[i].name, twin->name) == 0 && strcmp(list[i].key, twin->key) == 0 &&
                             strcmp(list[i].control, control) == 0
                         ? 1
                         : 0;
        }
    }
    SIM_CHECK(found == 1, "host %u knows %u of two hosts with one name", at->host, found);
}

static void rest_check(struct run *run)
{
    for (uint32_t i = 0; i < run->count; i++) {
        const struct daemon *at = &run->daemons[i];
        SIM_CHECK(at->ready, "host %u does not run, a while after the trouble", i);
        uint32_t threads = sim_process_threads(run->sim, at->process);
        SIM_CHECK(threads <= 3 + HOSTS, "host %u has %u threads at rest", i, threads);
        table_check(at);
        for (uint32_t k = 0; k < run->count; k++) {
            const struct daemon *other = &run->daemons[k];
            if (k != i && other->master == at->master && !is_twin(other)) {
                pair_check(at, other);
            }
        }
        if (has(run, ONE_NAME) && !is_twin(at)) {
            twins_check(at);
        }
    }
}

static void run_print(const struct run *run)
{
    printf("%s: %" PRIu64 " joins (%" PRIu64 " failed), lives %" PRIu64 " %" PRIu64 " %" PRIu64
           " %" PRIu64 ", %" PRIu64 " changes, %" PRIu64 " replays; %" PRIu64
           " events, hash %016" PRIx64 "\n",
           run->scenario->name, run->joins, run->refusals, run->daemons[0].lives,
           run->daemons[1].lives, run->daemons[2].lives, run->daemons[3].lives, run->changes,
           run->replays, sim_event_count(run->sim), sim_hash(run->sim));
}

static void run_start(struct run *run)
{
    static const char *const settings[] = {NULL};
    for (uint32_t i = 0; i < HOSTS; i++) {
        struct daemon *daemon = &run->daemons[i];
        *daemon =
            (struct daemon){.run = run, .host = i, .master = i < 2 && has(run, MOVES) ? i : 0};
        (void)snprintf(daemon->ip, sizeof(daemon->ip), "10.0.0.%u", i + 1);
        if (i > 0) {
            (void)sim_host_add(run->sim, settings);
        }
        sim_files_watch(i, directory_of(daemon));
    }
    run->count = has(run, STRANGERS) ? HOSTS - 1 : HOSTS;
    if (has(run, FULL)) {
        (void)sim_process_start(run->sim, 0, crowd_run, run);
        while (!run->crowded) {
            sim_run_until(run->sim, sim_now_ns(run->sim) + 10 * SL_NS_PER_MS);
        }
    }
    if (has(run, ONE_NAME)) {
        twin_make(run);
    }
    if (has(run, STRANGERS)) {
        sim_tcp_spy(spy);
        run->strangers = sim_process_start(run->sim, HOSTS - 1, strangers_run, run);
    }
    daemons_tend(run);
}

/* Gives the hash of all that happened. */
static uint64_t run_of(uint64_t seed)
{
    static const char *const settings[] = {NULL};
    struct run *run = calloc(1, sizeof(*run));
    SIM_CHECK(run != NULL, "out of memory");
    the_run = run;
    sim_join_mutants_init();
    run->scenario = &scenarios[seed % SL_COUNT(scenarios)];
    struct sim_options options = {
        .seed = seed, .settings = settings, .log = getenv("SL_SIM_LOG") != NULL};
    run->sim = sim_create(&options);
    (void)setenv("MOONCAKE_CLUSTER_SECRET", SECRET, 1);
    run_start(run);
    run_for(run, ACTIVE_NS, run->scenario->trouble != 0);
    run->quiet = true;
    uint64_t quiet_ns = SL_MAX(sim_now_ns(run->sim), sim_disturbed_ns(run->sim));
    quiet_ns = SL_MAX(quiet_ns, run->disturbed_ns);
    for (uint32_t i = 0; i < run->count; i++) {
        quiet_ns = SL_MAX(quiet_ns, run->daemons[i].start_ns);
    }
    run_for(run, quiet_ns - sim_now_ns(run->sim) + REST_NS + (has(run, FULL) ? CROWD_TTL_NS : 0),
            false);
    rest_check(run);
    if (getenv("SL_SIM_SEED") != NULL) {
        run_print(run);
    }
    uint64_t hash = sim_hash(run->sim);
    sim_destroy(&run->sim);
    free(run);
    return hash;
}

static const char *name_of(uint64_t seed)
{
    return scenarios[seed % SL_COUNT(scenarios)].name;
}

/* --mutants: every mutant of joining must be found. */
int main(int argc, char **argv)
{
    static const struct sim_seeds seeds = {SEEDS_STANDARD, run_of, name_of, NULL};
    unsigned char mac[32];
    unsigned length = 0; /* the library begins here, once, and not in each of the runs */
    if (HMAC(EVP_sha256(), "", 0, mac, 0, mac, &length) == NULL) {
        return EXIT_FAILURE;
    }
    return argc > 1 && strcmp(argv[1], "--mutants") == 0 ? sim_join_mutants_main(&seeds)
                                                         : sim_seeds_main(&seeds);
}
