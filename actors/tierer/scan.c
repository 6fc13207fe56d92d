/* actors/tierer/scan.c - tells the registrar what the disk holds: at the start, and whenever a new
 * registrar lives.
 *
 * Keys are not kept in memory: the frames are read again, some of them for each DISK_FOUND, which
 * follows the answer to the one before. The scan ends when it has caught up with what is durable
 * and no batch is under way: what a registrar that is gone asked for would else reach the disk
 * behind the scan, and nobody would know of it until the next one. The new registrar writes nothing
 * before the end. */
#include "actors/tierer/internal.h"

#include <string.h>

#define COOKIE_FOUND (UINT64_C(1) << 40)
/* Frames read for one DISK_FOUND: what else waits for the actor waits so long. */
#define FRAMES_MAX 64u

static struct segment *scan_segment_from(struct tierer *self, uint32_t number)
{
    for (uint32_t i = 0; i < self->segment_count; i++) {
        if (self->segments[i].number >= number) {
            return &self->segments[i];
        }
    }
    return NULL;
}

/* The next frame that is durable, in frame_buffer; moves the scan behind it. NULL: caught up. */
static const struct sl_tier_frame *scan_next_frame(struct tierer *self)
{
    for (;;) {
        const struct segment *segment = scan_segment_from(self, self->scan_segment);
        if (segment == NULL) {
            return NULL;
        }
        if (segment->number != self->scan_segment || self->scan_offset < SL_PAGE_BYTES) {
            self->scan_segment = segment->number;
            self->scan_offset = SL_PAGE_BYTES;
            self->scan_previous = segment->salt;
        }
        const struct sl_tier_frame *frame =
            self->scan_offset < segment->durable_bytes
                ? log_frame_at(self, segment, self->scan_offset, self->scan_previous)
                : NULL;
        if (frame != NULL) {
            self->scan_offset += frame->frame_bytes;
            self->scan_previous = frame->digest.low;
            return frame;
        }
        if (segment == &self->segments[self->segment_count - 1]) {
            return NULL;
        }
        self->scan_segment = segment->number + 1;
        self->scan_offset = 0;
    }
}

/* Texts of a record leave the frame buffer, since the next frame is read there. */
static struct sl_text scan_text(struct tierer *self, const char *at, uint32_t length)
{
    char *kept = self->scan_texts + self->scan_text_bytes;
    memcpy(kept, at, length);
    self->scan_text_bytes += length;
    return (struct sl_text){kept, length};
}

/* Whether the record is what its key has now; fills what the answer is matched with. */
static bool scan_take(struct tierer *self, const struct sl_tier_record *record,
                      struct sl_item_found *out)
{
    struct sl_key_hash hash =
        sl_entries_hash(self->entries, sl_tier_record_key(record), record->key_length);
    const struct sl_tier_entry *entry = sl_entries_find(self->entries, hash);
    if ((record->flags & SL_TIER_TOMBSTONE) != 0 || entry == NULL ||
        entry->segment != record->segment ||
        (uint64_t)entry->page * SL_PAGE_BYTES != record->offset_bytes) {
        return false;
    }
    self->scan_hashes[self->scan_count] = hash;
    self->scan_places[self->scan_count] = sl_tier_entry_place(entry);
    *out = (struct sl_item_found){
        .key = scan_text(self, sl_tier_record_key(record), record->key_length),
        .group_key = scan_text(self, sl_tier_record_group(record), record->group_length),
        .part_index = record->part_index,
        .part_count = record->part_count,
        .length_bytes = record->length_bytes,
        .digest_low = record->digest_low,
        .digest_high = record->digest_high,
        .segment = record->segment,
        .disk_offset_bytes = record->offset_bytes,
    };
    return true;
}

static bool batch_under_way(const struct tierer *self)
{
    return self->phase != BATCH_IDLE || self->waiting.count > 0;
}

/* Frames as long as all of the next one has room: no frame lists more than a message holds, and its
 * texts are shorter than its header. True: caught up. */
