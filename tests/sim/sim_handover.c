/* tests/sim/sim_handover.c - see the header.
 *
 * A free device block is filled with a different byte each time, which it must still have whenever
 * an op begins or ends: this catches writes after a fence or after the end of the registration.
 * Decode checks every byte of every block, or has none: a partial hand-over is never an answer. By
 * layers, prefill fills a layer just before it reports it as ready. Decode checks each reported
 * layer repeatedly until the op ends: a reported layer is never written again. */
#include "tests/sim/sim_handover.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BLOCK_TOKENS  4u
#define BUDGET_NS     SL_NS_PER_S
#define SLACK_NS      (5 * SL_NS_PER_MS)
#define PAUSE_NS      (60 * SL_NS_PER_MS)
#define LOOK_NS       (4 * SL_NS_PER_MS) /* how often the engines check their own channel */
#define EXCUSE_NS     (3 * SL_NS_PER_S)
#define STRIDE_BYTES  (HANDOVER_PIECE_BYTES + 24u)
#define POOL_BYTES    ((uint64_t)STRIDE_BYTES * HANDOVER_DEVICE_MAX)
#define END_NS        (1500 * SL_NS_PER_MS) /* as in libsluice */
#define END_WITHIN_NS (12 * SL_NS_PER_MS)   /* after the beginning of an op */
#define TRUNKS        3u
#define LAYER_NS      (8 * SL_NS_PER_MS) /* longer than a layer's computation */

enum phase { PHASE_REGISTER, PHASE_IDLE, PHASE_OP, PHASE_FENCE, PHASE_END };

struct engine {
    struct sl_env *env;
    struct sim *sim;
    const struct handover_side *side;
    struct handovers *all;
    struct sl_calls *calls;
    enum phase phase;
    uint64_t engine_id, op_id, next_op, started_ns, begin_ns, look_ns;
    int fds[HANDOVER_LANES]; /* by rank, then by layer */
    unsigned char *memory[HANDOVER_LANES];
    bool lent[HANDOVER_DEVICE_MAX];
    uint32_t given[HANDOVER_DEVICE_MAX]; /* use count, which determines the byte of a free block */
    uint64_t op_seq, end_at_ns;          /* the op's request; when the registration ends. 0: none */
    uint64_t device[HANDOVER_BLOCKS];
    struct handover_request mine; /* the request of this op */
    bool direct, asking, told;
    bool layered;
    uint32_t ready;                /* prefill, by layers: filled and reported */
    uint32_t in;                   /* decode, by layers: reported to it */
    uint64_t layer_ns, layers_seq; /* when the next layer is filled; LAYERS in flight, or 0 */
};

/* ---- contents of blocks ---- */

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* The same for all requests with the same tokens so far: one of the first blocks, if it is full. */
static uint64_t block_seed(const struct handover_request *request, uint32_t block)
{
    bool shared = block < HANDOVER_SHARED && (block + 1) * BLOCK_TOKENS <= request->tokens;
    uint64_t who = shared ? request->number % TRUNKS : UINT64_C(1000) + request->number;
    return who << 8 | block;
}

static uint32_t token_of(const struct handover_request *request, uint32_t at)
{
    return (uint32_t)mix(block_seed(request, at / BLOCK_TOKENS) << 8 | at % BLOCK_TOKENS);
}

static void content_fill(unsigned char *out, const struct handover_request *request, uint32_t block,
                         uint32_t lane)
{
    uint64_t seed = mix(block_seed(request, block) * HANDOVER_LANES + lane);
    for (uint64_t at = 0; at < HANDOVER_PIECE_BYTES; at += sizeof(uint64_t)) {
        uint64_t word = mix(seed + at);
        memcpy(out + at, &word, SL_MIN(sizeof(word), HANDOVER_PIECE_BYTES - at));
    }
}

static unsigned char *piece_at(const struct engine *self, uint32_t lane, uint64_t device)
{
    return self->memory[lane] + device * STRIDE_BYTES;
}

static unsigned char free_byte(const struct engine *self, uint32_t device)
{
    return (unsigned char)(1 + self->given[device] % 255);
}

