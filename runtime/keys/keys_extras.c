/* runtime/keys/keys_extras.c - converts JSON extras to flat nodes, without recursion. */
#include "runtime/keys/keys_extras.h"
#include "runtime/base/sl_array.h"
#include "runtime/base/sl_hex.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Engines nest once (tuples in the tuple of extras). */
#define KEYS_DEPTH_MAX 8u
#define KEYS_NAMED_MAX 8u

void keys_extras_reset(struct keys_extras *extras)
{
    json_decref(extras->root);
    extras->root = NULL;
    extras->node_count = 0;
    extras->span_count = 0;
    extras->bytes_used = 0;
    extras->failed = false;
}

void keys_extras_fini(struct keys_extras *extras)
{
    keys_extras_reset(extras);
    free(extras->nodes);
    free(extras->spans);
    free(extras->bytes);
    *extras = (struct keys_extras){0};
}

struct keys_span keys_extras_of(const struct keys_extras *extras, uint64_t block)
{
    return block < extras->span_count ? extras->spans[block] : (struct keys_span){0};
}

/* Adds a node; if memory is out, sets `failed` and returns a spare one. */
static struct keys_node *extras_push(struct keys_extras *extras, enum keys_node_kind kind)
{
    extras->failed |= !SL_ARRAY_ROOM(extras->nodes, extras->node_capacity, extras->node_count + 1);
    struct keys_node *node = extras->failed ? &extras->spare : &extras->nodes[extras->node_count++];
    *node = (struct keys_node){.kind = kind};
    return node;
}

struct place {
    uint64_t block;
    size_t element;
};

static sl_err fail_at(struct sl_error *why, struct place at, const char *what)
{
    return sl_fail(why, SL_ERR_INVALID, "extras: block %" PRIu64 ", element %zu: %s", at.block,
                   at.element, what);
}

static sl_err extras_add_hex(struct keys_extras *extras, const json_t *text, struct place at,
                             struct sl_error *why)
{
    if (!json_is_string(text)) {
        return fail_at(why, at, "\"hex\" must be text");
    }
    const char *digits = json_string_value(text);
    size_t length = json_string_length(text);
    if (length % 2 != 0) {
        return fail_at(why, at, "\"hex\" has an odd number of digits");
    }
    SL_ASSERT(length / 2 <= extras->bytes_capacity - extras->bytes_used);
    unsigned char *out = extras->bytes + extras->bytes_used;
    if (sl_hex_read(out, digits, length / 2) < length) {
        return fail_at(why, at, "\"hex\" has a character that is no hex digit");
    }
    struct keys_node *node = extras_push(extras, KEYS_NODE_BYTES);
    node->at = out;
    node->length = length / 2;
    extras->bytes_used += length / 2;
    return SL_OK;
}

/* Returns the node of a leaf, or UINT32_MAX. leaf_index counts through nested tuples, a named
 * element as one. */
static uint32_t extras_leaf(const struct keys_extras *extras, uint32_t first, json_int_t leaf_index)
{
    json_int_t seen = 0;
    for (uint32_t i = first; i < extras->node_count; i++) {
        const struct keys_node *node = &extras->nodes[i];
        if (node->kind == KEYS_NODE_TUPLE || node->kind == KEYS_NODE_END) {
            continue;
        }
        if (seen++ == leaf_index) {
            return i;
        }
        if (node->kind == KEYS_NODE_NAMED) {
            i += 2 * node->count;
        }
    }
    return UINT32_MAX;
}

static sl_err extras_add_same(struct keys_extras *extras, const json_t *index, uint32_t first,
                              struct place at, struct sl_error *why)
{
    if (!json_is_integer(index) || json_integer_value(index) < 0) {
        return fail_at(why, at, "\"same_as\" must be an integer from 0 up");
    }
    uint32_t found = extras_leaf(extras, first, json_integer_value(index));
    if (found == UINT32_MAX) {
        return fail_at(why, at, "\"same_as\" does not name an earlier element of the block");
    }
    if (extras->nodes[found].kind == KEYS_NODE_NAMED) {
        return fail_at(why, at, "\"same_as\" names a named element; write it out again");
    }
    if (extras->nodes[found].kind == KEYS_NODE_SAME) {
        found = extras->nodes[found].same;
    }
    struct keys_node *node = extras_push(extras, KEYS_NODE_SAME);
    node->same = found;
    return SL_OK;
}

