/* tests/unit/ipc/msg/messaging_support.c - see the header. */
#include "tests/unit/ipc/msg/messaging_support.h"

#include <msgpack/pack.h>
#include <msgpack/sbuffer.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* splitmix64: every seed gives another sequence, the same on every machine. */
static uint64_t next_random(struct made *made)
{
    uint64_t z = made->random += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* Of any magnitude, small as often as large. */
static uint64_t any_number(struct made *made)
{
    uint64_t number = next_random(made);
    return number >> (next_random(made) % 64);
}

static void *keep(struct made *made, size_t length_bytes)
{
    SL_ASSERT(made->count < SL_COUNT(made->blocks));
    void *block = calloc(1, length_bytes + 1);
    SL_ASSERT(block != NULL);
    made->blocks[made->count++] = block;
    return block;
}

void made_free(struct made *made)
{
    for (uint32_t i = 0; i < made->count; i++) {
        free(made->blocks[i]);
    }
    made->count = 0;
}

static uint64_t make_number(struct made *made, uint64_t low, uint64_t high)
{
    switch (next_random(made) % 4) {
    case 0:
        return low;
    case 1:
        return high;
    case 2:
        return low + next_random(made) % (SL_MIN(high - low, 300) + 1);
    default:
        return high - low == UINT64_MAX ? next_random(made)
                                        : low + next_random(made) % (high - low + 1);
    }
}

static struct sl_text make_text(struct made *made, uint64_t low, uint64_t high)
{
    static const char *const letters[] = {
        "a", "7", "/", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x9a\xb0"};
    uint64_t length = low + next_random(made) % (SL_MIN(high - low, 40) + 1);
    char *text = keep(made, length);
    for (uint64_t at = 0; at < length;) {
        const char *letter = letters[next_random(made) % SL_COUNT(letters)];
        if (strlen(letter) > length - at) {
            letter = "x";
        }
        memcpy(text + at, letter, strlen(letter));
        at += strlen(letter);
    }
    return (struct sl_text){.at = text, .length = length};
}

static struct sl_text make_bytes(struct made *made, uint64_t low, uint64_t high)
{
    uint64_t length = low + next_random(made) % (SL_MIN(high - low, 64) + 1);
    char *bytes = keep(made, length);
    for (uint64_t i = 0; i < length; i++) {
        bytes[i] = (char)next_random(made);
    }
    return (struct sl_text){.at = bytes, .length = length};
}

static void make_plain(struct made *made, const struct sl_field *field, unsigned char *to)
{
    if (field->kind == SL_FIELD_U64) {
        uint64_t value = make_number(made, field->low, field->high);
        memcpy(to, &value, sizeof(value));
    } else if (field->kind == SL_FIELD_BOOL) {
        bool value = (next_random(made) & 1) != 0;
        memcpy(to, &value, sizeof(value));
    } else {
        struct sl_text text = field->kind == SL_FIELD_TEXT
                                  ? make_text(made, field->low, field->high)
                                  : make_bytes(made, field->low, field->high);
        memcpy(to, &text, sizeof(text));
    }
}

static struct sl_counted make_list(struct made *made, const struct sl_field *field)
{
    struct sl_counted list = {.count = SL_MIN(field->high, field->low + next_random(made) % 5)};
    if (field->kind == SL_FIELD_U64S) {
        uint64_t *values = keep(made, list.count * sizeof(*values));
        for (uint64_t i = 0; i < list.count; i++) {
            values[i] = make_number(made, 0, UINT64_MAX);
        }
        list.at = values;
    } else if (field->kind == SL_FIELD_TEXTS) {
        struct sl_text *texts = keep(made, list.count * sizeof(*texts));
        for (uint64_t i = 0; i < list.count; i++) {
            texts[i] = make_text(made, 1, SL_TEXTS_BYTES_MAX);
        }
        list.at = texts;
    } else {
        const struct sl_shape *shape = field->item();
        unsigned char *items = keep(made, list.count * shape->struct_bytes);
        for (uint64_t i = 0; i < list.count; i++) {
            for (uint32_t k = 0; k < shape->field_count; k++) {
                make_plain(made, &shape->fields[k],
                           items + i * shape->struct_bytes + shape->fields[k].offset_bytes);
            }
        }
        list.at = items;
    }
    return list;
}

static bool is_list(const struct sl_field *field)
{
    return field->kind == SL_FIELD_LIST || field->kind == SL_FIELD_U64S ||
           field->kind == SL_FIELD_TEXTS;
}

struct sl_msg make_message(struct made *made, uint32_t type, uint64_t seed)
{
    made->random = seed;
    struct sl_msg msg = {.version = SL_WIRE_VERSION, .type = type};
    msg.op_id = next_random(made);
    msg.trace_id = any_number(made);
    msg.sender = sl_text_of("swapper.1");
    msg.seq = next_random(made);
    msg.reply_to = SL_MSG_IS_REPLY(type) ? next_random(made) : 0;
    msg.budget_ns = any_number(made);
    msg.code = SL_MSG_IS_REPLY(type) ? (sl_err)(next_random(made) % SL_ERR_COUNT) : SL_OK;
    msg.text = make_text(made, 0, SL_MSG_TEXT_BYTES_MAX);
    const struct sl_shape *shape = sl_msg_info(type)->body();
    for (uint32_t i = 0; i < shape->field_count; i++) {
        unsigned char *to = (unsigned char *)&msg.body + shape->fields[i].offset_bytes;
        if (is_list(&shape->fields[i])) {
            struct sl_counted list = make_list(made, &shape->fields[i]);
            memcpy(to, &list, sizeof(list));
        } else {
            make_plain(made, &shape->fields[i], to);
        }
    }
    return msg;
}

/* -------------------------------------------------- comparing
 * -------------------------------------------------- */

static bool texts_equal(const void *a, const void *b)
{
    struct sl_text x;
    struct sl_text y;
    memcpy(&x, a, sizeof(x));
    memcpy(&y, b, sizeof(y));
    return x.length == y.length && (x.length == 0 || memcmp(x.at, y.at, x.length) == 0);
}

static bool plain_equal(const struct sl_field *field, const unsigned char *a,
                        const unsigned char *b)
{
    if (field->kind == SL_FIELD_U64) {
        return memcmp(a, b, sizeof(uint64_t)) == 0;
    }
    return field->kind == SL_FIELD_BOOL ? memcmp(a, b, sizeof(bool)) == 0 : texts_equal(a, b);
}

static bool elements_equal(const struct sl_field *field, const unsigned char *a,
                           const unsigned char *b)
{
    if (field->kind == SL_FIELD_U64S) {
        return memcmp(a, b, sizeof(uint64_t)) == 0;
    }
    if (field->kind == SL_FIELD_TEXTS) {
        return texts_equal(a, b) && ((const struct sl_text *)(const void *)a)->at[0] != '\0';
    }
    const struct sl_shape *shape = field->item();
    for (uint32_t i = 0; i < shape->field_count; i++) {
        uint32_t offset = shape->fields[i].offset_bytes;
        if (!plain_equal(&shape->fields[i], a + offset, b + offset)) {
            return false;
        }
    }
    return true;
}

static bool field_equal(const struct sl_field *field, const unsigned char *a,
                        const unsigned char *b)
{
    if (!is_list(field)) {
        return plain_equal(field, a, b);
    }
    struct sl_counted x;
    struct sl_counted y;
    memcpy(&x, a, sizeof(x));
    memcpy(&y, b, sizeof(y));
    size_t each = field->kind == SL_FIELD_U64S    ? sizeof(uint64_t)
                  : field->kind == SL_FIELD_TEXTS ? sizeof(struct sl_text)
                                                  : field->item()->struct_bytes;
    for (uint64_t i = 0; x.count == y.count && i < x.count; i++) {
        if (!elements_equal(field, (const unsigned char *)x.at + i * each,
                            (const unsigned char *)y.at + i * each)) {
            return false;
        }
    }
    return x.count == y.count;
}

bool messages_equal(const struct sl_msg *a, const struct sl_msg *b, char *difference,
                    size_t difference_bytes)
{
    (void)snprintf(difference, difference_bytes, "envelope of %s", sl_msg_name(a->type));
    if (a->version != b->version || a->type != b->type || a->op_id != b->op_id ||
        a->trace_id != b->trace_id || a->seq != b->seq || a->reply_to != b->reply_to ||
        a->budget_ns != b->budget_ns || a->code != b->code ||
        !texts_equal(&a->sender, &b->sender) || !texts_equal(&a->text, &b->text)) {
        return false;
    }
    const struct sl_shape *shape = sl_msg_info(a->type)->body();
    for (uint32_t i = 0; i < shape->field_count; i++) {
        const struct sl_field *field = &shape->fields[i];
        (void)snprintf(difference, difference_bytes, "%s.%s", shape->name, field->name);
        if (!field_equal(field, (const unsigned char *)&a->body + field->offset_bytes,
                         (const unsigned char *)&b->body + field->offset_bytes)) {
            return false;
        }
    }
    difference[0] = '\0';
    return true;
}

/* --------------------------------------------- the careless encoder
 * --------------------------------------------- */

struct careless {
    msgpack_packer packer;
    msgpack_sbuffer buffer;
    enum breakage breakage;
    bool applied;
};

static void put_raw(struct careless *out, bool is_text, const char *bytes, size_t length)
{
    if (is_text) {
        msgpack_pack_str(&out->packer, length);
        msgpack_pack_str_body(&out->packer, length > 0 ? bytes : "", length);
    } else {
        msgpack_pack_bin(&out->packer, length);
        msgpack_pack_bin_body(&out->packer, length > 0 ? bytes : "", length);
    }
}

static void put_filled(struct careless *out, const struct sl_field *field, uint64_t length,
                       char byte)
{
    char *bytes = malloc(length + 1);
    SL_ASSERT(bytes != NULL);
    memset(bytes, 'k', length + 1);
    bytes[length / 2] = byte;
    put_raw(out, field->kind == SL_FIELD_TEXT, bytes, length);
    free(bytes);
    out->applied = true;
}

static void put_plain(struct careless *out, const struct sl_field *field, const unsigned char *at)
{
    if (field->kind == SL_FIELD_U64) {
        uint64_t value;
        memcpy(&value, at, sizeof(value));
        msgpack_pack_uint64(&out->packer, value);
    } else if (field->kind == SL_FIELD_BOOL) {
        bool value;
        memcpy(&value, at, sizeof(value));
        value ? msgpack_pack_true(&out->packer) : msgpack_pack_false(&out->packer);
    } else {
        struct sl_text text;
        memcpy(&text, at, sizeof(text));
        put_raw(out, field->kind == SL_FIELD_TEXT, text.at, text.length);
    }
}

/* Writes a value of the field's kind on the wrong side of a bound. False: impossible. */
static bool put_out_of_bounds(struct careless *out, const struct sl_field *field, bool high)
{
    if (field->kind == SL_FIELD_BOOL || (high ? field->high == UINT64_MAX : field->low == 0)) {
        return false;
    }
    uint64_t value = high ? field->high + 1 : field->low - 1;
    if (field->kind == SL_FIELD_U64) {
        msgpack_pack_uint64(&out->packer, value);
    } else if (is_list(field)) {
        msgpack_pack_array(&out->packer, value);
        for (uint64_t i = 0; i < value; i++) {
            msgpack_pack_nil(&out->packer);
        }
    } else {
        put_filled(out, field, value, 'k');
    }
    return true;
}

static bool put_broken(struct careless *out, const struct sl_field *field)
{
    bool is_text = field->kind == SL_FIELD_TEXT;
    switch (out->breakage) {
    case BREAK_KIND:
        msgpack_pack_nil(&out->packer);
        return true;
    case BREAK_TOO_LOW:
    case BREAK_TOO_HIGH:
        return put_out_of_bounds(out, field, out->breakage == BREAK_TOO_HIGH);
    case BREAK_NOT_UTF8:
    case BREAK_ZERO_BYTE:
        if (is_text) {
            put_filled(out, field, SL_MAX(field->low, 1),
                       out->breakage == BREAK_NOT_UTF8 ? (char)0xff : '\0');
        }
        return is_text;
    default:
        return false;
    }
}

static void put_items(struct careless *out, const struct sl_field *field,
                      const struct sl_counted *list, int broken_field)
{
    const struct sl_shape *shape = field->item();
    msgpack_pack_array(&out->packer, list->count);
    for (uint64_t i = 0; i < list->count; i++) {
        const unsigned char *item = (const unsigned char *)list->at + i * shape->struct_bytes;
        bool cut = i == 0 && broken_field >= 0 && out->breakage == BREAK_MISSING;
        uint32_t count = cut ? (uint32_t)broken_field : shape->field_count;
        out->applied = out->applied || cut;
        msgpack_pack_array(&out->packer, count);
        for (uint32_t k = 0; k < count; k++) {
            bool broken = i == 0 && broken_field == (int)k;
            if (broken && put_broken(out, &shape->fields[k])) {
                out->applied = true;
            } else {
                put_plain(out, &shape->fields[k], item + shape->fields[k].offset_bytes);
            }
        }
    }
}

static void put_field(struct careless *out, const struct sl_field *field, const unsigned char *at,
                      int broken_field)
{
    if (!is_list(field)) {
        put_plain(out, field, at);
        return;
    }
    struct sl_counted list;
    memcpy(&list, at, sizeof(list));
    if (field->kind == SL_FIELD_LIST) {
        put_items(out, field, &list, broken_field);
        return;
    }
    msgpack_pack_array(&out->packer, list.count);
    for (uint64_t i = 0; i < list.count; i++) {
        if (field->kind == SL_FIELD_U64S) {
            msgpack_pack_uint64(&out->packer, ((const uint64_t *)list.at)[i]);
        } else {
            put_raw(out, true, ((const struct sl_text *)list.at)[i].at,
                    ((const struct sl_text *)list.at)[i].length);
        }
    }
}

static void put_envelope(struct careless *out, const struct sl_msg *msg)
{
    msgpack_pack_array(&out->packer, 10);
    msgpack_pack_uint64(&out->packer, msg->version);
    msgpack_pack_uint64(&out->packer, msg->type);
    msgpack_pack_uint64(&out->packer, msg->op_id);
    msgpack_pack_uint64(&out->packer, msg->trace_id);
    put_raw(out, true, msg->sender.at, msg->sender.length);
    msgpack_pack_uint64(&out->packer, msg->seq);
    msgpack_pack_uint64(&out->packer, msg->reply_to);
    msgpack_pack_fix_uint64(&out->packer, msg->budget_ns);
    msgpack_pack_uint64(&out->packer, (uint64_t)msg->code);
    put_raw(out, true, msg->text.at, msg->text.length);
}

bool encode_broken(const struct sl_msg *msg, uint32_t field_index, int item_field_index,
                   enum breakage breakage, unsigned char **frame, size_t *length_bytes)
{
    struct careless out = {.breakage = breakage, .applied = breakage == BREAK_NOTHING};
    const struct sl_shape *shape = sl_msg_info(msg->type)->body();
    msgpack_sbuffer_init(&out.buffer);
    msgpack_packer_init(&out.packer, &out.buffer, msgpack_sbuffer_write);
    msgpack_pack_array(&out.packer, 2);
    put_envelope(&out, msg);
    bool cut = breakage == BREAK_MISSING && item_field_index < 0;
    uint32_t count = cut ? field_index : shape->field_count;
    out.applied = out.applied || cut;
    msgpack_pack_array(&out.packer, count);
    for (uint32_t i = 0; i < count; i++) {
        const struct sl_field *field = &shape->fields[i];
        const unsigned char *at = (const unsigned char *)&msg->body + field->offset_bytes;
        if (i == field_index && item_field_index < 0 && put_broken(&out, field)) {
            out.applied = true;
        } else {
            put_field(&out, field, at, i == field_index ? item_field_index : -1);
        }
    }
    *frame = malloc(out.buffer.size);
    SL_ASSERT(*frame != NULL);
    memcpy(*frame, out.buffer.data, out.buffer.size);
    *length_bytes = out.buffer.size;
    msgpack_sbuffer_destroy(&out.buffer);
    if (!out.applied) {
        free(*frame);
        *frame = NULL;
    }
    return out.applied;
}
