/* ipc/msg/sl_codec_decode.c - the decoder: hostile bytes to a message, by the table.
 *
 * It is a single pass: each value of the frame is read where the table expects it, checked, and
 * copied. A header that claims more than the rest of the frame is refused. */
#include "ipc/msg/msg_internal.h"

#include <inttypes.h>
#include <string.h>

/* ---- values of a frame ---- */

enum kind { KIND_UINT, KIND_INT, KIND_BOOL, KIND_TEXT, KIND_BIN, KIND_ARRAY, KIND_MAP, KIND_OTHER };
struct value {
    enum kind kind;
    uint64_t number;   /* an integer; a boolean as 0 or 1; TEXT, BIN: length; ARRAY, MAP: count */
    const char *bytes; /* TEXT, BIN: in the frame */
};
struct frame {
    const unsigned char *at, *end;
    uint32_t skipped; /* unknown values that were skipped */
};
#define SKIPPED_MAX (1u << 20) /* a later release's message has fewer */

/* A header: the width of its number, and of further bytes. TEXT, BIN and EXT are followed by that
 * number of bytes plus the further ones. */
struct head {
    unsigned char kind, width, more;
};
#define KIND_BAD 0xfe
#define KIND_EXT 0xff
/* 0xc0..0xdf of the msgpack specification. */
static const struct head heads[32] = {
    {KIND_OTHER, 0, 0},  {KIND_BAD, 0, 0},   {KIND_BOOL, 0, 0},  {KIND_BOOL, 0, 0},
    {KIND_BIN, 1, 0},    {KIND_BIN, 2, 0},   {KIND_BIN, 4, 0},   {KIND_EXT, 1, 1},
    {KIND_EXT, 2, 1},    {KIND_EXT, 4, 1},   {KIND_OTHER, 0, 4}, {KIND_OTHER, 0, 8},
    {KIND_UINT, 1, 0},   {KIND_UINT, 2, 0},  {KIND_UINT, 4, 0},  {KIND_UINT, 8, 0},
    {KIND_INT, 1, 0},    {KIND_INT, 2, 0},   {KIND_INT, 4, 0},   {KIND_INT, 8, 0},
    {KIND_OTHER, 0, 2},  {KIND_OTHER, 0, 3}, {KIND_OTHER, 0, 5}, {KIND_OTHER, 0, 9},
    {KIND_OTHER, 0, 17}, {KIND_TEXT, 1, 0},  {KIND_TEXT, 2, 0},  {KIND_TEXT, 4, 0},
    {KIND_ARRAY, 2, 0},  {KIND_ARRAY, 4, 0}, {KIND_MAP, 2, 0},   {KIND_MAP, 4, 0},
};

