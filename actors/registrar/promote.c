/* actors/registrar/promote.c - PROMOTE: objects on disk alone come back into memory.
 *
 * A fetch is one record on its way; any number of requests wait for it. It waits for an extent in a
 * queue, then its claim (PROMOTING, writer = the tierer) is recorded and the tierer reads into it.
 */
#include "actors/registrar/internal.h"

#include <stdlib.h>
#include <string.h>

#define WAITERS_MAX          REG_FETCHES_MAX
#define FETCH_HEADS          (2u * SL_BATCH_MAX)
#define PROMOTE_INDEX_ROUNDS 4u

sl_err reg_promotes_init(struct registrar *self, struct sl_error *why)
{
    self->fetch_free = REG_NONE;
    self->waiter_free = REG_NONE;
    if (!self->tier.on) {
        return SL_OK;
    }
    self->fetches = calloc(REG_FETCHES_MAX, sizeof(*self->fetches));
    self->waiters = calloc(WAITERS_MAX, sizeof(*self->waiters));
    self->fetch_heads = malloc(FETCH_HEADS * sizeof(*self->fetch_heads));
    self->read_count = REG_READS_MAX * self->tier.path_count;
    self->reads = calloc(self->read_count, sizeof(*self->reads));
    self->promotes = calloc(self->set.queue_messages, sizeof(*self->promotes));
    self->fills = calloc(REG_READ_ITEMS_MAX, sizeof(*self->fills));
    if (self->fetches == NULL || self->waiters == NULL || self->fetch_heads == NULL ||
        self->reads == NULL || self->promotes == NULL || self->fills == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "tables of promotions");
    }
    for (uint32_t i = 0; i < FETCH_HEADS; i++) {
        self->fetch_heads[i] = REG_NONE;
    }
    return SL_OK;
}

void reg_promotes_fini(struct registrar *self)
{
    for (uint32_t i = 0; self->promotes != NULL && i < self->set.queue_messages; i++) {
        free(self->promotes[i].codes);
    }
    free(self->promotes);
    free(self->fetches);
    free(self->waiters);
    free(self->fetch_heads);
    free(self->reads);
    free(self->fills);
}

/* ---- tables ---- */

static uint32_t *fetch_head(const struct registrar *self, sl_ref source)
{
    return &self->fetch_heads[(source * UINT32_C(2654435761)) >> 15 & (FETCH_HEADS - 1)];
}

static uint32_t fetch_find(const struct registrar *self, const struct sl_entry *source)
{
    uint32_t slot = *fetch_head(self, source->ref);
    while (slot != REG_NONE && (self->fetches[slot].source != source->ref ||
                                self->fetches[slot].source_version != source->version)) {
        slot = self->fetches[slot].hash_next;
    }
    return slot;
}

static struct reg_disk *fetch_disk(struct registrar *self, uint32_t slot)
{
    return &self->tier.disks[self->fetches[slot].disk];
}

static void fetch_append(struct registrar *self, uint32_t slot)
{
    struct reg_disk *disk = fetch_disk(self, slot);
    self->fetches[slot].next = REG_NONE;
    if (disk->fetch_last != REG_NONE) {
        self->fetches[disk->fetch_last].next = slot;
    } else {
        disk->fetch_first = slot;
    }
    disk->fetch_last = slot;
}

static void fetch_prepend(struct registrar *self, uint32_t slot)
{
    struct reg_disk *disk = fetch_disk(self, slot);
    self->fetches[slot].next = disk->fetch_first;
    disk->fetch_first = slot;
    if (disk->fetch_last == REG_NONE) {
        disk->fetch_last = slot;
    }
}

static uint32_t fetch_take_first(struct registrar *self, struct reg_disk *disk)
{
    uint32_t slot = disk->fetch_first;
    disk->fetch_first = self->fetches[slot].next;
    if (disk->fetch_first == REG_NONE) {
        disk->fetch_last = REG_NONE;
    }
    return slot;
}

