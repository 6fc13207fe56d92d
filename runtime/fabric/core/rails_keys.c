/* runtime/fabric/core/rails_keys.c - memories, grants and keys of several rails. */
#include "runtime/fabric/core/rails.h"

#include <stdlib.h>
#include <string.h>

static uint16_t bit_of(const struct rail *rail)
{
    return (uint16_t)(1u << rail->index);
}

/* Of the rails that are open. */
static uint16_t all_bits(const struct rails *rails)
{
    uint16_t bits = 0;
    for (uint32_t i = 0; i < rails->count; i++) {
        bits |= rails->at[i].fabric != NULL ? bit_of(&rails->at[i]) : 0;
    }
    return bits;
}

/* ---- memories ---- */

struct rails_memory *rails_memory_of(const struct rails *rails, uint32_t handle)
{
    uint32_t index = handle & 0xffffu;
    if (index >= rails->fabric->options.memories_max) {
        return NULL;
    }
    struct rails_memory *memory = &rails->memories[index];
    return memory->used && memory->generation == handle >> 16 ? memory : NULL;
}

bool rails_memory_is_ready(const struct rails *rails, const struct rails_memory *memory)
{
    return memory->ready == all_bits(rails);
}

sl_err rails_memories_check(const struct rails *rails, uint32_t memory,
                            const struct sl_fabric_place *places, uint32_t count,
                            struct sl_error *why)
{
    for (uint32_t i = 0; i < SL_MAX(count, 1u); i++) {
        const struct rails_memory *one =
            rails_memory_of(rails, count == 0 ? memory : places[i].memory);
        if (one == NULL) {
            return sl_fail(why, SL_ERR_NOT_FOUND, "no such memory");
        }
        if (!rails_memory_is_ready(rails, one)) {
            return sl_fail(why, SL_ERR_BUSY, "the memory is not registered yet");
        }
    }
    return SL_OK;
}

struct fabric_place *rails_memories_hold(struct rails *rails, uint32_t memory,
                                         const struct sl_fabric_place *places, uint32_t count)
{
    struct fabric_place *first = fabric_places_take(&rails->places, places, count);
    for (struct fabric_place *at = first; at != NULL; at = fabric_place_of(at->run.next)) {
        rails_memory_of(rails, at->memory)->users++;
    }
    if (first == NULL) {
        rails_memory_of(rails, memory)->users++;
    }
    return first;
}

static void memory_leave(const struct rails *rails, uint32_t handle)
{
    struct rails_memory *memory = rails_memory_of(rails, handle);
    SL_ASSERT(memory != NULL && memory->users > 0); /* it cannot go while it is in use */
    memory->users--;
}

void rails_memories_leave(struct rails *rails, uint32_t memory, struct fabric_place *places)
{
    for (struct fabric_place *at = places; at != NULL; at = fabric_place_of(at->run.next)) {
        memory_leave(rails, at->memory);
    }
    if (places == NULL) {
        memory_leave(rails, memory);
    }
    fabric_places_give(&rails->places, places);
}

uint32_t rails_places_on(const struct rail *rail, const struct fabric_place *places,
                         struct sl_fabric_place *out)
{
    uint32_t count = 0;
    for (const struct fabric_place *at = places; at != NULL; at = fabric_place_of(at->run.next)) {
        const struct rails_memory *memory = rails_memory_of(rail->rails, at->memory);
        SL_ASSERT(memory != NULL);
        out[count++] = (struct sl_fabric_place){.memory = memory->sub[rail->index],
                                                .offset_bytes = at->offset_bytes,
                                                .length_bytes = at->run.length_bytes};
    }
    return count;
}

/* From every rail but those that have no more of it (bits). */
static void memory_free(struct rails *rails, struct rails_memory *memory, uint16_t but)
{
    for (uint32_t i = 0; i < rails->count; i++) {
        bool here = (but & bit_of(&rails->at[i])) == 0 && memory->sub[i] != FABRIC_NONE;
        if (rails->at[i].fabric != NULL && here) {
            struct sl_fabric *rail = rails->at[i].fabric;
            fabric_memory_clear(rail, fabric_memory_of(rail, memory->sub[i]));
        }
    }
    *memory = (struct rails_memory){.generation = memory->generation};
}

