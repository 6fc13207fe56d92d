/* actors/tierer/tierer.c - the actor contract of the tierer: requests become jobs, completions move
 * them on. */
#include "actors/tierer/tierer.h"

#include "actors/tierer/internal.h"
#include "runtime/sl_disk_place.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define COOKIE_FOUND_BIT (UINT64_C(1) << 40)

/* ---------------------------------------------------------------- lists, slots, pages */

void job_push(struct job_list *list, struct job *job)
{
    job->next = NULL;
    if (list->last != NULL) {
        list->last->next = job;
    } else {
        list->first = job;
    }
    list->last = job;
    list->count++;
}

struct job *job_pop(struct job_list *list)
{
    struct job *job = list->first;
    if (job != NULL) {
        list->first = job->next;
        list->last = list->first == NULL ? NULL : list->last;
        list->count--;
        job->next = NULL;
    }
    return job;
}

void job_remove(struct job_list *list, struct job *job)
{
    struct job *before = NULL;
    for (struct job *at = list->first; at != NULL; before = at, at = at->next) {
        if (at != job) {
            continue;
        }
        if (before != NULL) {
            before->next = at->next;
        } else {
            list->first = at->next;
        }
        list->last = list->last == at ? before : list->last;
        list->count--;
        at->next = NULL;
        return;
    }
}

int32_t bounce_take(struct tierer *self)
{
    for (uint32_t word = 0; word < SL_COUNT(self->bounce_free); word++) {
        if (self->bounce_free[word] != 0) {
            int bit = __builtin_ctzll(self->bounce_free[word]);
            self->bounce_free[word] &= self->bounce_free[word] - 1;
            self->bounce_free_count--;
            return (int32_t)(word * 64) + bit;
        }
    }
    return -1;
}

void bounce_give(struct tierer *self, int32_t page)
{
    uint64_t bit = UINT64_C(1) << (page % 64);
    SL_ASSERT((self->bounce_free[page / 64] & bit) == 0);
    self->bounce_free[page / 64] |= bit;
    self->bounce_free_count++;
}

unsigned char *tierer_arena_at(struct tierer *self, uint32_t arena, uint64_t offset,
                               uint64_t length)
{
    if (arena >= ARENAS_MAX) {
        return NULL;
    }
    if (self->arenas[arena] == NULL && sl_arena_attach(self->env->paths->shm_dir, arena, true,
                                                       &self->arenas[arena], NULL) != SL_OK) {
        return NULL;
    }
    return sl_arena_at(self->arenas[arena], offset, length);
}

/* Registers the next piece of the arenas with the disk, as far as they are populated: pages that
 * are there are pinned quickly, and a chunk of 1 GiB would hold everything up. */
static void arenas_lend(struct tierer *self)
{
    for (uint32_t i = 0; self->lending && i < ARENAS_MAX && self->arenas[i] != NULL; i++) {
        struct sl_error why = {0};
        uint64_t from = self->lent_bytes[i];
        uint64_t chunk = sl_arena_chunk_bytes(self->arenas[i]);
        uint64_t data = sl_arena_data_bytes(self->arenas[i]);
        uint64_t to = SL_MIN(SL_MIN(from + LEND_BYTES, (from / chunk + 1) * chunk), data);
        if (from >= data || to > sl_arena_populated_bytes(self->arenas[i])) {
            continue;
        }
        void *at = sl_arena_at(self->arenas[i], from, to - from);
        sl_err err = at == NULL ? sl_fail(&why, SL_ERR_INVALID, "a piece of the arena is not there")
                                : self->disk->ops->lend(self->disk, at, to - from, &why);
        if (err != SL_OK) {
            self->lending = false;
            sl_log_write(self->env->log, SL_LOG_WARN, 0,
                         "disk: memory beyond %llu bytes is not registered (%s), using ordinary "
                         "requests",
                         (unsigned long long)from, why.text);
            return;
        }
        self->lent_bytes[i] = to;
        sl_metric_add(self->env->metrics, self->metrics.buffers_bytes, to - from);
        self->env->ops->wake_at(self->env, self->env->now_ns);
        return;
    }
}

