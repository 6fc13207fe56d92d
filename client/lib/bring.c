/* client/lib/bring.c - values that are not in memory here: brought there and read.
 *
 * A batch is asked for in portions, each a small share of memory, with two under way: one is copied
 * while the source reads the next. A portion that was as large as its batch made readers of a small
 * memory evict each other's values before they were copied: with 8 processes, batches of 46 MiB and
 * 128 MiB of memory each value was read four times, and batches failed after seconds. */
#include "client/lib/bring.h"
#include "runtime/sl_backoff.h"

#include <stdlib.h>

#define PORTION_KEYS_MAX     256u
#define PORTION_BYTES_MAX    (16 * SL_MIB)
#define PORTION_MEMORY_SHARE 32u /* of memory: so many portions fill it */
#define PORTIONS             2u
/* A pass that settled nothing: values went again before they were read. */
#define PAUSE_NS_FIRST (1 * SL_NS_PER_MS)
#define PAUSE_NS_MAX   (32 * SL_NS_PER_MS)

/* Who is asked, and for what. */
struct source {
    const char *to;
    sl_err open; /* items with this code */
    bool ahead;  /* they are not read now */
};
static const struct source nodes = {.to = "transporter.0", .open = SL_ERR_NOT_FOUND};
static const struct source disks = {.to = "registrar", .open = SL_ERR_INCOMPLETE};
static const struct source disks_ahead = {
    .to = "registrar", .open = SL_ERR_INCOMPLETE, .ahead = true};

struct portion {
    const struct source *source;
    struct sl_client_call call;
    struct sl_text keys[PORTION_KEYS_MAX];
    uint32_t items[PORTION_KEYS_MAX];
    uint64_t codes[PORTION_KEYS_MAX];
    uint32_t count;
    sl_err started; /* how sending it went */
};

static void portion_answered(void *context, const struct sl_msg *reply)
{
    struct portion *portion = context;
    const struct sl_u64s *codes = &reply->body.bring_reply.codes;
    for (uint32_t i = 0; reply->code == SL_OK && codes->count == portion->count && i < codes->count;
         i++) {
        portion->codes[i] = codes->at[i];
    }
}

static uint64_t portion_bytes_max(struct sl_client *client)
{
    SL_AUTO(reader) struct sl_reader *reader = sl_reader_enter();
    const struct sl_attachment *at = sl_client_attachment(client);
    const struct sl_arena *arena = sl_client_arena(at, 0);
    uint64_t memory_bytes = arena == NULL ? 0 : sl_arena_populated_bytes(arena);
    return SL_MIN(memory_bytes / PORTION_MEMORY_SHARE, PORTION_BYTES_MAX);
}

/* The next items that the source is asked for, from *next on. At least one, if there is one. */
static void portion_fill(const struct sl_bring *bring, struct portion *portion, uint32_t *next,
                         uint64_t bytes_max)
{
    SL_AUTO(reader) struct sl_reader *reader = sl_reader_enter();
    const struct sl_attachment *at = sl_client_attachment(bring->client);
    uint64_t bytes = 0;
    portion->count = 0;
    for (; *next < bring->count && portion->count < PORTION_KEYS_MAX; (*next)++) {
        struct sl_entry entry;
        if (bring->codes[*next] != portion->source->open) {
            continue;
        }
        struct sl_object_key key = bring->key(bring->items, *next);
        bool known = sl_index_find(at->view, key.at, key.length, &entry) == SL_OK;
        bytes += known ? entry.extent.length_bytes : 0;
        if (portion->count > 0 && bytes > bytes_max) {
            return;
        }
        portion->codes[portion->count] = SL_ERR_PROTOCOL; /* until it is answered */
        portion->items[portion->count] = *next;
        portion->keys[portion->count++] = (struct sl_text){.at = key.at, .length = key.length};
    }
}

static void portion_start(const struct sl_bring *bring, struct portion *portion)
{
    portion->call = (struct sl_client_call){.to = portion->source->to,
                                            .deadline_ns = bring->deadline_ns,
                                            .answered = portion_answered,
                                            .context = portion,
                                            .msg.type = SL_MSG_BRING};
    portion->call.msg.body.bring = (struct sl_body_bring){
        .keys = {.at = portion->keys, .count = portion->count}, .ahead = portion->source->ahead};
    portion->started = sl_client_call_start(bring->client, &portion->call, bring->why);
}

/* Waits for the answer and reads what came. How the request went. */
static sl_err portion_finish(const struct sl_bring *bring, struct portion *portion,
                             uint32_t *settled_count)
{
    sl_err err = portion->started;
    if (err == SL_OK) {
        while (!sl_client_call_wait(bring->client, &portion->call, bring->deadline_ns)) {
        }
        err = portion->call.code;
        if (err != SL_OK && bring->why != NULL) {
            *bring->why = portion->call.why;
        }
    }
    for (uint32_t i = 0; i < portion->count; i++) {
        uint32_t item = portion->items[i];
        uint64_t code = err != SL_OK ? (uint64_t)err : portion->codes[i];
        bool here = code == SL_OK || code == SL_ERR_EXISTS;
        if (here && !portion->source->ahead) {
            bring->codes[item] = bring->read(bring->items, item);
        } else if (portion->source != &nodes && code != SL_ERR_BUSY) {
            bring->codes[item] = sl_err_received(code);
        } /* else it changed or went: the next pass knows */
        *settled_count += bring->codes[item] != portion->source->open;
    }
    portion->count = 0;
    return err;
}

