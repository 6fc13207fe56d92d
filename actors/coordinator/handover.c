/* actors/coordinator/handover.c - hand-overs from prefill to decode: what both modes share.
 *
 * Prefill's side is a STORE that names the hand-over, decode's a LOAD. A row of the table is what
 * this node knows of both. On one node a row has both sides, and each is woken when the other
 * fails. On two nodes each has its own row; decode's learns of the commit by the receipt that came
 * with the first token (ARRIVED) or by a notification (HANDOVER_NOTIFY). Rows are lost with the
 * process: holds then end by their time, and repeated ops make new rows. */
#include "actors/coordinator/internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How long a consumed row may wait for the end of its hold, and a failed one for a late side. */
#define RELEASE_WAIT_NS (10 * SL_NS_PER_S)

enum landed { LANDED_NOTHING, LANDED_PIECES, LANDED_ALL };

static sl_err handovers_init(struct coordinator *self, struct sl_error *why)
{
    self->handover_max = (uint32_t)sl_config_u64(self->env->config, SL_SET_handovers_max);
    if (sl_cluster_name(self->env->config, self->node, NULL) != SL_OK) {
        self->node[0] = '\0'; /* without a name the node has no peers */
    }
    self->handover_next_ns = SL_NEVER_NS;
    self->handovers = calloc(self->handover_max, sizeof(*self->handovers));
    if (self->handovers == NULL || !sl_table_reserve(&self->handover_by_id, self->handover_max)) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for %" PRIu32 " hand-overs",
                       self->handover_max);
    }
    for (uint32_t i = self->handover_max; i-- > 0;) {
        self->handovers[i].free_next = self->handover_free;
        self->handover_free = &self->handovers[i];
    }
    return SL_OK;
}

static void handovers_fini(struct coordinator *self)
{
    free(self->handovers);
    sl_table_fini(&self->handover_by_id);
}

/* ---- table ---- */

struct co_handover *co_handover_find(const struct coordinator *self, uint64_t id)
{
    return SL_TABLE_FIRST(&self->handover_by_id, sl_table_hash(id), struct co_handover, node);
}

static void handover_count(struct coordinator *self, uint32_t count)
{
    self->handover_count = count;
    sl_metric_set(self->env->metrics, self->metric.handover_active_count, count);
}

void co_handover_look_at(struct coordinator *self, uint64_t at_ns)
{
    if (at_ns < self->handover_next_ns) {
        self->handover_next_ns = at_ns;
        self->env->ops->wake_at(self->env, at_ns);
    }
}

/* After each change of state: schedules its deadline and traces it. */
static void handover_entered(struct coordinator *self, struct co_handover *row)
{
    static const char *const texts[SL_HANDOVER_STATES] = {
        "handover announced", "handover allocated", "handover producing", "handover committed",
        "handover consumed",  "handover aborted",   "handover released"};
    sl_trace_event(self->env->metrics, self->env->now_ns, row->trace_id, texts[row->machine.state],
                   row->machine.code != SL_OK ? sl_err_name(row->machine.code) : "",
                   row->receipt.block_end);
    co_handover_look_at(self, row->machine.deadline_ns);
}

struct co_handover *co_handover_new(struct coordinator *self, uint64_t id, uint64_t trace_id)
{
    const struct sl_config *config = self->env->config;
    uint64_t wait_ns = sl_config_u64(config, SL_SET_handover_wait);
    uint64_t limit_ns[SL_HANDOVER_STATES];
    struct co_handover *row = self->handover_free;
    if (row == NULL) {
        return NULL;
    }
    for (uint32_t i = 0; i < SL_HANDOVER_STATES; i++) {
        limit_ns[i] = i < SL_HANDOVER_COMMITTED ? wait_ns : RELEASE_WAIT_NS;
    }
    limit_ns[SL_HANDOVER_COMMITTED] = sl_config_u64(config, SL_SET_handover_hold);
    self->handover_free = row->free_next;
    *row = (struct co_handover){.id = id, .trace_id = trace_id, .started_ns = self->env->now_ns};
    sl_handover_start(&row->machine, limit_ns, self->env->now_ns);
    sl_table_add(&self->handover_by_id, &row->node, sl_table_hash(id));
    handover_count(self, self->handover_count + 1);
    handover_entered(self, row);
    return row;
}

