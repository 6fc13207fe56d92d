/* tests/fault/thrash_client.c - a client of the object API under load.
 *
 * Each object has one client that puts and removes it, except for the shared ones, which all
 * clients put at the same time with the same bytes. All clients read everything. Contested keys are
 * put, replaced and removed by all clients (thrash_contest.c). */
#include "tests/fault/thrash.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BATCH_MAX     16u
#define HELD_MAX      48u /* views that are kept for a while */
#define HELD_NS_MAX   (2 * SL_NS_PER_S)
#define PIN_ALL_NS    SL_NS_PER_S
#define PIN_ALL_VIEWS 4096u
#define HOT_OBJECTS   1500u /* where most reads go */
#define RETRY_NS      (10 * SL_NS_PER_MS)
#define FLOOD_VALUES  8u
#define READS         680u /* steps of a thousand that read */
#define BURSTS_MAX    4u   /* of contested calls in one step */

struct held {
    struct sl_view view;
    uint32_t object;
    uint64_t version;
    uint64_t until_ns;
};

struct client {
    struct thrash *thrash;
    struct held held[HELD_MAX];
    uint32_t held_count;
    uint32_t hot_base;
    uint32_t own_next; /* where the search for an own object continues */
    char texts[BATCH_MAX][32];
    struct sl_object_key keys[BATCH_MAX];
    uint32_t objects[BATCH_MAX];
    uint64_t before[BATCH_MAX];
    sl_err codes[BATCH_MAX];
    struct sl_buffer buffers[BATCH_MAX];
    uint64_t put_clocks[BATCH_MAX]; /* when the put began */
    uint64_t lengths[BATCH_MAX];
    uint64_t *batch_bytes; /* BATCH_MAX * THRASH_VALUE_BYTES */
    struct contest *contest;
};

static struct thrash_object *row_of(struct client *client, uint32_t object)
{
    return &client->thrash->shared->objects[object];
}

static uint64_t word_of(struct client *client, uint32_t object)
{
    return atomic_load_explicit(&row_of(client, object)->word, memory_order_acquire);
}

static bool word_change(struct client *client, uint32_t object, uint64_t from, uint64_t to)
{
    struct thrash_object *row = row_of(client, object);
    if (thrash_phase(to) == THRASH_UNKNOWN) {
        atomic_store_explicit(&row->unknown_ns, sl_clock_monotonic_ns(), memory_order_relaxed);
    }
    return atomic_compare_exchange_strong_explicit(&row->word, &from, to, memory_order_acq_rel,
                                                   memory_order_relaxed);
}

static bool is_shared(uint32_t object)
{
    return object < THRASH_SHARED;
}

static bool is_own(const struct client *client, uint32_t object)
{
    return !is_shared(object) && object % client->thrash->shared->clients == client->thrash->number;
}

/* Mostly from a small set that changes over time, so that most reads are served from memory and
 * some from disk. */
static uint32_t any_object(struct client *client)
{
    struct thrash_random *random = &client->thrash->random;
    if (thrash_below(random, 10000) == 0) {
        client->hot_base = (uint32_t)thrash_below(random, THRASH_OBJECTS);
    }
    if (thrash_below(random, 100) < 2) {
        return (uint32_t)thrash_below(random, THRASH_OBJECTS);
    }
    return (client->hot_base + (uint32_t)thrash_below(random, HOT_OBJECTS)) % THRASH_OBJECTS;
}

static void prepare(struct client *client, uint32_t slot, uint32_t object)
{
    client->objects[slot] = object;
    client->keys[slot] = thrash_key(object, client->texts[slot]);
    client->before[slot] = word_of(client, object);
    client->buffers[slot] =
        (struct sl_buffer){.at = client->batch_bytes + slot * (THRASH_VALUE_BYTES / 8),
                           .length_bytes = THRASH_VALUE_BYTES};
}

/* ---- misses ---- */

/* Repeats the lookup after a miss. A value that is found now was never lost. A value that is not
 * found until a deadline is lost, or evicted where that is allowed. */
