/* ipc/sl_codec_decode.c - the decoder: hostile bytes to a message, by the table.
 *
 * Three steps: sl_codec_scan proves the structure without allocating, msgpack-c makes its tree in a
 * zone that is kept from message to message, and the tree is checked against the shape and copied
 * out. */
#include "ipc/msg_internal.h"

#include <inttypes.h>
#include <msgpack/unpack.h>
#include <stdio.h>
#include <string.h>

#define ZONE_FIRST_BYTES 16384u

/* Where in the message the decoder is, for texts of errors. */
struct spot {
    struct sl_codec *codec;
    const char *message;
    const char *list; /* NULL: not in a list */
    uint64_t index;
    bool may_lack_fields; /* the sender is older */
    struct sl_error *why;
};

static sl_err reject(const struct spot *spot, const struct sl_field *field, sl_err code,
                     const char *what)
{
    if (spot->list != NULL) {
        return sl_fail(spot->why, code, "%s.%s[%" PRIu64 "].%s: %s", spot->message, spot->list,
                       spot->index, field->name, what);
    }
    return sl_fail(spot->why, code, "%s.%s: %s", spot->message, field->name, what);
}

/* What an older sender does not know yet reads as 0 and empty, and allows that. */
static sl_err missing(const struct spot *spot, const struct sl_field *field)
{
    return spot->may_lack_fields && field->low == 0
               ? SL_OK
               : reject(spot, field, SL_ERR_PROTOCOL, "missing");
}

static sl_err reject_range(const struct spot *spot, const struct sl_field *field, const char *what,
                           uint64_t value)
{
    char text[128];
    (void)snprintf(text, sizeof(text), "%s %" PRIu64 " is not in %" PRIu64 "..%" PRIu64, what,
                   value, field->low, field->high);
    return reject(spot, field, value > field->high ? SL_ERR_LIMIT : SL_ERR_PROTOCOL, text);
}

static bool out_of(const struct sl_field *field, uint64_t value)
{
    return value < field->low || value > field->high;
}

static sl_err take(const struct spot *spot, const struct sl_field *field, uint64_t length_bytes,
                   void **out)
{
    *out = sl_bump_take(&spot->codec->bump, length_bytes);
    return *out != NULL ? SL_OK : reject(spot, field, SL_ERR_NO_MEMORY, "no memory to decode it");
}

/* Copies so that the frame need not live on; one byte more is the texts' zero. */
static sl_err copy_out(const struct spot *spot, const struct sl_field *field, const char *from,
                       uint64_t length, struct sl_text *out)
{
    void *to;
    sl_err err = take(spot, field, length + 1, &to);
    if (err != SL_OK) {
        return err;
    }
    if (length > 0) {
        memcpy(to, from, length);
    }
    *out = (struct sl_text){.at = to, .length = length};
    return SL_OK;
}

static sl_err decode_text(const struct spot *spot, const struct sl_field *field,
                          const msgpack_object *value, struct sl_text *out)
{
    if (value->type != MSGPACK_OBJECT_STR) {
        return reject(spot, field, SL_ERR_PROTOCOL, "not a text");
    }
    if (out_of(field, value->via.str.size)) {
        return reject_range(spot, field, "length in bytes", value->via.str.size);
    }
    if (!sl_text_is_clean(value->via.str.ptr, value->via.str.size)) {
        return reject(spot, field, SL_ERR_PROTOCOL, "not UTF-8 without zero bytes");
    }
    return copy_out(spot, field, value->via.str.ptr, value->via.str.size, out);
}

/* U64, BOOL, TEXT, BIN. */
static sl_err decode_plain(const struct spot *spot, const struct sl_field *field,
                           const msgpack_object *value, unsigned char *to)
{
    if (field->kind == SL_FIELD_U64) {
        if (value->type != MSGPACK_OBJECT_POSITIVE_INTEGER) {
            return reject(spot, field, SL_ERR_PROTOCOL, "not an unsigned integer");
        }
        if (out_of(field, value->via.u64)) {
            return reject_range(spot, field, "value", value->via.u64);
        }
        memcpy(to, &value->via.u64, sizeof(value->via.u64));
        return SL_OK;
    }
    if (field->kind == SL_FIELD_BOOL) {
        if (value->type != MSGPACK_OBJECT_BOOLEAN) {
            return reject(spot, field, SL_ERR_PROTOCOL, "not a boolean");
        }
        memcpy(to, &value->via.boolean, sizeof(bool));
        return SL_OK;
    }
    struct sl_text out;
    sl_err err;
    if (field->kind == SL_FIELD_TEXT) {
        err = decode_text(spot, field, value, &out);
    } else if (value->type != MSGPACK_OBJECT_BIN) {
        err = reject(spot, field, SL_ERR_PROTOCOL, "not bytes");
    } else if (out_of(field, value->via.bin.size)) {
        err = reject_range(spot, field, "length in bytes", value->via.bin.size);
    } else {
        err = copy_out(spot, field, value->via.bin.ptr, value->via.bin.size, &out);
    }
    if (err == SL_OK) {
        memcpy(to, &out, sizeof(out));
    }
    return err;
}