/* Frees the slot and hands the result on. */
static void io_end(struct tierer *self, struct io *slot, uint64_t bytes, int os_code)
{
    struct io io = *slot;
    self->ios_in_flight--;
    slot->kind = IO_FREE;
    slot->next = self->io_free;
    self->io_free = slot;
    if (io.kind == IO_READ) {
        reads_io_done(self, &io, bytes, os_code);
    } else if (io.kind == IO_SEAL || io.kind == IO_SEAL_SYNC) {
        segments_seal_io(self, io.kind, bytes, os_code);
    } else if (io.kind == IO_PROBE) {
        health_probed(self, bytes, os_code);
    } else if (io.kind == IO_SETTLE) {
        log_settled(self, io.item, os_code);
    } else if (io.kind == IO_MEMBERS || io.kind == IO_MEMBERS_SYNC) {
        members_io(self, io.kind, bytes, os_code);
    } else {
        log_io_done(self, &io, bytes, os_code);
    }
}

static enum io_class io_class_of(const struct io *io)
{
    if (io->kind == IO_READ) {
        return io->job->ahead ? IO_AHEAD : IO_DEMAND;
    }
    return io->kind == IO_PROBE ? IO_DEMAND : IO_BEHIND;
}

static void io_push(struct tierer *self, struct io *io)
{
    enum io_class class = io_class_of(io);
    io->next = NULL;
    if (self->io_queues[class].last != NULL) {
        self->io_queues[class].last->next = io;
    } else {
        self->io_queues[class].first = io;
    }
    self->io_queues[class].last = io;
}

static struct io *io_pop(struct tierer *self, enum io_class class)
{
    struct io *io = self->io_queues[class].first;
    self->io_queues[class].first = io->next;
    if (io->next == NULL) {
        self->io_queues[class].last = NULL;
    }
    io->next = NULL;
    return io;
}

/* Whose turn it is; IO_CLASSES: nothing waits. */
static enum io_class io_next(const struct tierer *self)
{
    uint32_t turn = self->io_turn + 1;
    if (turn % IO_TURN_BEHIND == 0 && self->io_queues[IO_BEHIND].first != NULL) {
        return IO_BEHIND;
    }
    if ((turn + 1) % IO_TURN_AHEAD == 0 && self->io_queues[IO_AHEAD].first != NULL) {
        return IO_AHEAD;
    }
    enum io_class class = IO_DEMAND;
    while (class < IO_CLASSES && self->io_queues[class].first == NULL) {
        class ++;
    }
    return class;
}

/* Hands queued requests to the disk as far as it takes them. */
static void io_pump(struct tierer *self)
{
    for (enum io_class class = io_next(self); class != IO_CLASSES; class = io_next(self)) {
        struct io *io = self->io_queues[class].first;
        struct sl_error why = {0};
        sl_err err = self->disk->ops->submit(self->disk, &io->request, &why);
        if (err == SL_ERR_LIMIT) {
            break;
        }
        (void)io_pop(self, class);
        self->io_turn++;
        if (err !=
            SL_OK) { /* ends like a completion with this error; what it starts joins the queue */
            sl_log_write(self->env->log, SL_LOG_ERROR, 0, "disk: request refused: %s", why.text);
            io_end(self, io, 0, why.os_code != 0 ? why.os_code : EIO);
        }
    }
    (void)self->disk->ops->flush(self->disk, NULL);
}

void io_raise(struct tierer *self, const struct job *job)
{
    struct io *io = self->io_queues[IO_AHEAD].first;
    self->io_queues[IO_AHEAD].first = NULL;
    self->io_queues[IO_AHEAD].last = NULL;
    SL_ASSERT(!job->ahead); /* its requests find themselves in another queue */
    while (io != NULL) {
        struct io *next = io->next;
        io_push(self, io);
        io = next;
    }
}

bool io_start(struct tierer *self, enum io_kind kind, struct job *job, uint32_t item,
              const struct sl_disk_request *request)
{
    struct io *io = self->io_free;
    if (io == NULL || (kind == IO_READ && self->ios_in_flight >= IOS_MAX - IOS_KEPT)) {
        return false;
    }
    self->io_free = io->next;
    *io = (struct io){.kind = kind,
                      .job = job,
                      .item = item,
                      .request = *request,
                      .started_ns = self->env->now_ns,
                      .serial = ++self->next_serial};
    io->request.cookie = (uint64_t)(io - self->ios);
    io_push(self, io);
    self->ios_in_flight++;
    return true;
}

/* ---------------------------------------------------------------- jobs */

