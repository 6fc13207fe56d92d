/* client/mooncake/daemons/master_main.c - mooncake_master: a node of Sluice where Mooncake's master
 * was. */
#include "client/mooncake/daemons/admin.h"
#include "client/mooncake/daemons/daemon.h"
#include "client/mooncake/daemons/listen.h"
#include "client/mooncake/daemons/metadata.h"
#include "runtime/sl_clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TICK_NS     (200 * SL_NS_PER_MS)
#define SLOW_NS     (10 * SL_NS_PER_S) /* a node that is not ready for so long is told of */
#define WORDS_BYTES 2000

struct master {
    struct mc_daemon daemon;
    struct mc_node node;
    struct mc_admin admin;
    struct mc_http *http;
    struct mc_metadata *metadata;
    struct mc_rpc *rpc;
    struct mc_join_server server;
    int rpc_fd, http_fd, metadata_fd;
    char rpc_host[256];
    char *token; /* of the admin HTTP; NULL: none */
    uint16_t rpc_port, metrics_port;
    bool ready, failed, slow;
    uint64_t waiting_since_ns; /* for it to be ready */
    char trouble[256];         /* of a node that serves nevertheless; as it was told */
};

static uint16_t port_of(const struct mc_flags *flags)
{
    uint64_t port = mc_flags_u64(flags, MASTER_rpc_port);
    return (uint16_t)(port != 0 ? port : mc_flags_u64(flags, MASTER_port));
}

/* ---- while it runs ---- */

static void on_signal(void *context, int number)
{
    struct master *self = context;
    sl_log_write(self->daemon.log, SL_LOG_INFO, 0, "signal %d: stopping node '%s'", number,
                 self->node.instance);
    sl_loop_stop(self->daemon.loop);
}

static void on_supervisor_death(void *context, struct sl_proc_id proc)
{
    struct master *self = context;
    char words[WORDS_BYTES];
    mc_node_last_words(&self->node, words, sizeof words);
    sl_log_write(
        self->daemon.log, SL_LOG_ERROR, 0,
        "the supervisor of node '%s', process %u, ended; what it said is in %s/supervisor.out",
        self->node.instance, proc.pid, self->node.paths.log_dir);
    if (!self->ready) {
        (void)fprintf(stderr, "mooncake_master: node '%s' did not start: %s\n", self->node.instance,
                      words);
    }
    self->failed = true;
    sl_loop_stop(self->daemon.loop);
}

static void trouble_note(struct master *self, const char *text)
{
    if (strcmp(self->trouble, text) == 0) {
        return;
    }
    (void)snprintf(self->trouble, sizeof self->trouble, "%.255s", text);
    sl_log_write(self->daemon.log, text[0] != '\0' ? SL_LOG_WARN : SL_LOG_INFO, 0, "node '%s': %s",
                 self->node.instance, text[0] != '\0' ? text : "all is well again");
}

static void room_note(const struct master *self, uint64_t memory_bytes)
{
    if (self->node.room_bytes != 0 && memory_bytes > self->node.room_bytes) {
        sl_log_write(self->daemon.log, SL_LOG_WARN, 0,
                     "clients may contribute %" PRIu64 " MiB, but shared memory had only %" PRIu64
                     " MiB free: df "
                     "-h /dev/shm",
                     memory_bytes / SL_MIB, self->node.room_bytes / SL_MIB);
    }
}

static void slow_note(struct master *self, uint64_t now_ns, const char *text)
{
    if (!self->slow && now_ns - self->waiting_since_ns > SLOW_NS) {
        self->slow = true;
        sl_log_write(self->daemon.log, SL_LOG_WARN, 0,
                     "node '%s' is still not ready: %s; logs are in %s", self->node.instance, text,
                     self->node.paths.log_dir);
    }
}

static void readiness_note(struct master *self, uint64_t now_ns)
{
    struct sl_error why = {0};
    bool ready = mc_node_ready(&self->admin.paths, self->admin.disk_count, &why);
    if (ready) {
        trouble_note(self, why.text);
    } else if (!self->ready) {
        slow_note(self, now_ns, why.text);
    }
    if (ready == self->ready) {
        return;
    }
    self->ready = ready;
    self->slow = false;
    self->waiting_since_ns = now_ns;
    if (!ready) {
        sl_log_write(self->daemon.log, SL_LOG_WARN, 0, "node '%s' is not ready: %s",
                     self->node.instance, why.text);
        return;
    }
    sl_log_write(self->daemon.log, SL_LOG_INFO, 0,
                 "node '%s' is ready%s: %" PRIu64 " MiB memory, %" PRIu64 " MiB disk",
                 self->node.instance, self->node.adopted ? " (it ran already)" : "",
                 sl_config_u64(self->node.config, SL_SET_memory) / SL_MIB,
                 self->admin.disk_bytes / SL_MIB);
}