static void free_check(const struct engine *self)
{
    for (uint32_t i = 0; i < HANDOVER_DEVICE_MAX * HANDOVER_LANES; i++) {
        uint32_t device = i / HANDOVER_LANES;
        const unsigned char *at = piece_at(self, i % HANDOVER_LANES, device);
        SIM_CHECK(self->lent[device] || (at[0] == free_byte(self, device) &&
                                         memcmp(at, at + 1, HANDOVER_PIECE_BYTES - 1) == 0),
                  "%s: device block %u was written after its fence", self->env->name, device);
    }
}

static void blocks_take(struct engine *self)
{
    uint32_t start = (uint32_t)sim_random_below(self->sim, HANDOVER_DEVICE_MAX), taken = 0;
    free_check(self);
    for (uint32_t i = 0; i < HANDOVER_DEVICE_MAX && taken < self->mine.blocks; i++) {
        uint32_t device = (start + i) % HANDOVER_DEVICE_MAX;
        if (!self->lent[device]) {
            self->lent[device] = true;
            self->device[taken++] = device;
        }
    }
    SIM_CHECK(taken == self->mine.blocks, "%u device blocks are free", taken);
}

static void block_free(struct engine *self, uint32_t device)
{
    self->lent[device] = false;
    self->given[device]++;
    for (uint32_t lane = 0; lane < HANDOVER_LANES; lane++) {
        memset(piece_at(self, lane, device), free_byte(self, device), HANDOVER_PIECE_BYTES);
    }
}

/* Checks the bytes of the first layers. */
static void blocks_check(const struct engine *self, uint32_t layers)
{
    unsigned char want[HANDOVER_PIECE_BYTES];
    for (uint32_t i = 0; i < self->mine.blocks * HANDOVER_LANES; i++) {
        uint32_t block = i / HANDOVER_LANES, lane = i % HANDOVER_LANES;
        if (lane % HANDOVER_LAYERS >= layers) {
            continue;
        }
        content_fill(want, &self->mine, block, lane);
        const unsigned char *at = piece_at(self, lane, self->device[block]);
        for (uint32_t k = 0; memcmp(want, at, sizeof(want)) != 0 && k < sizeof(want); k++) {
            SIM_CHECK(
                at[k] == want[k],
                "%s: wrong bytes: hand-over %llx, %s, block %u of %u, rank %u, layer %u of %u, byte %u of device "
                "block %llu is %02x, not %02x",
                self->env->name, (unsigned long long)self->mine.id,
                self->direct ? "directly" : "through storage", block, self->mine.blocks,
                lane / HANDOVER_LAYERS, lane % HANDOVER_LAYERS, layers, k,
                (unsigned long long)self->device[block], at[k], want[k]);
        }
    }
}

static void blocks_give(struct engine *self)
{
    free_check(self);
    blocks_check(self, self->in); /* reported layers have not changed */
    self->in = 0;
    for (uint32_t i = 0; i < HANDOVER_DEVICE_MAX; i++) {
        if (self->lent[i]) {
            block_free(self, i);
        }
    }
}

/* ---- calls ---- */

static uint64_t engine_send(struct engine *self, const char *to, const struct sl_msg *msg,
                            uint64_t budget_ns)
{
    uint64_t seq = 0;
    SIM_CHECK(sl_calls_send(self->calls, to, msg, self->env->now_ns + budget_ns, 0, &seq) == SL_OK,
              "not sent");
    return seq;
}

static void engine_register(struct engine *self)
{
    struct sl_item_pool pool = {.name = sl_text_of("attn")};
    struct sl_item_region regions[HANDOVER_LANES];
    for (uint32_t lane = 0; lane < HANDOVER_LANES; lane++) {
        regions[lane] = (struct sl_item_region){.rank = lane / HANDOVER_LAYERS,
                                                .layer = lane % HANDOVER_LAYERS,
                                                .handle_kind = 1, /* shared memory */
                                                .pid = (uint32_t)getpid(),
                                                .fd = (uint64_t)self->fds[lane],
                                                .length_bytes = POOL_BYTES,
                                                .block_stride_bytes = STRIDE_BYTES,
                                                .piece_bytes = HANDOVER_PIECE_BYTES,
                                                .block_count = HANDOVER_DEVICE_MAX};
    }
    struct sl_msg msg = {.type = SL_MSG_ENGINE_REGISTER};
    msg.body.engine_register = (struct sl_body_engine_register){
        .pid = self->env->self.pid,
        .start_time = self->env->self.start_time,
        .name = sl_text_of(self->side->prefill ? "prefill" : "decode"),
        .model = sl_text_of("fedcba9876543210fedcba9876543210"),
        .key_format = sl_text_of("sluice"),
        .block_tokens = BLOCK_TOKENS,
        .world = HANDOVER_RANKS,
        .pools = {.at = &pool, .count = 1},
        .regions = {.at = regions, .count = HANDOVER_LANES},
    };
    (void)engine_send(self, "registrar", &msg, 30 * SL_NS_PER_S);
}

