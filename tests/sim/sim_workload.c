/* tests/sim/sim_workload.c - an engine as an actor: it registers, then loads the longest prefix of
 * a chain, checks every byte, "computes" missing blocks and stores them.
 *
 * A released device block is filled at once, with a different byte each time. Whenever an op begins
 * or ends, all free blocks must still have it: this catches writes after a fence, or after the end
 * of the registration. A stored block is overwritten as soon as the answer reports it as fenced: a
 * later read stores wrong bytes, which the next load detects. */
#include "tests/sim/sim_workload.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BLOCK_TOKENS    4u
#define BUDGET_NS       (2 * SL_NS_PER_S)
#define ANSWER_SLACK_NS (5 * SL_NS_PER_MS)
#define PAUSE_NS_MAX    (15 * SL_NS_PER_MS)
#define IDLE_NS         (20 * SL_NS_PER_MS)
#define LAYERS          2u /* of the first pool; the second has one */
#define LAYERED_OF      3u /* one op in this number; the second pool belongs to the last layer */
#define LAYER_NS        (1 * SL_NS_PER_MS) /* longest computation of a layer */
#define LAYER_AGAIN_NS  (5 * SL_NS_PER_MS)
#define STATE_BYTES     1000u                 /* a piece of the second pool: not a multiple of 16 */
#define END_NS          (1500 * SL_NS_PER_MS) /* as in libsluice */
#define END_WITHIN_NS   (6 * SL_NS_PER_MS)    /* after the beginning of an op */
#define PIECE_BYTES_MAX 8192u

#define RATED_ONE_OF 4u /* one load in this number states its engine's tokens a second */
#define RATE_LEAST   UINT64_C(100)
#define RATE_DOUBLES 16u
enum phase { PHASE_REGISTER, PHASE_IDLE, PHASE_LOAD, PHASE_STORE, PHASE_FENCE, PHASE_END };

struct engine {
    struct sl_env *env;
    struct workload *work;
    struct sl_calls *calls;
    enum phase phase, after_fence;
    uint64_t engine_id, op_id, next_op, started_ns, suspended_ns, cancel_at_ns, start_after_ns;
    int fds[WORKLOAD_RANKS][WORKLOAD_POOLS];
    unsigned char *memory[WORKLOAD_RANKS][WORKLOAD_POOLS];
    bool lent[WORKLOAD_DEVICE_BLOCKS];
    uint32_t given[WORKLOAD_DEVICE_BLOCKS]; /* use count: determines a free block's byte */
    uint64_t op_seq, end_at_ns;   /* the op's request; when the registration ends. 0: none */
    uint32_t chain, first, count; /* of the op: blocks first..first + count of the chain */
    uint32_t expected;            /* of a load: blocks that must be found */
    uint32_t loaded;
    bool load; /* the op that is over was a load: its first blocks are the loaded ones */
    uint64_t device[WORKLOAD_BLOCKS];
    bool verify;
    bool by_layers;
    bool rated;                      /* a load that may skip blocks that are faster to compute */
    uint32_t layers_done;            /* store: computed; load: reported */
    uint64_t layer_at_ns, layer_seq; /* of requests about them; 0: none is in flight */
};
static const uint64_t layer_ends[LAYERS][WORKLOAD_POOLS] = {{1, 0}, {2, 1}};

/* ---- blocks and their contents ---- */

static uint32_t block_id(uint32_t chain, uint32_t block)
{
    if (block < WORKLOAD_SHARED) {
        return chain % WORKLOAD_TRUNKS * WORKLOAD_SHARED + block;
    }
    return WORKLOAD_TRUNKS * WORKLOAD_SHARED + chain * (WORKLOAD_BLOCKS - WORKLOAD_SHARED) + block -
           WORKLOAD_SHARED;
}

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

enum piece_verb { PIECE_FREE, PIECE_CHECK_FREE, PIECE_FILL, PIECE_CHECK };
struct piece {
    unsigned char *at;
    uint64_t bytes, device;
    uint32_t id, rank, pool, layer;
};

static void content_fill(unsigned char *out, const struct piece *piece)
{
    for (uint64_t at = 0; at < piece->bytes; at += sizeof(uint64_t)) {
        uint64_t word = mix((uint64_t)(piece->id + 1) << 32 | (uint64_t)piece->rank << 28 |
                            (uint64_t)piece->pool << 24 | (uint64_t)piece->layer << 20 | at >> 3);
        memcpy(out + at, &word, SL_MIN(sizeof(word), piece->bytes - at));
    }
}