/* Takes the next value; of an array or map only the header. */
static sl_err value_take(struct frame *frame, struct value *out, struct sl_error *why)
{
    if (frame->at == frame->end) {
        return sl_fail(why, SL_ERR_PROTOCOL, "frame ends where a value is due");
    }
    unsigned first = *frame->at++;
    *out = (struct value){.kind = KIND_UINT, .number = first};
    if (first < 0x80) {
        return SL_OK;
    }
    struct head head = {.kind = first >= 0xe0   ? KIND_OTHER /* negative */
                                : first >= 0xa0 ? KIND_TEXT
                                : first >= 0x90 ? KIND_ARRAY
                                                : KIND_MAP};
    out->number = first & (first >= 0xa0 ? 0x1f : 0x0f);
    if (first >= 0xc0 && first < 0xe0) {
        head = heads[first - 0xc0];
        out->number = head.kind == KIND_BOOL ? first & 1 : 0;
    }
    uint64_t left = (uint64_t)(frame->end - frame->at);
    if (head.kind == KIND_BAD || head.width > left) {
        return head.kind == KIND_BAD
                   ? sl_fail(why, SL_ERR_PROTOCOL,
                             "frame holds the byte 0xc1, which msgpack does not use")
                   : sl_fail(why, SL_ERR_PROTOCOL, "frame ends in the middle of a header");
    }
    bool negative = head.kind == KIND_INT && *frame->at >= 0x80; /* the sign bit */
    for (uint32_t i = 0; i < head.width; i++) {
        out->number = out->number << 8 | *frame->at++;
    }
    left -= head.width;
    bool counts_bytes = head.kind == KIND_TEXT || head.kind == KIND_BIN || head.kind == KIND_EXT;
    bool counts_values = head.kind == KIND_ARRAY || head.kind == KIND_MAP;
    uint64_t bytes = head.more + (counts_bytes ? out->number : 0);
    /* A value takes at least a byte, and counts are at most 2^32, so nothing overflows. */
    uint64_t claims = counts_values ? out->number << (head.kind == KIND_MAP) : bytes;
    if (claims > left) {
        return sl_fail(why, SL_ERR_PROTOCOL,
                       "frame claims %" PRIu64 " %s where %" PRIu64 " bytes are left", claims,
                       counts_values ? "values" : "bytes", left);
    }
    out->kind = head.kind == KIND_EXT || negative ? KIND_OTHER
                : head.kind == KIND_INT           ? KIND_UINT
                                                  : (enum kind)head.kind;
    out->bytes = (const char *)frame->at;
    frame->at += bytes;
    return SL_OK;
}

/* Skips this number of values, including nested ones. */
static sl_err values_skip(struct frame *frame, uint64_t count, struct sl_error *why)
{
    sl_err err = SL_OK;
    for (; err == SL_OK && count > 0; count--) {
        struct value value;
        err = ++frame->skipped <= SKIPPED_MAX
                  ? value_take(frame, &value, why)
                  : sl_fail(why, SL_ERR_LIMIT, "frame has more than %u values that are not known",
                            SKIPPED_MAX);
        count += err != SL_OK               ? 0
                 : value.kind == KIND_ARRAY ? value.number
                 : value.kind == KIND_MAP   ? 2 * value.number
                                            : 0;
    }
    return err;
}

/* ---- by the table ---- */

struct slot {
    struct sl_codec *codec;
    struct frame *frame; /* the rest of the frame */
    struct sl_field_place place;
    bool may_lack_fields; /* the sender is older */
};

static sl_err reject(const struct slot *slot, const struct sl_field *field, sl_err code,
                     const char *what)
{
    (void)sl_field_fail(&slot->place, field, code, what);
    return code;
}

/* A field that an older sender does not know reads as 0 or empty, which is allowed. */
static sl_err missing(const struct slot *slot, const struct sl_field *field)
{
    return slot->may_lack_fields && field->low == 0
               ? SL_OK
               : reject(slot, field, SL_ERR_PROTOCOL, "missing");
}

static sl_err reject_range(const struct slot *slot, const struct sl_field *field,
                           const char *called, uint64_t value)
{
    sl_err code = value > field->high ? SL_ERR_LIMIT : SL_ERR_PROTOCOL;
    return sl_field_fail_range(&slot->place, field, code, called, value);
}

static sl_err take(const struct slot *slot, const struct sl_field *field, uint64_t length_bytes,
                   void **out)
{
    *out = sl_bump_take(&slot->codec->bump, length_bytes);
    return *out != NULL ? SL_OK : reject(slot, field, SL_ERR_NO_MEMORY, "no memory to decode it");
}

/* Copies the bytes so that the frame need not be kept; one more byte is the zero of texts. */
static sl_err copy_out(const struct slot *slot, const struct sl_field *field, const char *from,
                       uint64_t length, struct sl_text *out)
{
    void *to;
    if (take(slot, field, length + 1, &to) != SL_OK) {
        return SL_ERR_NO_MEMORY;
    }
    if (length > 0) {
        memcpy(to, from, length);
    }
    *out = (struct sl_text){.at = to, .length = length};
    return SL_OK;
}

