/* actors/tierer/segments.c - makes log files below the ceiling, closes and reclaims them. */
#include "actors/tierer/internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define RECORDS_BYTES_MIN (UINT64_C(64) << 10)
#define SEAL_FAILURES_MAX 5u /* then new frames no longer wait for the footer of a failed file */

int ti_segment_compare(const void *a, const void *b)
{
    const struct ti_segment *left = a;
    const struct ti_segment *right = b;
    return (left->number > right->number) - (left->number < right->number);
}

struct ti_segment *ti_log_segment(struct tierer *self, uint32_t number)
{
    const struct ti_segment key = {.number = number};
    return bsearch(&key, self->segments, self->segment_count, sizeof(key), ti_segment_compare);
}

struct ti_segment *ti_log_newest(struct tierer *self)
{
    return self->segment_count > 0 ? &self->segments[self->segment_count - 1] : NULL;
}

static uint64_t segments_real_bytes(const struct tierer *self)
{
    uint64_t bytes = self->foreign_bytes + self->members.unwritten_bytes + self->spare.real_bytes;
    SL_ASSERT(self->segments != NULL);
    for (uint32_t i = 0; i < self->segment_count; i++) {
        bytes += self->segments[i].real_bytes;
    }
    return bytes;
}

/* Lengths, also of punched pages: every start reads their records. */
static uint64_t segments_length(const struct tierer *self)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < self->segment_count; i++) {
        bytes += self->segments[i].bytes;
    }
    return bytes;
}

void ti_segments_gauges(struct tierer *self)
{
    uint32_t sealed = 0;
    for (uint32_t i = 0; i < self->segment_count; i++) {
        sealed += self->segments[i].state == TI_SEGMENT_SEALED;
    }
    sl_metric_set(self->env->metrics, self->metrics.segments, self->segment_count);
    sl_metric_set(self->env->metrics, self->metrics.sealed_segments, sealed);
    sl_metric_set(self->env->metrics, self->metrics.used_bytes, segments_real_bytes(self));
    sl_metric_set(self->env->metrics, self->metrics.live_values,
                  ti_entries_live_count(self->entries));
    sl_metric_set(self->env->metrics, self->metrics.live_bytes,
                  ti_entries_live_bytes(self->entries));
}

void ti_segment_header(const struct tierer *self, const struct ti_segment *segment,
                       struct ti_header *out)
{
    memset(out, 0, sizeof(*out));
    out->magic = TI_HEADER_MAGIC;
    out->version = TI_FORMAT;
    out->number = segment->number;
    out->salt = segment->salt;
    out->segment_bytes = segment->bytes;
    out->first_sequence = segment->first_sequence;
    out->tombstone_sequence = segment->tombstone_before;
    memcpy(out->store, self->store, sizeof(out->store));
    out->digest = ti_page_digest(out, sizeof(*out));
}

/* Bytes of the file on the disk. The file system may add blocks while the file is written, so an
 * open file is charged a little more. */
static uint64_t segment_real_bytes(const struct tierer *self, const struct ti_segment *segment)
{
    const struct sl_disk_ops *ops = self->disk->ops;
    uint64_t real = ops->real_bytes != NULL ? ops->real_bytes(self->disk, segment->file) : 0;
    bool grows = ops->real_bytes != NULL && segment->state != TI_SEGMENT_SEALED;
    uint64_t slack = grows ? TI_SEGMENT_SLACK_BYTES : 0;
    return SL_MAX(real, segment->bytes) + slack;
}

/* Whether the refusal lasts: no values are removed for space that another program uses briefly. */
static bool room_is_refused(struct tierer *self)
{
    struct ti_room *room = &self->room;
    uint64_t now_ns = self->env->now_ns;
    if (room->refused_ns == 0 || now_ns > sl_deadline_ns(room->refused_ns, TI_ROOM_RETRY_NS)) {
        room->refused_ns = now_ns;
        room->again_ns = sl_deadline_ns(now_ns, TI_ROOM_DOUBT_NS);
    }
    return now_ns >= room->again_ns;
}

