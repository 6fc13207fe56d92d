/* actors/coordinator/sessions.c - sessions of engines: reads their blocks from disk before the next
 * request.
 *
 * The table of sessions (runtime/policy/sessions) knows which session is due; this file has the
 * keys of its chain. Blocks that are only on disk are requested by BRING with `ahead`, which runs
 * after all loads, and is refused if it would evict something worth more. A few such requests are
 * in flight at a time. All of it is lost with the process; sessions are then learnt again. */
#include "runtime/policy/sessions/sessions.h"
#include "actors/coordinator/internal.h"
#include "runtime/base/sl_array.h"
#include "runtime/base/sl_table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TURNS_SEEN 64u
#define PARTS_MAX  2048u /* looked up for a BRING: two event loops wait meanwhile */
#define ASK_NS     (5 * SL_NS_PER_S)
/* Bound of all chains; the session that is idle longest loses its own. */
#define CHAIN_BYTES_MAX (32 * SL_MIB)
#define WORTH_UNIT      1e12 /* of worth and edge in messages, in seconds */
#define FULL_UNIT       1000.0
/* Weight of a new measurement in the time of a request. Twice that time is the lead. */
#define TOOK_SHARE  8u
#define LEAD_NS_MAX (2 * SL_NS_PER_S)

struct chained {
    uint64_t hash;
    uint32_t end; /* of its key in `text` */
};
struct chain {
    uint64_t engine_id; /* 0: values with keys of their own */
    struct chained *blocks;
    char *text;
    uint32_t count, room, text_room;
    uint32_t in_memory_count; /* blocks in memory after the last request */
    uint32_t serial;          /* of the last request; 0: none since it changed */
};
struct co_sessions {
    struct sl_sessions *table;
    struct chain *chains; /* by session */
    uint32_t count_max;
    uint64_t bytes;
    struct asked { /* a session whose BRINGs are in flight, one at a time */
        struct sl_session_due due;
        uint64_t sent_ns;   /* 0: unused */
        uint32_t at;        /* blocks of its chain that were requested, */
        uint32_t in_memory; /* that are in memory, */
        bool more;          /* and whether more follow */
        uint32_t came;      /* parts */
        double full;        /* `full` as answered for those */
    } asked[CO_SESSION_CALLS];
    uint32_t asked_count;
    uint64_t lead_ns;
    struct co_memory work;
    uint64_t turns_seen[TURNS_SEEN], turn_next; /* recent SESSION_TURNs, which may be repeated */
    struct {
        sl_metric session_count, turn_count, pause_count, prefetch_count, prefetch_refused_count,
            prefetch_parts;
    } metric;
};
/* A turn of a session, with an engine's blocks or with values. */
struct turn {
    struct sl_turn how;
    struct sl_key *keys;
    uint64_t *hashes;
    uint64_t engine_id;
};

static const struct sl_metric_row metric_rows[] = {
    SL_METRIC_ROW(co_sessions, metric.session_count, "sessions"),
    SL_METRIC_ROW(co_sessions, metric.turn_count, "session_turns"),
    SL_METRIC_ROW(co_sessions, metric.pause_count, "session_pauses_reported"),
    SL_METRIC_ROW(co_sessions, metric.prefetch_count, "session_prefetches"),
    SL_METRIC_ROW(co_sessions, metric.prefetch_refused_count, "session_prefetches_refused"),
    SL_METRIC_ROW(co_sessions, metric.prefetch_parts, "session_parts_prefetched"),
};

static bool session_in_memory(void *context, uint32_t session);

static uint64_t chain_bytes(const struct chain *chain)
{
    return chain->room * sizeof(*chain->blocks) + chain->text_room;
}

static sl_err sessions_init(struct coordinator *self, struct sl_error *why)
{
    const struct sl_config *config = self->env->config;
    uint32_t count = (uint32_t)sl_config_u64(config, SL_SET_prefetch_sessions);
    if (count == 0 || sl_config_u64(config, SL_SET_disk) == 0) {
        return SL_OK;
    }
    struct co_sessions *sessions = self->sessions = calloc(1, sizeof(*sessions));
    if (sessions != NULL) {
        sessions->work.chunks = &self->chunks;
        sessions->count_max = count;
        sessions->chains = calloc(count, sizeof(*sessions->chains));
    }
    if (sessions == NULL || sessions->chains == NULL ||
        sl_sessions_create(count, session_in_memory, self, &sessions->table) != SL_OK) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "%u sessions", count);
    }
    sl_metrics_define(self->env->metrics, metric_rows, SL_COUNT(metric_rows), sessions);
    return SL_OK;
}