static bool scan_fill(struct tierer *self, struct sl_item_found *items)
{
    self->scan_count = 0;
    self->scan_text_bytes = 0;
    for (uint32_t frames = 0; frames < FRAMES_MAX; frames++) {
        uint32_t segment = self->scan_segment;
        uint64_t offset = self->scan_offset, previous = self->scan_previous;
        const struct sl_tier_frame *frame = scan_next_frame(self);
        if (frame == NULL) {
            return true;
        }
        if (self->scan_count > 0 &&
            (self->scan_count + frame->record_count > FOUND_ITEMS_MAX ||
             self->scan_text_bytes + frame->records_bytes > SL_TIER_FRAME_HEADER_BYTES_MAX)) {
            self->scan_segment = segment; /* with the next message */
            self->scan_offset = offset;
            self->scan_previous = previous;
            return false;
        }
        const struct sl_tier_record *record = NULL;
        for (uint64_t at = 0;
             self->scan_count < FOUND_ITEMS_MAX &&
             (record = sl_tier_record_next(frame + 1, frame->records_bytes, &at)) != NULL;) {
            self->scan_count += scan_take(self, record, &items[self->scan_count]);
        }
    }
    return false;
}

static void scan_send(struct tierer *self)
{
    struct sl_item_found items[FOUND_ITEMS_MAX];
    struct sl_msg found = {.type = SL_MSG_DISK_FOUND};
    self->scan_paused = false;
    self->scan_last = scan_fill(self, items);
    if (self->scan_last && self->scan_count == 0 && batch_under_way(self)) {
        self->scan_paused = true; /* scan_pump goes on */
        return;
    }
    self->scan_last = self->scan_last && !batch_under_way(self);
    found.body.disk_found.first = self->scan_first;
    found.body.disk_found.last = self->scan_last;
    found.body.disk_found.items.at = items;
    found.body.disk_found.items.count = self->scan_count;
    self->scan_first = false;
    uint64_t deadline_ns = sl_deadline_ns(self->env->now_ns, 30 * SL_NS_PER_S);
    sl_err err = sl_calls_send(self->calls, "registrar", &found, deadline_ns,
                               COOKIE_FOUND | self->scan_generation, NULL);
    if (err != SL_OK) {
        self->scanning = false; /* the next HELLO_REPLY begins again */
        self->boot_generation = 0;
        sl_log_write(self->env->log, SL_LOG_WARN, 0,
                     "disk: telling the registrar what is there failed (%s), tried again",
                     sl_err_text(err));
    }
}

void scan_start(struct tierer *self)
{
    self->scanning = true;
    self->scan_first = true;
    self->scan_segment = 0;
    self->scan_offset = 0;
    self->scan_generation++;
    scan_send(self);
}

void scan_pump(struct tierer *self)
{
    if (self->scanning && self->scan_paused && !batch_under_way(self)) {
        scan_send(self);
    }
}

void scan_answered(struct tierer *self, const struct sl_msg *reply)
{
    if (!self->scanning) {
        return;
    }
    if (reply == NULL || reply->code != SL_OK) {
        self->scanning = false;
        self->boot_generation = 0;
        return;
    }
    const struct sl_u64s *codes = &reply->body.disk_found_reply.codes;
    for (uint32_t i = 0; i < self->scan_count && i < codes->count; i++) {
        const struct sl_tier_entry *entry = sl_entries_find(self->entries, self->scan_hashes[i]);
        if (codes->at[i] == SL_ERR_NOT_FOUND && entry != NULL &&
            entry->segment == self->scan_places[i].segment &&
            (uint64_t)entry->page * SL_PAGE_BYTES == self->scan_places[i].offset_bytes) {
            sl_entries_kill(self->entries, self->scan_hashes[i]); /* nobody will ever ask for it */
        }
    }
    if (self->scan_last) {
        self->scanning = false;
        sl_metrics_health(self->env->metrics, SL_HEALTH_READY, "");
        sl_log_write(self->env->log, SL_LOG_INFO, 0, "disk: the registrar knows all %llu values",
                     (unsigned long long)sl_entries_live_count(self->entries));
        return;
    }
    scan_send(self);
}