/* Lowers the ceiling to the present size, for a while. */
void ti_segments_no_room(struct tierer *self, bool allocating)
{
    struct ti_room *room = &self->room;
    uint64_t bytes = segments_real_bytes(self);
    bool full_before = room->full || room->retry_at_ns != 0;
    if (!allocating && self->segment_count < 2) {
        return; /* no file may be removed */
    }
    /* One file at a time: a refusal that continues would empty the disk within milliseconds. */
    if (full_before ? self->env->now_ns < room->again_ns : !room_is_refused(self)) {
        return;
    }
    room->again_ns = sl_deadline_ns(self->env->now_ns, TI_ROOM_DOUBT_NS);
    room->full = self->segment_count < 2;
    room->retry_at_ns =
        sl_deadline_ns(self->env->now_ns, room->full ? TI_HEALTH_RETRY_NS : TI_ROOM_RETRY_NS);
    /* With the slack, reusing a file does not evict another one. */
    bytes = allocating ? bytes + TI_SEGMENT_SLACK_BYTES : bytes - self->segments[0].real_bytes;
    uint64_t least = self->foreign_bytes + self->members.unwritten_bytes +
                     2 * (self->segment_bytes + TI_SEGMENT_SLACK_BYTES);
    room->bytes_max = SL_MIN(room->bytes_max, SL_MAX(bytes, least));
    sl_metric_set(self->env->metrics, self->metrics.ceiling, room->bytes_max);
    if (!full_before && self->env->now_ns >= room->warn_at_ns) {
        room->warn_at_ns = sl_deadline_ns(self->env->now_ns, TI_ROOM_WARN_NS);
        sl_log_write(self->env->log, SL_LOG_WARN, 0,
                     "disk: the file system is full at %" PRIu64 " of %" PRIu64 " MiB: %s",
                     room->bytes_max >> 20, self->disk_bytes_max >> 20,
                     room->full ? "no room for two log files, nothing is written"
                                : "the oldest values make room for new ones");
    }
    ti_health_publish(self);
}

void ti_segments_failed(struct tierer *self, const char *what, int os_code)
{
    bool two = self->segment_count + (self->spare.state == TI_SPARE_READY ? 1 : 0) >= 2;
    if (ti_is_no_room(os_code) && (!two || self->segment_count >= 2)) {
        ti_segments_no_room(self, !two);
    } else {
        ti_health_failed(self, what, os_code);
    }
}

/* From time to time tries the configured ceiling again. */
static void room_retry(struct tierer *self)
{
    struct ti_room *room = &self->room;
    if (room->retry_at_ns != 0 && self->env->now_ns >= room->retry_at_ns) {
        room->retry_at_ns = 0;
        room->bytes_max = self->disk_bytes_max;
        room->full = room->full && self->disk->ops->prepare != NULL; /* else the next write tries */
        sl_metric_set(self->env->metrics, self->metrics.ceiling, room->bytes_max);
        ti_health_publish(self);
    }
}

static sl_err segment_create(struct tierer *self, struct sl_error *why)
{
    struct ti_segment segment = {
        .number = self->next_number, .file = -1, .bytes = self->segment_bytes};
    bool prepared = self->spare.state == TI_SPARE_READY;
    char name[40];
    uint64_t bytes = 0;
    (void)snprintf(name, sizeof(name), TI_SEGMENT_NAME_FORMAT, segment.number);
    SL_ASSERT(!prepared || self->spare.number == segment.number);
    sl_err err =
        self->disk->ops->open(self->disk, name, !prepared, prepared ? 0 : self->segment_bytes,
                              &segment.file, &bytes, why);
    self->spare = (struct ti_spare){0};
    if (err != SL_OK) {
        return err;
    }
    segment.salt = self->env->ops->random_u64(self->env);
    segment.first_sequence = self->next_sequence;
    segment.tombstone_before = self->tombstone_sequence;
    segment.used_bytes = SL_PAGE_BYTES;
    segment.real_bytes = segment_real_bytes(self, &segment);
    self->segments[self->segment_count++] = segment;
    self->next_number++;
    self->room.full = false;
    ti_segments_gauges(self);
    return SL_OK;
}

/* The oldest file was removed, or became the next one. */
static void segment_forget(struct tierer *self)
{
    self->left = self->segments[0].list;
    (void)ti_entries_drop(self->entries, &self->left, 0); /* tierer_slice frees them */
    self->gone_segment = self->segments[0].number;
    self->disk->ops->close(self->disk, self->segments[0].file);
    ti_segment_records_free(&self->segments[0]);
    self->segment_count--;
    memmove(&self->segments[0], &self->segments[1], self->segment_count * sizeof(*self->segments));
    sl_metric_add(self->env->metrics, self->metrics.reclaimed_segments, 1);
    ti_segments_gauges(self);
}