static uint64_t piece_bytes(const struct workload *work, uint32_t pool)
{
    return pool == 0 ? work->piece_bytes : STATE_BYTES;
}

static uint64_t stride_bytes(const struct workload *work, uint32_t pool)
{
    return piece_bytes(work, pool) + 24;
}

static uint32_t layer_count(uint32_t pool)
{
    return pool == 0 ? LAYERS : 1u;
}

static uint64_t pool_bytes(const struct workload *work, uint32_t pool)
{
    return layer_count(pool) * stride_bytes(work, pool) * WORKLOAD_DEVICE_BLOCKS;
}

static unsigned char *piece_at(const struct engine *self, uint32_t rank, uint32_t pool,
                               uint32_t layer, uint64_t device)
{
    uint64_t stride = stride_bytes(self->work, pool);
    return self->memory[rank][pool] + layer * stride * WORKLOAD_DEVICE_BLOCKS + device * stride;
}

/* The block whose content a piece holds; -1: none. */
static int piece_whose(const struct piece *piece)
{
    unsigned char would[PIECE_BYTES_MAX];
    struct piece other = *piece;
    for (other.id = 0; other.id < WORKLOAD_IDS; other.id++) {
        content_fill(would, &other);
        if (memcmp(would, piece->at, piece->bytes) == 0) {
            return (int)other.id;
        }
    }
    return -1;
}

static void piece_do(const struct engine *self, const struct piece *piece, enum piece_verb verb)
{
    unsigned char want[PIECE_BYTES_MAX];
    SIM_CHECK(piece->bytes <= sizeof(want), "pieces are at most %zu bytes", sizeof(want));
    if (verb == PIECE_FREE || verb == PIECE_CHECK_FREE) {
        memset(want, (int)(1 + piece->id % 255), piece->bytes);
    } else {
        content_fill(want, piece);
    }
    if (verb == PIECE_FREE || verb == PIECE_FILL) {
        memcpy(piece->at, want, piece->bytes);
        return;
    }
    for (uint64_t k = 0; memcmp(piece->at, want, piece->bytes) != 0 && k < piece->bytes; k++) {
        SIM_CHECK(piece->at[k] == want[k],
                  "%s: %s: block id %u, rank %u, pool %u, layer %u, byte %llu of device block %llu "
                  "is %02x, not %02x; it holds block id %d",
                  self->env->name, verb == PIECE_CHECK ? "wrong bytes" : "written after its fence",
                  piece->id, piece->rank, piece->pool, piece->layer, (unsigned long long)k,
                  (unsigned long long)piece->device, piece->at[k], want[k], piece_whose(piece));
    }
}

/* Applies the verb to every piece of a device block in layers [first, end). id: the block with that
 * content, or the release count of a free block. */
static void pieces_between(const struct engine *self, uint64_t device, uint32_t id,
                           enum piece_verb verb, uint32_t first, uint32_t end)
{
    for (uint32_t i = 0; i < WORKLOAD_RANKS * WORKLOAD_POOLS * LAYERS; i++) {
        uint32_t rank = i / (WORKLOAD_POOLS * LAYERS), pool = i / LAYERS % WORKLOAD_POOLS,
                 layer = i % LAYERS;
        uint32_t computed = pool == 0 ? layer : LAYERS - 1; /* by this layer of the forward pass */
        if (layer >= layer_count(pool) || computed < first || computed >= end) {
            continue;
        }
        piece_do(self,
                 &(struct piece){piece_at(self, rank, pool, layer, device),
                                 piece_bytes(self->work, pool), device, id, rank, pool, layer},
                 verb);
    }
}

static void pieces(const struct engine *self, uint64_t device, uint32_t id, enum piece_verb verb)
{
    pieces_between(self, device, id, verb, 0, LAYERS);
}

/* Fills free blocks, or checks that their contents have not changed. */
static void free_blocks(const struct engine *self, enum piece_verb verb)
{
    for (uint32_t i = 0; i < WORKLOAD_DEVICE_BLOCKS; i++) {
        if (!self->lent[i]) {
            pieces(self, i, self->given[i], verb);
        }
    }
}

