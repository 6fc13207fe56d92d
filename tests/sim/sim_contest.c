/* tests/sim/sim_contest.c - see the header. */
#include "tests/sim/sim_contest.h"

#include "client/include/sluice.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MARGIN_NS    (10 * SL_NS_PER_MS)
#define STEPS_MAX    6u
#define PAUSE_NS_MAX (300 * SL_NS_PER_US)

struct call {
    uint32_t keys[CONTEST_BATCH], ops[CONTEST_BATCH], count;
    char texts[CONTEST_BATCH][24];
    struct sl_object_key names[CONTEST_BATCH];
    uint64_t timeout_ns, began_ns, stalled_ns;
    bool warming;
};

/* ---- values ---- */

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static uint64_t value_bytes(uint32_t value)
{
    static const uint32_t sizes[] = {8, 100, 700, 4096, 5000, CONTEST_VALUE_BYTES};
    return sizes[mix(value + 77u) % SL_COUNT(sizes)];
}

static void value_fill(unsigned char *out, uint32_t key, uint32_t value)
{
    uint64_t bytes = value_bytes(value);
    for (uint64_t at = 0; at < bytes; at += sizeof(uint64_t)) {
        uint64_t word = at == 0 ? (uint64_t)key << 32 | value : mix((uint64_t)value << 32 | at);
        memcpy(out + at, &word, SL_MIN(sizeof(word), bytes - at));
    }
}

static uint32_t value_of(const struct contest *all, uint32_t key, const void *bytes,
                         uint64_t length_bytes)
{
    static unsigned char want[CONTEST_VALUE_BYTES];
    uint64_t word = 0;
    memcpy(&word, bytes, SL_MIN(sizeof(word), length_bytes));
    uint32_t value = (uint32_t)word;
    SIM_CHECK(word >> 32 == key && value > 0 && value <= all->last_value &&
                  length_bytes == value_bytes(value),
              "wrong bytes: contested key %u gives %llu bytes that begin with %016llx", key,
              (unsigned long long)length_bytes, (unsigned long long)word);
    value_fill(want, key, value);
    SIM_CHECK(memcmp(bytes, want, length_bytes) == 0,
              "wrong bytes: contested key %u, value %u: torn or overwritten", key, value);
    return value;
}

/* ---- the history ---- */

static uint32_t op_begin(struct contestant *self, enum linear_kind kind, uint32_t key,
                         uint32_t value)
{
    struct contest *all = self->all;
    SIM_CHECK(all->op_count < CONTEST_OPS_MAX, "more ops than the history holds");
    all->open[all->op_count] = true;
    all->ops[all->op_count] = (struct linear_op){.call = sim_now_ns(all->sim),
                                                 .back = LINEAR_NEVER,
                                                 .key = key,
                                                 .value = value,
                                                 .who = (uint16_t)self->who,
                                                 .kind = (uint8_t)kind,
                                                 .maybe = kind < LINEAR_GET,
                                                 .loses = all->loses || *all->warming};
    return all->op_count++;
}

static void op_forget(struct contest *all, uint32_t number)
{
    all->open[number] = false;
    all->ops[number].kind = LINEAR_EXISTS; /* removed before the check */
    all->ops[number].who = UINT16_MAX;
}

/* Known codes show whether it took effect; after others it may do so until all is at rest. */
static void write_ended(struct contestant *self, const struct call *call, uint32_t at, sl_err code)
{
    struct contest *all = self->all;
    struct linear_op *op = &all->ops[call->ops[at]];
    bool gone = op->kind == LINEAR_REMOVE && code == SL_ERR_NOT_FOUND;
    op->loses = op->loses || *all->warming;
    if (code == SL_OK || gone) {
        op->back = sim_now_ns(all->sim);
        op->maybe = false;
        all->open[call->ops[at]] = false;
        all->writes++;
    } else if (code == SL_ERR_BUSY || code == SL_ERR_NO_SPACE) {
        all->refused++;
        op_forget(all, call->ops[at]);
    } else {
        all->unanswered++;
    }
}