static sl_err spare_run(void *context, uint32_t thread)
{
    struct ti_spare *spare = context;
    (void)thread;
    return spare->disk->ops->prepare(spare->disk, spare->from[0] != '\0' ? spare->from : NULL,
                                     spare->name, spare->bytes, &spare->why);
}

static void spare_start(struct tierer *self)
{
    struct ti_spare *spare = &self->spare;
    sl_err err = self->env->ops->job(self->env, 1, spare_run, spare, TI_COOKIE_SPARE);
    spare->started_ns = self->env->now_ns;
    spare->retry_at_ns = err == SL_OK ? 0 : sl_deadline_ns(self->env->now_ns, TI_HEALTH_RETRY_NS);
}

/* from: a reclaimed file to reuse; NULL: a new file. */
static void spare_make(struct tierer *self, const char *from)
{
    struct ti_spare *spare = &self->spare;
    *spare = (struct ti_spare){.state = TI_SPARE_MAKING,
                               .number = self->next_number,
                               .disk = self->disk,
                               .bytes = self->segment_bytes};
    (void)snprintf(spare->name, sizeof(spare->name), TI_SEGMENT_NAME_FORMAT, spare->number);
    (void)snprintf(spare->from, sizeof(spare->from), "%s", from != NULL ? from : "");
    if (from == NULL) { /* otherwise the old file is charged until the job ends */
        spare->real_bytes = self->segment_bytes + TI_SEGMENT_SLACK_BYTES;
    }
    spare_start(self);
}

void ti_segments_prepared(struct tierer *self, sl_err result)
{
    struct ti_spare *spare = &self->spare;
    if (spare->state != TI_SPARE_MAKING) {
        return;
    }
    if (result == SL_OK) {
        spare->state = TI_SPARE_READY;
        spare->real_bytes = self->segment_bytes + TI_SEGMENT_SLACK_BYTES;
        if (spare->from[0] != '\0') {
            spare->from[0] = '\0';
            self->reclaiming = false;
            segment_forget(self);
        }
        self->room.full = false;
        self->room.refused_ns = 0;
        ti_health_publish(self);
        if (self->degraded && self->active.count == 0) {
            ti_health_write_ok(self);
        }
        return;
    }
    bool no_room = ti_is_no_room(spare->why.os_code);
    if (!no_room) {
        ti_health_failed(self, spare->why.text, spare->why.os_code);
    }
    /* A directory that exists accepts new names. */
    self->gone = self->gone || spare->why.os_code == ENOENT;
    if (spare->from[0] == '\0') {
        *spare = (struct ti_spare){0}; /* nothing is left of it; made again when needed */
    }
    if (no_room) {
        ti_segments_no_room(self, true);
    }
    if (spare->state == TI_SPARE_NONE) {
        return;
    }
    /* Under its old name the file is still the oldest one, to be removed; under the new it is
     * gone. */
    struct sl_disk_request drop = {.verb = SL_DISK_REMOVE, .file = -1, .name = spare->from};
    if (!ti_io_start(self, TI_IO_REMOVE, NULL, 0, &drop)) {
        ti_segments_removed(self, NULL, 0, EAGAIN);
    }
}

uint64_t ti_segment_footer_bytes(uint64_t records_bytes)
{
    return sl_align_up(records_bytes, SL_PAGE_BYTES) + sizeof(struct ti_trailer);
}

bool ti_oldest_is_leaving(const struct tierer *self)
{
    return self->segment_count > 0 && self->segments[0].leaving;
}

static bool reclaim_send(struct tierer *self, uint32_t segment, bool gone)
{
    struct sl_msg reclaim = {.type = SL_MSG_DISK_RECLAIM};
    reclaim.body.disk_reclaim.segment = segment;
    reclaim.body.disk_reclaim.gone = gone;
    uint64_t deadline_ns =
        sl_deadline_ns(self->env->now_ns, sl_config_u64(self->env->config, SL_SET_op_timeout));
    return sl_calls_send(self->calls, "registrar", &reclaim, deadline_ns, segment, NULL) == SL_OK;
}

