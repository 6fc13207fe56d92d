/* client/mooncake/daemons/client_main.c - mooncake_client: a process that contributes memory to the
 * node of a mooncake_master of this host, as long as it lives, and by whose port setup_dummy finds
 * the node.
 */
#include "client/mooncake/daemons/admin.h"
#include "client/mooncake/daemons/client_flags.h"
#include "client/mooncake/daemons/daemon.h"
#include "client/mooncake/daemons/listen.h"
#include "client/mooncake/store/instance.h"
#include "runtime/sl_clock.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TICK_NS        SL_NS_PER_S
#define START_NS       (30 * SL_NS_PER_S) /* a master that starts at the same time */
#define START_PAUSE_NS (200 * SL_NS_PER_MS)

struct lender {
    struct mc_daemon daemon;
    struct mc_node node; /* of the master; only its names and places are used */
    struct mc_admin admin;
    struct mc_http *http;
    struct mc_rpc *rpc;
    struct mc_join_server server;
    struct sl_client *client;
    char name[256]; /* of what is contributed: HOST:PORT */
    char sign_path[1100];
    int rpc_fd, http_fd;
    uint64_t segment_bytes;
    bool lent, ended;
};

static void on_signal(void *context, int number)
{
    struct lender *self = context;
    (void)number;
    self->ended = true;
    sl_loop_stop(self->daemon.loop);
}

/* ---- the sign that setup_dummy looks for ---- */

/* The node's name in a file that is found by the port alone, wherever the node has its own files.
 */
static sl_err sign_put(struct lender *self, struct sl_error *why)
{
    const char *base = getenv("XDG_RUNTIME_DIR");
    char directory[1000];
    char fresh[1200];
    char line[80];
    (void)snprintf(directory, sizeof directory, "%.900s/sluice-%u",
                   base != NULL && base[0] == '/' ? base : "/tmp", (unsigned)geteuid());
    sl_err err = sl_dir_make(directory, why);
    if (err != SL_OK) {
        return err;
    }
    (void)snprintf(self->sign_path, sizeof self->sign_path, "%s/mooncake-client-%u", directory,
                   (unsigned)mc_flags_u64(self->daemon.flags, CLIENT_port));
    (void)snprintf(fresh, sizeof fresh, "%s.new", self->sign_path);
    size_t length = (size_t)snprintf(line, sizeof line, "%s\n", self->node.instance);
    SL_AUTO(close)
    int fd = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || write(fd, line, length) != (ssize_t)length ||
        rename(fresh, self->sign_path) != 0) {
        int code = errno;
        self->sign_path[0] = '\0';
        return sl_fail_os(why, code, "write '%.150s'", fresh);
    }
    return SL_OK;
}

/* ---- lending ---- */

static sl_err client_open(struct lender *self, struct sl_error *why)
{
    const struct sl_client_options options = {.api_version = SLUICE_API_VERSION,
                                              .instance = self->node.instance,
                                              .timeout_ns = MC_CALL_NS};
    return sl_client_open(&options, &self->client, why);
}

/* What is contributed is remembered by the client, which tells a node that was made anew; here it
 * is seen that it came to that. */
static bool still_lent(struct lender *self, struct sl_error *why)
{
    SL_AUTO(free) struct sl_contribution_info *infos = calloc(SL_CONTRIBUTIONS_MAX, sizeof *infos);
    uint32_t count = 0;
    if (infos == NULL || sl_contributions(self->client, infos, &count, MC_CALL_NS, why) != SL_OK) {
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(infos[i].name, self->name) == 0 && infos[i].pid == (uint32_t)getpid()) {
            return true;
        }
    }
    (void)sl_fail(why, SL_ERR_NOT_FOUND, "the node does not know of it");
    return false;
}

static sl_err lend(struct lender *self, struct sl_error *why)
{
    if (self->client == NULL) {
        sl_err err = client_open(self, why);
        if (err != SL_OK) {
            return err;
        }
    }
    return self->segment_bytes == 0 ? SL_OK
                                    : sl_contribute(self->client, self->name, self->segment_bytes,
                                                    false, MC_CALL_NS, why);
}

/* A client that has seen too many nodes come and go is replaced by a fresh one. */
static void lend_again(struct lender *self)
{
    struct sl_error why = {0};
    sl_err err = lend(self, &why);
    if (err == SL_ERR_LIMIT) {
        sl_client_close(&self->client);
        err = lend(self, &why);
    }
    if ((err == SL_OK) != self->lent) {
        self->lent = err == SL_OK;
        sl_log_write(self->daemon.log, self->lent ? SL_LOG_INFO : SL_LOG_WARN, 0,
                     "segment '%s': %s", self->name,
                     self->lent ? "the node has it again" : why.text);
    }
}