static sl_err decode_u64s(const struct spot *spot, const struct sl_field *field,
                          const msgpack_object_array *array, void **at)
{
    sl_err err = take(spot, field, (uint64_t)array->size * sizeof(uint64_t), at);
    for (uint32_t i = 0; err == SL_OK && i < array->size; i++) {
        if (array->ptr[i].type != MSGPACK_OBJECT_POSITIVE_INTEGER) {
            return reject(spot, field, SL_ERR_PROTOCOL, "an element is not an unsigned integer");
        }
        ((uint64_t *)*at)[i] = array->ptr[i].via.u64;
    }
    return err;
}

static sl_err decode_texts(const struct spot *spot, const struct sl_field *field,
                           const msgpack_object_array *array, void **at)
{
    const struct sl_field each = {
        .name = field->name, .low = 1, .high = SL_TEXTS_BYTES_MAX, .kind = SL_FIELD_TEXT};
    sl_err err = take(spot, field, (uint64_t)array->size * sizeof(struct sl_text), at);
    for (uint32_t i = 0; err == SL_OK && i < array->size; i++) {
        err = decode_text(spot, &each, &array->ptr[i], &((struct sl_text *)*at)[i]);
    }
    return err;
}

/* Fields of an item: none of them is a list (the table cannot nest lists). */
static sl_err decode_item(const struct spot *spot, const struct sl_shape *shape,
                          const struct sl_field *list, const msgpack_object *value,
                          unsigned char *to)
{
    if (value->type != MSGPACK_OBJECT_ARRAY) {
        return sl_fail(spot->why, SL_ERR_PROTOCOL, "%s.%s[%" PRIu64 "]: not an array",
                       spot->message, list->name, spot->index);
    }
    const msgpack_object_array *array = &value->via.array;
    for (uint32_t i = 0; i < shape->field_count; i++) {
        const struct sl_field *field = &shape->fields[i];
        sl_err err = i < array->size
                         ? decode_plain(spot, field, &array->ptr[i], to + field->offset_bytes)
                         : missing(spot, field);
        if (err != SL_OK) {
            return err;
        }
    }
    return SL_OK;
}

static sl_err decode_list(const struct spot *spot, const struct sl_field *field,
                          const msgpack_object_array *array, void **at)
{
    const struct sl_shape *shape = field->item();
    sl_err err = take(spot, field, (uint64_t)array->size * shape->struct_bytes, at);
    struct spot inner = *spot;
    inner.list = field->name;
    for (uint32_t i = 0; err == SL_OK && i < array->size; i++) {
        inner.index = i;
        err = decode_item(&inner, shape, field, &array->ptr[i],
                          (unsigned char *)*at + (uint64_t)i * shape->struct_bytes);
    }
    return err;
}

static sl_err decode_field(const struct spot *spot, const struct sl_field *field,
                           const msgpack_object *value, unsigned char *to)
{
    if (field->kind != SL_FIELD_LIST && field->kind != SL_FIELD_U64S &&
        field->kind != SL_FIELD_TEXTS) {
        return decode_plain(spot, field, value, to);
    }
    if (value->type != MSGPACK_OBJECT_ARRAY) {
        return reject(spot, field, SL_ERR_PROTOCOL, "not an array");
    }
    const msgpack_object_array *array = &value->via.array;
    if (out_of(field, array->size)) {
        return reject_range(spot, field, "count", array->size);
    }
    void *at = NULL;
    sl_err err;
    if (field->kind == SL_FIELD_LIST) {
        err = decode_list(spot, field, array, &at);
    } else if (field->kind == SL_FIELD_U64S) {
        err = decode_u64s(spot, field, array, &at);
    } else {
        err = decode_texts(spot, field, array, &at);
    }
    if (err == SL_OK) {
        const struct sl_counted list = {.at = at, .count = array->size};
        memcpy(to, &list, sizeof(list));
    }
    return err;
}