static void read_ended(struct contestant *self, const struct call *call, uint32_t at, sl_err code,
                       uint32_t value)
{
    struct contest *all = self->all;
    struct linear_op *op = &all->ops[call->ops[at]];
    bool blind = code == SL_ERR_NOT_FOUND && (call->warming || *all->warming);
    if ((code != SL_OK && code != SL_ERR_NOT_FOUND) || blind) {
        op_forget(all, call->ops[at]);
        return;
    }
    op->back = sim_now_ns(all->sim);
    op->kind = code == SL_ERR_NOT_FOUND ? LINEAR_MISS : value != 0 ? LINEAR_GET : LINEAR_EXISTS;
    op->value = value;
    all->open[call->ops[at]] = false;
    all->reads++;
}

/* ---- calls ---- */

static uint32_t value_new(struct contest *all)
{
    return ++all->last_value;
}

static void call_choose(struct contestant *self, struct call *call, uint32_t count_max)
{
    static const uint64_t timeouts[] = {50 * SL_NS_PER_MS, 400 * SL_NS_PER_MS, 2 * SL_NS_PER_S};
    struct sim *sim = self->all->sim;
    uint32_t first = (uint32_t)sim_random_below(sim, 2 * CONTEST_KEYS);
    first = first < CONTEST_KEYS ? first : 0; /* the first one is the most frequent */
    call->count = sim_random_below(sim, 4) == 0 ? count_max : 1;
    for (uint32_t i = 0; i < call->count; i++) {
        call->keys[i] = (first + i) % CONTEST_KEYS;
        int length = snprintf(call->texts[i], sizeof(call->texts[i]), "contest.%u", call->keys[i]);
        call->names[i] = (struct sl_object_key){.at = call->texts[i], .length = (uint32_t)length};
    }
    call->timeout_ns = timeouts[sim_random_below(sim, SL_COUNT(timeouts))];
}

static void call_begin(struct contestant *self, struct call *call, enum linear_kind kind)
{
    call->began_ns = sim_now_ns(self->all->sim);
    call->stalled_ns = sim_stalled_ns();
    call->warming = *self->all->warming;
    for (uint32_t i = 0; i < call->count; i++) {
        uint32_t value = kind == LINEAR_PUT || kind == LINEAR_REPLACE ? value_new(self->all) : 0;
        call->ops[i] = op_begin(self, kind, call->keys[i], value);
        if (value != 0) {
            value_fill(self->memory[i], call->keys[i], value);
        }
    }
}

static void call_ended(struct contestant *self, const struct call *call, const char *what)
{
    uint64_t took_ns = sim_now_ns(self->all->sim) - call->began_ns;
    uint64_t stalled_ns = sim_stalled_ns() - call->stalled_ns;
    took_ns -= SL_MIN(stalled_ns, took_ns);
    SIM_CHECK(took_ns <= call->timeout_ns + MARGIN_NS, "a contested %s with %llu ms took %llu ms",
              what, (unsigned long long)(call->timeout_ns / SL_NS_PER_MS),
              (unsigned long long)(took_ns / SL_NS_PER_MS));
}

static void do_put(struct contestant *self)
{
    struct call call = {0};
    struct sl_buffer buffers[CONTEST_BATCH];
    sl_err codes[CONTEST_BATCH];
    call_choose(self, &call, 2);
    call_begin(self, &call, LINEAR_PUT);
    for (uint32_t i = 0; i < call.count; i++) {
        uint64_t bytes = value_bytes(self->all->ops[call.ops[i]].value);
        buffers[i] = (struct sl_buffer){.at = self->memory[i], .length_bytes = bytes};
    }
    sl_err err =
        sl_put_batch(self->client, call.names, buffers, call.count, codes, call.timeout_ns, NULL);
    call_ended(self, &call, "put");
    for (uint32_t i = 0; i < call.count; i++) {
        write_ended(self, &call, i, err != SL_OK ? err : codes[i]);
    }
}

