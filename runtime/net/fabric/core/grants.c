/* runtime/net/fabric/core/grants.c - our grants for peers, and the keys of peers' grants. */
#include "runtime/net/fabric/core/tables.h"

#include <stdlib.h>
#include <string.h>

static bool list_is_unread(struct sl_fabric *fabric, const struct fabric_list *list)
{
    bool unread = false;
    for (uint32_t i = 0; i < SL_MAX(list->count, 1u); i++) {
        unread |= fabric_memory_of(fabric, fabric_list_at(list, i)->memory)->what.unread;
    }
    return unread;
}

struct sl_runs fabric_grant_runs(const struct fabric_grant *grant, uint64_t offset_bytes)
{
    struct sl_runs runs = sl_runs_from(&grant->places->run);
    sl_runs_skip(&runs, offset_bytes - grant->what.offset_bytes);
    return runs;
}

/* Keeps the rail's part of the key until granted(); 0 bytes: none. */
static void part_keep(struct fabric_share *share, const void *part, uint32_t length_bytes)
{
    void *kept = length_bytes > 0 ? malloc(length_bytes) : NULL;
    free(share->key);
    share->key = kept;
    share->key_bytes = kept != NULL ? length_bytes : 0;
    if (kept != NULL) {
        memcpy(kept, part, length_bytes);
    }
}

/* Joins the parts of all rails. 0: there are none. */
static uint32_t key_write(const struct sl_fabric *fabric, const struct fabric_grant *grant,
                          void *out)
{
    struct fabric_blob blob = {.dies = grant->ticket && fabric->keys_die};
    for (uint32_t i = 0; i < fabric->rail_count; i++) {
        const struct fabric_rail *rail = fabric->rails[i];
        blob.parts[rail->index] = rail->shares[grant->index].key;
        blob.lengths[rail->index] = rail->shares[grant->index].key_bytes;
    }
    return fabric_blob_write(fabric->list_count, &blob, out);
}

static void keys_drop(struct sl_fabric *fabric, const struct fabric_grant *grant)
{
    for (uint32_t i = 0; i < fabric->rail_count; i++) {
        part_keep(&fabric->rails[i]->shares[grant->index], NULL, 0);
    }
}

static void grant_free(struct sl_fabric *fabric, struct fabric_grant *grant)
{
    fabric->grant_low = SL_MIN(fabric->grant_low, grant->index);
    keys_drop(fabric, grant);
    *grant = (struct fabric_grant){.index = grant->index, /* these belong to the slot */
                                   .slot_generation = grant->slot_generation};
}

/* Adds the grant on every rail that accepts it. Errors: of the first rail, if all refuse. */
static sl_err grant_add(struct sl_fabric *fabric, struct fabric_grant *grant, struct sl_error *why)
{
    struct sl_error first = {0};
    for (uint32_t i = 0; i < fabric->rail_count; i++) {
        struct fabric_rail *rail = fabric->rails[i];
        struct sl_error reason = {0};
        if (fabric->ops->grant_add(rail, grant, &reason) == SL_OK) {
            grant->on |= fabric_bit(rail);
        } else if (first.code == SL_OK) {
            first = reason;
        }
    }
    if (grant->on == 0 && why != NULL) {
        *why = first;
    }
    return grant->on == 0 ? first.code : SL_OK;
}

sl_err sl_fabric_grant_add(struct sl_fabric *fabric, const struct sl_fabric_grant *want,
                           uint32_t *out, struct sl_error *why)
{
    const struct fabric_list list = {
        .places = want->places,
        .count = want->place_count,
        .whole = {want->memory, want->offset_bytes, want->length_bytes}};
    sl_err err = fabric_list_check(fabric, &list, why);
    if (err == SL_OK && fabric_peer_of(fabric->rails[0], want->peer) == NULL) {
        err = sl_fail(why, SL_ERR_NOT_FOUND, "no such peer");
    }
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
    if (want->place_count > fabric_places_room(&fabric->places)) {
        return sl_fail(why, SL_ERR_LIMIT, "no room for %u more places", want->place_count);
    }
    struct fabric_grant *grant = &fabric->grants[index];
    *grant = (struct fabric_grant){
        .what = *want,
        .index = index,
        .peer_index = want->peer & 0xffffu,
        .slot_generation = fabric_generation_next(grant->slot_generation),
        .state = GRANT_LIVE,
        .ticket = list_is_unread(fabric, &list),
        .generation = ++fabric->next_generation,
        .places = fabric_places_hold(fabric, &list),
    };
    grant->what.offset_bytes = list.places == NULL ? want->offset_bytes : 0;
    grant->what.places = NULL;
    err = fabric_secret(grant->token, sizeof(grant->token), why);
    if (err == SL_OK) {
        err = grant_add(fabric, grant, why);
    }
    if (err != SL_OK) {
        fabric_places_leave(fabric, grant->places);
        grant_free(fabric, grant);
        return err;
    }
    *out = fabric_handle_make(grant->slot_generation, index);
    return SL_OK;
}

sl_err sl_fabric_grant_end(struct sl_fabric *fabric, uint32_t handle)
{
    struct fabric_grant *grant = fabric_grant_of(fabric, handle);
    if (grant == NULL) {
        return SL_ERR_NOT_FOUND;
    }
    grant->state = GRANT_ENDING;
    memset(grant->token, 0, sizeof(grant->token));
    for (uint32_t i = 0; i < fabric->rail_count; i++) {
        if ((grant->on & fabric_bit(fabric->rails[i])) != 0) {
            fabric->ops->grant_end(fabric->rails[i], grant);
        }
    }
    return SL_OK;
}

