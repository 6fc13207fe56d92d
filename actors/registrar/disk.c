/* actors/registrar/disk.c - the disk tier as the registrar sees it: what does it hold, what leaves
 * it. Who is there, disks.c tells. */
#include "actors/registrar/internal.h"

#include <stdlib.h>
#include <string.h>

#define SWEEP_STEP 4096u

/* ---- losing a place ---- */

sl_ref reg_place_clear(struct registrar *self, const struct sl_entry *entry,
                       const struct reg_drop *how, bool spent)
{
    static const struct sl_disk_place nowhere = {0};
    sl_ref fresh;
    if (entry->extent.generation != 0 &&
        reg_record_switch(self, entry->ref, NULL, &nowhere, &fresh) == SL_OK) {
        if (spent) {
            sl_index_links(self->index, fresh)->flags |= REG_FLAG_SPENT;
        } else {
            reg_queue_add(self, fresh, entry->extent.generation);
        }
        return fresh;
    }
    (void)reg_unit_drop(self, reg_unit_of(entry), how);
    return 0;
}

void reg_place_lost(struct registrar *self, sl_ref ref, sl_err code)
{
    struct sl_entry entry;
    struct reg_drop how = {.reason =
                               code == SL_ERR_NOT_FOUND ? REG_GHOST_UNREADABLE : REG_GHOST_CORRUPT,
                           .forget = true};
    uint64_t from = self->retired_count;
    sl_index_read(self->index, ref, &entry);
    sl_metric_add(self->env->metrics, self->metric.corrupt_count, 1);
    reg_log(self, SL_LOG_WARN, 0, "object %016llx: its copy on disk is lost (%s): forgotten",
            (unsigned long long)reg_hash(entry.key, entry.key_length), sl_err_text(code));
    (void)reg_place_clear(self, &entry, &how, false);
    reg_retired_scan(self, from);
}

/* ---- what a scan finds ---- */

static struct sl_disk_place found_place(const struct sl_item_found *found, uint32_t slot)
{
    return (struct sl_disk_place){
        .offset_bytes = found->disk_offset_bytes,
        .segment = (uint32_t)found->segment,
        .disk = (uint16_t)slot,
        .valid = 1,
    };
}

static bool found_known(struct registrar *self, const struct sl_item_found *found, uint32_t slot,
                        const struct sl_entry *entry)
{
    struct reg_disk *disk = &self->tier.disks[slot];
    struct sl_digest digest = {.low = found->digest_low, .high = found->digest_high};
    struct sl_disk_place place = found_place(found, slot);
    struct sl_links *links = sl_index_links(self->index, entry->ref);
    bool here = entry->disk.valid != 0 && entry->disk.disk == slot;
    bool seen = ((links->flags & REG_FLAG_SCAN) != 0) == disk->parity;
    if (entry->kind != SL_RECORD_COMMITTED || !sl_digest_equal(digest, entry->digest) ||
        entry->extent.length_bytes != found->length_bytes) {
        links->disks |=
            REG_DISK_BIT(slot); /* should it be removed, the other one must not come back */
        return false;
    }
    if (here && entry->disk.segment == place.segment &&
        entry->disk.offset_bytes == place.offset_bytes) {
        if (!seen) {
            links->flags ^= REG_FLAG_SCAN;
            disk->unseen -= disk->unseen > 0 ? 1 : 0;
        }
        return true;
    }
    bool elsewhere = entry->disk.valid != 0 && !here;
    if ((elsewhere && reg_disk_readable(self, entry->disk.disk)) || (here && seen)) {
        links->disks |= REG_DISK_BIT(slot);
        return false; /* a second copy */
    }
    if ((links->flags & REG_FLAG_WRITING) != 0) {
        links->disks |= REG_DISK_BIT(slot); /* the write may be to another disk */
        return true;                        /* the place that it gives will do */
    }
    sl_ref fresh;
    sl_err err = reg_record_switch(self, entry->ref, NULL, &place, &fresh);
    if (err == SL_OK && elsewhere) { /* that copy may come back */
        sl_index_links(self->index, fresh)->disks |= REG_DISK_BIT(entry->disk.disk);
    }
    if (err == SL_OK && here) {
        disk->unseen -= disk->unseen > 0 ? 1 : 0;
    }
    return err == SL_OK;
}