/* Sends the request. If it is sent again, it reports the progress so far. */
static void op_ask(struct engine *self, uint64_t budget_ns)
{
    static const uint64_t ends[HANDOVER_LAYERS] = {1, 2, 3};
    uint32_t tokens[HANDOVER_BLOCKS * BLOCK_TOKENS];
    const struct handover_request *mine = &self->mine;
    for (uint32_t i = 0; i < mine->tokens; i++) {
        tokens[i] = token_of(mine, i);
    }
    struct sl_bytes token_bytes = {.at = tokens, .length = UINT64_C(4) * mine->tokens};
    struct sl_u64s device = {.at = self->device, .count = mine->blocks};
    struct sl_u64s layer_ends = {.at = ends, .count = self->layered ? HANDOVER_LAYERS : 0};
    struct sl_msg msg = {.type = self->side->prefill ? SL_MSG_STORE : SL_MSG_LOAD,
                         .op_id = self->op_id};
    msg.trace_id = mine->id;
    if (self->side->prefill) {
        msg.body.store = (struct sl_body_store){.engine_id = self->engine_id,
                                                .tokens = token_bytes,
                                                .partial = true,
                                                .handover_id = mine->id,
                                                .layer_ends = layer_ends,
                                                .layers_ready = self->ready};
        *(self->layered ? &msg.body.store.layered_blocks : &msg.body.store.device_blocks) = device;
        msg.body.store.ticket.at = &mine->ticket;
        msg.body.store.ticket.count = mine->ticket.bytes.length > 0 ? 1 : 0;
    } else {
        msg.body.load = (struct sl_body_load){.engine_id = self->engine_id,
                                              .tokens = token_bytes,
                                              .partial = true,
                                              .device_blocks = device,
                                              .handover_id = mine->id,
                                              .direct = self->direct,
                                              .layer_ends = layer_ends,
                                              .layers_in = self->in,
                                              .layer_blocks = self->in > 0 ? mine->blocks : 0};
    }
    self->op_seq = engine_send(self, "coordinator", &msg, budget_ns);
}

static void layer_fill(const struct engine *self, uint32_t layer)
{
    for (uint32_t k = 0; k < self->mine.blocks * HANDOVER_LANES; k++) {
        uint32_t block = k / HANDOVER_LANES, lane = k % HANDOVER_LANES;
        if (lane % HANDOVER_LAYERS == layer) {
            content_fill(piece_at(self, lane, self->device[block]), &self->mine, block, lane);
        }
    }
}

static void op_send(struct engine *self)
{
    self->op_id = self->next_op++;
    self->layered = sim_random_below(self->sim, 2) == 0;
    self->ready = self->in = 0;
    for (uint32_t layer = 0; self->side->prefill && !self->layered && layer < HANDOVER_LAYERS;
         layer++) {
        layer_fill(self, layer);
    }
    self->layer_ns = self->env->now_ns;
    self->phase = PHASE_OP;
    self->started_ns = self->env->now_ns;
    op_ask(self, BUDGET_NS);
    uint32_t one_of = self->all->ends_one_of;
    if (one_of != 0 && sim_random_below(self->sim, one_of) == 0) {
        self->end_at_ns = self->env->now_ns + sim_random_below(self->sim, END_WITHIN_NS);
        self->env->ops->wake_at(self->env, self->end_at_ns);
    }
}

static void op_again(struct engine *self)
{
    uint64_t past_ns = self->env->now_ns - self->started_ns;
    if (past_ns < BUDGET_NS) {
        sl_calls_drop(self->calls, self->op_seq);
        op_ask(self, BUDGET_NS - past_ns);
    }
}

/* Prefill, by layers: computes the next one. */
static void layer_ready(struct engine *self)
{
    if (self->layered && self->ready < HANDOVER_LAYERS && self->layer_ns <= self->env->now_ns) {
        layer_fill(self, self->ready++);
        self->layer_ns = self->env->now_ns + sim_random_below(self->sim, LAYER_NS);
        op_again(self);
    }
}

