/* ipc/msg/sl_msg.c - the message table as data: shapes, names, catalogue. */
#include "ipc/msg/msg_internal.h"
#include "runtime/base/sl_text.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Each shape is built in a function of its own, where `here` names the struct: the table's macros
 * do not know to which struct their fields belong. */
#define FIELD(field_kind, field, minimum, maximum, words) \
    {.name = #field,                                      \
     .help = (words),                                     \
     .low = (minimum),                                    \
     .high = (maximum),                                   \
     .offset_bytes = (uint32_t)offsetof(here, field),     \
     .kind = SL_FIELD_##field_kind},
#define LIST(field, item_name, maximum, words)        \
    {.name = #field,                                  \
     .help = (words),                                 \
     .high = (maximum),                               \
     .item = shape_item_##item_name,                  \
     .offset_bytes = (uint32_t)offsetof(here, field), \
     .kind = SL_FIELD_LIST},
/* Nested lists would need recursion in encoder and decoder, so they do not compile. */
#define LIST_IN_ITEM(field, item_name, maximum, words) sl_lists_do_not_nest,

#define ITEM_SHAPE(item, TABLE)                                                               \
    static const struct sl_shape *shape_item_##item(void)                                     \
    {                                                                                         \
        typedef struct sl_item_##item here;                                                   \
        static const struct sl_field fields[] = {TABLE(FIELD, LIST_IN_ITEM)};                 \
        static const struct sl_shape shape = {#item, fields, SL_COUNT(fields), sizeof(here)}; \
        return &shape;                                                                        \
    }
SL_ITEM_TABLE(ITEM_SHAPE)

#define BODY_SHAPE(NAME, body, number, TABLE, words)                                          \
    static const struct sl_shape *shape_body_##body(void)                                     \
    {                                                                                         \
        typedef struct sl_body_##body here;                                                   \
        static const struct sl_field fields[] = {TABLE(FIELD, LIST)};                         \
        static const struct sl_shape shape = {#NAME, fields, SL_COUNT(fields), sizeof(here)}; \
        return &shape;                                                                        \
    }
SL_MSG_TABLE(BODY_SHAPE)

/* Decoder and encoder access every kind of list as struct sl_counted. */
static_assert(sizeof(struct sl_u64s) == sizeof(struct sl_counted), "u64s");
static_assert(sizeof(struct sl_texts) == sizeof(struct sl_counted), "texts");
static_assert(offsetof(struct sl_u64s, count) == offsetof(struct sl_counted, count), "u64s");
static_assert(offsetof(struct sl_texts, count) == offsetof(struct sl_counted, count), "texts");

const struct sl_shape *sl_shape_envelope(void)
{
    typedef struct sl_envelope here;
    /* clang-format would treat fields without commas as one expression. */
    /* clang-format off */
    static const struct sl_field fields[] = {
        FIELD(U64, version, 0, UINT32_MAX, "wire version of the sender")
        FIELD(U64, type, 1, UINT32_MAX, "message number")
        FIELD(U64, op_id, 0, UINT64_MAX, "engine-level request; 0: none")
        FIELD(U64, trace_id, 0, UINT64_MAX, "copied from the cause; 0: none")
        FIELD(TEXT, sender, 1, SL_NAME_BYTES_MAX, "actor or client name")
        FIELD(U64, seq, 0, UINT64_MAX, "sender's number of a request")
        FIELD(U64, reply_to, 0, UINT64_MAX, "seq of the request answered")
        FIELD(U64, budget_ns, 0, UINT64_MAX, "time left; always in the 9-byte form")
        FIELD(U64, code, 0, SL_ERR_COUNT - 1, "sl_err of a reply")
        FIELD(TEXT, text, 0, SL_MSG_TEXT_BYTES_MAX, "of a reply: reason")
    };
    /* clang-format on */
    static const struct sl_shape shape = {"envelope", fields, SL_COUNT(fields), sizeof(here)};
    return &shape;
}

#define INFO(NAME, body_name, number, TABLE, words) \
    {.type = (number),                              \
     .name = #NAME,                                 \
     .sent = "> " #body_name,                       \
     .received = "< " #body_name,                   \
     .help = (words),                               \
     .body = shape_body_##body_name},
static const struct sl_msg_info infos[] = {SL_MSG_TABLE(INFO)};

#define INFO_INDEX(NAME, body, number, TABLE, words) INDEX_##NAME,
enum info_index { SL_MSG_TABLE(INFO_INDEX) INDEX_COUNT };

const struct sl_msg_info *sl_msg_info(uint32_t type)
{
    /* A switch, so that a number that is used twice does not compile. */
    switch (type) {
#define INFO_CASE(NAME, body, number, TABLE, words) \
    case (number):                                  \
        return &infos[INDEX_##NAME];
        SL_MSG_TABLE(INFO_CASE)
    default:
        return NULL;
    }
}

const struct sl_msg_info *sl_msg_info_at(uint32_t index)
{
    return index < INDEX_COUNT ? &infos[index] : NULL;
}

const char *sl_msg_name(uint32_t type)
{
    const struct sl_msg_info *info = sl_msg_info(type);
    return info != NULL ? info->name : "?";
}

struct sl_text sl_text_of(const char *zero_terminated)
{
    if (zero_terminated == NULL) {
        return (struct sl_text){.at = NULL, .length = 0};
    }
    return (struct sl_text){.at = zero_terminated, .length = strlen(zero_terminated)};
}

/* Whether all eight bytes are ASCII, and none is zero. */
static bool word_is_plain(const unsigned char *bytes)
{
    uint64_t word;
    memcpy(&word, bytes, sizeof(word));
    return ((word | (word - UINT64_C(0x0101010101010101))) & UINT64_C(0x8080808080808080)) == 0;
}

bool sl_text_is_clean(const char *at, uint64_t length)
{
    const unsigned char *bytes = (const unsigned char *)at;
    for (uint64_t i = 0; i < length;) {
        size_t step = 1;
        if (length - i >= sizeof(uint64_t) && word_is_plain(&bytes[i])) {
            step = sizeof(uint64_t);
        } else if (bytes[i] == 0 || (bytes[i] >= 0x80 && sl_text_next(&at[i], length - i, &step) ==
                                                             SL_TEXT_NO_CHARACTER)) {
            return false;
        }
        i += step;
    }
    return true;
}

static bool name_byte_is_clean(char byte, bool first)
{
    if ((byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
        (byte >= '0' && byte <= '9')) {
        return true;
    }
    return !first && (byte == '.' || byte == '_' || byte == '-');
}

bool sl_actor_name_is_clean(const char *at, uint64_t length)
{
    if (length == 0 || length > SL_NAME_BYTES_MAX) {
        return false;
    }
    for (uint64_t i = 0; i < length; i++) {
        if (!name_byte_is_clean(at[i], i == 0)) {
            return false;
        }
    }
    return true;
}

uint32_t sl_msg_trace_value(const struct sl_msg *msg)
{
    if (SL_MSG_IS_REPLY(msg->type)) {
        return (uint32_t)msg->code;
    }
    const struct sl_msg_info *info = sl_msg_info(msg->type);
    if (info == NULL) {
        return 0;
    }
    const struct sl_shape *shape = info->body();
    for (uint32_t i = 0; i < shape->field_count; i++) {
        const struct sl_field *field = &shape->fields[i];
        if (field->kind == SL_FIELD_LIST || field->kind == SL_FIELD_TEXTS ||
            field->kind == SL_FIELD_U64S) {
            struct sl_counted list;
            memcpy(&list, (const unsigned char *)&msg->body + field->offset_bytes, sizeof(list));
            return (uint32_t)SL_MIN(list.count, UINT32_MAX);
        }
    }
    return 0;
}

void sl_msg_trace(struct sl_env *env, const struct sl_msg *msg, bool sent, const char *peer)
{
    switch (msg->type) {
    case SL_MSG_HELLO:
    case SL_MSG_HELLO_REPLY:
    case SL_MSG_PING:
    case SL_MSG_PONG:
        return;
    default:
        break;
    }
    const struct sl_msg_info *info = sl_msg_info(msg->type);
    if (info != NULL && env->metrics != NULL) {
        sl_trace_event(env->metrics, env->now_ns, msg->trace_id, sent ? info->sent : info->received,
                       peer, sl_msg_trace_value(msg));
    }
}

/* ---- catalogue ---- */

static const char *const kind_names[] = {
    [SL_FIELD_U64] = "u64",   [SL_FIELD_BOOL] = "bool", [SL_FIELD_TEXT] = "text",
    [SL_FIELD_BIN] = "bytes", [SL_FIELD_U64S] = "u64s", [SL_FIELD_TEXTS] = "texts",
    [SL_FIELD_LIST] = "list",
};

static void catalogue_limit(FILE *stream, uint64_t value)
{
    if (value == UINT64_MAX) {
        (void)fputs("2^64-1", stream);
    } else if (value == UINT32_MAX) {
        (void)fputs("2^32-1", stream);
    } else {
        (void)fprintf(stream, "%" PRIu64, value);
    }
}

static void catalogue_fields(FILE *stream, const struct sl_shape *shape)
{
    (void)fputs("| field | kind | limits | meaning |\n| --- | --- | --- | --- |\n", stream);
    for (uint32_t i = 0; i < shape->field_count; i++) {
        const struct sl_field *field = &shape->fields[i];
        (void)fprintf(stream, "| %s | %s%s%s | ", field->name, kind_names[field->kind],
                      field->item != NULL ? " of " : "",
                      field->item != NULL ? field->item()->name : "");
        catalogue_limit(stream, field->low);
        (void)fputs("..", stream);
        catalogue_limit(stream, field->high);
        (void)fprintf(stream, " | %s |\n", field->help);
    }
    (void)fputc('\n', stream);
}

#define ITEM_SHAPE_OF(item, TABLE) shape_item_##item,
static const struct sl_shape *(*const item_shapes[])(void) = {SL_ITEM_TABLE(ITEM_SHAPE_OF)};

void sl_msg_print_catalogue(void *stream)
{
    FILE *out = stream;
    (void)fprintf(
        out,
        "# Messages\n\nWire version %u (from %u on is understood). A frame is one msgpack array "
        "[envelope, body]; both are arrays of the fields below, in this order; list items are "
        "arrays "
        "likewise. Limits bound a value, the bytes of a text, or the count of a list.\n\n",
        (unsigned)SL_WIRE_VERSION, (unsigned)SL_WIRE_VERSION_MIN);
    (void)fputs("## envelope\n\n", out);
    catalogue_fields(out, sl_shape_envelope());
    for (uint32_t i = 0; i < INDEX_COUNT; i++) {
        (void)fprintf(out, "## %s (%u%s)\n\n%s\n\n", infos[i].name, infos[i].type,
                      infos[i].type >= SL_MSG_LOCAL_MIN ? ", never on the wire" : "",
                      infos[i].help);
        catalogue_fields(out, infos[i].body());
    }
    for (uint32_t i = 0; i < SL_COUNT(item_shapes); i++) {
        (void)fprintf(out, "## item %s\n\n", item_shapes[i]()->name);
        catalogue_fields(out, item_shapes[i]());
    }
}