static void miss_settle(struct client *client, uint32_t object, uint64_t before)
{
    struct thrash *thrash = client->thrash;
    const struct thrash_shared *shared = thrash->shared;
    char text[32];
    struct sl_object_key key = thrash_key(object, text);
    uint64_t until_ns = sl_clock_monotonic_ns() + shared->timeout_ns;
    uint64_t bytes_ago = atomic_load_explicit(&shared->clock, memory_order_relaxed) -
                         atomic_load_explicit(&row_of(client, object)->clock, memory_order_relaxed);
    bool evicted = !shared->strict && bytes_ago > shared->recent_bytes;
    sl_err code;
    do {
        code = sl_exists(thrash->client, key);
        if (code == SL_ERR_NOT_FOUND && !evicted) {
            thrash_sleep_ns(RETRY_NS);
        }
    } while (code != SL_OK && !evicted && sl_clock_monotonic_ns() < until_ns);
    if (word_of(client, object) != before) {
        return; /* others have put or removed it in the meantime */
    }
    if (code == SL_OK && evicted && !is_shared(object)) {
        thrash_count(thrash, THRASH_false_misses, 1);
        thrash_note(thrash->shared, "false miss: object %u was not found and then found", object);
    } else if (code == SL_ERR_NOT_FOUND) {
        enum thrash_phase next = is_shared(object) ? THRASH_PUTTING : THRASH_UNKNOWN;
        if (word_change(client, object, before, thrash_word(thrash_version(before), next)) &&
            !evicted) {
            thrash_count(thrash, THRASH_lost, 1);
            thrash_note(thrash->shared, "lost: object %u version %ju", object,
                        (uintmax_t)thrash_version(before));
        }
    }
}

static void judge(struct client *client, uint32_t slot, sl_err code, const void *bytes,
                  uint64_t length_bytes, const char *how)
{
    if (thrash_judge(client->thrash, client->objects[slot], client->before[slot], code, bytes,
                     length_bytes, how) == THRASH_MISS) {
        miss_settle(client, client->objects[slot], client->before[slot]);
    }
}

/* ---- reading ---- */

static void read_copy(struct client *client)
{
    struct thrash *thrash = client->thrash;
    uint64_t length_bytes = 0;
    prepare(client, 0, any_object(client));
    struct thrash_call call = thrash_call_begin(thrash, "get");
    sl_err err = sl_get(thrash->client, client->keys[0], client->buffers[0], &length_bytes,
                        thrash->shared->timeout_ns, NULL);
    (void)thrash_call_end(thrash, call, err, thrash->shared->timeout_ns);
    judge(client, 0, err, client->buffers[0].at, length_bytes, "get");
}

static void read_batch(struct client *client)
{
    struct thrash *thrash = client->thrash;
    uint32_t count = 2 + (uint32_t)thrash_below(&thrash->random, BATCH_MAX - 1);
    for (uint32_t i = 0; i < count; i++) {
        prepare(client, i, any_object(client));
    }
    struct thrash_call call = thrash_call_begin(thrash, "get batch");
    sl_err err = sl_get_batch(thrash->client, client->keys, client->buffers, count, client->lengths,
                              client->codes, thrash->shared->timeout_ns, NULL);
    (void)thrash_call_end(thrash, call, err, thrash->shared->timeout_ns);
    for (uint32_t i = 0; i < count; i++) {
        judge(client, i, client->codes[i], client->buffers[i].at, client->lengths[i], "get batch");
    }
}

static void exists_batch(struct client *client)
{
    struct thrash *thrash = client->thrash;
    for (uint32_t i = 0; i < BATCH_MAX; i++) {
        prepare(client, i, (uint32_t)thrash_below(&thrash->random, THRASH_OBJECTS));
    }
    struct thrash_call call = thrash_call_begin(thrash, "exists");
    sl_err err = sl_exists_batch(thrash->client, client->keys, BATCH_MAX, client->codes);
    (void)thrash_call_end(thrash, call, err, thrash->shared->timeout_ns);
    for (uint32_t i = 0; err == SL_OK && i < BATCH_MAX; i++) {
        judge(client, i, client->codes[i], NULL, 0, "exists");
    }
}

/* ---- views ---- */

