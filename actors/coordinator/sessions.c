/* actors/coordinator/sessions.c - sessions of engines: their blocks come back from disk before they
 * are asked for.
 *
 * The table of sessions (runtime/rhythm) says which session is due. Here is what it has: the keys of
 * its chain. What of that is on disk alone is asked for by BRING ahead, which goes behind all loads, and
 * is refused when what would go for it is worth more. A few such requests are under way at a time.
 * All of it is lost with the process: sessions are learnt anew. */
#include "actors/coordinator/sessions.h"
#include "actors/coordinator/internal.h"
#include "runtime/rhythm/sessions.h"
#include "runtime/sl_array.h"
#include "runtime/sl_table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ASKED_MAX  CO_SESSION_CALLS
#define TURNS_SEEN 64u
#define ASK_NS     (5 * SL_NS_PER_S)
/* Of all chains; the session that had no turn for longest loses its own. */
#define CHAIN_BYTES_MAX (32 * SL_MIB)
/* When nobody can be asked, or all requests are under way. */
#define PAUSE_NS   (50 * SL_NS_PER_MS)
#define WORTH_UNIT 1e12 /* seconds: of worth and edge in messages */
#define FULL_UNIT  1000.0
/* How long a request takes: what is new counts so much. Twice that is the lead. */
#define TOOK_SHARE  8u
#define LEAD_NS_MAX (2 * SL_NS_PER_S)

struct chain {
    uint64_t engine_id; /* 0: values that have keys of their own */
    uint64_t *hashes;   /* of the blocks */
    char *text;         /* their keys follow each other: length, bytes */
    uint32_t count, room, bytes, text_room;
    uint32_t there_count, there_last; /* blocks that were anywhere when it was asked for, and where
                                       * the text of the last of them begins */
};
struct asked { /* a BRING under way */
    bool used;
    struct sl_session_due due;
    uint64_t sent_ns;
};
struct co_sessions {
    struct sl_sessions *table;
    struct chain *chains; /* by session */
    uint64_t bytes;
    struct asked asked[ASKED_MAX];
    uint32_t asked_count;
    uint64_t lead_ns, pause_until_ns;
    struct co_memory work;
    uint64_t turns_seen[TURNS_SEEN]; /* op ids of the last SESSION_TURNs: they may come twice */
    uint32_t turns_seen_next;
    struct sl_key *keys; /* of the turn at hand; and their hashes */
    uint64_t *hashes;
    uint32_t key_room, hash_room;
    struct {
        sl_metric session_count, turn_count, pause_count, prefetch_count, prefetch_refused_count,
            prefetch_parts;
    } metric;
};

static const struct sl_metric_row metric_rows[] = {
    SL_METRIC_ROW(co_sessions, metric.session_count, "sessions"),
    SL_METRIC_ROW(co_sessions, metric.turn_count, "session_turns"),
    SL_METRIC_ROW(co_sessions, metric.pause_count, "session_pauses_told"),
    SL_METRIC_ROW(co_sessions, metric.prefetch_count, "session_prefetches"),
    SL_METRIC_ROW(co_sessions, metric.prefetch_refused_count, "session_prefetches_refused"),
    SL_METRIC_ROW(co_sessions, metric.prefetch_parts, "session_parts_prefetched"),
};

static bool session_here(void *context, uint32_t session);

sl_err co_sessions_init(struct coordinator *self, struct sl_error *why)
{
    const struct sl_config *config = self->env->config;
    uint32_t count = (uint32_t)sl_config_u64(config, SL_SET_prefetch_sessions);
    if (count == 0 || sl_config_u64(config, SL_SET_disk) == 0) {
        return SL_OK;
    }
    struct co_sessions *sessions = calloc(1, sizeof(*sessions));
    if (sessions == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "%u sessions", count);
    }
    self->sessions = sessions;
    sessions->work.chunks = &self->chunks;
    sessions->chains = calloc(count, sizeof(*sessions->chains));
    if (sessions->chains == NULL ||
        sl_sessions_create(count, session_here, self, &sessions->table) != SL_OK) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "%u sessions", count);
    }
    sl_metrics_define(self->env->metrics, metric_rows, SL_COUNT(metric_rows), sessions);
    return SL_OK;
}

