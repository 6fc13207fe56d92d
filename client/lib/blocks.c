/* client/lib/blocks.c - looks up which blocks exist, by the engine's keys.
 *
 * A block is a GROUP record under MODEL/BLOCK, where BLOCK is its hash in lower-case hex. Keys are
 * made and looked up several at a time, so that their cache misses overlap. An entry that changes
 * during the lookup is read again (index_reader.c). An entry that is still busy then is being
 * written or removed, and counts as missing. Groups never move to another record, so a block that
 * existed throughout is never missed. */
#include "client/lib/engine.h"
#include "runtime/base/sl_hex.h"

#include <assert.h>
#include <string.h>

#define LOOK_KEYS   64u /* keys at a time: they fit the first-level cache */
#define MODEL_BYTES 33u /* identity and '/' */
#define KEY_BYTES   (MODEL_BYTES + 2 * SL_HASH_BYTES_MAX + 7u)

struct look_keys {
    char texts[LOOK_KEYS][KEY_BYTES];
    struct sl_key keys[LOOK_KEYS];
    sl_err codes[LOOK_KEYS];
};

/* Parameters of one pass over some of the blocks. */
struct look_pass {
    const struct sl_attachment *at;
    const struct sl_leases *leases; /* NULL: blocks are not held */
    uint64_t now_ns, hold_ns;
    bool until_miss; /* blocks after the first missing one do not matter */
    bool busy;       /* output: an entry was being written, or the index was dead */
    uint64_t held_until_ns;
};

static void keys_begin(const struct sl_engine *engine, const struct sl_prefix_query *look,
                       struct look_keys *keys)
{
    for (uint32_t i = 0; i < SL_MIN(look->count, LOOK_KEYS); i++) {
        memcpy(keys->texts[i], engine->identity, MODEL_BYTES - 1);
        keys->texts[i][MODEL_BYTES - 1] = '/';
        keys->keys[i] =
            (struct sl_key){.at = keys->texts[i], .length = MODEL_BYTES + 2 * look->hash_bytes};
    }
}

static bool bit_get(const unsigned char *bits, uint32_t at)
{
    return ((uint32_t)bits[at >> 3] >> (at & 7) & 1u) != 0;
}

static void bit_put(unsigned char *bits, uint32_t at, bool value)
{
    unsigned char bit = (unsigned char)(1u << (at & 7));
    bits[at >> 3] = (unsigned char)(value ? bits[at >> 3] | bit : bits[at >> 3] & ~bit);
}

/* Looks up blocks [first, end); `there` may be NULL. Returns the first missing one, or end. */
static uint32_t blocks_look(const struct sl_prefix_query *look, uint32_t first, uint32_t end,
                            struct look_keys *keys, struct look_pass *pass, unsigned char *there)
{
    uint32_t missing = end;
    for (uint32_t from = first; from < end && (missing == end || !pass->until_miss);
         from += LOOK_KEYS) {
        uint32_t share = SL_MIN(end - from, LOOK_KEYS);
        for (uint32_t i = 0; i < share; i++) {
            sl_hex_write(&keys->texts[i][MODEL_BYTES],
                         look->hashes + (size_t)(from + i) * look->hash_bytes, look->hash_bytes);
        }
        /* After the first missing block none needs a hold. */
        if (pass->leases != NULL && missing == end) {
            uint64_t end_ns = sl_leases_find_group_batch(pass->leases, keys->keys, share,
                                                         pass->now_ns, pass->hold_ns, keys->codes);
            pass->held_until_ns = pass->held_until_ns == 0 || end_ns == 0
                                      ? SL_MAX(pass->held_until_ns, end_ns)
                                      : SL_MIN(pass->held_until_ns, end_ns);
        } else {
            sl_index_find_group_batch(pass->at->view, keys->keys, share, keys->codes);
        }
        for (uint32_t i = 0; i < share; i++) {
            bool found = keys->codes[i] == SL_OK;
            pass->busy = pass->busy || keys->codes[i] == SL_ERR_BUSY;
            missing = found || missing != end ? missing : from + i;
            if (there != NULL) {
                bit_put(there, from + i, found);
            }
        }
    }
    return missing;
}

