/* runtime/fabric/core/grants.c - grants that we give, and keys that peers gave us. */
#include "runtime/fabric/core/tables.h"

#include <stdlib.h>
#include <string.h>

static sl_err grant_check(struct sl_fabric *fabric, const struct sl_fabric_grant *grant,
                          struct sl_error *why)
{
    const struct sl_fabric_place whole = {.memory = grant->memory,
                                          .offset_bytes = grant->offset_bytes,
                                          .length_bytes = grant->length_bytes};
    sl_err err =
        fabric_places_check(fabric, grant->places, grant->place_count, grant->length_bytes, why);
    if (err == SL_OK && grant->places == NULL) {
        err = fabric_range_check(fabric, &whole, why);
    }
    if (err != SL_OK) {
        return err;
    }
    if (fabric_peer_of(fabric, grant->peer) == NULL) {
        return sl_fail(why, SL_ERR_NOT_FOUND, "no such peer");
    }
    return SL_OK;
}

static bool grant_is_ticket(struct sl_fabric *fabric, const struct sl_fabric_grant *grant)
{
    bool ticket = false;
    for (uint32_t i = 0; i < SL_MAX(grant->place_count, 1u); i++) {
        uint32_t memory = grant->places != NULL ? grant->places[i].memory : grant->memory;
        ticket = ticket || fabric_memory_of(fabric, memory)->what.unread;
    }
    return ticket;
}

struct sl_runs fabric_grant_runs(const struct sl_fabric *fabric, const struct fabric_grant *grant,
                                 uint64_t offset_bytes)
{
    if (grant->places == NULL) {
        unsigned char *memory = fabric->memories[grant->memory_index].what.at;
        return sl_runs_of(memory + offset_bytes,
                          grant->what.length_bytes - (offset_bytes - grant->what.offset_bytes));
    }
    struct sl_runs runs = sl_runs_from(&grant->places->run);
    sl_runs_skip(&runs, offset_bytes);
    return runs;
}

static void grant_memory_leave(struct sl_fabric *fabric, struct fabric_grant *grant)
{
    if (grant->places != NULL) {
        fabric_places_leave(fabric, grant->places);
        grant->places = NULL;
    } else {
        fabric->memories[grant->memory_index].users--;
    }
}

sl_err sl_fabric_grant_add(struct sl_fabric *fabric, const struct sl_fabric_grant *grant,
                           uint32_t *out, void *key, uint32_t *key_bytes, struct sl_error *why)
{
    if (fabric->form != NULL) {
        return fabric->form->grant_add(fabric, grant, out, key, key_bytes, why);
    }
    sl_err err = grant_check(fabric, grant, why);
    if (err != SL_OK) {
        return err;
    }
    uint32_t index = fabric->grant_low;
    while (index < fabric->options.grants_max && fabric->grants[index].state != GRANT_FREE) {
        index++;
    }
    fabric->grant_low = index;
    if (index == fabric->options.grants_max) {
        return sl_fail(why, SL_ERR_LIMIT, "more than %u grants", index);
    }
    if (grant->place_count > fabric_places_room(&fabric->places)) {
        return sl_fail(why, SL_ERR_LIMIT, "no room for %u more places", grant->place_count);
    }
    struct fabric_grant fresh = {
        .what = *grant,
        .index = index,
        .memory_index = grant->memory & 0xffffu,
        .peer_index = grant->peer & 0xffffu,
        .slot_generation = fabric_generation_next(fabric->grants[index].slot_generation),
        .state = GRANT_LIVE,
        .ticket = grant_is_ticket(fabric, grant),
        .generation = ++fabric->next_generation,
    };
    if (grant->places != NULL) {
        fresh.places = fabric_places_hold(fabric, grant->places, grant->place_count);
        fresh.what.places = NULL;
        fresh.what.offset_bytes = 0;
        fresh.memory_index = FABRIC_NONE;
    } else {
        fabric->memories[fresh.memory_index].users++;
    }
    err = fabric_secret(fresh.token, sizeof(fresh.token), why);
    if (err == SL_OK) {
        err = fabric->ops->grant_add(fabric, &fresh, key, key_bytes, why);
    }
    if (err != SL_OK) {
        grant_memory_leave(fabric, &fresh);
        return err;
    }
    fabric->grants[index] = fresh;
    fabric->grants_ready |= fresh.ready;
    fabric->work_due |= fresh.ready;
    *out = fabric_handle_make(fresh.slot_generation, index);
    return SL_OK;
}

sl_err sl_fabric_grant_end(struct sl_fabric *fabric, uint32_t handle)
{
    if (fabric->form != NULL) {
        return fabric->form->grant_end(fabric, handle);
    }
    struct fabric_grant *grant = fabric_grant_of(fabric, handle);
    if (grant == NULL) {
        return SL_ERR_NOT_FOUND;
    }
    grant->state = GRANT_ENDING;
    memset(grant->token, 0, sizeof(grant->token));
    fabric->ops->grant_end(fabric, grant);
    return SL_OK;
}