void fabric_grant_gone(struct fabric_rail *rail, struct fabric_grant *grant)
{
    struct sl_fabric *fabric = rail->fabric;
    SL_ASSERT(grant->state == GRANT_ENDING && (grant->on & fabric_bit(rail)) != 0);
    grant->on &= (uint16_t)~fabric_bit(rail);
    if (grant->on == 0) {
        grant->state = GRANT_GONE;
        fabric_places_leave(fabric, grant->places);
        grant->places = NULL;
        fabric->grants_gone++;
        fabric->work_due = true;
    }
}

void fabric_grant_ready(struct fabric_rail *rail, struct fabric_grant *grant, const void *key,
                        uint32_t key_bytes)
{
    part_keep(&rail->shares[grant->index], key, key_bytes);
    grant->ready |= fabric_bit(rail);
    rail->fabric->grants_ready = true;
    rail->fabric->work_due = true;
}

void fabric_grant_failed(struct fabric_rail *rail, struct fabric_grant *grant,
                         const struct sl_error *why)
{
    grant->why = grant->why == NULL ? why : grant->why;
    fabric_grant_ready(rail, grant, NULL, 0);
}

void fabric_grants_lost(const struct fabric_peer *peer)
{
    struct fabric_rail *rail = peer->rail;
    struct sl_fabric *fabric = rail->fabric;
    if (fabric->rail_count == 1) {
        return; /* the caller is notified that the peer is down */
    }
    for (uint32_t i = 0; i < fabric->options.grants_max; i++) {
        struct fabric_grant *grant = &fabric->grants[i];
        uint16_t waits = grant->on & (uint16_t)~grant->ready & fabric_bit(rail);
        if (grant->state != GRANT_LIVE || grant->peer_index != peer->index || waits == 0) {
            continue;
        }
        grant->lost |= waits;
        fabric->grants_ready = true;
        fabric->work_due = true;
    }
}

/* Reports the grant, once every rail is ready or lost. */
static void grant_report(struct sl_fabric *fabric, struct fabric_grant *grant)
{
    const struct sl_fabric_events *events = &fabric->options.events;
    uint32_t length = key_write(fabric, grant, fabric->blob);
    const struct sl_error why =
        length == 0 && grant->why != NULL ? *grant->why : (struct sl_error){0};
    grant->reported = true;
    keys_drop(fabric, grant);
    if (events->granted != NULL) {
        events->granted(events->context, fabric_handle_make(grant->slot_generation, grant->index),
                        fabric->blob, length, &why);
    }
}

void fabric_grants_report(struct sl_fabric *fabric)
{
    bool ready = fabric->grants_ready;
    fabric->grants_ready = false;
    for (uint32_t i = 0; ready && i < fabric->options.grants_max; i++) {
        struct fabric_grant *grant = &fabric->grants[i];
        if (grant->state == GRANT_LIVE && !grant->reported &&
            (grant->ready | grant->lost) == grant->on) {
            grant_report(fabric, grant);
        }
    }
    for (uint32_t i = 0; fabric->grants_gone > 0 && i < fabric->options.grants_max; i++) {
        struct fabric_grant *grant = &fabric->grants[i];
        if (grant->state != GRANT_GONE) {
            continue;
        }
        uint32_t handle = fabric_handle_make(grant->slot_generation, i);
        grant_free(fabric, grant);
        fabric->grants_gone--;
        if (fabric->options.events.grant_ended != NULL) {
            fabric->options.events.grant_ended(fabric->options.events.context, handle);
        }
    }
}

/* ---- keys ---- */

/* Parses the key's part of each rail. */
static sl_err rights_parse(struct sl_fabric *fabric, const struct fabric_blob *blob,
                           const struct fabric_key *key, struct sl_error *why)
{
    uint32_t index = (uint32_t)(key - fabric->keys);
    sl_err err = SL_OK;
    bool any = false;
    for (uint32_t i = 0; i < fabric->rail_count && err == SL_OK; i++) {
        struct fabric_rail *rail = fabric->rails[i];
        struct fabric_right *right = &rail->rights[index];
        right->lives = rail->peers[key->peer_index].lives;
        if (blob->parts[rail->index] != NULL) {
            err = fabric->ops->key_parse(rail, blob->parts[rail->index], blob->lengths[rail->index],
                                         right, why);
            any = true;
        }
    }
    return err != SL_OK || any ? err
                               : sl_fail(why, SL_ERR_PROTOCOL, "a key for none of the open rails");
}

sl_err sl_fabric_key_open(struct sl_fabric *fabric, uint32_t peer_handle, const void *blob,
                          uint32_t length_bytes, uint32_t *out, struct sl_error *why)
{
    struct fabric_blob read = {0};
    if (fabric_peer_of(fabric->rails[0], peer_handle) == NULL) {
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
    sl_err err = fabric_blob_read(blob, length_bytes, &read, why);
    if (err != SL_OK) {
        return err;
    }
    struct fabric_key *key = &fabric->keys[index];
    *key = (struct fabric_key){
        .used = true,
        .dies = read.dies,
        .generation = fabric_generation_next(key->generation),
        .peer_index = peer_handle & 0xffffu,
    };
    err = rights_parse(fabric, &read, key, why);
    if (err != SL_OK) {
        fabric_key_free(fabric, key);
        return err;
    }
    *out = fabric_handle_make(key->generation, index);
    return SL_OK;
}

void sl_fabric_key_close(struct sl_fabric *fabric, uint32_t handle)
{
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