static void blocks_take(struct engine *self, uint32_t count)
{
    uint32_t start = (uint32_t)sim_random_below(sim_of(self->env), WORKLOAD_DEVICE_BLOCKS);
    uint32_t taken = 0;
    free_blocks(self, PIECE_CHECK_FREE);
    for (uint32_t i = 0; i < WORKLOAD_DEVICE_BLOCKS && taken < count; i++) {
        uint32_t device = (start + i) % WORKLOAD_DEVICE_BLOCKS;
        if (!self->lent[device]) {
            self->lent[device] = true;
            self->device[taken++] = device;
        }
    }
    SIM_CHECK(taken == count, "%u of %u device blocks are free", taken, count);
}

/* Releases blocks: from now on they must not be accessed. */
static void blocks_give(struct engine *self)
{
    free_blocks(self, PIECE_CHECK_FREE);
    for (uint32_t i = 0; i < WORKLOAD_DEVICE_BLOCKS; i++) {
        if (self->lent[i]) {
            self->lent[i] = false;
            pieces(self, i, ++self->given[i], PIECE_FREE);
        }
    }
}

void workload_flushed(void *context, uint64_t before_ns)
{
    struct workload *work = context;
    for (uint32_t id = 0; id < WORKLOAD_IDS; id++) {
        work->durable[id] |= work->acknowledged[id] && work->acknowledged_ns[id] < before_ns;
    }
}

void workload_power_cut(struct workload *work)
{
    memcpy(work->acknowledged, work->durable, sizeof(work->acknowledged));
}

/* ---- registration ---- */

static void engine_register(struct engine *self)
{
    struct sl_item_pool pools[WORKLOAD_POOLS] = {{.name = sl_text_of("attn"), .kind = 0},
                                                 {.name = sl_text_of("state"), .kind = 1}};
    struct sl_item_region regions[WORKLOAD_RANKS * WORKLOAD_POOLS * LAYERS];
    uint64_t count = 0;
    for (uint32_t i = 0; i < WORKLOAD_RANKS * WORKLOAD_POOLS * LAYERS; i++) {
        uint32_t rank = i / (WORKLOAD_POOLS * LAYERS), pool = i / LAYERS % WORKLOAD_POOLS,
                 layer = i % LAYERS;
        if (layer >= layer_count(pool)) {
            continue;
        }
        uint64_t stride = stride_bytes(self->work, pool);
        regions[count++] =
            (struct sl_item_region){.rank = rank,
                                    .pool = pool,
                                    .layer = layer,
                                    .handle_kind = 1, /* shared memory by descriptor */
                                    .pid = (uint32_t)getpid(),
                                    .fd = (uint64_t)self->fds[rank][pool],
                                    .offset_bytes = layer * stride * WORKLOAD_DEVICE_BLOCKS,
                                    .length_bytes = stride * WORKLOAD_DEVICE_BLOCKS,
                                    .block_stride_bytes = stride,
                                    .piece_bytes = piece_bytes(self->work, pool),
                                    .block_count = WORKLOAD_DEVICE_BLOCKS};
    }
    struct sl_msg msg = {.type = SL_MSG_ENGINE_REGISTER};
    msg.body.engine_register = (struct sl_body_engine_register){
        .pid = self->env->self.pid,
        .start_time = self->env->self.start_time,
        .name = sl_text_of("sim"),
        .model = sl_text_of("0123456789abcdef0123456789abcdef"),
        .key_format = sl_text_of("sluice"),
        .block_tokens = BLOCK_TOKENS,
        .world = WORKLOAD_RANKS,
        .pools = {.at = pools, .count = WORKLOAD_POOLS},
        .regions = {.at = regions, .count = count},
    };
    SIM_CHECK(sl_calls_send(self->calls, "registrar", &msg, self->env->now_ns + 30 * SL_NS_PER_S, 0,
                            NULL) == SL_OK,
              "not sent");
}

static sl_err engine_init(void *state, struct sl_env *env, struct sl_error *why)
{
    struct engine *self = state;
    self->env = env;
    self->work = sim_context(env);
    self->next_op = (uint64_t)env->self.pid << 32 | 1;
    for (uint32_t i = 0; i < WORKLOAD_RANKS * WORKLOAD_POOLS; i++) {
        uint32_t rank = i / WORKLOAD_POOLS, pool = i % WORKLOAD_POOLS;
        uint64_t bytes = pool_bytes(self->work, pool);
        self->fds[rank][pool] = memfd_create("sim-pool", MFD_CLOEXEC);
        SIM_CHECK(self->fds[rank][pool] >= 0, "no memory for a pool");
        SIM_CHECK(ftruncate(self->fds[rank][pool], (off_t)bytes) == 0, "no memory for a pool");
        self->memory[rank][pool] =
            mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, self->fds[rank][pool], 0);
        SIM_CHECK(self->memory[rank][pool] != MAP_FAILED, "no memory for a pool");
    }
    free_blocks(self, PIECE_FREE);
    sl_err err = sl_calls_create(env, 32, &self->calls, why);
    if (err == SL_OK) {
        engine_register(self);
    }
    return err;
}