/* The block of a found part: SL_OK and its pending slot, made when it is new. */
static sl_err found_group(struct registrar *self, const struct sl_item_found *found, uint32_t *slot)
{
    struct sl_entry entry;
    struct sl_group_info info;
    if (found->part_count == 0 || found->part_index >= found->part_count) {
        return SL_ERR_INVALID;
    }
    if (sl_index_find_any(self->index, found->group_key.at, (uint32_t)found->group_key.length,
                          &entry) == SL_OK) {
        *slot = entry.kind == SL_RECORD_GROUP ? reg_group_slot(self, entry.ref) : REG_NONE;
        if (*slot != REG_NONE && !self->groups[*slot].found) {
            return SL_ERR_BUSY; /* a writer is at it */
        }
        if (*slot == REG_NONE || reg_group_has(&self->groups[*slot], found->part_index)) {
            return SL_ERR_NOT_FOUND; /* complete without it */
        }
        sl_index_group_info(self->index, entry.ref, &info);
        return info.part_count == found->part_count ? SL_OK : SL_ERR_INVALID;
    }
    struct sl_group_want want = {
        .key = {.at = found->group_key.at, .length = (uint32_t)found->group_key.length},
        .part_count = (uint32_t)found->part_count,
        .deadline_ns = SL_NEVER_NS, /* until the scan is over */
    };
    struct reg_group fresh = {.found = true};
    sl_err err = sl_index_group_create(self->index, &want, &fresh.ref, NULL);
    if (err != SL_OK) {
        return err;
    }
    *slot = reg_group_add(self, &fresh, SL_NEVER_NS);
    if (*slot == REG_NONE) {
        sl_index_group_drop(self->index, fresh.ref);
        sl_index_unlink(self->index, fresh.ref, SL_RECORD_FREE);
        return SL_ERR_LIMIT;
    }
    return SL_OK;
}

static sl_err found_insert(struct registrar *self, const struct sl_item_found *found, uint32_t disk)
{
    uint32_t slot = REG_NONE;
    sl_err err = found->group_key.length == 0 ? SL_OK : found_group(self, found, &slot);
    if (err != SL_OK) {
        return err;
    }
    struct sl_entry want = {
        .kind = SL_RECORD_COMMITTED,
        .extent = {.length_bytes = found->length_bytes},
        .digest = {.low = found->digest_low, .high = found->digest_high},
        .disk = found_place(found, disk),
        .group = slot == REG_NONE ? 0 : self->groups[slot].ref,
        .part_index = (uint16_t)found->part_index,
        .key = found->key.at,
        .key_length = (uint16_t)found->key.length,
    };
    sl_ref ref;
    err = sl_index_insert(self->index, &want, &ref, NULL);
    if (err != SL_OK) {
        return err; /* a block made for it alone goes when the scan ends */
    }
    reg_segment_note(self, ref, &want.disk, true);
    if (slot == REG_NONE) {
        reg_unit_place(self, ref);
        return SL_OK;
    }
    reg_group_mark(&self->groups[slot], found->part_index, true);
    reg_part_join(self, self->groups[slot].ref, ref);
    if (sl_index_group_fill(self->index, self->groups[slot].ref, (uint32_t)found->part_index)) {
        reg_group_done(self, slot);
    }
    return SL_OK;
}

/* ---- tombstones ---- */

static struct reg_forget **forget_head(const struct registrar *self,
                                       const struct sl_disk_place *place)
{
    uint64_t mixed = (place->offset_bytes / SL_PAGE_BYTES + (uint64_t)place->segment * 40503u +
                      ((uint64_t)place->disk << 48)) *
                     UINT64_C(0x9e3779b97f4a7c15);
    return &self->forget_heads[mixed >> 32 & (REG_FORGET_HEADS - 1)];
}