static void job_free(struct job *job)
{
    free(job->frame);
    free(job->pieces);
    free(job->items);
    free(job);
}

static void job_send(struct tierer *self, struct job *job)
{
    struct sl_msg reply = {.code = SL_OK};
    struct sl_item_spilled *spilled = NULL;
    uint64_t *codes = NULL;
    if (job->kind == JOB_WRITE) {
        spilled = calloc(job->item_count + 1u, sizeof(*spilled));
    } else {
        codes = calloc(job->item_count + 1u, sizeof(*codes));
    }
    if (spilled == NULL && codes == NULL) {
        reply.code = SL_ERR_NO_MEMORY;
    }
    for (uint32_t i = 0; reply.code == SL_OK && i < job->item_count; i++) {
        const struct item *item = &job->items[i];
        if (job->kind == JOB_WRITE) {
            bool fine = item->code == SL_OK;
            spilled[i] =
                (struct sl_item_spilled){.code = item->code,
                                         .generation = item->generation,
                                         .segment = fine ? item->segment : 0,
                                         .disk_offset_bytes = fine ? item->disk_offset : 0};
        } else {
            codes[i] = item->code;
        }
    }
    if (job->kind == JOB_WRITE) {
        reply.body.disk_write_reply.items.at = spilled;
        reply.body.disk_write_reply.items.count = reply.code == SL_OK ? job->item_count : 0;
    } else {
        reply.body.disk_read_reply.codes =
            (struct sl_u64s){codes, reply.code == SL_OK ? job->item_count : 0};
    }
    sl_return_reply(self->env, &job->back, &reply);
    free(spilled);
    free(codes);
}

void job_answer(struct tierer *self, struct job *job)
{
    if (!job->answered) {
        job->answered = true;
        job_send(self, job);
    }
}

void job_reply(struct tierer *self, struct job *job)
{
    job_answer(self, job);
    if (job->kind == JOB_READ) {
        job_free(job); /* repeated, it finds its claims gone */
        return;
    }
    free(job->frame);
    free(job->pieces);
    job->frame = NULL;
    job->pieces = NULL;
    job_push(&self->answered, job);
    if (self->answered.count > ANSWERED_MAX) {
        job_free(job_pop(&self->answered));
    }
}

static struct job *job_create(struct tierer *self, const struct sl_msg *msg, enum job_kind kind,
                              uint64_t count, uint64_t text_bytes)
{
    struct job *job = calloc(1, sizeof(*job));
    struct item *items = calloc(1, count * sizeof(*items) + text_bytes + 1);
    if (job == NULL || items == NULL) {
        free(job);
        free(items);
        sl_reply_code(self->env, msg, SL_ERR_NO_MEMORY, NULL);
        return NULL;
    }
    job->kind = kind;
    job->arrived_ns = self->env->now_ns;
    job->items = items;
    job->item_count = (uint32_t)count;
    for (uint64_t i = 0; i < count; i++) {
        items[i].bounce = -1;
    }
    sl_return_keep(msg, &job->back);
    return job;
}

static const char *text_keep(char **at, struct sl_text text)
{
    char *kept = *at;
    if (text.length > 0) {
        memcpy(kept, text.at, text.length);
    }
    *at += text.length;
    return kept;
}

static void take_write(struct tierer *self, const struct sl_msg *msg)
{
    const struct sl_body_disk_write *body = &msg->body.disk_write;
    uint64_t text_bytes = 0;
    for (uint64_t i = 0; i < body->items.count; i++) {
        text_bytes += body->items.at[i].key.length + body->items.at[i].group_key.length;
    }
    struct job *job = job_create(self, msg, JOB_WRITE, body->items.count, text_bytes);
    if (job == NULL) {
        return;
    }
    char *text = (char *)(job->items + job->item_count);
    for (uint32_t i = 0; i < job->item_count; i++) {
        const struct sl_item_spill *from = &body->items.at[i];
        struct item *to = &job->items[i];
        to->hash = sl_entries_hash(self->entries, from->key.at, from->key.length);
        to->digest = (struct sl_digest){from->digest_low, from->digest_high};
        to->generation = from->generation;
        to->length_bytes = from->length_bytes;
        to->arena = (uint32_t)from->arena;
        to->arena_offset = from->offset_bytes;
        to->part_index = (uint16_t)from->part_index;
        to->part_count = (uint16_t)from->part_count;
        to->key_length = (uint16_t)from->key.length;
        to->group_length = (uint16_t)from->group_key.length;
        to->key = text_keep(&text, from->key);
        to->group = text_keep(&text, from->group_key);
    }
    job_push(&self->waiting, job);
}