static void chain_free(struct co_sessions *sessions, uint32_t session)
{
    struct chain *chain = &sessions->chains[session];
    sessions->bytes -= chain_bytes(chain);
    free(chain->blocks);
    free(chain->text);
    *chain = (struct chain){0};
}

static void sessions_fini(struct coordinator *self)
{
    struct co_sessions *sessions = self->sessions;
    if (sessions == NULL) {
        return;
    }
    for (uint32_t i = 0; sessions->chains != NULL && i < sessions->count_max; i++) {
        chain_free(sessions, i);
    }
    sl_sessions_destroy(&sessions->table);
    co_memory_reset(&sessions->work);
    free(sessions->chains);
    free(sessions);
    self->sessions = NULL;
}

/* SL_NEVER_NS: nothing is due. */
static uint64_t sessions_next_ns(const struct coordinator *self)
{
    const struct co_sessions *sessions = self->sessions;
    if (sessions == NULL || self->draining || sessions->asked_count == CO_SESSION_CALLS) {
        return SL_NEVER_NS; /* an answer, or its deadline, continues */
    }
    return sl_sessions_next_ns(sessions->table);
}

static void sessions_wake(struct coordinator *self)
{
    self->env->ops->wake_at(self->env, sessions_next_ns(self));
}

/* ---- chains ---- */

static struct sl_key chain_key(const struct chain *chain, uint32_t i)
{
    uint32_t at = i > 0 ? chain->blocks[i - 1].end : 0;
    return (struct sl_key){.at = &chain->text[at], .length = chain->blocks[i].end - at};
}

static bool chain_add(struct co_sessions *sessions, struct chain *chain, const struct sl_key *key,
                      uint64_t hash)
{
    uint32_t at = chain->count > 0 ? chain->blocks[chain->count - 1].end : 0;
    uint64_t end = (uint64_t)at + key->length, before = chain_bytes(chain);
    bool fits = SL_ARRAY_ROOM(chain->blocks, chain->room, (uint64_t)chain->count + 1) &&
                SL_ARRAY_ROOM(chain->text, chain->text_room, end);
    sessions->bytes += chain_bytes(chain) - before;
    if (fits) {
        memcpy(&chain->text[at], key->at, key->length);
        chain->blocks[chain->count++] = (struct chained){.hash = hash, .end = (uint32_t)end};
    }
    return fits;
}

/* Number of the chain's blocks to keep before those of the turn. An engine's blocks name the block
 * before them, even if another engine stored it. Values follow where the chain has the first of
 * them. If it does not have it: requested values are the whole chain so far, stored ones are
 * appended. */
static uint32_t chain_kept(const struct chain *chain, const struct turn *turn)
{
    bool values = turn->engine_id == 0;
    uint64_t hash = values ? turn->hashes[0] : turn->how.before;
    uint32_t count = (chain->engine_id == 0) == values && hash != 0 ? chain->count : 0;
    for (uint32_t i = 0; i < count; i++) {
        if (chain->blocks[i].hash == hash) {
            return values ? i : i + 1;
        }
    }
    return values && !turn->how.load ? count : 0;
}

/* ---- turns ---- */

static bool turn_room(struct co_sessions *sessions, struct turn *turn, uint64_t count)
{
    turn->keys = co_memory_take(&sessions->work, count, sizeof(*turn->keys));
    turn->hashes = co_memory_take(&sessions->work, count, sizeof(*turn->hashes));
    turn->how.blocks = turn->hashes;
    return turn->keys != NULL && turn->hashes != NULL;
}

static void turn_add(struct turn *turn, struct sl_key key, uint64_t hash)
{
    turn->keys[turn->how.count] = key;
    turn->hashes[turn->how.count++] = hash != 0 ? hash : 1;
}

static void session_drop(struct co_sessions *sessions, uint32_t session)
{
    chain_free(sessions, session);
    sl_sessions_drop(sessions->table, session);
}