static void forget_hash(struct registrar *self, struct reg_forget *forget)
{
    struct reg_forget **head = forget_head(self, &forget->place);
    forget->hash_next = *head;
    *head = forget;
}

static struct reg_forget **forget_key_head(const struct registrar *self, const char *key,
                                           uint32_t key_length)
{
    return &self->forget_key_heads[reg_hash(key, key_length) >> 20 & (REG_FORGET_HEADS - 1)];
}

bool reg_forget_pending(const struct registrar *self, const char *key, uint32_t key_length,
                        uint32_t disk)
{
    bool some = self->tier.disks[disk].forget_count > 0;
    const struct reg_forget *at = some ? *forget_key_head(self, key, key_length) : NULL;
    while (at != NULL && (at->place.disk != disk || at->key_length != key_length ||
                          memcmp(at->key, key, key_length) != 0)) {
        at = at->key_next;
    }
    return at != NULL;
}

static void forget_end(struct registrar *self, struct reg_forget *forget, bool done)
{
    struct reg_disk *disk = &self->tier.disks[forget->place.disk];
    struct reg_forget **named = forget_key_head(self, forget->key, forget->key_length);
    while (*named != forget) {
        named = &(*named)->key_next;
    }
    *named = forget->key_next;
    if (forget->place.valid != 0) {
        struct reg_forget **at = forget_head(self, &forget->place);
        while (*at != forget) {
            at = &(*at)->hash_next;
        }
        *at = forget->hash_next;
    } else {
        disk->forget_unplaced--;
    }
    if (forget->previous != NULL) {
        forget->previous->next = forget->next;
    } else {
        disk->forget_first = forget->next;
    }
    if (forget->next != NULL) {
        forget->next->previous = forget->previous;
    } else {
        disk->forget_last = forget->previous;
    }
    self->forget_count--;
    disk->forget_count--;
    disk->forget_restored -= forget->restored;
    if (done && forget->note != 0) {
        sl_index_set_kind(self->index, forget->note, SL_RECORD_FREE);
    }
    if (done && forget->remove_id != 0) {
        reg_remove_done(self, forget->remove_id, forget->remove_index, forget->place.disk);
    }
    free(forget);
}

sl_ref reg_forget_note(struct registrar *self, const char *key, uint32_t key_length,
                       const struct reg_forget_note *note)
{
    unsigned char bytes[sizeof(*note) + SL_KEY_BYTES_MAX];
    sl_ref ref = 0;
    memcpy(bytes, note, sizeof(*note));
    memcpy(bytes + sizeof(*note), key, key_length);
    sl_err err = sl_index_blob_put(self->index, bytes, (uint32_t)sizeof(*note) + key_length,
                                   REG_BLOB_FORGET, &ref, NULL);
    return err == SL_OK ? ref : 0;
}

static struct reg_forget *forget_new(struct registrar *self, const char *key, uint32_t key_length,
                                     uint64_t length_bytes, const struct sl_disk_place *place)
{
    struct reg_disk *disk = &self->tier.disks[place->disk];
    struct reg_forget *forget =
        self->forget_count < REG_FORGETS_MAX ? malloc(sizeof(*forget) + key_length + 1) : NULL;
    if (forget == NULL) {
        /* It may come back after a restart of the tierer. */
        sl_metric_add(self->env->metrics, self->metric.forget_skipped_count, 1);
        return NULL;
    }
    *forget = (struct reg_forget){
        .length_bytes = length_bytes,
        .place = *place,
        .key_length = key_length,
        .previous = disk->forget_last,
    };
    memcpy(forget->key, key, key_length);
    forget->key[key_length] = '\0';
    if (disk->forget_last != NULL) {
        disk->forget_last->next = forget;
    } else {
        disk->forget_first = forget;
    }
    disk->forget_last = forget;
    self->forget_count++;
    disk->forget_count++;
    struct reg_forget **named = forget_key_head(self, forget->key, key_length);
    forget->key_next = *named;
    *named = forget;
    if (place->valid != 0) {
        forget_hash(self, forget);
    } else {
        disk->forget_unplaced++;
    }
    return forget;
}