static void do_replace(struct contestant *self)
{
    const struct sl_put_options terms = {.replace = true};
    struct call call = {0};
    struct sl_iov pieces[CONTEST_BATCH];
    struct sl_iov_list items[CONTEST_BATCH];
    sl_err codes[CONTEST_BATCH];
    call_choose(self, &call, 2);
    call_begin(self, &call, LINEAR_REPLACE);
    for (uint32_t i = 0; i < call.count; i++) {
        uint64_t bytes = value_bytes(self->all->ops[call.ops[i]].value);
        pieces[i] = (struct sl_iov){.at = self->memory[i], .length_bytes = bytes};
        items[i] = (struct sl_iov_list){.key = call.names[i], .at = &pieces[i], .count = 1};
    }
    sl_err err = sl_putv(self->client, items, call.count, &terms, codes, call.timeout_ns, NULL);
    call_ended(self, &call, "replace");
    for (uint32_t i = 0; i < call.count; i++) {
        write_ended(self, &call, i, err != SL_OK ? err : codes[i]);
    }
}

static void do_remove(struct contestant *self)
{
    struct call call = {0};
    sl_err codes[CONTEST_BATCH];
    call_choose(self, &call, 2);
    call_begin(self, &call, LINEAR_REMOVE);
    sl_err err =
        sl_remove_batch(self->client, call.names, call.count, NULL, codes, call.timeout_ns, NULL);
    call_ended(self, &call, "remove");
    for (uint32_t i = 0; i < call.count; i++) {
        write_ended(self, &call, i, err != SL_OK ? err : codes[i]);
    }
}

static void get_with(struct contestant *self, struct call *call)
{
    struct sl_buffer buffers[CONTEST_BATCH];
    uint64_t lengths[CONTEST_BATCH];
    sl_err codes[CONTEST_BATCH];
    for (uint32_t i = 0; i < call->count; i++) {
        buffers[i] = (struct sl_buffer){.at = self->memory[i], .length_bytes = CONTEST_VALUE_BYTES};
    }
    call_begin(self, call, LINEAR_GET);
    sl_err err = sl_get_batch(self->client, call->names, buffers, call->count, lengths, codes,
                              call->timeout_ns, NULL);
    call_ended(self, call, "get");
    for (uint32_t i = 0; i < call->count; i++) {
        sl_err code = err != SL_OK ? err : codes[i];
        uint32_t value =
            code == SL_OK ? value_of(self->all, call->keys[i], self->memory[i], lengths[i]) : 0;
        read_ended(self, call, i, code, value);
    }
}

static void do_get(struct contestant *self)
{
    struct call call = {0};
    call_choose(self, &call, CONTEST_BATCH);
    get_with(self, &call);
}

static void do_get_pinned(struct contestant *self)
{
    struct call call = {0};
    struct sl_view view = {0};
    uint32_t value = 0;
    call_choose(self, &call, 1);
    call_begin(self, &call, LINEAR_GET);
    sl_err err = sl_get_pinned(self->client, call.names[0], &view, call.timeout_ns, NULL);
    call_ended(self, &call, "pinned get");
    if (err == SL_OK) {
        value = value_of(self->all, call.keys[0], view.at, view.length_bytes);
    }
    read_ended(self, &call, 0, err, value);
    if (err == SL_OK) { /* other clients use the key meanwhile: the bytes must not change */
        sim_sleep(sim_random_below(self->all->sim, 5 * SL_NS_PER_MS));
        uint32_t then = value_of(self->all, call.keys[0], view.at, view.length_bytes);
        SIM_CHECK(then == value, "pinned bytes changed: contested key %u, value %u is %u now",
                  call.keys[0], value, then);
        sl_view_release(self->client, &view);
    }
}

static void do_exists(struct contestant *self)
{
    struct call call = {0};
    call_choose(self, &call, 1);
    call_begin(self, &call, LINEAR_EXISTS);
    sl_err err = sl_exists(self->client, call.names[0]);
    call_ended(self, &call, "exists");
    read_ended(self, &call, 0, err, 0);
}

static void step(struct contestant *self)
{
    uint64_t what = sim_random_below(self->all->sim, 100);
    if (what < 18) {
        do_put(self);
    } else if (what < 34) {
        do_replace(self);
    } else if (what < 50) {
        do_remove(self);
    } else if (what < 80) {
        do_get(self);
    } else if (what < 90) {
        do_get_pinned(self);
    } else {
        do_exists(self);
    }
}