static void handover_forget(struct coordinator *self, struct co_handover *row)
{
    SL_ASSERT(row->send == NULL && row->receive == NULL);
    co_call_forget(self, &row->notify_seq); /* the row is free from now on */
    co_call_forget(self, &row->hold_query_seq);
    sl_table_remove(&self->handover_by_id, &row->node);
    *row = (struct co_handover){.free_next = self->handover_free};
    self->handover_free = row;
    handover_count(self, self->handover_count - 1);
}

static sl_err handover_step(struct coordinator *self, struct co_handover *row,
                            enum sl_handover_state target)
{
    sl_err err = sl_handover_step(&row->machine, target, self->env->now_ns);
    if (err == SL_OK) {
        handover_entered(self, row);
    }
    return err;
}

/* Unanswered ops see the change in their next tick: no op is ended by another one. */
void co_handover_sides_wake(struct coordinator *self, struct co_handover *row)
{
    struct co_op *sides[] = {row->send, row->receive};
    for (uint32_t i = 0; i < SL_COUNT(sides); i++) {
        if (sides[i] != NULL) {
            co_wake(self, sides[i], self->env->now_ns);
        }
    }
}

static void handover_aborted(struct coordinator *self, struct co_handover *row, const char *reason)
{
    (void)snprintf(row->reason, sizeof(row->reason), "%s", reason);
    co_count(self, self->metric.handover_aborted_count, 1);
    sl_log_write(self->env->log, row->machine.code == SL_ERR_CANCELLED ? SL_LOG_INFO : SL_LOG_WARN,
                 row->trace_id, "hand-over %016" PRIx64 " failed while it was %s: %s", row->id,
                 sl_handover_state_text(row->machine.aborted_in), row->reason);
    handover_entered(self, row);
    co_handover_sides_wake(self, row);
    co_notify_decode(self, row);
}

static void handover_abort(struct coordinator *self, struct co_handover *row, sl_err code,
                           const char *reason)
{
    if (sl_handover_abort(&row->machine, code, self->env->now_ns) == SL_OK) {
        handover_aborted(self, row, reason);
    }
}

/* ---- releasing ---- */

/* Ends a hold. keys: of a peer's receipt; 0: unchecked. False: not sent; the hold ends by its
 * time. */
static bool hold_end_send(struct coordinator *self, uint64_t id, struct sl_digest keys,
                          uint64_t trace_id, uint64_t cookie)
{
    struct sl_msg end = {.type = SL_MSG_HOLD, .trace_id = trace_id};
    end.body.hold =
        (struct sl_body_hold){.hold_id = id, .keys_low = keys.low, .keys_high = keys.high};
    return co_ask(self, "registrar", &end, cookie, NULL) == SL_OK;
}

/* Releases what an ended row holds, then the row. One that failed before decode came is kept for a
 * while, because decode will ask for it. */
static void handover_release(struct coordinator *self, struct co_handover *row)
{
    struct sl_handover *machine = &row->machine;
    bool over = machine->state == SL_HANDOVER_CONSUMED || machine->state == SL_HANDOVER_ABORTED;
    if (!over) {
        return;
    }
    if (machine->loans == SL_HANDOVER_HELD && !row->ending) {
        row->ending = hold_end_send(self, row->id, (struct sl_digest){0}, row->trace_id,
                                    co_cookie(CO_CALL_HOLD, 0, (uint32_t)(row - self->handovers)));
        if (row->ending) {
            return;
        }
        sl_handover_return(machine, SL_HANDOVER_HELD);
    }
    bool remembered = machine->state == SL_HANDOVER_ABORTED && !row->received;
    if (!remembered && handover_step(self, row, SL_HANDOVER_RELEASED) == SL_OK) {
        handover_forget(self, row);
    }
}

