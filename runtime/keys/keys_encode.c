/* runtime/keys/keys_encode.c - pickle (protocols 4 and 5, framed like CPython's C accelerator),
 * CBOR with shortest heads, and the tagged extras of the format sluice. */
#include "runtime/keys/keys_encode.h"
#include "runtime/base/sl_array.h"

#include <stdlib.h>
#include <string.h>

bool keys_buffer_reserve(struct keys_buffer *buffer, size_t more)
{
    if (!SL_ARRAY_ROOM(buffer->at, buffer->capacity, buffer->length + more)) {
        buffer->failed = true;
    }
    return !buffer->failed;
}

void keys_buffer_put(struct keys_buffer *buffer, const void *bytes, size_t length)
{
    if (length > 0 && keys_buffer_reserve(buffer, length)) {
        memcpy(buffer->at + buffer->length, bytes, length);
        buffer->length += length;
    }
}

void keys_buffer_fini(struct keys_buffer *buffer)
{
    free(buffer->at);
    *buffer = (struct keys_buffer){0};
}

/* ---- pickle ---- */

/* Constants of CPython's Modules/_pickle.c. */
#define PICKLE_FRAME_BYTES_MIN    4u
#define PICKLE_FRAME_BYTES_TARGET 65536u
#define PICKLE_FRAME_HEADER_BYTES 9u
#define PICKLE_BATCH_ITEMS        1000u
#define PICKLE_NO_FRAME           SIZE_MAX
/* Longest integer: LONG1, length, five bytes of a token of 2^31 and up. */
#define PICKLE_TOKEN_BYTES_MAX 7u

enum {
    PICKLE_MARK = '(',
    PICKLE_STOP = '.',
    PICKLE_BININT = 'J',
    PICKLE_BININT1 = 'K',
    PICKLE_BININT2 = 'M',
    PICKLE_NONE = 'N',
    PICKLE_BINUNICODE = 'X',
    PICKLE_SHORT_BINUNICODE = 0x8c,
    PICKLE_BINBYTES = 'B',
    PICKLE_SHORT_BINBYTES = 'C',
    PICKLE_EMPTY_LIST = ']',
    PICKLE_APPEND = 'a',
    PICKLE_APPENDS = 'e',
    PICKLE_BINGET = 'h',
    PICKLE_LONG_BINGET = 'j',
    PICKLE_EMPTY_TUPLE = ')',
    PICKLE_TUPLE = 't',
    PICKLE_PROTO = 0x80,
    PICKLE_TUPLE1 = 0x85, /* TUPLE2, TUPLE3 follow */
    PICKLE_LONG1 = 0x8a,
    PICKLE_MEMOIZE = 0x94,
    PICKLE_FRAME = 0x95,
};

struct pickler {
    struct keys_buffer *out;
    const struct keys_node *all_nodes;
    size_t frame_start; /* of the open frame's header */
    uint32_t memo_count;
    bool framing;
    /* Python has one object for each empty and one-character text and bytes value. Index: 0 for the
     * empty one, or 1 + character; value: 1 + memo index. */
    uint32_t single_text[257], single_bytes[257];
};

static void pickle_open_frame(struct pickler *pickler)
{
    static const unsigned char header[PICKLE_FRAME_HEADER_BYTES] = {PICKLE_FRAME};
    if (pickler->framing && pickler->frame_start == PICKLE_NO_FRAME) {
        pickler->frame_start = pickler->out->length;
        keys_buffer_put(pickler->out, header, sizeof(header));
    }
}

static void pickle_put(struct pickler *pickler, const void *bytes, size_t length)
{
    pickle_open_frame(pickler);
    keys_buffer_put(pickler->out, bytes, length);
}

static void pickle_op(struct pickler *pickler, unsigned opcode)
{
    unsigned char byte = (unsigned char)opcode;
    pickle_put(pickler, &byte, 1);
}

/* Closes the open frame; one below the minimum size loses its header. */
static void pickle_commit_frame(struct pickler *pickler)
{
    struct keys_buffer *out = pickler->out;
    if (!pickler->framing || pickler->frame_start == PICKLE_NO_FRAME || out->failed) {
        return;
    }
    unsigned char *header = out->at + pickler->frame_start;
    size_t body_bytes = out->length - pickler->frame_start - PICKLE_FRAME_HEADER_BYTES;
    if (body_bytes >= PICKLE_FRAME_BYTES_MIN) {
        for (unsigned i = 0; i < 8; i++) {
            header[1 + i] = (unsigned char)((uint64_t)body_bytes >> (8 * i));
        }
    } else {
        memmove(header, header + PICKLE_FRAME_HEADER_BYTES, body_bytes);
        out->length -= PICKLE_FRAME_HEADER_BYTES;
    }
    pickler->frame_start = PICKLE_NO_FRAME;
}

