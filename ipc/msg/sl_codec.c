/* ipc/msg/sl_codec.c - storage of the codec, and the encoder: messages to msgpack by the table. */
#include "ipc/msg/msg_internal.h"

#include <assert.h>
#include <inttypes.h>
#include <msgpack/pack.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FRAME_FIRST_BYTES 4096u
#define BUMP_FIRST_BYTES  4096u

/* ---- storage ---- */

struct sl_bump_block {
    struct sl_bump_block *older;
    uint64_t bytes;
    _Alignas(16) unsigned char data[];
};

void sl_bump_free(struct sl_bump *bump)
{
    while (bump->newest != NULL) {
        struct sl_bump_block *older = bump->newest->older;
        free(bump->newest);
        bump->newest = older;
    }
    bump->used_bytes = 0;
    bump->total_bytes = 0;
}

static bool bump_add_block(struct sl_bump *bump, uint64_t bytes)
{
    struct sl_bump_block *block = malloc(sizeof(*block) + bytes);
    if (block == NULL) {
        return false;
    }
    block->older = bump->newest;
    block->bytes = bytes;
    bump->newest = block;
    bump->used_bytes = 0;
    bump->total_bytes += bytes;
    return true;
}

void sl_bump_reset(struct sl_bump *bump)
{
    if (bump->newest != NULL && bump->newest->older != NULL) {
        /* One block of the total size, so that the same message fits into it. Without memory for it
         * the next take starts small again. */
        uint64_t together = bump->total_bytes;
        sl_bump_free(bump);
        (void)bump_add_block(bump, together);
    }
    bump->used_bytes = 0;
}

void *sl_bump_take(struct sl_bump *bump, uint64_t length_bytes)
{
    if (length_bytes > bump->bytes_max) {
        return NULL;
    }
    uint64_t space = sl_align_up(length_bytes, 8);
    if (bump->newest == NULL || space > bump->newest->bytes - bump->used_bytes) {
        uint64_t room =
            bump->bytes_max > bump->total_bytes ? bump->bytes_max - bump->total_bytes : 0;
        uint64_t wish = SL_MAX(SL_MAX(space, (uint64_t)BUMP_FIRST_BYTES), bump->total_bytes);
        uint64_t bytes = SL_MIN(wish, room) & ~UINT64_C(7);
        if (bytes < space || bytes == 0 || !bump_add_block(bump, bytes)) {
            return NULL;
        }
    }
    void *at = bump->newest->data + bump->used_bytes;
    bump->used_bytes += space;
    if (length_bytes > 0) {
        memset(at, 0, length_bytes);
    }
    return at;
}

sl_err sl_codec_create(uint64_t frame_bytes_max, struct sl_codec **out, struct sl_error *why)
{
    if (frame_bytes_max < 64 || frame_bytes_max > SL_GIB) {
        return sl_fail(why, SL_ERR_INVALID, "frame bound of %" PRIu64 " bytes is not in 64..2^30",
                       frame_bytes_max);
    }
    struct sl_codec *codec = calloc(1, sizeof(*codec));
    if (codec == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for a codec");
    }
    codec->frame_bytes_max = frame_bytes_max;
    /* An element takes at least a byte of the frame and becomes at most 16 bytes (a text's pointer
     * and length); a text becomes its bytes, a zero and padding. */
    codec->bump.bytes_max = 24 * frame_bytes_max + SL_MIB;
    *out = codec;
    return SL_OK;
}

void sl_codec_destroy(struct sl_codec **codec)
{
    if (codec == NULL || *codec == NULL) {
        return;
    }
    struct sl_codec *self = *codec;
    sl_bump_free(&self->bump);
    free(self->frame);
    free(self);
    *codec = NULL;
}

bool sl_codec_last_envelope(const struct sl_codec *codec, struct sl_msg *out)
{
    if (codec->envelope_is_intact) {
        *out = codec->envelope;
    }
    return codec->envelope_is_intact;
}

/* ---- encoder ---- */