void fabric_grant_gone(struct sl_fabric *fabric, struct fabric_grant *grant)
{
    SL_ASSERT(grant->state == GRANT_ENDING);
    grant->state = GRANT_GONE;
    grant_memory_leave(fabric, grant);
    fabric->grants_gone++;
    fabric->work_due = true;
}

void fabric_grant_ready(struct sl_fabric *fabric, struct fabric_grant *grant)
{
    grant->ready = true;
    fabric->grants_ready = true;
    fabric->work_due = true;
}

void fabric_grant_failed(struct sl_fabric *fabric, struct fabric_grant *grant,
                         const struct sl_error *why)
{
    grant->why = why;
    fabric_grant_ready(fabric, grant);
}

static void grant_tell(const struct sl_fabric *fabric, struct fabric_grant *grant)
{
    const struct sl_fabric_events *events = &fabric->options.events;
    const struct sl_error why = grant->why != NULL ? *grant->why : (struct sl_error){0};
    void *key = grant->key; /* the event may end the grant */
    grant->told = true;
    grant->key = NULL;
    if (events->granted != NULL) {
        events->granted(events->context, fabric_handle_make(grant->slot_generation, grant->index),
                        why.code != SL_OK ? "" : key, why.code != SL_OK ? 0 : grant->key_bytes,
                        &why);
    }
    free(key);
}

void fabric_grants_tell(struct sl_fabric *fabric)
{
    bool ready = fabric->grants_ready;
    fabric->grants_ready = false;
    for (uint32_t i = 0; ready && i < fabric->options.grants_max; i++) {
        struct fabric_grant *grant = &fabric->grants[i];
        if (grant->state == GRANT_LIVE && grant->ready && !grant->told) {
            grant_tell(fabric, grant);
        }
    }
    for (uint32_t i = 0; fabric->grants_gone > 0 && i < fabric->options.grants_max; i++) {
        struct fabric_grant *grant = &fabric->grants[i];
        if (grant->state != GRANT_GONE) {
            continue;
        }
        uint32_t handle = fabric_handle_make(grant->slot_generation, i);
        free(grant->key);
        *grant = (struct fabric_grant){.slot_generation = grant->slot_generation};
        fabric->grant_low = SL_MIN(fabric->grant_low, i);
        fabric->grants_gone--;
        if (fabric->options.events.grant_ended != NULL) {
            fabric->options.events.grant_ended(fabric->options.events.context, handle);
        }
    }
}

/* ---- keys ---- */

sl_err sl_fabric_key_open(struct sl_fabric *fabric, uint32_t peer_handle, const void *blob,
                          uint32_t length_bytes, uint32_t *out, struct sl_error *why)
{
    if (fabric->form != NULL) {
        return fabric->form->key_open(fabric, peer_handle, blob, length_bytes, out, why);
    }
    const struct fabric_peer *peer = fabric_peer_of(fabric, peer_handle);
    if (peer == NULL) {
        return sl_fail(why, SL_ERR_NOT_FOUND, "no such peer");
    }
    uint32_t index = fabric->key_low;
    while (index < fabric->options.keys_max && fabric->keys[index].used) {
        index++;
    }
    fabric->key_low = index;
    if (index == fabric->options.keys_max) {
        return sl_fail(why, SL_ERR_LIMIT, "more than %u keys", index);
    }
    struct fabric_key fresh = {
        .used = true,
        .generation = fabric_generation_next(fabric->keys[index].generation),
        .peer_index = peer->index,
    };
    sl_err err = fabric_rails_first(&blob, &length_bytes, why);
    if (err == SL_OK) {
        err = fabric->ops->key_parse(fabric, blob, length_bytes, &fresh, why);
    }
    if (err != SL_OK) {
        free(fresh.regions);
        free(fresh.lane_rkeys);
        return err;
    }
    fabric->keys[index] = fresh;
    *out = fabric_handle_make(fresh.generation, index);
    return SL_OK;
}

void sl_fabric_key_close(struct sl_fabric *fabric, uint32_t handle)
{
    if (fabric->form != NULL) {
        fabric->form->key_close(fabric, handle);
        return;
    }
    struct fabric_key *key = fabric_key_of(fabric, handle);
    if (key == NULL) {
        return;
    }
    uint32_t index = handle & 0xffffu;
    key->closing = true;
    for (uint32_t t = 0; key->users > 0 && t < fabric->options.transfers_max; t++) {
        struct fabric_transfer *transfer = &fabric->transfers[t];
        bool uses = false;
        for (uint32_t i = transfer->used ? transfer->piece_first : FABRIC_NONE;
             i != FABRIC_NONE && !uses; i = fabric->pieces[i].sibling) {
            uses = fabric->pieces[i].key_index == index && !fabric->pieces[i].ended;
        }
        if (uses) {
            fabric_transfer_give_up(fabric, transfer, SL_ERR_CANCELLED);
        }
    }
    if (key->used && key->closing && key->users == 0) {
        fabric_key_free(fabric, key);
    }
}