static void turn_take(struct coordinator *self, const struct turn *turn)
{
    struct co_sessions *sessions = self->sessions;
    bool fresh = false;
    uint32_t session = sl_sessions_turn(sessions->table, &turn->how, self->env->now_ns, &fresh);
    if (session != SL_SESSION_NONE && (fresh || turn->how.ends)) {
        chain_free(sessions, session);
    }
    if (session != SL_SESSION_NONE && !turn->how.ends) {
        struct chain *chain = &sessions->chains[session];
        uint32_t taken = 0;
        chain->count = chain_kept(chain, turn);
        chain->in_memory_count = chain->serial = 0;
        chain->engine_id = turn->engine_id;
        while (taken < turn->how.count &&
               chain_add(sessions, chain, &turn->keys[taken], turn->hashes[taken])) {
            taken++;
        }
        if (taken < turn->how.count) { /* no memory: half a chain is useless */
            session_drop(sessions, session);
        }
    }
    while (sessions->bytes > CHAIN_BYTES_MAX) {
        session_drop(sessions, sl_sessions_oldest(sessions->table));
    }
    co_memory_reset(&sessions->work);
    sl_metric_add(self->env->metrics, sessions->metric.turn_count, turn->how.load);
    sl_metric_set(self->env->metrics, sessions->metric.session_count,
                  sl_sessions_count(sessions->table));
    sessions_wake(self);
}

/* An op ended well, and its blocks are known: a turn of its session. */
static void sessions_note(struct coordinator *self, struct co_op *op)
{
    struct co_sessions *sessions = self->sessions;
    if (op->code != SL_OK || sessions == NULL || op->handover != NULL || op->block_count == 0 ||
        op->engine == NULL || op->engine->state != CO_ENGINE_KNOWN) {
        return;
    }
    struct turn turn = {.how = {.id = op->session_id,
                                .depth = SL_MAX(op->first_block, op->before_hash != 0 ? 2u : 0u),
                                .before = op->before_hash,
                                .pause_ns = op->pause_ns,
                                .load = op->type->kind == CO_LOAD,
                                .ends = op->said.session == HINT_ENDS},
                        .engine_id = op->engine_id};
    if (turn_room(sessions, &turn, op->block_count)) {
        for (uint32_t i = 0; i < op->block_count && op->blocks[i].key.at != NULL; i++) {
            turn_add(&turn, op->blocks[i].key, co_block_hash(op->engine, &op->blocks[i].key));
        }
        turn_take(self, &turn);
    }
}

/* Ranks with values of their own are separate sessions. */
static uint64_t lane_id(uint64_t session_id, uint64_t lane)
{
    uint64_t id = lane == 0 ? session_id : sl_table_hash(session_id ^ lane << 32) + lane;
    return id != 0 ? id : 1;
}

/* Requests without a timely answer are repeated: a second turn would look like a return. */
static bool turn_is_again(struct co_sessions *sessions, uint64_t op_id)
{
    bool again = false;
    for (uint32_t i = 0; op_id != 0 && i < TURNS_SEEN; i++) {
        again |= sessions->turns_seen[i] == op_id;
    }
    sessions->turns_seen[sessions->turn_next++ % TURNS_SEEN] = op_id;
    return again;
}

void co_sessions_turn(struct coordinator *self, const struct sl_msg *msg)
{
    struct co_sessions *sessions = self->sessions; /* NULL: no disk to prefetch from */
    const struct sl_body_session_turn *body = &msg->body.session_turn;
    struct turn turn = {.how = {.id = lane_id(body->session_id, body->lane),
                                .pause_ns = body->pause_ns,
                                .load = body->asked,
                                .ends = body->ends}};
    if (sessions != NULL && !turn_is_again(sessions, msg->op_id) &&
        turn_room(sessions, &turn, body->keys.count)) {
        for (uint64_t i = 0; i < body->keys.count; i++) {
            const struct sl_text *key = &body->keys.at[i];
            turn_add(&turn, (struct sl_key){.at = key->at, .length = (uint32_t)key->length},
                     sl_key_hash(key->at, key->length));
        }
        turn_take(self, &turn);
    }
    sl_reply_code(self->env, msg, SL_OK, NULL);
}

void co_sessions_pause(struct coordinator *self, const struct sl_msg *msg)
{
    struct co_sessions *sessions = self->sessions;
    const struct sl_body_session_pause *body = &msg->body.session_pause;
    if (sessions == NULL) {
        sl_reply_fail(self->env, msg, SL_ERR_UNSUPPORTED,
                      "this node keeps no sessions: it has no disk, or prefetch_sessions is 0");
        return;
    }
    uint64_t pause_ns = body->unknown ? SL_SESSION_PAUSE_UNKNOWN : body->pause_ns;
    bool known = false;
    for (uint64_t lane = 0; lane < SL_SESSION_LANES; lane++) {
        known = sl_sessions_report_pause(sessions->table, lane_id(body->session_id, lane), pause_ns,
                                         self->env->now_ns) ||
                known;
    }
    if (!known) {
        sl_reply_fail(self->env, msg, SL_ERR_NOT_FOUND, "no recent op here named this session");
        return;
    }
    sl_metric_add(self->env->metrics, sessions->metric.pause_count, 1);
    sessions_wake(self);
    sl_reply_code(self->env, msg, SL_OK, NULL);
}