static sl_err take_text(const struct slot *slot, const struct sl_field *field,
                        const struct value *value, struct sl_text *out)
{
    if (value->kind != KIND_TEXT) {
        return reject(slot, field, SL_ERR_PROTOCOL, "not a text");
    }
    if (sl_field_is_out(field, value->number)) {
        return reject_range(slot, field, "length in bytes", value->number);
    }
    if (!sl_text_is_clean(value->bytes, value->number)) {
        return reject(slot, field, SL_ERR_PROTOCOL, "not UTF-8 without zero bytes");
    }
    return copy_out(slot, field, value->bytes, value->number, out);
}

/* U64, BOOL, TEXT, BIN. */
static sl_err take_plain(const struct slot *slot, const struct sl_field *field,
                         const struct value *value, unsigned char *to)
{
    if (field->kind == SL_FIELD_U64) {
        if (value->kind != KIND_UINT) {
            return reject(slot, field, SL_ERR_PROTOCOL, "not an unsigned integer");
        }
        if (sl_field_is_out(field, value->number)) {
            return reject_range(slot, field, "value", value->number);
        }
        memcpy(to, &value->number, sizeof(value->number));
        return SL_OK;
    }
    if (field->kind == SL_FIELD_BOOL) {
        bool is_true = value->number != 0;
        if (value->kind != KIND_BOOL) {
            return reject(slot, field, SL_ERR_PROTOCOL, "not a boolean");
        }
        memcpy(to, &is_true, sizeof(is_true));
        return SL_OK;
    }
    struct sl_text out;
    sl_err err;
    if (field->kind == SL_FIELD_TEXT) {
        err = take_text(slot, field, value, &out);
    } else if (value->kind != KIND_BIN) {
        err = reject(slot, field, SL_ERR_PROTOCOL, "not bytes");
    } else if (sl_field_is_out(field, value->number)) {
        err = reject_range(slot, field, "length in bytes", value->number);
    } else {
        err = copy_out(slot, field, value->bytes, value->number, &out);
    }
    if (err == SL_OK) {
        memcpy(to, &out, sizeof(out));
    }
    return err;
}

static sl_err decode_u64s(const struct slot *slot, const struct sl_field *field, uint64_t count,
                          void **at)
{
    struct value value;
    sl_err err = take(slot, field, count * sizeof(uint64_t), at);
    for (uint64_t i = 0; err == SL_OK && i < count; i++) {
        err = value_take(slot->frame, &value, slot->place.why);
        if (err == SL_OK && value.kind != KIND_UINT) {
            return reject(slot, field, SL_ERR_PROTOCOL, "an element is not an unsigned integer");
        }
        ((uint64_t *)*at)[i] = err == SL_OK ? value.number : 0;
    }
    return err;
}

static sl_err decode_texts(const struct slot *slot, const struct sl_field *field, uint64_t count,
                           void **at)
{
    const struct sl_field each = {
        .name = field->name, .low = 1, .high = SL_TEXTS_BYTES_MAX, .kind = SL_FIELD_TEXT};
    struct value value;
    sl_err err = take(slot, field, count * sizeof(struct sl_text), at);
    for (uint64_t i = 0; err == SL_OK && i < count; i++) {
        err = value_take(slot->frame, &value, slot->place.why);
        err = err == SL_OK ? take_text(slot, &each, &value, &((struct sl_text *)*at)[i]) : err;
    }
    return err;
}

static sl_err decode_struct(const struct slot *slot, const struct sl_shape *shape, void *to);