/* ---- ops ---- */

static uint32_t acknowledged_from(const struct workload *work, uint32_t chain, uint32_t first,
                                  uint32_t count)
{
    uint32_t found = 0;
    while (found < count && work->acknowledged[block_id(chain, first + found)]) {
        found++;
    }
    return found;
}

/* Computes or compares the op's blocks in these layers. */
static void layers_do(struct engine *self, uint32_t block_count, enum piece_verb verb,
                      uint32_t first, uint32_t end)
{
    for (uint32_t i = 0; i < block_count; i++) {
        pieces_between(self, self->device[i], block_id(self->chain, self->first + i), verb, first,
                       end);
    }
}

/* Reports computed layers, or asks for the next one. Repeated until answered, through any kills. */
static void layers_say(struct engine *self)
{
    bool store = self->phase == PHASE_STORE;
    struct sl_msg msg = {.type = SL_MSG_LAYERS, .op_id = self->op_id, .trace_id = self->op_id};
    msg.body.layers.target_op = self->op_id;
    msg.body.layers.layers = store ? self->layers_done : self->layers_done + 1;
    msg.body.layers.wait = !store;
    if (self->layer_seq == 0) {
        SIM_CHECK(sl_calls_send(self->calls, "coordinator", &msg,
                                self->env->now_ns + 10 * LAYER_AGAIN_NS, 0,
                                &self->layer_seq) == SL_OK,
                  "not sent");
    }
}

static void layers_step(struct engine *self, uint64_t now_ns)
{
    bool store = self->phase == PHASE_STORE, load = self->phase == PHASE_LOAD;
    if (!self->by_layers || (!store && !load) || (load && self->layers_done == LAYERS)) {
        return;
    }
    if (now_ns >= self->layer_at_ns) {
        if (store && self->layers_done < LAYERS) {
            layers_do(self, self->count, PIECE_FILL, self->layers_done, self->layers_done + 1);
            self->layers_done++;
        }
        layers_say(self);
        uint64_t next_ns = store && self->layers_done < LAYERS
                               ? 1 + sim_random_below(sim_of(self->env), LAYER_NS)
                               : LAYER_AGAIN_NS;
        self->layer_at_ns = now_ns + next_ns;
    }
    self->env->ops->wake_at(self->env, self->layer_at_ns);
}

static void layers_begin(struct engine *self)
{
    self->layers_done = 0;
    self->layer_at_ns = self->env->now_ns + sim_random_below(sim_of(self->env), LAYER_NS);
    self->env->ops->wake_at(self->env, self->layer_at_ns);
}

static void layers_end(struct engine *self)
{
    if (self->layer_seq != 0) {
        sl_calls_drop(self->calls, self->layer_seq);
        self->layer_seq = 0;
    }
}

/* A reported layer has the right bytes at once. */
static void layers_reported(struct engine *self, const struct sl_msg *reply)
{
    const struct sl_body_layers_reply *body = &reply->body.layers_reply;
    self->layer_seq = 0;
    if (self->phase != PHASE_LOAD || reply->code != SL_OK) {
        return;
    }
    SIM_CHECK(body->layers > self->layers_done && body->layers <= LAYERS &&
                  body->block_count <= self->count,
              "op %llx: %llu layers of %llu blocks", (unsigned long long)self->op_id,
              (unsigned long long)body->layers, (unsigned long long)body->block_count);
    layers_do(self, (uint32_t)body->block_count, PIECE_CHECK, self->layers_done,
              (uint32_t)body->layers);
    self->work->layers_reported += body->layers - self->layers_done;
    self->layers_done = (uint32_t)body->layers;
    self->layer_at_ns = self->env->now_ns;
    layers_step(self, self->env->now_ns);
}