static void reclaim_ask(struct tierer *self)
{
    const struct ti_segment *oldest = self->segments;
    SL_ASSERT(oldest != NULL);
    if (self->reclaiming || self->gone_segment != 0 || self->segment_count == 0 ||
        oldest->reads > 0 || oldest->frames > 0 || oldest->sealing || oldest->settling ||
        self->left != 0 || self->env->now_ns < self->reclaim_at_ns) {
        return;
    }
    self->reclaiming = reclaim_send(self, oldest->number, false);
}

/* The registrar keeps places in the file until it is notified that the file is gone. */
static void gone_notify(struct tierer *self)
{
    if (self->gone_segment != 0 && !self->gone_notified && self->boot_generation != 0 &&
        self->env->now_ns >= self->reclaim_at_ns) {
        self->gone_notified = reclaim_send(self, self->gone_segment, true);
    }
}

/* A failed frame may look intact on the disk: until a footer omits it, no new one is
 * acknowledged. */
static bool segments_wait_for_footer(const struct tierer *self)
{
    for (uint32_t i = 0; i < self->segment_count; i++) {
        const struct ti_segment *segment = &self->segments[i];
        if (segment->failed && segment->state != TI_SEGMENT_SEALED && !segment->records_lost &&
            segment->seal_failures < SEAL_FAILURES_MAX) {
            return true;
        }
    }
    return false;
}

/* Whether one more file fits under the ceiling; if not, asks for the oldest one (reclaims). */
static bool segments_have_room(struct tierer *self, bool reclaims)
{
    uint64_t wanted =
        self->segment_bytes + (self->disk->ops->real_bytes != NULL ? TI_SEGMENT_SLACK_BYTES : 0);
    room_retry(self);
    if ((self->room.full && self->room.retry_at_ns != 0) ||
        self->env->now_ns < self->room.again_ns) {
        return false;
    }
    if (segments_real_bytes(self) + wanted <= self->room.bytes_max &&
        segments_length(self) + self->segment_bytes <= TI_LENGTHS_MAX * self->disk_bytes_max &&
        self->segment_count < self->segments_max) {
        return true;
    }
    if (reclaims && self->segment_count > 0) {
        reclaim_ask(self);
    }
    return false;
}

bool ti_segments_members_fit(struct tierer *self)
{
    if (segments_real_bytes(self) <= self->room.bytes_max || self->segment_count == 0) {
        return true;
    }
    reclaim_ask(self); /* the ceiling was filled before this file existed */
    return false;
}

void ti_segments_prepare(struct tierer *self)
{
    const struct ti_segment *newest = ti_log_newest(self);
    struct ti_spare *spare = &self->spare;
    if (self->segment_count > 1 && self->room.retry_at_ns != 0) {
        (void)ti_segments_members_fit(self); /* the oldest file makes room */
    }
    if (self->disk->ops->prepare == NULL) {
        room_retry(self);
        return;
    }
    if (spare->state == TI_SPARE_READY || self->env->now_ns < self->blocked_until_ns) {
        return;
    }
    if (spare->state == TI_SPARE_MAKING) {
        if (spare->retry_at_ns != 0 && self->env->now_ns >= spare->retry_at_ns) {
            spare_start(self);
        }
        return;
    }
    /* One file is always made in advance, so neither a tombstone nor a reclaim needs new space. But
     * no file is reclaimed for it before this process has begun to write. */
    bool writes = self->waiting.count > 0 || (newest != NULL && newest->state == TI_SEGMENT_OPEN);
    bool wanted = writes || newest != NULL || self->room.full;
    if (wanted && segments_have_room(self, writes)) {
        spare_make(self, NULL);
    }
}