/* Items contain no lists (the table cannot nest them), so this nests once. */
static sl_err decode_list(const struct slot *slot, const struct sl_field *field, uint64_t count,
                          void **at)
{
    const struct sl_shape *shape = field->item();
    sl_err err = take(slot, field, count * shape->struct_bytes, at);
    struct slot inner = *slot;
    inner.place.list = field->name;
    for (uint64_t i = 0; err == SL_OK && i < count; i++) {
        inner.place.index = i;
        err = decode_struct(&inner, shape, (unsigned char *)*at + i * shape->struct_bytes);
    }
    return err;
}

static sl_err decode_field(const struct slot *slot, const struct sl_field *field, unsigned char *to)
{
    struct value value;
    sl_err err = value_take(slot->frame, &value, slot->place.why);
    if (err != SL_OK) {
        return err;
    }
    if (field->kind != SL_FIELD_LIST && field->kind != SL_FIELD_U64S &&
        field->kind != SL_FIELD_TEXTS) {
        return take_plain(slot, field, &value, to);
    }
    if (value.kind != KIND_ARRAY) {
        return reject(slot, field, SL_ERR_PROTOCOL, "not an array");
    }
    if (sl_field_is_out(field, value.number)) {
        return reject_range(slot, field, "count", value.number);
    }
    void *at = NULL;
    if (field->kind == SL_FIELD_LIST) {
        err = decode_list(slot, field, value.number, &at);
    } else if (field->kind == SL_FIELD_U64S) {
        err = decode_u64s(slot, field, value.number, &at);
    } else {
        err = decode_texts(slot, field, value.number, &at);
    }
    if (err == SL_OK) {
        const struct sl_counted list = {.at = at, .count = value.number};
        memcpy(to, &list, sizeof(list));
    }
    return err;
}

/* Decodes an array of fields into a zeroed struct. Values after the known fields are ignored. */
static sl_err decode_struct(const struct slot *slot, const struct sl_shape *shape, void *to)
{
    struct value value = {0};
    sl_err err = value_take(slot->frame, &value, slot->place.why);
    if (err == SL_OK && value.kind != KIND_ARRAY) {
        return slot->place.list != NULL
                   ? sl_fail(slot->place.why, SL_ERR_PROTOCOL, "%s.%s[%" PRIu64 "]: not an array",
                             slot->place.message, slot->place.list, slot->place.index)
                   : sl_fail(slot->place.why, SL_ERR_PROTOCOL, "%s: not an array",
                             slot->place.message);
    }
    for (uint32_t i = 0; err == SL_OK && i < shape->field_count; i++) {
        const struct sl_field *field = &shape->fields[i];
        err = i < value.number
                  ? decode_field(slot, field, (unsigned char *)to + field->offset_bytes)
                  : missing(slot, field);
    }
    return err == SL_OK && value.number > shape->field_count
               ? values_skip(slot->frame, value.number - shape->field_count, slot->place.why)
               : err;
}

/* The version is first, since it determines how the rest is read. N talks to N-1, so N+1 is
 * accepted. */
static sl_err decode_version(struct frame frame, uint64_t *version, struct sl_error *why)
{
    struct value value = {0};
    sl_err err = value_take(&frame, &value, why);
    if (err == SL_OK && (value.kind != KIND_ARRAY || value.number == 0)) {
        return sl_fail(why, SL_ERR_PROTOCOL, "envelope: not an array with fields");
    }
    err = err == SL_OK ? value_take(&frame, &value, why) : err;
    if (err == SL_OK && value.kind != KIND_UINT) {
        return sl_fail(why, SL_ERR_PROTOCOL, "envelope.version: not an unsigned integer");
    }
    if (err == SL_OK &&
        (value.number < SL_WIRE_VERSION_MIN || value.number > SL_WIRE_VERSION + 1)) {
        return sl_fail(why, SL_ERR_VERSION,
                       "a message in wire version %" PRIu64 ", sluice %s speaks %u to %u: use the "
                       "same sluice package on both sides",
                       value.number, SL_VERSION, (unsigned)SL_WIRE_VERSION_MIN,
                       (unsigned)SL_WIRE_VERSION + 1);
    }
    *version = value.number;
    return err;
}