static void take_forget(struct tierer *self, const struct sl_msg *msg)
{
    const struct sl_body_disk_forget *body = &msg->body.disk_forget;
    uint64_t text_bytes = 0;
    for (uint64_t i = 0; i < body->items.count; i++) {
        text_bytes += body->items.at[i].key.length;
    }
    struct job *job = job_create(self, msg, JOB_FORGET, body->items.count, text_bytes);
    if (job == NULL) {
        return;
    }
    char *text = (char *)(job->items + job->item_count);
    for (uint32_t i = 0; i < job->item_count; i++) {
        const struct sl_item_forget *from = &body->items.at[i];
        struct item *to = &job->items[i];
        to->hash = sl_entries_hash(self->entries, from->key.at, from->key.length);
        to->segment = (uint32_t)from->segment;
        to->disk_offset = from->disk_offset_bytes;
        to->length_bytes = from->length_bytes;
        to->key_length = (uint16_t)from->key.length;
        to->key = text_keep(&text, from->key);
        to->group = text;
        if (to->segment != 0 && log_segment(self, to->segment) == NULL) {
            to->dead = true; /* it left with its segment: forgotten already */
        }
    }
    job_push(&self->waiting, job);
}

static void take_read(struct tierer *self, const struct sl_msg *msg)
{
    bool ahead = msg->type == SL_MSG_DISK_PREFETCH;
    const struct sl_item_fill *items =
        ahead ? msg->body.disk_prefetch.items.at : msg->body.disk_read.items.at;
    struct job *job = job_create(
        self, msg, JOB_READ,
        ahead ? msg->body.disk_prefetch.items.count : msg->body.disk_read.items.count, 0);
    if (job == NULL) {
        return;
    }
    job->ahead = ahead;
    for (uint32_t i = 0; i < job->item_count; i++) {
        const struct sl_item_fill *from = &items[i];
        struct item *to = &job->items[i];
        to->hash = sl_entries_hash(self->entries, from->key.at, from->key.length);
        to->digest = (struct sl_digest){from->digest_low, from->digest_high};
        to->generation = from->generation;
        to->ref = (sl_ref)from->ref;
        to->length_bytes = from->length_bytes;
        to->arena = (uint32_t)from->arena;
        to->arena_offset = from->offset_bytes;
        to->segment = (uint32_t)from->segment;
        to->disk_offset = from->disk_offset_bytes;
    }
    job_push(ahead ? &self->reads_ahead : &self->reads, job);
}

static struct job *job_find(const struct job_list *list, const struct sl_msg *msg)
{
    for (struct job *job = list->first; job != NULL; job = job->next) {
        if (job->back.seq == msg->seq && job->back.type == msg->type &&
            strcmp(job->back.to, msg->sender.at) == 0) {
            return job;
        }
    }
    return NULL;
}

/* A request that is repeated while its job is under way is answered by that job; later it gets the
 * same answer again. */
static bool job_is_known(struct tierer *self, const struct sl_msg *msg)
{
    const struct job_list *lists[] = {&self->waiting, &self->active, &self->reads,
                                      &self->reads_ahead, &self->answered};
    for (size_t i = 0; i < SL_COUNT(lists); i++) {
        struct job *job = job_find(lists[i], msg);
        if (job != NULL && job->answered) {
            job_send(self, job);
        }
        if (job != NULL) {
            return true;
        }
    }
    return false;
}

static uint32_t jobs_waiting(const struct tierer *self)
{
    return self->waiting.count + self->active.count + self->reads.count + self->reads_ahead.count;
}

static void take_request(struct tierer *self, const struct sl_msg *msg)
{
    if (job_is_known(self, msg) || msg->seq < self->floor_seq) {
        return; /* below the floor nobody waits for an answer */
    }
    if (self->draining) {
        sl_reply_code(self->env, msg, SL_ERR_DRAINING, NULL);
    } else if (jobs_waiting(self) >= JOBS_MAX) {
        sl_reply_code(self->env, msg, SL_ERR_LIMIT, NULL);
    } else if (msg->type == SL_MSG_DISK_WRITE) {
        take_write(self, msg);
    } else if (msg->type == SL_MSG_DISK_FORGET) {
        take_forget(self, msg);
    } else {
        take_read(self, msg);
    }
}

