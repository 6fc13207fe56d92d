/* tests/support/pd/pd_decode.c - the decode engine of the demo: announces requests, waits for their
 * first tokens, loads, checks every byte, and stores what it added. */
#include "tests/support/pd/pd_engines.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LAYER_WAIT_NS (1 * SL_NS_PER_MS)

enum job_state { JOB_FREE, JOB_TICKET, JOB_RECEIVES, JOB_FAILED, JOB_STORES };
struct decode_job {
    enum job_state state;
    struct sl_op *op;
    uint64_t id, number, began_ns;
    struct pd_request request;
    uint32_t blocks[PD_BLOCKS_MAX + 1];
    uint32_t block_count, input_blocks;
    uint32_t layers; /* by layers: the number that arrived with the right bytes */
};

struct decode {
    struct pd_engine engine;
    struct decode_job jobs[PD_CONCURRENCY_MAX];
    struct sl_transfer_params receipts[PD_CONCURRENCY_MAX]; /* received in this turn */
    uint64_t next, active;
    bool *poisoned; /* device blocks that a failed request released */
    uint64_t id_base;
};

static void error_note(struct decode *self, const struct sl_error *why)
{
    if (self->engine.report->first_error[0] == '\0') {
        (void)snprintf(self->engine.report->first_error, sizeof self->engine.report->first_error,
                       "%s", why->text);
    }
}

static void blocks_checked_give(struct decode *self, struct decode_job *job, bool failed)
{
    for (uint32_t i = 0; i < job->block_count && failed; i++) {
        pd_block_poison(&self->engine, job->blocks[i]);
        self->poisoned[job->blocks[i]] = true;
    }
    pd_blocks_give(&self->engine, job->blocks, job->block_count);
    job->state = JOB_FREE;
    self->active--;
    (void)atomic_fetch_add(&self->engine.report->progress, 1);
}

/* Counts writes to a block after a failed request released it. */
static void late_writes_look(struct decode *self, uint32_t block)
{
    if (self->poisoned[block]) {
        self->engine.report->late_writes += pd_block_unpoisoned(&self->engine, block);
        self->poisoned[block] = false;
    }
}

static void job_announce(struct decode *self, const struct decode_job *job,
                         const struct sl_ticket *ticket)
{
    struct pd_message announce = {
        .word = PD_ANNOUNCE, .number = job->number, .id = job->id, .trace_id = job->id | 1};
    if (ticket != NULL) {
        announce.ticket = *ticket;
    }
    (void)pd_send(&self->engine, &announce); /* if it is lost, the deadline reports it */
}

static bool job_start(struct decode *self, struct decode_job *job)
{
    struct pd_engine *engine = &self->engine;
    struct sl_error why = {0};
    pd_request_make(engine->options, self->next, &job->request);
    job->input_blocks = job->request.block_count;
    job->block_count = job->request.block_count + 1; /* one more for output */
    if (!pd_blocks_take(engine, job->blocks, job->block_count)) {
        return false;
    }
    for (uint32_t i = 0; i < job->block_count; i++) {
        late_writes_look(self, job->blocks[i]);
        pd_block_poison(engine, job->blocks[i]); /* stale bytes cannot pass for right ones */
    }
    job->id = self->id_base + self->next;
    job->began_ns = sl_clock_monotonic_ns();
    job->number = self->next;
    job->layers = 0;
    job->state = engine->options->direct ? JOB_TICKET : JOB_RECEIVES;
    const struct sl_op_request request = {
        .tokens = job->request.tokens,
        .token_count = job->request.token_count,
        .device_blocks = job->blocks,
        .device_block_count = job->input_blocks,
        .timeout_ns = engine->options->op_timeout_ns,
        .trace_id = job->id | 1,
        .layer_count = engine->options->by_layers ? (uint32_t)engine->options->layers : 0};
    const struct sl_handover_options side = {
        .id = job->id,
        .mode = engine->options->direct ? SL_HANDOVER_DIRECT : SL_HANDOVER_BY_STORAGE};
    self->next++;
    self->active++;
    engine->report->announced++;
    engine->report->partial_tails += job->request.token_count % PD_BLOCK_TOKENS != 0 ? 1u : 0u;
    if (sl_kv_receive_start(engine->engine, &request, &side, &job->op, &why) != SL_OK) {
        engine->report->errors_other++;
        error_note(self, &why);
        blocks_checked_give(self, job, true);
        return true;
    }
    if (job->state == JOB_RECEIVES) {
        job_announce(self, job, NULL);
    }
    return true;
}

