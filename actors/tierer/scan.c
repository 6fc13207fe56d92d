/* actors/tierer/scan.c - reports the disk's contents to the registrar: at the start, and to each
 * new registrar. The scan ends only when no frame is in flight and no file is being removed.
 * Otherwise requests of an earlier registrar could change the disk after the report. The new
 * registrar writes nothing before the end. */
#include "actors/tierer/internal.h"
#include "runtime/base/sl_backoff.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static struct ti_segment *scan_segment_from(struct tierer *self, uint32_t number)
{
    for (uint32_t i = 0; i < self->segment_count; i++) {
        /* Skips a file that is being removed: it does not count and must not be read. */
        if (self->segments[i].number < number) {
            continue;
        }
        if (!self->segments[i].leaving) {
            return &self->segments[i];
        }
        self->scan_skipped = true;
    }
    return NULL;
}

/* The registrar may be waiting for another disk. */
static void scan_put_off(struct tierer *self)
{
    self->scan_retry_ns =
        self->env->now_ns + sl_backoff_next(&self->scan_pause_ns, TI_SCAN_RETRY_NS_MAX);
    self->env->ops->wake_at(self->env, self->scan_retry_ns);
}

static void scan_records_drop(struct tierer *self)
{
    free(self->scan_records);
    self->scan_records = NULL;
    self->scan_records_bytes = 0;
    self->scan_records_of = 0;
}

/* Frees the pages of the values only: tombstones between them must stay, or older values would
 * return. Adjacent values are punched together. */
static sl_err values_punch(struct ti_scan_read *read)
{
    struct sl_disk *disk = read->self->disk;
    const struct ti_record *record = NULL;
    uint64_t from = 0;
    uint64_t to = 0;
    sl_err err = SL_OK;
    for (uint64_t at = 0; err == SL_OK;) {
        record = ti_record_next(read->records, read->bytes, &at);
        if (record != NULL &&
            ((record->flags & TI_TOMBSTONE) != 0 || !ti_record_plausible(&read->segment, record))) {
            continue;
        }
        if (record == NULL || record->offset_bytes != to) {
            err = to > from
                      ? disk->ops->punch(disk, read->segment.file, from, to - from, &read->why)
                      : SL_OK;
            from = record != NULL ? record->offset_bytes : 0;
            to = from;
        }
        if (record == NULL) {
            break;
        }
        to += sl_align_up(record->length_bytes, SL_PAGE_BYTES);
    }
    return err;
}

static sl_err scan_read_run(void *context, uint32_t thread)
{
    struct ti_scan_read *read = context;
    (void)thread;
    sl_err err = ti_segment_records_read(read->self, &read->segment, &read->records, &read->bytes,
                                         &read->why);
    return err == SL_OK && read->empties ? values_punch(read) : err;
}

/* On a helper thread, since an index may be large and the disk slow. The file stays meanwhile. */
static sl_err scan_read_start(struct tierer *self, struct ti_segment *segment, bool empties)
{
    struct ti_scan_read *read = &self->scan_read;
    if (read->busy) {
        return SL_OK; /* its end calls this again */
    }
    ti_reads_begin(self);
    *read = (struct ti_scan_read){
        .empties = empties, .self = self, .segment = *segment, .generation = self->scan_generation};
    sl_err err = self->env->ops->job(self->env, 1, scan_read_run, read, TI_COOKIE_SCAN);
    read->busy = err == SL_OK;
    segment->reads += read->busy;
    return err;
}

void ti_scan_empty(struct tierer *self, struct ti_segment *segment)
{
    (void)scan_read_start(self, segment, true); /* retried after a failure */
}

static void segment_emptied(struct tierer *self, struct ti_segment *segment, sl_err result)
{
    self->punch_frees_nothing = result == SL_ERR_UNSUPPORTED;
    segment->emptied = true; /* also after a failure: as the oldest file it is removed whole */
    if (self->disk->ops->real_bytes != NULL) {
        segment->real_bytes = self->disk->ops->real_bytes(self->disk, segment->file);
    }
    sl_log_write(self->env->log, result == SL_OK ? SL_LOG_DEBUG : SL_LOG_WARN, 0,
                 "disk: log file segment.%u has no live value: %" PRIu64
                 " bytes are left of it%s%s",
                 segment->number, segment->real_bytes, result == SL_OK ? "" : ", ",
                 self->scan_read.why.text);
    ti_segments_gauges(self);
}