struct ti_segment *ti_segment_for(struct tierer *self, uint64_t frame_bytes, uint64_t records_bytes,
                                  bool *fresh)
{
    *fresh = false;
    struct ti_segment *newest = ti_log_newest(self);
    bool going = self->reclaiming || self->left != 0; /* nothing in the oldest file counts */
    if (segments_wait_for_footer(self) || (going && self->segment_count == 1)) {
        return NULL;
    }
    if (newest != NULL && newest->state == TI_SEGMENT_OPEN) {
        uint64_t footer = ti_segment_footer_bytes(newest->records_planned_bytes + records_bytes);
        if (newest->used_bytes + frame_bytes + footer <= newest->bytes) {
            return newest;
        }
        newest->state = TI_SEGMENT_CLOSED;
    }
    if (self->disk->ops->prepare != NULL) {
        ti_segments_prepare(self);
        if (self->spare.state != TI_SPARE_READY) {
            return NULL; /* its end calls this again */
        }
    } else if (!segments_have_room(self, true)) {
        return NULL;
    }
    struct sl_error why = {0};
    if (segment_create(self, &why) != SL_OK) {
        if (ti_is_no_room(why.os_code)) {
            ti_segments_no_room(self, true);
        } else {
            ti_health_failed(self, "no new segment", why.os_code);
        }
        return NULL;
    }
    *fresh = true;
    return ti_log_newest(self);
}

void ti_segment_records_free(struct ti_segment *segment)
{
    if (segment->records != NULL) {
        (void)munmap(segment->records, segment->records_capacity);
    }
    segment->records = NULL;
    segment->records_bytes = 0;
    segment->records_capacity = 0;
}

/* The footer is written from the records. They are whole pages, which the kernel remaps as they
 * grow: copying would delay loads, and reserving all of them counts at once if memory is
 * limited. */
static bool records_room(struct ti_segment *segment, uint64_t bytes)
{
    uint64_t capacity = SL_MAX(segment->records_capacity, RECORDS_BYTES_MIN);
    while (capacity < bytes) {
        capacity *= 2;
    }
    if (capacity == segment->records_capacity) {
        return true;
    }
    void *at =
        segment->records != NULL
            ? mremap(segment->records, segment->records_capacity, capacity, MREMAP_MAYMOVE)
            : mmap(NULL, capacity, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) {
        return false;
    }
    segment->records = at;
    segment->records_capacity = capacity;
    return true;
}

bool ti_segment_note(struct ti_segment *segment, const void *records, uint64_t bytes,
                     uint32_t count)
{
    if (!records_room(segment, ti_segment_footer_bytes(segment->records_bytes + bytes))) {
        ti_segment_records_free(segment);
        segment->records_lost = true;
        return false;
    }
    memcpy(segment->records + segment->records_bytes, records, bytes);
    segment->records_bytes += bytes;
    segment->record_count += count;
    return true;
}

static bool segment_may_seal(const struct tierer *self, const struct ti_segment *segment)
{
    return segment->state == TI_SEGMENT_CLOSED && segment->frames == 0 && !segment->records_lost &&
           !segment->settling && self->env->now_ns >= segment->seal_at_ns &&
           segment->used_bytes + ti_segment_footer_bytes(segment->records_bytes) <= segment->bytes;
}

bool ti_segments_all_sealed(const struct tierer *self)
{
    for (uint32_t i = 0; i < self->segment_count; i++) {
        const struct ti_segment *segment = &self->segments[i];
        if (segment->sealing || (segment_may_seal(self, segment) && segment->seal_failures == 0)) {
            return false;
        }
    }
    return true;
}

uint64_t ti_segments_seal_at(const struct tierer *self)
{
    uint64_t at_ns = SL_NEVER_NS;
    for (uint32_t i = 0; i < self->segment_count; i++) {
        const struct ti_segment *segment = &self->segments[i];
        if (segment->state == TI_SEGMENT_CLOSED && segment->seal_at_ns != 0) {
            at_ns = SL_MIN(at_ns, segment->seal_at_ns);
        }
    }
    return at_ns;
}

/* Much space is unused: the footer then directly follows the frames, and the file is cut. */
static bool segment_is_short(const struct ti_segment *segment, uint64_t footer_bytes)
{
    return segment->used_bytes + footer_bytes + segment->bytes / 8 < segment->bytes;
}