/* Pinned bytes do not change, whatever has happened to the object since. */
static void held_check(struct client *client, const struct held *held)
{
    struct thrash *thrash = client->thrash;
    thrash_value_fill(held->object, held->version, thrash->scratch, held->view.length_bytes);
    if (memcmp(held->view.at, thrash->scratch, held->view.length_bytes) == 0) {
        thrash_count(thrash, THRASH_reads_verified, 1);
        thrash_count(thrash, THRASH_bytes_verified, held->view.length_bytes);
        return;
    }
    thrash_count(thrash, THRASH_wrong, 1);
    thrash_note(thrash->shared, "wrong: pinned bytes of object %u version %ju changed",
                held->object, (uintmax_t)held->version);
}

static void held_release(struct client *client, uint32_t at)
{
    held_check(client, &client->held[at]);
    sl_view_release(client->thrash->client, &client->held[at].view);
    client->held[at] = client->held[--client->held_count];
}

static void held_end(struct client *client, uint64_t now_ns)
{
    for (uint32_t i = 0; i < client->held_count;) {
        if (now_ns >= client->held[i].until_ns) {
            held_release(client, i);
        } else {
            i++;
        }
    }
}

/* The version with these bytes; UINT64_MAX: none of the possible ones. */
static uint64_t version_of(struct client *client, uint32_t slot, const struct sl_view *view)
{
    struct thrash *thrash = client->thrash;
    uint64_t last = thrash_version(word_of(client, client->objects[slot]));
    for (uint64_t version = thrash_version(client->before[slot]); version <= last; version++) {
        if (view->length_bytes == thrash_value_bytes(client->objects[slot], version)) {
            thrash_value_fill(client->objects[slot], version, thrash->scratch, view->length_bytes);
            if (memcmp(view->at, thrash->scratch, view->length_bytes) == 0) {
                return version;
            }
        }
    }
    return UINT64_MAX;
}

static void read_pinned(struct client *client)
{
    struct thrash *thrash = client->thrash;
    struct sl_view views[BATCH_MAX] = {0};
    uint32_t count = 1 + (uint32_t)thrash_below(&thrash->random, BATCH_MAX);
    for (uint32_t i = 0; i < count; i++) {
        prepare(client, i, any_object(client));
    }
    struct thrash_call call = thrash_call_begin(thrash, "get pinned");
    sl_err err = sl_get_pinned_batch(thrash->client, client->keys, views, count, client->codes,
                                     thrash->shared->timeout_ns, NULL);
    (void)thrash_call_end(thrash, call, err, thrash->shared->timeout_ns);
    for (uint32_t i = 0; i < count; i++) {
        judge(client, i, client->codes[i], views[i].at, views[i].length_bytes, "get pinned");
        if (client->codes[i] != SL_OK) {
            continue;
        }
        uint64_t version = version_of(client, i, &views[i]);
        if (version == UINT64_MAX) { /* judged already */
            sl_view_release(thrash->client, &views[i]);
            continue;
        }
        if (client->held_count == HELD_MAX) {
            held_release(client, (uint32_t)thrash_below(&thrash->random, HELD_MAX));
        }
        client->held[client->held_count++] = (struct held){
            .view = views[i],
            .object = client->objects[i],
            .version = version,
            .until_ns = sl_clock_monotonic_ns() + thrash_below(&thrash->random, HELD_NS_MAX)};
        thrash_count(thrash, THRASH_pins_held, 1);
    }
}

/* Pins up to the limit for a second: others must wait, go to disk, or reach a limit. */
static void pin_all(struct client *client)
{
    struct thrash *thrash = client->thrash;
    struct held *all = calloc(PIN_ALL_VIEWS, sizeof *all);
    uint32_t count = 0;
    sl_err err = SL_OK;
    uint64_t until_ns = sl_clock_monotonic_ns() + PIN_ALL_NS;
    while (all != NULL && count < PIN_ALL_VIEWS && err != SL_ERR_LIMIT &&
           sl_clock_monotonic_ns() < until_ns) {
        prepare(client, 0, any_object(client));
        struct thrash_call call = thrash_call_begin(thrash, "get pinned");
        err = sl_get_pinned(thrash->client, client->keys[0], &all[count].view,
                            thrash->shared->timeout_ns, NULL);
        (void)thrash_call_end(thrash, call, err, thrash->shared->timeout_ns);
        judge(client, 0, err, all[count].view.at, all[count].view.length_bytes, "get pinned");
        if (err == SL_OK) {
            all[count].object = client->objects[0];
            all[count].version = version_of(client, 0, &all[count].view);
            count++;
        }
    }
    thrash_sleep_ns(PIN_ALL_NS);
    for (uint32_t i = 0; i < count; i++) {
        if (all[i].version != UINT64_MAX) {
            held_check(client, &all[i]);
        }
        sl_view_release(thrash->client, &all[i].view);
    }
    thrash_count(thrash, THRASH_pins_held, count);
    free(all);
}

