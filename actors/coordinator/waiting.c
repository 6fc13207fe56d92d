/* actors/coordinator/waiting.c - load or recompute: which blocks a load waits for, if its engine
 * has sent its compute rate.
 *
 * An engine computes the rest of its prompt after the load, and a loaded prefix has no gaps. So the
 * time to the first token is arrival(cut) + compute(rest), and the plan is the cut with the
 * smallest sum. Blocks in memory are always taken; those after a block on disk arrive with it. A
 * plan depends on estimates, and the disk may be slower than before. So each BRING, from disks or
 * other nodes, has a soft deadline at which the load ends with what has arrived. */
#include "actors/coordinator/internal.h"

#include <stdio.h>
#include <string.h>

#define PAGES_AGAIN_NS  SL_NS_PER_S
#define SAMPLE_NS       (50 * SL_NS_PER_MS)
#define SAMPLE_BUSY_NS  (5 * SL_NS_PER_MS) /* less reading does not show the speed */
#define SAMPLE_SHARE    0.5                /* weight of a new sample in the speed, */
#define TOOK_SHARE      0.3                /* and in the lateness of a disk */
#define LATE_MAX_NS     10e9
#define LATE_HALF_NS    (2 * SL_NS_PER_S) /* half-life of lateness: disks recover unseen */
#define PREFETCH_NS     50e6              /* of reading, at most: a load may have to wait for it */
#define PROMOTE_NS      300e3             /* for the messages of a BRING */
#define PATIENCE        1.25              /* times the promised time, then it is checked */
#define CHECK_NS        1e6
#define CALL_MARGIN_NS  (20 * SL_NS_PER_MS) /* the registrar then drops what has not begun */
#define PLAN_FIND_MAX   64u
#define PLAN_BLOCKS_MAX 4096u
#define REMOTE_FORGET   0.9 /* decay of a time that is not measured again */
#define REMOTE_LATE     2.0 /* times the time in which nothing came */

/* Clamped: a slow engine's whole prompt may exceed 64 bits of nanoseconds. */
static uint64_t whole_ns(double ns)
{
    return ns >= (double)INT64_MAX ? (uint64_t)INT64_MAX : (uint64_t)SL_MAX(ns, 0.0);
}

/* ---- the engine ---- */

bool co_wait_limited(const struct co_op *op)
{
    return op->wait.tokens_per_s != 0 && op->handover == NULL && op->layers.in == 0 &&
           op->type->kind == CO_LOAD && !op->type->direct;
}

static double token_of(const struct co_op *op, uint32_t block)
{
    uint64_t token = ((uint64_t)op->first_block + block) * op->engine->block_tokens;
    bool known = op->token_count > 0;
    return (double)(known ? SL_MIN(token, (uint64_t)op->token_count) : token);
}

/* For blocks [from, end). A token's work grows with its position: attention covers all before
 * it. */
static double compute_ns(const struct co_op *op, uint32_t from, uint32_t end)
{
    double first = token_of(op, from), last = token_of(op, SL_MAX(from, end));
    double work = last - first;
    if (op->wait.doubles_tokens != 0) {
        work += (last * last - first * first) / (2.0 * (double)op->wait.doubles_tokens);
    }
    return work * 1e9 / (double)op->wait.tokens_per_s;
}

/* ---- the disks ---- */

static void pages_open(struct coordinator *self)
{
    struct co_pace *pace = &self->pace;
    uint32_t count = sl_config_disk_count(self->env->config);
    if (self->env->now_ns < pace->open_ns || sl_config_u64(self->env->config, SL_SET_disk) == 0) {
        return;
    }
    pace->open_ns = self->env->now_ns + PAGES_AGAIN_NS;
    pace->page_count = SL_MIN(count, SL_DISK_PATHS_MAX);
    for (uint32_t i = 0; i < pace->page_count; i++) {
        char path[1400];
        (void)snprintf(path, sizeof(path), "%s/metrics.tierer.%u", self->env->paths->shm_dir, i);
        if (pace->pages[i] == NULL) { /* the page outlives its tierer */
            (void)sl_metrics_view_open(path, &pace->pages[i], NULL);
        }
    }
}

