/* actors/registrar/engines/teams.c - teams: the ranks of an engine are processes of their own, each
 * with its own registration. Together they are one engine, which has the team's number. */
#include "actors/registrar/engines/engines.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define HANDLE_BYTES   64u /* from the message table */
#define REGION_BYTES   (HANDLE_BYTES + 16u)
#define ENVELOPE_BYTES 128u /* a reply's envelope repeats numbers of its request */
#define MEMBER_BYTES   8u   /* a number is 9 bytes; a registration has 1 for its 0 */

static bool texts_equal(struct sl_text a, struct sl_text b)
{
    return a.length == b.length && (a.length == 0 || memcmp(a.at, b.at, a.length) == 0);
}

uint64_t reg_engine_ranks(const struct sl_item_region *regions, uint64_t count)
{
    uint64_t ranks = 0;
    for (uint64_t i = 0; i < count; i++) {
        ranks |= UINT64_C(1) << regions[i].rank;
    }
    return ranks;
}

/* Whether two registrations can belong to one engine. */
static sl_err team_fits(const struct sl_body_engine_register *engine,
                        const struct sl_body_engine_get_reply *other, struct sl_error *why)
{
    bool same = texts_equal(engine->model, other->model) &&
                texts_equal(engine->key_format, other->key_format) &&
                texts_equal(engine->seed, other->seed) &&
                engine->block_tokens == other->block_tokens && engine->world == other->world &&
                engine->pools.count == other->pools.count;
    for (uint64_t i = 0; same && i < engine->pools.count; i++) {
        same = texts_equal(engine->pools.at[i].name, other->pools.at[i].name) &&
               engine->pools.at[i].kind == other->pools.at[i].kind &&
               engine->pools.at[i].part_count == other->pools.at[i].part_count;
    }
    return same ? SL_OK
                : sl_fail(why, SL_ERR_INVALID,
                          "ENGINE_REGISTER.team: process %" PRIu64
                          " registered another model, world or pools for it",
                          other->pid);
}

/* Whether a live member of the team, decoded into *kept. Dead processes do not count even before
 * their death is reported, since a successor may register before that. */
static bool is_of_team(struct registrar *self, const struct reg_engine *engine, uint64_t team,
                       struct sl_msg *kept)
{
    return engine->used && engine->team == team && self->env->ops->alive(self->env, engine->proc) &&
           reg_engine_body(self, engine, kept);
}

struct team_size { /* of the answer for the whole team */
    uint64_t regions, bytes;
};

static void size_add(struct team_size *size, uint64_t regions, uint64_t frame_bytes)
{
    size->regions += regions;
    size->bytes += frame_bytes + regions * MEMBER_BYTES; /* each region also names its member */
}

static sl_err size_check(const struct registrar *self, const struct team_size *size,
                         struct sl_error *why)
{
    if (size->regions > SL_BATCH_MAX) {
        return sl_fail(why, SL_ERR_LIMIT,
                       "ENGINE_REGISTER.regions: %" PRIu64 " with those of the team's other ranks, "
                       "at most %u: fewer layers, pools or parts a rank",
                       size->regions, SL_BATCH_MAX);
    }
    if (size->bytes > self->set.message_bytes_max) {
        return sl_fail(why, SL_ERR_LIMIT,
                       "ENGINE_REGISTER.regions: %" PRIu64 " bytes with those of the team's other "
                       "ranks, setting message_bytes_max is %" PRIu64,
                       size->bytes, self->set.message_bytes_max);
    }
    return SL_OK;
}

sl_err reg_team_check(struct registrar *self, const struct sl_body_engine_register *engine,
                      uint64_t frame_bytes, struct sl_error *why)
{
    struct team_size size = {.bytes = ENVELOPE_BYTES};
    size_add(&size, engine->regions.count, frame_bytes);
    uint64_t ranks = reg_engine_ranks(engine->regions.at, engine->regions.count);
    for (uint32_t i = 0; engine->team != 0 && i < self->engines->max; i++) {
        const struct reg_engine *other = &self->engines->all[i];
        struct sl_msg kept;
        if (!is_of_team(self, other, engine->team, &kept)) {
            continue;
        }
        const struct sl_body_engine_get_reply *theirs = &kept.body.engine_get_reply;
        sl_err err = team_fits(engine, theirs, why);
        size_add(&size, theirs->regions.count, other->frame_bytes);
        uint64_t both = ranks & reg_engine_ranks(theirs->regions.at, theirs->regions.count);
        if (err == SL_OK && both != 0) {
            err = sl_fail(why, SL_ERR_EXISTS,
                          "ENGINE_REGISTER.team: rank %u is registered by process %u",
                          (uint32_t)__builtin_ctzll(both), other->proc.pid);
        }
        if (err != SL_OK) {
            return err;
        }
    }
    return engine->team == 0 ? SL_OK : size_check(self, &size, why);
}