/* Array of fields to a zeroed struct. What follows the known fields is ignored. */
static sl_err decode_struct(const struct spot *spot, const struct sl_shape *shape,
                            const msgpack_object *value, void *to)
{
    if (value->type != MSGPACK_OBJECT_ARRAY) {
        return sl_fail(spot->why, SL_ERR_PROTOCOL, "%s: not an array", spot->message);
    }
    const msgpack_object_array *array = &value->via.array;
    for (uint32_t i = 0; i < shape->field_count; i++) {
        const struct sl_field *field = &shape->fields[i];
        sl_err err = i < array->size ? decode_field(spot, field, &array->ptr[i],
                                                    (unsigned char *)to + field->offset_bytes)
                                     : missing(spot, field);
        if (err != SL_OK) {
            return err;
        }
    }
    return SL_OK;
}

/* The version comes first: it says how to read the rest. N speaks with N-1, so from here N+1 is
 * heard too. */
static sl_err decode_version(const msgpack_object *envelope, uint64_t *version,
                             struct sl_error *why)
{
    if (envelope->type != MSGPACK_OBJECT_ARRAY || envelope->via.array.size == 0) {
        return sl_fail(why, SL_ERR_PROTOCOL, "envelope: not an array with fields");
    }
    const msgpack_object *first = &envelope->via.array.ptr[0];
    if (first->type != MSGPACK_OBJECT_POSITIVE_INTEGER) {
        return sl_fail(why, SL_ERR_PROTOCOL, "envelope.version: not an unsigned integer");
    }
    if (first->via.u64 < SL_WIRE_VERSION_MIN || first->via.u64 > SL_WIRE_VERSION + 1) {
        return sl_fail(why, SL_ERR_VERSION,
                       "a message in wire version %" PRIu64 ", sluice %s speaks %u to %u: use the "
                       "same sluice package on both sides",
                       first->via.u64, SL_VERSION, (unsigned)SL_WIRE_VERSION_MIN,
                       (unsigned)SL_WIRE_VERSION + 1);
    }
    *version = first->via.u64;
    return SL_OK;
}

static sl_err envelope_read(struct spot *spot, const msgpack_object *value, struct sl_msg *out)
{
    struct sl_envelope envelope = {0};
    sl_err err = decode_struct(spot, sl_shape_envelope(), value, &envelope);
    if (err != SL_OK) {
        return err;
    }
    if (!sl_actor_name_is_clean(envelope.sender.at, envelope.sender.length)) {
        return sl_fail(spot->why, SL_ERR_PROTOCOL,
                       "envelope.sender: not a name of an actor or client");
    }
    *out = (struct sl_msg){
        .version = (uint32_t)envelope.version,
        .type = (uint32_t)envelope.type,
        .op_id = envelope.op_id,
        .trace_id = envelope.trace_id,
        .sender = envelope.sender,
        .seq = envelope.seq,
        .reply_to = envelope.reply_to,
        .budget_ns = envelope.budget_ns,
        .code = (sl_err)envelope.code,
        .text = envelope.text,
    };
    return SL_OK;
}

static sl_err decode_envelope(struct spot *spot, const msgpack_object *value, struct sl_msg *out)
{
    uint64_t version = 0;
    sl_err err = decode_version(value, &version, spot->why);
    if (err == SL_ERR_VERSION) {
        /* Envelopes only ever grow: one of any version says whom to answer. */
        struct spot quiet = *spot;
        quiet.why = NULL;
        spot->codec->envelope_is_intact = envelope_read(&quiet, value, out) == SL_OK;
    }
    if (err != SL_OK) {
        return err;
    }
    spot->may_lack_fields = version < SL_WIRE_VERSION;
    return envelope_read(spot, value, out);
}

static sl_err decode_body(struct spot *spot, const msgpack_object *value, struct sl_msg *msg)
{
    const struct sl_msg_info *info = sl_msg_info(msg->type);
    if (info == NULL || msg->type >= SL_MSG_LOCAL_MIN) {
        return sl_fail(spot->why, SL_ERR_UNSUPPORTED, "envelope.type: message %u is not known",
                       msg->type);
    }
    spot->message = info->name;
    bool is_bare = value->type == MSGPACK_OBJECT_ARRAY && value->via.array.size == 0;
    if (is_bare && SL_MSG_IS_REPLY(msg->type) && msg->code != SL_OK) {
        return SL_OK;
    }
    return decode_struct(spot, info->body(), value, &msg->body);
}