static void on_tick(void *context, uint64_t now_ns)
{
    struct master *self = context;
    readiness_note(self, now_ns);
    mc_http_tend(self->http, now_ns);
    mc_metadata_tend(self->metadata, now_ns);
    sl_loop_timer_set(self->daemon.loop, self->daemon.tick, now_ns + TICK_NS);
}

/* ---- start ---- */

/* The address that a flag gives a port, else the one of all ports without. */
static const char *host_of(const struct mc_flags *flags, enum mc_master_flag flag)
{
    const char *own = mc_flags_text(flags, flag);
    return own[0] != '\0' ? own : mc_flags_text(flags, MASTER_listen_host);
}

/* Hosts that join reach the main port; all that they can do there wants the cluster's secret. */
static sl_err rpc_host_set(struct master *self, struct sl_error *why)
{
    const struct mc_flags *flags = self->daemon.flags;
    char *secret = NULL;
    sl_err err = mc_secret_get("MOONCAKE_CLUSTER_SECRET", &secret, why);
    bool joined = secret != NULL && mc_flags_text(flags, MASTER_rpc_address)[0] == '\0';
    (void)snprintf(self->rpc_host, sizeof self->rpc_host, "%s",
                   joined ? "0.0.0.0" : host_of(flags, MASTER_rpc_address));
    free(secret);
    return err;
}

/* All ports first: what is in use is found before anything was started. */
static sl_err ports_bind(struct master *self, struct sl_error *why)
{
    const struct mc_flags *flags = self->daemon.flags;
    self->rpc_port = port_of(flags);
    self->metrics_port = (uint16_t)mc_flags_u64(flags, MASTER_metrics_port);
    sl_err err = rpc_host_set(self, why);
    err = err == SL_OK ? mc_secret_get(MC_ADMIN_TOKEN, &self->token, why) : err;
    if (err == SL_OK) {
        err = mc_listen(self->rpc_host, mc_flags_text(flags, MASTER_rpc_interface), self->rpc_port,
                        &self->rpc_fd, why);
    }
    if (err == SL_OK) {
        err = mc_listen(host_of(flags, MASTER_metrics_host), "", self->metrics_port, &self->http_fd,
                        why);
    }
    if (err == SL_OK && mc_flags_bool(flags, MASTER_enable_http_metadata_server)) {
        err = mc_listen(host_of(flags, MASTER_http_metadata_server_host), "",
                        (uint16_t)mc_flags_u64(flags, MASTER_http_metadata_server_port),
                        &self->metadata_fd, why);
    }
    return err;
}

/* From a thread of the cluster's. */
static void cluster_said(void *context, const char *text)
{
    const struct master *self = context;
    sl_log_write(self->daemon.log, SL_LOG_INFO, 0, "%s", text);
}

static sl_err serve(struct master *self, struct sl_error *why)
{
    char address[256];
    int fd = self->http_fd;
    struct mc_http_guard guard = {
        .token = self->token, .origins = mc_flags_text(self->daemon.flags, MASTER_allowed_origins)};
    mc_address_text(self->rpc_host, self->rpc_port, address, sizeof address);
    mc_admin_init(&self->admin, "mooncake_master", &self->node, address);
    self->http_fd = -1;
    sl_err err = mc_http_start(fd, mc_admin_routes, mc_admin_route_count, &guard, &self->admin,
                               &self->http, why);
    if (err == SL_OK && self->metadata_fd >= 0) {
        fd = self->metadata_fd;
        self->metadata_fd = -1;
        guard.open_without_token = true; /* it is there to be written to by other hosts */
        if (mc_flags_bool(self->daemon.flags, MASTER_metadata_open)) {
            guard.token = NULL;
        }
        err = mc_metadata_start(fd, MC_METADATA_BYTES_MAX, &guard, &self->metadata, why);
    }
    if (err == SL_OK) {
        self->server = (struct mc_join_server){
            .instance = self->node.instance,
            .greet_ns =
                mc_flags_u64(self->daemon.flags, MASTER_rpc_conn_timeout_seconds) * SL_NS_PER_MS};
        if (self->node.cluster != NULL) {
            mc_cluster_serve(self->node.cluster, &self->server);
            err = mc_cluster_start(self->node.cluster, cluster_said, self, why);
        }
    }
    if (err == SL_OK) {
        fd = self->rpc_fd;
        self->rpc_fd = -1;
        err = mc_rpc_start(fd, &self->server, &self->rpc, why);
    }
    return err;
}