/* ---- prefixes ---- */

/* The longest prefix of at most count blocks. */
static uint32_t prefix_of(const struct sl_prefix_class *class, uint32_t count)
{
    uint32_t end = count;
    for (uint32_t at = count; class->window != 0 && at > 0 && end - at < class->window; at--) {
        end = bit_get(class->there, at - 1) ? end : at - 1;
    }
    for (uint32_t at = 0; class->window == 0 && at < end; at++) {
        end = bit_get(class->there, at) ? end : at;
    }
    return end;
}

/* The prefix that the classes with this window allow within count blocks. */
static uint32_t prefix_of_window(const struct sl_prefix_class *classes, uint32_t class_count,
                                 uint32_t window, uint32_t count)
{
    for (uint32_t i = 0; i < class_count; i++) {
        count = classes[i].window == window ? prefix_of(&classes[i], count) : count;
    }
    return count;
}

/* The smallest window above this one; 0: none. */
static uint32_t window_after(const struct sl_prefix_class *classes, uint32_t class_count,
                             uint32_t window)
{
    uint32_t next = 0;
    for (uint32_t i = 0; i < class_count; i++) {
        bool nearer = next == 0 || classes[i].window < next;
        next = classes[i].window > window && nearer ? classes[i].window : next;
    }
    return next;
}

/* Each class gives its longest prefix within the limit of the others. A class that needs all blocks
 * also accepts any shorter prefix, so it is evaluated once. A window is evaluated when all smaller
 * ones agree. If it shortens the prefix a second time, then by more than its own length, since the
 * part that it accepted before has no gap. So the smaller windows, which are evaluated again, read
 * no more bits than the prefix loses: the time is linear in count. */
uint32_t sl_prefix_match_hybrid(const struct sl_prefix_class *classes, uint32_t class_count,
                                uint32_t count)
{
    count = prefix_of_window(classes, class_count, 0, count);
    uint32_t window = window_after(classes, class_count, 0);
    while (window != 0) {
        uint32_t before = count;
        count = prefix_of_window(classes, class_count, window, count);
        window = window_after(classes, class_count, count == before ? window : 0);
    }
    return count;
}

/* ---- lookups ---- */

static sl_err look_check(const struct sl_prefix_query *look, struct sl_error *why)
{
    if (look->count > SL_BATCH_MAX) {
        return sl_fail(why, SL_ERR_INVALID, "lookup of %u blocks, at most %d", look->count,
                       SL_BATCH_MAX);
    }
    if (look->hash_bytes == 0 || look->hash_bytes > SL_HASH_BYTES_MAX) {
        return sl_fail(why, SL_ERR_INVALID, "lookup: hashes of %u bytes, 1 to %u", look->hash_bytes,
                       SL_HASH_BYTES_MAX);
    }
    if (look->hashes == NULL && look->count > 0) {
        return sl_fail(why, SL_ERR_INVALID, "lookup: %u hashes at address NULL", look->count);
    }
    return SL_OK;
}

/* Holds the blocks of a prefix with a window. If a block that was found has vanished by now, the
 * prefix becomes shorter. */
static uint32_t window_hold(const struct sl_prefix_query *look, struct look_keys *keys,
                            struct look_pass *pass, unsigned char *there)
{
    const struct sl_prefix_class class = {.there = there, .window = look->window};
    uint32_t prefix = prefix_of(&class, look->count);
    for (uint32_t held = UINT32_MAX; pass->leases != NULL && held != prefix;) {
        uint32_t first = prefix - SL_MIN(prefix, look->window);
        held = prefix;
        pass->held_until_ns = 0;
        (void)blocks_look(look, first, prefix, keys, pass, there);
        prefix = prefix_of(&class, prefix);
    }
    return prefix;
}