static void on_tick(void *context, uint64_t now_ns)
{
    struct lender *self = context;
    struct sl_error why = {0};
    if (self->segment_bytes != 0 && !still_lent(self, &why)) {
        if (self->lent) {
            self->lent = false;
            sl_log_write(self->daemon.log, SL_LOG_WARN, 0, "segment '%s': %s", self->name,
                         why.text);
        }
        lend_again(self);
    }
    if (self->http != NULL) {
        mc_http_tend(self->http, now_ns);
    }
    sl_loop_timer_set(self->daemon.loop, self->daemon.tick, sl_clock_monotonic_ns() + TICK_NS);
}

/* Waits for a master that is just starting; the loop turns meanwhile, for signals. */
static sl_err lend_first(struct lender *self, struct sl_error *why)
{
    uint64_t until_ns = sl_clock_monotonic_ns() + START_NS;
    sl_err err = lend(self, why);
    bool told = false;
    while ((err == SL_ERR_UNREACHABLE || err == SL_ERR_TIMEOUT) && !self->ended &&
           sl_clock_monotonic_ns() < until_ns) {
        if (!told) {
            sl_log_write(self->daemon.log, SL_LOG_INFO, 0, "waiting for node '%s'",
                         self->node.instance);
            told = true;
        }
        (void)sl_loop_turn(self->daemon.loop, START_PAUSE_NS, NULL);
        err = lend(self, why);
    }
    if (err == SL_ERR_UNREACHABLE) {
        store_instance_advise(mc_flags_text(self->daemon.flags, CLIENT_master_server_address), why);
    }
    self->lent = err == SL_OK;
    return err;
}

/* ---- HTTP ---- */

static void get_health(void *context, const struct mc_request *request, struct mc_answer *answer)
{
    const struct lender *self = context;
    struct sl_error why = {0};
    (void)request;
    bool ready = mc_node_ready(&self->admin.paths, self->admin.disk_count, &why);
    mc_answer_json(answer, ready ? 200 : 503,
                   json_pack("{s:s, s:s, s:s, s:s}", "status", ready ? "ok" : "waiting", "segment",
                             self->name, "instance", self->node.instance, "reason", why.text));
}

static void get_metrics(void *context, const struct mc_request *request, struct mc_answer *answer)
{
    struct lender *self = context;
    mc_metrics(&self->admin, request, answer);
}

static void get_summary(void *context, const struct mc_request *request, struct mc_answer *answer)
{
    struct lender *self = context;
    mc_metrics_summary(&self->admin, request, answer);
}

static const struct mc_route routes[] = {{"/health", MC_GET, get_health, 0},
                                         {"/metrics", MC_GET, get_metrics, 0},
                                         {"/metrics/summary", MC_GET, get_summary, 0}};

/* ---- start ---- */

static sl_err ports_bind(struct lender *self, struct sl_error *why)
{
    const char *host = mc_flags_text(self->daemon.flags, CLIENT_host);
    uint16_t port = (uint16_t)mc_flags_u64(self->daemon.flags, CLIENT_port);
    mc_address_text(host, port, self->name, sizeof self->name);
    host = host[0] == '\0' ? MC_LOOPBACK : host;
    sl_err err = mc_listen(host, "", port, &self->rpc_fd, why);
    if (err == SL_OK && mc_flags_bool(self->daemon.flags, CLIENT_enable_http_server)) {
        err = mc_listen(host, "", (uint16_t)mc_flags_u64(self->daemon.flags, CLIENT_http_port),
                        &self->http_fd, why);
    }
    return err;
}

static sl_err node_find(struct lender *self, struct sl_error *why)
{
    const char *master = mc_flags_text(self->daemon.flags, CLIENT_master_server_address);
    sl_err err = store_instance_of(master, self->node.instance, why);
    if (err == SL_OK && self->node.instance[0] == '\0') {
        mc_node_instance(0, self->node.instance); /* $SLUICE_INSTANCE */
    }
    err = err == SL_OK ? sl_config_create(&self->node.config, why) : err;
    err = err == SL_OK ? sl_config_load(self->node.config, NULL, 0, NULL, NULL, why) : err;
    err = err == SL_OK ? sl_config_set(self->node.config, "instance", self->node.instance,
                                       "mooncake_client", why)
                       : err;
    return err == SL_OK ? sl_paths_from(self->node.config, &self->node.paths, why) : err;
}