/* Completes the records in place to a footer. */
static bool footer_build(struct tierer *self, struct ti_segment *segment)
{
    struct ti_seal *seal = &self->seal;
    uint64_t index_bytes = sl_align_up(segment->records_bytes, SL_PAGE_BYTES);
    seal->footer_bytes = ti_segment_footer_bytes(segment->records_bytes);
    seal->offset_bytes = segment_is_short(segment, seal->footer_bytes)
                             ? segment->used_bytes
                             : segment->bytes - seal->footer_bytes;
    if (!records_room(segment, seal->footer_bytes)) {
        return false;
    }
    struct ti_trailer *trailer = (void *)(segment->records + index_bytes);
    memset(segment->records + segment->records_bytes, 0,
           seal->footer_bytes - segment->records_bytes);
    trailer->magic = TI_TRAILER_MAGIC;
    trailer->salt = segment->salt;
    trailer->version = TI_FORMAT;
    trailer->segment = segment->number;
    trailer->index_offset_bytes = seal->offset_bytes;
    trailer->index_bytes = segment->records_bytes;
    trailer->record_count = segment->record_count;
    trailer->last_sequence = segment->last_sequence;
    trailer->first_sequence = segment->first_sequence;
    trailer->tombstone_before = segment->tombstone_before;
    trailer->tombstone_last = segment->tombstone_last;
    trailer->index_digest = ti_page_digest(segment->records, segment->records_bytes);
    memcpy(trailer->store, self->store, sizeof(trailer->store));
    trailer->digest = ti_page_digest(trailer, sizeof(*trailer));
    return true;
}

static void seal_end(struct tierer *self, struct ti_segment *segment, int os_code)
{
    struct ti_seal *seal = &self->seal;
    if (os_code != 0) {
        segment->seal_failures++;
        segment->seal_at_ns = sl_deadline_ns(self->env->now_ns, TI_HEALTH_RETRY_NS);
        ti_health_failed(self, "footer", os_code);
    } else {
        segment->state = TI_SEGMENT_SEALED;
        segment->bytes = seal->offset_bytes + seal->footer_bytes;
        segment->real_bytes = segment_real_bytes(self, segment);
        ti_segment_records_free(segment);
        ti_health_write_ok(self);
    }
    segment->sealing = false;
    *seal = (struct ti_seal){0};
    ti_segments_gauges(self);
}

void ti_segments_seal(struct tierer *self)
{
    struct ti_seal *seal = &self->seal;
    for (uint32_t i = 0; !seal->busy && i < self->segment_count; i++) {
        struct ti_segment *segment = &self->segments[i];
        if (!segment_may_seal(self, segment) || (self->reclaiming && i == 0)) {
            continue;
        }
        if (!footer_build(self, segment)) {
            segment->seal_failures++;
            segment->seal_at_ns = sl_deadline_ns(self->env->now_ns, TI_HEALTH_RETRY_NS);
            continue;
        }
        struct sl_disk_request request = {.verb = SL_DISK_WRITE,
                                          .file = segment->file,
                                          .memory = segment->records,
                                          .offset_bytes = seal->offset_bytes,
                                          .length_bytes = seal->footer_bytes};
        if (!ti_io_start(self, TI_IO_SEAL, NULL, segment->number, &request)) {
            return; /* all slots are in use: the end of a request calls this again */
        }
        seal->busy = true;
        seal->segment = segment->number;
        segment->sealing = true;
    }
}

/* The footer is written, then synced; a file that gets shorter is then cut and synced again. So a
 * power cut never leaves a short file without a footer at its end. */
void ti_segments_seal_io(struct tierer *self, const struct ti_io *io, uint64_t bytes, int os_code)
{
    struct ti_seal *seal = &self->seal;
    struct ti_segment *segment = ti_log_segment(self, seal->segment);
    SL_ASSERT(segment != NULL && segment->sealing); /* a file stays while its footer is written */
    uint64_t end = seal->offset_bytes + seal->footer_bytes;
    enum ti_io_kind next = TI_IO_SEAL_SYNC;
    struct sl_disk_request request = {.verb = SL_DISK_SYNC, .file = segment->file};
    if (io->kind == TI_IO_SEAL && os_code == 0 && bytes != seal->footer_bytes) {
        os_code = EIO;
    }
    if (io->kind == TI_IO_SEAL_CUT) {
        seal->cut = true;
    } else if (io->kind == TI_IO_SEAL_SYNC && end < segment->bytes && !seal->cut) {
        request = (struct sl_disk_request){
            .verb = SL_DISK_RESIZE, .file = segment->file, .length_bytes = end};
        next = TI_IO_SEAL_CUT;
    } else if (io->kind == TI_IO_SEAL_SYNC) {
        seal_end(self, segment, os_code);
        return;
    }
    if (os_code == 0 && ti_io_start(self, next, NULL, segment->number, &request)) {
        return;
    }
    seal_end(self, segment, os_code != 0 ? os_code : EAGAIN);
}

