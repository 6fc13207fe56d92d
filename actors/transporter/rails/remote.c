/* actors/transporter/rails/remote.c - lives of a rail's process as the door sees them: greetings,
 * silence, death. */
#include "actors/transporter/rails/remote_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REGION_BYTES_ANY UINT64_MAX
#define OPEN_NS          SL_NS_PER_S /* a process that greets so long after its first order lost it */
#define PING_NS          SL_NS_PER_S
#define SILENT_NS_MIN    (250 * SL_NS_PER_MS)
#define MEMORY_BYTE_NS   4 /* 250 MB/s: less than pinning and giving up took in an emulated guest */

/* ---- making one ---- */

static sl_err tables_make(struct tr_remote *remote, struct sl_error *why)
{
    const struct sl_fabric_options *options = &remote->fabric.options;
    remote->memories = calloc(options->memories_max, sizeof(*remote->memories));
    remote->peers = calloc(options->peers_max, sizeof(*remote->peers));
    remote->grants = calloc(options->grants_max, sizeof(*remote->grants));
    remote->keys = calloc(options->keys_max, sizeof(*remote->keys));
    remote->posts = calloc(options->transfers_max, sizeof(*remote->posts));
    if (remote->memories == NULL || remote->peers == NULL || remote->grants == NULL ||
        remote->keys == NULL || remote->posts == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for the tables of rail %u", remote->index);
    }
    for (uint32_t i = 0; i < options->transfers_max; i++) {
        remote->posts[i].next = i + 1 < options->transfers_max ? i + 1 : FABRIC_NONE;
    }
    return SL_OK;
}

/* What the rail's process says of itself; without one, that there is none. */
void remote_about(struct tr_remote *remote, const char *said)
{
    (void)snprintf(remote->fabric.about, sizeof(remote->fabric.about), "%.80s by %s%s",
                   said != NULL ? said : remote->entry, remote->name,
                   said != NULL ? "" : ", which is not there");
}

sl_err tr_remote_open(void *context, uint32_t index, const struct sl_fabric_options *options,
                      struct sl_fabric **out, struct sl_error *why)
{
    struct tr_remotes *all = context;
    SL_ASSERT(index > 0 && index < TR_RAILS_MAX && all->at[index] == NULL);
    struct tr_remote *remote = aligned_alloc(64, sl_align_up(sizeof(*remote), 64));
    if (remote == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for rail %u", index);
    }
    memset(remote, 0, sizeof(*remote));
    remote->all = all;
    remote->env = all->env;
    remote->index = index;
    remote->region_bytes_max = REGION_BYTES_ANY;
    remote->fabric.options = *options;
    remote->fabric.front = &tr_remote_front;
    remote->fabric.behind = remote;
    remote->fabric.fd = -1;
    bool by_nic = strcmp(options->kind, "tcp") != 0;
    (void)snprintf(remote->entry, sizeof(remote->entry), "%s",
                   by_nic ? options->nic : options->address);
    (void)snprintf(remote->name, sizeof(remote->name), "transporter.%u", index);
    sl_err err = tr_stream_init(&remote->stream, all->env, remote->name, why);
    err = err == SL_OK ? tables_make(remote, why) : err;
    if (err != SL_OK) {
        tr_remote_front.close(&remote->fabric);
        return err;
    }
    remote_about(remote, NULL);
    all->at[index] = remote;
    *out = &remote->fabric;
    return SL_OK;
}

/* ---- orders ---- */

bool remote_is_there(const struct tr_remote *remote)
{
    return remote->state == REMOTE_OPENING || remote->state == REMOTE_SERVING;
}

void remote_order(struct tr_remote *remote, enum sl_rail_order kind,
                  struct sl_body_rail_order *body)
{
    struct sl_msg msg = {.type = SL_MSG_RAIL_ORDER};
    body->kind = kind;
    msg.body.rail_order = *body;
    if (remote_is_there(remote) && tr_stream_send(&remote->stream, &msg) != SL_OK) {
        remote_break(remote, "takes no orders any more");
    }
}