static void look_up(const struct sl_prefix_query *look, struct look_keys *keys,
                    struct look_pass *pass, struct sl_prefix_result *out, unsigned char *there)
{
    unsigned char bits[SL_BATCH_MAX / 8];
    memset(there != NULL ? there : bits, 0, (look->count + 7u) / 8);
    if (look->window == 0) {
        pass->until_miss = there == NULL;
        out->prefix_count = blocks_look(look, 0, look->count, keys, pass, there);
    } else {
        struct look_pass all = {.at = pass->at};
        unsigned char *found = there != NULL ? there : bits;
        (void)blocks_look(look, 0, look->count, keys, &all, found);
        pass->busy = all.busy;
        out->prefix_count = window_hold(look, keys, pass, found);
    }
    out->held_until_ns = out->prefix_count == 0 ? 0 : pass->held_until_ns;
}

static uint32_t model_label(struct sl_engine *engine, struct sl_labels *labels)
{
    return sl_label_find(labels, SL_LABEL_MODEL, engine->identity, engine->model_name,
                         &engine->model_place);
}

/* Blocks after a prefix are of no use to an engine, so they count as missing. */
static void looked_count(struct sl_engine *engine, const struct sl_attachment *at,
                         const struct sl_reader *reader, uint32_t found, uint32_t missed)
{
    struct sl_counts_row row = sl_client_counts(at, reader);
    struct sl_labels *labels = sl_client_labels(at);
    uint32_t label = model_label(engine, labels);
    sl_count(row, SL_COUNT_BLOCK_FOUND, found);
    sl_count(row, SL_COUNT_BLOCK_MISSED, missed);
    sl_label_add(labels, label, reader->number, SL_LABEL_LOOK_FOUND, found);
    sl_label_add(labels, label, reader->number, SL_LABEL_LOOK_MISSED, missed);
}

static void failed_count(struct sl_engine *engine, uint32_t count)
{
    SL_AUTO(reader) struct sl_reader *reader = sl_reader_enter();
    const struct sl_attachment *at = sl_client_attachment(engine->client);
    struct sl_labels *labels = sl_client_labels(at);
    sl_count(sl_client_counts(at, reader), SL_COUNT_BLOCK_FAILED, count);
    sl_label_add(labels, model_label(engine, labels), reader->number, SL_LABEL_LOOK_FAILED, count);
}

static bool is_linked(const struct sl_client *client)
{
    SL_AUTO(reader) struct sl_reader *reader = sl_reader_enter();
    return sl_index_view_linked(sl_client_attachment(client)->view);
}

sl_err sl_prefix_match(struct sl_engine *engine, const struct sl_prefix_query *look,
                       struct sl_prefix_result *out, unsigned char *there, struct sl_error *why)
{
    struct sl_client *client = engine->client;
    struct look_keys keys;
    sl_err err = look_check(look, why);
    if (err != SL_OK) {
        return err;
    }
    err = sl_client_reattach(client, !is_linked(client), why);
    if (err != SL_OK) {
        failed_count(engine, look->count);
        return err;
    }
    if (look->hold_ns != 0) {
        sl_client_holds_begin(client);
    }
    uint64_t began_ns = sl_clock_monotonic_ns();
    keys_begin(engine, look, &keys);
    /* Twice at most: a busy result may come of an index that was replaced meanwhile. */
    for (uint32_t i = 0; i < 2; i++) {
        SL_AUTO(reader) struct sl_reader *reader = sl_reader_enter();
        struct look_pass pass = {.at = sl_client_attachment(client), .hold_ns = look->hold_ns};
        struct sl_prefix_result looked = {0};
        if (look->hold_ns != 0) {
            pass.leases = sl_client_holds(pass.at);
            pass.now_ns = sl_clock_monotonic_ns();
        }
        look_up(look, &keys, &pass, &looked, there);
        if (sl_attachment_is_cut(pass.at)) {
            failed_count(engine, look->count);
            return sl_client_fail_truncated(client, why);
        }
        *out = looked;
        if (i == 1 || !pass.busy || sl_client_reattach(client, true, why) != SL_OK ||
            sl_client_attachment(client) == pass.at) {
            looked_count(engine, pass.at, reader, looked.prefix_count,
                         look->count - looked.prefix_count);
            sl_counts_time(sl_client_counts(pass.at, reader), SL_TIMED_BLOCKS,
                           sl_clock_monotonic_ns() - began_ns, 1);
            break;
        }
    }
    return SL_OK;
}