static sl_err start(struct master *self, struct sl_error *why)
{
    sl_err err = mc_daemon_loop(&self->daemon, 4, on_signal, on_tick, self, why);
    err = err == SL_OK ? ports_bind(self, why) : err;
    err = err == SL_OK ? mc_node_init(self->daemon.flags, &self->node, why) : err;
    err = err == SL_OK ? mc_node_start(&self->node, why) : err;
    if (err != SL_OK) {
        return err;
    }
    err = sl_loop_process_watch(self->daemon.loop, self->node.supervisor, on_supervisor_death, self,
                                why);
    err = err == SL_OK ? serve(self, why) : err;
    if (err == SL_OK) {
        self->waiting_since_ns = sl_clock_monotonic_ns();
        sl_loop_timer_set(self->daemon.loop, self->daemon.tick, self->waiting_since_ns);
        sl_log_write(self->daemon.log, SL_LOG_INFO, 0, "node '%s': port %u, admin http at port %u",
                     self->node.instance, self->rpc_port, self->metrics_port);
        room_note(self, sl_config_u64(self->node.config, SL_SET_memory));
    }
    return err;
}

/* The node goes before its port: who finds the port free finds no node of that name. A node whose
 * supervisor failed is left as it is, for the next master to put in order. */
static sl_err end(struct master *self, struct sl_error *why)
{
    sl_err err = SL_OK;
    mc_http_stop(&self->http);
    mc_metadata_stop(&self->metadata);
    if (!self->failed) {
        err = mc_node_stop(&self->node, why);
    }
    mc_rpc_stop(&self->rpc);
    if (self->admin.program != NULL) {
        mc_admin_fini(&self->admin);
    }
    mc_node_fini(&self->node);
    sl_auto_close(&self->rpc_fd);
    sl_auto_close(&self->http_fd);
    sl_auto_close(&self->metadata_fd);
    sl_loop_destroy(&self->daemon.loop);
    free(self->token);
    return err;
}

/* ---- main ---- */

static const struct mc_daemon_use use = {
    .table = mc_master_flags,
    .flag_count = MASTER_COUNT,
    .minloglevel = MASTER_minloglevel,
    .about = "Runs a node of Sluice where Mooncake's master was: clients of this host find it by "
             "its port.\nEnds it, and what it holds, at SIGTERM or SIGINT. Killed, it leaves the "
             "node to its successor.\nSLUICE_NAME in the environment sets any setting of the node "
             "(sluicectl config --help), and wins.\nExit codes: 0 stopped, 1 failed, 2 wrong use.",
};

int main(int argc, char **argv)
{
    struct master self = {
        .daemon.name = "mooncake_master", .rpc_fd = -1, .http_fd = -1, .metadata_fd = -1};
    struct sl_error why = {0};
    self.node.lock_fd = -1;
    int code = mc_daemon_begin(&self.daemon, &use, argc, argv);
    if (code >= 0) {
        return code;
    }
    sl_err err = start(&self, &why);
    bool started = err == SL_OK;
    err = err == SL_OK ? sl_loop_run(self.daemon.loop, &why) : err;
    if (err != SL_OK) {
        (void)fprintf(stderr, "mooncake_master: %s\n", why.text);
    }
    struct sl_error end_why = {0};
    if (!started && self.node.adopted) {
        self.failed = true; /* it ran before, and goes on without us */
    }
    if (end(&self, &end_why) != SL_OK) {
        (void)fprintf(stderr, "mooncake_master: %s\n", end_why.text);
        err = end_why.code;
    }
    return mc_daemon_end(&self.daemon, err == SL_OK && !self.failed);
}