/* Called at the start of an object: CPython starts new frames only there. */
static void pickle_object(struct pickler *pickler)
{
    if (pickler->frame_start != PICKLE_NO_FRAME &&
        pickler->out->length - pickler->frame_start - PICKLE_FRAME_HEADER_BYTES >=
            PICKLE_FRAME_BYTES_TARGET) {
        pickle_commit_frame(pickler);
    }
}

static void pickle_start(struct pickler *pickler, struct keys_buffer *out, uint32_t protocol)
{
    const unsigned char header[2] = {PICKLE_PROTO, (unsigned char)protocol};
    *pickler = (struct pickler){.out = out, .frame_start = PICKLE_NO_FRAME};
    out->length = 0;
    out->failed = false;
    keys_buffer_put(out, header, sizeof(header));
    pickler->framing = true;
}

static void pickle_stop(struct pickler *pickler)
{
    pickle_op(pickler, PICKLE_STOP);
    pickle_commit_frame(pickler);
}

static uint32_t pickle_memoize(struct pickler *pickler)
{
    pickle_op(pickler, PICKLE_MEMOIZE);
    return ++pickler->memo_count;
}

/* Writes a reference to an object in the memo. */
static void pickle_get(struct pickler *pickler, uint32_t memo)
{
    uint32_t index = memo - 1;
    const unsigned char bytes[5] = {index < 256 ? PICKLE_BINGET : PICKLE_LONG_BINGET,
                                    (unsigned char)index, (unsigned char)(index >> 8),
                                    (unsigned char)(index >> 16), (unsigned char)(index >> 24)};
    pickle_put(pickler, bytes, index < 256 ? 2 : 5);
}

/* The memo slot of a value that has a single object in Python; otherwise the node's own. */
static uint32_t *pickle_slot(struct pickler *pickler, bool text, const unsigned char *at,
                             size_t length, uint32_t *own)
{
    uint32_t *single = text ? pickler->single_text : pickler->single_bytes;
    if (length == 0) {
        return &single[0];
    }
    if (length == 1) {
        return &single[1 + at[0]];
    }
    if (text && length == 2 && (at[0] == 0xc2 || at[0] == 0xc3)) { /* U+0080..U+00FF */
        return &single[1 + (((at[0] & 0x03u) << 6) | (at[1] & 0x3fu))];
    }
    return own;
}

/* Writes text or bytes. *memo: 1 + memo index, 0 if the object was not written yet. */
static void pickle_string(struct pickler *pickler, bool text, const void *at, size_t length,
                          uint32_t *memo)
{
    static const unsigned char shorts[2] = {PICKLE_SHORT_BINBYTES, PICKLE_SHORT_BINUNICODE};
    static const unsigned char longs[2] = {PICKLE_BINBYTES, PICKLE_BINUNICODE};
    memo = pickle_slot(pickler, text, at, length, memo);
    pickle_object(pickler);
    if (*memo != 0) {
        pickle_get(pickler, *memo);
        return;
    }
    unsigned char header[5] = {length < 256 ? shorts[text] : longs[text], (unsigned char)length,
                               (unsigned char)(length >> 8), (unsigned char)(length >> 16),
                               (unsigned char)(length >> 24)};
    bool bare = length >= PICKLE_FRAME_BYTES_TARGET; /* large payloads are written between frames */
    if (bare) {
        pickle_commit_frame(pickler);
        pickler->framing = false;
    }
    pickle_put(pickler, header, length < 256 ? 2 : 5);
    pickle_put(pickler, at, length);
    pickler->framing = true;
    *memo = pickle_memoize(pickler);
}

static size_t pickle_int_bytes(unsigned char *out, int64_t value)
{
    if (value >= 0 && value <= 0xff) {
        out[0] = PICKLE_BININT1;
        out[1] = (unsigned char)value;
        return 2;
    }
    if (value >= 0 && value <= 0xffff) {
        out[0] = PICKLE_BININT2;
        out[1] = (unsigned char)value;
        out[2] = (unsigned char)(value >> 8);
        return 3;
    }
    size_t length = 4;
    unsigned char *digits = out + 1;
    if (value >= INT32_MIN && value <= INT32_MAX) {
        out[0] = PICKLE_BININT;
    } else { /* LONG1: the fewest bytes of two's complement */
        while (length < 8 && value >> (8 * length - 1) != 0 && value >> (8 * length - 1) != -1) {
            length++;
        }
        out[0] = PICKLE_LONG1;
        out[1] = (unsigned char)length;
        digits = out + 2;
    }
    for (size_t i = 0; i < length; i++) {
        digits[i] = (unsigned char)((uint64_t)value >> (8 * i));
    }
    return (size_t)(digits - out) + length;
}