static uint64_t chain_bytes(const struct chain *chain)
{
    return (uint64_t)chain->room * sizeof(*chain->hashes) + chain->text_room;
}

static void chain_free(struct co_sessions *sessions, uint32_t session)
{
    struct chain *chain = &sessions->chains[session];
    sessions->bytes -= chain_bytes(chain);
    free(chain->hashes);
    free(chain->text);
    *chain = (struct chain){0};
}

void co_sessions_fini(struct coordinator *self)
{
    struct co_sessions *sessions = self->sessions;
    if (sessions == NULL) {
        return;
    }
    uint32_t count = (uint32_t)sl_config_u64(self->env->config, SL_SET_prefetch_sessions);
    for (uint32_t i = 0; sessions->chains != NULL && i < count; i++) {
        chain_free(sessions, i);
    }
    sl_sessions_destroy(&sessions->table);
    co_memory_reset(&sessions->work);
    free(sessions->chains);
    free(sessions->keys);
    free(sessions->hashes);
    free(sessions);
    self->sessions = NULL;
}

/* ---- chains ---- */

/* The key whose text begins at *at, which goes on to the next one. */
static struct sl_key chain_key(const struct chain *chain, uint32_t *at)
{
    uint16_t length;
    memcpy(&length, &chain->text[*at], sizeof(length));
    struct sl_key key = {.at = &chain->text[*at + sizeof(length)], .length = length};
    *at += (uint32_t)sizeof(length) + length;
    return key;
}

/* Only its first count blocks are left. */
static void chain_cut(struct chain *chain, uint32_t count)
{
    chain->there_count = 0;
    chain->count = count;
    chain->bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        (void)chain_key(chain, &chain->bytes);
    }
}

static bool chain_add(struct co_sessions *sessions, struct chain *chain, const struct sl_key *key,
                      uint64_t hash)
{
    uint16_t length = (uint16_t)key->length;
    uint64_t end = (uint64_t)chain->bytes + sizeof(length) + length, before = chain_bytes(chain);
    bool fits = SL_ARRAY_ROOM(chain->hashes, chain->room, (uint64_t)chain->count + 1) &&
                SL_ARRAY_ROOM(chain->text, chain->text_room, end);
    sessions->bytes += chain_bytes(chain) - before;
    if (fits) {
        memcpy(&chain->text[chain->bytes], &length, sizeof(length));
        memcpy(&chain->text[chain->bytes + sizeof(length)], key->at, length);
        chain->bytes = (uint32_t)end;
        chain->hashes[chain->count++] = hash;
    }
    return fits;
}

/* How many blocks of the chain stay before those of the turn. Blocks of engines say which one is before them,
 * also where another engine was. Values come where the chain has the first of them; where it has not, what was
 * asked for is all of the chain so far, and what was stored comes behind it. */
static uint32_t chain_kept(const struct chain *chain, const struct sl_turn *turn,
                           uint64_t engine_id)
{
    uint64_t hash = engine_id != 0 ? turn->before : turn->blocks[0];
    uint32_t count = (chain->engine_id != 0) == (engine_id != 0) && hash != 0 ? chain->count : 0;
    for (uint32_t i = 0; i < count; i++) {
        if (chain->hashes[i] == hash) {
            return engine_id != 0 ? i + 1 : i;
        }
    }
    return engine_id != 0 || turn->load ? 0 : count;
}

/* ---- turns ---- */