void ti_scan_was_read(struct tierer *self, sl_err result)
{
    struct ti_scan_read *read = &self->scan_read;
    struct ti_segment *segment = ti_log_segment(self, read->segment.number);
    SL_ASSERT(read->busy && segment != NULL); /* a file stays while it is read */
    segment->reads--;
    read->busy = false;
    if (read->empties) {
        segment_emptied(self, segment, result);
    } else if (result != SL_OK) { /* reported as empty, all its values would be forgotten */
        if (!self->scan_waits) {
            sl_log_write(self->env->log, SL_LOG_WARN, 0, "disk: %s, will retry", read->why.text);
        }
        self->scan_waits = true;
        self->scan_retry_ns = sl_deadline_ns(self->env->now_ns, TI_HEALTH_RETRY_NS);
        ti_health_publish(self);
    }
    self->scan_waits = self->scan_waits && (read->empties || result != SL_OK);
    if (!read->empties && result == SL_OK && read->generation == self->scan_generation) {
        scan_records_drop(self);
        self->scan_records = read->records;
        self->scan_records_bytes = read->bytes;
        self->scan_records_of = segment->number;
    } else {
        free(read->records); /* the disk may have become bad there since */
    }
    read->records = NULL;
}

/* The records of a log file: in memory until it has a footer, then read. False: not read yet. */
static bool scan_records_of(struct tierer *self, struct ti_segment *segment,
                            const unsigned char **records, uint64_t *bytes)
{
    if (segment->state != TI_SEGMENT_SEALED && !segment->records_lost) {
        *records = segment->records;
        *bytes = segment->records_bytes;
        return true;
    }
    if (self->scan_records_of != segment->number) {
        if (scan_read_start(self, segment, false) != SL_OK) {
            scan_put_off(self);
        }
        return false;
    }
    *records = self->scan_records;
    *bytes = self->scan_records_bytes;
    return true;
}

enum scan_state { SCAN_FOUND, SCAN_READING, SCAN_CAUGHT_UP };

/* Moves the scan to the next file with unreported records, and gives these. */
static enum scan_state scan_find(struct tierer *self, const unsigned char **records,
                                 uint64_t *bytes)
{
    for (;;) {
        struct ti_segment *segment = scan_segment_from(self, self->scan_segment);
        if (segment == NULL) {
            return SCAN_CAUGHT_UP;
        }
        if (segment->number != self->scan_segment) {
            self->scan_segment = segment->number;
            self->scan_offset = 0;
        }
        if (!scan_records_of(self, segment, records, bytes)) {
            return SCAN_READING;
        }
        if (self->scan_offset < *bytes) {
            return SCAN_FOUND;
        }
        if (segment == &self->segments[self->segment_count - 1] || segment->frames > 0) {
            return SCAN_CAUGHT_UP;
        }
        self->scan_segment = segment->number + 1;
        self->scan_offset = 0;
    }
}