static void extras_add_text(struct keys_extras *extras, const char *text, size_t length)
{
    struct keys_node *node = extras_push(extras, KEYS_NODE_TEXT);
    node->at = (const unsigned char *)text;
    node->length = length;
}

/* Adds a text, an integer or null. */
static sl_err extras_add_plain(struct keys_extras *extras, const json_t *value, struct place at,
                               struct sl_error *why)
{
    if (json_is_string(value)) {
        extras_add_text(extras, json_string_value(value), json_string_length(value));
        return SL_OK;
    }
    if (!json_is_integer(value) && !json_is_null(value)) {
        return fail_at(why, at,
                       json_is_real(value)      ? "a number with a fraction is not supported"
                       : json_is_boolean(value) ? "a boolean is not supported"
                                                : "text, an integer or null is expected here");
    }
    struct keys_node *node =
        extras_push(extras, json_is_null(value) ? KEYS_NODE_NULL : KEYS_NODE_INT);
    node->number = json_integer_value(value); /* 0 for null */
    return SL_OK;
}

/* Adds {"lora": "x", ...}. Members are sorted by name, so that equal objects give equal nodes. */
static sl_err extras_add_named(struct keys_extras *extras, json_t *object, struct place at,
                               struct sl_error *why)
{
    const char *names[KEYS_NAMED_MAX];
    size_t count = 0;
    const char *name;
    json_t *value;
    if (json_object_size(object) == 0 || json_object_size(object) > KEYS_NAMED_MAX) {
        return fail_at(why, at, "a named element has 1 to 8 members");
    }
    json_object_foreach(object, name, value)
    {
        if (strcmp(name, "hex") == 0 || strcmp(name, "same_as") == 0) {
            return fail_at(why, at,
                           "\"hex\" and \"same_as\" must be the only member of their object");
        }
        size_t slot = count++;
        for (; slot > 0 && strcmp(names[slot - 1], name) > 0; slot--) {
            names[slot] = names[slot - 1];
        }
        names[slot] = name;
    }
    struct keys_node *node = extras_push(extras, KEYS_NODE_NAMED);
    node->count = (uint32_t)count;
    sl_err err = SL_OK;
    for (size_t i = 0; i < count && err == SL_OK; i++) {
        extras_add_text(extras, names[i], strlen(names[i]));
        err = extras_add_plain(extras, json_object_get(object, names[i]), at, why);
    }
    (void)extras_push(extras, KEYS_NODE_END);
    return err;
}

static sl_err extras_add_leaf(struct keys_extras *extras, json_t *value, uint32_t first,
                              enum keys_extras_taken taken, struct place at, struct sl_error *why)
{
    if (!json_is_object(value)) {
        return extras_add_plain(extras, value, at, why);
    }
    if (json_object_size(value) == 1) {
        json_t *same = json_object_get(value, "same_as");
        json_t *hex = json_object_get(value, "hex");
        if (same != NULL) {
            return extras_add_same(extras, same, first, at, why);
        }
        if (hex != NULL) {
            return extras_add_hex(extras, hex, at, why);
        }
    }
    if (taken != KEYS_EXTRAS_NAMED) {
        return fail_at(why, at,
                       "the format takes no named element; {\"hex\"} and {\"same_as\"} are known");
    }
    return extras_add_named(extras, value, at, why);
}

/* Adds the elements of one block, with an explicit stack instead of recursion. */
static sl_err extras_add_block(struct keys_extras *extras, json_t *list, uint64_t block,
                               enum keys_extras_taken taken, struct sl_error *why)
{
    struct {
        json_t *list;
        size_t next;
    } stack[KEYS_DEPTH_MAX];
    uint32_t depth = 0, first = extras->node_count;
    stack[0].list = list;
    stack[0].next = 0;
    for (;;) {
        if (stack[depth].next == json_array_size(stack[depth].list)) {
            if (depth == 0) {
                return SL_OK;
            }
            depth--;
            (void)extras_push(extras, KEYS_NODE_END);
            continue;
        }
        json_t *value = json_array_get(stack[depth].list, stack[depth].next++);
        struct place at = {.block = block, .element = stack[0].next - 1};
        if (!json_is_array(value)) {
            sl_err err = extras_add_leaf(extras, value, first, taken, at, why);
            if (err != SL_OK) {
                return err;
            }
            continue;
        }
        if (depth + 1 == KEYS_DEPTH_MAX) {
            return fail_at(why, at, "lists are nested deeper than 8");
        }
        struct keys_node *node = extras_push(extras, KEYS_NODE_TUPLE);
        node->count = (uint32_t)json_array_size(value);
        stack[++depth].list = value;
        stack[depth].next = 0;
    }
}