/* Decode, by layers: waits for the next one. */
static void layer_wait(struct engine *self)
{
    blocks_check(self, self->in);
    if (self->layered && self->in < HANDOVER_LAYERS && self->layers_seq == 0) {
        struct sl_msg wait = {.type = SL_MSG_LAYERS};
        wait.body.layers.target_op = self->op_id;
        wait.body.layers.layers = self->in + 1;
        wait.body.layers.wait = true;
        self->layers_seq = engine_send(self, "coordinator", &wait, BUDGET_NS / 4);
    }
}

static void layers_forget(struct engine *self)
{
    sl_calls_drop(self->calls, self->layers_seq);
    self->layers_seq = 0;
}

static void layers_came(struct engine *self, const struct sl_msg *reply)
{
    const struct sl_body_layers_reply *body = &reply->body.layers_reply;
    self->layers_seq = 0;
    if (reply->code != SL_OK || body->layers <= self->in) {
        return;
    }
    SIM_CHECK(body->block_count == self->mine.blocks,
              "%s: %llu layers of %llu of %u blocks are no hand-over", self->env->name,
              (unsigned long long)body->layers, (unsigned long long)body->block_count,
              self->mine.blocks);
    self->all->layers_reported += body->layers - self->in;
    self->in = (uint32_t)body->layers;
    blocks_check(self, self->in);
    op_again(self);
}

static void fence_send(struct engine *self)
{
    struct sl_msg msg = {.type = SL_MSG_OP_FENCED, .op_id = self->op_id};
    msg.body.op_fenced.target_op = self->op_id;
    self->phase = PHASE_FENCE;
    (void)engine_send(self, "coordinator", &msg, BUDGET_NS);
}

static void look_at(struct engine *self, uint64_t at_ns)
{
    self->look_ns = at_ns;
    self->env->ops->wake_at(self->env, at_ns);
}

static void engine_pause(struct engine *self)
{
    blocks_give(self);
    self->mine.id = 0;
    self->phase = PHASE_IDLE;
    self->begin_ns = self->env->now_ns + sim_random_below(self->sim, PAUSE_NS);
    look_at(self, self->side->prefill ? self->env->now_ns : self->begin_ns);
}

/* ---- the engines' channel ---- */

/* Decode's request that this engine handles; NULL: it is over. */
static struct handover_request *request_of(const struct engine *self)
{
    for (uint32_t i = 0; i < self->all->hosts; i++) {
        if (self->all->requests[i].id == self->mine.id) {
            return &self->all->requests[i];
        }
    }
    return NULL;
}

static void request_copy(struct handover_request *to, const struct handover_request *from)
{
    *to = *from;
    to->ticket.bytes.at = to->ticket_bytes;
    to->receipt.node.at = to->node;
}

static void decode_begin(struct engine *self)
{
    struct handovers *all = self->all;
    struct handover_request *request = &all->requests[self->side->host];
    uint32_t other = (uint32_t)sim_random_below(self->sim, all->hosts);
    *request = (struct handover_request){
        .id = (uint64_t)self->env->self.pid << 32 | self->next_op,
        .prefill = other,
        .number = all->next_number++,
        .tokens = 1 + (uint32_t)sim_random_below(self->sim, HANDOVER_BLOCKS * BLOCK_TOKENS),
    };
    request->blocks = (request->tokens + BLOCK_TOKENS - 1) / BLOCK_TOKENS;
    request_copy(&self->mine, request);
    self->direct = sim_random_below(self->sim, 2) == 0;
    self->asking = self->told = false;
    all->begun++;
    all->direct += self->direct;
    blocks_take(self);
    op_send(self);
    if (!self->direct) {
        request->word = HANDOVER_ANNOUNCED;
    }
    look_at(self, self->env->now_ns + LOOK_NS);
}