static uint32_t fetch_make(struct registrar *self, const struct sl_entry *source)
{
    uint32_t slot = self->fetch_free;
    if (slot != REG_NONE) {
        self->fetch_free = self->fetches[slot].next;
    } else if (self->fetch_high < REG_FETCHES_MAX) {
        slot = self->fetch_high++;
    } else {
        return REG_NONE;
    }
    uint32_t *head = fetch_head(self, source->ref);
    self->fetches[slot] = (struct reg_fetch){
        .used = true,
        .disk = source->disk.disk,
        .claim = REG_NONE,
        .source = source->ref,
        .source_version = source->version,
        .waiters = REG_NONE,
        .hash_next = *head,
    };
    *head = slot;
    self->fetch_count++;
    fetch_append(self, slot);
    return slot;
}

static bool waiter_add(struct registrar *self, uint32_t fetch, uint32_t op, uint32_t item)
{
    SL_ASSERT(self->promotes != NULL); /* there is a disk tier, or nothing is fetched */
    uint32_t slot = self->waiter_free;
    if (slot != REG_NONE) {
        self->waiter_free = self->waiters[slot].next;
    } else if (self->waiter_high < WAITERS_MAX) {
        slot = self->waiter_high++;
    } else {
        return false;
    }
    self->waiters[slot] = (struct reg_waiter){.op = op,
                                              .item = item,
                                              .serial = self->promotes[op].serial,
                                              .next = self->fetches[fetch].waiters};
    self->fetches[fetch].waiters = slot;
    return true;
}

static void promote_answer(struct registrar *self, struct reg_promote *promote)
{
    reg_reply_codes(self, &promote->back, promote->codes, promote->count);
    free(promote->codes);
    promote->codes = NULL;
    promote->used = false;
    self->promote_count--;
}

/* Tells all who wait, and ends the fetch. It is in no queue. */
static void fetch_end(struct registrar *self, uint32_t slot, sl_err code)
{
    struct reg_fetch *fetch = &self->fetches[slot];
    while (fetch->waiters != REG_NONE) {
        struct reg_waiter *waiter = &self->waiters[fetch->waiters];
        struct reg_promote *promote = &self->promotes[waiter->op];
        uint32_t next = waiter->next;
        if (promote->used && promote->serial == waiter->serial) {
            promote->codes[waiter->item] = (uint64_t)code;
            if (--promote->left == 0) {
                promote_answer(self, promote);
            }
        }
        waiter->next = self->waiter_free;
        self->waiter_free = fetch->waiters;
        fetch->waiters = next;
    }
    uint32_t *at = fetch_head(self, fetch->source);
    while (*at != slot) {
        SL_ASSERT(*at != REG_NONE);
        at = &self->fetches[*at].hash_next;
    }
    *at = fetch->hash_next;
    fetch->used = false;
    fetch->next = self->fetch_free;
    self->fetch_free = slot;
    self->fetch_count--;
}

static bool fetch_is_awaited(const struct registrar *self, const struct reg_fetch *fetch)
{
    for (uint32_t at = fetch->waiters; at != REG_NONE; at = self->waiters[at].next) {
        const struct reg_promote *promote = &self->promotes[self->waiters[at].op];
        if (promote->used && promote->serial == self->waiters[at].serial) {
            return true;
        }
    }
    return false;
}

/* ---- the message ---- */

static bool entry_visible(struct registrar *self, const struct sl_entry *entry)
{
    struct sl_group_info info;
    if (entry->kind != SL_RECORD_COMMITTED || entry->group == 0) {
        return entry->kind == SL_RECORD_COMMITTED;
    }
    sl_index_group_info(self->index, entry->group, &info);
    return info.state == SL_GROUP_COMMITTED;
}

