/* actors/tierer/jobs.c - requests of the registrar as jobs, and their answers. */
#include "actors/tierer/internal.h"

#include <stdlib.h>
#include <string.h>

void ti_job_push(struct ti_job_list *list, struct ti_job *job)
{
    job->next = NULL;
    *(list->first != NULL ? &list->last->next : &list->first) = job;
    list->last = job;
    list->count++;
}

void ti_job_remove(struct ti_job_list *list, struct ti_job *job)
{
    struct ti_job **at = &list->first, *before = NULL;
    for (; *at != job; at = &before->next) {
        before = *at;
    }
    *at = job->next;
    list->last = list->last == job ? before : list->last;
    list->count--;
}

struct ti_job *ti_job_pop(struct ti_job_list *list)
{
    struct ti_job *job = list->first;
    if (job != NULL) {
        ti_job_remove(list, job);
    }
    return job;
}

static void job_free(struct ti_job *job)
{
    free(job->frame);
    free(job->pieces);
    free(job->items);
    free(job);
}

static void job_send(struct tierer *self, struct ti_job *job)
{
    bool write = job->kind == TI_JOB_WRITE;
    struct sl_item_spilled *spilled = write ? calloc(job->item_count + 1u, sizeof(*spilled)) : NULL;
    uint64_t *codes = write ? NULL : calloc(job->item_count + 1u, sizeof(*codes));
    bool room = spilled != NULL || codes != NULL;
    struct sl_msg reply = {.code = room ? SL_OK : SL_ERR_NO_MEMORY};
    uint32_t count = room ? job->item_count : 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct ti_item *item = &job->items[i];
        bool fine = item->code == SL_OK;
        if (write) {
            spilled[i] =
                (struct sl_item_spilled){.code = item->code,
                                         .generation = item->generation,
                                         .segment = fine ? item->segment : 0,
                                         .disk_offset_bytes = fine ? item->disk_offset : 0};
        } else {
            codes[i] = item->code;
        }
    }
    if (write) {
        int64_t left = ti_budget_left(self);
        reply.body.disk_write_reply.items.at = spilled;
        reply.body.disk_write_reply.items.count = count;
        reply.body.disk_write_reply.budget_left = left > 0 ? (uint64_t)left : 0;
        reply.body.disk_write_reply.budget_debt = left < 0 ? (uint64_t)-left : 0;
    } else {
        reply.body.disk_read_reply.codes = (struct sl_u64s){codes, count};
    }
    sl_reply_route_send(self->env, &job->back, &reply);
    free(spilled);
    free(codes);
}

void ti_job_answer(struct tierer *self, struct ti_job *job)
{
    if (!job->answered) {
        job->answered = true;
        job_send(self, job);
    }
}

void ti_job_reply(struct tierer *self, struct ti_job *job)
{
    bool read = job->kind == TI_JOB_READ;
    struct ti_job_list *list = read ? &self->answered_reads : &self->answered;
    ti_job_answer(self, job);
    free(job->frame);
    free(job->pieces);
    job->frame = NULL;
    job->pieces = NULL;
    ti_job_push(list, job);
    if (list->count > (read ? TI_ANSWERED_READS_MAX : TI_ANSWERED_MAX)) {
        job_free(ti_job_pop(list));
    }
}