struct reg_forget *reg_forget_key(struct registrar *self, const char *key, uint32_t key_length,
                                  uint64_t length_bytes, const struct sl_disk_place *place,
                                  const struct reg_drop *how)
{
    if (!self->tier.on) {
        return NULL;
    }
    struct reg_forget *forget = forget_new(self, key, key_length, length_bytes, place);
    if (forget == NULL) {
        reg_remove_failed(self, how->remove_id, how->remove_index, SL_ERR_LIMIT);
        return NULL;
    }
    if (how->reason == REG_GHOST_REMOVED) {
        const struct reg_forget_note note = {.place = *place, .length_bytes = length_bytes};
        forget->note = reg_forget_note(self, key, key_length, &note);
    }
    forget->remove_id = how->remove_id;
    forget->remove_index = how->remove_index;
    if (how->remove_id != 0) {
        reg_remove_wait(self, how->remove_id, how->remove_index, place->disk);
    }
    return forget;
}

/* The registrar before died between the note and the removal: what it meant is still there. */
static bool note_is_void(struct registrar *self, const struct reg_forget_note *note,
                         const char *key, uint32_t key_length)
{
    struct sl_entry entry;
    if (sl_index_find_any(self->index, key, key_length, &entry) != SL_OK ||
        entry.kind != SL_RECORD_COMMITTED) {
        return false;
    }
    if (note->place.valid == 0 && note->generation == 0) { /* the one on this disk was meant */
        return entry.extent.generation == 0 && entry.disk.disk == note->place.disk;
    }
    return note->place.valid == 0 ? entry.extent.generation == note->generation
                                  : entry.disk.valid != 0 && entry.disk.disk == note->place.disk &&
                                        entry.disk.segment == note->place.segment &&
                                        entry.disk.offset_bytes == note->place.offset_bytes;
}

void reg_forget_restore(struct registrar *self, sl_ref ref, const void *bytes,
                        uint32_t length_bytes)
{
    struct reg_forget_note note;
    struct reg_forget *forget = NULL;
    if (self->tier.on && length_bytes > sizeof(note) &&
        length_bytes <= sizeof(note) + SL_KEY_BYTES_MAX) {
        const char *key = (const char *)bytes + sizeof(note);
        uint32_t key_length = length_bytes - (uint32_t)sizeof(note);
        memcpy(&note, bytes, sizeof(note));
        bool known = note.place.disk < REG_DISKS_MAX; /* else the index is damaged */
        if (known) {
            reg_disk_named_by_place(self, note.place.disk);
        }
        if (known && !note_is_void(self, &note, key, key_length)) {
            forget = forget_new(self, key, key_length, note.length_bytes, &note.place);
        }
    }
    if (forget == NULL) {
        sl_index_set_kind(self->index, ref, SL_RECORD_FREE);
        return;
    }
    forget->note = ref;
    forget->restored = true;
    self->tier.disks[forget->place.disk].forget_restored++;
}

bool reg_forget_join(struct registrar *self, const char *key, uint32_t slot, uint64_t remove_id,
                     uint32_t remove_index)
{
    bool some = self->tier.disks[slot].forget_restored > 0;
    struct reg_forget *at = some ? *forget_key_head(self, key, (uint32_t)strlen(key)) : NULL;
    for (; at != NULL; at = at->key_next) {
        if (at->restored && at->remove_id == 0 && at->place.disk == slot &&
            strcmp(at->key, key) == 0) {
            at->remove_id = remove_id;
            at->remove_index = remove_index;
            reg_remove_wait(self, remove_id, remove_index, slot);
            return true;
        }
    }
    return false;
}

static int forgotten_order(const void *left, const void *right)
{
    const struct sl_digest *a = &((const struct reg_forgotten *)left)->digest;
    const struct sl_digest *b = &((const struct reg_forgotten *)right)->digest;
    return a->low != b->low ? (a->low > b->low) - (a->low < b->low)
                            : (a->high > b->high) - (a->high < b->high);
}

