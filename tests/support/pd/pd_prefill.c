/* tests/support/pd/pd_prefill.c - the prefill engine of the demo: computes inputs, hands them over,
 * and never waits in its loop. */
#include "tests/support/pd/pd_engines.h"

#include <stdlib.h>
#include <string.h>

#define DRAIN_NS (3 * SL_NS_PER_S) /* limit for ending open requests after decode is done */

struct prefill_job {
    struct sl_op *op;
    struct pd_message asked;
    uint32_t blocks[PD_BLOCKS_MAX];
    uint32_t block_count;
    uint32_t layers;      /* by layers: the number computed */
    bool first_is_there;  /* decode has the first of them */
    uint64_t patience_ns; /* how long to wait for decode's notice */
    bool told;            /* its first token or its failure was sent */
};

struct prefill {
    struct pd_engine engine;
    struct pd_request request; /* scratch */
    struct prefill_job jobs[PD_CONCURRENCY_MAX];
    struct pd_message asked[PD_CONCURRENCY_MAX]; /* requests not begun, oldest first */
    uint32_t asked_count;
    uint64_t closing_ns; /* when decode asked to end; 0: not yet */
};

static struct prefill_job *job_free(struct prefill *self)
{
    for (uint32_t i = 0; i < self->engine.options->concurrency; i++) {
        if (self->jobs[i].block_count == 0) {
            return &self->jobs[i];
        }
    }
    return NULL;
}

static void send_failed(struct prefill *self, const struct pd_message *asked,
                        const struct sl_error *why)
{
    struct pd_report *report = self->engine.report;
    struct pd_message message = *asked;
    message.word = PD_FAILED;
    if (report->send_failed++ == 0) {
        (void)snprintf(report->send_error, sizeof report->send_error, "%s", why->text);
    }
    (void)pd_send(&self->engine, &message); /* if it is lost, decode's deadline reports it */
}

static void job_start(struct prefill *self, struct prefill_job *job, const struct pd_message *asked)
{
    struct pd_engine *engine = &self->engine;
    struct sl_error why = {0};
    pd_request_make(engine->options, asked->number, &self->request);
    if (!pd_blocks_take(engine, job->blocks, self->request.block_count)) {
        (void)sl_fail(&why, SL_ERR_LIMIT, "no device blocks");
        send_failed(self, asked, &why);
        return;
    }
    job->block_count = self->request.block_count;
    job->asked = *asked;
    job->told = false;
    for (uint32_t i = 0; i < job->block_count; i++) {
        if (engine->options->by_layers) { /* a layer that is read too early has wrong bytes */
            pd_block_poison(engine, job->blocks[i]);
        } else {
            pd_block_compute(engine, job->blocks[i], self->request.chains[i]);
        }
    }
    job->layers = 0;
    job->first_is_there = false;
    job->patience_ns = sl_clock_monotonic_ns() + engine->options->op_timeout_ns / 2;
    const struct sl_op_request request = {
        .tokens = self->request.tokens,
        .token_count = self->request.token_count,
        .device_blocks = job->blocks,
        .device_block_count = job->block_count,
        .timeout_ns = engine->options->op_timeout_ns,
        .trace_id = asked->trace_id,
        .layer_count = engine->options->by_layers ? (uint32_t)engine->options->layers : 0};
    const struct sl_handover_options side = {
        .id = asked->id,
        .mode = engine->options->direct ? SL_HANDOVER_DIRECT : SL_HANDOVER_BY_STORAGE,
        .ticket = asked->ticket.length_bytes != 0 ? &asked->ticket : NULL};
    if (sl_kv_send_start(engine->engine, &request, &side, &job->op, &why) != SL_OK) {
        send_failed(self, asked, &why);
        pd_blocks_give(engine, job->blocks, job->block_count);
        job->block_count = 0;
    }
}

/* Computes a layer. In a direct hand-over, the last layer waits until decode has the first one or
 * patience runs out, which shows that layers are sent ahead. */
static void job_layer(struct prefill *self, struct prefill_job *job)
{
    struct pd_engine *engine = &self->engine;
    bool last = job->layers + 1ull == engine->options->layers;
    bool ahead = engine->options->direct && job->asked.ticket.length_bytes != 0 && last;
    if (ahead && !job->first_is_there && sl_clock_monotonic_ns() < job->patience_ns) {
        return;
    }
    engine->report->layers_ahead += ahead && job->first_is_there ? 1u : 0u;
    pd_request_make(engine->options, job->asked.number, &self->request);
    for (uint32_t i = 0; i < job->block_count; i++) {
        pd_layer_compute(engine, job->blocks[i], self->request.chains[i], job->layers);
    }
    (void)sl_op_layer_ready(job->op, job->layers++,
                            NULL); /* an error also fails the op, which reports it at its end */
}