static void op_send(struct engine *self, bool store)
{
    uint32_t tokens[WORKLOAD_BLOCKS * BLOCK_TOKENS];
    for (uint32_t i = 0; i < (self->first + self->count) * BLOCK_TOKENS; i++) {
        tokens[i] = block_id(self->chain, i / BLOCK_TOKENS) * BLOCK_TOKENS + i % BLOCK_TOKENS;
    }
    struct sl_bytes token_bytes = {
        .at = tokens, .length = (uint64_t)(self->first + self->count) * BLOCK_TOKENS * 4};
    struct sl_u64s device = {.at = self->device, .count = self->count};
    struct sl_msg msg = {.type = store ? SL_MSG_STORE : SL_MSG_LOAD,
                         .op_id = self->op_id = self->next_op++};
    msg.trace_id = self->op_id;
    if (store) {
        msg.body.store = (struct sl_body_store){.engine_id = self->engine_id,
                                                .tokens = token_bytes,
                                                .first_block = self->first,
                                                .device_blocks = device};
    } else {
        uint64_t drawn = mix(self->op_id);
        self->rated = !self->verify && drawn % RATED_ONE_OF == 0;
        msg.body.load = (struct sl_body_load){
            .engine_id = self->engine_id,
            .tokens = token_bytes,
            .first_block = self->first,
            .device_blocks = device,
            .prefill_rate = self->rated ? RATE_LEAST << (drawn >> 8) % RATE_DOUBLES : 0};
    }
    if (self->by_layers) {
        const struct sl_u64s ends = {.at = &layer_ends[0][0], .count = LAYERS * WORKLOAD_POOLS};
        if (store) {
            msg.body.store.layer_ends = ends;
            msg.body.store.layered_blocks = device;
            msg.body.store.device_blocks.count = 0;
        } else {
            msg.body.load.layer_ends = ends;
        }
        layers_begin(self);
    }
    self->phase = store ? PHASE_STORE : PHASE_LOAD;
    self->started_ns = self->env->now_ns;
    self->suspended_ns = sim_suspended_ns(sim_of(self->env));
    SIM_CHECK(sl_calls_send(self->calls, "coordinator", &msg, self->env->now_ns + BUDGET_NS, 0,
                            &self->op_seq) == SL_OK,
              "not sent");
    if (!self->verify && self->work->ends_one_of != 0 &&
        sim_random_below(sim_of(self->env), self->work->ends_one_of) == 0) {
        self->end_at_ns = self->env->now_ns + sim_random_below(sim_of(self->env), END_WITHIN_NS);
        self->env->ops->wake_at(self->env, self->end_at_ns);
    }
    if (!self->verify && sim_random_below(sim_of(self->env), 25) == 0) {
        self->cancel_at_ns =
            self->env->now_ns + sim_random_below(sim_of(self->env), 3 * SL_NS_PER_MS);
        self->env->ops->wake_at(self->env, self->cancel_at_ns);
    }
}

static void load_begin(struct engine *self)
{
    struct workload *work = self->work;
    struct sim *sim = sim_of(self->env);
    self->verify = work->verifying;
    if (self->verify) {
        self->chain = work->verify_next;
        self->first = 0;
        self->count = WORKLOAD_BLOCKS;
    } else {
        self->chain = (uint32_t)sim_random_below(sim, WORKLOAD_CHAINS);
        self->first =
            sim_random_below(sim, 4) == 0 ? (uint32_t)sim_random_below(sim, WORKLOAD_BLOCKS) : 0;
        self->count = 1 + (uint32_t)sim_random_below(sim, WORKLOAD_BLOCKS - self->first);
    }
    self->expected = acknowledged_from(work, self->chain, self->first, self->count);
    blocks_take(self, self->count);
    self->by_layers = sim_random_below(sim, LAYERED_OF) == 0;
    op_send(self, false);
}

static void engine_pause(struct engine *self)
{
    self->phase = PHASE_IDLE;
    uint64_t pause_ns = self->work->pause_ns_max != 0 ? self->work->pause_ns_max : PAUSE_NS_MAX;
    self->start_after_ns = self->env->now_ns + sim_random_below(sim_of(self->env), pause_ns);
    self->env->ops->wake_at(self->env, self->start_after_ns);
}

static void fence_send(struct engine *self)
{
    struct sl_msg msg = {.type = SL_MSG_OP_FENCED, .op_id = self->op_id, .trace_id = self->op_id};
    msg.body.op_fenced.target_op = self->op_id;
    self->phase = PHASE_FENCE;
    SIM_CHECK(sl_calls_send(self->calls, "coordinator", &msg, self->env->now_ns + BUDGET_NS, 0,
                            NULL) == SL_OK,
              "not sent");
}

