/* actors/registrar/engines/engines.c - registrations of engines, kept as notes that survive a
 * restart. The notes hold the encoded ENGINE_GET_REPLY, cut into pieces: its format has a version,
 * and a restart validates it with the decoder like any message. */
#include "actors/registrar/engines/engines.h"
#include "actors/registrar/base/events.h"
#include "actors/registrar/base/part.h"
#include "actors/registrar/engines/pools.h"
#include "actors/registrar/presence/peers.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ENGINE_NOTE_VERSION 1u
struct engine_note {
    uint32_t version;
    uint32_t index, count; /* of this engine's notes */
    uint32_t reserved;
    uint64_t engine_id, frame_bytes, seq;
    struct sl_proc_id proc;
    char sender[REG_NAME_BYTES];
};
_Static_assert(sizeof(struct engine_note) == 88, "format of an engine's note");
#define NOTE_FRAME_BYTES (SL_BLOB_BYTES_MAX - sizeof(struct engine_note))

static sl_err engines_init(struct registrar *self, struct sl_error *why)
{
    sl_err err = sl_codec_create(self->set.message_bytes_max, &self->engines->codec, why);
    if (err != SL_OK) {
        return err;
    }
    self->engines->all = calloc(self->engines->max, sizeof(*self->engines->all));
    return self->engines->all != NULL
               ? SL_OK
               : sl_fail(why, SL_ERR_NO_MEMORY, "table of %u engines", self->engines->max);
}

static void engine_free(struct reg_engine *engine)
{
    free(engine->frame);
    free(engine->blobs);
    *engine = (struct reg_engine){0};
}

static void engines_fini(struct registrar *self)
{
    for (uint32_t i = 0; self->engines->all != NULL && i < self->engines->max; i++) {
        engine_free(&self->engines->all[i]);
    }
    free(self->engines->all);
    sl_codec_destroy(&self->engines->codec);
}

/* ---- notes ---- */

static sl_err engine_encode(struct registrar *self, const struct sl_body_engine_register *engine,
                            uint64_t id, const void **frame, size_t *length, struct sl_error *why)
{
    struct sl_msg msg = {.type = SL_MSG_ENGINE_GET_REPLY, .sender = sl_text_of(self->env->name)};
    struct sl_body_engine_get_reply *body = &msg.body.engine_get_reply;
    _Static_assert(sizeof(*body) == sizeof(*engine), "one table makes both");
    memcpy(body, engine, sizeof(*body));
    body->engine_id = id;
    return sl_codec_encode(self->engines->codec, &msg, frame, length, why);
}

static void engine_drop_notes(struct registrar *self, struct reg_engine *engine)
{
    for (uint32_t i = 0; i < engine->blob_count; i++) {
        if (engine->blobs[i] != 0) {
            sl_index_set_kind(self->index, engine->blobs[i], SL_RECORD_FREE);
        }
    }
    engine->blob_count = 0;
}

static sl_err note_put(struct registrar *self, struct reg_engine *engine, uint32_t index,
                       unsigned char *buffer, struct sl_error *why)
{
    uint64_t at = index * NOTE_FRAME_BYTES;
    uint64_t piece = SL_MIN(NOTE_FRAME_BYTES, engine->frame_bytes - at);
    struct engine_note note = {
        .version = ENGINE_NOTE_VERSION,
        .index = index,
        .count = engine->blob_count,
        .engine_id = engine->id,
        .frame_bytes = engine->frame_bytes,
        .seq = engine->seq,
        .proc = engine->proc,
    };
    memcpy(note.sender, engine->sender, sizeof(note.sender));
    memcpy(buffer, &note, sizeof(note));
    memcpy(buffer + sizeof(note), engine->frame + at, piece);
    uint32_t length = (uint32_t)(sizeof(note) + piece);
    return reg_note_put(self, buffer, length, REG_BLOB_ENGINE, &engine->blobs[index], why);
}