sl_err fabric_rails_memory_add(struct sl_fabric *fabric, const struct sl_fabric_memory *what,
                               uint32_t *out, struct sl_error *why)
{
    struct rails *rails = fabric->rails;
    uint32_t index = 0;
    while (index < fabric->options.memories_max && rails->memories[index].used) {
        index++;
    }
    if (index == fabric->options.memories_max) {
        return sl_fail(why, SL_ERR_LIMIT, "more than %u registered memories", index);
    }
    struct rails_memory *memory = &rails->memories[index];
    *memory = (struct rails_memory){.used = true,
                                    .by_dmabuf = what->dmabuf != NULL,
                                    .generation = fabric_generation_next(memory->generation)};
    memset(memory->sub, 0xff, sizeof(memory->sub));
    sl_err err = SL_OK;
    for (uint32_t i = 0; i < rails->count && err == SL_OK; i++) {
        if (rails->at[i].fabric != NULL) {
            err = sl_fabric_memory_add(rails->at[i].fabric, what, &memory->sub[i], why);
        }
    }
    if (err != SL_OK) {
        memory_free(rails, memory, 0);
        return err;
    }
    *out = fabric_handle_make(memory->generation, index);
    return SL_OK;
}

/* Rail after rail. From the first call on it is not ready, so that nothing uses it. */
sl_err fabric_rails_memory_remove_step(struct sl_fabric *fabric, uint32_t handle, bool *gone)
{
    struct rails *rails = fabric->rails;
    struct rails_memory *memory = rails_memory_of(rails, handle);
    if (memory == NULL) {
        return SL_ERR_NOT_FOUND;
    }
    if (memory->users > 0) {
        return SL_ERR_BUSY;
    }
    memory->ready = 0;
    for (uint32_t k = 0; k < rails->count; k++) { /* none goes on while the others leave */
        if (memory->sub[k] != FABRIC_NONE) {
            fabric_memory_give_up(rails->at[k].fabric, memory->sub[k]);
        }
    }
    uint32_t i = 0;
    while (i < rails->count && memory->sub[i] == FABRIC_NONE) {
        i++;
    }
    bool over = true;
    sl_err err = i == rails->count
                     ? SL_ERR_NOT_FOUND
                     : sl_fabric_memory_remove_step(rails->at[i].fabric, memory->sub[i], &over);
    if (err == SL_ERR_BUSY) {
        return err;
    }
    if (i < rails->count && over) {
        memory->sub[i] = FABRIC_NONE;
    }
    *gone = true;
    for (uint32_t k = 0; k < rails->count; k++) {
        *gone = *gone && memory->sub[k] == FABRIC_NONE;
    }
    if (*gone) {
        *memory = (struct rails_memory){.generation = memory->generation};
    }
    return SL_OK;
}

uint64_t fabric_rails_region_bytes_max(const struct sl_fabric *fabric)
{
    const struct rails *rails = fabric->rails;
    uint64_t bytes = fabric->options.region_bytes_max;
    for (uint32_t i = 0; i < rails->count; i++) {
        if (rails->at[i].fabric != NULL) {
            bytes = SL_MIN(bytes, sl_fabric_region_bytes_max(rails->at[i].fabric));
        }
    }
    return bytes;
}

/* A memory is registered with every rail. */
sl_err fabric_rails_dmabuf_check(const struct sl_fabric *fabric, struct sl_error *why)
{
    const struct rails *rails = fabric->rails;
    sl_err err = SL_OK;
    for (uint32_t i = 0; i < rails->count && err == SL_OK; i++) {
        if (rails->at[i].fabric != NULL) {
            err = sl_fabric_dmabuf_check(rails->at[i].fabric, why);
        }
    }
    return err;
}

void rails_on_registered(void *context, uint32_t sub, uint32_t region_index,
                         const struct sl_error *why)
{
    struct rail *rail = context;
    struct rails *rails = rail->rails;
    const struct sl_fabric_events *events = &rails->fabric->options.events;
    for (uint32_t i = 0; i < rails->fabric->options.memories_max; i++) {
        struct rails_memory *memory = &rails->memories[i];
        if (!memory->used || memory->sub[rail->index] != sub) {
            continue;
        }
        uint32_t handle = fabric_handle_make(memory->generation, i);
        if (why->code != SL_OK) { /* on all rails or on none */
            memory_free(rails, memory, bit_of(rail));
        } else {
            memory->ready |= bit_of(rail);
        }
        if ((why->code != SL_OK || rails_memory_is_ready(rails, memory)) &&
            events->registered != NULL) {
            events->registered(events->context, handle, region_index, why);
        }
        return;
    }
}

/* ---- grants ---- */