static void pickle_int(struct pickler *pickler, int64_t value)
{
    unsigned char bytes[10];
    size_t length = pickle_int_bytes(bytes, value);
    pickle_object(pickler);
    pickle_put(pickler, bytes, length);
}

/* The hot loop: pickle_int without a call and a bound check for each token. */
static void pickle_tokens(struct pickler *pickler, const uint32_t *tokens, size_t count)
{
    struct keys_buffer *out = pickler->out;
    size_t frames = count * PICKLE_TOKEN_BYTES_MAX / PICKLE_FRAME_BYTES_TARGET + 2;
    if (!keys_buffer_reserve(out,
                             count * PICKLE_TOKEN_BYTES_MAX + frames * PICKLE_FRAME_HEADER_BYTES)) {
        return;
    }
    for (size_t i = 0; i < count;) {
        pickle_object(pickler);
        pickle_open_frame(pickler);
        unsigned char *to = out->at + out->length;
        const unsigned char *full =
            out->at + pickler->frame_start + PICKLE_FRAME_HEADER_BYTES + PICKLE_FRAME_BYTES_TARGET;
        do {
            to += pickle_int_bytes(to, (int64_t)tokens[i++]);
        } while (i < count && to < full);
        out->length = (size_t)(to - out->at);
    }
}

static void pickle_tuple_end(struct pickler *pickler, size_t count)
{
    if (count == 0) {
        return;
    }
    pickle_op(pickler, count <= 3 ? PICKLE_TUPLE1 + (unsigned)count - 1 : (unsigned)PICKLE_TUPLE);
    (void)pickle_memoize(pickler);
}

static void pickle_tuple_start(struct pickler *pickler, size_t count)
{
    pickle_object(pickler);
    if (count == 0) {
        pickle_op(pickler, PICKLE_EMPTY_TUPLE);
    } else if (count > 3) {
        pickle_op(pickler, PICKLE_MARK);
    }
}

static void pickle_token_tuple(struct pickler *pickler, const uint32_t *tokens, size_t count)
{
    pickle_tuple_start(pickler, count);
    pickle_tokens(pickler, tokens, count);
    pickle_tuple_end(pickler, count);
}

static void pickle_list_start(struct pickler *pickler)
{
    pickle_object(pickler);
    pickle_op(pickler, PICKLE_EMPTY_LIST);
    (void)pickle_memoize(pickler);
}

/* Called before and after item `item` of a list of `count`: batches of 1000; one item has no
 * mark. */
static void pickle_item_before(struct pickler *pickler, size_t item, size_t count)
{
    if (count > 1 && item % PICKLE_BATCH_ITEMS == 0) {
        pickle_op(pickler, PICKLE_MARK);
    }
}

static void pickle_item_after(struct pickler *pickler, size_t item, size_t count)
{
    if (count == 1) {
        pickle_op(pickler, PICKLE_APPEND);
    } else if ((item + 1) % PICKLE_BATCH_ITEMS == 0 || item + 1 == count) {
        pickle_op(pickler, PICKLE_APPENDS);
    }
}

static void pickle_token_list(struct pickler *pickler, const uint32_t *tokens, size_t count)
{
    pickle_list_start(pickler);
    for (size_t i = 0; i < count; i += PICKLE_BATCH_ITEMS) {
        size_t batch = SL_MIN(count - i, PICKLE_BATCH_ITEMS);
        pickle_item_before(pickler, i, count);
        pickle_tokens(pickler, tokens + i, batch);
        pickle_item_after(pickler, i + batch - 1, count);
    }
}