/* Direct hand-over: notifies prefill once a ticket exists, or once it is clear that none will. */
static void job_ticket(struct decode *self, struct decode_job *job)
{
    struct sl_ticket ticket;
    sl_err err = sl_op_ticket(job->op, &ticket, self->engine.options->op_timeout_ns, NULL);
    if (err != SL_ERR_BUSY) {
        job->state = JOB_RECEIVES;
        job_announce(self, job, err == SL_OK ? &ticket : NULL);
    }
}

/* Decodes: computes the output, which extends the last block, and stores completed blocks. */
static void job_store(struct decode *self, struct decode_job *job)
{
    struct pd_engine *engine = &self->engine;
    struct sl_error why = {0};
    uint32_t full = job->request.token_count / PD_BLOCK_TOKENS;
    uint32_t there = pd_request_decode(&job->request);
    SL_ASSERT(there <= job->block_count);
    for (uint32_t i = full; i < there; i++) {
        pd_block_compute(engine, job->blocks[i], job->request.chains[i]);
    }
    uint32_t whole = job->request.token_count / PD_BLOCK_TOKENS;
    job->state = JOB_STORES;
    const struct sl_op_request request = {.tokens = job->request.tokens,
                                          .token_count = job->request.token_count,
                                          .first_block = full,
                                          .device_blocks = &job->blocks[full],
                                          .device_block_count = whole - full,
                                          .timeout_ns = engine->options->op_timeout_ns};
    if (whole == full) { /* no block was completed */
        blocks_checked_give(self, job, false);
    } else if (sl_store_start(engine->engine, &request, &job->op, &why) != SL_OK) {
        engine->report->output_failed++;
        error_note(self, &why);
        blocks_checked_give(self, job, false);
    }
}

static void loaded_check(struct decode *self, struct decode_job *job,
                         const struct sl_op_result *result)
{
    struct pd_report *report = self->engine.report;
    for (uint32_t i = 0; i < result->block_count; i++) {
        report->wrong_bytes +=
            pd_block_wrong(&self->engine, job->blocks[i], job->request.chains[i]);
    }
    report->blocks_loaded += result->block_count;
    report->from_memory += result->from_memory;
    report->from_disk += result->from_disk;
    report->from_remote += result->from_remote;
    report->bytes += result->bytes;
}

static void job_received(struct decode *self, struct decode_job *job,
                         const struct sl_op_result *result)
{
    struct pd_report *report = self->engine.report;
    loaded_check(self, job, result);
    if (result->code == SL_OK && result->block_count == job->input_blocks) {
        report->complete++;
        ctl_histogram_add(&report->handover_ns, sl_clock_monotonic_ns() - job->began_ns);
    } else if (result->code == SL_ERR_INCOMPLETE) {
        report->recomputed++;
    } else {
        report->errors_502 += result->code == SL_ERR_HANDOVER ? 1u : 0u;
        report->errors_other += result->code == SL_ERR_HANDOVER ? 0u : 1u;
        error_note(self, &result->why);
        job->state = JOB_FAILED;
    }
    if (job->state != JOB_FAILED) {
        sl_op_release(&job->op);
        job_store(self, job);
    }
}

/* Checks layers as they are reported: each must be right, even if others are missing. */
static void job_layers(struct decode *self, struct decode_job *job)
{
    struct pd_engine *engine = &self->engine;
    struct sl_op_result result;
    uint32_t blocks = 0;
    while (job->layers < engine->options->layers &&
           sl_op_layer_wait(job->op, job->layers, LAYER_WAIT_NS, &blocks, NULL) == SL_OK &&
           sl_op_poll(job->op, &result) == SL_ERR_BUSY) {
        for (uint32_t i = 0; i < blocks; i++) {
            engine->report->wrong_bytes +=
                pd_layer_wrong(engine, job->blocks[i], job->request.chains[i], job->layers);
        }
        if (job->layers++ == 0) {
            const struct pd_message first = {.word = PD_LAYER, .id = job->id};
            (void)pd_send(engine, &first);
        }
        engine->report->layers_early++;
    }
}