/* SL_ERR_INCOMPLETE: it is being fetched for item of op. */
static sl_err promote_key(struct registrar *self, uint32_t op, uint32_t item,
                          const struct sl_text *key)
{
    struct sl_entry entry;
    if (sl_index_find_any(self->index, key->at, (uint32_t)key->length, &entry) != SL_OK ||
        !entry_visible(self, &entry)) {
        return SL_ERR_NOT_FOUND;
    }
    if (entry.extent.generation != 0) {
        reg_unit_touch(self, reg_unit_of(&entry)); /* it is about to be read: not the next victim */
        return SL_OK;
    }
    if (entry.disk.valid == 0 || !self->tier.on || self->tier.disks[entry.disk.disk].gone) {
        return SL_ERR_NOT_FOUND;
    }
    if (reg_disk_away(self, entry.disk.disk)) {
        return SL_ERR_UNREACHABLE;
    }
    uint32_t fetch = fetch_find(self, &entry);
    bool made = fetch == REG_NONE;
    if (made) {
        fetch = fetch_make(self, &entry);
    }
    if (fetch == REG_NONE || !waiter_add(self, fetch, op, item)) {
        return SL_ERR_LIMIT; /* one just made without a waiter is dropped when its turn comes */
    }
    return SL_ERR_INCOMPLETE;
}

static uint32_t promote_slot(struct registrar *self, const struct sl_msg *msg, bool *again)
{
    uint32_t slot = REG_NONE;
    *again = false;
    for (uint32_t i = 0; i < self->set.queue_messages; i++) {
        const struct reg_promote *promote = &self->promotes[i];
        if (!promote->used) {
            slot = slot == REG_NONE ? i : slot;
        } else if (promote->back.seq == msg->seq && strcmp(promote->back.to, msg->sender.at) == 0) {
            *again = true;
        }
    }
    return slot;
}

static void promote_without_disk(struct registrar *self, const struct sl_msg *msg)
{
    const struct sl_texts *keys = &msg->body.promote.keys;
    struct sl_return back;
    for (uint64_t i = 0; i < keys->count; i++) {
        self->codes[i] = (uint64_t)promote_key(self, REG_NONE, 0, &keys->at[i]);
    }
    sl_return_keep(msg, &back);
    reg_reply_codes(self, &back, self->codes, keys->count);
}

void reg_promote(struct registrar *self, const struct sl_msg *msg)
{
    const struct sl_texts *keys = &msg->body.promote.keys;
    struct sl_error why = {0};
    bool again = false;
    if (self->promotes == NULL || keys->count == 0) {
        promote_without_disk(self, msg);
        return;
    }
    uint32_t slot = promote_slot(self, msg, &again);
    if (again) {
        return;
    }
    uint64_t *codes = slot == REG_NONE ? NULL : calloc(keys->count, sizeof(*codes));
    if (codes == NULL) {
        sl_err err = slot == REG_NONE ? SL_ERR_LIMIT : SL_ERR_NO_MEMORY;
        sl_reply_code(self->env, msg,
                      sl_fail(&why, err, "%u promotions are under way", self->promote_count), &why);
        return;
    }
    struct reg_promote *promote = &self->promotes[slot];
    *promote = (struct reg_promote){.used = true,
                                    .serial = ++self->promote_serial,
                                    .codes = codes,
                                    .count = (uint32_t)keys->count};
    sl_return_keep(msg, &promote->back);
    self->promote_count++;
    for (uint32_t i = 0; i < promote->count; i++) {
        sl_err code = promote_key(self, slot, i, &keys->at[i]);
        promote->codes[i] = (uint64_t)(code == SL_ERR_INCOMPLETE ? SL_ERR_TIMEOUT : code);
        promote->left += code == SL_ERR_INCOMPLETE ? 1 : 0;
    }
    sl_trace_event(self->env->metrics, self->env->now_ns, msg->trace_id, "promote", msg->sender.at,
                   promote->left);
    if (promote->left == 0) {
        promote_answer(self, promote);
    }
}

/* ---- reading ---- */