/* Checks prefill's state and the ticket while the load waits. */
static void decode_look(struct engine *self)
{
    struct handover_request *request = &self->all->requests[self->side->host];
    if (self->direct && request->word == HANDOVER_NONE && !self->asking) {
        struct sl_msg ask = {.type = SL_MSG_TICKET};
        ask.body.ticket.handover_id = request->id;
        self->asking = true;
        (void)engine_send(self, "coordinator", &ask, BUDGET_NS / 4);
    } else if (request->word == HANDOVER_FIRST_TOKEN && !self->told) {
        struct sl_msg arrived = {.type = SL_MSG_ARRIVED};
        arrived.body.arrived.items.at = &request->receipt;
        arrived.body.arrived.items.count = 1;
        self->told = true;
        (void)engine_send(self, "coordinator", &arrived, BUDGET_NS);
    } else if (request->word == HANDOVER_FAILED && !self->told) {
        struct sl_msg cancel = {.type = SL_MSG_CANCEL, .op_id = self->op_id};
        cancel.body.cancel.target_op = self->op_id;
        self->told = true;
        (void)engine_send(self, "coordinator", &cancel, BUDGET_NS / 4);
    }
    look_at(self, self->env->now_ns + LOOK_NS);
}

static void ticket_take(struct engine *self, const struct sl_msg *reply)
{
    struct handover_request *request = request_of(self);
    self->asking = false;
    if (request == NULL || request->word != HANDOVER_NONE) {
        return;
    }
    if (reply != NULL && reply->code == SL_OK && reply->body.ticket_reply.ticket.count == 1) {
        request->ticket = reply->body.ticket_reply.ticket.at[0];
        SIM_CHECK(request->ticket.bytes.length <= HANDOVER_TICKET_MAX, "a ticket is too long");
        memcpy(request->ticket_bytes, request->ticket.bytes.at, request->ticket.bytes.length);
        request->ticket.bytes.at = request->ticket_bytes;
        request->word = HANDOVER_ANNOUNCED;
    } else if (reply != NULL && reply->code == SL_ERR_UNSUPPORTED) {
        request->word = HANDOVER_ANNOUNCED; /* then through storage */
    }
}

static void prefill_look(struct engine *self)
{
    for (uint32_t i = 0; i < self->all->hosts; i++) {
        struct handover_request *request = &self->all->requests[i];
        if (request->id != 0 && request->word == HANDOVER_ANNOUNCED &&
            request->prefill == self->side->host) {
            request_copy(&self->mine, request);
            request->word = HANDOVER_TAKEN;
            blocks_take(self);
            op_send(self);
            return;
        }
    }
    look_at(self, self->env->now_ns + LOOK_NS);
}

/* ---- ends ---- */

static bool disturbed(const struct engine *self)
{
    return self->all->late ||
           self->all->disturbed_ns[self->side->host] + EXCUSE_NS >= self->started_ns;
}

static void must_succeed(const struct engine *self, sl_err code, struct sl_text text)
{
    SIM_CHECK(
        !self->all->calm ||
                self->started_ns<self->all->calm_from_ns,
                                 "%s: hand-over %llx failed although nothing is disturbed: %s: %s",
                                 self->env->name, (unsigned long long)self->mine.id,
                                 sl_err_name(code), text.length> 0
            ? text.at
            : "");
}

static void load_ended(struct engine *self, const struct sl_msg *reply)
{
    const struct sl_body_load_reply *body = &reply->body.load_reply;
    if (reply->code == SL_OK) {
        SIM_CHECK(body->block_count == self->mine.blocks, "%llu of %u blocks are no hand-over",
                  (unsigned long long)body->block_count, self->mine.blocks);
        blocks_check(self, HANDOVER_LAYERS);
        self->all->complete++;
        self->all->complete_at[self->side->host] += self->direct;
    } else {
        SIM_CHECK(body->block_count == 0, "a failed hand-over names blocks");
        must_succeed(self, reply->code, reply->text);
        self->all->failed++;
    }
    self->all->requests[self->side->host].id = 0;
}

static void store_ended(struct engine *self, const struct sl_msg *reply)
{
    const struct sl_body_store_reply *body = &reply->body.store_reply;
    struct handover_request *request = request_of(self);
    bool fine = reply->code == SL_OK && body->receipt.count == 1;
    SIM_CHECK(fine || reply->code != SL_OK, "a hand-over without a receipt");
    if (fine) {
        self->all->sent++;
    } else {
        must_succeed(self, reply->code, reply->text);
        self->all->send_failed++;
    }
    if (request != NULL && fine) {
        request->receipt = body->receipt.at[0];
        (void)snprintf(request->node, sizeof(request->node), "%.*s",
                       (int)request->receipt.node.length,
                       request->receipt.node.length > 0 ? request->receipt.node.at : "");
        request->receipt.node.at = request->node;
    }
    if (request != NULL) {
        request->word = fine ? HANDOVER_FIRST_TOKEN : HANDOVER_FAILED;
    }
}

