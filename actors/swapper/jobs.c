/* actors/swapper/jobs.c - the bounded table of COPYs, and the memory of answered ones. */
#include "actors/swapper/jobs.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Buffers up to this many items stay with their slot. */
#define ITEMS_KEPT 4096u
/* Remembered answers and fenced ops: sets of four ways; a new one replaces the oldest of its
 * set. */
#define SEEN_SETS 2048u
#define SEEN_WAYS 4u

struct seen_set {
    uint64_t sender[SEEN_WAYS]; /* hash of its name */
    uint64_t number[SEEN_WAYS]; /* sequence or op id; 0: none */
    uint64_t fence[SEEN_WAYS];  /* of a fenced op: sequence of its last FENCE */
    uint32_t next;
};

struct sw_jobs {
    struct sw_job slots[SW_JOBS_MAX + SW_ANSWERS_MAX];
    struct seen_set answered[SEEN_SETS];
    struct seen_set fenced[SEEN_SETS];
    struct sw_job *answers[SW_ANSWERS_MAX]; /* a ring, oldest at next_answer */
    uint32_t next_answer;
    uint32_t queued_count;
    uint64_t queued_items;
    uint64_t turn;
};

sl_err sw_jobs_create(struct sw_jobs **out, struct sl_error *why)
{
    *out = calloc(1, sizeof(**out));
    return *out == NULL ? sl_fail(why, SL_ERR_NO_MEMORY, "no memory for the job table") : SL_OK;
}

static void job_free_buffers(struct sw_job *job)
{
    free(job->items);
    free(job->done);
    free(job->digests);
    free(job->chunks);
    job->items = NULL;
    job->done = NULL;
    job->digests = NULL;
    job->chunks = NULL;
    job->item_capacity = 0;
}

void sw_jobs_destroy(struct sw_jobs **jobs)
{
    if (jobs == NULL || *jobs == NULL) {
        return;
    }
    for (size_t i = 0; i < SL_COUNT((*jobs)->slots); i++) {
        job_free_buffers(&(*jobs)->slots[i]);
    }
    free(*jobs);
    *jobs = NULL;
}

/* ---- answered and fenced ---- */

static uint64_t name_hash(const char *name, uint64_t length)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a: names are ours, a few dozen */
    for (uint64_t i = 0; i < length; i++) {
        hash = (hash ^ (unsigned char)name[i]) * UINT64_C(0x100000001b3);
    }
    return hash;
}

static struct seen_set *seen_set_of(struct seen_set *sets, uint64_t sender, uint64_t number)
{
    return &sets[((sender ^ number) * UINT64_C(0x9e3779b97f4a7c15) >> 32) % SEEN_SETS];
}

/* The way with this number; SEEN_WAYS: none. */
static uint32_t seen_find(const struct seen_set *set, uint64_t sender, uint64_t number)
{
    uint32_t way = 0;
    while (way < SEEN_WAYS &&
           (number == 0 || set->number[way] != number || set->sender[way] != sender)) {
        way++;
    }
    return way;
}

static uint32_t seen_add(struct seen_set *set, uint64_t sender, uint64_t number)
{
    uint32_t way = seen_find(set, sender, number);
    if (way == SEEN_WAYS) {
        way = set->next;
        set->next = (set->next + 1) % SEEN_WAYS;
        set->sender[way] = sender;
        set->number[way] = number;
        set->fence[way] = 0;
    }
    return way;
}

/* Sequences start anywhere and may wrap around. */
static bool seq_before(uint64_t seq, uint64_t other)
{
    return (int64_t)(seq - other) < 0;
}

/* ---- jobs ---- */

static bool job_is_of(const struct sw_job *job, struct sl_text sender)
{
    return strlen(job->back.to) == sender.length && sender.length > 0 &&
           memcmp(job->back.to, sender.at, sender.length) == 0;
}

static bool job_is(const struct sw_job *job, const struct sl_msg *msg)
{
    return job->back.seq == msg->seq && job_is_of(job, msg->sender);
}

enum sw_known sw_jobs_known(struct sw_jobs *jobs, const struct sl_msg *msg, struct sw_job **job)
{
    for (size_t i = 0; i < SL_COUNT(jobs->slots); i++) {
        struct sw_job *slot = &jobs->slots[i];
        if (slot->state != SW_JOB_FREE && job_is(slot, msg)) {
            *job = slot;
            return slot->state == SW_JOB_QUEUED ? SW_QUEUED : SW_ANSWERED;
        }
    }
    uint64_t sender = name_hash(msg->sender.at, msg->sender.length);
    if (seen_find(seen_set_of(jobs->answered, sender, msg->seq), sender, msg->seq) < SEEN_WAYS) {
        return SW_OLD;
    }
    const struct seen_set *fences = seen_set_of(jobs->fenced, sender, msg->op_id);
    uint32_t way = seen_find(fences, sender, msg->op_id);
    return way < SEEN_WAYS && seq_before(msg->seq, fences->fence[way]) ? SW_FENCED : SW_NEW;
}