static void page_read(const struct sl_metrics_view *view, uint64_t *bytes, uint64_t *busy_ns,
                      uint64_t *queue_bytes)
{
    const struct {
        const char *name;
        uint64_t *sum;
    } wanted[] = {
        {"bytes_read", bytes}, {"read_busy_ns", busy_ns}, {"read_queue_bytes", queue_bytes}};
    char name[SL_METRIC_NAME_BYTES];
    uint64_t value;
    for (uint32_t i = 0; sl_metrics_view_metric(view, i, name, &value); i++) {
        for (size_t k = 0; k < SL_COUNT(wanted); k++) {
            *wanted[k].sum += strcmp(name, wanted[k].name) == 0 ? value : 0;
        }
    }
}

/* Samples the tierers' pages. */
static void pace_measure(struct coordinator *self)
{
    struct co_pace *pace = &self->pace;
    uint64_t bytes = 0, busy_ns = 0, queue_bytes = 0;
    uint32_t count = 0;
    pages_open(self);
    for (uint32_t i = 0; i < pace->page_count; i++) {
        if (pace->pages[i] != NULL) {
            page_read(pace->pages[i], &bytes, &busy_ns, &queue_bytes);
            count++;
        }
    }
    pace->queue_bytes = queue_bytes / SL_MAX(count, 1u);
    if (bytes < pace->read_bytes || busy_ns < pace->busy_ns) { /* a page was replaced */
        pace->read_bytes = 0;
        pace->busy_ns = 0;
    }
    bool due = pace->bytes_per_ns == 0 || self->env->now_ns >= pace->sampled_ns + SAMPLE_NS;
    if (due && bytes > pace->read_bytes && busy_ns >= pace->busy_ns + SAMPLE_BUSY_NS) {
        double speed = (double)(bytes - pace->read_bytes) / (double)(busy_ns - pace->busy_ns);
        pace->bytes_per_ns = pace->bytes_per_ns == 0
                                 ? speed
                                 : pace->bytes_per_ns + (speed - pace->bytes_per_ns) * SAMPLE_SHARE;
        pace->read_bytes = bytes;
        pace->busy_ns = busy_ns;
        pace->sampled_ns = self->env->now_ns;
    }
}

static double lateness_ns(const struct coordinator *self, uint32_t disk)
{
    const struct co_pace *pace = &self->pace;
    double value = pace->late_ns[disk];
    uint64_t past_ns = self->env->now_ns - pace->late_at_ns[disk];
    for (uint32_t i = 0; value > 1 && past_ns >= LATE_HALF_NS; i++) {
        value /= 2;
        past_ns -= LATE_HALF_NS;
    }
    return value;
}

/* Lateness is added, not a factor: a delay of one block, such as a queue in the kernel, says little
 * about the speed of many, which the pages show. */
static void pace_learn(struct coordinator *self, uint32_t disk, double took_ns, double expected_ns,
                       double share)
{
    struct co_pace *pace = &self->pace;
    if (expected_ns > 0) {
        double late = SL_MIN(SL_MAX(took_ns - expected_ns, 0.0), LATE_MAX_NS);
        double before = lateness_ns(self, disk);
        pace->late_ns[disk] = before + (late - before) * share;
        pace->late_at_ns[disk] = self->env->now_ns;
    }
}

static double reading_ns(const struct co_pace *pace, uint64_t bytes)
{
    return PROMOTE_NS + (double)bytes / pace->bytes_per_ns;
}

static uint64_t queued_before(const struct co_pace *pace, uint32_t disk)
{
    return SL_MAX(pace->asked_bytes[disk], pace->queue_bytes);
}

/* ---- the plan ---- */

enum there { THERE_NOT, THERE_IN_MEMORY, THERE_ON_DISK };
struct plan {
    uint64_t disk_bytes[CO_DISKS_MAX]; /* up to the current block */
    double arrival_ns;                 /* when it is in memory: the latest of all disks */
    double best_ns;                    /* arrival minus saved computation; the least so far */
    uint32_t first, cut, end;          /* blocks of the op */
};

static uint32_t disk_of(uint32_t slot)
{
    return SL_MIN(slot, CO_DISKS_MAX - 1);
}

