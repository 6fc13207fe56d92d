/* actors/registrar/disk/fetches.c - fetches of values from disk to memory, and the requests that
 * wait for them.
 *
 * A fetch (struct reg_fetch) reads one record's value; any number of requests may wait for it.
 * Each disk has two queues of fetches: those that a reader waits for, and those ahead of use.
 * Fetches ahead of use may take half of each table at most. */
#include "actors/registrar/disk/disks.h"
#include "actors/registrar/disk/promote.h"
#include "actors/registrar/disk/reclaim.h"
#include "actors/registrar/presence/peers.h"
#include "actors/registrar/records/claims.h"
#include "actors/registrar/records/units.h"

#include <stdlib.h>

#define WAITERS_MAX       REG_FETCHES_MAX
#define AHEAD_WAITERS_MAX (WAITERS_MAX / 2)

sl_err reg_promotes_init(struct registrar *self, struct sl_error *why)
{
    self->promotion->fetch_free = REG_NONE;
    self->promotion->waiter_free = REG_NONE;
    self->promotion->prefetch_bytes_max = sl_config_u64(self->env->config, SL_SET_disk_prefetch);
    if (!self->tier->on) {
        return SL_OK;
    }
    self->promotion->fetches = calloc(REG_FETCHES_MAX, sizeof(*self->promotion->fetches));
    self->promotion->waiters = calloc(WAITERS_MAX, sizeof(*self->promotion->waiters));
    self->promotion->read_count = (REG_READS_MAX + REG_AHEAD_READS_MAX) * self->tier->path_count;
    self->promotion->reads = calloc(self->promotion->read_count, sizeof(*self->promotion->reads));
    self->promotion->fills = calloc(REG_READ_ITEMS_MAX, sizeof(*self->promotion->fills));
    if (self->promotion->fetches == NULL || self->promotion->waiters == NULL ||
        !sl_table_reserve(&self->promotion->by_source, REG_FETCHES_MAX) ||
        self->promotion->reads == NULL || self->promotion->fills == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "tables of promotions");
    }
    return SL_OK;
}

void reg_promotes_fini(struct registrar *self)
{
    free(self->promotion->fetches);
    free(self->promotion->waiters);
    sl_table_fini(&self->promotion->by_source);
    free(self->promotion->reads);
    free(self->promotion->fills);
}

/* ---- fetches ---- */

uint32_t reg_fetch_find(const struct registrar *self, const struct sl_entry *source)
{
    const struct reg_fetch *fetch = SL_TABLE_FIRST(
        &self->promotion->by_source, sl_table_hash(source->ref), struct reg_fetch, by_source);
    while (fetch != NULL && fetch->source_version != source->version) {
        fetch = SL_TABLE_NEXT(fetch, struct reg_fetch, by_source);
    }
    return fetch == NULL ? REG_NONE : (uint32_t)(fetch - self->promotion->fetches);
}

static struct reg_fetch_queue *fetch_queue(struct registrar *self, uint32_t slot)
{
    const struct reg_fetch *fetch = &self->promotion->fetches[slot];
    return &self->tier->disks[fetch->disk].fetches[fetch->ahead];
}

static void fetch_append(struct registrar *self, uint32_t slot)
{
    struct reg_fetch_queue *queue = fetch_queue(self, slot);
    struct reg_fetch *all = self->promotion->fetches;
    all[slot].next = REG_NONE;
    all[slot].previous = queue->last;
    *(queue->last != REG_NONE ? &all[queue->last].next : &queue->first) = slot;
    queue->last = slot;
}

void reg_fetch_prepend(struct registrar *self, uint32_t slot)
{
    struct reg_fetch_queue *queue = fetch_queue(self, slot);
    struct reg_fetch *all = self->promotion->fetches;
    all[slot].next = queue->first;
    all[slot].previous = REG_NONE;
    *(queue->first != REG_NONE ? &all[queue->first].previous : &queue->last) = slot;
    queue->first = slot;
}

void reg_fetch_unqueue(struct registrar *self, uint32_t slot)
{
    struct reg_fetch_queue *queue = fetch_queue(self, slot);
    struct reg_fetch *all = self->promotion->fetches, *at = &all[slot];
    *(at->previous != REG_NONE ? &all[at->previous].next : &queue->first) = at->next;
    *(at->next != REG_NONE ? &all[at->next].previous : &queue->last) = at->previous;
}

uint32_t reg_fetch_add(struct registrar *self, const struct sl_entry *source, bool ahead)
{
    uint32_t slot = self->promotion->fetch_free;
    if (ahead && self->promotion->ahead_fetches == REG_AHEAD_FETCHES_MAX) {
        return REG_NONE;
    }
    if (slot != REG_NONE) {
        self->promotion->fetch_free = self->promotion->fetches[slot].next;
    } else if (self->promotion->fetch_high < REG_FETCHES_MAX) {
        slot = self->promotion->fetch_high++;
    } else {
        return REG_NONE;
    }
    self->promotion->fetches[slot] = (struct reg_fetch){
        .used = true,
        .ahead = ahead,
        .disk = source->disk.disk,
        .claim = REG_NONE,
        .source = source->ref,
        .source_version = source->version,
        .waiters = REG_NONE,
    };
    sl_table_add(&self->promotion->by_source, &self->promotion->fetches[slot].by_source,
                 sl_table_hash(source->ref));
    self->promotion->fetch_count++;
    self->promotion->ahead_fetches += ahead;
    fetch_append(self, slot);
    return slot;
}

