/* client/gate/relay_check.c - see relay_check.h. */
#include "client/gate/relay_check.h"
#include "cuda/sl_device.h"
#include "ipc/gate_protocol.h"

#include <inttypes.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

uint64_t relay_number(uint32_t uid, enum relay_what what, uint64_t number)
{
    const struct {
        uint64_t number;
        uint32_t uid, what;
    } named = {.number = number, .uid = uid, .what = (uint32_t)what};
    unsigned char digest[32];
    uint64_t made = 0;
    unsigned length = 0;
    if (number == 0) {
        return 0;
    }
    /* Nobody finds a number that becomes a given other one. */
    SL_ASSERT(EVP_Digest(&named, sizeof(named), digest, &length, EVP_sha256(), NULL) == 1);
    memcpy(&made, digest, sizeof(made));
    return what == RELAY_TEAM ? made | SL_TEAM_FIRST : SL_MAX(made, UINT64_C(1));
}

void relay_checked_free(struct relay_checked *checked)
{
    free(checked->regions);
    *checked = (struct relay_checked){0};
}

/* ---- engines ---- */

/* By its own number, or that of its team. NULL: it is none of the client's. */
static const struct relay_engine *engine_find(const struct relay_rules *rules, uint64_t number)
{
    for (uint32_t i = 0; number != 0 && i < RELAY_ENGINES_MAX; i++) {
        const struct relay_engine *engine = &rules->engines[i];
        if (engine->id != 0 && (engine->id == number || engine->team == number)) {
            return engine;
        }
    }
    return NULL;
}

static bool is_own(const struct relay_rules *rules, uint64_t engine_id)
{
    return engine_id < SL_TEAM_FIRST && engine_find(rules, engine_id) != NULL;
}

static uint64_t product(uint64_t one, uint64_t other)
{
    uint64_t made = 0;
    return __builtin_mul_overflow(one, other, &made) ? UINT64_MAX : made;
}

/* layered_blocks: of a STORE by layers; 0: it is none. */
static sl_err engine_check(const struct relay_rules *rules, uint64_t *engine_id,
                           uint64_t layered_blocks, struct relay_checked *out, struct sl_error *why)
{
    bool of_team = *engine_id >= SL_TEAM_FIRST;
    if (of_team) {
        *engine_id = relay_number(rules->uid, RELAY_TEAM, *engine_id);
    }
    const struct relay_engine *engine = engine_find(rules, *engine_id);
    if (engine == NULL && !of_team) {
        return sl_fail(why, SL_ERR_NOT_FOUND, "engine %" PRIu64 " is not of this client",
                       *engine_id);
    }
    out->stranger = engine == NULL;
    out->target = *engine_id;
    out->draft_bytes = product(layered_blocks, engine != NULL ? engine->block_bytes : UINT64_MAX);
    return SL_OK;
}

/* A process of a team has some ranks: those of the others have as much. */
static uint64_t block_bytes(const struct sl_body_engine_register *body)
{
    uint64_t sum_bytes = 0, ranks = 0;
    for (uint64_t i = 0; i < body->regions.count; i++) {
        const struct sl_item_region *region = &body->regions.at[i];
        if (__builtin_add_overflow(sum_bytes, region->piece_bytes, &sum_bytes)) {
            return UINT64_MAX;
        }
        ranks |= UINT64_C(1) << (region->rank & 63);
    }
    uint64_t all_bytes = product(sum_bytes, body->world);
    return all_bytes / SL_MAX((uint64_t)__builtin_popcountll(ranks), 1);
}