/* sglang: [[{"extra_key": text or null, "cache_salt": text or null}]] gives two nodes. */
static sl_err extras_add_namespace(struct keys_extras *extras, json_t *list, struct sl_error *why)
{
    static const char *const names[] = {"extra_key", "cache_salt"};
    struct place at = {0};
    json_t *object = json_array_get(list, 0), *value;
    const char *name;
    if (json_array_size(list) != 1 || !json_is_object(object)) {
        return fail_at(why, at,
                       "the format takes one object {\"extra_key\", \"cache_salt\"} in block 0");
    }
    json_object_foreach(object, name, value)
    {
        if (strcmp(name, names[0]) != 0 && strcmp(name, names[1]) != 0) {
            return fail_at(why, at, "unknown member; \"extra_key\" and \"cache_salt\" are known");
        }
        if (!json_is_string(value) && !json_is_null(value)) {
            return fail_at(why, at, "\"extra_key\" and \"cache_salt\" are text or null");
        }
    }
    for (size_t i = 0; i < SL_COUNT(names); i++) {
        value = json_object_get(object, names[i]);
        if (value != NULL) {
            (void)extras_add_plain(extras, value, at, why); /* checked above: a text or null */
        } else {
            (void)extras_push(extras, KEYS_NODE_NULL);
        }
    }
    return SL_OK;
}

static sl_err extras_reserve(struct keys_extras *extras, size_t blocks, size_t text_bytes,
                             struct sl_error *why)
{
    if (!SL_ARRAY_ROOM(extras->spans, extras->span_capacity, blocks)) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "extras: no memory for %zu blocks", blocks);
    }
    if (!SL_ARRAY_ROOM(extras->bytes, extras->bytes_capacity, text_bytes / 2 + 1)) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "extras: no memory for %zu bytes",
                       text_bytes / 2 + 1);
    }
    return SL_OK;
}

static sl_err extras_add_entry(struct keys_extras *extras, json_t *entry, size_t block,
                               uint64_t block_count, enum keys_extras_taken taken,
                               struct sl_error *why)
{
    if (!json_is_array(entry) && !json_is_null(entry)) {
        return sl_fail(why, SL_ERR_INVALID, "extras: entry of block %zu is neither a list nor null",
                       block);
    }
    if (json_array_size(entry) == 0) { /* also 0 for null */
        return SL_OK;
    }
    if (taken == KEYS_EXTRAS_NONE) {
        return sl_fail(why, SL_ERR_INVALID, "extras: block %zu: the format takes no extras", block);
    }
    if (taken == KEYS_EXTRAS_NAMESPACE) {
        if (block != 0) {
            return sl_fail(why, SL_ERR_INVALID,
                           "extras: block %zu: the format takes extras only in block 0", block);
        }
        return extras_add_namespace(extras, entry, why);
    }
    if (block >= block_count) {
        return sl_fail(why, SL_ERR_INVALID,
                       "extras: block %zu is beyond the %" PRIu64 " blocks of tokens", block,
                       block_count);
    }
    return extras_add_block(extras, entry, block, taken, why);
}

sl_err keys_extras_parse(struct keys_extras *extras, json_t *root, size_t text_bytes,
                         uint64_t block_count, enum keys_extras_taken taken, struct sl_error *why)
{
    keys_extras_reset(extras);
    extras->root = root;
    if (root == NULL || json_is_null(root)) {
        return SL_OK;
    }
    if (!json_is_array(root)) {
        return sl_fail(why, SL_ERR_INVALID, "extras: a list with one list a block is expected");
    }
    sl_err err = extras_reserve(extras, json_array_size(root), text_bytes, why);
    for (size_t block = 0; err == SL_OK && block < json_array_size(root); block++) {
        json_t *entry = json_array_get(root, block);
        struct keys_span *span = &extras->spans[extras->span_count++];
        *span = (struct keys_span){.first = extras->node_count,
                                   .elements = (uint32_t)json_array_size(entry)};
        err = extras_add_entry(extras, entry, block, block_count, taken, why);
        span->count = extras->node_count - span->first;
    }
    /* Takes precedence over err: nodes that lack memory look like errors of the list. */
    return extras->failed ? sl_fail(why, SL_ERR_NO_MEMORY, "extras: no memory for nodes") : err;
}