static void loaded_check(const struct engine *self)
{
    for (uint32_t i = 0; i < self->loaded; i++) {
        pieces(self, self->device[i], block_id(self->chain, self->first + i), PIECE_CHECK);
    }
}

/* The op has ended and its device blocks are free. */
static void op_fenced(struct engine *self, bool store_next)
{
    if (self->load) {
        loaded_check(self); /* a fence may have happened since its answer */
    }
    self->load = false;
    if (!store_next) {
        blocks_give(self);
        engine_pause(self);
        return;
    }
    uint32_t skip = self->loaded;
    blocks_give(self);
    self->first += skip;
    self->count -= skip;
    blocks_take(self, self->count);
    self->by_layers = sim_random_below(sim_of(self->env), LAYERED_OF) == 0;
    if (!self->by_layers) { /* otherwise they hold contents until then that must not be stored */
        layers_do(self, self->count, PIECE_FILL, 0, LAYERS);
    }
    op_send(self, true);
}

/* Whether an actor was disturbed in a way that may excuse a failure of the op. */
static bool op_disturbed(const struct engine *self)
{
    const uint64_t *own_ns = self->work->disturbed_ns;
    uint64_t disturbed_ns = own_ns != NULL ? *own_ns : sim_disturbed_ns(sim_of(self->env));
    return disturbed_ns + 3 * SL_NS_PER_S >= self->started_ns;
}

static void op_failed(struct engine *self, sl_err code, struct sl_text text)
{
    self->work->failed++;
    /* A store waits for another one's blocks: if that engine ended, until the op ends. */
    bool waited =
        self->work->ends_one_of != 0 && self->phase == PHASE_STORE && code == SL_ERR_TIMEOUT;
    SIM_CHECK(!self->work->nothing_is_lost || op_disturbed(self) || code == SL_ERR_CANCELLED ||
                  waited,
              "%s: op %llx failed although nothing was disturbed: %s: %s", self->env->name,
              (unsigned long long)self->op_id, sl_err_name(code), text.at != NULL ? text.at : "");
}

static void op_waited(struct engine *self)
{
    uint64_t waited_ns = self->env->now_ns - self->started_ns;
    waited_ns -= sim_suspended_ns(sim_of(self->env)) - self->suspended_ns;
    self->work->longest_wait_ns = SL_MAX(self->work->longest_wait_ns, waited_ns);
    SIM_CHECK(waited_ns <= BUDGET_NS + ANSWER_SLACK_NS, "op %llx took %llu ms",
              (unsigned long long)self->op_id, (unsigned long long)(waited_ns / SL_NS_PER_MS));
}

/* A request that was sent twice may have reached two coordinators, one after the other: the answer
 * of one does not cover the other. libsluice does the same (client/lib/op.c). */
static bool sent_once(const struct engine *self)
{
    return self->env->now_ns - self->started_ns <
           sl_config_u64(self->env->config, SL_SET_call_retry);
}

static void load_ended(struct engine *self, const struct sl_msg *reply)
{
    struct workload *work = self->work;
    const struct sl_body_load_reply *body = &reply->body.load_reply;
    work->loads++;
    layers_end(self);
    work->cancelled += reply->code == SL_ERR_CANCELLED ? 1 : 0;
    op_waited(self);
    SIM_CHECK(body->block_count <= self->count, "more blocks loaded than were asked for");
    SIM_CHECK(body->from_memory + body->from_disk + body->from_remote == body->block_count,
              "tiers do not sum up");
    self->loaded = (uint32_t)body->block_count;
    self->load = true;
    loaded_check(self);
    work->blocks_loaded += self->loaded;
    work->blocks_remote += body->from_remote;
    bool again = self->verify && work->late && self->loaded < self->expected;
    if (reply->code != SL_OK) {
        op_failed(self, reply->code, reply->text);
    } else {
        SIM_CHECK(body->block_count + body->not_awaited <= self->count &&
                      (self->rated || body->not_awaited == 0),
                  "%llu blocks loaded and %llu left of %u", (unsigned long long)body->block_count,
                  (unsigned long long)body->not_awaited, self->count);
        SIM_CHECK(!work->nothing_is_lost || work->warming || again || self->rated ||
                      self->loaded >= self->expected,
                  "lost: chain %u from block %u: %u blocks found, %u were acknowledged",
                  self->chain, self->first, self->loaded, self->expected);
    }
    if (self->verify) {
        bool done = reply->code == SL_OK && !again;
        work->verified += done ? self->loaded : 0;
        work->verify_next += done ? 1 : 0;
        work->verify_tries += done ? 0 : 1;
        SIM_CHECK(work->verify_tries < 20, "a load fails again and again: %s",
                  sl_err_name(reply->code));
    }
    bool ours = work->store_of == 0 || self->chain % work->store_of == work->store_at;
    bool store = !self->verify && ours && self->loaded < self->count && reply->code == SL_OK;
    self->after_fence = store ? PHASE_STORE : PHASE_IDLE;
    SIM_CHECK(body->fenced || reply->code != SL_OK || work->straight,
              "a load was fine, yet is not fenced");
    if (body->fenced && sent_once(self)) {
        op_fenced(self, store);
    } else {
        work->waited_for_fence++;
        fence_send(self);
    }
}