bool reg_forgotten_list(const struct registrar *self, struct reg_forgotten **out, uint32_t *count)
{
    struct sl_entry entry;
    uint32_t found = 0;
    struct reg_forgotten *all = calloc(SL_MAX(self->forget_count, 1u), sizeof(*all));
    if (all == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < REG_DISKS_MAX; i++) {
        for (const struct reg_forget *at = self->tier.disks[i].forget_first; at != NULL;
             at = at->next) {
            if (sl_index_find_any(self->index, at->key, at->key_length, &entry) == SL_OK &&
                entry.kind == SL_RECORD_COMMITTED) {
                all[found++] = (struct reg_forgotten){.digest = entry.digest, .key = at->key};
            }
        }
    }
    qsort(all, found, sizeof(*all), forgotten_order);
    *out = all;
    *count = found;
    return true;
}

const char *reg_forgotten_find(const struct reg_forgotten *all, uint32_t count,
                               struct sl_digest digest)
{
    const struct reg_forgotten want = {.digest = digest};
    const struct reg_forgotten *found =
        count == 0 ? NULL : bsearch(&want, all, count, sizeof(*all), forgotten_order);
    return found == NULL ? NULL : found->key;
}

/* What was meant for disks that were not known yet is meant for this one, too. */
void reg_forgets_copy(struct registrar *self, uint32_t from, uint32_t slot)
{
    const struct sl_disk_place unknown = {.disk = (uint16_t)slot};
    for (const struct reg_forget *at = self->tier.disks[from].forget_first; at != NULL;
         at = at->next) {
        const struct reg_drop how = {
            .reason = at->note != 0 ? REG_GHOST_REMOVED : REG_GHOST_EVICTED,
            .forget = true,
            .remove_id = at->remove_id,
            .remove_index = at->remove_index,
        };
        (void)reg_forget_key(self, at->key, at->key_length, at->length_bytes, &unknown, &how);
    }
}

void reg_forgets_end(struct registrar *self, uint32_t slot)
{
    while (self->tier.disks[slot].forget_first != NULL) {
        forget_end(self, self->tier.disks[slot].forget_first, true);
    }
}

static void forgets_mark_unsent(struct reg_disk *disk)
{
    for (struct reg_forget *forget = disk->forget_first; forget != NULL; forget = forget->next) {
        forget->sent = false;
    }
    disk->forget_seq = 0;
}

void reg_forgets_unsend(struct registrar *self, uint32_t slot)
{
    struct reg_disk *disk = &self->tier.disks[slot];
    if (disk->forget_seq != 0) {
        sl_calls_forget(self->calls, disk->forget_seq);
    }
    forgets_mark_unsent(disk);
}

void reg_forget_add(struct registrar *self, const struct sl_entry *record,
                    const struct reg_drop *how)
{
    (void)reg_forget_key(self, record->key, record->key_length, record->extent.length_bytes,
                         &record->disk, how);
}

/* Whether what was found is to be forgotten. Tombstones of its key whose place is not known learn
 * it, each of several: nothing is written under a key that has one, so whatever is there is meant.
 */
static bool forget_covers(struct registrar *self, const struct sl_item_found *found, uint32_t slot)
{
    struct reg_disk *disk = &self->tier.disks[slot];
    struct sl_disk_place place = found_place(found, slot);
    uint32_t key_length = (uint32_t)found->key.length;
    struct reg_forget *at =
        disk->forget_unplaced > 0 ? *forget_key_head(self, found->key.at, key_length) : NULL;
    for (; at != NULL; at = at->key_next) {
        if (at->place.valid == 0 && at->place.disk == slot && at->key_length == key_length &&
            memcmp(at->key, found->key.at, key_length) == 0) {
            at->place = place;
            disk->forget_unplaced--;
            forget_hash(self, at);
        }
    }
    for (at = disk->forget_count > 0 ? *forget_head(self, &place) : NULL; at != NULL;
         at = at->hash_next) {
        if (at->place.disk == slot && at->place.segment == place.segment &&
            at->place.offset_bytes == place.offset_bytes) {
            return true;
        }
    }
    return false;
}