/* The tierer has queued the read after all others: asks it to read the value now. */
static void read_raise(struct registrar *self, const struct reg_fetch *fetch)
{
    const struct reg_disk *disk = &self->tier->disks[fetch->disk];
    struct sl_msg raise = {.type = SL_MSG_DISK_READ};
    raise.body.disk_read.raise = self->claims->all[fetch->claim].extent.generation;
    if (disk->state != REG_DISK_ABSENT) { /* if the message is lost, the read keeps its turn */
        (void)sl_send(self->env, self->peers->all[disk->tierer].name, &raise, NULL);
    }
}

void reg_fetch_raise(struct registrar *self, uint32_t slot)
{
    struct reg_fetch *fetch = &self->promotion->fetches[slot];
    if (!fetch->ahead) {
        return;
    }
    if (!fetch->reading) {
        reg_fetch_unqueue(self, slot);
    }
    fetch->ahead = false;
    self->promotion->ahead_fetches--;
    if (fetch->reading) {
        read_raise(self, fetch);
    } else {
        fetch_append(self, slot);
    }
}

void reg_fetch_end(struct registrar *self, uint32_t slot, sl_err code)
{
    struct reg_fetch *fetch = &self->promotion->fetches[slot];
    while (fetch->waiters != REG_NONE) {
        struct reg_waiter *waiter = &self->promotion->waiters[fetch->waiters];
        struct reg_promote *promote = reg_answer_of(self, waiter->promote);
        uint32_t next = waiter->next;
        if (promote != NULL) {
            promote->codes[waiter->item] = (uint64_t)code;
            if (--promote->left == 0) {
                reg_promote_answer(self, promote);
            }
        }
        self->promotion->ahead_waiters -= waiter->ahead;
        waiter->next = self->promotion->waiter_free;
        self->promotion->waiter_free = fetch->waiters;
        fetch->waiters = next;
    }
    sl_table_remove(&self->promotion->by_source, &fetch->by_source);
    if (fetch->kept_for != 0) {
        reg_reclaim_read(self, fetch->disk, fetch->kept_for, fetch->held && code == SL_OK);
    }
    self->promotion->ahead_fetches -= fetch->ahead;
    fetch->used = false;
    fetch->next = self->promotion->fetch_free;
    self->promotion->fetch_free = slot;
    self->promotion->fetch_count--;
}

bool reg_fetch_is_awaited(const struct registrar *self, const struct reg_fetch *fetch)
{
    for (uint32_t at = fetch->waiters; at != REG_NONE; at = self->promotion->waiters[at].next) {
        if (reg_answer_of(self, self->promotion->waiters[at].promote) != NULL) {
            return true;
        }
    }
    if (fetch->held && sl_index_ref_live(self->index, fetch->source)) {
        struct sl_entry source;
        sl_index_read(self->index, fetch->source, &source);
        if ((sl_index_links(self->index, reg_unit_of(&source))->flags & REG_FLAG_HELD) != 0) {
            return true;
        }
    }
    return fetch->kept_for != 0 && reg_reclaim_waits(self, fetch->disk, fetch->kept_for);
}

void reg_fetches_end(struct registrar *self, uint32_t disk, bool ahead, sl_err code)
{
    const struct reg_fetch_queue *queue = &self->tier->disks[disk].fetches[ahead];
    while (queue->first != REG_NONE) {
        uint32_t slot = queue->first;
        reg_fetch_unqueue(self, slot);
        reg_fetch_end(self, slot, code);
    }
}

void reg_fetches_purge(struct registrar *self)
{
    for (uint32_t i = 0; self->promotion->ahead_fetches > 0 && i < REG_DISK_UNKNOWN; i++) {
        uint32_t slot = self->tier->disks[i].fetches[true].first;
        while (slot != REG_NONE) {
            uint32_t next = self->promotion->fetches[slot].next;
            if (!reg_fetch_is_awaited(self, &self->promotion->fetches[slot])) {
                reg_fetch_unqueue(self, slot);
                reg_fetch_end(self, slot, SL_ERR_TIMEOUT);
            }
            slot = next;
        }
    }
}

/* ---- waiters ---- */

bool reg_waiter_add(struct registrar *self, uint32_t fetch, const struct reg_promote *promote,
                    uint32_t item)
{
    bool ahead = promote->ahead;
    uint32_t slot = self->promotion->waiter_free;
    if (ahead && self->promotion->ahead_waiters == AHEAD_WAITERS_MAX) {
        return false;
    }
    if (slot != REG_NONE) {
        self->promotion->waiter_free = self->promotion->waiters[slot].next;
    } else if (self->promotion->waiter_high < WAITERS_MAX) {
        slot = self->promotion->waiter_high++;
    } else {
        return false;
    }
    self->promotion->waiters[slot] =
        (struct reg_waiter){.promote = promote->answer.id,
                            .item = item,
                            .ahead = ahead,
                            .next = self->promotion->fetches[fetch].waiters};
    self->promotion->ahead_waiters += ahead;
    self->promotion->fetches[fetch].waiters = slot;
    return true;
}

void reg_promote_answer(struct registrar *self, struct reg_promote *promote)
{
    if (promote->ahead) {
        reg_returning_answer(self, promote);
    } else {
        reg_reply_codes(self, &promote->answer.back, promote->codes, promote->count);
    }
    reg_answer_drop(self, &promote->answer);
}

/* Values that are not in memory yet have the code SL_ERR_TIMEOUT. */
bool reg_promotes_late(struct registrar *self, enum reg_answer_kind kind)
{
    struct reg_promote *promote;
    uint32_t at = 0;
    bool any = false;
    while ((promote = reg_answer_next(self, kind, &at)) != NULL) {
        if (promote->answer.back.deadline_ns <= self->env->now_ns) {
            reg_promote_answer(self, promote);
            any = true;
        }
    }
    return any;
}