static bool source_stands(struct registrar *self, const struct reg_fetch *fetch,
                          struct sl_entry *source)
{
    if (!sl_index_ref_live(self->index, fetch->source)) {
        return false;
    }
    sl_index_read(self->index, fetch->source, source);
    return source->kind == SL_RECORD_COMMITTED && source->version == fetch->source_version &&
           source->disk.valid != 0;
}

/* Takes an extent and records the claim. SL_ERR_STALE: the source went meanwhile. */
static sl_err fetch_claim(struct registrar *self, struct reg_fetch *fetch, struct sl_entry *source)
{
    char key[SL_KEY_BYTES_MAX];
    uint64_t offset_bytes = 0;
    uint32_t tierer = self->tier.disks[fetch->disk].tierer;
    memcpy(key, source->key, source->key_length);
    sl_err err = reg_take(self, source->extent.length_bytes, &offset_bytes);
    if (err != SL_OK) {
        return err;
    }
    struct reg_claim claim = {
        .state = REG_CLAIM_PROMOTING,
        .extent = {.generation = sl_arena_next_generation(self->arena),
                   .offset_bytes = offset_bytes,
                   .length_bytes = source->extent.length_bytes},
        .hash = reg_hash(key, source->key_length),
        .owner_peer = REG_NONE,
        .writer_peer = tierer,
        .group = REG_NONE,
    };
    struct sl_entry record = {
        .kind = SL_RECORD_PROMOTING,
        .extent = claim.extent,
        .owner = self->env->self,
        .writer = self->peers[tierer].proc,
        .digest = source->digest,
        .key = key,
        .key_length = source->key_length,
    };
    err = sl_index_claim(self->index, &record, &claim.ref, NULL);
    for (uint32_t i = 0;
         err == SL_ERR_NO_SPACE && i < PROMOTE_INDEX_ROUNDS && reg_make_index_room(self); i++) {
        err = sl_index_claim(self->index, &record, &claim.ref, NULL);
    }
    fetch->claim = err == SL_OK ? reg_claim_add(self, &claim) : REG_NONE;
    if (fetch->claim == REG_NONE) {
        if (err == SL_OK) {
            sl_index_set_kind(self->index, claim.ref, SL_RECORD_FREE);
        }
        reg_give(self, offset_bytes, claim.extent.length_bytes);
        return err == SL_OK ? SL_ERR_NO_SPACE : err;
    }
    if (!source_stands(self, fetch, source)) {
        reg_claim_release(self, fetch->claim);
        fetch->claim = REG_NONE;
        return SL_ERR_STALE;
    }
    return SL_OK;
}

static void fill_make(struct registrar *self, const struct reg_fetch *fetch,
                      const struct sl_entry *source, struct sl_item_fill *fill)
{
    const struct reg_claim *claim = &self->claims[fetch->claim];
    *fill = (struct sl_item_fill){
        .key = {.at = source->key, .length = source->key_length},
        .segment = source->disk.segment,
        .disk_offset_bytes = source->disk.offset_bytes,
        .length_bytes = source->extent.length_bytes,
        .digest_low = source->digest.low,
        .digest_high = source->digest.high,
        .arena = claim->extent.arena,
        .offset_bytes = claim->extent.offset_bytes,
        .ref = claim->ref,
        .generation = claim->extent.generation,
    };
}

/* What became of a key whose record changed under the fetch. */
static sl_err fetch_outcome(struct registrar *self, const char *key, uint32_t key_length)
{
    struct sl_entry entry;
    if (sl_index_find_any(self->index, key, key_length, &entry) != SL_OK ||
        !entry_visible(self, &entry)) {
        return SL_ERR_NOT_FOUND;
    }
    return entry.extent.generation != 0 ? SL_OK : SL_ERR_BUSY;
}