/* All items that the source is asked for, once. */
static sl_err pass(const struct sl_bring *bring, const struct source *source,
                   struct portion *portions, uint32_t *settled_count)
{
    sl_err result = sl_client_greet(bring->client, bring->deadline_ns, bring->why);
    uint64_t bytes_max = portion_bytes_max(bring->client);
    uint32_t next = 0;
    for (uint32_t turn = 0;; turn++) {
        struct portion *portion = &portions[turn % PORTIONS];
        if (portion->count > 0) {
            sl_err err = portion_finish(bring, portion, settled_count);
            result = result == SL_OK ? err : result;
        }
        if (result == SL_OK) {
            portion->source = source;
            portion_fill(bring, portion, &next, bytes_max);
        }
        if (portion->count > 0) {
            portion_start(bring, portion);
        } else if (portions[(turn + 1) % PORTIONS].count == 0) {
            return result;
        }
    }
}

static uint32_t left_count(const struct sl_bring *bring)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < bring->count; i++) {
        count += bring->codes[i] == SL_ERR_INCOMPLETE;
    }
    return count;
}

static void left_end(const struct sl_bring *bring, sl_err code)
{
    for (uint32_t i = 0; i < bring->count; i++) {
        bring->codes[i] = bring->codes[i] == SL_ERR_INCOMPLETE ? code : bring->codes[i];
    }
}

static struct portion *portions_make(struct sl_error *why)
{
    struct portion *portions = calloc(PORTIONS, sizeof *portions);
    if (portions == NULL) {
        (void)sl_fail(why, SL_ERR_NO_MEMORY, "%zu bytes", PORTIONS * sizeof *portions);
    }
    return portions;
}

void sl_bring_from_nodes(const struct sl_bring *bring)
{
    struct sl_bring quiet = *bring;
    struct portion *portions = portions_make(NULL);
    uint32_t settled_count = 0;
    quiet.why = NULL;
    if (portions != NULL && sl_clock_monotonic_ns() < bring->deadline_ns) {
        (void)pass(&quiet, &nodes, portions, &settled_count);
    }
    free(portions);
}

sl_err sl_bring_from_disk(const struct sl_bring *bring)
{
    if (bring->client->read_only) {
        left_end(bring,
                 sl_fail(bring->why, SL_ERR_PERMISSION,
                         "the value is on disk alone: a read-only client cannot ask for it"));
        return SL_OK;
    }
    struct portion *portions = portions_make(bring->why);
    if (portions == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    sl_err result = SL_OK;
    uint64_t pause_ns = PAUSE_NS_FIRST;
    while (result == SL_OK && left_count(bring) > 0) {
        uint64_t now_ns = sl_clock_monotonic_ns();
        if (now_ns >= bring->deadline_ns) {
            result = sl_fail(bring->why, SL_ERR_TIMEOUT,
                             "the value left memory again each time before it was read");
            break;
        }
        uint32_t settled_count = 0;
        result = pass(bring, &disks, portions, &settled_count);
        if (settled_count > 0) {
            pause_ns = PAUSE_NS_FIRST;
        } else { /* others are at it: in turns, not in step */
            uint64_t mean_ns = sl_backoff_next(&pause_ns, PAUSE_NS_MAX);
            uint64_t wish_ns = mean_ns / 2 + sl_client_random() % mean_ns;
            sl_client_sleep(SL_MIN(wish_ns, sl_budget_ns(now_ns, bring->deadline_ns)));
        }
    }
    left_end(bring, result);
    free(portions);
    return SL_OK;
}

/* ---- ahead of use ---- */

static struct sl_object_key ahead_key(const void *keys, uint32_t item)
{
    return ((const struct sl_object_key *)keys)[item];
}

sl_err sl_prefetch_batch(struct sl_client *client, const struct sl_object_key *keys, uint32_t count,
                         sl_err *codes, uint64_t timeout_ns, struct sl_error *why)
{
    uint64_t deadline_ns = sl_client_deadline(client, timeout_ns);
    sl_err err = sl_client_keys_check("prefetch", keys, count, why);
    err = err == SL_OK ? sl_client_greet(client, deadline_ns, why) : err;
    if (err != SL_OK || count == 0) {
        return err;
    }
    struct sl_bring bring = {.client = client,
                             .deadline_ns = deadline_ns,
                             .codes = codes,
                             .count = count,
                             .key = ahead_key,
                             .items = keys};
    struct portion *portions = portions_make(why);
    uint32_t settled_count = 0;
    if (portions == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    for (uint32_t i = 0; i < count; i++) {
        codes[i] = disks_ahead.open;
    }
    err = pass(&bring, &disks_ahead, portions, &settled_count);
    left_end(&bring, err);
    free(portions);
    return SL_OK;
}