static sl_err envelope_read(const struct slot *slot, struct sl_msg *out)
{
    struct sl_envelope envelope = {0};
    sl_err err = decode_struct(slot, sl_shape_envelope(), &envelope);
    if (err != SL_OK) {
        return err;
    }
    if (!sl_actor_name_is_clean(envelope.sender.at, envelope.sender.length)) {
        return sl_fail(slot->place.why, SL_ERR_PROTOCOL,
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

static sl_err decode_envelope(struct slot *slot, struct sl_msg *out)
{
    uint64_t version = 0;
    sl_err err = decode_version(*slot->frame, &version, slot->place.why);
    if (err == SL_ERR_VERSION) {
        /* Envelopes only ever grow: an envelope of any version names the sender. */
        struct slot quiet = *slot;
        quiet.place.why = NULL;
        slot->codec->envelope_is_intact = envelope_read(&quiet, out) == SL_OK;
    }
    if (err != SL_OK) {
        return err;
    }
    slot->may_lack_fields = version < SL_WIRE_VERSION;
    return envelope_read(slot, out);
}

/* Decodes the body and checks that the frame ends after it. */
static sl_err decode_body(struct slot *slot, struct sl_msg *msg)
{
    const struct sl_msg_info *info = sl_msg_info(msg->type);
    struct frame bare = *slot->frame;
    struct value value = {.kind = KIND_OTHER};
    if (info == NULL || msg->type >= SL_MSG_LOCAL_MIN) {
        return sl_fail(slot->place.why, SL_ERR_UNSUPPORTED,
                       "envelope.type: message %u is not known", msg->type);
    }
    slot->place.message = info->name;
    bool may_be_bare = SL_MSG_IS_REPLY(msg->type) && msg->code != SL_OK;
    sl_err err = SL_OK;
    if (may_be_bare && value_take(&bare, &value, NULL) == SL_OK && value.kind == KIND_ARRAY &&
        value.number == 0) {
        *slot->frame = bare;
    } else {
        err = decode_struct(slot, info->body(), &msg->body);
    }
    return err == SL_OK && slot->frame->at != slot->frame->end
               ? sl_fail(slot->place.why, SL_ERR_PROTOCOL, "frame has %zu bytes after its end",
                         (size_t)(slot->frame->end - slot->frame->at))
               : err;
}

sl_err sl_codec_decode(struct sl_codec *codec, const void *frame, size_t length_bytes,
                       struct sl_msg *out, struct sl_error *why)
{
    struct frame whole = {.at = frame, .end = (const unsigned char *)frame + length_bytes};
    struct slot slot = {
        .codec = codec, .frame = &whole, .place = {.message = "envelope", .why = why}};
    struct sl_msg *msg = &codec->envelope;
    struct value value;
    codec->envelope_is_intact = false;
    sl_bump_reset(&codec->bump);
    if (length_bytes > codec->frame_bytes_max) {
        return sl_fail(why, SL_ERR_LIMIT, "frame of %zu bytes is over the limit of %" PRIu64,
                       length_bytes, codec->frame_bytes_max);
    }
    sl_err err = value_take(&whole, &value, why);
    if (err == SL_OK && (value.kind != KIND_ARRAY || value.number != 2)) {
        err = sl_fail(why, SL_ERR_PROTOCOL, "frame is not an array of envelope and body");
    }
    err = err == SL_OK ? decode_envelope(&slot, msg) : err;
    if (err != SL_OK) {
        if (codec->envelope_is_intact) {
            *out = *msg;
        }
        return err;
    }
    codec->envelope_is_intact = true;
    struct sl_msg decoded = *msg;
    err = decode_body(&slot, &decoded);
    if (err == SL_OK) {
        *out = decoded;
    } else if (err == SL_ERR_UNSUPPORTED) {
        *out = *msg;
    }
    return err;
}