static void forgets_send(struct registrar *self, uint32_t slot, struct sl_item_forget *items)
{
    struct reg_disk *disk = &self->tier.disks[slot];
    uint32_t count = 0;
    for (struct reg_forget *at = disk->forget_first; at != NULL && count < REG_FORGET_ITEMS_MAX;
         at = at->next) {
        bool placed = at->place.valid != 0;
        at->sent = true;
        items[count++] = (struct sl_item_forget){
            .key = {.at = at->key, .length = at->key_length},
            .segment = placed ? at->place.segment : 0, /* 0: wherever it is by now */
            .disk_offset_bytes = placed ? at->place.offset_bytes : 0,
            .length_bytes = at->length_bytes,
        };
    }
    struct sl_msg msg = {.type = SL_MSG_DISK_FORGET};
    msg.body.disk_forget.items.at = items;
    msg.body.disk_forget.items.count = count;
    sl_err err = sl_calls_send(self->calls, self->peers[disk->tierer].name, &msg,
                               sl_deadline_ns(self->env->now_ns, REG_DISK_CALL_NS),
                               reg_cookie(REG_CALL_FORGET, slot), &disk->forget_seq);
    if (err != SL_OK) {
        forgets_mark_unsent(disk);
        disk->forget_retry_ns = self->env->now_ns + REG_DISK_RETRY_NS;
    }
}

void reg_forgets_pump(struct registrar *self)
{
    for (uint32_t i = 0; self->forget_count > 0 && i < REG_DISK_UNKNOWN; i++) {
        const struct reg_disk *disk = &self->tier.disks[i];
        if (disk->forget_first == NULL || disk->forget_seq != 0 || !reg_disk_usable(self, i) ||
            self->env->now_ns < disk->forget_retry_ns) {
            continue;
        }
        struct sl_item_forget *items = calloc(REG_FORGET_ITEMS_MAX, sizeof(*items));
        if (items != NULL) {
            forgets_send(self, i, items);
            free(items);
        }
    }
}

void reg_forget_reply(struct registrar *self, uint32_t slot, const struct sl_msg *msg)
{
    const struct sl_u64s *codes = &msg->body.disk_forget_reply.codes;
    struct reg_disk *disk = &self->tier.disks[slot];
    uint64_t i = 0;
    bool failed = false;
    disk->forget_seq = 0;
    struct reg_forget *at = disk->forget_first;
    while (at != NULL) {
        struct reg_forget *next = at->next;
        if (at->sent) {
            uint64_t code =
                msg->code == SL_OK && i < codes->count ? codes->at[i] : (uint64_t)SL_ERR_IO;
            i++;
            at->sent = false;
            if (code == SL_OK || code == SL_ERR_NOT_FOUND) {
                forget_end(self, at, true);
            } else {
                failed = true;
            }
        }
        at = next;
    }
    if (failed) {
        disk->forget_retry_ns = self->env->now_ns + REG_DISK_RETRY_NS;
    }
}

void reg_forget_expired(struct registrar *self, uint32_t slot)
{
    forgets_mark_unsent(&self->tier.disks[slot]);
    self->tier.disks[slot].forget_retry_ns = self->env->now_ns + REG_DISK_RETRY_NS;
}

void reg_forgets_fini(struct registrar *self)
{
    for (uint32_t i = 0; i < REG_DISKS_MAX; i++) {
        while (self->tier.disks[i].forget_first != NULL) {
            forget_end(self, self->tier.disks[i].forget_first, false);
        }
    }
    free(self->forget_heads);
    free(self->forget_key_heads);
}

/* ---- DISK_FOUND ---- */