/* Adds the next block of the prefix; moves the cut if the first token is no later with it. */
static void plan_add(struct coordinator *self, const struct co_op *op, struct plan *plan,
                     enum there there, uint32_t disk, uint64_t bytes)
{
    const struct co_pace *pace = &self->pace;
    if (there == THERE_ON_DISK) {
        plan->disk_bytes[disk] += bytes;
        double arrival = reading_ns(pace, queued_before(pace, disk) + plan->disk_bytes[disk]) +
                         lateness_ns(self, disk);
        plan->arrival_ns = SL_MAX(plan->arrival_ns, arrival);
    }
    plan->end++;
    double first_token = plan->arrival_ns - compute_ns(op, plan->first, plan->end);
    if (first_token <= plan->best_ns) {
        plan->best_ns = first_token;
        plan->cut = plan->end;
    }
}

/* Adds blocks of the slice, whose parts were looked up. */
static void plan_slice(struct coordinator *self, const struct co_op *op, struct plan *plan,
                       uint32_t from, uint32_t end)
{
    uint32_t part_count = op->engine->part_count;
    for (uint32_t block = from; block < end; block++) {
        uint64_t bytes = 0;
        uint32_t disk = 0;
        for (uint32_t i = block * part_count; i < (block + 1) * part_count; i++) {
            if (op->parts[i].state == CO_PART_ON_DISK) {
                bytes += co_cut_of(op, i)->length_bytes;
                disk = disk_of(op->parts[i].disk);
            }
        }
        plan_add(self, op, plan, bytes > 0 ? THERE_ON_DISK : THERE_IN_MEMORY, disk, bytes);
    }
}

/* Adds blocks after the slice, judged by their first part. False: one exists nowhere. */
static bool plan_find(struct coordinator *self, struct co_op *op, struct plan *plan, char *texts,
                      size_t room, uint32_t count)
{
    const struct co_cut *cut = &op->engine->cuts[0];
    for (uint32_t i = 0; i < count; i++) {
        char *text = texts + i * room;
        self->find_keys[i] = (struct sl_key){
            .at = text,
            .length = co_part_key_write(op->engine, op->blocks[plan->end + i].key, cut, text)};
    }
    sl_index_find_batch(self->view, self->find_keys, count, self->find_entries, self->find_codes);
    for (uint32_t i = 0; i < count; i++) {
        const struct sl_entry *entry = &self->find_entries[i];
        if (self->find_codes[i] != SL_OK) {
            return false;
        }
        bool memory = entry->extent.generation != 0;
        if (!memory && entry->disk.valid == 0) {
            return false;
        }
        plan_add(self, op, plan, memory ? THERE_IN_MEMORY : THERE_ON_DISK,
                 memory ? 0 : disk_of(entry->disk.disk), op->engine->block_bytes);
    }
    return true;
}

static void plan_after_slice(struct coordinator *self, struct co_op *op, struct plan *plan)
{
    size_t room = strlen(op->engine->model) + sizeof("//63/") + sizeof(op->engine->pool_names[0]);
    uint32_t last =
        (uint32_t)SL_MIN((uint64_t)op->block_count, (uint64_t)plan->end + PLAN_BLOCKS_MAX);
    size_t key_length = 0;
    for (uint32_t block = plan->end; block < last; block++) {
        if (op->blocks[block].key.at == NULL) {
            last = block;
            break;
        }
        key_length = SL_MAX(key_length, (size_t)op->blocks[block].key.length);
    }
    room += key_length;
    char *texts = plan->end < last ? co_memory_take(&op->work, PLAN_FIND_MAX, room) : NULL;
    bool going = texts != NULL; /* without memory only the slice counts */
    while (going && plan->end < last) {
        going = plan_find(self, op, plan, texts, room, SL_MIN(last - plan->end, PLAN_FIND_MAX));
    }
}

static void count_left(struct coordinator *self, struct co_op *op, uint32_t from, uint32_t end,
                       double saved_ns)
{
    double tokens = token_of(op, end) - token_of(op, from);
    op->wait.left += end - from;
    co_count(self, self->metric.not_awaited_count, end - from);
    co_count(self, self->metric.not_awaited_tokens, (uint64_t)tokens);
    co_count(self, self->metric.not_awaited_us, whole_ns(saved_ns) / SL_NS_PER_US);
    co_trace(self, op, "not waited for", "", end - from);
}