static bool turn_room(struct co_sessions *sessions, uint64_t count)
{
    return SL_ARRAY_ROOM(sessions->keys, sessions->key_room, count) &&
           SL_ARRAY_ROOM(sessions->hashes, sessions->hash_room, count);
}

static void session_drop(struct co_sessions *sessions, uint32_t session)
{
    chain_free(sessions, session);
    sl_sessions_drop(sessions->table, session);
}

/* The keys and hashes at hand are this turn. engine_id 0: they are of values. */
static void turn_take(struct coordinator *self, struct sl_turn *turn, uint64_t engine_id)
{
    struct co_sessions *sessions = self->sessions;
    bool fresh = false;
    turn->blocks = sessions->hashes;
    uint32_t session = sl_sessions_turn(sessions->table, turn, self->env->now_ns, &fresh);
    if (fresh) {
        chain_free(sessions, session);
    }
    if (session != SL_SESSION_NONE) {
        struct chain *chain = &sessions->chains[session];
        uint32_t taken = 0;
        chain_cut(chain, chain_kept(chain, turn, engine_id));
        chain->engine_id = engine_id;
        while (taken < turn->count &&
               chain_add(sessions, chain, &sessions->keys[taken], turn->blocks[taken])) {
            taken++;
        }
        if (taken < turn->count) { /* no memory: half a chain is of no use */
            session_drop(sessions, session);
        }
    }
    while (sessions->bytes > CHAIN_BYTES_MAX) {
        session_drop(sessions, sl_sessions_oldest(sessions->table));
    }
    sl_metric_add(self->env->metrics, sessions->metric.turn_count, turn->load);
    sl_metric_set(self->env->metrics, sessions->metric.session_count,
                  sl_sessions_count(sessions->table));
    self->env->ops->wake_at(self->env, co_sessions_next_ns(self));
}

void co_sessions_note(struct coordinator *self, const struct co_op *op)
{
    struct co_sessions *sessions = self->sessions;
    if (sessions == NULL || op->handover != NULL || op->block_count == 0 || op->engine == NULL ||
        op->engine->state != CO_ENGINE_KNOWN || !turn_room(sessions, op->block_count)) {
        return;
    }
    struct sl_turn turn = {.id = op->session_id,
                           .depth = SL_MAX(op->first_block, op->before_hash != 0 ? 2u : 0u),
                           .before = op->before_hash,
                           .pause_ns = op->pause_ns,
                           .load = op->type->kind == CO_LOAD,
                           .ends = op->said.session == SAID_ENDS};
    for (; turn.count < op->block_count && op->blocks[turn.count].key.at != NULL; turn.count++) {
        uint64_t hash = co_block_hash(op->engine, &op->blocks[turn.count].key);
        sessions->keys[turn.count] = op->blocks[turn.count].key;
        sessions->hashes[turn.count] = hash != 0 ? hash : 1;
    }
    turn_take(self, &turn, op->engine_id);
}

/* Ranks that have values of their own are sessions of their own. */
static uint64_t lane_id(uint64_t session_id, uint64_t lane)
{
    uint64_t id = lane == 0 ? session_id : sl_table_hash(session_id ^ lane << 32) + lane;
    return id != 0 ? id : 1;
}

/* Who hears no answer in time sends it again: a second turn would be a session that came back. */
static bool turn_is_again(struct co_sessions *sessions, uint64_t op_id)
{
    for (uint32_t i = 0; i < TURNS_SEEN; i++) {
        if (op_id != 0 && sessions->turns_seen[i] == op_id) {
            return true;
        }
    }
    sessions->turns_seen[sessions->turns_seen_next++ % TURNS_SEEN] = op_id;
    return false;
}