static sl_err region_check(const struct relay_rules *rules, uint64_t number,
                           struct sl_item_region *region, struct relay_checked *out,
                           struct sl_error *why)
{
    uint64_t end_bytes = 0;
    if (region->handle_kind != SL_MEMORY_SHARED_FD || region->pool_epoch != 0) {
        return sl_fail(why, SL_ERR_UNSUPPORTED,
                       "ENGINE_REGISTER.regions[%" PRIu64
                       "]: a client of another user registers shared memory that it lends",
                       number);
    }
    if (region->fd >= SL_GATE_RELAY_MEMORIES_MAX ||
        rules->memories[region->fd].state == RELAY_MEMORY_NONE) {
        return sl_fail(why, SL_ERR_INVALID,
                       "ENGINE_REGISTER.regions[%" PRIu64 "].fd: memory %" PRIu64 " is not lent",
                       number, region->fd);
    }
    const struct relay_memory *memory = &rules->memories[region->fd];
    if (memory->state == RELAY_MEMORY_REFUSED) {
        return sl_fail(why, memory->why.code, "%s", memory->why.text);
    }
    if (__builtin_add_overflow(region->offset_bytes, region->length_bytes, &end_bytes) ||
        end_bytes > memory->length_bytes) {
        return sl_fail(why, SL_ERR_INVALID,
                       "ENGINE_REGISTER.regions[%" PRIu64 "]: beyond its memory of %" PRIu64
                       " bytes",
                       number, memory->length_bytes);
    }
    out->memories |= UINT64_C(1) << region->fd;
    region->fd = (uint64_t)relay_memory_fd((uint32_t)region->fd);
    region->pid = rules->self.pid;
    region->start_time = rules->self.start_time;
    region->handle = (struct sl_bytes){0};
    region->gpu = (struct sl_bytes){0};
    region->member = 0;
    return SL_OK;
}

static sl_err register_check(const struct relay_rules *rules, struct sl_body_engine_register *body,
                             struct relay_checked *out, struct sl_error *why)
{
    sl_err err = SL_OK;
    for (uint64_t i = 0; i < body->pools.count; i++) {
        if (body->pools.at[i].kind == SL_POOL_LENT) {
            return sl_fail(why, SL_ERR_UNSUPPORTED,
                           "buffers of a client of another user are not registered");
        }
    }
    if (body->regions.count > RELAY_REGIONS_MAX) {
        return sl_fail(why, SL_ERR_LIMIT,
                       "%" PRIu64 " regions: an engine of a client of another user has %u at most",
                       body->regions.count, RELAY_REGIONS_MAX);
    }
    out->regions = calloc(body->regions.count + 1, sizeof(*out->regions));
    if (out->regions == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "%" PRIu64 " regions", body->regions.count);
    }
    for (uint64_t i = 0; i < body->regions.count && err == SL_OK; i++) {
        out->regions[i] = body->regions.at[i];
        err = region_check(rules, i, &out->regions[i], out, why);
    }
    body->regions.at = out->regions;
    body->engine_id = 0;
    body->pid = rules->self.pid;
    body->start_time = rules->self.start_time;
    body->visible_devices = (struct sl_text){0};
    body->team = relay_number(rules->uid, RELAY_TEAM, body->team);
    out->target = body->team;
    out->block_bytes = block_bytes(body);
    return err;
}

/* ---- ops ---- */

static sl_err handover_fail(struct sl_error *why)
{
    return sl_fail(why, SL_ERR_UNSUPPORTED,
                   "hand-overs are not for a client of another user (clients_write)");
}

static sl_err events_fail(struct sl_error *why)
{
    return sl_fail(why, SL_ERR_UNSUPPORTED,
                   "events of a GPU are not for a client of another user (clients_write)");
}

static sl_err store_check(const struct relay_rules *rules, struct sl_body_store *body,
                          struct relay_checked *out, struct sl_error *why)
{
    if (body->handover_id != 0 || body->hold_ns != 0 || body->ticket.count > 0 || body->direct) {
        return handover_fail(why);
    }
    if (body->events.count > 0 || body->ordered_blocks.count > 0) {
        return events_fail(why);
    }
    body->session_id = relay_number(rules->uid, RELAY_SESSION, body->session_id);
    uint64_t blocks = body->device_blocks.count + body->layered_blocks.count;
    return engine_check(rules, &body->engine_id, body->layer_ends.count > 0 ? blocks : 0, out, why);
}

static sl_err load_check(const struct relay_rules *rules, struct sl_body_load *body,
                         struct relay_checked *out, struct sl_error *why)
{
    if (body->handover_id != 0 || body->receipt.count > 0 || body->prefill_node.length > 0 ||
        body->direct) {
        return handover_fail(why);
    }
    if (body->events.count > 0 || body->ordered_blocks.count > 0) {
        return events_fail(why);
    }
    body->session_id = relay_number(rules->uid, RELAY_SESSION, body->session_id);
    return engine_check(rules, &body->engine_id, 0, out, why);
}

