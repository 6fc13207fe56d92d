/* actors/registrar/disk/fetches.c - keys on their way from disk to memory, and who waits for them.
 *
 * A fetch is one record on its way; any number of requests wait for it. Each disk has two queues of
 * them: those that somebody waits for, and those that are brought in ahead of use. Half of each
 * table is the most that reading ahead may take. */
#include "actors/registrar/disk/disks.h"
#include "actors/registrar/disk/promote.h"
#include "actors/registrar/disk/reclaim.h"
#include "actors/registrar/presence/peers.h"
#include "actors/registrar/records/units.h"

#include <stdlib.h>
#include <string.h>

#define WAITERS_MAX       REG_FETCHES_MAX
#define AHEAD_WAITERS_MAX (WAITERS_MAX / 2)

sl_err reg_promotes_init(struct registrar *self, struct sl_error *why)
{
    self->promotion->fetch_free = REG_NONE;
    self->promotion->waiter_free = REG_NONE;
    if (!self->tier->on) {
        return SL_OK;
    }
    self->promotion->fetches = calloc(REG_FETCHES_MAX, sizeof(*self->promotion->fetches));
    self->promotion->waiters = calloc(WAITERS_MAX, sizeof(*self->promotion->waiters));
    self->promotion->read_count = (REG_READS_MAX + REG_AHEAD_READS_MAX) * self->tier->path_count;
    self->promotion->reads = calloc(self->promotion->read_count, sizeof(*self->promotion->reads));
    self->promotion->promotes =
        calloc(self->set.queue_messages, sizeof(*self->promotion->promotes));
    self->promotion->fills = calloc(REG_READ_ITEMS_MAX, sizeof(*self->promotion->fills));
    if (self->promotion->fetches == NULL || self->promotion->waiters == NULL ||
        !sl_table_reserve(&self->promotion->by_source, REG_FETCHES_MAX) ||
        self->promotion->reads == NULL || self->promotion->promotes == NULL ||
        self->promotion->fills == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "tables of promotions");
    }
    return SL_OK;
}

void reg_promotes_fini(struct registrar *self)
{
    for (uint32_t i = 0; self->promotion->promotes != NULL && i < self->set.queue_messages; i++) {
        free(self->promotion->promotes[i].codes);
    }
    free(self->promotion->promotes);
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
    self->promotion->fetches[slot].next = REG_NONE;
    self->promotion->fetches[slot].previous = queue->last;
    if (queue->last != REG_NONE) {
        self->promotion->fetches[queue->last].next = slot;
    } else {
        queue->first = slot;
    }
    queue->last = slot;
}

void reg_fetch_prepend(struct registrar *self, uint32_t slot)
{
    struct reg_fetch_queue *queue = fetch_queue(self, slot);
    self->promotion->fetches[slot].next = queue->first;
    self->promotion->fetches[slot].previous = REG_NONE;
    if (queue->first != REG_NONE) {
        self->promotion->fetches[queue->first].previous = slot;
    } else {
        queue->last = slot;
    }
    queue->first = slot;
}

void reg_fetch_unqueue(struct registrar *self, uint32_t slot)
{
    struct reg_fetch_queue *queue = fetch_queue(self, slot);
    const struct reg_fetch *fetch = &self->promotion->fetches[slot];
    if (fetch->previous != REG_NONE) {
        self->promotion->fetches[fetch->previous].next = fetch->next;
    } else {
        queue->first = fetch->next;
    }
    if (fetch->next != REG_NONE) {
        self->promotion->fetches[fetch->next].previous = fetch->previous;
    } else {
        queue->last = fetch->previous;
    }
}

uint32_t reg_fetch_make(struct registrar *self, const struct sl_entry *source, bool ahead)
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
    if (!fetch->reading) {
        fetch_append(self, slot);
    }
}