/* ---------------------------------------------------------------- the actor */

static const struct sl_metric_row metric_rows[] = {
    SL_METRIC_ROW(tierer, metrics.bytes_written, "bytes_written"),
    SL_METRIC_ROW(tierer, metrics.bytes_read, "bytes_read"),
    SL_METRIC_ROW(tierer, metrics.values_written, "values_written"),
    SL_METRIC_ROW(tierer, metrics.values_read, "values_read"),
    SL_METRIC_ROW(tierer, metrics.corrupt, "corrupt_count"),
    SL_METRIC_ROW(tierer, metrics.io_errors, "io_error_count"),
    SL_METRIC_ROW(tierer, metrics.segments, "segments"),
    SL_METRIC_ROW(tierer, metrics.used_bytes, "disk_used_bytes"),
    SL_METRIC_ROW(tierer, metrics.live_values, "live_values"),
    SL_METRIC_ROW(tierer, metrics.live_bytes, "live_bytes"),
    SL_METRIC_ROW(tierer, metrics.reclaimed_segments, "reclaimed_segments"),
    SL_METRIC_ROW(tierer, metrics.tombstones, "tombstones_written"),
    SL_METRIC_ROW(tierer, metrics.syncs, "syncs"),
    SL_METRIC_ROW(tierer, metrics.sealed_segments, "sealed_segments"),
    SL_METRIC_ROW(tierer, metrics.in_flight, "requests_in_flight"),
    SL_METRIC_ROW(tierer, metrics.buffers_bytes, "registered_bytes"),
    SL_METRIC_ROW(tierer, metrics.unreadable, "unreadable_places"),
    SL_METRIC_ROW(tierer, metrics.emptied_segments, "emptied_segments"),
    SL_HISTOGRAM_ROW(tierer, metrics.sync_ns, "sync_ns"),
    SL_METRIC_ROW(tierer, metrics.queue, "queued_requests"),
    SL_HISTOGRAM_ROW(tierer, metrics.write_ns, "write_ns"),
    SL_HISTOGRAM_ROW(tierer, metrics.read_ns, "read_ns"),
};

static sl_err tierer_sizes(struct tierer *self, struct sl_error *why)
{
    const struct sl_config *config = self->env->config;
    uint32_t disk_count = sl_config_disk_count(config);
    struct sl_disk_sizes sizes;
    if (sl_config_u64(config, SL_SET_disk) == 0) {
        return sl_fail(why, SL_ERR_CONFIG,
                       "disk is 0: there is no disk tier on this node, so no tierer");
    }
    if (sl_config_u64(config, SL_SET_rank) >= disk_count) {
        return sl_fail(why, SL_ERR_CONFIG, "rank %llu: disk_path names %u directories, from 0 on",
                       (unsigned long long)sl_config_u64(config, SL_SET_rank), disk_count);
    }
    sl_err err = sl_disk_sizes(config, &sizes, why);
    if (err != SL_OK) {
        return err;
    }
    if (sizes.cut) {
        sl_log_write(
            self->env->log, SL_LOG_WARN, 0,
            "disk_segment is more than a quarter of the disk's share, using segments of %llu bytes",
            (unsigned long long)sizes.segment_bytes);
    }
    self->disk_bytes_max = sizes.share_bytes;
    self->segment_bytes = sizes.segment_bytes;
    self->commit_delay_ns = sl_config_u64(config, SL_SET_disk_commit_delay);
    sl_staging_init(&self->staging, sl_config_u64(config, SL_SET_disk_staging),
                    sl_config_u64(config, SL_SET_disk_staging_usable));
    return SL_OK;
}