/* Fills a batch from the queue; gives how many. Stops when there is no space. */
static uint32_t read_fill(struct registrar *self, struct reg_read *read)
{
    struct reg_disk *disk = &self->tier.disks[read->disk];
    uint64_t bytes = 0;
    read->count = 0;
    while (disk->fetch_first != REG_NONE && read->count < REG_READ_ITEMS_MAX) {
        uint32_t slot = fetch_take_first(self, disk);
        struct reg_fetch *fetch = &self->fetches[slot];
        struct sl_entry source;
        if (!fetch_is_awaited(self, fetch) || !source_stands(self, fetch, &source)) {
            fetch_end(self, slot, SL_ERR_BUSY); /* it changed, or went: to be looked at again */
            continue;
        }
        if (read->count > 0 && bytes + source.extent.length_bytes > REG_READ_BYTES_MAX) {
            fetch_prepend(self, slot);
            break;
        }
        sl_err err = fetch_claim(self, fetch, &source);
        if (err == SL_ERR_NO_SPACE) {
            fetch_prepend(self, slot);
            self->fetch_blocked = true;
            self->fetch_blocked_ns =
                self->fetch_blocked_ns != 0 ? self->fetch_blocked_ns : self->env->now_ns;
            break;
        }
        self->fetch_blocked_ns = 0;
        if (err != SL_OK) {
            fetch_end(self, slot, err == SL_ERR_STALE ? SL_ERR_BUSY : err);
            continue;
        }
        bytes += source.extent.length_bytes;
        fetch->reading = true;
        read->fetches[read->count++] = slot;
    }
    return read->count;
}

/* Texts of the batch are taken last: making room for one value can move no record of another any
 * more. */
static uint32_t read_items(struct registrar *self, struct reg_read *read)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < read->count; i++) {
        uint32_t slot = read->fetches[i];
        struct reg_fetch *fetch = &self->fetches[slot];
        struct sl_entry source;
        if (source_stands(self, fetch, &source)) {
            fill_make(self, fetch, &source, &self->fills[kept]);
            read->fetches[kept++] = slot;
            continue;
        }
        reg_claim_release(self, fetch->claim);
        fetch_end(self, slot, SL_ERR_BUSY);
    }
    read->count = kept;
    return kept;
}

static void read_undo(struct registrar *self, struct reg_read *read)
{
    for (uint32_t i = read->count; i-- > 0;) {
        struct reg_fetch *fetch = &self->fetches[read->fetches[i]];
        reg_claim_release(self, fetch->claim);
        fetch->claim = REG_NONE;
        fetch->reading = false;
        fetch_prepend(self, read->fetches[i]);
    }
    read->count = 0;
}

static void read_end(struct registrar *self, struct reg_read *read)
{
    read->used = false;
    self->tier.disks[read->disk].reads--;
}

static bool read_start(struct registrar *self, uint32_t index, uint32_t slot)
{
    struct reg_read *read = &self->reads[index];
    struct reg_disk *disk = &self->tier.disks[slot];
    read->disk = slot;
    if (read_fill(self, read) == 0 || read_items(self, read) == 0) {
        return false;
    }
    struct sl_msg msg = {.type = SL_MSG_DISK_READ};
    msg.body.disk_read.items.at = self->fills;
    msg.body.disk_read.items.count = read->count;
    sl_err err = sl_calls_send(self->calls, self->peers[disk->tierer].name, &msg,
                               sl_deadline_ns(self->env->now_ns, REG_DISK_CALL_NS),
                               reg_cookie(REG_CALL_READ, index), &read->seq);
    if (err != SL_OK) {
        read_undo(self, read);
        return false;
    }
    read->used = true;
    disk->reads++;
    return true;
}

/* False: nothing can be sent at the moment, to no disk. */
static bool reads_start(struct registrar *self, uint32_t slot)
{
    struct reg_disk *disk = &self->tier.disks[slot];
    for (uint32_t i = 0; i < self->read_count && disk->fetch_first != REG_NONE &&
                         !self->fetch_blocked && disk->reads < REG_READS_MAX;
         i++) {
        if (!self->reads[i].used && !read_start(self, i, slot) && !self->fetch_blocked &&
            disk->fetch_first != REG_NONE) {
            return false; /* the table of calls is full: at the next tick */
        }
    }
    return !self->fetch_blocked;
}