/* Prefetches skipped blocks from disk, for the next request of these tokens. It runs after all
 * loads and takes only space that costs nothing. Otherwise a common prefix would be computed each
 * time, for as long as the disk is slow. A load cannot overtake reads at the disk. So these are
 * few, and none if other reads wait. */
static void prefetch_rest(struct coordinator *self, struct co_op *op, uint32_t from, uint32_t end)
{
    struct co_pace *pace = &self->pace;
    uint32_t part_count = op->engine->part_count, count = 0;
    double bytes_left = PREFETCH_NS * pace->bytes_per_ns;
    struct sl_text *keys =
        co_memory_take(&op->work, (size_t)(end - from) * part_count, sizeof(*keys));
    for (uint32_t i = from * part_count; keys != NULL && i < end * part_count && bytes_left > 0;
         i++) {
        bool wanted = op->parts[i].state == CO_PART_ON_DISK;
        if (wanted && queued_before(pace, disk_of(op->parts[i].disk)) > 0) {
            return;
        }
        if (wanted) {
            bytes_left -= (double)co_cut_of(op, i)->length_bytes;
            keys[count++] = co_key_text(&op->part_keys[i]);
        }
    }
    struct sl_msg prefetch = {.type = SL_MSG_BRING, .op_id = op->id, .trace_id = op->trace_id};
    prefetch.body.bring =
        (struct sl_body_bring){.keys = {.at = keys, .count = count}, .ahead = true};
    if (count > 0 && !pace->prefetching) {
        pace->prefetching =
            co_ask(self, "registrar", &prefetch, co_cookie(CO_CALL_PREFETCH, 0, 0), NULL) == SL_OK;
    }
}

void co_wait_prefetched(struct coordinator *self, uint32_t index, const struct sl_msg *reply)
{
    (void)index;
    (void)reply;
    self->pace.prefetching = false;
}

uint32_t co_wait_plan(struct coordinator *self, struct co_op *op, uint32_t waiting, uint32_t end,
                      bool ends)
{
    struct co_wait *wait = &op->wait;
    if (!co_wait_limited(op)) {
        return end;
    }
    if (wait->over) { /* the soft deadline has passed */
        count_left(self, op, op->at + waiting, SL_MAX(wait->cut, op->at + end), 0);
        return waiting;
    }
    pace_measure(self);
    wait->cut = op->at + end;
    wait->promised_ns = 0;
    if (self->pace.bytes_per_ns == 0) {
        return end; /* no estimate: only the soft deadline */
    }
    struct plan plan = {
        .first = op->at + waiting, .cut = op->at + waiting, .end = op->at + waiting};
    plan_slice(self, op, &plan, waiting, end);
    if (!ends && !wait->planned) {
        plan_after_slice(self, op, &plan);
    }
    wait->cut = plan.cut;
    if (plan.cut >= op->at + end) {
        return end;
    }
    wait->planned = true;
    double all_ns = plan.arrival_ns - compute_ns(op, plan.first, plan.end);
    prefetch_rest(self, op, plan.cut - op->at, end);
    count_left(self, op, plan.cut, plan.end, all_ns - plan.best_ns);
    return plan.cut - op->at;
}

/* ---- the soft deadline ---- */