/* Makes the calls in a row, so that clients overlap. */
void contest_steps(struct contestant *self)
{
    struct sim *sim = self->all->sim;
    for (uint64_t left = 1 + sim_random_below(sim, STEPS_MAX); left > 0; left--) {
        step(self);
        sim_sleep(sim_random_below(sim, PAUSE_NS_MAX));
    }
}

void contest_read_all(struct contestant *self)
{
    for (uint32_t i = 0; i < CONTEST_KEYS; i++) {
        struct call call = {0};
        call_choose(self, &call, CONTEST_BATCH);
        call.timeout_ns = 2 * SL_NS_PER_S;
        get_with(self, &call);
    }
}

/* ---- from outside ---- */

void contest_init(struct contest *contest, struct sim *sim, const bool *warming)
{
    contest->sim = sim;
    contest->warming = warming;
}

void contestant_init(struct contestant *self, struct contest *all, struct sl_client *client,
                     uint32_t who)
{
    *self = (struct contestant){.all = all, .client = client, .who = who};
    for (uint32_t i = 0; i < CONTEST_BATCH; i++) {
        self->memory[i] = malloc(CONTEST_VALUE_BYTES + sizeof(uint64_t));
        SIM_CHECK(self->memory[i] != NULL, "out of memory");
    }
}

void contestant_fini(struct contestant *self)
{
    for (uint32_t i = 0; i < CONTEST_BATCH; i++) {
        free(self->memory[i]);
    }
}

static void op_add(struct contest *contest, struct linear_op op)
{
    SIM_CHECK(contest->op_count < CONTEST_OPS_MAX, "more ops than the history holds");
    contest->ops[contest->op_count++] = op;
}

void contest_removed_all(struct contest *contest, uint64_t from_ns, uint64_t to_ns)
{
    for (uint32_t key = 0; key < CONTEST_KEYS; key++) {
        op_add(contest, (struct linear_op){
                            .call = from_ns, .back = to_ns, .key = key, .kind = LINEAR_REMOVE});
    }
}

void contest_crash(struct contest *contest)
{
    uint64_t now_ns = sim_now_ns(contest->sim);
    contest_calls_over(contest);
    for (uint32_t key = 0; key < CONTEST_KEYS; key++) {
        op_add(contest, (struct linear_op){
                            .call = now_ns, .back = now_ns, .key = key, .kind = LINEAR_CRASH});
    }
}

void contest_calls_over(struct contest *contest)
{
    for (uint32_t i = 0; i < contest->op_count; i++) {
        if (!contest->open[i]) {
            continue;
        }
        contest->open[i] = false;
        if (contest->ops[i].kind >= LINEAR_GET) {
            op_forget(contest, i); /* its reader was killed */
        } else {
            contest->ops[i].back = sim_now_ns(contest->sim);
        }
    }
}

void contest_check(struct contest *contest)
{
    struct linear_result result;
    uint32_t kept = 0;
    contest_calls_over(contest);
    for (uint32_t i = 0; i < contest->op_count; i++) {
        if (contest->ops[i].who != UINT16_MAX) {
            contest->ops[kept++] = contest->ops[i];
        }
    }
    contest->op_count = kept;
    bool alone = getenv("SL_SIM_SEED") != NULL;
    linear_check(contest->ops, kept, &(struct linear_limits){.print = stderr, .print_all = alone},
                 &result);
    if (alone) {
        printf("contest: %llu writes, %llu reads, %llu without an answer, %llu refused; %llu "
               "windows of at most %llu ops and %llu states, %llu undecided, not linearizable "
               "%llu\n",
               (unsigned long long)contest->writes, (unsigned long long)contest->reads,
               (unsigned long long)contest->unanswered, (unsigned long long)contest->refused,
               (unsigned long long)result.windows, (unsigned long long)result.window_max,
               (unsigned long long)result.states_max, (unsigned long long)result.undecided,
               (unsigned long long)result.violations);
    }
    SIM_CHECK(result.violations == 0, "not linearizable: %llu of %llu keys",
              (unsigned long long)result.violations, (unsigned long long)result.keys);
    SIM_CHECK(result.undecided == 0, "%llu windows of contested keys are undecided",
              (unsigned long long)result.undecided);
}
