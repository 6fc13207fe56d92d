/* tests/fault/thrash_contest.c - a few keys that all clients put, replace, remove and read at the
 * same time.
 *
 * Each client logs its calls and answers in the shared file, with times of the machine's monotonic
 * clock, since it may be killed between any two instructions. At the end the driver merges all
 * logs, and the history of each key must fit a register (tests/support/linear.h).
 *
 * A log does not grow with the reads. No value is written twice, so a client that reads the same
 * value several times in a row logs only its first and its last read: a history that allows these
 * two allows those in between, since a value that was replaced does not return. The log therefore
 * limits the number of writes and misses, and those have a rate limit. */
#include "tests/fault/thrash_driver.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BATCH_MAX         4u
#define SHARE_PERCENT     14u /* of all reads; a tenth is promised, and the final check reads */
#define BURST_MAX         12u /* calls of a burst, so that callers overlap */
#define HOT_KEYS          4u
#define CHOICES           8u                  /* candidates for each key that is read */
#define ABSENT_NS         (50 * SL_NS_PER_MS) /* pause before a missing key is read again */
#define MOVING_NS         SL_NS_PER_S         /* how long a key counts as moving after a write */
#define FREE_MAX          1024u
#define LOG_HEAD_START    20u           /* 1 / LOG_HEAD_START of the log may be used at once */
#define CLAIM_BYTES       SL_PAGE_BYTES /* charged to the budget of puts, with the value */
#define BUDGET_SHARE      4u            /* one in BUDGET_SHARE bytes that are put */
#define BUDGET_HEAD_START (16 * SL_MIB)
/* An operation without an answer may take effect for this long after its caller gave up or died: it
 * may be in the queue of a stopped actor, which is killed or continues before that. */
#define SETTLE_NS (2 * THRASH_SETTLE_NS)

/* Reads of one key in a row that returned the same value. */
struct run {
    uint32_t value; /* 0: none */
    uint32_t last;  /* its last read in the log */
    bool extended;  /* ... is not its first one */
    uint64_t absent_until_ns;
};

struct contest {
    struct thrash *thrash;
    struct thrash_log *log;
    struct run runs[THRASH_CONTESTED];
    uint32_t free[FREE_MAX]; /* entries of the log that can be reused */
    uint32_t free_count;
    uint32_t count;
    uint32_t keys[BATCH_MAX], ops[BATCH_MAX];
    char texts[BATCH_MAX][32];
    struct sl_object_key names[BATCH_MAX];
    struct sl_buffer buffers[BATCH_MAX];
    struct sl_iov pieces[BATCH_MAX];
    struct sl_iov_list items[BATCH_MAX];
    uint64_t lengths[BATCH_MAX];
    sl_err codes[BATCH_MAX];
};

/* ---- values ---- */

static uint64_t contested_bytes(uint32_t key, uint32_t value)
{
    struct thrash_random random = {.state = (uint64_t)key << 40 ^ value};
    uint64_t kind = thrash_below(&random, 100);
    return sizeof(uint64_t) + thrash_below(&random, kind < 90 ? 2048 : kind < 98 ? 16384 : 131072);
}

/* The first word identifies key and value; the rest is unique to them. */
static void contested_fill(uint32_t key, uint32_t value, uint64_t *out, uint64_t length_bytes)
{
    thrash_value_fill(THRASH_OBJECTS + key, value, out, length_bytes);
    out[0] = (uint64_t)key << 32 | value;
}

/* Whether a client began to write it a moment ago: another client, or the only one. */
static bool is_moving(const struct thrash *thrash, uint32_t key)
{
    uint64_t word =
        atomic_load_explicit(&thrash->shared->contested_moved[key], memory_order_relaxed);
    uint64_t age_ns = sl_clock_monotonic_ns() - thrash->shared->started_ns - (word >> 8);
    bool by_another = (word & 0xff) != thrash->number || thrash->shared->clients == 1;
    return word != 0 && by_another && age_ns < MOVING_NS;
}

static void moves(const struct thrash *thrash, uint32_t key)
{
    uint64_t at_ns = sl_clock_monotonic_ns() - thrash->shared->started_ns;
    atomic_store_explicit(&thrash->shared->contested_moved[key], at_ns << 8 | thrash->number,
                          memory_order_relaxed);
}