void remote_order_of(struct tr_remote *remote, enum sl_rail_order kind, uint32_t handle)
{
    struct sl_body_rail_order body = {.handle = handle};
    remote_order(remote, kind, &body);
}

void remote_due(struct tr_remote *remote)
{
    remote->env->ops->wake_at(remote->env, 0);
}

void remote_break(struct tr_remote *remote, const char *reason)
{
    if (remote->state == REMOTE_AWAY || remote->state == REMOTE_DYING) {
        return;
    }
    sl_log_write(remote->env->log, SL_LOG_ERROR, 0, "%s (process %u) %s: killed", remote->name,
                 remote->proc.pid, reason);
    remote->state = REMOTE_DYING;
    remote->killed_ns = remote->env->now_ns;
    remote->env->ops->kill(remote->env, remote->proc);
    remote_links_down(remote);
}

/* ---- greetings ---- */

/* A turn's time may be older than that of the last message. */
static uint64_t since_ns(uint64_t now_ns, uint64_t then_ns)
{
    return now_ns > then_ns ? now_ns - then_ns : 0;
}

static void life_begin(struct tr_remote *remote, const struct sl_body_rail_hello *hello,
                       struct sl_proc_id proc)
{
    struct sl_env *env = remote->env;
    remote->proc = proc;
    remote->state = REMOTE_OPENING;
    remote->opened_ns = remote->heard_ns = remote->looked_ns = env->now_ns;
    remote->pinged_ns = env->now_ns;
    remote->lives++;
    remote->region_bytes_max = hello->region_bytes_max;
    remote_about(remote, hello->about.length > 0 ? hello->about.at : "?");
    sl_log_write(env->log, SL_LOG_INFO, 0, "process %u drives rail %u: %s", proc.pid, remote->index,
                 remote->fabric.about);
    tr_stream_begin(&remote->stream, hello->life);
    struct sl_body_rail_order open = {.pid = env->self.pid, .start_time = env->self.start_time};
    remote_order(remote, RAIL_OPEN, &open);
    for (uint32_t i = 0; i < remote->fabric.options.memories_max; i++) {
        if (remote->memories[i].used) {
            remote_memory_order(remote, &remote->memories[i]);
        }
    }
    remote_serve_if_ready(remote);
}

/* Whether what came before this greeting is over. */
static sl_err earlier_is_over(struct tr_remote *remote, struct sl_proc_id proc,
                              struct sl_error *why)
{
    if (remote->state == REMOTE_AWAY) {
        return SL_OK;
    }
    if (sl_proc_id_equal(proc, remote->proc) && remote->state != REMOTE_DYING) {
        sl_log_write(remote->env->log, SL_LOG_WARN, 0, "%s (process %u) begins anew", remote->name,
                     proc.pid);
        remote->env->ops->unwatch(remote->env, proc);
        remote_over(remote); /* its word: nothing of the earlier life lands any more */
        return SL_OK;
    }
    remote_break(remote, "has a successor");
    return sl_fail(why, SL_ERR_BUSY, "an earlier process of %s is not known to be dead",
                   remote->name);
}

static sl_err hello_take(struct tr_remote *remote, const struct sl_body_rail_hello *hello,
                         struct sl_error *why)
{
    struct sl_env *env = remote->env;
    struct sl_proc_id proc = {.pid = (uint32_t)hello->pid, .start_time = hello->start_time};
    if (strcmp(hello->entry.at, remote->entry) != 0) {
        return sl_fail(why, SL_ERR_CONFIG, "rail %u is '%.60s' here, not '%.60s'", remote->index,
                       remote->entry, hello->entry.at);
    }
    if (remote->state != REMOTE_AWAY && hello->life == remote->stream.life) {
        if (remote_is_there(remote) && remote->stream.heard == 0 &&
            since_ns(env->now_ns, remote->opened_ns) > OPEN_NS) {
            remote_break(remote, "does not hear orders");
        }
        return SL_OK; /* said again: the first order is on its way */
    }
    sl_err err = earlier_is_over(remote, proc, why);
    if (err == SL_OK) {
        err = env->ops->watch(env, proc, 0);
    }
    if (err == SL_OK) {
        life_begin(remote, hello, proc);
    }
    return err;
}