static sl_err engine_note(struct registrar *self, struct reg_engine *engine, struct sl_error *why)
{
    engine->blob_count =
        (uint32_t)((engine->frame_bytes + NOTE_FRAME_BYTES - 1) / NOTE_FRAME_BYTES);
    engine->blobs = calloc(engine->blob_count, sizeof(*engine->blobs));
    unsigned char *buffer = malloc(SL_BLOB_BYTES_MAX);
    if (engine->blobs == NULL || buffer == NULL) {
        free(buffer);
        return sl_fail(why, SL_ERR_NO_MEMORY, "notes of an engine");
    }
    sl_err err = SL_OK;
    for (uint32_t i = 0; i < engine->blob_count && err == SL_OK; i++) {
        err = note_put(self, engine, i, buffer, why);
    }
    free(buffer);
    if (err != SL_OK) {
        engine_drop_notes(self, engine);
    }
    return err;
}

/* ---- messages ---- */

bool reg_engine_body(struct registrar *self, const struct reg_engine *engine, struct sl_msg *kept)
{
    return sl_codec_decode(self->engines->codec, engine->frame, engine->frame_bytes, kept, NULL) ==
           SL_OK;
}

static struct reg_engine *engine_find(struct registrar *self, uint64_t id)
{
    for (uint32_t i = 0; i < self->engines->max; i++) {
        if (self->engines->all[i].used && self->engines->all[i].id == id) {
            return &self->engines->all[i];
        }
    }
    return NULL;
}

static bool engines_of(const struct registrar *self, struct sl_proc_id proc)
{
    for (uint32_t i = 0; i < self->engines->max; i++) {
        if (self->engines->all[i].used && sl_proc_id_equal(self->engines->all[i].proc, proc)) {
            return true;
        }
    }
    return false;
}

/* Finds an earlier registration that this one repeats: the same message, or the same content from
 * the same process. */
static struct reg_engine *engine_again(struct registrar *self, const struct sl_msg *msg,
                                       struct sl_proc_id proc)
{
    for (uint32_t i = 0; i < self->engines->max; i++) {
        struct reg_engine *engine = &self->engines->all[i];
        const void *frame;
        size_t length;
        if (!engine->used || !sl_proc_id_equal(engine->proc, proc) ||
            strcmp(engine->sender, msg->sender.at) != 0) {
            continue;
        }
        if (engine->seq == msg->seq) {
            return engine;
        }
        if (engine_encode(self, &msg->body.engine_register, engine->id, &frame, &length, NULL) ==
                SL_OK &&
            length == engine->frame_bytes && memcmp(frame, engine->frame, length) == 0) {
            return engine;
        }
    }
    return NULL;
}

static sl_err engine_add(struct registrar *self, const struct sl_msg *msg, struct sl_proc_id proc,
                         uint64_t *id, struct sl_error *why)
{
    struct reg_engine *engine = NULL;
    for (uint32_t i = 0; i < self->engines->max && engine == NULL; i++) {
        engine = self->engines->all[i].used ? NULL : &self->engines->all[i];
    }
    if (engine == NULL) {
        return sl_fail(why, SL_ERR_LIMIT, "%u engines are registered: setting engines_max",
                       self->engines->max);
    }
    const void *frame;
    size_t length;
    struct reg_engine fresh = {.used = true,
                               .id = sl_arena_next_generation(self->arena),
                               .proc = proc,
                               .seq = msg->seq,
                               .team = msg->body.engine_register.team};
    sl_err err = engine_encode(self, &msg->body.engine_register, fresh.id, &frame, &length, why);
    if (err != SL_OK) {
        return err;
    }
    snprintf(fresh.sender, sizeof(fresh.sender), "%s", msg->sender.at);
    fresh.frame = malloc(length);
    fresh.frame_bytes = length;
    if (fresh.frame == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "engine of %zu bytes", length);
    }
    memcpy(fresh.frame, frame, length);
    err = reg_watch(self, proc)
              ? engine_note(self, &fresh, why)
              : sl_fail(why, SL_ERR_LIMIT, "process %u cannot be watched", proc.pid);
    if (err != SL_OK) {
        engine_free(&fresh);
        return err;
    }
    *engine = fresh;
    *id = fresh.id;
    self->engines->count++;
    reg_transporter_notify(self, SL_MSG_ENGINE_ADDED, fresh.id);
    return SL_OK;
}