void co_sessions_turn(struct coordinator *self, const struct sl_msg *msg)
{
    struct co_sessions *sessions = self->sessions;
    const struct sl_body_session_turn *body = &msg->body.session_turn;
    if (sessions == NULL || /* nothing would come back from anywhere */
        turn_is_again(sessions, msg->op_id)) {
        sl_reply_code(self->env, msg, SL_OK, NULL);
        return;
    }
    if (!turn_room(sessions, body->keys.count)) {
        sl_reply_fail(self->env, msg, SL_ERR_NO_MEMORY, "turn of a session");
        return;
    }
    struct sl_turn turn = {.id = lane_id(body->session_id, body->lane),
                           .pause_ns = body->pause_ns,
                           .load = body->asked,
                           .ends = body->ends};
    for (; turn.count < body->keys.count; turn.count++) {
        const struct sl_text *key = &body->keys.at[turn.count];
        uint64_t hash = sl_key_hash(key->at, key->length);
        sessions->keys[turn.count] =
            (struct sl_key){.at = key->at, .length = (uint32_t)key->length};
        sessions->hashes[turn.count] = hash != 0 ? hash : 1;
    }
    turn_take(self, &turn, 0);
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
    uint64_t pause_ns = body->unknown ? SL_TOLD_UNKNOWN : body->pause_ns;
    bool known = false;
    for (uint64_t lane = 0; lane < SL_SESSION_LANES; lane++) {
        known = sl_sessions_told(sessions->table, lane_id(body->session_id, lane), pause_ns,
                                 self->env->now_ns) != SL_SESSION_NONE ||
                known;
    }
    if (!known) {
        sl_reply_fail(self->env, msg, SL_ERR_NOT_FOUND, "no op here named this session lately");
        return;
    }
    sl_metric_add(self->env->metrics, sessions->metric.pause_count, 1);
    self->env->ops->wake_at(self->env, co_sessions_next_ns(self));
    sl_reply_code(self->env, msg, SL_OK, NULL);
}

/* ---- asking ---- */

struct wanted {
    struct sl_text *keys;
    uint32_t count, room;
    uint32_t cold; /* parts that were on disk alone */
};

/* The keys of the parts of a block, in the memory of the request. A value is its own. NULL: no memory. */
static const struct sl_key *part_keys(struct co_sessions *sessions, const struct co_engine *engine,
                                      const struct sl_key *block)
{
    if (engine == NULL) {
        return block;
    }
    struct sl_key *keys = co_memory_take(&sessions->work, engine->part_count, sizeof(*keys));
    for (uint32_t i = 0; keys != NULL && i < engine->part_count; i++) {
        char *text = co_memory_take(&sessions->work, co_part_key_room(engine, *block), 1);
        if (text == NULL) {
            return NULL;
        }
        keys[i].at = text;
        keys[i].length = co_part_key_write(engine, *block, &engine->cuts[i], text);
    }
    return keys;
}

static void key_want(struct wanted *out, const struct sl_key *key)
{
    out->keys[out->count++] = (struct sl_text){.at = key->at, .length = key->length};
}

/* Adds what of the block is on disk alone; a value wherever it is, since each is kept by itself. Gives the
 * key of its first part; NULL: some of it is nowhere, or there is no memory. */
static const struct sl_key *block_want(struct coordinator *self, const struct co_engine *engine,
                                       const struct sl_key *block, struct wanted *out)
{
    const struct sl_key *keys = part_keys(self->sessions, engine, block);
    uint32_t count = engine != NULL ? engine->part_count : 1, before = out->count;
    for (uint32_t from = 0; keys != NULL && from < count; from += CO_FIND_MAX) {
        uint32_t some = SL_MIN(count - from, CO_FIND_MAX);
        sl_index_find_batch(self->view, &keys[from], some, self->find_entries, self->find_codes);
        for (uint32_t i = 0; i < some; i++) {
            if (self->find_codes[i] != SL_OK || out->count == out->room) {
                out->count = before;
                return NULL;
            }
            bool cold = self->find_entries[i].extent.generation == 0;
            out->cold += cold;
            if (cold || engine == NULL) {
                key_want(out, &keys[from + i]);
            }
        }
    }
    return keys;
}