/* Sends the first token when everything is acknowledged; the blocks are free after the fence. */
static void job_look(struct prefill *self, struct prefill_job *job)
{
    struct sl_op_result result;
    struct pd_engine *engine = &self->engine;
    if (engine->options->by_layers && job->layers < engine->options->layers) {
        job_layer(self, job);
    }
    if (sl_op_poll(job->op, &result) != SL_OK) {
        return;
    }
    if (!job->told) {
        struct pd_message first = job->asked;
        first.word = PD_FIRST_TOKEN;
        job->told = true;
        if (result.code == SL_OK &&
            sl_op_transfer_params(job->op, &first.receipt, &result.why) == SL_OK) {
            engine->report->sent++;
            (void)pd_send(engine, &first);
        } else {
            send_failed(self, &job->asked, &result.why);
        }
    }
    if (result.fenced || sl_op_wait_fenced(job->op, SL_NS_PER_MS, NULL) == SL_OK) {
        sl_op_release(&job->op);
        pd_blocks_give(engine, job->blocks, job->block_count);
        job->block_count = 0;
    }
}

static void first_layer_note(struct prefill *self, uint64_t id)
{
    for (uint32_t i = 0; i < self->engine.options->concurrency; i++) {
        if (self->jobs[i].block_count != 0 && self->jobs[i].asked.id == id) {
            self->jobs[i].first_is_there = true;
        }
    }
}

static bool messages_take(struct prefill *self)
{
    struct pd_message message;
    bool any = false;
    struct prefill_job *job;
    while (self->asked_count < PD_CONCURRENCY_MAX && pd_receive(&self->engine, &message)) {
        any = true;
        if (message.word == PD_ANNOUNCE) {
            self->asked[self->asked_count++] = message;
        } else if (message.word == PD_LAYER) {
            first_layer_note(self, message.id);
        } else if (message.word == PD_CLOSE) {
            self->closing_ns = sl_clock_monotonic_ns();
            self->asked_count = 0;
        }
    }
    while (self->closing_ns == 0 && self->asked_count > 0 && (job = job_free(self)) != NULL) {
        message = self->asked[0];
        memmove(self->asked, &self->asked[1], --self->asked_count * sizeof self->asked[0]);
        job_start(self, job, &message);
    }
    return any;
}

/* Decode may have all blocks of a request before prefill is notified. Open requests therefore end
 * by themselves. If prefill gave them up, they would count as failed, and its node would remember
 * them for a while. */
static bool goes_on(const struct prefill *self)
{
    uint64_t drain_ns = SL_MIN(self->engine.options->op_timeout_ns, DRAIN_NS);
    if (self->closing_ns == 0) {
        return true;
    }
    bool open = false;
    for (uint32_t i = 0; i < PD_CONCURRENCY_MAX; i++) {
        open |= self->jobs[i].block_count != 0;
    }
    return open && sl_clock_monotonic_ns() - self->closing_ns < drain_ns;
}

int pd_prefill_run(const struct ctl *ctl, const struct pd_options *options,
                   struct pd_report *report, int channel)
{
    struct prefill *self = calloc(1, sizeof *self);
    struct sl_error why = {0};
    int code = CTL_SUCCESS;
    if (self == NULL) {
        return CTL_NO;
    }
    self->engine = (struct pd_engine){.options = options, .report = report, .channel = channel};
    if (pd_engine_open(&self->engine, ctl, true, &why) != SL_OK) {
        code = ctl_failed(ctl, &why);
    }
    atomic_store(&report->prefill_ready, code == CTL_SUCCESS);
    while (code == CTL_SUCCESS && goes_on(self)) {
        uint64_t began_ns = sl_clock_monotonic_ns();
        bool busy = messages_take(self);
        for (uint32_t i = 0; i < options->concurrency; i++) {
            if (self->jobs[i].block_count != 0) {
                job_look(self, &self->jobs[i]);
            }
        }
        report->loop_longest_ns =
            SL_MAX(report->loop_longest_ns, sl_clock_monotonic_ns() - began_ns);
        if (!busy) {
            pd_wait_message(&self->engine);
        }
    }
    for (uint32_t i = 0; i < PD_CONCURRENCY_MAX; i++) {
        sl_op_release(&self->jobs[i].op);
    }
    pd_engine_close(&self->engine);
    free(self);
    return code;
}