static void job_look(struct decode *self, struct decode_job *job)
{
    struct sl_op_result result;
    struct pd_report *report = self->engine.report;
    if (job->state == JOB_TICKET) {
        job_ticket(self, job);
    }
    if (self->engine.options->by_layers && job->state == JOB_RECEIVES) {
        job_layers(self, job);
    }
    if (job->state == JOB_FREE || sl_op_poll(job->op, &result) != SL_OK) {
        return;
    }
    if (job->state == JOB_RECEIVES || job->state == JOB_TICKET) {
        job_received(self, job, &result);
    } else if (job->state == JOB_FAILED) {
        if (result.fenced || sl_op_wait_fenced(job->op, SL_NS_PER_MS, NULL) == SL_OK) {
            sl_op_release(&job->op);
            blocks_checked_give(self, job, true);
        }
    } else if (result.fenced || sl_op_wait_fenced(job->op, SL_NS_PER_MS, NULL) == SL_OK) {
        report->output_stored += result.stored_count + result.existed_count;
        report->output_failed += result.code == SL_OK ? 0u : 1u;
        sl_op_release(&job->op);
        blocks_checked_give(self, job, false);
    }
}

static struct decode_job *job_of(struct decode *self, uint64_t id)
{
    for (uint32_t i = 0; i < self->engine.options->concurrency; i++) {
        if (self->jobs[i].state == JOB_RECEIVES && self->jobs[i].id == id) {
            return &self->jobs[i];
        }
    }
    return NULL;
}

/* First tokens arrive in batches; a request that has ended does not affect others. */
static bool messages_take(struct decode *self)
{
    struct pd_engine *engine = &self->engine;
    struct pd_message message;
    sl_err codes[PD_CONCURRENCY_MAX];
    uint32_t count = 0;
    bool any = false;
    while (count < PD_CONCURRENCY_MAX && pd_receive(engine, &message)) {
        any = true;
        struct decode_job *job = job_of(self, message.id);
        if (message.word == PD_FIRST_TOKEN) {
            self->receipts[count++] = message.receipt;
        } else if (message.word == PD_FAILED && job != NULL) {
            (void)sl_op_cancel(job->op, NULL);
        }
    }
    if (count > 0 && sl_kv_arrived(engine->client, self->receipts, count, codes,
                                   engine->options->op_timeout_ns, NULL) == SL_OK) {
        for (uint32_t i = 0; i < count; i++) {
            engine->report->gone += codes[i] == SL_ERR_NOT_FOUND ? 1u : 0u;
        }
    }
    return any;
}

static void decode_play(struct decode *self)
{
    const struct pd_options *options = self->engine.options;
    while (self->next < options->requests || self->active > 0) {
        bool busy = false;
        for (uint32_t i = 0; i < options->concurrency && self->next < options->requests; i++) {
            if (self->jobs[i].state == JOB_FREE) {
                busy |= job_start(self, &self->jobs[i]);
            }
        }
        busy |= messages_take(self);
        for (uint32_t i = 0; i < options->concurrency; i++) {
            job_look(self, &self->jobs[i]);
        }
        if (!busy) {
            pd_wait_message(&self->engine);
        }
    }
    for (uint32_t i = 0; i < self->engine.block_count; i++) {
        late_writes_look(self, i);
    }
    self->engine.report->blocks_held = self->engine.block_count - self->engine.free_count;
}

int pd_decode_run(const struct ctl *ctl, const struct pd_options *options, struct pd_report *report,
                  int channel)
{
    struct decode *self = calloc(1, sizeof *self);
    struct sl_error why = {0};
    int code = CTL_SUCCESS;
    if (self == NULL) {
        return CTL_NO;
    }
    self->engine = (struct pd_engine){.options = options, .report = report, .channel = channel};
    self->id_base = sl_clock_wall_ns() << 16 | 1;
    if (pd_engine_open(&self->engine, ctl, false, &why) != SL_OK) {
        code = ctl_failed(ctl, &why);
    } else {
        self->poisoned = calloc(self->engine.block_count, sizeof *self->poisoned);
        code = self->poisoned != NULL ? CTL_SUCCESS : CTL_NO;
    }
    atomic_store(&report->decode_ready, code == CTL_SUCCESS);
    while (code == CTL_SUCCESS && !atomic_load(&report->prefill_ready)) {
        if (getppid() == 1) {
            code = CTL_NO;
        }
        pd_wait_message(&self->engine);
    }
    if (code == CTL_SUCCESS) {
        decode_play(self);
        const struct pd_message closing = {.word = PD_CLOSE};
        (void)pd_send(&self->engine, &closing);
    }
    pd_engine_close(&self->engine);
    free(self->poisoned);
    free(self);
    return code;
}