static struct rails_grant *grant_of(const struct rails *rails, uint32_t handle)
{
    uint32_t index = handle & 0xffffu;
    if (index >= rails->fabric->options.grants_max) {
        return NULL;
    }
    struct rails_grant *grant = &rails->grants[index];
    bool lives = grant->used && !grant->ending;
    return lives && grant->generation == handle >> 16 ? grant : NULL;
}

static uint32_t grant_handle(const struct rails *rails, const struct rails_grant *grant)
{
    return fabric_handle_make(grant->generation, (uint32_t)(grant - rails->grants));
}

static sl_err grant_check(const struct rails *rails, const struct sl_fabric_grant *want,
                          struct sl_error *why)
{
    sl_err err =
        fabric_places_count_check(want->places, want->place_count, want->length_bytes, why);
    if (err == SL_OK) {
        err = rails_memories_check(rails, want->memory, want->places, want->place_count, why);
    }
    if (err != SL_OK) {
        return err;
    }
    if (want->place_count > fabric_places_room(&rails->places)) {
        return sl_fail(why, SL_ERR_LIMIT, "no room for %u more places", want->place_count);
    }
    return rails_peer_of(rails, want->peer) == NULL ? sl_fail(why, SL_ERR_NOT_FOUND, "no such peer")
                                                    : SL_OK;
}

/* What the rail adds to the key, where parts may come later. 0 bytes: nothing. */
static void part_keep(struct rails_grant *grant, uint32_t rail, const void *part,
                      uint32_t length_bytes)
{
    void *kept = length_bytes > 0 ? malloc(length_bytes) : NULL;
    free(grant->parts[rail]);
    grant->parts[rail] = kept;
    grant->part_bytes[rail] = kept != NULL ? length_bytes : 0;
    if (kept != NULL) {
        memcpy(kept, part, length_bytes);
    }
}

void rails_grant_free(struct rails_grant *grant)
{
    for (uint32_t i = 0; i < RAILS_MAX; i++) {
        free(grant->parts[i]);
    }
    free(grant->why);
    *grant = (struct rails_grant){.generation = grant->generation};
}

/* On one rail; false: it gives none, and why says the reason. */
static bool grant_add_on(struct rail *rail, const struct sl_fabric_grant *want,
                         struct rails_grant *grant, struct rails_blob *parts, uint32_t *used,
                         struct sl_error *why)
{
    struct rails *rails = rail->rails;
    uint32_t i = rail->index, length = 0;
    struct sl_fabric_grant on_rail = *want;
    if (grant->places == NULL) {
        on_rail.memory = rails_memory_of(rails, want->memory)->sub[i];
    } else {
        on_rail.places = rails->place_scratch;
        on_rail.place_count = rails_places_on(rail, grant->places, rails->place_scratch);
    }
    on_rail.peer = rails_peer_of(rails, want->peer)->sub[i];
    if (sl_fabric_grant_add(rail->fabric, &on_rail, &grant->sub[i], rails->part, &length, why) !=
        SL_OK) {
        return false;
    }
    grant->added |= bit_of(rail);
    rail->grant_of[grant->sub[i] & 0xffffu] = (uint16_t)(grant - rails->grants);
    grant->late |= length == 0;
    grant->dies |= rails->keys_die && fabric_grant_of(rail->fabric, grant->sub[i])->ticket;
    if (grant->dies) {
        part_keep(grant, i, rails->part, length);
    }
    if (length > SL_FABRIC_BLOB_MAX - *used) { /* too long beside the others: it is not told */
        return true;
    }
    memcpy(rails->blob + *used, rails->part, length);
    parts->parts[i] = rails->blob + *used;
    parts->lengths[i] = length;
    *used += length;
    return true;
}