uint64_t co_wait_begins(struct coordinator *self, struct co_op *op)
{
    struct co_pace *pace = &self->pace;
    struct co_wait *wait = &op->wait;
    uint64_t now_ns = self->env->now_ns;
    uint32_t first = op->asked[0] / op->engine->part_count;
    wait->disk = 0;
    wait->ahead_bytes = 0;
    for (uint32_t i = 0; i < op->asked_count; i++) {
        uint32_t disk = disk_of(op->parts[op->asked[i]].disk);
        wait->asked_bytes[disk] += co_cut_of(op, op->asked[i])->length_bytes;
        wait->disk = wait->asked_bytes[disk] > wait->asked_bytes[wait->disk] ? disk : wait->disk;
    }
    wait->ahead_bytes = queued_before(pace, wait->disk);
    for (uint32_t disk = 0; disk < CO_DISKS_MAX; disk++) {
        pace->asked_bytes[disk] += wait->asked_bytes[disk];
    }
    wait->began_ns = 0;
    if (!co_wait_limited(op)) {
        return op->deadline_ns;
    }
    bool known = pace->bytes_per_ns > 0;
    wait->expected_ns =
        known ? reading_ns(pace, wait->ahead_bytes + wait->asked_bytes[wait->disk]) : 0;
    wait->promised_ns = known ? wait->expected_ns + lateness_ns(self, wait->disk) : 0;
    wait->limit_ns = compute_ns(op, op->at + first, SL_MAX(wait->cut, op->at + op->slice_count));
    wait->began_ns = now_ns;
    double check_ns = known ? wait->promised_ns * PATIENCE + CHECK_NS : wait->limit_ns;
    co_wake(self, op, sl_deadline_ns(now_ns, whole_ns(SL_MIN(check_ns, wait->limit_ns))));
    uint64_t until_ns = sl_deadline_ns(now_ns, whole_ns(wait->limit_ns) + CALL_MARGIN_NS);
    return SL_MIN(until_ns, op->deadline_ns);
}

void co_wait_forget(struct coordinator *self, struct co_op *op)
{
    for (uint32_t disk = 0; disk < CO_DISKS_MAX; disk++) {
        SL_ASSERT(self->pace.asked_bytes[disk] >= op->wait.asked_bytes[disk]);
        self->pace.asked_bytes[disk] -= op->wait.asked_bytes[disk];
        op->wait.asked_bytes[disk] = 0;
    }
    op->wait.began_ns = 0;
}

void co_wait_answered(struct coordinator *self, struct co_op *op, bool all)
{
    const struct co_wait *wait = &op->wait;
    if (wait->began_ns != 0 && all) {
        pace_learn(self, wait->disk, (double)(self->env->now_ns - wait->began_ns),
                   wait->expected_ns, TOOK_SHARE);
    }
    op->wake_ns = wait->began_ns != 0 ? SL_NEVER_NS : op->wake_ns;
    co_wait_forget(self, op);
}

/* Bytes of the BRING that are not in memory; *first: the slice's first block with some of them. */
static uint64_t missing_bytes(struct coordinator *self, struct co_op *op, uint32_t *first)
{
    uint64_t bytes = 0;
    *first = op->slice_count;
    for (uint32_t from = 0, count; from < op->asked_count; from += count) {
        count = SL_MIN(op->asked_count - from, CO_FIND_MAX);
        for (uint32_t i = 0; i < count; i++) {
            self->find_keys[i] = op->part_keys[op->asked[from + i]];
        }
        sl_index_find_batch(self->view, self->find_keys, count, self->find_entries,
                            self->find_codes);
        for (uint32_t i = 0; i < count; i++) {
            if (self->find_codes[i] != SL_OK || self->find_entries[i].extent.generation == 0) {
                uint32_t part = op->asked[from + i];
                bytes += co_cut_of(op, part)->length_bytes;
                *first = SL_MIN(*first, part / op->engine->part_count);
            }
        }
    }
    return bytes;
}

/* Time for the rest, if it continues as slowly as so far; 0: unknown. */
static double rest_ns(struct coordinator *self, const struct co_op *op, uint64_t missing,
                      double passed_ns)
{
    const struct co_wait *wait = &op->wait;
    if (wait->expected_ns == 0 || missing == 0) {
        return 0;
    }
    pace_measure(self);
    uint64_t queue = self->pace.queue_bytes > missing ? self->pace.queue_bytes - missing : 0;
    uint64_t ahead = SL_MIN(wait->ahead_bytes, queue);
    double worse = SL_MAX(passed_ns / wait->expected_ns, 1.0);
    return (double)(ahead + missing) / self->pace.bytes_per_ns * worse;
}