/* What is to be asked for of the chain. Of an engine's also one part of the last block that is anywhere, and
 * of the last before what is on disk, so that all before these stay. count 0: nothing is here. */
static struct wanted chain_want(struct coordinator *self, struct chain *chain,
                                const struct co_engine *engine)
{
    struct co_sessions *sessions = self->sessions;
    uint32_t parts = engine != NULL ? engine->part_count : 1, at = 0;
    struct wanted wanted = {.room = SL_MIN(chain->count * parts, SL_BATCH_MAX - 2u)};
    struct sl_key last = {0}, head = {0};
    bool named = false; /* some part of the last is on disk alone */
    chain->there_count = 0;
    wanted.keys = co_memory_take(&sessions->work, (size_t)wanted.room + 2, sizeof(*wanted.keys));
    if (wanted.keys == NULL) {
        return (struct wanted){0};
    }
    for (uint32_t i = 0; i < chain->count; i++) {
        uint32_t begin = at, before = wanted.count;
        const struct sl_key block = chain_key(chain, &at);
        const struct sl_key *first = block_want(self, engine, &block, &wanted);
        if (first == NULL) {
            break;
        }
        last = *first;
        head = wanted.count == 0 ? last : head;
        named = wanted.count > before;
        chain->there_count++;
        chain->there_last = begin;
    }
    if (wanted.count > 0 && head.at != NULL) { /* before what is brought makes others go */
        memmove(&wanted.keys[1], wanted.keys, wanted.count++ * sizeof(*wanted.keys));
        wanted.keys[0] = (struct sl_text){.at = head.at, .length = head.length};
    }
    if (last.at != NULL && !named) {
        key_want(&wanted, &last);
    }
    return wanted;
}

/* So many values of a session are looked at, evenly spread: the loop waits meanwhile. */
#define LOOKS_MAX 64u

/* Of blocks the last one tells: a chain leaves memory from its end. Values leave each by itself. */
static bool session_here(void *context, uint32_t session)
{
    struct coordinator *self = context;
    const struct chain *chain = &self->sessions->chains[session];
    const struct co_engine *engine = co_engine_known(self, chain->engine_id);
    uint32_t at = engine != NULL ? chain->there_last : 0;
    uint32_t step = engine != NULL ? 1 : (chain->there_count - 1) / LOOKS_MAX + 1;
    bool here = true;
    if (chain->there_count == 0 || (engine == NULL && chain->engine_id != 0)) {
        return true; /* nothing would be asked for */
    }
    struct wanted wanted = {.room = engine != NULL ? engine->part_count : LOOKS_MAX};
    wanted.keys = co_memory_take(&self->sessions->work, wanted.room, sizeof(*wanted.keys));
    for (uint32_t i = engine != NULL ? chain->there_count - 1 : 0;
         wanted.keys != NULL && here && i < chain->there_count; i++) {
        const struct sl_key block = chain_key(chain, &at);
        here = i % step != 0 ||
               (block_want(self, engine, &block, &wanted) != NULL && wanted.cold == 0);
    }
    co_memory_reset(&self->sessions->work);
    return here;
}