void reg_promotes_pump(struct registrar *self)
{
    bool waiting = false;
    if (self->space_freed) {
        self->fetch_blocked = false;
    }
    for (uint32_t i = 0; self->fetch_count > 0 && i < REG_DISK_UNKNOWN; i++) {
        waiting |= reg_disk_readable(self, i) && self->tier.disks[i].fetch_first != REG_NONE;
    }
    if (!waiting) {
        self->fetch_blocked_ns = 0;
        return;
    }
    for (uint32_t i = 0; i < REG_DISK_UNKNOWN; i++) {
        if (reg_disk_readable(self, i) && !reads_start(self, i)) {
            return;
        }
    }
}

/* ---- endings ---- */

/* The bytes are in place and verified: the record gets its extent back. */
static sl_err fetch_done(struct registrar *self, struct reg_fetch *fetch)
{
    struct reg_claim claim = self->claims[fetch->claim];
    struct sl_entry source;
    sl_ref fresh;
    char key[SL_KEY_BYTES_MAX];
    sl_index_read(self->index, claim.ref, &source);
    uint32_t key_length = source.key_length;
    memcpy(key, source.key, key_length);
    sl_err err = source_stands(self, fetch, &source) ? SL_OK : SL_ERR_STALE;
    if (err == SL_OK) {
        err = reg_record_switch(self, fetch->source, &claim.extent, NULL, &fresh);
        if (err == SL_ERR_NO_SPACE && reg_make_index_room(self)) {
            err = source_stands(self, fetch, &source)
                      ? reg_record_switch(self, fetch->source, &claim.extent, NULL, &fresh)
                      : SL_ERR_STALE;
        }
    }
    if (err != SL_OK) {
        reg_claim_release(self, fetch->claim);
        return err == SL_ERR_STALE ? fetch_outcome(self, key, key_length) : err;
    }
    sl_index_set_kind(self->index, claim.ref, SL_RECORD_FREE); /* the extent is the record's now */
    reg_claim_remove(self, fetch->claim);
    sl_index_read(self->index, fresh, &source);
    reg_unit_place(self, reg_unit_of(&source));
    sl_metric_add(self->env->metrics, self->metric.promoted_count, 1);
    sl_metric_add(self->env->metrics, self->metric.promoted_bytes, claim.extent.length_bytes);
    return SL_OK;
}

static sl_err fetch_failed(struct registrar *self, struct reg_fetch *fetch, sl_err code)
{
    struct sl_entry source;
    sl_metric_add(self->env->metrics, self->metric.promote_failed_count, 1);
    reg_claim_release(self, fetch->claim); /* answered: nothing reads into it any more */
    /* A disk that cannot read now may do so later: what it holds was acknowledged and stays. */
    bool lost = sl_err_class(code) == SL_CLASS_DATA || code == SL_ERR_NOT_FOUND;
    if (lost && source_stands(self, fetch, &source)) {
        reg_place_lost(self, fetch->source, code);
    }
    return code;
}

void reg_read_reply(struct registrar *self, uint32_t index, const struct sl_msg *msg)
{
    if (self->reads == NULL || index >= self->read_count || !self->reads[index].used) {
        return;
    }
    struct reg_read *read = &self->reads[index];
    const struct sl_u64s *codes = &msg->body.disk_read_reply.codes;
    for (uint32_t i = 0; i < read->count; i++) {
        struct reg_fetch *fetch = &self->fetches[read->fetches[i]];
        sl_err code = msg->code;
        if (code == SL_OK) {
            code = i < codes->count ? (sl_err)codes->at[i] : SL_ERR_PROTOCOL;
        }
        code = code == SL_OK ? fetch_done(self, fetch) : fetch_failed(self, fetch, code);
        fetch_end(self, read->fetches[i], code);
    }
    read_end(self, read);
}