/* Names each kind of the engine's memory once, for the log. */
static const char *memory_text(const struct sl_body_engine_register *body, char *out, size_t room)
{
    static const char *const kinds[REG_MEMORY_MAX + 1] = {"",
                                                          "shared memory",
                                                          "cuda ipc",
                                                          "cuda descriptor",
                                                          "cuda memory of many handles",
                                                          "memory of the process"};
    bool seen[REG_MEMORY_MAX + 1] = {false};
    size_t length = 0;
    out[0] = '\0';
    for (uint64_t i = 0; i < body->regions.count; i++) {
        uint64_t kind = body->regions.at[i].handle_kind; /* checked by reg_engine_check */
        if (!seen[kind]) {
            seen[kind] = true;
            length += (size_t)snprintf(out + length, room - length, "%s%s",
                                       length == 0 ? "" : " and ", kinds[kind]);
        }
    }
    return out;
}

static void engine_register_handle(struct registrar *self, const struct sl_msg *msg)
{
    const struct sl_body_engine_register *body = &msg->body.engine_register;
    struct sl_proc_id proc = {.pid = (uint32_t)body->pid, .start_time = body->start_time};
    struct sl_error why = {0};
    uint64_t id = 0;
    sl_err err = reg_engine_check(body, &why);
    if (err == SL_OK && !self->env->ops->alive(self->env, proc)) {
        err = sl_fail(&why, SL_ERR_PEER_DIED, "ENGINE_REGISTER.pid: process %u is gone", proc.pid);
    }
    if (err == SL_OK) {
        const struct reg_engine *again = engine_again(self, msg, proc);
        if (again != NULL) {
            id = again->id;
        } else {
            const void *frame;
            size_t length = 0;
            err = engine_encode(self, body, UINT64_MAX, &frame, &length, &why);
            err = err == SL_OK ? reg_team_check(self, body, length, &why) : err;
            err = err == SL_OK ? reg_pools_register(self, body, proc, &why) : err;
            err = err == SL_OK ? engine_add(self, msg, proc, &id, &why) : err;
        }
    }
    if (err != SL_OK) {
        sl_reply_code(self->env, msg, err, &why);
        return;
    }
    char memory[120]; /* the longest has all kinds: 105 bytes */
    reg_log(self, SL_LOG_INFO, msg->trace_id,
            "engine %s: process %u, %" PRIu64 " ranks, %" PRIu64 " pools, %s", body->name.at,
            proc.pid, body->world, body->pools.count, memory_text(body, memory, sizeof(memory)));
    reg_identity_note(self, body);
    struct sl_msg reply = {.code = SL_OK};
    reply.body.engine_register_reply.engine_id = id;
    sl_reply(self->env, msg, &reply);
}

static void engine_get(struct registrar *self, const struct sl_msg *msg)
{
    const struct reg_engine *engine = engine_find(self, msg->body.engine_get.engine_id);
    struct sl_error why = {0};
    struct sl_msg kept;
    if (msg->body.engine_get.engine_id >= SL_TEAM_FIRST) {
        reg_team_get(self, msg);
        return;
    }
    if (engine == NULL) {
        sl_reply_fail(self->env, msg, SL_ERR_NOT_FOUND, "engine %" PRIu64 " is not registered",
                      msg->body.engine_get.engine_id);
        return;
    }
    sl_err err =
        sl_codec_decode(self->engines->codec, engine->frame, engine->frame_bytes, &kept, &why);
    if (err != SL_OK) {
        sl_reply_code(self->env, msg, err, &why);
        return;
    }
    struct sl_msg reply = {.code = SL_OK};
    reply.body.engine_get_reply = kept.body.engine_get_reply;
    sl_reply(self->env, msg, &reply);
}

static void engines_list(struct registrar *self, const struct sl_msg *msg)
{
    struct sl_msg reply = {.code = SL_OK};
    uint64_t count = 0, *ids = calloc(self->engines->max, sizeof(*ids));
    if (ids == NULL) {
        sl_reply_code(self->env, msg, SL_ERR_NO_MEMORY, NULL);
        return;
    }
    for (uint32_t i = 0; i < self->engines->max; i++) {
        if (self->engines->all[i].used) {
            ids[count++] = self->engines->all[i].id;
        }
    }
    reply.body.engines_reply.engine_ids = (struct sl_u64s){.at = ids, .count = count};
    sl_reply(self->env, msg, &reply);
    free(ids);
}