struct merged { /* regions of a team and the bytes that they point at */
    struct sl_item_region *at;
    unsigned char (*bytes)[REGION_BYTES];
    uint64_t count;
};

static void bytes_keep(struct sl_bytes *bytes, unsigned char *to)
{
    if (bytes->length > 0) {
        memcpy(to, bytes->at, bytes->length);
        bytes->at = to;
    }
}

static sl_err regions_add(struct merged *all, const struct sl_body_engine_get_reply *body,
                          uint64_t member, struct sl_error *why)
{
    uint64_t room = all->count + body->regions.count;
    if (room > SL_BATCH_MAX) {
        return sl_fail(why, SL_ERR_LIMIT, "a team of over %u regions", SL_BATCH_MAX);
    }
    for (uint64_t i = 0; i < body->regions.count; i++) {
        unsigned char *bytes = all->bytes[all->count];
        struct sl_item_region *region = &all->at[all->count++];
        *region = body->regions.at[i];
        region->member = member;
        bytes_keep(&region->handle, bytes);
        bytes_keep(&region->gpu, bytes + HANDLE_BYTES);
    }
    return SL_OK;
}

/* Texts of *reply are borrowed until the next registration is decoded. Errors: SL_ERR_NOT_FOUND (a
 * rank is missing), SL_ERR_LIMIT. */
static sl_err team_merge(struct registrar *self, uint64_t team, struct merged *all,
                         struct sl_msg *reply, struct sl_error *why)
{
    uint64_t world = 0;
    sl_err err = SL_OK;
    for (uint32_t i = 0; err == SL_OK && i < self->engines->max; i++) {
        const struct reg_engine *engine = &self->engines->all[i];
        struct sl_msg kept;
        if (!is_of_team(self, engine, team, &kept)) {
            continue;
        }
        reply->body.engine_get_reply = kept.body.engine_get_reply;
        world = kept.body.engine_get_reply.world;
        err = regions_add(all, &kept.body.engine_get_reply, engine->id, why);
    }
    uint64_t missing = ~reg_engine_ranks(all->at, all->count) &
                       (world == 64 ? UINT64_MAX : (UINT64_C(1) << world) - 1);
    if (err == SL_OK && world == 0) {
        err = sl_fail(why, SL_ERR_NOT_FOUND, "engine %" PRIu64 " is not registered", team);
    } else if (err == SL_OK && missing != 0) {
        err = sl_fail(why, SL_ERR_NOT_FOUND, "engine %" PRIu64 ": rank %u is not registered", team,
                      (uint32_t)__builtin_ctzll(missing));
    }
    reply->body.engine_get_reply.engine_id = team;
    reply->body.engine_get_reply.regions.at = all->at;
    reply->body.engine_get_reply.regions.count = all->count;
    return err;
}

void reg_team_get(struct registrar *self, const struct sl_msg *msg)
{
    struct sl_msg reply = {.code = SL_OK};
    struct sl_error why = {0};
    struct merged all = {.at = calloc(SL_BATCH_MAX, sizeof(*all.at)),
                         .bytes = calloc(SL_BATCH_MAX, sizeof(*all.bytes))};
    sl_err err = all.at != NULL && all.bytes != NULL
                     ? team_merge(self, msg->body.engine_get.engine_id, &all, &reply, &why)
                     : sl_fail(&why, SL_ERR_NO_MEMORY, "no memory for a team's regions");
    if (err == SL_OK) {
        sl_reply(self->env, msg, &reply);
    } else {
        sl_reply_code(self->env, msg, err, &why);
    }
    free(all.at);
    free(all.bytes);
}