/* msgpack-c passes pieces; -1 stops it. Lack of memory and the bound are distinguished later. */
static int frame_append(void *context, const char *bytes, size_t length)
{
    struct sl_codec *codec = context;
    if (length > codec->frame_bytes_max - codec->frame_bytes) {
        return -1;
    }
    uint64_t need = codec->frame_bytes + length;
    if (need > codec->frame_capacity_bytes) {
        uint64_t wish =
            SL_MAX(SL_MAX(need, (uint64_t)FRAME_FIRST_BYTES), 2 * codec->frame_capacity_bytes);
        uint64_t capacity = SL_MIN(wish, SL_MAX(codec->frame_bytes_max, need));
        unsigned char *grown = realloc(codec->frame, capacity);
        if (grown == NULL) {
            return -1;
        }
        codec->frame = grown;
        codec->frame_capacity_bytes = capacity;
    }
    memcpy(codec->frame + codec->frame_bytes, bytes, length);
    codec->frame_bytes = need;
    return 0;
}

sl_err sl_field_fail(const struct sl_field_place *place, const struct sl_field *field, sl_err code,
                     const char *text)
{
    if (place->list != NULL) {
        return sl_fail(place->why, code, "%s.%s[%" PRIu64 "].%s: %s", place->message, place->list,
                       place->index, field->name, text);
    }
    return sl_fail(place->why, code, "%s.%s: %s", place->message, field->name, text);
}

sl_err sl_field_fail_range(const struct sl_field_place *place, const struct sl_field *field,
                           sl_err code, const char *called, uint64_t value)
{
    char text[128];
    (void)snprintf(text, sizeof(text), "%s %" PRIu64 " is not in %" PRIu64 "..%" PRIu64, called,
                   value, field->low, field->high);
    return sl_field_fail(place, field, code, text);
}

static sl_err refuse(const struct sl_field_place *place, const struct sl_field *field,
                     const char *called, uint64_t value)
{
    return sl_field_fail_range(place, field, SL_ERR_INVALID, called, value);
}

static sl_err pack_result(struct sl_codec *codec, int rc, const struct sl_field_place *place)
{
    if (rc == 0) {
        return SL_OK;
    }
    return sl_fail(place->why, SL_ERR_LIMIT, "%s does not fit in a frame of %" PRIu64 " bytes",
                   place->message, codec->frame_bytes_max);
}

static int pack_text(msgpack_packer *packer, const struct sl_text *text)
{
    int rc = msgpack_pack_str(packer, text->length);
    return rc == 0 && text->length > 0 ? msgpack_pack_str_body(packer, text->at, text->length) : rc;
}

static sl_err encode_u64s(struct sl_codec *codec, msgpack_packer *packer,
                          const struct sl_counted *list, const struct sl_field_place *place)
{
    const uint64_t *values = list->at;
    int rc = msgpack_pack_array(packer, list->count);
    for (uint64_t i = 0; rc == 0 && i < list->count; i++) {
        rc = msgpack_pack_uint64(packer, values[i]);
    }
    return pack_result(codec, rc, place);
}

static sl_err encode_texts(struct sl_codec *codec, msgpack_packer *packer,
                           const struct sl_field *field, const struct sl_counted *list,
                           const struct sl_field_place *place)
{
    const struct sl_text *texts = list->at;
    int rc = msgpack_pack_array(packer, list->count);
    for (uint64_t i = 0; rc == 0 && i < list->count; i++) {
        if (texts[i].length < 1 || texts[i].length > SL_TEXTS_BYTES_MAX || texts[i].at == NULL) {
            return sl_fail(place->why, SL_ERR_INVALID,
                           "%s.%s[%" PRIu64 "]: length of %" PRIu64 " bytes is not in 1..%u",
                           place->message, field->name, i, texts[i].length, SL_TEXTS_BYTES_MAX);
        }
        if (!sl_text_is_clean(texts[i].at, texts[i].length)) {
            return sl_fail(place->why, SL_ERR_INVALID,
                           "%s.%s[%" PRIu64 "]: not UTF-8 without zero bytes", place->message,
                           field->name, i);
        }
        rc = pack_text(packer, &texts[i]);
    }
    return pack_result(codec, rc, place);
}