/* 0: bytes of no value. */
static uint32_t contested_value(struct contest *self, uint32_t key, const void *bytes,
                                uint64_t length_bytes)
{
    struct thrash *thrash = self->thrash;
    uint64_t word = 0;
    memcpy(&word, bytes, SL_MIN(sizeof(word), length_bytes));
    uint32_t value = (uint32_t)word;
    uint32_t last =
        atomic_load_explicit(&thrash->shared->contested_values[key], memory_order_relaxed);
    if (word >> 32 == key && value > 0 && value <= last &&
        length_bytes == contested_bytes(key, value)) {
        contested_fill(key, value, thrash->scratch, length_bytes);
        if (memcmp(bytes, thrash->scratch, length_bytes) == 0) {
            thrash_count(thrash, THRASH_reads_verified, 1);
            thrash_count(thrash, THRASH_bytes_verified, length_bytes);
            thrash_count(thrash, THRASH_contested_reads, 1);
            thrash_count(thrash, THRASH_contested_moving, is_moving(thrash, key));
            return value;
        }
    }
    thrash_count(thrash, THRASH_wrong, 1);
    thrash_note(thrash->shared,
                "wrong: contested key %u gives %ju bytes that begin with %016" PRIx64, key,
                (uintmax_t)length_bytes, word);
    return 0;
}

/* ---- the log ---- */

static void log_free(struct contest *self, uint32_t at)
{
    if (self->free_count < FREE_MAX) {
        self->free[self->free_count++] = at;
    }
}

/* False: it is full. */
static bool log_begin(struct contest *self, enum linear_kind kind)
{
    struct thrash_log *log = self->log;
    uint64_t count = atomic_load_explicit(&log->count, memory_order_relaxed);
    if (count + self->count > THRASH_LOG_OPS + self->free_count) {
        thrash_count(self->thrash, THRASH_contest_unlogged, 1);
        return false;
    }
    uint64_t now_ns = sl_clock_monotonic_ns();
    for (uint32_t i = 0; i < self->count; i++) {
        uint32_t key = self->keys[i];
        bool fresh = kind == LINEAR_PUT || kind == LINEAR_REPLACE;
        self->ops[i] = self->free_count > 0 ? self->free[--self->free_count] : (uint32_t)count++;
        struct thrash_logged *op = &log->ops[self->ops[i]];
        op->call_ns = now_ns;
        op->back_ns = 0;
        op->key = (uint16_t)key;
        op->kind = (uint8_t)kind;
        op->value =
            fresh ? 1 + atomic_fetch_add_explicit(&self->thrash->shared->contested_values[key], 1,
                                                  memory_order_relaxed)
                  : 0;
        if (kind < LINEAR_GET) {
            moves(self->thrash, key);
        }
        atomic_store_explicit(&op->state, THRASH_OP_OPEN, memory_order_release);
    }
    atomic_store_explicit(&log->count, count, memory_order_release);
    return true;
}

/* An entry that proves nothing is reused by the next one. */
static void log_end(struct contest *self, uint32_t at, enum thrash_op_state state)
{
    struct thrash_logged *op = &self->log->ops[self->ops[at]];
    op->back_ns = sl_clock_monotonic_ns();
    atomic_store_explicit(&op->state, state, memory_order_release);
    if (state == THRASH_OP_VOID) {
        log_free(self, self->ops[at]);
    }
}

static void write_end(struct contest *self, uint32_t at, sl_err code)
{
    bool removal = self->log->ops[self->ops[at]].kind == LINEAR_REMOVE;
    bool done = code == SL_OK || (removal && code == SL_ERR_NOT_FOUND);
    /* These two codes mean that it had no effect; after others that is unknown. */
    bool refused = code == SL_ERR_BUSY || code == SL_ERR_NO_SPACE;
    log_end(self, at, done ? THRASH_OP_DONE : refused ? THRASH_OP_VOID : THRASH_OP_DOUBTFUL);
    thrash_count(self->thrash, THRASH_contested_writes, done);
}

/* The first and the last read stand for those in between: see above. */
static void run_go_on(struct contest *self, uint32_t at, uint32_t value)
{
    struct run *run = &self->runs[self->keys[at]];
    if (value == 0) {
        *run = (struct run){.absent_until_ns = sl_clock_monotonic_ns() + ABSENT_NS};
    } else if (value != run->value) {
        *run = (struct run){.value = value, .last = self->ops[at]};
    } else {
        if (run->extended) {
            atomic_store_explicit(&self->log->ops[run->last].state, THRASH_OP_VOID,
                                  memory_order_release);
            log_free(self, run->last);
        }
        run->last = self->ops[at];
        run->extended = true;
    }
}