static void hello(struct tr_remotes *all, const struct sl_msg *msg)
{
    const struct sl_body_rail_hello *body = &msg->body.rail_hello;
    struct tr_remote *remote = all->at[body->rail];
    struct sl_error why = {0};
    sl_err err = SL_OK;
    if (remote == NULL || strcmp(msg->sender.at, remote->name) != 0) {
        err =
            sl_fail(&why, SL_ERR_CONFIG, "no process is wanted for rail %u", (unsigned)body->rail);
    } else {
        err = hello_take(remote, body, &why);
    }
    sl_reply_code(all->env, msg, err, &why);
}

/* ---- what it says, and its death ---- */

static struct tr_remote *remote_named(const struct tr_remotes *all, const char *name)
{
    for (uint32_t i = 0; i < TR_RAILS_MAX; i++) {
        if (all->at[i] != NULL && strcmp(all->at[i]->name, name) == 0) {
            return all->at[i];
        }
    }
    return NULL;
}

bool tr_remotes_handle(struct tr_remotes *all, const struct sl_msg *msg)
{
    if (msg->type == SL_MSG_RAIL_HELLO) {
        hello(all, msg);
        return true;
    }
    if (msg->type != SL_MSG_RAIL_NEWS && msg->type != SL_MSG_RAIL_DONE) {
        return false;
    }
    struct tr_remote *remote = remote_named(all, msg->sender.at);
    if (remote == NULL || !remote_is_there(remote)) {
        return true; /* of a process that is over, or of nobody's */
    }
    enum tr_heard heard = tr_stream_hear(&remote->stream, msg);
    if (heard == TR_HEARD_OLD) {
        return true;
    }
    remote->heard_ns = all->env->now_ns;
    if (heard == TR_HEARD_GAP) {
        remote_break(remote, "said what did not arrive");
        return true;
    }
    bool sound = msg->type == SL_MSG_RAIL_NEWS ? remote_news(remote, &msg->body.rail_news)
                                               : remote_done(remote, &msg->body.rail_done);
    if (!sound) {
        remote_break(remote, "says what makes no sense");
    }
    return true;
}

bool tr_remotes_died(struct tr_remotes *all, const struct sl_body_local_died *died)
{
    struct sl_proc_id proc = {.pid = (uint32_t)died->pid, .start_time = died->start_time};
    for (uint32_t i = 0; i < TR_RAILS_MAX; i++) {
        struct tr_remote *remote = all->at[i];
        if (remote != NULL && remote->state != REMOTE_AWAY &&
            sl_proc_id_equal(remote->proc, proc)) {
            sl_log_write(all->env->log, SL_LOG_WARN, 0,
                         "%s (process %u) is gone: rail %u is down until it is back", remote->name,
                         proc.pid, remote->index);
            remote_over(remote);
            return true;
        }
    }
    return false;
}

/* ---- silence ---- */

static uint64_t silent_ns(const struct tr_remote *remote)
{
    return SL_MAX(remote->fabric.options.stall_ns, SILENT_NS_MIN);
}

/* Registering and deregistering takes as long as the memory is large. */
static bool is_memory_overdue(const struct tr_remote *remote, uint64_t now_ns)
{
    uint64_t grace_ns = silent_ns(remote) + remote->all->fence_ns;
    bool overdue = false;
    for (uint32_t i = 0; remote->memories_leaving + remote->memories_coming > 0 &&
                         i < remote->fabric.options.memories_max;
         i++) {
        const struct remote_memory *memory = &remote->memories[i];
        bool waited = memory->used && (memory->leaving || (memory->asked && !memory->there));
        uint64_t work_ns = memory->what.length_bytes * MEMORY_BYTE_NS;
        overdue |= waited && sl_deadline_ns(memory->since_ns, work_ns + grace_ns) < now_ns;
    }
    return overdue;
}