/* A request that was sent twice may have reached two coordinators (sim_workload.c). */
static bool sent_once(const struct engine *self)
{
    return !self->layered && self->env->now_ns - self->started_ns <
                                 sl_config_u64(self->env->config, SL_SET_call_retry);
}

/* ---- the end of the registration ---- */

static void end_send(struct engine *self)
{
    struct sl_msg msg = {.type = SL_MSG_ENGINE_END};
    msg.body.engine_end.engine_id = self->engine_id;
    self->phase = PHASE_END;
    (void)engine_send(self, "registrar", &msg, END_NS);
}

/* Ends the registration in the middle of an op, whose answer no longer matters. */
static void end_begin(struct engine *self)
{
    self->end_at_ns = 0;
    if (self->phase != PHASE_OP) {
        return;
    }
    sl_calls_drop(self->calls, self->op_seq);
    layers_forget(self);
    self->all->ended++;
    sim_log(self->sim, "%s: engine %llu ends in the middle of op %llx", self->env->name,
            (unsigned long long)self->engine_id, (unsigned long long)self->op_id);
    self->started_ns = self->env->now_ns;
    if (self->side->prefill && request_of(self) != NULL) {
        request_of(self)->word = HANDOVER_FAILED;
    } else if (!self->side->prefill) {
        self->all->requests[self->side->host].id = 0;
    }
    end_send(self);
}

/* No process uses the memory any more: it gets other contents and is registered again. */
static void end_answered(struct engine *self, sl_err code)
{
    if (code != SL_OK) {
        SIM_CHECK(self->env->now_ns - self->started_ns < 25 * SL_NS_PER_S,
                  "%s: its registration never ends: %s", self->env->name, sl_err_name(code));
        end_send(self);
        return;
    }
    sim_log(self->sim, "%s: engine %llu has ended", self->env->name,
            (unsigned long long)self->engine_id);
    blocks_give(self);
    self->phase = PHASE_REGISTER;
    engine_register(self);
}

static void op_ended(struct engine *self, const struct sl_msg *reply)
{
    bool fenced =
        self->side->prefill ? reply->body.store_reply.fenced : reply->body.load_reply.fenced;
    layers_forget(self);
    SIM_CHECK(self->env->now_ns - self->started_ns <= BUDGET_NS + SLACK_NS, "op %llx took too long",
              (unsigned long long)self->op_id);
    if (self->side->prefill) {
        store_ended(self, reply);
    } else {
        load_ended(self, reply);
    }
    if (fenced && sent_once(self)) {
        engine_pause(self);
    } else {
        fence_send(self);
    }
}

static void no_answer(struct engine *self, uint32_t type)
{
    switch (type) {
    case SL_MSG_ENGINE_REGISTER:
        engine_register(self);
        break;
    case SL_MSG_STORE:
    case SL_MSG_LOAD:
        SIM_CHECK(disturbed(self), "%s: op %llx was not answered although nothing was disturbed",
                  self->env->name, (unsigned long long)self->op_id);
        self->all->unanswered++;
        layers_forget(self);
        if (self->side->prefill && request_of(self) != NULL) {
            request_of(self)->word = HANDOVER_FAILED;
        } else if (!self->side->prefill) {
            self->all->requests[self->side->host].id = 0;
        }
        fence_send(self);
        break;
    case SL_MSG_OP_FENCED:
        SIM_CHECK(self->env->now_ns - self->started_ns < 25 * SL_NS_PER_S,
                  "op %llx is never fenced", (unsigned long long)self->op_id);
        fence_send(self);
        break;
    case SL_MSG_TICKET:
        ticket_take(self, NULL);
        break;
    case SL_MSG_LAYERS:
        self->layers_seq = 0;
        break;
    case SL_MSG_ENGINE_END:
        end_answered(self, SL_ERR_TIMEOUT);
        break;
    default:
        break;
    }
}