bool co_wait_is_over(struct coordinator *self, struct co_op *op)
{
    uint64_t now_ns = self->env->now_ns;
    struct co_wait *wait = &op->wait;
    uint32_t first = 0;
    if (wait->began_ns == 0 || !sl_index_view_ready(self->env, &self->view)) {
        return false;
    }
    double passed_ns = (double)(now_ns - wait->began_ns);
    uint64_t missing = missing_bytes(self, op, &first);
    double rest = rest_ns(self, op, missing, passed_ns);
    double compute = compute_ns(op, op->at + first, SL_MAX(wait->cut, op->at + op->slice_count));
    if (passed_ns + 1 < wait->limit_ns && (missing == 0 || rest <= compute)) {
        double next_ns = SL_MIN(SL_MAX(rest / 2, CHECK_NS), wait->limit_ns - passed_ns);
        co_wake(self, op, sl_deadline_ns(now_ns, whole_ns(next_ns) + 1));
        return false;
    }
    /* Reads that the tierer has begun will reach memory. The registrar drops the rest when the
     * BRING's time is over: a slow disk has enough to do. */
    if (missing > 0) {
        pace_learn(self, wait->disk, passed_ns + rest, wait->expected_ns, 1);
        co_count(self, self->metric.soft_missed_count, 1);
        co_count(self, self->metric.not_awaited_us, whole_ns(rest - compute) / SL_NS_PER_US);
        co_trace(self, op, "soft deadline missed", "",
                 (uint32_t)SL_MIN(missing, (uint64_t)UINT32_MAX));
    }
    co_call_forget(self, &op->call_seq);
    co_wait_forget(self, op);
    return wait->over = true;
}

/* ---- other nodes ---- */

bool co_wait_fetch(struct coordinator *self, struct co_op *op, uint32_t block)
{
    struct co_pace *pace = &self->pace;
    if (!co_wait_limited(op)) {
        return true;
    }
    uint32_t end = op->slice_count;
    double expected_ns =
        pace->remote_ns_per_byte * (double)(end - block) * (double)op->engine->block_bytes;
    bool worth = !op->wait.over && expected_ns <= compute_ns(op, op->at + block, op->at + end);
    if (!worth) {
        pace->remote_ns_per_byte *= REMOTE_FORGET;
        co_count(self, self->metric.fetch_spared_count, 1);
        co_trace(self, op, "nodes not asked", "", end - block);
    }
    return worth;
}

uint64_t co_wait_fetch_until(struct coordinator *self, struct co_op *op, uint32_t block,
                             uint64_t until_ns)
{
    op->wait.fetch_ns = self->env->now_ns;
    if (!co_wait_limited(op)) {
        return until_ns;
    }
    double limit_ns = compute_ns(op, op->at + block, op->at + op->slice_count);
    return SL_MIN(until_ns, sl_deadline_ns(self->env->now_ns, whole_ns(limit_ns)));
}

/* If nothing came in time, only a lower bound is known. */
void co_wait_fetched(struct coordinator *self, const struct co_op *op,
                     const struct co_fetched *fetched)
{
    struct co_pace *pace = &self->pace;
    double passed_ns = (double)(self->env->now_ns - op->wait.fetch_ns);
    bool missed = fetched->late && co_wait_limited(op);
    if (missed) {
        co_count(self, self->metric.soft_missed_count, 1);
        co_trace(self, op, "soft deadline missed", "transporter",
                 fetched->asked_parts - fetched->came_parts);
    }
    double part_bytes = (double)op->engine->block_bytes / (double)op->engine->part_count;
    if (fetched->came_parts > 0) {
        double each = passed_ns / ((double)fetched->came_parts * part_bytes);
        pace->remote_ns_per_byte =
            pace->remote_ns_per_byte == 0
                ? each
                : pace->remote_ns_per_byte + (each - pace->remote_ns_per_byte) * TOOK_SHARE;
    } else if (missed) {
        double least = passed_ns / ((double)fetched->asked_parts * part_bytes);
        pace->remote_ns_per_byte = SL_MAX(pace->remote_ns_per_byte, least * REMOTE_LATE);
    }
}

static void wait_fini(struct coordinator *self)
{
    for (uint32_t i = 0; i < SL_DISK_PATHS_MAX; i++) {
        sl_metrics_view_close(&self->pace.pages[i]);
    }
}

const struct co_feature co_wait_feature = {.fini = wait_fini};