sl_err fabric_rails_grant_add(struct sl_fabric *fabric, const struct sl_fabric_grant *want,
                              uint32_t *out, void *key, uint32_t *key_bytes, struct sl_error *why)
{
    struct rails *rails = fabric->rails;
    struct sl_error first = {0};
    struct rails_blob parts = {0};
    uint32_t index = 0, used = 0;
    sl_err err = grant_check(rails, want, why);
    if (err != SL_OK) {
        return err;
    }
    while (index < fabric->options.grants_max && rails->grants[index].used) {
        index++;
    }
    if (index == fabric->options.grants_max) {
        return sl_fail(why, SL_ERR_LIMIT, "more than %u grants", index);
    }
    struct rails_grant *grant = &rails->grants[index];
    *grant = (struct rails_grant){
        .generation = fabric_generation_next(grant->generation),
        .peer = want->peer,
        .memory = want->memory,
        .places = rails_memories_hold(rails, want->memory, want->places, want->place_count)};
    for (uint32_t i = 0; i < rails->count; i++) {
        struct sl_error reason = {0};
        if (rails->at[i].fabric != NULL &&
            !grant_add_on(&rails->at[i], want, grant, &parts, &used, &reason) &&
            first.code == SL_OK) {
            first = reason;
        }
    }
    if (grant->added == 0) {
        rails_memories_leave(rails, grant->memory, grant->places);
        rails_grant_free(grant);
        if (why != NULL) {
            *why = first;
        }
        return first.code;
    }
    grant->used = true;
    uint32_t length =
        grant->late ? 0 : rails_blob_write(rails, grant->dies, parts.parts, parts.lengths, key);
    if (length == 0 && !grant->late) {
        grant->silent = true;
        (void)fabric_rails_grant_end(fabric, grant_handle(rails, grant));
        return sl_fail(why, SL_ERR_LIMIT, "a key of %u rails is too long", rails->count);
    }
    *key_bytes = length;
    *out = grant_handle(rails, grant);
    return SL_OK;
}

/* Once every rail has it or has lost it. */
static void grant_tell(struct rails *rails, struct rails_grant *grant)
{
    const struct sl_fabric_events *events = &rails->fabric->options.events;
    if (!grant->used || grant->ending || grant->told ||
        (grant->ready | grant->lost) != grant->added) {
        return;
    }
    grant->told = true;
    uint32_t length = grant->late
                          ? rails_blob_write(rails, grant->dies, (const void *const *)grant->parts,
                                             grant->part_bytes, rails->blob)
                          : 0;
    const struct sl_error why =
        length == 0 && grant->why != NULL ? *grant->why : (struct sl_error){0};
    for (uint32_t i = 0; i < RAILS_MAX; i++) { /* nothing comes after it */
        part_keep(grant, i, NULL, 0);
    }
    if (events->granted != NULL) {
        events->granted(events->context, grant_handle(rails, grant),
                        grant->late ? rails->blob : NULL, length, &why);
    }
}

/* What a rail gave of the key works for nobody: the key is told without it. */
static void part_lose(struct rails_grant *grant, uint32_t rail, const struct sl_error *why)
{
    part_keep(grant, rail, NULL, 0);
    grant->late = true;
    if (why->code != SL_OK && grant->why == NULL) {
        grant->why = malloc(sizeof(*grant->why));
        if (grant->why != NULL) {
            *grant->why = *why;
        }
    }
}

static struct rails_grant *grant_by_sub(const struct rail *rail, uint32_t sub)
{
    struct rails_grant *grant = &rail->rails->grants[rail->grant_of[sub & 0xffffu]];
    return grant->used && grant->sub[rail->index] == sub ? grant : NULL;
}

void rails_on_granted(void *context, uint32_t sub, const void *key, uint32_t key_bytes,
                      const struct sl_error *why)
{
    struct rail *rail = context;
    struct rails_grant *grant = grant_by_sub(rail, sub);
    if (grant != NULL) {
        if (key != NULL && key_bytes > 0) {
            part_keep(grant, rail->index, key, key_bytes);
        } else if (key != NULL) {
            part_lose(grant, rail->index, why);
        }
        grant->ready |= bit_of(rail);
        grant_tell(rail->rails, grant);
    }
}

void rails_grants_lost(struct rail *rail, uint32_t peer)
{
    struct rails *rails = rail->rails;
    for (uint32_t i = 0; i < rails->fabric->options.grants_max; i++) {
        struct rails_grant *grant = &rails->grants[i];
        uint16_t waits = grant->added & (uint16_t)~grant->ready & bit_of(rail);
        if (grant->used && grant->peer == peer && waits != 0) {
            grant->lost |= waits;
            grant_tell(rails, grant);
        }
    }
}

static void grant_ended_on(struct rails *rails, struct rails_grant *grant, uint16_t bit)
{
    grant->ended |= bit;
    if (grant->ending && !grant->gone && grant->ended == grant->added) {
        grant->gone = true;
        rails->grants_gone++;
    }
}

sl_err fabric_rails_grant_end(struct sl_fabric *fabric, uint32_t handle)
{
    struct rails *rails = fabric->rails;
    struct rails_grant *grant = grant_of(rails, handle);
    if (grant == NULL) {
        return SL_ERR_NOT_FOUND;
    }
    grant->ending = true;
    for (uint32_t i = 0; i < rails->count; i++) {
        struct rail *rail = &rails->at[i];
        if ((grant->added & bit_of(rail)) != 0) { /* grant_ended follows, in a step */
            sl_err err = sl_fabric_grant_end(rail->fabric, grant->sub[i]);
            SL_ASSERT(err == SL_OK);
        }
    }
    return SL_OK;
}