static void call_ended(struct engine *self, const struct sl_call *call, const struct sl_msg *reply)
{
    switch (call->type) {
    case SL_MSG_ENGINE_REGISTER:
        SIM_CHECK(reply->code == SL_OK, "registration refused: %s", reply->text.at);
        self->engine_id = reply->body.engine_register_reply.engine_id;
        engine_pause(self);
        break;
    case SL_MSG_STORE:
    case SL_MSG_LOAD:
        op_ended(self, reply);
        break;
    case SL_MSG_OP_FENCED:
        if (reply->code == SL_OK && reply->body.op_fenced_reply.fenced) {
            engine_pause(self);
        } else {
            no_answer(self, SL_MSG_OP_FENCED);
        }
        break;
    case SL_MSG_TICKET:
        ticket_take(self, reply);
        break;
    case SL_MSG_LAYERS:
        layers_came(self, reply);
        break;
    case SL_MSG_ENGINE_END:
        end_answered(self, reply->code);
        break;
    default:
        break;
    }
}

/* ---- the actor ---- */

void handovers_init(struct handovers *all, uint32_t hosts)
{
    all->hosts = hosts;
    for (uint32_t host = 0; host < hosts; host++) {
        for (uint32_t i = 0; i < 2; i++) {
            all->sides[host][i] =
                (struct handover_side){.all = all, .host = host, .prefill = i == 0};
        }
    }
}

static sl_err engine_init(void *state, struct sl_env *env, struct sl_error *why)
{
    struct engine *self = state;
    self->env = env;
    self->sim = sim_of(env);
    self->side = sim_context(env);
    self->all = self->side->all;
    self->next_op = (uint64_t)env->self.pid << 32 | 1;
    for (uint32_t lane = 0; lane < HANDOVER_LANES; lane++) {
        self->fds[lane] = memfd_create("sim-pool", MFD_CLOEXEC);
        SIM_CHECK(self->fds[lane] >= 0 && ftruncate(self->fds[lane], (off_t)POOL_BYTES) == 0,
                  "no memory for a pool");
        self->memory[lane] =
            mmap(NULL, POOL_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, self->fds[lane], 0);
        SIM_CHECK(self->memory[lane] != MAP_FAILED, "no memory for a pool");
    }
    for (uint32_t i = 0; i < HANDOVER_DEVICE_MAX; i++) {
        block_free(self, i);
    }
    if (!self->side->prefill) { /* drops its predecessor's request */
        self->all->requests[self->side->host].id = 0;
    }
    sl_err err = sl_calls_create(env, 32, &self->calls, why);
    if (err == SL_OK) {
        engine_register(self);
    }
    return err;
}

static sl_err engine_handle(void *state, const struct sl_msg *msg)
{
    struct engine *self = state;
    struct sl_call call;
    if (SL_MSG_IS_REPLY(msg->type) && sl_calls_match(self->calls, msg, &call)) {
        call_ended(self, &call, msg);
    }
    return SL_OK;
}

static sl_err engine_tick(void *state, uint64_t now_ns)
{
    struct engine *self = state;
    struct sl_call call;
    while (sl_calls_expired(self->calls, now_ns, &call)) {
        no_answer(self, call.type);
    }
    if (self->end_at_ns != 0 && now_ns >= self->end_at_ns) {
        end_begin(self);
    } else if (self->end_at_ns != 0) {
        self->env->ops->wake_at(self->env, self->end_at_ns);
    }
    if (now_ns < self->look_ns || self->phase == PHASE_REGISTER) {
        self->env->ops->wake_at(self->env, SL_MAX(self->look_ns, now_ns + LOOK_NS));
        return SL_OK;
    }
    if (self->phase == PHASE_IDLE && self->side->prefill) {
        prefill_look(self);
    } else if (self->phase == PHASE_IDLE && !self->all->quiet && now_ns >= self->begin_ns) {
        decode_begin(self);
    } else if (self->phase == PHASE_OP && !self->side->prefill) {
        layer_wait(self);
        decode_look(self);
    } else if (self->phase == PHASE_OP) {
        layer_ready(self);
        look_at(self, now_ns + LOOK_NS);
    } else {
        look_at(self, now_ns + LOOK_NS);
    }
    return SL_OK;
}

static void engine_drain(void *state)
{
    (void)state;
}

static void engine_fini(void *state)
{
    (void)state; /* an engine only ends by a kill */
}

const struct sl_actor handover_engine = {
    .role = "client",
    .state_bytes = sizeof(struct engine),
    .init = engine_init,
    .handle = engine_handle,
    .tick = engine_tick,
    .drain = engine_drain,
    .fini = engine_fini,
};