/* U64, BOOL, TEXT, BIN. */
static sl_err encode_plain(struct sl_codec *codec, msgpack_packer *packer,
                           const struct sl_field *field, const unsigned char *at,
                           const struct sl_field_place *place)
{
    if (field->kind == SL_FIELD_U64) {
        uint64_t value;
        memcpy(&value, at, sizeof(value));
        return sl_field_is_out(field, value)
                   ? refuse(place, field, "value", value)
                   : pack_result(codec, msgpack_pack_uint64(packer, value), place);
    }
    if (field->kind == SL_FIELD_BOOL) {
        bool value;
        memcpy(&value, at, sizeof(value));
        return pack_result(codec, value ? msgpack_pack_true(packer) : msgpack_pack_false(packer),
                           place);
    }
    struct sl_text bytes;
    static_assert(sizeof(struct sl_bytes) == sizeof(struct sl_text), "texts and bytes look alike");
    memcpy(&bytes, at, sizeof(bytes));
    if (sl_field_is_out(field, bytes.length) || (bytes.length > 0 && bytes.at == NULL)) {
        return refuse(place, field, "length in bytes", bytes.length);
    }
    if (field->kind == SL_FIELD_TEXT) {
        return sl_text_is_clean(bytes.at, bytes.length)
                   ? pack_result(codec, pack_text(packer, &bytes), place)
                   : sl_field_fail(place, field, SL_ERR_INVALID, "not UTF-8 without zero bytes");
    }
    int rc = msgpack_pack_bin(packer, bytes.length);
    if (rc == 0 && bytes.length > 0) {
        rc = msgpack_pack_bin_body(packer, bytes.at, bytes.length);
    }
    return pack_result(codec, rc, place);
}

static sl_err encode_list(struct sl_codec *codec, msgpack_packer *packer,
                          const struct sl_field *field, const struct sl_counted *list,
                          struct sl_field_place place)
{
    const struct sl_shape *shape = field->item();
    sl_err err = pack_result(codec, msgpack_pack_array(packer, list->count), &place);
    place.list = field->name;
    for (uint64_t i = 0; err == SL_OK && i < list->count; i++) {
        const unsigned char *item = (const unsigned char *)list->at + i * shape->struct_bytes;
        place.index = i;
        err = pack_result(codec, msgpack_pack_array(packer, shape->field_count), &place);
        for (uint32_t k = 0; err == SL_OK && k < shape->field_count; k++) {
            const struct sl_field *inner = &shape->fields[k];
            err = encode_plain(codec, packer, inner, item + inner->offset_bytes, &place);
        }
    }
    return err;
}

static sl_err encode_field(struct sl_codec *codec, msgpack_packer *packer,
                           const struct sl_field *field, const unsigned char *at,
                           const struct sl_field_place *place)
{
    if (field->kind != SL_FIELD_LIST && field->kind != SL_FIELD_U64S &&
        field->kind != SL_FIELD_TEXTS) {
        return encode_plain(codec, packer, field, at, place);
    }
    struct sl_counted list;
    memcpy(&list, at, sizeof(list));
    if (sl_field_is_out(field, list.count) || (list.count > 0 && list.at == NULL)) {
        return refuse(place, field, "count", list.count);
    }
    if (field->kind == SL_FIELD_LIST) {
        return encode_list(codec, packer, field, &list, *place);
    }
    return field->kind == SL_FIELD_U64S ? encode_u64s(codec, packer, &list, place)
                                        : encode_texts(codec, packer, field, &list, place);
}