static void read_end(struct contest *self, uint32_t at, sl_err code, uint32_t value)
{
    struct thrash_logged *op = &self->log->ops[self->ops[at]];
    bool looked = op->kind == LINEAR_EXISTS;
    if (code == SL_ERR_NOT_FOUND) {
        op->kind = LINEAR_MISS;
    }
    op->value = value;
    bool told = code == SL_ERR_NOT_FOUND || (code == SL_OK && (looked || value != 0));
    log_end(self, at, told ? THRASH_OP_DONE : THRASH_OP_VOID);
    if (told && !looked) {
        run_go_on(self, at, value);
    }
}

/* Closes operations that the previous life left open; its runs of reads ended with it. */
static void log_inherit(struct thrash_log *log)
{
    uint64_t count = atomic_load_explicit(&log->count, memory_order_relaxed);
    uint64_t now_ns = sl_clock_monotonic_ns();
    for (uint64_t i = 0; i < count; i++) {
        struct thrash_logged *op = &log->ops[i];
        if (atomic_load_explicit(&op->state, memory_order_relaxed) == THRASH_OP_OPEN) {
            op->back_ns = now_ns;
            atomic_store_explicit(&op->state,
                                  op->kind < LINEAR_GET ? THRASH_OP_DOUBTFUL : THRASH_OP_VOID,
                                  memory_order_release);
        }
    }
}

/* ---- calls ---- */

static uint32_t any_key(struct contest *self)
{
    struct thrash_random *random = &self->thrash->random;
    uint32_t keys = thrash_below(random, 3) == 0 ? THRASH_CONTESTED : HOT_KEYS;
    return (uint32_t)thrash_below(random, keys);
}

static void take(struct contest *self, uint32_t key)
{
    uint32_t i = self->count++;
    int length = snprintf(self->texts[i], sizeof self->texts[i], "contested/%u", key);
    self->keys[i] = key;
    self->names[i] = (struct sl_object_key){.at = self->texts[i], .length = (uint32_t)length};
}

static void choose(struct contest *self, uint32_t count)
{
    uint32_t first = any_key(self);
    self->count = 0;
    for (uint32_t i = 0; i < count; i++) {
        take(self, (first + i) % THRASH_CONTESTED);
    }
}

static bool is_taken(const struct contest *self, uint32_t key)
{
    for (uint32_t i = 0; i < self->count; i++) {
        if (self->keys[i] == key) {
            return true;
        }
    }
    return false;
}

/* Chooses up to `count` keys not just found absent; prefers those that move. False: none. */
static bool choose_readable(struct contest *self, uint32_t count)
{
    uint64_t now_ns = sl_clock_monotonic_ns();
    self->count = 0;
    for (uint32_t i = 0; i < CHOICES && self->count < count; i++) {
        uint32_t key = any_key(self);
        if (!is_taken(self, key) && now_ns >= self->runs[key].absent_until_ns &&
            (i >= CHOICES / 2 || is_moving(self->thrash, key))) {
            take(self, key);
        }
    }
    return self->count > 0;
}

/* Contested keys use a share of the put budget; the rest is for objects. */
static bool may_write(struct contest *self, uint64_t bytes)
{
    struct thrash_shared *shared = self->thrash->shared;
    uint64_t ours = atomic_load_explicit(&shared->contested_clock, memory_order_relaxed);
    uint64_t all = atomic_load_explicit(&shared->clock, memory_order_relaxed);
    if (ours * BUDGET_SHARE > all + BUDGET_HEAD_START || !thrash_may_put(self->thrash, bytes)) {
        return false;
    }
    atomic_fetch_add_explicit(&shared->contested_clock, bytes, memory_order_relaxed);
    return true;
}

/* False: the budget, or the log, is used up. */
static bool write_begin(struct contest *self, enum linear_kind kind, uint32_t count)
{
    choose(self, count);
    if (!may_write(self, count * CLAIM_BYTES) || !log_begin(self, kind)) {
        return false;
    }
    for (uint32_t i = 0; i < count && kind != LINEAR_REMOVE; i++) {
        uint32_t value = self->log->ops[self->ops[i]].value;
        uint64_t bytes = contested_bytes(self->keys[i], value);
        (void)may_write(self, bytes); /* small compared with the head start */
        contested_fill(self->keys[i], value, self->buffers[i].at, bytes);
        self->buffers[i].length_bytes = bytes;
        self->pieces[i] = (struct sl_iov){.at = self->buffers[i].at, .length_bytes = bytes};
        self->items[i] =
            (struct sl_iov_list){.key = self->names[i], .at = &self->pieces[i], .count = 1};
    }
    return true;
}