static sl_err job_reserve(struct sw_job *job, uint32_t count, struct sl_error *why)
{
    if (count <= job->item_capacity) {
        return SL_OK;
    }
    job_free_buffers(job);
    uint32_t capacity = SL_MAX(count, 64u);
    job->items = malloc(capacity * sizeof(*job->items));
    job->done = malloc((capacity + 7) / 8);
    job->digests = malloc((size_t)capacity * 16);
    if (job->items == NULL || job->done == NULL || job->digests == NULL) {
        job_free_buffers(job);
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for %u parts", count);
    }
    job->item_capacity = capacity;
    return SL_OK;
}

sl_err sw_jobs_add(struct sw_jobs *jobs, const struct sl_msg *msg, struct sw_job **out,
                   struct sl_error *why)
{
    const struct sl_body_copy *body = &msg->body.copy;
    if (jobs->queued_count == SW_JOBS_MAX ||
        jobs->queued_items + body->items.count > SW_ITEMS_MAX) {
        return sl_fail(why, SL_ERR_LIMIT, "%u copies with %" PRIu64 " parts are queued",
                       jobs->queued_count, jobs->queued_items);
    }
    if (body->look && (!body->out || body->chunks)) {
        return sl_fail(why, SL_ERR_INVALID, "look: only out, without chunks");
    }
    struct sw_job *job = jobs->slots;
    while (job->state != SW_JOB_FREE) { /* there are more slots than queued and kept jobs */
        job++;
    }
    uint32_t count = (uint32_t)body->items.count;
    sl_err err = job_reserve(job, count, why);
    if (err != SL_OK) {
        return err;
    }
    sl_reply_route_keep(msg, &job->back);
    job->state = SW_JOB_QUEUED;
    job->out = body->out;
    job->chunked = body->out && body->chunks;
    job->looks = body->look;
    free(job->chunks);
    job->chunks = NULL;
    job->chunk_bytes = 0;
    job->chunk_at = 0;
    job->checked = false;
    job->engine_id = body->engine_id;
    job->turn = ++jobs->turn;
    job->item_count = count;
    job->next_item = 0;
    job->verified = 0;
    job->verify_due = job->verify_all = false;
    job->slices = 0;
    job->done_count = 0;
    job->bytes = 0;
    job->code = SL_OK;
    job->why = (struct sl_error){0};
    job->event_state = SW_EVENT_OVER;
    if (body->event.length == SL_EVENT_BYTES) {
        job->event_state = SW_EVENT_NEW;
        memcpy(job->event_handle, body->event.at, SL_EVENT_BYTES);
    }
    if (count > 0) {
        memcpy(job->items, body->items.at, count * sizeof(*job->items));
        memset(job->done, 0, (count + 7) / 8);
        memset(job->digests, 0, (size_t)count * 16);
    }
    jobs->queued_count++;
    jobs->queued_items += count;
    *out = job;
    return SL_OK;
}

void sw_jobs_end(struct sw_jobs *jobs, struct sw_job *job)
{
    SL_ASSERT(job->state == SW_JOB_QUEUED && job->slices == 0);
    jobs->queued_count--;
    jobs->queued_items -= job->item_count;
    job->state = SW_JOB_ANSWERED;
    uint64_t sender = name_hash(job->back.to, strlen(job->back.to));
    (void)seen_add(seen_set_of(jobs->answered, sender, job->back.seq), sender, job->back.seq);
    struct sw_job *oldest = jobs->answers[jobs->next_answer];
    if (oldest != NULL) {
        oldest->state = SW_JOB_FREE;
        if (oldest->item_capacity > ITEMS_KEPT) {
            job_free_buffers(oldest);
        }
    }
    jobs->answers[jobs->next_answer] = job;
    jobs->next_answer = (jobs->next_answer + 1) % SW_ANSWERS_MAX;
}

bool sw_job_is_before(const struct sw_job *job, const struct sl_msg *fence)
{
    bool of_sender = job_is_of(job, fence->sender);
    if (fence->op_id == 0) { /* all from this sender, or its predecessor of that name */
        return of_sender && seq_before(job->back.seq, fence->seq);
    }
    return job->back.op_id == fence->op_id && (!of_sender || seq_before(job->back.seq, fence->seq));
}

void sw_jobs_fence(struct sw_jobs *jobs, const struct sl_msg *fence)
{
    uint64_t sender = name_hash(fence->sender.at, fence->sender.length);
    struct seen_set *set = seen_set_of(jobs->fenced, sender, fence->op_id);
    uint32_t before = seen_find(set, sender, fence->op_id);
    uint32_t way = seen_add(set, sender, fence->op_id);
    if (before == SEEN_WAYS || seq_before(set->fence[way], fence->seq)) {
        set->fence[way] = fence->seq;
    }
}

void sw_jobs_turn(struct sw_jobs *jobs, struct sw_job *job)
{
    job->turn = ++jobs->turn;
}

struct sw_job *sw_jobs_each(struct sw_jobs *jobs, uint32_t *cursor)
{
    while (*cursor < SL_COUNT(jobs->slots)) {
        struct sw_job *job = &jobs->slots[(*cursor)++];
        if (job->state == SW_JOB_QUEUED) {
            return job;
        }
    }
    return NULL;
}

uint32_t sw_jobs_queued(const struct sw_jobs *jobs)
{
    return jobs->queued_count;
}