static struct ti_job *job_create(struct tierer *self, const struct sl_msg *msg,
                                 enum ti_job_kind kind, uint64_t count, uint64_t text_bytes)
{
    struct ti_job *job = calloc(1, sizeof(*job));
    struct ti_item *items = calloc(1, count * sizeof(*items) + text_bytes + 1);
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
    sl_reply_route_keep(msg, &job->back);
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
    struct ti_job *job = job_create(self, msg, TI_JOB_WRITE, body->items.count, text_bytes);
    if (job == NULL) {
        return;
    }
    char *text = (char *)(job->items + job->item_count);
    for (uint32_t i = 0; i < job->item_count; i++) {
        const struct sl_item_spill *from = &body->items.at[i];
        struct ti_item *to = &job->items[i];
        to->hash = ti_entries_hash(self->entries, from->key.at, from->key.length);
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
    ti_job_push(&self->waiting, job);
}

static void take_forget(struct tierer *self, const struct sl_msg *msg)
{
    const struct sl_body_disk_forget *body = &msg->body.disk_forget;
    uint64_t text_bytes = 0;
    for (uint64_t i = 0; i < body->items.count; i++) {
        text_bytes += body->items.at[i].key.length;
    }
    struct ti_job *job = job_create(self, msg, TI_JOB_FORGET, body->items.count, text_bytes);
    if (job == NULL) {
        return;
    }
    char *text = (char *)(job->items + job->item_count);
    for (uint32_t i = 0; i < job->item_count; i++) {
        const struct sl_item_forget *from = &body->items.at[i];
        struct ti_item *to = &job->items[i];
        to->hash = ti_entries_hash(self->entries, from->key.at, from->key.length);
        to->segment = (uint32_t)from->segment;
        to->disk_offset = from->disk_offset_bytes;
        to->length_bytes = from->length_bytes;
        to->key_length = (uint16_t)from->key.length;
        to->key = text_keep(&text, from->key);
        to->group = text;
        if (to->segment != 0 && ti_log_segment(self, to->segment) == NULL) {
            to->dead = true; /* it left with its log file: forgotten already */
        }
    }
    ti_job_push(&self->waiting, job);
}

/* A value that is one piece needs no hashes. */
static uint64_t hash_count(uint64_t length_bytes)
{
    return length_bytes > TI_READ_PIECE_BYTES ? sl_digest_chunks(length_bytes) : 0;
}

static void take_read(struct tierer *self, const struct sl_msg *msg)
{
    bool ahead = msg->body.disk_read.ahead;
    const struct sl_item_fill *items = msg->body.disk_read.items.at;
    uint64_t count = msg->body.disk_read.items.count;
    uint64_t hashes_bytes = 0;
    for (uint64_t i = 0; i < count; i++) {
        hashes_bytes += hash_count(items[i].length_bytes) * sizeof(uint64_t);
    }
    struct ti_job *job = job_create(self, msg, TI_JOB_READ, count, hashes_bytes);
    if (job == NULL) {
        return;
    }
    uint64_t *hashes = (uint64_t *)(job->items + job->item_count);
    job->ahead = ahead;
    for (uint32_t i = 0; i < job->item_count; i++) {
        const struct sl_item_fill *from = &items[i];
        struct ti_item *to = &job->items[i];
        to->hash = ti_entries_hash(self->entries, from->key.at, from->key.length);
        to->digest = (struct sl_digest){from->digest_low, from->digest_high};
        to->generation = from->generation;
        to->ref = (sl_ref)from->ref;
        to->length_bytes = from->length_bytes;
        to->arena = (uint32_t)from->arena;
        to->arena_offset = from->offset_bytes;
        to->segment = (uint32_t)from->segment;
        to->disk_offset = from->disk_offset_bytes;
        to->hashes = hash_count(to->length_bytes) > 0 ? hashes : NULL;
        hashes += hash_count(to->length_bytes);
    }
    ti_job_push(ahead ? &self->reads_ahead : &self->reads, job);
    if (!ahead) {
        ti_reads_want(self, job);
    }
}

static struct ti_job *job_find(const struct ti_job_list *list, const struct sl_msg *msg)
{
    for (struct ti_job *job = list->first; job != NULL; job = job->next) {
        if (sl_reply_route_matches(&job->back, msg) && job->back.type == msg->type) {
            return job;
        }
    }
    return NULL;
}

/* A repeated request is answered by its job while that runs, afterwards with the same answer. */
static bool job_is_known(struct tierer *self, const struct sl_msg *msg)
{
    const struct ti_job_list *lists[] = {&self->waiting,  &self->active,
                                         &self->reads,    &self->reads_ahead,
                                         &self->answered, &self->answered_reads};
    for (size_t i = 0; i < SL_COUNT(lists); i++) {
        struct ti_job *job = job_find(lists[i], msg);
        if (job != NULL && job->answered) {
            job_send(self, job);
        }
        if (job != NULL) {
            return true;
        }
    }
    return false;
}

uint32_t ti_jobs_waiting(const struct tierer *self)
{
    return self->waiting.count + self->active.count + self->reads.count + self->reads_ahead.count;
}

void ti_job_take(struct tierer *self, const struct sl_msg *msg)
{
    if (job_is_known(self, msg)) {
        return;
    }
    if (msg->seq < self->floor_seq) { /* late or repeated: it may have been done before */
        sl_reply_code(self->env, msg, SL_ERR_TIMEOUT, NULL);
    } else if (self->draining) {
        sl_reply_code(self->env, msg, SL_ERR_DRAINING, NULL);
    } else if (ti_jobs_waiting(self) >= TI_JOBS_MAX) {
        sl_reply_code(self->env, msg, SL_ERR_LIMIT, NULL);
    } else if (msg->type == SL_MSG_DISK_WRITE) {
        take_write(self, msg);
    } else if (msg->type == SL_MSG_DISK_FORGET) {
        take_forget(self, msg);
    } else {
        take_read(self, msg);
    }
}

void ti_jobs_free(struct tierer *self)
{
    struct ti_job_list *lists[] = {&self->waiting,     &self->active,   &self->reads,
                                   &self->reads_ahead, &self->answered, &self->answered_reads};
    for (size_t i = 0; i < SL_COUNT(lists); i++) {
        for (struct ti_job *job = ti_job_pop(lists[i]); job != NULL; job = ti_job_pop(lists[i])) {
            job_free(job);
        }
    }
}