#define DEAD_STEP 64u /* files checked in a turn */

static bool segment_is_dead(const struct tierer *self, const struct ti_segment *segment)
{
    return segment->state == TI_SEGMENT_SEALED && !segment->leaving && segment->reads == 0 &&
           segment->frames == 0 && !segment->settling &&
           ti_entries_live_in(self->entries, segment->number) == 0;
}

/* An oldest file without live values is reclaimed as if space were needed. Of other dead files only
 * the values are freed: their records may be tombstones, or replace older values. */
void ti_segments_dead(struct tierer *self)
{
    gone_notify(self);
    if (self->boot_generation == 0 || self->scanning || self->settling || self->draining ||
        self->degraded || self->segment_count == 0) {
        return;
    }
    if (self->segment_count > 1 && segment_is_dead(self, &self->segments[0])) {
        reclaim_ask(self);
    }
    for (uint32_t i = 0; i < DEAD_STEP && !self->scan_read.busy && !self->punch_frees_nothing &&
                         self->disk->ops->punch != NULL;
         i++) {
        struct ti_segment *segment = &self->segments[self->dead_cursor++ % self->segment_count];
        if (segment != &self->segments[0] && !segment->emptied && segment_is_dead(self, segment)) {
            ti_scan_empty(self, segment);
        }
    }
}

/* The registrar no longer reads the oldest file, which can be removed; or knows of a removal. */
void ti_log_reclaimed(struct tierer *self, const struct sl_msg *reply)
{
    bool done = reply != NULL && reply->code == SL_OK;
    if (self->gone_segment != 0) {
        self->gone_notified = false;
        self->gone_segment = done ? 0 : self->gone_segment;
        self->reclaim_at_ns = done ? 0 : sl_deadline_ns(self->env->now_ns, TI_HEALTH_RETRY_NS);
        return;
    }
    self->reclaiming = false;
    if (!done || self->segment_count == 0) {
        return; /* requested again while space is needed */
    }
    struct ti_segment *oldest = &self->segments[0];
    if (oldest->reads > 0 || oldest->frames > 0 || oldest->sealing || oldest->settling) {
        return; /* requested again when they have ended */
    }
    char *name = self->leaving_name;
    (void)snprintf(name, sizeof(self->leaving_name), TI_SEGMENT_NAME_FORMAT, oldest->number);
    /* A file that was cut for its footer grows again when it is reused. */
    bool fits = segments_real_bytes(self) - oldest->real_bytes + self->segment_bytes +
                    TI_SEGMENT_SLACK_BYTES <=
                self->room.bytes_max;
    bool reused = fits && self->disk->ops->prepare != NULL && self->spare.state == TI_SPARE_NONE;
    struct sl_disk_request request = {.verb = SL_DISK_REMOVE, .file = -1, .name = name};
    if (reused) { /* its blocks were written before, so writing needs no new extents */
        spare_make(self, name);
    } else if (!ti_io_start(self, TI_IO_REMOVE, NULL, oldest->number, &request)) {
        return; /* requested again */
    }
    oldest->leaving = true;
    self->reclaiming = true; /* until the file is removed or renamed */
}

void ti_segments_removed(struct tierer *self, const struct ti_io *io, uint64_t bytes, int os_code)
{
    (void)io, (void)bytes;
    self->reclaiming = false;
    if (self->spare.from[0] != '\0') { /* it could not be reused */
        self->spare = (struct ti_spare){0};
    }
    SL_ASSERT(self->segment_count > 0 && self->segments[0].leaving); /* it stays the oldest */
    if (os_code == 0 || os_code == ENOENT) {
        segment_forget(self);
        return;
    }
    /* The file still exists and counts: the registrar is asked again when the disk works. */
    self->segments[0].leaving = false;
    if (self->scan_skipped) {
        ti_scan_again(self); /* the scan has skipped this file */
    }
    ti_health_failed(self, "remove a segment", os_code);
    self->reclaim_at_ns = sl_deadline_ns(self->env->now_ns, TI_HEALTH_RETRY_NS);
}