/* Writes one element, with nested ones, from nodes[at] on; returns the index after it. */
static uint32_t pickle_element(struct pickler *pickler, struct keys_node *nodes, uint32_t at)
{
    uint32_t counts[8] = {0}, depth = 0; /* the parser refuses deeper nesting */
    do {
        struct keys_node *node = &nodes[at++];
        struct keys_node *object = node->kind == KEYS_NODE_SAME
                                       ? &nodes[node->same - (uint32_t)(nodes - pickler->all_nodes)]
                                       : node;
        switch (object->kind) {
        case KEYS_NODE_NULL:
            pickle_object(pickler);
            pickle_op(pickler, PICKLE_NONE);
            break;
        case KEYS_NODE_INT:
            pickle_int(pickler, object->number);
            break;
        case KEYS_NODE_TEXT:
        case KEYS_NODE_BYTES:
            pickle_string(pickler, object->kind == KEYS_NODE_TEXT, object->at, object->length,
                          &object->memo);
            break;
        case KEYS_NODE_TUPLE:
            counts[depth++] = object->count;
            pickle_tuple_start(pickler, object->count);
            break;
        case KEYS_NODE_END:
            pickle_tuple_end(pickler, counts[--depth]);
            break;
        case KEYS_NODE_NAMED:
        case KEYS_NODE_SAME:
            SL_ASSERT(false); /* the parser leaves neither for pickle */
        }
    } while (depth > 0);
    return at;
}

static void block_forget_memo(const struct keys_block *block)
{
    for (uint32_t i = 0; i < block->span.count; i++) {
        block->nodes[i].memo = 0;
    }
}

void keys_pickle_text(struct keys_buffer *out, uint32_t protocol, const char *text, size_t length)
{
    struct pickler pickler;
    uint32_t memo = 0;
    pickle_start(&pickler, out, protocol);
    pickle_string(&pickler, true, text, length, &memo);
    pickle_stop(&pickler);
}

void keys_pickle_triple(struct keys_buffer *out, uint32_t protocol, const struct keys_block *block)
{
    struct pickler pickler;
    uint32_t memo = 0;
    pickle_start(&pickler, out, protocol);
    pickler.all_nodes = block->all_nodes;
    block_forget_memo(block);
    pickle_tuple_start(&pickler, 3);
    pickle_string(&pickler, block->parent_is_text, block->parent, block->parent_length, &memo);
    pickle_token_tuple(&pickler, block->tokens, block->token_count);
    if (block->span.elements == 0) {
        pickle_object(&pickler);
        pickle_op(&pickler, PICKLE_NONE);
    } else {
        pickle_tuple_start(&pickler, block->span.elements);
        for (uint32_t at = 0; at < block->span.count;) {
            at = pickle_element(&pickler, block->nodes, at);
        }
        pickle_tuple_end(&pickler, block->span.elements);
    }
    pickle_tuple_end(&pickler, 3);
    pickle_stop(&pickler);
}

void keys_pickle_lists(struct keys_buffer *out, uint32_t protocol, const struct keys_block *block)
{
    struct pickler pickler;
    uint32_t memo = 0;
    size_t item = 0, count = block->span.elements + (block->parent_length > 0 ? 1u : 0u);
    pickle_start(&pickler, out, protocol);
    pickler.all_nodes = block->all_nodes;
    block_forget_memo(block);
    pickle_tuple_start(&pickler, 2);
    pickle_token_list(&pickler, block->tokens, block->token_count);
    pickle_list_start(&pickler);
    if (block->parent_length > 0) {
        pickle_item_before(&pickler, item, count);
        pickle_string(&pickler, true, block->parent, block->parent_length, &memo);
        pickle_item_after(&pickler, item++, count);
    }
    for (uint32_t at = 0; at < block->span.count;) {
        pickle_item_before(&pickler, item, count);
        at = pickle_element(&pickler, block->nodes, at);
        pickle_item_after(&pickler, item++, count);
    }
    pickle_tuple_end(&pickler, 2);
    pickle_stop(&pickler);
}

/* ---- CBOR ---- */

enum { CBOR_UINT, CBOR_NEGATIVE, CBOR_BYTES, CBOR_TEXT, CBOR_ARRAY };
#define CBOR_NULL           0xf6
#define CBOR_HEAD_BYTES_MAX 9u

static size_t cbor_head_bytes(unsigned char *out, unsigned major, uint64_t value)
{
    unsigned char top = (unsigned char)(major << 5);
    if (value < 24) {
        out[0] = (unsigned char)(top | value);
        return 1;
    }
    unsigned log = value <= 0xff ? 0 : value <= 0xffff ? 1 : value <= 0xffffffff ? 2 : 3;
    size_t length = (size_t)1 << log;
    out[0] = (unsigned char)(top | (24 + log));
    for (size_t i = 0; i < length; i++) {
        out[1 + i] = (unsigned char)(value >> (8 * (length - 1 - i)));
    }
    return 1 + length;
}

static void cbor_head(struct keys_buffer *out, unsigned major, uint64_t value)
{
    unsigned char bytes[CBOR_HEAD_BYTES_MAX];
    keys_buffer_put(out, bytes, cbor_head_bytes(bytes, major, value));
}

