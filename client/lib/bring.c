/* client/lib/bring.c - reads values that are not in memory here.
 *
 * A batch is requested in portions. Those in flight are a small share of memory: one is copied
 * while the source reads the next. With portions as large as a batch, readers of a small memory
 * evicted each other's values before they were copied: with 8 processes, batches of 46 MiB and 128
 * MiB of memory each value was read four times, and batches failed after seconds. The size of
 * values on other nodes is estimated from those that arrived. */
#include "client/lib/bring.h"
#include "runtime/base/sl_backoff.h"

#include <stdlib.h>

#define PORTION_KEYS_MAX    256u
#define PORTIONS_MAX        4u
#define UNDER_WAY_BYTES_MAX (32 * SL_MIB)
#define UNDER_WAY_SHARE     16u /* of memory */
/* Pause after a pass that settled nothing: values were evicted again before they were read. */
#define PAUSE_NS_FIRST (1 * SL_NS_PER_MS)
#define PAUSE_NS_MAX   (32 * SL_NS_PER_MS)

/* The actor that is asked, and the items concerned. */
struct source {
    const char *to;
    sl_err open;            /* items with this code */
    bool ahead;             /* values are not read now: a portion is as large as a message */
    uint32_t portion_count; /* in flight */
    uint64_t value_bytes;   /* initial estimate for a value that is not on this node */
};
/* Several portions in flight, so that one of a silent node does not delay all others. */
static const struct source nodes = {.to = "transporter.0",
                                    .open = SL_ERR_NOT_FOUND,
                                    .portion_count = PORTIONS_MAX,
                                    .value_bytes = SL_MIB};
static const struct source disks = {
    .to = "registrar", .open = SL_ERR_INCOMPLETE, .portion_count = 2};
static const struct source disks_ahead = {
    .to = "registrar", .open = SL_ERR_INCOMPLETE, .ahead = true, .portion_count = PORTIONS_MAX};

struct portion {
    struct sl_client_call call;
    uint32_t first, count; /* of the requested items */
    uint64_t *codes;       /* codes of their keys */
    sl_err started;        /* result of sending it */
};

struct asking {
    const struct sl_bring *bring;
    const struct source *source;
    struct portion portions[PORTIONS_MAX];
    uint64_t bytes_max;   /* per portion */
    uint64_t value_bytes; /* estimate for a value that is not on this node */
    /* State of this pass: */
    uint32_t next; /* item */
    uint32_t asked_count, settled_count;
    uint32_t *items; /* asked_count entries, as the two below */
    uint64_t *codes;
    struct sl_text keys[];
};

static struct asking *asking_make(const struct sl_bring *bring, const struct source *source,
                                  struct sl_error *why)
{
    size_t bytes = sizeof(struct asking) +
                   bring->count * (sizeof(struct sl_text) + sizeof(uint64_t) + sizeof(uint32_t));
    struct asking *asking = calloc(1, bytes);
    if (asking == NULL) {
        (void)sl_fail(why, SL_ERR_NO_MEMORY, "%zu bytes", bytes);
        return NULL;
    }
    asking->bring = bring;
    asking->source = source;
    asking->value_bytes = source->value_bytes;
    asking->codes = (uint64_t *)&asking->keys[bring->count];
    asking->items = (uint32_t *)&asking->codes[bring->count];
    return asking;
}

static void portion_answered(void *context, const struct sl_msg *reply)
{
    struct portion *portion = context;
    const struct sl_u64s *codes = &reply->body.bring_reply.codes;
    for (uint32_t i = 0; reply->code == SL_OK && codes->count == portion->count && i < codes->count;
         i++) {
        portion->codes[i] = codes->at[i];
    }
}

static uint64_t portion_bytes_max(const struct asking *asking)
{
    SL_AUTO(reader) struct sl_reader *reader = sl_reader_enter();
    const struct sl_attachment *at = sl_client_attachment(asking->bring->client);
    const struct sl_arena *arena = sl_client_arena(at, 0);
    uint64_t memory_bytes = arena == NULL ? 0 : sl_arena_populated_bytes(arena);
    return SL_MIN(memory_bytes / UNDER_WAY_SHARE, UNDER_WAY_BYTES_MAX) /
           asking->source->portion_count;
}

static uint64_t value_bytes(const struct asking *asking, const struct sl_text *key)
{
    SL_AUTO(reader) struct sl_reader *reader = sl_reader_enter();
    const struct sl_attachment *at = sl_client_attachment(asking->bring->client);
    struct sl_entry entry;
    bool known = sl_index_find(at->view, key->at, (uint32_t)key->length, &entry) == SL_OK;
    return known ? entry.extent.length_bytes : asking->value_bytes;
}

/* Fills a portion with the next items for the source, at least one if any is left. */
static void portion_fill(struct asking *asking, struct portion *portion)
{
    const struct sl_bring *bring = asking->bring;
    bool ahead = asking->source->ahead;
    uint32_t count_max = ahead ? SL_BATCH_MAX : PORTION_KEYS_MAX;
    uint64_t bytes = 0, frame_bytes = SL_KEYS_ENVELOPE_BYTES;
    portion->first = asking->asked_count;
    portion->codes = &asking->codes[portion->first];
    for (; asking->next < bring->count && portion->count < count_max; asking->next++) {
        if (bring->codes[asking->next] != asking->source->open) {
            continue;
        }
        struct sl_object_key key = bring->key(bring->items, asking->next);
        struct sl_text text = {.at = key.at, .length = key.length};
        bytes += ahead ? 0 : value_bytes(asking, &text);
        frame_bytes += key.length + SL_KEY_FRAME_BYTES;
        if (portion->count > 0 &&
            (bytes > asking->bytes_max || frame_bytes > bring->client->message_bytes_max)) {
            return;
        }
        portion->codes[portion->count++] = SL_ERR_PROTOCOL; /* until it is answered */
        asking->items[asking->asked_count] = asking->next;
        asking->keys[asking->asked_count++] = text;
    }
}