/* A zone whose first chunk holds the whole tree: clearing it keeps that chunk. */
static sl_err zone_prepare(struct sl_codec *codec, uint64_t element_count, struct sl_error *why)
{
    uint64_t need = element_count * sizeof(msgpack_object);
    if (codec->zone != NULL && need <= codec->zone_bytes) {
        msgpack_zone_clear(codec->zone);
        return SL_OK;
    }
    uint64_t bytes = SL_MAX(codec->zone_bytes, (uint64_t)ZONE_FIRST_BYTES);
    while (bytes < need) {
        bytes *= 2;
    }
    if (codec->zone != NULL) {
        msgpack_zone_free(codec->zone);
        codec->zone_bytes = 0;
    }
    codec->zone = msgpack_zone_new(bytes);
    if (codec->zone == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for %" PRIu64 " message elements",
                       element_count);
    }
    codec->zone_bytes = bytes;
    return SL_OK;
}

static sl_err parse(struct sl_codec *codec, const void *frame, size_t length_bytes,
                    msgpack_object *root, struct sl_error *why)
{
    uint64_t element_count = 0;
    if (length_bytes > codec->frame_bytes_max) {
        return sl_fail(why, SL_ERR_LIMIT, "frame of %zu bytes is over the limit of %" PRIu64,
                       length_bytes, codec->frame_bytes_max);
    }
    sl_err err = sl_codec_scan(frame, length_bytes, &element_count, why);
    if (err == SL_OK) {
        err = zone_prepare(codec, element_count, why);
    }
    if (err != SL_OK) {
        return err;
    }
    size_t offset = 0;
    msgpack_unpack_return got = msgpack_unpack(frame, length_bytes, &offset, codec->zone, root);
    if (got == MSGPACK_UNPACK_NOMEM_ERROR) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory to parse a frame of %zu bytes",
                       length_bytes);
    }
    if (got != MSGPACK_UNPACK_SUCCESS) {
        return sl_fail(why, SL_ERR_PROTOCOL, "frame is not msgpack");
    }
    if (root->type != MSGPACK_OBJECT_ARRAY || root->via.array.size != 2) {
        return sl_fail(why, SL_ERR_PROTOCOL, "frame is not an array of envelope and body");
    }
    return SL_OK;
}

static bool is_among(const enum sl_msg_type *types, uint32_t type_count, uint32_t type)
{
    for (uint32_t i = 0; i < type_count; i++) {
        if ((uint32_t)types[i] == type) {
            return true;
        }
    }
    return false;
}

sl_err sl_codec_decode(struct sl_codec *codec, const void *frame, size_t length_bytes,
                       struct sl_msg *out, struct sl_error *why)
{
    return sl_codec_decode_of(codec, NULL, 0, frame, length_bytes, out, why);
}

sl_err sl_codec_decode_of(struct sl_codec *codec, const enum sl_msg_type *types,
                          uint32_t type_count, const void *frame, size_t length_bytes,
                          struct sl_msg *out, struct sl_error *why)
{
    codec->envelope_is_intact = false;
    sl_bump_reset(&codec->bump);
    msgpack_object root = {.type = MSGPACK_OBJECT_NIL};
    sl_err err = parse(codec, frame, length_bytes, &root, why);
    if (err != SL_OK) {
        return err;
    }
    struct spot spot = {.codec = codec, .message = "envelope", .why = why};
    struct sl_msg *msg = &codec->envelope;
    err = decode_envelope(&spot, &root.via.array.ptr[0], msg);
    if (err != SL_OK) {
        if (codec->envelope_is_intact) {
            *out = *msg;
        }
        return err;
    }
    codec->envelope_is_intact = true;
    if (types != NULL && !is_among(types, type_count, msg->type)) {
        *out = *msg;
        return sl_fail(why, SL_ERR_PERMISSION, "envelope.type: %s is not taken here",
                       sl_msg_name(msg->type));
    }
    struct sl_msg whole = *msg;
    err = decode_body(&spot, &root.via.array.ptr[1], &whole);
    if (err == SL_OK) {
        *out = whole;
    } else if (err == SL_ERR_UNSUPPORTED) {
        *out = *msg;
    }
    return err;
}