/* ---- requests ---- */

struct wanted {
    uint32_t at, end, step; /* blocks, in steps; the lookup stops at `at` */
    struct sl_text *keys;
    uint32_t count;
    uint32_t cold; /* parts only on disk, */
    uint64_t cold_bytes;
};

/* Requests the first part of the block, so that it stays, and all parts that are only on disk.
 * False: a part is nowhere, or out of memory. */
static bool block_want(struct coordinator *self, const struct co_engine *engine,
                       struct sl_key block, struct wanted *out)
{
    uint32_t count = engine != NULL ? engine->part_count : 1, before = out->count;
    for (uint32_t i = 0; i < count; i++) {
        struct sl_key key =
            engine != NULL ? co_part_key(&self->sessions->work, engine, block, &engine->cuts[i])
                           : block; /* a value has no parts */
        struct sl_entry entry;
        if (key.at == NULL || sl_index_find(self->view, key.at, key.length, &entry) != SL_OK) {
            out->count = before;
            return false;
        }
        bool cold = entry.extent.generation == 0;
        out->cold += cold;
        out->cold_bytes += cold ? sl_extent_space(entry.extent.length_bytes) : 0;
        if (cold || i == 0) {
            out->keys[out->count++] = (struct sl_text){.at = key.at, .length = key.length};
        }
    }
    return true;
}

/* Collects the wanted parts of these blocks up to the first missing block. False: nothing, an
 * unknown engine, or no index. */
static bool chain_want(struct coordinator *self, const struct chain *chain, struct wanted *out)
{
    const struct co_engine *engine = co_engine_known(self, chain->engine_id);
    if (out->at >= out->end || (engine == NULL && chain->engine_id != 0) ||
        !sl_index_view_ready(self->env, &self->view)) {
        return false;
    }
    uint32_t parts = engine != NULL ? engine->part_count : 1;
    out->keys =
        co_memory_take(&self->sessions->work, ((out->end - out->at - 1) / out->step + 1) * parts,
                       sizeof(*out->keys));
    while (out->keys != NULL && out->at < out->end &&
           block_want(self, engine, chain_key(chain, out->at), out)) {
        out->at += out->step;
    }
    return true;
}

/* Blocks that are looked up for an estimate, evenly spread: the event loop waits meanwhile. */
#define LOOKS_MAX 16u

/* Whether the blocks that were brought are still in memory. */
static bool session_in_memory(void *context, uint32_t session)
{
    struct coordinator *self = context;
    const struct chain *chain = &self->sessions->chains[session];
    uint32_t end = chain->in_memory_count, step = end / LOOKS_MAX + 1;
    struct wanted wanted = {
        .at = (end - 1) % step, .end = end, .step = step}; /* with the last one */
    bool here = !chain_want(self, chain, &wanted) || (wanted.cold == 0 && wanted.at >= end);
    co_memory_reset(&self->sessions->work);
    return here;
}

/* Estimates, from a few blocks, how much of the rest of the chain is only on disk. */
static uint64_t rest_bytes(struct coordinator *self, const struct chain *chain, uint32_t from)
{
    uint32_t count = chain->count - from, step = count / LOOKS_MAX + 1;
    struct wanted wanted = {.at = from, .end = chain->count, .step = step};
    return chain_want(self, chain, &wanted) ? wanted.cold_bytes / ((count - 1) / step + 1) * count
                                            : 0;
}