void reg_read_expired(struct registrar *self, uint32_t index)
{
    if (self->reads == NULL || index >= self->read_count || !self->reads[index].used) {
        return;
    }
    struct reg_read *read = &self->reads[index];
    reg_log(self, SL_LOG_WARN, 0, "tierer.%u answered no read for %llu s",
            self->tier.disks[read->disk].path,
            (unsigned long long)(REG_DISK_CALL_NS / SL_NS_PER_S));
    for (uint32_t i = 0; i < read->count; i++) {
        reg_claim_quarantine(self, self->fetches[read->fetches[i]].claim);
        fetch_end(self, read->fetches[i], SL_ERR_TIMEOUT);
    }
    read_end(self, read);
}

/* The tierer died: its i/o may go on for a while, the values are read again into other extents. */
void reg_reads_requeue(struct registrar *self, uint32_t disk)
{
    for (uint32_t r = 0; self->reads != NULL && r < self->read_count; r++) {
        struct reg_read *read = &self->reads[r];
        if (!read->used || read->disk != disk) {
            continue;
        }
        sl_calls_forget(self->calls, read->seq);
        for (uint32_t i = read->count; i-- > 0;) {
            struct reg_fetch *fetch = &self->fetches[read->fetches[i]];
            reg_claim_quarantine(self, fetch->claim);
            fetch->claim = REG_NONE;
            fetch->reading = false;
            fetch_prepend(self, read->fetches[i]);
        }
        read_end(self, read);
    }
}

void reg_fetches_end(struct registrar *self, uint32_t slot, sl_err code)
{
    struct reg_disk *disk = &self->tier.disks[slot];
    while (disk->fetch_first != REG_NONE) {
        fetch_end(self, fetch_take_first(self, disk), code);
    }
}

void reg_promotes_expire(struct registrar *self, uint64_t now_ns)
{
    for (uint32_t i = 0; self->fetch_count > 0 && i < REG_DISK_UNKNOWN; i++) {
        if (reg_disk_away(self, i)) {
            reg_fetches_end(self, i, SL_ERR_UNREACHABLE);
        }
    }
    if (self->fetch_blocked_ns != 0 && now_ns >= self->fetch_blocked_ns + REG_PROMOTE_WAIT_NS) {
        for (uint32_t i = 0; i < REG_DISK_UNKNOWN; i++) {
            if (reg_disk_readable(self, i)) {
                reg_fetches_end(self, i, SL_ERR_NO_SPACE);
            }
        }
        self->fetch_blocked_ns = 0;
        self->fetch_blocked = false;
    }
    for (uint32_t i = 0; self->promote_count > 0 && i < self->set.queue_messages; i++) {
        if (self->promotes[i].used && self->promotes[i].back.deadline_ns <= now_ns) {
            promote_answer(self, &self->promotes[i]); /* what is missing says SL_ERR_TIMEOUT */
        }
    }
}

void reg_promotes_forget(struct registrar *self, const char *name)
{
    for (uint32_t i = 0; self->promote_count > 0 && i < self->set.queue_messages; i++) {
        struct reg_promote *promote = &self->promotes[i];
        if (promote->used && strcmp(promote->back.to, name) == 0) {
            free(promote->codes);
            promote->codes = NULL;
            promote->used = false;
            self->promote_count--;
        }
    }
}

uint64_t reg_promotes_next(const struct registrar *self)
{
    uint64_t next_ns = SL_NEVER_NS;
    for (uint32_t i = 0; self->promote_count > 0 && i < self->set.queue_messages; i++) {
        if (self->promotes[i].used) {
            next_ns = SL_MIN(next_ns, self->promotes[i].back.deadline_ns);
        }
    }
    return next_ns;
}