/* SL_ERR_BUSY: somebody writes this key at the moment: asked again when he has committed or not. */
static sl_err found_one(struct registrar *self, const struct sl_item_found *found, uint32_t slot)
{
    struct sl_entry entry;
    if (reg_segment_reclaimed(self, slot, (uint32_t)found->segment) ||
        forget_covers(self, found, slot)) {
        return SL_ERR_NOT_FOUND;
    }
    if (reg_claim_by_key(self, reg_hash(found->key.at, found->key.length), found->key.at,
                         found->key.length) != REG_NONE) {
        return SL_ERR_BUSY;
    }
    if (sl_index_find_any(self->index, found->key.at, (uint32_t)found->key.length, &entry) ==
        SL_OK) {
        return found_known(self, found, slot, &entry) ? SL_OK : SL_ERR_NOT_FOUND;
    }
    sl_err err = found_insert(self, found, slot);
    if (err == SL_ERR_NO_SPACE && reg_make_index_room(self)) {
        err = found_insert(self, found, slot);
    }
    return err == SL_OK || err == SL_ERR_BUSY ? err : SL_ERR_NOT_FOUND;
}

static bool scan_known(const struct registrar *self, const struct sl_msg *msg,
                       const struct reg_path *path)
{
    const struct reg_disk *disk = path->disk != REG_NONE ? &self->tier.disks[path->disk] : NULL;
    return disk != NULL && disk->scan_seq == msg->seq &&
           sl_proc_id_equal(disk->scan_proc, self->peers[path->peer].proc);
}

static void scan_begin(struct registrar *self, const struct sl_msg *msg,
                       const struct reg_path *path)
{
    struct reg_disk *disk = &self->tier.disks[path->disk];
    disk->scan_open = true;
    disk->scan_seq = msg->seq;
    disk->scan_proc = self->peers[path->peer].proc;
    disk->parity = !disk->parity;
    disk->unseen = disk->place_count;
    disk->sweeping = false;
    reg_segments_come_anew(self, path->disk);
    disk->state = REG_DISK_SCANNING;
}

/* Blocks of which a scan found some parts alone. */
static uint32_t groups_drop_found(struct registrar *self)
{
    uint32_t dropped = 0;
    self->tier.groups_until_ns = 0;
    for (uint32_t i = 0; i < self->group_high; i++) {
        if (self->groups[i].used && self->groups[i].found) {
            reg_group_abandon(self, i, REG_GHOST_EXPIRED);
            dropped++;
        }
    }
    return dropped;
}

static void scan_end(struct registrar *self, uint32_t slot)
{
    struct reg_disk *disk = &self->tier.disks[slot];
    struct reg_forget *at = disk->forget_unplaced > 0 ? disk->forget_first : NULL;
    while (at != NULL) { /* not found: it never reached the disk */
        struct reg_forget *next = at->next;
        if (at->place.valid == 0 && !at->sent) {
            forget_end(self, at, true);
        }
        at = next;
    }
    disk->scanned = true;
    disk->scan_open = false;
    uint32_t dropped = 0;
    if (reg_disks_scanned(self)) {
        dropped = groups_drop_found(self);
        self->tier.scan_until_ns = 0;
        reg_removes_scanned(self);
    } else { /* the other parts may be on a disk that is about to come */
        self->tier.groups_until_ns = sl_deadline_ns(self->env->now_ns, REG_DISK_ABSENT_NS);
    }
    if (disk->state != REG_DISK_READY) {
        reg_log(self, SL_LOG_INFO, 0,
                "disk of tierer.%u ready: %llu values found, %u incomplete blocks dropped",
                disk->path, (unsigned long long)disk->place_count, dropped);
    }
    disk->state = REG_DISK_READY;
    disk->sweeping = disk->unseen > 0;
    disk->sweep_cursor = 0;
    self->space_freed = true;
    reg_holds_bring(self);
}