static void cbor_string(struct keys_buffer *out, bool text, const void *at, size_t length)
{
    cbor_head(out, text ? CBOR_TEXT : CBOR_BYTES, length);
    keys_buffer_put(out, at, length);
}

static void cbor_node(struct keys_buffer *out, const struct keys_node *node)
{
    static const unsigned char null = CBOR_NULL;
    switch (node->kind) {
    case KEYS_NODE_NULL:
        keys_buffer_put(out, &null, 1);
        break;
    case KEYS_NODE_INT:
        if (node->number >= 0) {
            cbor_head(out, CBOR_UINT, (uint64_t)node->number);
        } else {
            cbor_head(out, CBOR_NEGATIVE, (uint64_t)(-1 - node->number));
        }
        break;
    case KEYS_NODE_TEXT:
    case KEYS_NODE_BYTES:
        cbor_string(out, node->kind == KEYS_NODE_TEXT, node->at, node->length);
        break;
    case KEYS_NODE_TUPLE:
        cbor_head(out, CBOR_ARRAY, node->count);
        break;
    case KEYS_NODE_END: /* arrays have a length, no end */
        break;
    case KEYS_NODE_NAMED:
    case KEYS_NODE_SAME:
        SL_ASSERT(false); /* the parser leaves neither for CBOR */
    }
}

static const struct keys_node *block_object(const struct keys_block *block, uint32_t at)
{
    const struct keys_node *node = &block->nodes[at];
    return node->kind == KEYS_NODE_SAME ? &block->all_nodes[node->same] : node;
}

void keys_cbor_text(struct keys_buffer *out, const char *text, size_t length)
{
    out->length = 0;
    out->failed = false;
    cbor_string(out, true, text, length);
}

void keys_cbor_triple(struct keys_buffer *out, const struct keys_block *block)
{
    static const unsigned char null = CBOR_NULL;
    out->length = 0;
    out->failed = false;
    cbor_head(out, CBOR_ARRAY, 3);
    cbor_string(out, block->parent_is_text, block->parent, block->parent_length);
    cbor_head(out, CBOR_ARRAY, block->token_count);
    if (keys_buffer_reserve(out, block->token_count * CBOR_HEAD_BYTES_MAX)) {
        unsigned char *to = out->at + out->length;
        for (size_t i = 0; i < block->token_count; i++) {
            to += cbor_head_bytes(to, CBOR_UINT, block->tokens[i]);
        }
        out->length = (size_t)(to - out->at);
    }
    if (block->span.elements == 0) {
        keys_buffer_put(out, &null, 1);
        return;
    }
    cbor_head(out, CBOR_ARRAY, block->span.elements);
    for (uint32_t i = 0; i < block->span.count; i++) {
        cbor_node(out, block_object(block, i));
    }
}

/* ---- the format sluice ---- */

static void tagged_word(struct keys_buffer *out, char tag, uint64_t word)
{
    unsigned char bytes[9] = {(unsigned char)tag};
    for (size_t i = 0; i < 8; i++) {
        bytes[1 + i] = (unsigned char)(word >> (8 * i));
    }
    keys_buffer_put(out, bytes, sizeof(bytes));
}

void keys_tagged_extras(struct keys_buffer *out, const struct keys_block *block)
{
    char ends[8]; /* closing tags of open lists; the parser refuses deeper nesting */
    uint32_t depth = 0;
    for (uint32_t i = 0; i < block->span.count; i++) {
        const struct keys_node *node = block_object(block, i);
        switch (node->kind) {
        case KEYS_NODE_NULL:
            keys_buffer_put(out, "n", 1);
            break;
        case KEYS_NODE_INT:
            tagged_word(out, 'i', (uint64_t)node->number);
            break;
        case KEYS_NODE_TEXT:
        case KEYS_NODE_BYTES:
            tagged_word(out, node->kind == KEYS_NODE_TEXT ? 't' : 'b', node->length);
            keys_buffer_put(out, node->at, node->length);
            break;
        case KEYS_NODE_TUPLE:
        case KEYS_NODE_NAMED:
            keys_buffer_put(out, node->kind == KEYS_NODE_TUPLE ? "(" : "{", 1);
            ends[depth++] = node->kind == KEYS_NODE_TUPLE ? ')' : '}';
            break;
        case KEYS_NODE_END:
            keys_buffer_put(out, &ends[--depth], 1);
            break;
        case KEYS_NODE_SAME:
            SL_ASSERT(false); /* a same node never names another */
        }
    }
}