/* Without an answer (NULL) the registrar ends the hold by its time. */
void co_handover_hold_ended(struct coordinator *self, uint32_t index, const struct sl_msg *reply)
{
    (void)reply;
    struct co_handover *row = &self->handovers[index];
    if (row->id != 0 && row->ending) {
        row->ending = false;
        sl_handover_return(&row->machine, SL_HANDOVER_HELD);
        handover_release(self, row);
    }
}

/* ---- the sides ---- */

static void receipt_keep(struct co_receipt *receipt, const struct sl_item_receipt *item)
{
    *receipt = (struct co_receipt){.known = true,
                                   .block_end = (uint32_t)item->block_end,
                                   .keys = {.low = item->keys_low, .high = item->keys_high}};
    (void)snprintf(receipt->node, sizeof(receipt->node), "%.*s", (int)item->node.length,
                   item->node.length > 0 ? item->node.at : "");
}

static bool receipt_equal(const struct co_receipt *a, const struct co_receipt *b)
{
    return a->block_end == b->block_end && sl_digest_equal(a->keys, b->keys);
}

/* A receipt proves the commit where prefill is on another node. */
void co_handover_commits(struct coordinator *self, struct co_handover *row)
{
    (void)handover_step(self, row, SL_HANDOVER_ALLOCATED);
    (void)handover_step(self, row, SL_HANDOVER_PRODUCING);
    (void)handover_step(self, row, SL_HANDOVER_COMMITTED);
}

static sl_err side_taken(struct co_op *op, const char *side)
{
    co_reason(op, "hand-over %016" PRIx64 " has a %s already", op->handover_id, side);
    return SL_ERR_BUSY;
}

static sl_err send_begin(struct coordinator *self, struct co_op *op, struct co_handover *row,
                         uint64_t hold_ns)
{
    if (row->send != NULL) {
        return side_taken(op, "prefill");
    }
    if (row->machine.state == SL_HANDOVER_ABORTED) {
        co_reason(op, "%s", row->reason);
        return SL_ERR_CANCELLED;
    }
    (void)handover_step(self, row, SL_HANDOVER_ALLOCATED); /* decode has allocated its blocks */
    /* A hand-over that was found committed is committed again by its own, repeated STORE. */
    bool found = row->found && row->machine.state == SL_HANDOVER_COMMITTED;
    if (!found && handover_step(self, row, SL_HANDOVER_PRODUCING) != SL_OK) {
        co_reason(op, "hand-over %016" PRIx64 " is %s already", op->handover_id,
                  sl_handover_state_text(row->machine.state));
        return SL_ERR_EXISTS;
    }
    op->hold_ns = hold_ns != 0 ? hold_ns : sl_config_u64(self->env->config, SL_SET_handover_hold);
    row->machine.limit_ns[SL_HANDOVER_COMMITTED] = op->hold_ns;
    sl_handover_lend(&row->machine,
                     SL_HANDOVER_SOURCE | (op->type->direct ? 0u : (uint32_t)SL_HANDOVER_HELD));
    row->send = op;
    row->sent_here = true;
    return SL_OK;
}