/* Tells all who wait, and ends the fetch. It is in no queue. */
void reg_fetch_end(struct registrar *self, uint32_t slot, sl_err code)
{
    struct reg_fetch *fetch = &self->promotion->fetches[slot];
    while (fetch->waiters != REG_NONE) {
        struct reg_waiter *waiter = &self->promotion->waiters[fetch->waiters];
        struct reg_promote *promote = &self->promotion->promotes[waiter->op];
        uint32_t next = waiter->next;
        if (promote->used && promote->serial == waiter->serial) {
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
        const struct reg_promote *promote =
            &self->promotion->promotes[self->promotion->waiters[at].op];
        if (promote->used && promote->serial == self->promotion->waiters[at].serial) {
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

static void queue_end(struct registrar *self, struct reg_fetch_queue *queue, sl_err code)
{
    while (queue->first != REG_NONE) {
        uint32_t slot = queue->first;
        reg_fetch_unqueue(self, slot);
        reg_fetch_end(self, slot, code);
    }
}

void reg_fetches_end(struct registrar *self, uint32_t disk, bool ahead, sl_err code)
{
    queue_end(self, &self->tier->disks[disk].fetches[ahead], code);
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

/* ---- who waits ---- */

bool reg_waiter_add(struct registrar *self, uint32_t fetch, uint32_t op, uint32_t item)
{
    SL_ASSERT(self->promotion->promotes != NULL); /* there is a disk tier, or nothing is fetched */
    bool ahead = self->promotion->promotes[op].ahead;
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
        (struct reg_waiter){.op = op,
                            .item = item,
                            .ahead = ahead,
                            .serial = self->promotion->promotes[op].serial,
                            .next = self->promotion->fetches[fetch].waiters};
    self->promotion->ahead_waiters += ahead;
    self->promotion->fetches[fetch].waiters = slot;
    return true;
}

static void promote_free(struct registrar *self, struct reg_promote *promote)
{
    free(promote->codes);
    promote->codes = NULL;
    promote->used = false;
    self->promotion->promote_count--;
    self->promotion->prefetch_count -= promote->ahead;
}

void reg_promote_answer(struct registrar *self, struct reg_promote *promote)
{
    reg_reply_codes(self, &promote->back, promote->codes, promote->count);
    promote_free(self, promote);
}

uint32_t reg_promote_make(struct registrar *self, const struct sl_msg *msg, uint32_t count)
{
    uint32_t slot = REG_NONE;
    bool ahead = msg->type == SL_MSG_PREFETCH;
    for (uint32_t i = 0; i < self->set.queue_messages; i++) {
        const struct reg_promote *promote = &self->promotion->promotes[i];
        if (!promote->used) {
            slot = slot == REG_NONE ? i : slot;
        } else if (sl_return_is_of(&promote->back, msg)) {
            return REG_NONE; /* sent again */
        }
    }
    bool full = slot == REG_NONE ||
                (ahead && self->promotion->prefetch_count >= self->set.queue_messages / 2);
    uint64_t *codes = full ? NULL : calloc(count, sizeof(*codes));
    if (codes == NULL) {
        sl_err err = full ? SL_ERR_LIMIT : SL_ERR_NO_MEMORY;
        sl_reply_fail(self->env, msg, err, "%u promotions are under way",
                      self->promotion->promote_count);
        return REG_NONE;
    }
    struct reg_promote *promote = &self->promotion->promotes[slot];
    *promote = (struct reg_promote){.used = true,
                                    .ahead = ahead,
                                    .serial = ++self->promotion->promote_serial,
                                    .codes = codes,
                                    .count = count};
    sl_return_keep(msg, &promote->back);
    self->promotion->promote_count++;
    self->promotion->prefetch_count += ahead;
    return slot;
}

bool reg_promotes_late(struct registrar *self, uint64_t now_ns)
{
    bool ahead = false;
    for (uint32_t i = 0; self->promotion->promote_count > 0 && i < self->set.queue_messages; i++) {
        if (self->promotion->promotes[i].used &&
            self->promotion->promotes[i].back.deadline_ns <= now_ns) {
            ahead = ahead || self->promotion->promotes[i].ahead;
            reg_promote_answer(
                self, &self->promotion->promotes[i]); /* what is missing says SL_ERR_TIMEOUT */
        }
    }
    return ahead;
}

void reg_promotes_forget(struct registrar *self, uint32_t peer)
{
    const char *name = self->peers->all[peer].name;
    for (uint32_t i = 0; self->promotion->promote_count > 0 && i < self->set.queue_messages; i++) {
        if (self->promotion->promotes[i].used &&
            strcmp(self->promotion->promotes[i].back.to, name) == 0) {
            promote_free(self, &self->promotion->promotes[i]);
        }
    }
}

uint64_t reg_promotes_next(const struct registrar *self)
{
    uint64_t next_ns = SL_NEVER_NS;
    for (uint32_t i = 0; self->promotion->promote_count > 0 && i < self->set.queue_messages; i++) {
        if (self->promotion->promotes[i].used) {
            next_ns = SL_MIN(next_ns, self->promotion->promotes[i].back.deadline_ns);
        }
    }
    return next_ns;
}