static void contest_write(struct contest *self, enum linear_kind kind)
{
    static const char *const names[] = {"contested put", "contested replace", "contested remove"};
    const struct sl_put_options terms = {.replace = true};
    struct thrash *thrash = self->thrash;
    uint64_t timeout_ns = thrash->shared->timeout_ns;
    uint32_t count = thrash_below(&thrash->random, 4) == 0 ? 2 : 1;
    if (!write_begin(self, kind, count)) {
        return;
    }
    struct thrash_call call = thrash_call_begin(thrash, names[kind]);
    sl_err err = kind == LINEAR_PUT       ? sl_put_batch(thrash->client, self->names, self->buffers,
                                                         count, self->codes, timeout_ns, NULL)
                 : kind == LINEAR_REPLACE ? sl_putv(thrash->client, self->items, count, &terms,
                                                    self->codes, timeout_ns, NULL)
                                          : sl_remove_batch(thrash->client, self->names, count,
                                                            NULL, self->codes, timeout_ns, NULL);
    (void)thrash_call_end(thrash, call, err, timeout_ns);
    for (uint32_t i = 0; i < count; i++) {
        write_end(self, i, err != SL_OK ? err : self->codes[i]);
    }
}

static void contest_get(struct contest *self, uint32_t count)
{
    struct thrash *thrash = self->thrash;
    uint64_t timeout_ns = thrash->shared->timeout_ns;
    if (!choose_readable(self, count)) {
        return;
    }
    count = self->count;
    for (uint32_t i = 0; i < count; i++) {
        self->buffers[i].length_bytes = THRASH_CONTESTED_BYTES;
    }
    if (!log_begin(self, LINEAR_GET)) {
        return;
    }
    struct thrash_call call = thrash_call_begin(thrash, "contested get");
    sl_err err = sl_get_batch(thrash->client, self->names, self->buffers, count, self->lengths,
                              self->codes, timeout_ns, NULL);
    (void)thrash_call_end(thrash, call, err, timeout_ns);
    for (uint32_t i = 0; i < count; i++) {
        sl_err code = err != SL_OK ? err : self->codes[i];
        uint32_t value = code == SL_OK ? contested_value(self, self->keys[i], self->buffers[i].at,
                                                         self->lengths[i])
                                       : 0;
        read_end(self, i, code, value);
    }
}

static void contest_pin(struct contest *self)
{
    struct thrash *thrash = self->thrash;
    struct sl_view view = {0};
    if (!choose_readable(self, 1) || !log_begin(self, LINEAR_GET)) {
        return;
    }
    struct thrash_call call = thrash_call_begin(thrash, "contested get pinned");
    sl_err err =
        sl_get_pinned(thrash->client, self->names[0], &view, thrash->shared->timeout_ns, NULL);
    (void)thrash_call_end(thrash, call, err, thrash->shared->timeout_ns);
    uint32_t value =
        err == SL_OK ? contested_value(self, self->keys[0], view.at, view.length_bytes) : 0;
    read_end(self, 0, err, value);
    if (err != SL_OK) {
        return;
    }
    if (value != 0 && contested_value(self, self->keys[0], view.at, view.length_bytes) != value) {
        thrash_count(thrash, THRASH_wrong, 1);
        thrash_note(thrash->shared, "wrong: pinned bytes of contested key %u changed",
                    self->keys[0]);
    }
    sl_view_release(thrash->client, &view);
}

static void contest_look(struct contest *self)
{
    struct thrash *thrash = self->thrash;
    choose(self, 1);
    if (!log_begin(self, LINEAR_EXISTS)) {
        return;
    }
    struct thrash_call call = thrash_call_begin(thrash, "contested exists");
    sl_err err = sl_exists(thrash->client, self->names[0]);
    (void)thrash_call_end(thrash, call, err, thrash->shared->timeout_ns);
    read_end(self, 0, err, 0);
}

struct contest *thrash_contest_open(struct thrash *thrash)
{
    struct contest *self = calloc(1, sizeof *self);
    if (self == NULL) {
        return NULL;
    }
    self->thrash = thrash;
    self->log = &thrash->shared->logs[thrash->number];
    for (uint32_t i = 0; i < BATCH_MAX; i++) {
        self->buffers[i].at = malloc(THRASH_CONTESTED_BYTES);
        if (self->buffers[i].at == NULL) {
            thrash_contest_close(&self);
            return NULL;
        }
    }
    log_inherit(self->log);
    return self;
}