/* The ticket must outlive the request. */
static sl_err ticket_keep(struct co_op *op, const struct sl_item_ticket *ticket)
{
    if (ticket->bytes.at == NULL) {
        return SL_ERR_INVALID;
    }
    void *bytes = co_memory_keep(&op->life, ticket->bytes.at, ticket->bytes.length);
    if (bytes == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    op->direct.ticket = (struct sl_bytes){.at = bytes, .length = ticket->bytes.length};
    op->direct.receipt =
        (struct co_receipt){.known = true,
                            .block_end = (uint32_t)ticket->block_end,
                            .keys = {.low = ticket->keys_low, .high = ticket->keys_high}};
    if (ticket->first_block < op->first_block ||
        ticket->first_block >= op->first_block + op->block_count) {
        co_reason(op, "the ticket begins at block %" PRIu64 ", the hand-over at %u of %u",
                  ticket->first_block, op->first_block, op->first_block + op->block_count);
        return SL_ERR_INVALID;
    }
    op->direct.skip = (uint32_t)ticket->first_block - op->first_block;
    return SL_OK;
}

/* Uses a receipt that came with the request. */
static bool receipt_taken(struct coordinator *self, struct co_handover *row,
                          const struct sl_body_load *body)
{
    bool taken =
        body->receipt.count > 0 && row->send == NULL && row->machine.state < SL_HANDOVER_COMMITTED;
    if (taken) {
        receipt_keep(&row->receipt, &body->receipt.at[0]);
        co_handover_commits(self, row);
    }
    return taken;
}

static sl_err receive_begin(struct coordinator *self, struct co_op *op, struct co_handover *row,
                            const struct sl_body_load *body)
{
    if (row->receive != NULL) {
        return side_taken(op, "decode");
    }
    row->received = true;
    if (row->machine.state == SL_HANDOVER_ABORTED) {
        co_reason(op, "%s", row->reason);
        handover_release(self, row);
        return SL_ERR_HANDOVER;
    }
    if (row->machine.state > SL_HANDOVER_COMMITTED) {
        co_reason(op, "hand-over %016" PRIx64 " is consumed already", op->handover_id);
        return SL_ERR_HANDOVER;
    }
    (void)handover_step(self, row, SL_HANDOVER_ALLOCATED);
    sl_handover_lend(&row->machine, SL_HANDOVER_TARGET);
    row->receive = op;
    row->prefill_here =
        body->prefill_node.length > 0 && strcmp(body->prefill_node.at, self->node) == 0;
    if (body->prefill_node.length > 0 && !row->prefill_here) {
        (void)snprintf(row->prefill_node, sizeof(row->prefill_node), "%s", body->prefill_node.at);
    }
    (void)receipt_taken(self, row, body);
    co_notify_prefill(self, row);
    return SL_OK;
}

bool co_handover_offers(const struct coordinator *self, uint64_t id)
{
    const struct co_handover *row = co_handover_find(self, id);
    struct sl_item_ticket ticket;
    return row != NULL && co_ticket_offered(row, &ticket);
}

static sl_err handover_begin(struct coordinator *self, struct co_op *op, const struct sl_msg *msg)
{
    bool store = op->type->kind == CO_STORE;
    op->handover_id = store ? msg->body.store.handover_id : msg->body.load.handover_id;
    if (op->handover_id == 0) {
        return SL_OK;
    }
    struct co_handover *row = co_handover_find(self, op->handover_id);
    if (store && op->type->direct) {
        struct sl_item_ticket ticket;
        bool offered = row != NULL && msg->body.store.direct && co_ticket_offered(row, &ticket);
        sl_err kept = ticket_keep(op, offered ? &ticket : &msg->body.store.ticket.at[0]);
        if (kept != SL_OK) {
            if (offered && row->send == NULL) { /* so decode does not wait */
                (void)co_handover_peer_failed(self, row, kept, op->reason);
            }
            return kept;
        }
    }
    row = row != NULL ? row : co_handover_new(self, op->handover_id, msg->trace_id);
    if (row == NULL) {
        co_reason(op, "%u hand-overs are under way", self->handover_count);
        return SL_ERR_LIMIT;
    }
    sl_err err = store ? send_begin(self, op, row, msg->body.store.hold_ns)
                       : receive_begin(self, op, row, &msg->body.load);
    op->handover = err == SL_OK ? row : NULL;
    return err;
}

static void handover_again(struct coordinator *self, struct co_op *op, const struct sl_msg *msg)
{
    if (op->handover != NULL && op->type->kind == CO_LOAD &&
        receipt_taken(self, op->handover, &msg->body.load)) {
        co_wake(self, op, self->env->now_ns);
    }
}

/* The last key represents all, since each depends on the one before. */
static sl_err receipt_make(const struct coordinator *self, const struct co_op *op,
                           struct co_receipt *receipt)
{
    char text[SL_KEY_BYTES_MAX];
    const struct sl_key *last = &op->blocks[op->block_count - 1].key;
    uint32_t length = last->at != NULL ? co_block_key_write(op->engine, last, text) : 0;
    if (length == 0) {
        return SL_ERR_UNSUPPORTED;
    }
    *receipt = (struct co_receipt){.known = true,
                                   .block_end = op->first_block + op->block_count,
                                   .keys = sl_digest_of(text, length)};
    (void)snprintf(receipt->node, sizeof(receipt->node), "%.31s", self->node);
    return SL_OK;
}

/* Checks that the op covers the whole input, and makes its receipt. */
static bool handover_keys(struct coordinator *self, struct co_op *op)
{
    if (op->handover == NULL || op->phase != CO_KEYS) {
        return true;
    }
    uint32_t block_tokens = op->engine->block_tokens;
    uint32_t wanted = (uint32_t)(((uint64_t)op->token_count + block_tokens - 1) / block_tokens);
    uint64_t given = (uint64_t)op->first_block + op->block_count;
    wanted = op->keyed ? (uint32_t)given : wanted; /* with keys, the blocks are the input */
    if (given != wanted || (op->type->kind == CO_STORE && op->block_count == 0)) {
        co_reason(op, "a hand-over of blocks up to %" PRIu64 ", the input has %u", given, wanted);
        co_op_end(self, op, SL_ERR_INVALID);
        return false;
    }
    if (op->block_count > 0 && receipt_make(self, op, &op->receipt) != SL_OK) {
        co_reason(op, "key format %s has no key for the incomplete last block",
                  op->engine->key_format);
        co_op_end(self, op, SL_ERR_UNSUPPORTED);
        return false;
    }
    if (op->direct.receipt.known && !receipt_equal(&op->receipt, &op->direct.receipt)) {
        co_reason(op,
                  "decode's ticket is of %u blocks of keys %016" PRIx64
                  ", prefill's %u blocks have keys %016" PRIx64,
                  op->direct.receipt.block_end, op->direct.receipt.keys.low, op->receipt.block_end,
                  op->receipt.keys.low);
        co_op_end(self, op, SL_ERR_INVALID);
        return false;
    }
    return true;
}

bool co_handover_matches(struct coordinator *self, struct co_op *op)
{
    const struct co_receipt *receipt = &op->handover->receipt;
    if (!op->receipt.known || receipt_equal(&op->receipt, receipt)) {
        return true;
    }
    co_reason(op,
              "prefill handed over %u blocks of keys %016" PRIx64
              ", decode's %u blocks have keys %016" PRIx64,
              receipt->block_end, receipt->keys.low, op->receipt.block_end, op->receipt.keys.low);
    co_op_end(self, op, SL_ERR_HANDOVER);
    return false;
}

/* ---- ends ---- */

static sl_err send_ended(struct coordinator *self, struct co_op *op, sl_err code)
{
    struct co_handover *row = op->handover;
    row->send = NULL;
    /* If decode has all blocks, they are handed over, however this side ended. */
    if (code == SL_OK || (row->arrived && op->direct.lends > 0)) {
        row->receipt = op->receipt;
        sl_err err = handover_step(self, row, SL_HANDOVER_COMMITTED);
        /* A direct hand-over is committed when all blocks have landed, perhaps before we know. */
        if (err == SL_OK ||
            (err == SL_ERR_EXISTS && (op->type->direct || row->arrived || row->found))) {
            co_count(self, self->metric.handover_committed_count, 1);
            co_handover_sides_wake(self, row);
            co_notify_decode(self, row);
            if (op->type->direct) {
                co_count(self, self->metric.handover_pushed_count, 1);
                op->bytes = (uint64_t)op->slice_count * op->engine->block_bytes;
                if (!row->received) { /* decode, on another node, has it */
                    (void)handover_step(self, row, SL_HANDOVER_CONSUMED);
                }
            }
            return SL_OK;
        }
        co_reason(op, "%s", row->reason);
        code = code == SL_OK ? SL_ERR_CANCELLED : code;
    }
    op->receipt.known = false;
    co_reason(op, "%s", sl_err_text(code));
    handover_abort(self, row, code, op->reason);
    return code;
}

static sl_err receive_ended(struct coordinator *self, struct co_op *op, sl_err code)
{
    struct co_handover *row = op->handover;
    row->receive = NULL;
    co_notify_taken(self, &row->receipt, row->id, row->trace_id);
    bool loading = row->machine.state == SL_HANDOVER_COMMITTED;
    bool whole = code == SL_OK && op->at == op->block_count;
    bool prefix = (code == SL_OK || code == SL_ERR_INCOMPLETE) &&
                  sl_config_bool(self->env->config, SL_SET_handover_recompute);
    if (loading && (whole || prefix)) {
        (void)handover_step(self, row, SL_HANDOVER_CONSUMED);
        sl_metric_add(self->env->metrics,
                      whole ? self->metric.handover_consumed_count
                            : self->metric.handover_recomputed_count,
                      1);
        sl_histogram_add(self->env->metrics, self->metric.handover_ns,
                         self->env->now_ns - row->started_ns);
        return whole ? SL_OK : SL_ERR_INCOMPLETE;
    }
    if (code == SL_OK) {
        co_reason(op, "block %u exists nowhere", op->first_block + op->at);
    } else {
        co_reason(op, "%s", sl_err_text(code));
    }
    co_notify_gave_up(self, row);
    /* Decode must not compute with a part of it. */
    op->at = 0;
    op->from_memory = op->from_disk = op->from_remote = 0;
    op->bytes = 0;
    handover_abort(self, row, code == SL_OK ? SL_ERR_INCOMPLETE : code, op->reason);
    bool plain = code == SL_ERR_CANCELLED || sl_err_class(code) == SL_CLASS_CALL;
    return plain ? code : SL_ERR_HANDOVER;
}

static sl_err handover_ending(struct coordinator *self, struct co_op *op, sl_err code)
{
    return op->handover == NULL         ? code
           : op->type->kind == CO_STORE ? send_ended(self, op, code)
                                        : receive_ended(self, op, code);
}

static void handover_done(struct coordinator *self, struct co_op *op)
{
    struct co_handover *row = op->handover;
    if (row == NULL) {
        return;
    }
    op->handover = NULL;
    sl_handover_return(&row->machine,
                       op->type->kind == CO_STORE ? SL_HANDOVER_SOURCE : SL_HANDOVER_TARGET);
    handover_release(self, row);
}

/* Ends an op whose hand-over failed on the other side. */
static bool handover_turn(struct coordinator *self, struct co_op *op)
{
    const struct co_handover *row = op->handover;
    bool failed = row != NULL && row->machine.state == SL_HANDOVER_ABORTED;
    if (failed) {
        op->reason[0] = '\0';
        co_reason(op, "%s", row->reason);
        co_op_end(self, op, row->machine.code);
    }
    return !failed;
}

/* ---- messages ---- */

const struct co_op *co_handover_ended(const struct coordinator *self, uint64_t id,
                                      enum co_kind kind)
{
    const struct co_op *op = self->done_last;
    while (op != NULL && (op->type->kind != kind || op->handover_id != id)) {
        op = op->older;
    }
    return op;
}

sl_err co_handover_receipt(struct coordinator *self, const struct sl_item_receipt *item,
                           uint64_t trace_id)
{
    struct co_handover *row = co_handover_find(self, item->handover_id);
    const struct co_op *load =
        row == NULL ? co_handover_ended(self, item->handover_id, CO_LOAD) : NULL;
    struct co_receipt receipt;
    receipt_keep(&receipt, item);
    /* On one node a load does not wait for its receipt, and may have ended before that arrives. */
    if (row != NULL ? row->machine.state == SL_HANDOVER_CONSUMED
                    : load != NULL && (load->code == SL_OK || load->code == SL_ERR_INCOMPLETE)) {
        return SL_OK;
    }
    if (row == NULL || row->receive == NULL || row->machine.state > SL_HANDOVER_COMMITTED) {
        bool failed = row != NULL ? row->received && !row->sent_here &&
                                        row->machine.state == SL_HANDOVER_ABORTED
                                  : load != NULL;
        co_count(self, self->metric.handover_gone_count, 1);
        if (failed) { /* a late receipt: end prefill's hold */
            co_notify_taken(self, &receipt, item->handover_id, trace_id);
        }
        return SL_ERR_NOT_FOUND;
    }
    if (row->machine.state == SL_HANDOVER_COMMITTED) {
        return row->arrived || receipt_equal(&receipt, &row->receipt) ? SL_OK : SL_ERR_INVALID;
    }
    if (row->send != NULL) {
        return SL_ERR_BUSY; /* prefill is on this node and has not committed */
    }
    row->receipt = receipt;
    co_handover_commits(self, row);
    co_wake(self, row->receive, self->env->now_ns);
    return SL_OK;
}

sl_err co_handover_peer_failed(struct coordinator *self, struct co_handover *row, sl_err code,
                               const char *reason)
{
    if (row->machine.state < SL_HANDOVER_COMMITTED) {
        handover_abort(self, row, code, reason);
    }
    return SL_OK;
}

/* ---- direct ---- */

static sl_err landed(struct coordinator *self, const struct sl_body_landed *body)
{
    uint64_t index = body->handover & 0xffff;
    struct co_handover *row = index < self->handover_max ? &self->handovers[index] : NULL;
    if (row == NULL || row->id == 0 || row->ticket_number != body->handover ||
        row->receive == NULL || !row->receive->type->direct ||
        row->machine.state > SL_HANDOVER_COMMITTED) {
        return SL_ERR_NOT_FOUND;
    }
    if (body->state == LANDED_NOTHING && row->receive->layers.in > 0) {
        return SL_ERR_STALE; /* a new transporter would read reported layers again */
    }
    if (body->state == LANDED_NOTHING) {
        bool first = !row->offered;
        row->offered = true;
        if (first) {
            co_notify_prefill(self, row); /* now with the ticket */
        }
        return SL_OK;
    }
    (void)handover_step(self, row, SL_HANDOVER_PRODUCING);
    if (co_by_layers(row->receive)) {
        co_layers_arrived(self, row->receive, body);
    }
    if (body->state == LANDED_ALL && !row->arrived) {
        row->arrived = true;
        (void)handover_step(self, row, SL_HANDOVER_COMMITTED);
        co_wake(self, row->receive, self->env->now_ns);
    }
    return SL_OK;
}

void co_handover_landed(struct coordinator *self, const struct sl_msg *msg)
{
    struct sl_error why = {0};
    sl_err code = landed(self, &msg->body.landed);
    if (code != SL_OK) {
        (void)sl_fail(&why, code, "hand-over %016" PRIx64 " is over", msg->body.landed.handover);
    }
    sl_reply_code(self->env, msg, code, &why);
}

/* Ends a hand-over: for its client (receipt NULL), or for a peer that has its receipt. */
static sl_err handover_finish(struct coordinator *self, uint64_t id,
                              const struct co_receipt *receipt, uint64_t trace_id)
{
    struct co_handover *row = co_handover_find(self, id);
    struct sl_digest keys = receipt != NULL ? receipt->keys : (struct sl_digest){0};
    if (row == NULL || (receipt == NULL && (row->machine.loans & SL_HANDOVER_HELD) == 0)) {
        /* An earlier coordinator may have had it: the registrar decides. */
        (void)hold_end_send(self, id, keys, trace_id, co_cookie(CO_CALL_UNANSWERED, 0, 0));
        return SL_ERR_NOT_FOUND;
    }
    if (row->send != NULL || row->receive != NULL) {
        return SL_ERR_BUSY; /* it has no receipt yet, or decode is here */
    }
    if (receipt != NULL && (!row->receipt.known || !receipt_equal(receipt, &row->receipt))) {
        return SL_ERR_PERMISSION;
    }
    (void)handover_step(self, row, SL_HANDOVER_CONSUMED);
    handover_release(self, row);
    return SL_OK;
}

sl_err co_handover_peer_done(struct coordinator *self, const struct sl_item_receipt *item,
                             uint64_t trace_id)
{
    struct co_receipt receipt;
    receipt_keep(&receipt, item);
    return handover_finish(self, item->handover_id, &receipt, trace_id);
}

/* A hand-over that is gone does not fail the rest of its batch. */
void co_handover_arrived(struct coordinator *self, const struct sl_msg *msg)
{
    uint64_t codes[1024];
    uint64_t count = SL_MIN(msg->body.arrived.items.count, SL_COUNT(codes));
    for (uint64_t i = 0; i < count; i++) {
        codes[i] =
            (uint64_t)co_handover_receipt(self, &msg->body.arrived.items.at[i], msg->trace_id);
    }
    struct sl_msg reply = {.code = SL_OK};
    reply.body.arrived_reply.codes = (struct sl_u64s){.at = codes, .count = count};
    sl_reply(self->env, msg, &reply);
}

void co_handover_end(struct coordinator *self, const struct sl_msg *msg)
{
    uint64_t codes[1024];
    const struct sl_u64s *ids = &msg->body.handover_end.handover_ids;
    uint64_t count = SL_MIN(ids->count, SL_COUNT(codes));
    for (uint64_t i = 0; i < count; i++) {
        codes[i] = (uint64_t)handover_finish(self, ids->at[i], NULL, msg->trace_id);
    }
    struct sl_msg reply = {.code = SL_OK};
    reply.body.handover_end_reply.codes = (struct sl_u64s){.at = codes, .count = count};
    sl_reply(self->env, msg, &reply);
}

/* ---- time ---- */

static void handover_expire(struct coordinator *self, struct co_handover *row, uint64_t now_ns)
{
    enum sl_handover_state state = row->machine.state;
    if (!sl_handover_expire(&row->machine, now_ns)) {
        return;
    }
    if (row->machine.state == SL_HANDOVER_RELEASED) {
        handover_forget(self, row);
    } else if (state < SL_HANDOVER_CONSUMED) {
        char reason[CO_REASON_BYTES];
        (void)snprintf(reason, sizeof(reason), "it stayed %s too long",
                       sl_handover_state_text(state));
        handover_aborted(self, row, reason);
        handover_release(self, row);
    } else {
        handover_release(self, row); /* retries the release */
    }
}

static uint64_t handovers_tick(struct coordinator *self, uint64_t now_ns)
{
    if (now_ns < self->handover_next_ns) {
        return self->handover_next_ns;
    }
    self->handover_next_ns = SL_NEVER_NS;
    for (uint32_t i = 0; i < self->handover_max; i++) {
        struct co_handover *row = &self->handovers[i];
        if (row->id != 0) {
            handover_expire(self, row, now_ns);
        }
        if (row->id != 0 && co_notify_due(row) <= now_ns) {
            co_notify_prefill(self, row);
        }
        if (row->id != 0) {
            uint64_t next_ns = SL_MIN(row->machine.deadline_ns, co_notify_due(row));
            self->handover_next_ns = SL_MIN(self->handover_next_ns, next_ns);
        }
    }
    return self->handover_next_ns;
}

const struct co_feature co_handover_feature = {.init = handovers_init,
                                               .fini = handovers_fini,
                                               .tick = handovers_tick,
                                               .begin = handover_begin,
                                               .again = handover_again,
                                               .phase = handover_keys,
                                               .turn = handover_turn,
                                               .ending = handover_ending,
                                               .done = handover_done};
