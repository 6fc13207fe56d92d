/* client/lib/cold.c - values that are on disk alone: brought into memory and read.
 *
 * A batch is asked for in portions, each a small share of memory, with two under way: one is copied
 * while the disk reads the next. A portion that was as large as its batch made readers of a small
 * memory evict each other's values before they were copied: with 8 processes, batches of 46 MiB and
 * 128 MiB of memory each value was read four times, and batches failed after seconds. */
#include "client/lib/cold.h"
#include "runtime/sl_backoff.h"

#include <stdlib.h>

#define PORTION_KEYS_MAX     256u
#define PORTION_BYTES_MAX    (16 * SL_MIB)
#define PORTION_MEMORY_SHARE 32u /* of memory: so many portions fill it */
#define PORTIONS             2u
/* A pass that settled nothing: values went again before they were read. */
#define PAUSE_NS_FIRST (1 * SL_NS_PER_MS)
#define PAUSE_NS_MAX   (32 * SL_NS_PER_MS)

struct portion {
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
    const struct sl_u64s *codes = &reply->body.promote_reply.codes;
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

/* The next items that are on disk alone, from *next on. At least one, if there is one. */
static void portion_fill(const struct sl_cold *cold, struct portion *portion, uint32_t *next,
                         uint64_t bytes_max)
{
    SL_AUTO(reader) struct sl_reader *reader = sl_reader_enter();
    const struct sl_attachment *at = sl_client_attachment(cold->client);
    uint64_t bytes = 0;
    portion->count = 0;
    for (; *next < cold->count && portion->count < PORTION_KEYS_MAX; (*next)++) {
        struct sl_entry entry;
        if (cold->codes[*next] != SL_ERR_INCOMPLETE) {
            continue;
        }
        struct sl_object_key key = cold->key(cold->items, *next);
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

static void portion_start(const struct sl_cold *cold, struct portion *portion)
{
    portion->call = (struct sl_client_call){.to = "registrar",
                                            .deadline_ns = cold->deadline_ns,
                                            .answered = portion_answered,
                                            .context = portion,
                                            .msg.type = SL_MSG_PROMOTE};
    portion->call.msg.body.promote.keys.at = portion->keys;
    portion->call.msg.body.promote.keys.count = portion->count;
    portion->started = sl_client_call_start(cold->client, &portion->call, cold->why);
}

/* Waits for the answer and reads what came. How the request went. */
static sl_err portion_finish(const struct sl_cold *cold, struct portion *portion,
                             uint32_t *settled_count)
{
    sl_err err = portion->started;
    if (err == SL_OK) {
        while (!sl_client_call_wait(cold->client, &portion->call, cold->deadline_ns)) {
        }
        err = portion->call.code;
        if (err != SL_OK && cold->why != NULL) {
            *cold->why = portion->call.why;
        }
    }
    for (uint32_t i = 0; i < portion->count; i++) {
        uint32_t item = portion->items[i];
        uint64_t code = err != SL_OK ? (uint64_t)err : portion->codes[i];
        if (code == SL_OK) {
            cold->codes[item] = cold->read(cold->items, item);
        } else if (code != SL_ERR_BUSY) { /* else it changed or went: the next pass knows */
            cold->codes[item] = sl_err_received(code);
        }
        *settled_count += cold->codes[item] != SL_ERR_INCOMPLETE;
    }
    portion->count = 0;
    return err;
}

/* All items that are on disk alone, once. */
static sl_err pass(const struct sl_cold *cold, struct portion *portions, uint32_t *settled_count)
{
    sl_err result = sl_client_greet(cold->client, cold->deadline_ns, cold->why);
    uint64_t bytes_max = portion_bytes_max(cold->client);
    uint32_t next = 0;
    for (uint32_t turn = 0;; turn++) {
        struct portion *portion = &portions[turn % PORTIONS];
        if (portion->count > 0) {
            sl_err err = portion_finish(cold, portion, settled_count);
            result = result == SL_OK ? err : result;
        }
        if (result == SL_OK) {
            portion_fill(cold, portion, &next, bytes_max);
        }
        if (portion->count > 0) {
            portion_start(cold, portion);
        } else if (portions[(turn + 1) % PORTIONS].count == 0) {
            return result;
        }
    }
}

static uint32_t left_count(const struct sl_cold *cold)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < cold->count; i++) {
        count += cold->codes[i] == SL_ERR_INCOMPLETE;
    }
    return count;
}

static void left_end(const struct sl_cold *cold, sl_err code)
{
    for (uint32_t i = 0; i < cold->count; i++) {
        cold->codes[i] = cold->codes[i] == SL_ERR_INCOMPLETE ? code : cold->codes[i];
    }
}

sl_err sl_cold_read(struct sl_cold *cold)
{
    if (cold->client->read_only) {
        left_end(cold, sl_fail(cold->why, SL_ERR_PERMISSION,
                               "the value is on disk alone: a read-only client cannot ask for it"));
        return SL_OK;
    }
    struct portion *portions = calloc(PORTIONS, sizeof *portions);
    if (portions == NULL) {
        return sl_fail(cold->why, SL_ERR_NO_MEMORY, "get: %zu bytes", PORTIONS * sizeof *portions);
    }
    sl_err result = SL_OK;
    uint64_t pause_ns = PAUSE_NS_FIRST;
    while (result == SL_OK && left_count(cold) > 0) {
        uint64_t now_ns = sl_clock_monotonic_ns();
        if (now_ns >= cold->deadline_ns) {
            result = sl_fail(cold->why, SL_ERR_TIMEOUT,
                             "the value left memory again each time before it was read");
            break;
        }
        uint32_t settled_count = 0;
        result = pass(cold, portions, &settled_count);
        if (settled_count > 0) {
            pause_ns = PAUSE_NS_FIRST;
        } else { /* others are at it: in turns, not in step */
            uint64_t mean_ns = sl_backoff_next(&pause_ns, PAUSE_NS_MAX);
            uint64_t wish_ns = mean_ns / 2 + sl_client_random() % mean_ns;
            sl_client_sleep(SL_MIN(wish_ns, sl_budget_ns(now_ns, cold->deadline_ns)));
        }
    }
    left_end(cold, result);
    free(portions);
    return SL_OK;
}