/* ---- writing ---- */

/* Finds the next own object in the phase; false: not found among many. */
static bool own_in_phase(struct client *client, enum thrash_phase phase, uint32_t *object)
{
    struct thrash *thrash = client->thrash;
    uint32_t start = client->hot_base + (uint32_t)thrash_below(&thrash->random, HOT_OBJECTS);
    for (uint32_t i = 0; i < HOT_OBJECTS; i++) {
        uint32_t at = (start + i) % THRASH_OBJECTS;
        if (is_own(client, at) && thrash_phase(word_of(client, at)) == phase) {
            *object = at;
            return true;
        }
    }
    return false;
}

/* Settles the put of one object, acknowledged or not. */
static void put_ended(struct client *client, uint32_t slot, sl_err code)
{
    struct thrash *thrash = client->thrash;
    uint32_t object = client->objects[slot];
    uint64_t word = word_of(client, object);
    uint64_t version = thrash_version(word);
    if (code == SL_OK) {
        thrash_count(thrash, THRASH_puts, 1);
        thrash_count(thrash, THRASH_put_bytes, client->buffers[slot].length_bytes);
        /* A value of another client may be old. We may also have been stopped since our own put:
         * only its beginning is known. */
        if (!is_shared(object)) {
            atomic_store_explicit(&row_of(client, object)->clock, client->put_clocks[slot],
                                  memory_order_relaxed);
        }
        (void)word_change(client, object, word, thrash_word(version, THRASH_PRESENT));
    } else if (!is_shared(object)) {
        (void)word_change(client, object, word, thrash_word(version, THRASH_UNKNOWN));
    }
}

static bool put_prepare(struct client *client, uint32_t slot, uint32_t object)
{
    uint64_t word = word_of(client, object);
    uint64_t version = thrash_version(word) + !is_shared(object);
    uint64_t length_bytes = thrash_value_bytes(object, version);
    if (!thrash_may_put(client->thrash, sl_align_up(length_bytes, SL_PAGE_BYTES) + SL_PAGE_BYTES)) {
        return false;
    }
    if (thrash_phase(word) == THRASH_ABSENT &&
        !word_change(client, object, word, thrash_word(version, THRASH_PUTTING))) {
        return false;
    }
    prepare(client, slot, object);
    client->put_clocks[slot] =
        atomic_load_explicit(&client->thrash->shared->clock, memory_order_relaxed);
    client->buffers[slot].length_bytes = length_bytes;
    thrash_value_fill(object, version, client->buffers[slot].at, length_bytes);
    return true;
}

static bool put_some(struct client *client, uint32_t most)
{
    struct thrash *thrash = client->thrash;
    uint32_t count = 0;
    uint32_t object;
    for (uint32_t i = 0; i < most; i++) {
        if (thrash_below(&thrash->random, 8) == 0) {
            object = (uint32_t)thrash_below(&thrash->random, THRASH_SHARED);
            for (uint32_t k = 0; k < count; k++) {
                object = client->objects[k] == object ? THRASH_SHARED : object;
            }
            if (object == THRASH_SHARED) { /* has been chosen already */
                continue;
            }
        } else if (!own_in_phase(client, THRASH_ABSENT, &object)) {
            break;
        }
        if (!put_prepare(client, count, object)) {
            break;
        }
        count++;
    }
    if (count == 0) {
        return false;
    }
    struct thrash_call call = thrash_call_begin(thrash, count == 1 ? "put" : "put batch");
    sl_err err;
    if (count == 1) {
        err = sl_put(thrash->client, client->keys[0], client->buffers[0].at,
                     client->buffers[0].length_bytes, thrash->shared->timeout_ns, NULL);
        client->codes[0] = err;
    } else {
        err = sl_put_batch(thrash->client, client->keys, client->buffers, count, client->codes,
                           thrash->shared->timeout_ns, NULL);
    }
    (void)thrash_call_end(thrash, call, err, thrash->shared->timeout_ns);
    for (uint32_t i = 0; i < count; i++) {
        put_ended(client, i, err != SL_OK ? err : client->codes[i]);
    }
    return true;
}