static void engine_remove(struct registrar *self, struct reg_engine *engine)
{
    struct sl_proc_id proc = engine->proc;
    engine_drop_notes(self, engine);
    engine_free(engine);
    self->engines->count--;
    if (!engines_of(self, proc) && !reg_peer_present(self, proc)) {
        self->env->ops->unwatch(self->env, proc);
    }
}

static void engine_end(struct registrar *self, const struct sl_msg *msg)
{
    struct reg_engine *engine = engine_find(self, msg->body.engine_end.engine_id);
    if (engine != NULL && strcmp(engine->sender, msg->sender.at) != 0) {
        sl_reply_fail(self->env, msg, SL_ERR_PERMISSION, "%s registered it", engine->sender);
        return;
    }
    /* An unknown engine may have ended before. Its registrar may not have notified all actors, so
     * all are notified. */
    uint64_t ranks = UINT64_MAX;
    struct sl_msg kept;
    if (engine != NULL && reg_engine_body(self, engine, &kept)) {
        const struct sl_body_engine_get_reply *body = &kept.body.engine_get_reply;
        ranks = reg_engine_ranks(body->regions.at, body->regions.count);
    }
    if (engine != NULL) {
        engine_remove(self, engine);
    }
    reg_engine_end_wait(self, msg, ranks);
}

static void engines_died(struct registrar *self, struct sl_proc_id proc)
{
    for (uint32_t i = 0; i < self->engines->max; i++) {
        if (self->engines->all[i].used && sl_proc_id_equal(self->engines->all[i].proc, proc)) {
            reg_log(self, SL_LOG_INFO, 0, "engine %" PRIu64 " ended: process %u is gone",
                    self->engines->all[i].id, proc.pid);
            engine_remove(self, &self->engines->all[i]);
        }
    }
}

static bool engine_uses(struct registrar *self, const struct reg_engine *engine, uint64_t epoch)
{
    struct sl_msg kept;
    bool uses = false;
    if (!reg_engine_body(self, engine, &kept)) {
        return false; /* its regions cannot be given to anyone either */
    }
    const struct sl_body_engine_get_reply *body = &kept.body.engine_get_reply;
    for (uint64_t i = 0; i < body->regions.count && !uses; i++) {
        uses = body->regions.at[i].pool_epoch == epoch;
    }
    return uses;
}

void reg_engines_end_of_pool(struct registrar *self, uint64_t epoch)
{
    for (uint32_t i = 0; i < self->engines->max; i++) {
        struct reg_engine *engine = &self->engines->all[i];
        if (engine->used && engine_uses(self, engine, epoch)) {
            reg_log(self, SL_LOG_INFO, 0, "engine %" PRIu64 " ended: its memory is revoked",
                    engine->id);
            reg_transporter_notify(self, SL_MSG_ENGINE_OVER, engine->id);
            engine_remove(self, engine);
        }
    }
}

/* ---- restart ---- */

static bool note_fits(const struct engine_note *note, uint32_t length_bytes)
{
    uint64_t at = note->index * NOTE_FRAME_BYTES;
    return note->version == ENGINE_NOTE_VERSION && note->index < note->count &&
           note->engine_id != 0 &&
           note->count == (note->frame_bytes + NOTE_FRAME_BYTES - 1) / NOTE_FRAME_BYTES &&
           at < note->frame_bytes &&
           length_bytes == sizeof(*note) + SL_MIN(NOTE_FRAME_BYTES, note->frame_bytes - at);
}