static sl_err tierer_memory(struct tierer *self, struct sl_error *why)
{
    self->segments = calloc(SEGMENTS_MAX, sizeof(*self->segments));
    self->ios = calloc(IOS_MAX, sizeof(*self->ios));
    self->bounce = aligned_alloc(SL_PAGE_BYTES, (size_t)BOUNCE_PAGES * SL_PAGE_BYTES);
    self->frame_buffer = aligned_alloc(SL_PAGE_BYTES, SL_TIER_FRAME_HEADER_BYTES_MAX);
    self->search_buffer = aligned_alloc(SL_PAGE_BYTES, SEARCH_BYTES);
    self->scan_items = calloc(FOUND_ITEMS_MAX, sizeof(*self->scan_items));
    self->probe.page = aligned_alloc(SL_PAGE_BYTES, SL_PAGE_BYTES);
    if (self->segments == NULL || self->ios == NULL || self->bounce == NULL ||
        self->frame_buffer == NULL || self->search_buffer == NULL || self->scan_items == NULL ||
        self->probe.page == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for the tierer's tables");
    }
    for (uint32_t i = 0; i < IOS_MAX; i++) {
        self->ios[i].next = i + 1 < IOS_MAX ? &self->ios[i + 1] : NULL;
    }
    self->io_free = &self->ios[0];
    memset(self->bounce_free, 0xff, sizeof(self->bounce_free));
    self->bounce_free_count = BOUNCE_PAGES;
    uint64_t entries_max = SL_MIN(self->disk_bytes_max / SL_PAGE_BYTES + 1, UINT64_C(1) << 31);
    return sl_entries_create(self->env->ops->random_u64(self->env), entries_max, &self->entries,
                             why);
}

static sl_err tierer_init(void *state, struct sl_env *env, struct sl_error *why)
{
    struct tierer *self = state;
    self->env = env;
    self->members.file = -1;
    sl_metrics_define(env->metrics, metric_rows, SL_COUNT(metric_rows), self);
    sl_err err = tierer_sizes(self, why);
    if (err == SL_OK) {
        err = tierer_memory(self, why);
    }
    if (err == SL_OK) {
        err = sl_calls_create(env, 64, &self->calls, why);
    }
    if (err == SL_OK) {
        err =
            env->ops->disk_open(env, env->paths->disk_dirs[sl_config_u64(env->config, SL_SET_rank)],
                                (uint32_t)sl_config_u64(env->config, SL_SET_disk_queue_depth),
                                sl_config_bool(env->config, SL_SET_disk_direct), &self->disk, why);
    }
    if (err == SL_OK && self->disk->place != NULL) {
        sl_log_write(env->log, SL_LOG_INFO, 0, "disk: its files are in '%s'", self->disk->place);
    }
    self->lending = err == SL_OK && self->disk->ops->lend != NULL;
    sl_metric_set(env->metrics, self->metrics.buffers_bytes, 0);
    if (err == SL_OK) {
        err = log_open(self, why);
    }
    if (err == SL_OK) {
        log_settle(self);
    }
    return err;
}

static void take_io(struct tierer *self, const struct sl_msg *msg)
{
    const struct sl_body_local_io *body = &msg->body.local_io;
    if (body->cookie < IOS_MAX && self->ios[body->cookie].kind != IO_FREE) {
        io_end(self, &self->ios[body->cookie], body->bytes, (int)body->os_code);
    }
}

static void take_reply(struct tierer *self, const struct sl_msg *msg)
{
    struct sl_call call;
    if (!sl_calls_match(self->calls, msg, &call)) {
        return;
    }
    if (call.type == SL_MSG_DISK_RECLAIM) {
        log_reclaimed(self, msg);
    } else if (call.type == SL_MSG_DISK_FOUND &&
               call.cookie == (COOKIE_FOUND_BIT | self->scan_generation)) {
        scan_answered(self, msg);
    }
}

/* What an idle moment is good for. */
static void tierer_idle(struct tierer *self)
{
    if (self->reads.count + self->reads_ahead.count + self->waiting.count == 0) {
        arenas_lend(self);
    }
}

static void maybe_finish(struct tierer *self)
{
    struct segment *newest = log_newest(self);
    if (!self->draining || !log_idle(self) || self->reads.count + self->reads_ahead.count > 0) {
        return;
    }
    if (newest != NULL && newest->state == SEGMENT_OPEN) {
        newest->state = SEGMENT_CLOSED; /* with a footer the next start has nothing to look for */
        segments_seal(self);
        io_pump(self);
    }
    if (segments_all_sealed(self)) {
        self->env->ops->finish(self->env);
    }
}