/* Requests the next blocks of a session. False: none, or not now. */
static bool blocks_ask(struct coordinator *self, uint32_t index)
{
    struct co_sessions *sessions = self->sessions;
    struct asked *asked = &sessions->asked[index];
    const struct sl_session_due *due = &asked->due;
    struct chain *chain = &sessions->chains[due->session];
    const struct co_engine *engine = co_engine_known(self, chain->engine_id);
    uint32_t most = PARTS_MAX / (engine != NULL ? engine->part_count : 1);
    struct wanted wanted = {
        .at = asked->at, .end = SL_MIN(chain->count, asked->at + most), .step = 1};
    if (!chain_want(self, chain, &wanted)) {
        return false;
    }
    asked->at = wanted.at;
    asked->more = wanted.at == wanted.end;
    chain->serial = due->serial;
    uint64_t passed_ns = asked->sent_ns != 0 ? self->env->now_ns - asked->sent_ns : 0;
    uint64_t for_ns = due->for_ns > passed_ns ? due->for_ns - passed_ns : 1;
    struct sl_msg prefetch = {.type = SL_MSG_BRING};
    prefetch.body.bring = (struct sl_body_bring){
        .keys = {.at = wanted.keys, .count = wanted.count},
        .ahead = true,
        .for_ns = SL_MIN(for_ns, SL_KEEP_NS_MAX),
        .worth = (uint64_t)fmin(due->worth * WORTH_UNIT, 1e18),
        .chain_bytes = wanted.cold_bytes + (asked->more ? rest_bytes(self, chain, wanted.at) : 0)};
    bool sent =
        wanted.count > 0 && sl_calls_send(self->calls, "registrar", &prefetch,
                                          sl_deadline_ns(self->env->now_ns, ASK_NS),
                                          co_cookie(CO_CALL_SESSION, 0, index), NULL) == SL_OK;
    co_memory_reset(&sessions->work);
    return sent;
}

/* False: not now. */
static bool session_ask(struct coordinator *self, const struct sl_session_due *due)
{
    struct co_sessions *sessions = self->sessions;
    uint32_t index = 0;
    while (sessions->asked[index].sent_ns != 0) {
        index++;
    }
    sessions->asked[index] = (struct asked){.due = *due};
    if (!blocks_ask(self, index)) {
        return false;
    }
    sessions->asked[index].sent_ns = self->env->now_ns;
    sessions->asked_count++;
    sl_metric_add(self->env->metrics, sessions->metric.prefetch_count, 1);
    return true;
}

void co_sessions_answered(struct coordinator *self, uint32_t index, const struct sl_msg *reply)
{
    struct co_sessions *sessions = self->sessions;
    struct asked *asked = &sessions->asked[index];
    struct chain *chain = &sessions->chains[asked->due.session];
    bool same = chain->serial == asked->due.serial; /* no turn since the request */
    bool answered = reply != NULL && reply->code == SL_OK, here = answered;
    const struct sl_u64s none = {0}, *codes = answered ? &reply->body.bring_reply.codes : &none;
    double full = answered ? (double)reply->body.bring_reply.full / FULL_UNIT : 1.0;
    for (uint64_t i = 0; i < codes->count; i++) {
        here = here && (codes->at[i] == SL_OK || codes->at[i] == SL_ERR_EXISTS);
        asked->came += codes->at[i] == SL_OK;
    }
    if (here) {
        asked->in_memory = asked->at;
        asked->full = full;
        bool time = self->env->now_ns - asked->sent_ns < asked->due.for_ns;
        if (asked->more && same && time && blocks_ask(self, index)) {
            return;
        }
    } else if (answered && asked->came > 0) { /* earlier blocks stay, and count */
        here = true;
        full = asked->full;
    }
    if (same) {
        chain->in_memory_count = asked->in_memory;
    }
    if (answered) {
        if (asked->came > 0) {
            sessions->lead_ns += 2 * (self->env->now_ns - asked->sent_ns) / TOOK_SHARE;
            sessions->lead_ns -= sessions->lead_ns / TOOK_SHARE;
            sessions->lead_ns = SL_MIN(sessions->lead_ns, LEAD_NS_MAX);
        }
        sl_sessions_edge(sessions->table, (double)reply->body.bring_reply.edge / WORTH_UNIT,
                         sessions->lead_ns);
    }
    sl_sessions_result(sessions->table, &asked->due, here, full, self->env->now_ns);
    sl_metric_add(self->env->metrics, sessions->metric.prefetch_refused_count, !here);
    sl_metric_add(self->env->metrics, sessions->metric.prefetch_parts, asked->came);
    asked->sent_ns = 0;
    sessions->asked_count--;
    sessions_wake(self);
}

static uint64_t sessions_tick(struct coordinator *self, uint64_t now_ns)
{
    struct sl_session_due due;
    while (sessions_next_ns(self) <= now_ns &&
           sl_sessions_due(self->sessions->table, now_ns, &due)) {
        if (!session_ask(self, &due)) {
            sl_sessions_result(self->sessions->table, &due, false, 0, now_ns);
        }
    }
    return sessions_next_ns(self);
}

const struct co_feature co_sessions_feature = {
    .init = sessions_init, .fini = sessions_fini, .tick = sessions_tick, .answered = sessions_note};