static struct reg_engine *engine_restore(struct registrar *self, const struct engine_note *note)
{
    struct reg_engine *engine = engine_find(self, note->engine_id);
    for (uint32_t i = 0; i < self->engines->max && engine == NULL; i++) {
        if (self->engines->all[i].used) {
            continue;
        }
        struct reg_engine fresh = {
            .used = true,
            .id = note->engine_id,
            .proc = note->proc,
            .seq = note->seq,
            .frame = calloc(1, note->frame_bytes),
            .frame_bytes = note->frame_bytes,
            .blobs = calloc(note->count, sizeof(*fresh.blobs)),
            .blob_count = note->count,
        };
        memcpy(fresh.sender, note->sender, sizeof(fresh.sender));
        fresh.sender[sizeof(fresh.sender) - 1] = '\0';
        if (fresh.frame == NULL || fresh.blobs == NULL) {
            engine_free(&fresh);
            return NULL;
        }
        self->engines->all[i] = fresh;
        self->engines->count++;
        engine = &self->engines->all[i];
    }
    return engine;
}

static sl_err engine_blob_restore(struct registrar *self, sl_ref blob, const void *bytes,
                                  uint32_t length_bytes, struct sl_error *why)
{
    (void)why;
    struct engine_note note = {0};
    struct reg_engine *engine = NULL;
    if (length_bytes > sizeof(note)) {
        memcpy(&note, bytes, sizeof(note));
        engine = note_fits(&note, length_bytes) && note.frame_bytes <= self->set.message_bytes_max
                     ? engine_restore(self, &note)
                     : NULL;
    }
    if (engine == NULL || engine->blob_count != note.count ||
        engine->frame_bytes != note.frame_bytes || engine->blobs[note.index] != 0) {
        return SL_ERR_FOREIGN;
    }
    engine->blobs[note.index] = blob;
    memcpy(engine->frame + note.index * NOTE_FRAME_BYTES,
           (const unsigned char *)bytes + sizeof(note), length_bytes - sizeof(note));
    return SL_OK;
}

/* After peers_check: a registration continues if it is complete and its process lives. */
static void engines_check(struct registrar *self)
{
    for (uint32_t i = 0; i < self->engines->max; i++) {
        struct reg_engine *engine = &self->engines->all[i];
        if (!engine->used) {
            continue;
        }
        struct sl_msg kept;
        bool whole = true;
        for (uint32_t k = 0; k < engine->blob_count; k++) {
            whole = whole && engine->blobs[k] != 0;
        }
        whole = whole && reg_engine_body(self, engine, &kept);
        engine->team = whole ? kept.body.engine_get_reply.team : 0;
        bool watched = reg_peer_present(self, engine->proc);
        for (uint32_t k = 0; k < i; k++) {
            watched = watched || (self->engines->all[k].used &&
                                  sl_proc_id_equal(self->engines->all[k].proc, engine->proc));
        }
        if (!whole || !self->env->ops->alive(self->env, engine->proc) ||
            (!watched && self->env->ops->watch(self->env, engine->proc, 0) != SL_OK)) {
            engine_remove(self, engine);
        }
    }
}

/* ---- the part ---- */

static void engines_settings(struct registrar *self)
{
    self->engines->max = (uint32_t)sl_config_u64(self->env->config, SL_SET_engines_max);
}

static void engines_gauges(struct registrar *self)
{
    struct sl_metrics *page = self->env->metrics;
    sl_metric_set(page, self->engines->metric.engine_count, self->engines->count);
}

static const struct sl_metric_row metrics[] = {
    REG_METRIC(reg_engines, engine_count),
};

static const struct reg_handler handlers[] = {
    {SL_MSG_ENGINE_REGISTER, engine_register_handle},
    {SL_MSG_ENGINE_GET, engine_get},
    {SL_MSG_ENGINE_END, engine_end},
    {SL_MSG_ENGINES, engines_list},
};

static const struct reg_blob blobs[] = {
    {REG_BLOB_ENGINE, engine_blob_restore},
};

const struct reg_part reg_engines_part = {
    .name = "engines",
    REG_STATE(engines, reg_engines),
    REG_METRICS(metrics),
    REG_HANDLERS(handlers),
    REG_BLOBS(blobs),
    .settings = engines_settings,
    .init = engines_init,
    .fini = engines_fini,
    .recovered = engines_check,
    .died = engines_died,
    .knows = engines_of,
    .gauges = engines_gauges,
};