static sl_err layers_check(const struct relay_rules *rules, uint64_t *target_op, uint64_t member,
                           struct relay_checked *out, struct sl_error *why)
{
    *target_op = relay_number(rules->uid, RELAY_OP, *target_op);
    out->target = *target_op;
    return member == 0 || is_own(rules, member)
               ? SL_OK
               : sl_fail(why, SL_ERR_NOT_FOUND, "engine %" PRIu64 " is not of this client", member);
}

static sl_err registrar_check(const struct relay_rules *rules, struct sl_msg *msg,
                              struct relay_checked *out, struct sl_error *why)
{
    switch (msg->type) {
    case SL_MSG_ENGINE_REGISTER:
        return register_check(rules, &msg->body.engine_register, out, why);
    case SL_MSG_ENGINE_END:
        out->target = msg->body.engine_end.engine_id;
        return is_own(rules, msg->body.engine_end.engine_id)
                   ? SL_OK
                   : sl_fail(why, SL_ERR_NOT_FOUND, "engine %" PRIu64 " is not of this client",
                             msg->body.engine_end.engine_id);
    default:
        return sl_fail(why, SL_ERR_PERMISSION, "%s is nothing that another user may ask",
                       sl_msg_name(msg->type));
    }
}

static sl_err coordinator_check(const struct relay_rules *rules, struct sl_msg *msg,
                                struct relay_checked *out, struct sl_error *why)
{
    switch (msg->type) {
    case SL_MSG_STORE:
        return store_check(rules, &msg->body.store, out, why);
    case SL_MSG_LOAD:
        return load_check(rules, &msg->body.load, out, why);
    case SL_MSG_CANCEL:
        out->target = relay_number(rules->uid, RELAY_OP, msg->body.cancel.target_op);
        msg->body.cancel.target_op = out->target;
        return SL_OK;
    case SL_MSG_OP_FENCED:
        out->target = relay_number(rules->uid, RELAY_OP, msg->body.op_fenced.target_op);
        msg->body.op_fenced.target_op = out->target;
        return SL_OK;
    case SL_MSG_LAYER_READY:
        return layers_check(rules, &msg->body.layer_ready.target_op, msg->body.layer_ready.member,
                            out, why);
    case SL_MSG_LAYER_WAIT:
        return layers_check(rules, &msg->body.layer_wait.target_op, msg->body.layer_wait.member,
                            out, why);
    case SL_MSG_SESSION_PAUSE:
        out->target = relay_number(rules->uid, RELAY_SESSION, msg->body.session_pause.session_id);
        msg->body.session_pause.session_id = out->target;
        return SL_OK;
    default:
        return sl_fail(why, SL_ERR_PERMISSION, "%s is nothing that another user may ask",
                       sl_msg_name(msg->type));
    }
}

uint32_t relay_types(const char *to, const enum sl_msg_type **types)
{
    static const enum sl_msg_type of_registrar[] = {SL_MSG_ENGINE_REGISTER, SL_MSG_ENGINE_END},
                                  of_coordinator[] = {SL_MSG_STORE,        SL_MSG_LOAD,
                                                      SL_MSG_CANCEL,       SL_MSG_OP_FENCED,
                                                      SL_MSG_LAYER_READY,  SL_MSG_LAYER_WAIT,
                                                      SL_MSG_SESSION_PAUSE};
    bool registrar = strcmp(to, "registrar") == 0;
    *types = registrar ? of_registrar : of_coordinator;
    return registrar ? SL_COUNT(of_registrar) : SL_COUNT(of_coordinator);
}

sl_err relay_check(const struct relay_rules *rules, const char *to, struct sl_msg *msg,
                   struct relay_checked *out, struct sl_error *why)
{
    *out = (struct relay_checked){0};
    msg->op_id = relay_number(rules->uid, RELAY_OP, msg->op_id);
    msg->budget_ns =
        SL_MIN(msg->budget_ns == 0 ? rules->op_timeout_ns : msg->budget_ns, SL_GATE_WAIT_NS_MAX);
    return strcmp(to, "registrar") == 0 ? registrar_check(rules, msg, out, why)
                                        : coordinator_check(rules, msg, out, why);
}