static bool bit(struct sl_bytes bits, uint32_t i)
{
    return i / 8 < bits.length && (((const uint8_t *)bits.at)[i / 8] >> (i % 8) & 1) != 0;
}

static void store_ended(struct engine *self, const struct sl_msg *reply)
{
    struct workload *work = self->work;
    const struct sl_body_store_reply *body = &reply->body.store_reply;
    work->stores++;
    work->stored_by_layers += self->by_layers ? 1 : 0;
    layers_end(self);
    work->cancelled += reply->code == SL_ERR_CANCELLED ? 1 : 0;
    op_waited(self);
    uint32_t there = 0;
    for (uint32_t i = 0; i < self->count; i++) {
        bool stored = bit(body->stored, i), existed = bit(body->existed, i);
        SIM_CHECK(!(stored && existed), "block %u was stored and existed", i);
        work->blocks_stored += stored;
        work->blocks_existed += existed;
        there += stored || existed;
        if (stored || existed) {
            uint32_t id = block_id(self->chain, self->first + i);
            work->acknowledged_ns[id] =
                work->acknowledged[id] ? work->acknowledged_ns[id] : self->env->now_ns;
            work->acknowledged[id] = true;
        }
    }
    SIM_CHECK((reply->code == SL_OK) == (there == self->count) ||
                  sl_err_class(reply->code) != SL_CLASS_NONE,
              "%u of %u blocks, yet %s", there, self->count, sl_err_name(reply->code));
    if (reply->code != SL_OK) {
        op_failed(self, reply->code, reply->text);
    }
    if (!self->by_layers) { /* stored blocks are not written to */
        layers_do(self, self->count, PIECE_CHECK, 0, LAYERS);
    }
    self->after_fence = PHASE_IDLE;
    if (body->fenced && sent_once(self)) {
        op_fenced(self, false);
    } else {
        work->waited_for_fence++;
        fence_send(self);
    }
}

/* ---- the end of the registration ---- */

static void end_send(struct engine *self)
{
    struct sl_msg msg = {.type = SL_MSG_ENGINE_END};
    msg.body.engine_end.engine_id = self->engine_id;
    self->phase = PHASE_END;
    SIM_CHECK(sl_calls_send(self->calls, "registrar", &msg, self->env->now_ns + END_NS, 0, NULL) ==
                  SL_OK,
              "not sent");
}

/* Ends the registration in the middle of an op, whose answer no longer matters. */
static void end_begin(struct engine *self)
{
    self->end_at_ns = 0;
    if (self->phase != PHASE_LOAD && self->phase != PHASE_STORE) {
        return;
    }
    layers_end(self);
    sl_calls_drop(self->calls, self->op_seq);
    self->load = false;
    self->work->ended++;
    sim_log(sim_of(self->env), "%s: engine %llu ends in the middle of op %llx", self->env->name,
            (unsigned long long)self->engine_id, (unsigned long long)self->op_id);
    self->started_ns = self->env->now_ns;
    self->suspended_ns = sim_suspended_ns(sim_of(self->env));
    end_send(self);
}

/* No process uses the memory any more: it gets other contents and is registered again. */
static void end_answered(struct engine *self, sl_err code)
{
    if (code != SL_OK) {
        SIM_CHECK(self->env->now_ns - self->started_ns <
                      20 * SL_NS_PER_S + sim_suspended_ns(sim_of(self->env)) - self->suspended_ns,
                  "%s: its registration never ends: %s", self->env->name, sl_err_name(code));
        end_send(self);
        return;
    }
    sim_log(sim_of(self->env), "%s: engine %llu has ended", self->env->name,
            (unsigned long long)self->engine_id);
    blocks_give(self);
    self->phase = PHASE_REGISTER;
    engine_register(self);
}