/* Puts other bytes under an existing key: the put must succeed and change nothing. */
static void put_again(struct client *client)
{
    struct thrash *thrash = client->thrash;
    uint32_t object;
    if (!own_in_phase(client, THRASH_PRESENT, &object)) {
        return;
    }
    /* If the value may have been evicted, the put would be a real one. */
    if (!thrash->shared->strict || !thrash_may_put(thrash, 0)) {
        return;
    }
    static const char other[] = "these bytes must never be seen";
    prepare(client, 0, object);
    struct thrash_call call = thrash_call_begin(thrash, "put again");
    sl_err err = sl_put(thrash->client, client->keys[0], other, sizeof other,
                        thrash->shared->timeout_ns, NULL);
    (void)thrash_call_end(thrash, call, err, thrash->shared->timeout_ns);
    uint64_t length_bytes = 0;
    call = thrash_call_begin(thrash, "get");
    err = sl_get(thrash->client, client->keys[0], client->buffers[0], &length_bytes,
                 thrash->shared->timeout_ns, NULL);
    (void)thrash_call_end(thrash, call, err, thrash->shared->timeout_ns);
    judge(client, 0, err, client->buffers[0].at, length_bytes, "get after put again");
}

static void remove_some(struct client *client, uint32_t most)
{
    struct thrash *thrash = client->thrash;
    uint32_t count = 0;
    uint32_t object;
    while (count < most && own_in_phase(client, THRASH_PRESENT, &object)) {
        uint64_t word = word_of(client, object);
        if (thrash_phase(word) == THRASH_PRESENT &&
            word_change(client, object, word, thrash_word(thrash_version(word), THRASH_REMOVING))) {
            prepare(client, count++, object);
        }
    }
    if (count == 0) {
        return;
    }
    struct thrash_call call = thrash_call_begin(thrash, "remove");
    sl_err err = sl_remove_batch(thrash->client, client->keys, count, NULL, client->codes,
                                 thrash->shared->timeout_ns, NULL);
    (void)thrash_call_end(thrash, call, err, thrash->shared->timeout_ns);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t word = word_of(client, client->objects[i]);
        sl_err code = err != SL_OK ? err : client->codes[i];
        /* A removal that is sent again finds no value if its first sending took effect. */
        bool gone = code == SL_OK || code == SL_ERR_NOT_FOUND;
        thrash_count(thrash, THRASH_removes, gone);
        if (code != SL_OK) {
            thrash_event(thrash->shared, "remove of object %u version %ju: %s", client->objects[i],
                         (uintmax_t)thrash_version(word), sl_err_name(code));
        }
        (void)word_change(client, client->objects[i], word,
                          thrash_word(thrash_version(word), gone ? THRASH_ABSENT : THRASH_UNKNOWN));
    }
}

/* ---- operations without an answer ---- */

/* Looks at an own object that has been unknown for long enough. */
static void unknown_settle(struct client *client)
{
    struct thrash *thrash = client->thrash;
    uint32_t object;
    if (!own_in_phase(client, THRASH_UNKNOWN, &object)) {
        return;
    }
    uint64_t since_ns =
        atomic_load_explicit(&row_of(client, object)->unknown_ns, memory_order_relaxed);
    if (sl_clock_monotonic_ns() < since_ns + THRASH_SETTLE_NS) {
        return;
    }
    prepare(client, 0, object);
    struct thrash_call call = thrash_call_begin(thrash, "look again");
    sl_err err = sl_exists(thrash->client, client->keys[0]);
    (void)thrash_call_end(thrash, call, err, thrash->shared->timeout_ns);
    if (err == SL_OK || err == SL_ERR_NOT_FOUND) {
        enum thrash_phase phase = err == SL_OK ? THRASH_PRESENT : THRASH_ABSENT;
        (void)word_change(client, object, client->before[0],
                          thrash_word(thrash_version(client->before[0]), phase));
    }
}