/* Whether a process that answers has still not ended what it had to. */
static bool is_overdue(const struct tr_remote *remote, uint64_t now_ns)
{
    uint64_t grace_ns = silent_ns(remote) + remote->all->fence_ns;
    bool overdue = is_memory_overdue(remote, now_ns);
    overdue |= remote->shut_asked != remote->shut_done && remote->shut_ns + grace_ns < now_ns;
    for (uint32_t i = 0; remote->posts_out > 0 && i < remote->fabric.options.transfers_max; i++) {
        const struct remote_post *post = &remote->posts[i];
        overdue |= post->used && post->ended == SL_OK &&
                   sl_deadline_ns(post->deadline_ns, grace_ns) < now_ns;
    }
    for (uint32_t i = 0; remote->grants_ending > 0 && i < remote->fabric.options.grants_max; i++) {
        const struct remote_grant *grant = &remote->grants[i];
        overdue |= grant->state == REMOTE_GRANT_ENDING && grant->ending_ns + grace_ns < now_ns;
    }
    return overdue;
}

/* Whether the process owes something that ends soon. */
static bool is_waited_for(const struct tr_remote *remote)
{
    return remote_is_there(remote) && (remote->posts_out > 0 || remote->grants_ending > 0 ||
                                       remote->shut_asked != remote->shut_done ||
                                       remote->memories_leaving > 0 || remote->memories_coming > 0);
}

/* When it was heard, or when it began to owe something, or when this process was held up itself. */
static void silence_look(struct tr_remote *remote, uint64_t now_ns)
{
    uint64_t limit_ns = silent_ns(remote);
    bool late = since_ns(now_ns, remote->looked_ns) > limit_ns / 2;
    remote->looked_ns = now_ns;
    if (late) {
        remote->heard_ns = now_ns;
    }
    if (since_ns(now_ns, SL_MAX(remote->heard_ns, remote->pinged_ns)) < limit_ns / 4) {
        return;
    }
    if (since_ns(now_ns, remote->heard_ns) >= limit_ns) {
        remote_break(remote, "is silent while something has to end");
    } else if (is_overdue(remote, now_ns)) {
        remote_break(remote, "does not end what it was told to");
    } else {
        remote->pinged_ns = now_ns;
        remote_order_of(remote, RAIL_PING, 0);
    }
}

void remote_turn(struct sl_fabric *fabric, uint64_t now_ns)
{
    struct tr_remote *remote = fabric->behind;
    fabric->now_ns = now_ns;
    tr_stream_flush(&remote->stream);
    if (is_waited_for(remote)) {
        silence_look(remote, now_ns);
    } else {
        remote->looked_ns = 0; /* what it will owe begins then */
    }
    if (remote_is_there(remote) && since_ns(now_ns, remote->pinged_ns) >= PING_NS) {
        remote->pinged_ns = now_ns;
        remote_order_of(remote, RAIL_PING, 0); /* a frame that was lost shows by the next */
    }
    if (remote->state == REMOTE_DYING && since_ns(now_ns, remote->killed_ns) > SL_NS_PER_S) {
        remote->killed_ns = now_ns;
        remote->env->ops->kill(remote->env, remote->proc);
    }
    remote_events(remote);
}

uint64_t remote_due_at(const struct sl_fabric *fabric)
{
    const struct tr_remote *remote = fabric->behind;
    if (remote->posts_ended > 0 || remote->grants_due > 0 || remote->memories_due ||
        remote->links_due) {
        return 0;
    }
    if (remote->state == REMOTE_DYING) {
        return remote->killed_ns + SL_NS_PER_S;
    }
    uint64_t at_ns = remote_is_there(remote) ? remote->pinged_ns + PING_NS : SL_NEVER_NS;
    uint64_t heard_ns = SL_MAX(remote->heard_ns, remote->pinged_ns);
    return is_waited_for(remote) ? SL_MIN(at_ns, heard_ns + silent_ns(remote) / 4) : at_ns;
}