void rails_on_grant_ended(void *context, uint32_t sub)
{
    struct rail *rail = context;
    struct rails_grant *grant = grant_by_sub(rail, sub);
    if (grant != NULL) {
        grant_ended_on(rail->rails, grant, bit_of(rail));
    }
}

void rails_grants_tell(struct rails *rails)
{
    const struct sl_fabric_events *events = &rails->fabric->options.events;
    for (uint32_t i = 0; rails->grants_gone > 0 && i < rails->fabric->options.grants_max; i++) {
        struct rails_grant *grant = &rails->grants[i];
        if (!grant->gone) {
            continue;
        }
        bool silent = grant->silent;
        uint32_t handle = grant_handle(rails, grant);
        rails_memories_leave(rails, grant->memory, grant->places);
        rails_grant_free(grant);
        rails->grants_gone--;
        if (!silent && events->grant_ended != NULL) {
            events->grant_ended(events->context, handle);
        }
    }
}

/* ---- keys ---- */

struct rails_key *rails_key_of(const struct rails *rails, uint32_t handle)
{
    uint32_t index = handle & 0xffffu;
    if (index >= rails->fabric->options.keys_max) {
        return NULL;
    }
    struct rails_key *key = &rails->keys[index];
    return key->used && key->generation == handle >> 16 ? key : NULL;
}

sl_err fabric_rails_key_open(struct sl_fabric *fabric, uint32_t handle, const void *blob,
                             uint32_t length_bytes, uint32_t *out, struct sl_error *why)
{
    struct rails *rails = fabric->rails;
    const struct rails_peer *peer = rails_peer_of(rails, handle);
    struct rails_blob read = {0};
    uint32_t index = 0;
    if (peer == NULL) {
        return sl_fail(why, SL_ERR_NOT_FOUND, "no such peer");
    }
    while (index < fabric->options.keys_max && rails->keys[index].used) {
        index++;
    }
    if (index == fabric->options.keys_max) {
        return sl_fail(why, SL_ERR_LIMIT, "more than %u keys", index);
    }
    struct rails_key fresh = {.used = true,
                              .generation = fabric_generation_next(rails->keys[index].generation),
                              .peer = handle};
    sl_err err = rails_blob_read(blob, length_bytes, &read, why);
    fresh.dies = read.dies;
    memcpy(fresh.lives, peer->lives, sizeof(fresh.lives));
    for (uint32_t i = 0; i < rails->count && err == SL_OK; i++) {
        struct rail *rail = &rails->at[i];
        if (rail->fabric != NULL && read.lengths[i] > 0) {
            err = sl_fabric_key_open(rail->fabric, peer->sub[i], read.parts[i], read.lengths[i],
                                     &fresh.sub[i], why);
            fresh.there |= err == SL_OK ? bit_of(rail) : 0;
        }
    }
    if (err == SL_OK && fresh.there == 0) {
        err = sl_fail(why, SL_ERR_PROTOCOL, "a key of no rail that is open here");
    }
    rails->keys[index] = fresh;
    if (err != SL_OK) {
        fabric_rails_key_close(fabric, fabric_handle_make(fresh.generation, index));
        return err;
    }
    *out = fabric_handle_make(fresh.generation, index);
    return SL_OK;
}

void fabric_rails_key_close(struct sl_fabric *fabric, uint32_t handle)
{
    struct rails *rails = fabric->rails;
    struct rails_key *key = rails_key_of(rails, handle);
    if (key == NULL) {
        return;
    }
    struct rails_key old = *key;
    *key = (struct rails_key){.generation = old.generation};
    for (uint32_t i = 0; i < rails->count; i++) {
        if ((old.there & bit_of(&rails->at[i])) != 0) {
            sl_fabric_key_close(rails->at[i].fabric, old.sub[i]);
        }
    }
}

void rails_keys_drop(struct rails *rails, uint32_t peer)
{
    for (uint32_t i = 0; i < rails->fabric->options.keys_max; i++) {
        const struct rails_key *key = &rails->keys[i];
        if (key->used && key->peer == peer) {
            fabric_rails_key_close(rails->fabric, fabric_handle_make(key->generation, i));
        }
    }
}