/* Takes over the operations that its previous life left unfinished. */
static void inherit(struct client *client)
{
    for (uint32_t object = THRASH_SHARED; object < THRASH_OBJECTS; object++) {
        uint64_t word = word_of(client, object);
        if (is_own(client, object) &&
            (thrash_phase(word) == THRASH_PUTTING || thrash_phase(word) == THRASH_REMOVING)) {
            (void)word_change(client, object, word,
                              thrash_word(thrash_version(word), THRASH_UNKNOWN));
        }
    }
}

static void flood(struct client *client)
{
    for (uint32_t i = 0; i < FLOOD_VALUES; i++) {
        (void)put_some(client, BATCH_MAX);
    }
}

/* Puts have a budget: without a limit on removals, few values would be left to read. */
static bool may_remove(const struct thrash *thrash)
{
    const struct thrash_worker *self = thrash->self;
    uint64_t puts = atomic_load_explicit(&self->counters[THRASH_puts], memory_order_relaxed);
    uint64_t removes = atomic_load_explicit(&self->counters[THRASH_removes], memory_order_relaxed);
    return removes < puts / 2;
}

static void step(struct client *client)
{
    struct thrash *thrash = client->thrash;
    uint32_t squeeze = atomic_exchange_explicit(&thrash->self->squeeze, 0, memory_order_relaxed);
    if (squeeze == THRASH_PIN_ALL) {
        pin_all(client);
    } else if (squeeze == THRASH_FLOOD) {
        flood(client);
    }
    /* A share of the reads, not of the steps, since their relative speed differs by machine. If
     * contested keys cannot be read fast enough, the other reads wait. */
    bool lags = thrash_contest_lags(thrash);
    for (uint32_t i = 0; i < BURSTS_MAX && lags; i++) {
        thrash_contest_burst(client->contest);
        lags = thrash_contest_lags(thrash);
    }
    uint64_t kind = lags ? READS + thrash_below(&thrash->random, 1000 - READS)
                         : thrash_below(&thrash->random, 1000);
    if (kind < 400) {
        read_copy(client);
    } else if (kind < 560) {
        read_batch(client);
    } else if (kind < READS) {
        read_pinned(client);
    } else if (kind < 760) {
        exists_batch(client);
    } else if (kind < 880) {
        (void)put_some(client, 1);
    } else if (kind < 920) {
        (void)put_some(client, BATCH_MAX);
    } else if (kind < 940 && may_remove(thrash)) {
        remove_some(client, 1 + (uint32_t)thrash_below(&thrash->random, 4));
    } else if (kind < 960) {
        put_again(client);
    } else {
        unknown_settle(client);
    }
    held_end(client, sl_clock_monotonic_ns());
}

int thrash_client_main(struct thrash *thrash)
{
    struct client *client = calloc(1, sizeof *client);
    if (client == NULL) {
        return 1;
    }
    client->thrash = thrash;
    client->batch_bytes = malloc((size_t)BATCH_MAX * THRASH_VALUE_BYTES);
    client->contest = thrash_contest_open(thrash);
    if (client->batch_bytes == NULL || client->contest == NULL) {
        thrash_contest_close(&client->contest);
        free(client->batch_bytes);
        free(client);
        return 1;
    }
    client->hot_base = (uint32_t)thrash_below(&thrash->random, THRASH_OBJECTS);
    inherit(client);
    if (thrash_attach(thrash)) {
        while (!atomic_load_explicit(&thrash->shared->stop, memory_order_relaxed)) {
            step(client);
        }
        held_end(client, SL_NEVER_NS);
        sl_client_close(&thrash->client);
    }
    thrash_contest_close(&client->contest);
    free(client->batch_bytes);
    free(client);
    return 0;
}