static void portion_start(struct asking *asking, struct portion *portion)
{
    const struct sl_bring *bring = asking->bring;
    portion->call = (struct sl_client_call){.to = asking->source->to,
                                            .deadline_ns = bring->deadline_ns,
                                            .answered = portion_answered,
                                            .context = portion,
                                            .msg.type = SL_MSG_BRING};
    portion->call.msg.body.bring = (struct sl_body_bring){
        .keys = {.at = &asking->keys[portion->first], .count = portion->count},
        .ahead = asking->source->ahead};
    portion->started = sl_client_call_start(bring->client, &portion->call, bring->why);
}

/* Waits for the answer and reads the values that arrived. Returns the result of the request. */
static sl_err portion_finish(struct asking *asking, struct portion *portion)
{
    const struct sl_bring *bring = asking->bring;
    const struct source *source = asking->source;
    uint64_t came_bytes = 0; /* the largest value that arrived */
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
        uint32_t item = asking->items[portion->first + i];
        uint64_t code = err != SL_OK ? (uint64_t)err : portion->codes[i];
        bool here = code == SL_OK || code == SL_ERR_EXISTS;
        if (here && !source->ahead) {
            bring->codes[item] = bring->read(bring->items, item);
            came_bytes = SL_MAX(came_bytes, value_bytes(asking, &asking->keys[portion->first + i]));
        } else if (source->ahead || (source != &nodes && code != SL_ERR_BUSY)) {
            bring->codes[item] = sl_err_received(code);
        } /* otherwise it changed or was evicted: left to the next pass */
        asking->settled_count += bring->codes[item] != source->open;
    }
    asking->value_bytes = came_bytes != 0 ? came_bytes : asking->value_bytes / 2;
    portion->count = 0;
    return err;
}

/* Asks the source once for all its items. */
static sl_err pass(struct asking *asking)
{
    const struct sl_bring *bring = asking->bring;
    uint32_t portion_count = asking->source->portion_count;
    sl_err result = sl_client_hello(bring->client, bring->deadline_ns, bring->why);
    asking->bytes_max = portion_bytes_max(asking);
    asking->next = asking->asked_count = asking->settled_count = 0;
    for (uint32_t turn = 0, idle_count = 0; idle_count < portion_count; turn++) {
        struct portion *portion = &asking->portions[turn % portion_count];
        if (portion->count > 0) {
            sl_err err = portion_finish(asking, portion);
            result = result == SL_OK ? err : result;
        }
        if (result == SL_OK || asking->source->ahead) {
            portion_fill(asking, portion);
        }
        if (portion->count > 0) {
            portion_start(asking, portion);
        }
        idle_count = portion->count > 0 ? 0 : idle_count + 1;
    }
    return result;
}

static void left_end(const struct sl_bring *bring, sl_err code)
{
    for (uint32_t i = 0; i < bring->count; i++) {
        bring->codes[i] = bring->codes[i] == SL_ERR_INCOMPLETE ? code : bring->codes[i];
    }
}

void sl_bring_from_nodes(const struct sl_bring *bring)
{
    struct sl_bring quiet = *bring;
    struct asking *asking = asking_make(&quiet, &nodes, NULL);
    quiet.why = NULL;
    if (asking != NULL && sl_clock_monotonic_ns() < bring->deadline_ns) {
        (void)pass(asking);
    }
    free(asking);
}

sl_err sl_bring_from_disk(const struct sl_bring *bring)
{
    if (bring->client->read_only) {
        left_end(bring, sl_fail(bring->why, SL_ERR_PERMISSION,
                                "the value is only on disk: a read-only client cannot request it"));
        return SL_OK;
    }
    struct asking *asking = asking_make(bring, &disks, bring->why);
    if (asking == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    sl_err result = SL_OK;
    uint64_t pause_ns = PAUSE_NS_FIRST;
    do {
        uint64_t now_ns = sl_clock_monotonic_ns();
        if (now_ns >= bring->deadline_ns) {
            result = sl_fail(bring->why, SL_ERR_TIMEOUT, "%s",
                             asking->asked_count > 0
                                 ? "the value was evicted again each time before it was read"
                                 : "the timeout ended before the disk was asked for the value");
            break;
        }
        result = pass(asking);
        if (asking->settled_count > 0) {
            pause_ns = PAUSE_NS_FIRST;
        } else { /* other clients compete: random pauses avoid lockstep */
            uint64_t mean_ns = sl_backoff_next(&pause_ns, PAUSE_NS_MAX);
            uint64_t wish_ns = mean_ns / 2 + sl_client_random() % mean_ns;
            sl_client_sleep(SL_MIN(wish_ns, sl_budget_ns(now_ns, bring->deadline_ns)));
        }
    } while (result == SL_OK && asking->settled_count < asking->asked_count);
    left_end(bring, result);
    free(asking);
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
    err = err == SL_OK ? sl_client_hello(client, deadline_ns, why) : err;
    if (err != SL_OK || count == 0) {
        return err;
    }
    struct sl_bring bring = {.client = client,
                             .deadline_ns = deadline_ns,
                             .codes = codes,
                             .count = count,
                             .key = ahead_key,
                             .items = keys};
    struct asking *asking = asking_make(&bring, &disks_ahead, why);
    if (asking == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    for (uint32_t i = 0; i < count; i++) {
        codes[i] = disks_ahead.open;
    }
    (void)pass(asking); /* each item has its code */
    free(asking);
    return SL_OK;
}