static sl_err tierer_handle(void *state, const struct sl_msg *msg)
{
    struct tierer *self = state;
    switch (msg->type) {
    case SL_MSG_DISK_WRITE:
    case SL_MSG_DISK_FORGET:
    case SL_MSG_DISK_READ:
    case SL_MSG_DISK_PREFETCH:
        take_request(self, msg);
        break;
    case SL_MSG_DISK_RAISE:
        reads_raise(self, msg);
        break;
    case SL_MSG_FENCE:
        reads_fence(self, msg);
        break;
    case SL_MSG_DISK_MEMBERS:
        members_take(self, msg);
        break;
    case SL_MSG_LOCAL_IO:
        take_io(self, msg);
        break;
    case SL_MSG_HELLO_REPLY:
        if (msg->code == SL_OK && msg->body.hello_reply.boot_generation != self->boot_generation &&
            !self->draining) {
            self->boot_generation = msg->body.hello_reply.boot_generation;
            scan_start(self);
        }
        (void)tierer_arena_at(self, 0, 0, 1); /* attached as soon as there is one */
        health_directory(self);               /* each heartbeat */
        tierer_idle(self);
        break;
    case SL_MSG_LOCAL_JOB:
        segments_prepared(self, msg->code);
        break;
    case SL_MSG_DISK_RECLAIM_REPLY:
    case SL_MSG_DISK_FOUND_REPLY:
        take_reply(self, msg);
        break;
    default:
        if (!SL_MSG_IS_REPLY(msg->type)) {
            sl_reply_code(self->env, msg, SL_ERR_UNSUPPORTED, NULL);
        }
        break;
    }
    reads_fences_answer(self);
    reads_pump(self); /* loads go before write-back */
    log_pump(self);
    io_pump(self);
    scan_pump(self);
    if (self->degraded) {
        health_look(self);
    }
    sl_metric_set(self->env->metrics, self->metrics.queue, jobs_waiting(self));
    sl_metric_set(self->env->metrics, self->metrics.in_flight, self->ios_in_flight);
    maybe_finish(self);
    /* A directory that vanished takes its files along, though we hold them open. */
    return self->gone || self->unsettled || self->members.emptied ? SL_ERR_DEVICE : SL_OK;
}

static sl_err tierer_tick(void *state, uint64_t now_ns)
{
    struct tierer *self = state;
    struct sl_call call;
    while (sl_calls_expired(self->calls, now_ns, &call)) {
        if (call.type == SL_MSG_DISK_RECLAIM) {
            log_reclaimed(self, NULL);
        } else if (call.type == SL_MSG_DISK_FOUND &&
                   call.cookie == (COOKIE_FOUND_BIT | self->scan_generation)) {
            scan_answered(self, NULL);
        }
    }
    reads_pump(self);
    log_pump(self);
    io_pump(self);
    scan_pump(self);
    health_look(self);
    tierer_idle(self);
    maybe_finish(self);
    return SL_OK;
}

static void tierer_drain(void *state)
{
    struct tierer *self = state;
    self->draining = true;
    log_pump(self);
    io_pump(self);
    maybe_finish(self);
}

static void tierer_fini(void *state)
{
    struct tierer *self = state;
    struct job_list *lists[] = {&self->waiting, &self->active, &self->reads, &self->reads_ahead,
                                &self->answered};
    if (self->disk != NULL) {
        log_close(self);
        self->disk->ops->destroy(self->disk); /* before the memory that requests were lent */
        self->disk = NULL;
    }
    for (size_t i = 0; i < SL_COUNT(lists); i++) {
        for (struct job *job = job_pop(lists[i]); job != NULL; job = job_pop(lists[i])) {
            job_free(job);
        }
    }
    for (uint32_t i = 0; i < ARENAS_MAX; i++) {
        sl_arena_close(&self->arenas[i]);
    }
    sl_index_view_close(&self->index);
    sl_calls_destroy(&self->calls);
    sl_entries_destroy(&self->entries);
    free(self->segments);
    free(self->ios);
    free(self->bounce);
    free(self->frame_buffer);
    free(self->search_buffer);
    free(self->scan_records);
    free(self->scan_items);
    free(self->probe.page);
}

const struct sl_actor sl_tierer_actor = {
    .role = "tierer",
    .ranked = true,
    .state_bytes = sizeof(struct tierer),
    .init = tierer_init,
    .handle = tierer_handle,
    .tick = tierer_tick,
    .drain = tierer_drain,
    .fini = tierer_fini,
};