/* Whether the record is the current value of its key. */
static bool scan_take(const struct tierer *self, const struct ti_record *record,
                      struct sl_item_found *out)
{
    if ((record->flags & TI_TOMBSTONE) != 0) {
        return false;
    }
    struct ti_key_hash hash =
        ti_entries_hash(self->entries, ti_record_key(record), record->key_length);
    const struct ti_entry *entry = ti_entries_find(self->entries, hash);
    if (entry == NULL || entry->segment != record->segment ||
        (uint64_t)entry->page * SL_PAGE_BYTES != record->offset_bytes) {
        return false;
    }
    *out = (struct sl_item_found){
        .key = {ti_record_key(record), record->key_length},
        .group_key = {ti_record_group(record), record->group_length},
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

static bool log_changes(const struct tierer *self)
{
    return self->active.count > 0 || self->waiting.count > 0 || ti_oldest_is_leaving(self);
}

/* Fills the next message, from at most one file whose records were read: its texts point into them.
 * It examines a bounded number of records, since few of them may count. */
static enum scan_state scan_fill(struct tierer *self)
{
    const unsigned char *records = NULL;
    uint64_t bytes = 0;
    uint32_t left = TI_FOUND_RECORDS_MAX;
    enum scan_state state = SCAN_FOUND;
    self->scan_count = 0;
    while (self->scan_count < TI_FOUND_ITEMS_MAX && left > 0 &&
           (state = scan_find(self, &records, &bytes)) == SCAN_FOUND) {
        const struct ti_record *record = NULL;
        while (self->scan_count < TI_FOUND_ITEMS_MAX && left > 0 &&
               (record = ti_record_next(records, bytes, &self->scan_offset)) != NULL) {
            self->scan_count += scan_take(self, record, &self->scan_items[self->scan_count]);
            left--;
        }
        if (record == NULL) {
            self->scan_offset = bytes;
        }
    }
    return state;
}

static void scan_send(struct tierer *self)
{
    struct sl_msg found = {.type = SL_MSG_DISK_FOUND};
    self->scan_paused = false;
    self->scan_retry_ns = 0;
    self->scan_from_segment = self->scan_segment;
    self->scan_from_offset = self->scan_offset;
    enum scan_state state = scan_fill(self);
    self->scan_last = state == SCAN_CAUGHT_UP;
    if (self->scan_count == 0 && (!self->scan_last || log_changes(self))) {
        self->scan_paused = true; /* ti_scan_pump continues */
        if (state == SCAN_FOUND) {
            self->env->ops->wake_at(self->env, self->env->now_ns);
        }
        return;
    }
    self->scan_last = self->scan_last && !log_changes(self);
    found.body.disk_found.first = self->scan_first;
    found.body.disk_found.store = (struct sl_bytes){self->store, sizeof(self->store)};
    if (self->scan_first) {
        found.body.disk_found.members = ti_members_report(self);
        found.body.disk_found.blank = ti_entries_live_count(self->entries) == 0;
        int64_t left = ti_budget_left(self);
        found.body.disk_found.budget_left = left > 0 ? (uint64_t)left : 0;
        found.body.disk_found.budget_debt = left < 0 ? (uint64_t)-left : 0;
    }
    found.body.disk_found.last = self->scan_last;
    found.body.disk_found.boot_generation = self->boot_generation;
    found.body.disk_found.known_fence = self->floor_seq + 1;
    found.body.disk_found.items.at = self->scan_items;
    found.body.disk_found.items.count = self->scan_count;
    self->scan_first = false;
    sl_err err = sl_calls_send(self->calls, "registrar", &found,
                               sl_deadline_ns(self->env->now_ns, 30 * SL_NS_PER_S),
                               TI_COOKIE_FOUND | self->scan_generation, NULL);
    self->scan_asked = err == SL_OK;
    if (err != SL_OK) {
        self->scanning = false; /* the next HELLO_REPLY starts it again */
        self->boot_generation = 0;
        sl_log_write(self->env->log, SL_LOG_WARN, 0,
                     "disk: reporting the contents to the registrar failed (%s), will retry",
                     sl_err_text(err));
    }
}

void ti_scan_pump(struct tierer *self)
{
    bool due = self->scan_retry_ns != 0 ? self->env->now_ns >= self->scan_retry_ns
                                        : self->scan_paused && !self->scan_read.busy;
    if (self->scanning && !self->scan_asked && !self->settling && due) {
        scan_send(self);
    }
}

static void scan_rewind(struct tierer *self)
{
    self->scanning = self->scan_first = true;
    self->scan_asked = self->scan_paused = self->scan_skipped = false;
    self->scan_offset = self->scan_segment = 0;
    self->scan_generation++;
    scan_records_drop(self); /* the disk may have become bad there since */
}

void ti_scan_start(struct tierer *self)
{
    self->scan_started_ns = self->env->now_ns;
    scan_rewind(self);
    self->scan_paused = true; /* ti_scan_pump starts it */
    self->scan_retry_ns = 0;
}

void ti_scan_again(struct tierer *self)
{
    if (self->scanning) {
        scan_rewind(self);
        scan_put_off(self);
    }
}

void ti_scan_answered(struct tierer *self, const struct sl_msg *reply)
{
    self->scan_asked = false;
    if (!self->scanning) {
        return;
    }
    if (reply != NULL && reply->code == SL_ERR_BUSY) { /* it missed the first message */
        ti_scan_again(self);
        return;
    }
    if (reply == NULL || reply->code != SL_OK) {
        self->scanning = false;
        self->boot_generation = 0;
        return;
    }
    const struct sl_u64s *codes = &reply->body.disk_found_reply.codes;
    bool again = false;
    /* Values that the registrar refuses stay in the table: without a tombstone they are on the
     * disk. The next registrar must know them, or they would come back with the next tierer. */
    for (uint32_t i = 0; i < self->scan_count && i < codes->count; i++) {
        again = again || codes->at[i] == SL_ERR_BUSY;
    }
    if (again) { /* a key of this batch is being written: report it again later */
        self->scan_segment = self->scan_from_segment;
        self->scan_offset = self->scan_from_offset;
        scan_put_off(self);
        return;
    }
    self->scan_pause_ns = TI_SCAN_RETRY_NS;
    self->start.all_reported = self->start.all_reported || self->scan_last;
    self->scan_waits = self->scan_waits && !self->scan_last; /* its file may be gone */
    ti_health_publish(self);
    if (self->scan_last) {
        self->scanning = false;
        scan_records_drop(self);
        sl_log_write(self->env->log, SL_LOG_INFO, 0,
                     "disk: reported all %" PRIu64 " values to the registrar in %" PRIu64 " ms",
                     ti_entries_live_count(self->entries),
                     (self->env->now_ns - self->scan_started_ns) / SL_NS_PER_MS);
        return;
    }
    self->scan_paused = true; /* ti_scan_pump continues */
}