/* false: not now. */
static bool session_ask(struct coordinator *self, const struct sl_session_due *due)
{
    struct co_sessions *sessions = self->sessions;
    struct chain *chain = &sessions->chains[due->session];
    const struct co_engine *engine = co_engine_known(self, chain->engine_id);
    uint32_t index = 0;
    if (chain->count == 0 || (engine == NULL && chain->engine_id != 0)) {
        return false;
    }
    while (sessions->asked[index].used) {
        index++;
    }
    struct wanted wanted = chain_want(self, chain, engine);
    struct sl_msg prefetch = {.type = SL_MSG_BRING};
    prefetch.body.bring =
        (struct sl_body_bring){.keys = {.at = wanted.keys, .count = wanted.count},
                               .ahead = true,
                               .for_ns = SL_MIN(SL_MAX(due->for_ns, UINT64_C(1)), SL_KEEP_NS_MAX),
                               .worth = (uint64_t)fmin(due->worth * WORTH_UNIT, 1e18)};
    bool sent =
        wanted.count > 0 && sl_calls_send(self->calls, "registrar", &prefetch,
                                          sl_deadline_ns(self->env->now_ns, ASK_NS),
                                          co_cookie(CO_CALL_SESSION, 0, index), NULL) == SL_OK;
    if (sent) {
        sessions->asked[index] =
            (struct asked){.used = true, .due = *due, .sent_ns = self->env->now_ns};
        sessions->asked_count++;
        sl_metric_add(self->env->metrics, sessions->metric.prefetch_count, 1);
    }
    co_memory_reset(&sessions->work);
    return sent;
}

/* Whether all of it is in memory now, or was. */
static bool all_here(const struct sl_msg *reply, uint32_t *came)
{
    const struct sl_u64s *codes = &reply->body.bring_reply.codes;
    bool all = true;
    *came = 0;
    for (uint64_t i = 0; i < codes->count; i++) {
        all = all && (codes->at[i] == SL_OK || codes->at[i] == SL_ERR_EXISTS);
        *came += codes->at[i] == SL_OK;
    }
    return all;
}

void co_sessions_answered(struct coordinator *self, uint32_t index, const struct sl_msg *reply)
{
    struct co_sessions *sessions = self->sessions;
    struct asked *asked = &sessions->asked[index];
    uint64_t took_ns = self->env->now_ns - asked->sent_ns;
    uint32_t came = 0;
    bool fine = reply != NULL && reply->code == SL_OK;
    bool here = fine && all_here(reply, &came);
    double full = fine ? (double)reply->body.bring_reply.full / FULL_UNIT : 1.0;
    if (fine && came > 0) {
        sessions->lead_ns += 2 * took_ns / TOOK_SHARE;
        sessions->lead_ns -= sessions->lead_ns / TOOK_SHARE;
        sessions->lead_ns = SL_MIN(sessions->lead_ns, LEAD_NS_MAX);
    }
    if (fine) {
        sl_sessions_edge(sessions->table, (double)reply->body.bring_reply.edge / WORTH_UNIT,
                         sessions->lead_ns);
    }
    sl_sessions_tried(sessions->table, &asked->due, here, full, self->env->now_ns);
    sl_metric_add(self->env->metrics, sessions->metric.prefetch_refused_count, !here);
    sl_metric_add(self->env->metrics, sessions->metric.prefetch_parts, came);
    asked->used = false;
    sessions->asked_count--;
    self->env->ops->wake_at(self->env, co_sessions_next_ns(self));
}

void co_sessions_tick(struct coordinator *self, uint64_t now_ns)
{
    struct co_sessions *sessions = self->sessions;
    struct sl_session_due due;
    if (sessions == NULL || now_ns < sessions->pause_until_ns || self->draining) {
        return;
    }
    if (sl_sessions_next_ns(sessions->table) <= now_ns && !co_view(self)) {
        sessions->pause_until_ns = now_ns + PAUSE_NS;
        return;
    }
    while (sessions->asked_count < ASKED_MAX && sl_sessions_due(sessions->table, now_ns, &due)) {
        if (!session_ask(self, &due)) {
            sl_sessions_tried(sessions->table, &due, false, 0, now_ns);
        }
    }
}

uint64_t co_sessions_next_ns(const struct coordinator *self)
{
    const struct co_sessions *sessions = self->sessions;
    if (sessions == NULL || self->draining || sessions->asked_count == ASKED_MAX) {
        return SL_NEVER_NS; /* an answer, or its absence, goes on */
    }
    return SL_MAX(sl_sessions_next_ns(sessions->table), sessions->pause_until_ns);
}