static void no_answer(struct engine *self, uint32_t type)
{
    if (type == SL_MSG_ENGINE_REGISTER) {
        SIM_CHECK(op_disturbed(self), "%s cannot register", self->env->name);
        engine_register(self);
    }
    if (type == SL_MSG_ENGINE_END) {
        end_answered(self, SL_ERR_TIMEOUT);
    }
    if (type == SL_MSG_LAYERS) {
        self->layer_seq = 0; /* asks again */
    } else if (type == SL_MSG_STORE || type == SL_MSG_LOAD) {
        self->work->unanswered++;
        layers_end(self);
        /* An engine's op that ended may keep others waiting to its end: the answer is late. */
        SIM_CHECK(op_disturbed(self) || (self->work->late && self->work->ends_one_of != 0),
                  "%s: op %llx was not answered although nothing was disturbed", self->env->name,
                  (unsigned long long)self->op_id);
        self->after_fence = PHASE_IDLE;
        fence_send(self);
    } else if (type == SL_MSG_OP_FENCED) {
        SIM_CHECK(self->env->now_ns - self->started_ns <
                      20 * SL_NS_PER_S + sim_suspended_ns(sim_of(self->env)) - self->suspended_ns,
                  "op %llx is never fenced", (unsigned long long)self->op_id);
        fence_send(self);
    }
}

/* The op itself was refused: the body is empty, no block is in use. */
static void call_ended(struct engine *self, const struct sl_call *call, const struct sl_msg *reply)
{
    switch (call->type) {
    case SL_MSG_ENGINE_REGISTER:
        SIM_CHECK(reply->code == SL_OK, "registration refused: %s", reply->text.at);
        self->engine_id = reply->body.engine_register_reply.engine_id;
        engine_pause(self);
        break;
    case SL_MSG_LOAD:
        load_ended(self, reply);
        break;
    case SL_MSG_STORE:
        store_ended(self, reply);
        break;
    case SL_MSG_OP_FENCED:
        if (reply->code == SL_OK && reply->body.op_fenced_reply.fenced) {
            op_fenced(self, self->after_fence == PHASE_STORE);
        } else {
            no_answer(self, SL_MSG_OP_FENCED);
        }
        break;
    case SL_MSG_LAYERS:
        layers_reported(self, reply);
        break;
    case SL_MSG_ENGINE_END:
        end_answered(self, reply->code);
        break;
    default:
        break;
    }
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
    if (self->cancel_at_ns != 0 && now_ns >= self->cancel_at_ns) {
        self->cancel_at_ns = 0;
        if (self->phase == PHASE_LOAD || self->phase == PHASE_STORE) {
            struct sl_msg cancel = {.type = SL_MSG_CANCEL, .op_id = self->op_id};
            cancel.body.cancel.target_op = self->op_id;
            (void)sl_calls_send(self->calls, "coordinator", &cancel, now_ns + 200 * SL_NS_PER_MS, 0,
                                NULL);
        }
    }
    if (self->end_at_ns != 0 && now_ns >= self->end_at_ns) {
        end_begin(self);
    } else if (self->end_at_ns != 0) {
        self->env->ops->wake_at(self->env, self->end_at_ns);
    }
    layers_step(self, now_ns);
    bool may_begin = self->work->verifying ? strcmp(self->env->name, self->work->verifier) == 0 &&
                                                 self->work->verify_next < WORKLOAD_CHAINS
                                           : !self->work->quiet;
    if (self->phase == PHASE_IDLE && may_begin && now_ns >= self->start_after_ns) {
        load_begin(self);
    } else if (self->phase == PHASE_IDLE) {
        self->env->ops->wake_at(self->env, SL_MAX(self->start_after_ns, now_ns + IDLE_NS));
    } else if (self->cancel_at_ns != 0) {
        self->env->ops->wake_at(self->env, self->cancel_at_ns);
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

const struct sl_actor workload_engine = {
    .role = "client",
    .state_bytes = sizeof(struct engine),
    .init = engine_init,
    .handle = engine_handle,
    .tick = engine_tick,
    .drain = engine_drain,
    .fini = engine_fini,
};