static sl_err encode_envelope(struct sl_codec *codec, msgpack_packer *packer,
                              const struct sl_msg *msg, const struct sl_field_place *place)
{
    const struct sl_shape *shape = sl_shape_envelope();
    struct sl_envelope envelope = {
        .version = SL_WIRE_VERSION,
        .type = msg->type,
        .op_id = msg->op_id,
        .trace_id = msg->trace_id,
        .sender = msg->sender,
        .seq = msg->seq,
        .reply_to = msg->reply_to,
        .budget_ns = msg->budget_ns,
        .code = (uint64_t)msg->code,
        .text = msg->text,
    };
    sl_err err = pack_result(codec, msgpack_pack_array(packer, shape->field_count), place);
    for (uint32_t i = 0; err == SL_OK && i < shape->field_count; i++) {
        const struct sl_field *field = &shape->fields[i];
        if (field->offset_bytes == offsetof(struct sl_envelope, budget_ns)) {
            /* Always the same width, so that a resend can change it in place. */
            err = pack_result(codec, msgpack_pack_fix_uint64(packer, envelope.budget_ns), place);
            codec->budget_offset_bytes = codec->frame_bytes - sizeof(uint64_t);
            continue;
        }
        err = encode_field(codec, packer, field,
                           (const unsigned char *)&envelope + field->offset_bytes, place);
    }
    return err;
}

static bool body_is_zero(const struct sl_msg *msg, uint32_t struct_bytes)
{
    const unsigned char *bytes = (const unsigned char *)&msg->body;
    for (uint32_t i = 0; i < struct_bytes; i++) {
        if (bytes[i] != 0) {
            return false;
        }
    }
    return true;
}

static sl_err encode_body(struct sl_codec *codec, msgpack_packer *packer, const struct sl_msg *msg,
                          const struct sl_shape *shape, const struct sl_field_place *place)
{
    if (SL_MSG_IS_REPLY(msg->type) && msg->code != SL_OK &&
        body_is_zero(msg, shape->struct_bytes)) {
        return pack_result(codec, msgpack_pack_array(packer, 0), place);
    }
    sl_err err = pack_result(codec, msgpack_pack_array(packer, shape->field_count), place);
    for (uint32_t i = 0; err == SL_OK && i < shape->field_count; i++) {
        const struct sl_field *field = &shape->fields[i];
        err = encode_field(codec, packer, field,
                           (const unsigned char *)&msg->body + field->offset_bytes, place);
    }
    return err;
}

sl_err sl_codec_encode(struct sl_codec *codec, const struct sl_msg *msg, const void **frame,
                       size_t *length_bytes, struct sl_error *why)
{
    const struct sl_msg_info *info = sl_msg_info(msg->type);
    /* A request of a later release is refused in its own type, without a body: its sender knows the
     * type. */
    bool refuses = info == NULL && SL_MSG_IS_REPLY(msg->type) && msg->code != SL_OK;
    if ((info == NULL && !refuses) || msg->type >= SL_MSG_LOCAL_MIN) {
        return sl_fail(why, SL_ERR_INVALID, "message type %u (%s) is never sent", msg->type,
                       sl_msg_name(msg->type));
    }
    const struct sl_field_place place = {.message = refuses ? "refusal" : info->name, .why = why};
    msgpack_packer packer;
    msgpack_packer_init(&packer, codec, frame_append);
    codec->frame_bytes = 0;
    sl_err err = pack_result(codec, msgpack_pack_array(&packer, 2), &place);
    if (err == SL_OK) {
        err = encode_envelope(codec, &packer, msg, &place);
    }
    if (err == SL_OK) {
        err = refuses ? pack_result(codec, msgpack_pack_array(&packer, 0), &place)
                      : encode_body(codec, &packer, msg, info->body(), &place);
    }
    if (err != SL_OK) {
        return err;
    }
    *frame = codec->frame;
    *length_bytes = codec->frame_bytes;
    return SL_OK;
}

void sl_frame_set_budget(void *frame, uint64_t budget_offset_bytes, uint64_t budget_ns)
{
    unsigned char *at = (unsigned char *)frame + budget_offset_bytes;
    for (uint32_t i = 0; i < sizeof(budget_ns); i++) {
        at[i] = (unsigned char)(budget_ns >> (56 - 8 * i));
    }
}