void thrash_contest_close(struct contest **contest)
{
    for (uint32_t i = 0; *contest != NULL && i < BATCH_MAX; i++) {
        free((*contest)->buffers[i].at);
    }
    free(*contest);
    *contest = NULL;
}

/* Whether the log will last for the whole run. */
static bool log_has_room(const struct contest *self)
{
    const struct thrash_shared *shared = self->thrash->shared;
    uint64_t full_ns = SL_MAX(shared->seconds, 1) * SL_NS_PER_S;
    uint64_t gone_ns = SL_MIN(sl_clock_monotonic_ns() - shared->started_ns, full_ns);
    double share = (double)gone_ns / (double)full_ns + 1.0 / LOG_HEAD_START;
    double allowed = (double)THRASH_LOG_OPS * SL_MIN(share, 1.0) - (double)(BURST_MAX * BATCH_MAX);
    return (double)atomic_load_explicit(&self->log->count, memory_order_relaxed) < allowed;
}

bool thrash_contest_lags(const struct thrash *thrash)
{
    uint64_t all = thrash_sum(thrash->shared, THRASH_reads_verified);
    uint64_t contested = thrash_sum(thrash->shared, THRASH_contested_reads);
    return contested * 100 < all * SHARE_PERCENT;
}

void thrash_contest_burst(struct contest *self)
{
    struct thrash_random *random = &self->thrash->random;
    if (!log_has_room(self)) {
        return;
    }
    uint64_t writes = 1 + thrash_below(random, 2); /* the budget of puts is small */
    for (uint64_t left = 1 + thrash_below(random, BURST_MAX); left > 0; left--) {
        uint64_t kind = thrash_below(random, 100);
        if (kind < 30 && writes > 0) {
            writes--;
            contest_write(self, kind < 9 ? LINEAR_PUT : kind < 19 ? LINEAR_REPLACE : LINEAR_REMOVE);
        } else if (kind < 70) {
            contest_get(self, 1);
        } else if (kind < 85) {
            contest_get(self, BATCH_MAX);
        } else if (kind < 98) {
            contest_pin(self);
        } else {
            contest_look(self);
        }
    }
}

/* ---- the driver ---- */

static void log_take(const struct driver *driver, uint32_t client, struct linear_op *ops,
                     size_t *count)
{
    const struct thrash_log *log = &driver->shared->logs[client];
    uint64_t logged = atomic_load_explicit(&log->count, memory_order_acquire);
    for (uint64_t i = 0; i < SL_MIN(logged, THRASH_LOG_OPS); i++) {
        const struct thrash_logged *op = &log->ops[i];
        uint32_t state = atomic_load_explicit(&op->state, memory_order_acquire);
        bool open = state == THRASH_OP_OPEN;
        if (state == THRASH_OP_VOID || (open && op->kind >= LINEAR_GET)) {
            continue;
        }
        bool maybe = open || state == THRASH_OP_DOUBTFUL;
        ops[(*count)++] = (struct linear_op){.call = op->call_ns,
                                             .back = open    ? LINEAR_NEVER
                                                     : maybe ? op->back_ns + SETTLE_NS
                                                             : op->back_ns,
                                             .key = op->key,
                                             .value = op->value,
                                             .who = (uint16_t)client,
                                             .kind = op->kind,
                                             .maybe = maybe,
                                             .loses = !driver->shared->strict};
    }
}

void driver_contest(struct driver *driver)
{
    size_t room = 1, count = 0;
    for (uint32_t i = 0; i < driver->shared->clients; i++) {
        room += atomic_load_explicit(&driver->shared->logs[i].count, memory_order_acquire);
    }
    struct linear_op *ops = malloc(room * sizeof *ops);
    if (ops == NULL) {
        driver->failed = true;
        thrash_note(driver->shared, "no memory for the history of %zu ops", room);
        return;
    }
    for (uint32_t i = 0; i < driver->shared->clients; i++) {
        log_take(driver, i, ops, &count);
    }
    linear_check(ops, count, &(struct linear_limits){.print = stderr}, &driver->contest);
    free(ops);
    if (driver->contest.violations > 0) {
        thrash_note(driver->shared, "not linearizable: %ju of %ju keys; their histories are above",
                    (uintmax_t)driver->contest.violations, (uintmax_t)driver->contest.keys);
    }
}