/* A scan begins: which disk is it of? */
static sl_err found_begin(struct registrar *self, uint32_t at, const struct sl_msg *msg,
                          struct sl_error *why)
{
    struct reg_path *path = &self->tier.paths[at];
    if (path->fence_seq == UINT64_MAX) {
        reg_path_fence(self, at);
    }
    if (path->fence_seq != 0) {
        return sl_fail(why, SL_ERR_BUSY, "what was asked before is not fenced yet");
    }
    sl_err err = reg_disk_told(self, at, &msg->body.disk_found, why);
    if (err == SL_OK) {
        scan_begin(self, msg, path);
    } else if (err != SL_ERR_BUSY) {
        reg_log(self, SL_LOG_ERROR, 0, "%s", why->text);
    }
    return err;
}

void reg_disk_found(struct registrar *self, const struct sl_msg *msg)
{
    const struct sl_body_disk_found *body = &msg->body.disk_found;
    uint32_t at = reg_path_of(self, msg);
    struct sl_error why = {0};
    if (at == REG_NONE) {
        sl_reply_code(
            self->env, msg,
            sl_fail(&why, SL_ERR_PERMISSION, "no HELLO of a tierer from %s", msg->sender.at), &why);
        return;
    }
    struct reg_path *path = &self->tier.paths[at];
    sl_err err = SL_OK;
    if (body->first && !scan_known(self, msg, path)) {
        err = found_begin(self, at, msg, &why);
    } else if (path->disk == REG_NONE || !self->tier.disks[path->disk].scan_open) {
        /* The rest of a scan that a registrar before this one heard the beginning of tells us
         * nothing of what that was, and the end of one that has ended is only sent again. */
        err = sl_fail(&why, SL_ERR_BUSY, "no scan has begun here: from the beginning");
    }
    if (err != SL_OK) {
        sl_reply_code(self->env, msg, err, &why);
        return;
    }
    bool told = true;
    for (uint64_t i = 0; i < body->items.count; i++) {
        self->codes[i] = (uint64_t)found_one(self, &body->items.at[i], path->disk);
        told = told && self->codes[i] != (uint64_t)SL_ERR_BUSY;
    }
    if (body->last && told) { /* else this part of it comes again */
        scan_end(self, path->disk);
    }
    struct sl_return back;
    sl_return_keep(msg, &back);
    reg_reply_codes(self, &back, self->codes, body->items.count);
}

static void sweep_step(struct registrar *self, uint32_t slot)
{
    struct reg_disk *disk = &self->tier.disks[slot];
    char key[SL_KEY_BYTES_MAX + 1];
    struct sl_entry seen;
    struct reg_drop how = {.reason = REG_GHOST_DISK_RECLAIMED, .forget = false};
    for (uint32_t i = 0; disk->sweeping && i < SWEEP_STEP; i++) {
        if (!sl_index_scan(sl_index_as_view(self->index), &disk->sweep_cursor, &seen, key)) {
            disk->sweeping = false;
            reg_disk_swept(self, slot);
            break;
        }
        struct sl_entry entry;
        if (seen.disk.valid == 0 || seen.disk.disk != slot ||
            sl_index_find_any(self->index, key, seen.key_length, &entry) != SL_OK) {
            continue;
        }
        bool current =
            ((sl_index_links(self->index, entry.ref)->flags & REG_FLAG_SCAN) != 0) == disk->parity;
        if (entry.kind == SL_RECORD_COMMITTED && entry.disk.valid != 0 && entry.disk.disk == slot &&
            (disk->gone || !current)) {
            if (disk->stale) {
                (void)reg_unit_drop(self, reg_unit_of(&entry), &how);
            } else {
                (void)reg_place_clear(self, &entry, &how, false);
            }
        }
    }
}

/* What a place was known for and the scan did not find is not on disk any more. */
void reg_disk_sweep(struct registrar *self)
{
    uint64_t from = self->retired_count;
    for (uint32_t i = 0; i < REG_DISK_UNKNOWN; i++) {
        if (self->tier.disks[i].sweeping) {
            sweep_step(self, i);
        }
    }
    reg_retired_scan(self, from);
    if (self->tier.groups_until_ns != 0 && self->env->now_ns >= self->tier.groups_until_ns) {
        (void)groups_drop_found(self);
    }
}