/* The node's settings lie beside its sockets: whether it has a disk tier stands there. */
static sl_err offload_check(struct lender *self, struct sl_error *why)
{
    char path[1100];
    struct sl_config *config = NULL;
    (void)snprintf(path, sizeof path, "%s/mooncake-master.conf", self->node.paths.runtime_dir);
    sl_err err = sl_config_create(&config, why);
    if (err == SL_OK && access(path, R_OK) == 0) {
        err = sl_config_load(config, path, 0, NULL, NULL, why);
    }
    uint64_t disk_bytes = err == SL_OK ? sl_config_u64(config, SL_SET_disk) : 0;
    sl_config_destroy(&config);
    if (err == SL_OK && disk_bytes == 0 &&
        mc_flags_bool(self->daemon.flags, CLIENT_enable_offload)) {
        return sl_fail(why, SL_ERR_CONFIG,
                       "--enable_offload: node '%s' has no disk tier: start mooncake_master with "
                       "--enable_offload and MOONCAKE_OFFLOAD_FILE_STORAGE_PATH",
                       self->node.instance);
    }
    return err;
}

static sl_err serve(struct lender *self, struct sl_error *why)
{
    int fd = self->rpc_fd;
    self->rpc_fd = -1;
    self->server = (struct mc_join_server){.instance = self->node.instance};
    sl_err err = mc_rpc_start(fd, &self->server, &self->rpc, why);
    if (err == SL_OK && self->http_fd >= 0) {
        fd = self->http_fd;
        self->http_fd = -1;
        err = mc_http_start(fd, routes, SL_COUNT(routes), &(struct mc_http_guard){0}, self,
                            &self->http, why);
    }
    return err;
}

static sl_err start(struct lender *self, struct sl_error *why)
{
    self->segment_bytes = mc_flags_u64(self->daemon.flags, CLIENT_global_segment_size);
    sl_err err = mc_daemon_loop(&self->daemon, 0, on_signal, on_tick, self, why);
    err = err == SL_OK ? ports_bind(self, why) : err;
    err = err == SL_OK ? node_find(self, why) : err;
    if (err == SL_OK) {
        mc_admin_init(&self->admin, "mooncake_client", &self->node, self->name);
        err = lend_first(self, why);
    }
    err = err == SL_OK ? offload_check(self, why) : err;
    err = err == SL_OK ? serve(self, why) : err;
    err = err == SL_OK ? sign_put(self, why) : err;
    if (err == SL_OK && !self->ended) {
        sl_loop_timer_set(self->daemon.loop, self->daemon.tick, sl_clock_monotonic_ns() + TICK_NS);
        sl_log_write(self->daemon.log, SL_LOG_INFO, 0,
                     "segment '%s' of %" PRIu64 " MiB is ready at node '%s'", self->name,
                     self->segment_bytes / SL_MIB, self->node.instance);
    }
    return err;
}

static void end(struct lender *self)
{
    if (self->sign_path[0] != '\0') {
        (void)unlink(self->sign_path);
    }
    mc_http_stop(&self->http);
    if (self->client != NULL && self->segment_bytes != 0 && self->lent) {
        struct sl_error why = {0};
        if (sl_withdraw(self->client, self->name, MC_CALL_NS, &why) != SL_OK) {
            sl_log_write(self->daemon.log, SL_LOG_WARN, 0, "segment '%s': %s", self->name,
                         why.text);
        }
    }
    sl_client_close(&self->client);
    mc_rpc_stop(&self->rpc);
    if (self->admin.program != NULL) {
        mc_admin_fini(&self->admin);
    }
    mc_node_fini(&self->node);
    sl_auto_close(&self->rpc_fd);
    sl_auto_close(&self->http_fd);
    sl_loop_destroy(&self->daemon.loop);
}

static const struct mc_daemon_use use = {
    .table = mc_client_flags,
    .flag_count = CLIENT_COUNT,
    .minloglevel = CLIENT_minloglevel,
    .about = "Contributes memory to the node of a mooncake_master of this host, as long as it "
             "runs.\nExit codes: 0 stopped, 1 failed, 2 wrong use.",
};

int main(int argc, char **argv)
{
    struct lender self = {.daemon.name = "mooncake_client", .rpc_fd = -1, .http_fd = -1};
    struct sl_error why = {0};
    self.node.lock_fd = -1;
    int code = mc_daemon_begin(&self.daemon, &use, argc, argv);
    if (code >= 0) {
        return code;
    }
    sl_err err = start(&self, &why);
    if (err == SL_OK && !self.ended) {
        err = sl_loop_run(self.daemon.loop, &why);
    }
    if (self.ended) { /* asked to, even while it waited for a master */
        err = SL_OK;
    }
    if (err != SL_OK) {
        (void)fprintf(stderr, "mooncake_client: %s\n", why.text);
    }
    end(&self);
    return mc_daemon_end(&self.daemon, err == SL_OK);
}
