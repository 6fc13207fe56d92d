/* ipc/msg/msg_internal.h - shared by the sources of the message layer: the table as data, and the
 * codec's storage.
 *
 * A shape describes one struct of the table: its fields in wire order, with their offsets in the
 * struct. Encoder, decoder, catalogue and tests iterate over shapes, so no field is coded by
 * hand. */
#ifndef SL_MSG_INTERNAL_H
#define SL_MSG_INTERNAL_H

#include "ipc/msg/sl_msg.h"

enum sl_field_kind {
    SL_FIELD_U64,
    SL_FIELD_BOOL,
    SL_FIELD_TEXT,
    SL_FIELD_BIN,
    SL_FIELD_U64S,
    SL_FIELD_TEXTS,
    SL_FIELD_LIST,
};

struct sl_shape;
struct sl_field {
    const char *name;
    const char *help;
    uint64_t low;
    uint64_t high;
    const struct sl_shape *(*item)(void); /* LIST: shape of its items */
    uint32_t offset_bytes;
    enum sl_field_kind kind;
};
struct sl_shape {
    const char *name;
    const struct sl_field *fields;
    uint32_t field_count;
    uint32_t struct_bytes;
};
/* The common layout of sl_u64s, sl_texts and lists. */
struct sl_counted {
    const void *at;
    uint64_t count;
};

struct sl_msg_info {
    uint32_t type;
    const char *name;     /* "COPY_REPLY" */
    const char *sent;     /* "> copy_reply", as in the flight recorder */
    const char *received; /* "< copy_reply" */
    const char *help;
    const struct sl_shape *(*body)(void);
};
#define SL_MSG_LOCAL_MIN 1000u /* messages from this number on never leave the process */
/* Longest text in a TEXTS field, and longest `text` in the envelope. */
#define SL_TEXTS_BYTES_MAX    1024u
#define SL_MSG_TEXT_BYTES_MAX 240u
#define SL_NAME_BYTES_MAX     31u
/* Longest frame where there is no configuration: the default of the setting message_bytes_max. */
#define SL_FRAME_BYTES_STANDARD (32 * SL_MIB)

/* Returns NULL for an unknown number. */
const struct sl_msg_info *sl_msg_info(uint32_t type);
/* Returns the index-th message of the table; NULL: past the end. */
const struct sl_msg_info *sl_msg_info_at(uint32_t index);

/* The envelope as a struct of the table, in wire order. */
struct sl_envelope {
    uint64_t version, type, op_id, trace_id;
    struct sl_text sender;
    uint64_t seq, reply_to, budget_ns, code;
    struct sl_text text;
};
const struct sl_shape *sl_shape_envelope(void);

/* Returns the number that the flight recorder keeps of a message: the code of a reply, the item
 * count of a request. */
uint32_t sl_msg_trace_value(const struct sl_msg *msg);
/* Records "> name" or "< name" with the peer. HELLO, PING and their replies are left out. */
void sl_msg_trace(struct sl_env *env, const struct sl_msg *msg, bool sent, const char *peer);

/* ---- codec ---- */

/* Storage of decoded texts and lists. If a message needed several blocks they are replaced by one,
 * so decoding the same message again allocates nothing. */
struct sl_bump_block;
struct sl_bump {
    struct sl_bump_block *newest;
    uint64_t used_bytes;  /* used bytes of newest */
    uint64_t total_bytes; /* of all blocks */
    uint64_t bytes_max;
};
void sl_bump_reset(struct sl_bump *bump);
/* Returns zeroed memory, aligned to 8 bytes; NULL: bytes_max is exceeded, or no memory. A length of
 * 0 gives a valid address. */
void *sl_bump_take(struct sl_bump *bump, uint64_t length_bytes);
void sl_bump_free(struct sl_bump *bump);

struct sl_codec {
    uint64_t frame_bytes_max;
    unsigned char *frame; /* encoding */
    uint64_t frame_bytes;
    uint64_t frame_capacity_bytes;
    uint64_t budget_offset_bytes; /* of budget_ns (8 bytes) in the last encoded frame */
    struct sl_bump bump;          /* decoding */
    bool envelope_is_intact;      /* the last decode read a complete envelope */
    struct sl_msg envelope;
};
/* Position of encoder or decoder in a message, for error texts. */
struct sl_field_place {
    const char *message;
    const char *list; /* NULL: not in a list */
    uint64_t index;
    struct sl_error *why;
};
static inline bool sl_field_is_out(const struct sl_field *field, uint64_t value)
{
    return value < field->low || value > field->high;
}
sl_err sl_field_fail(const struct sl_field_place *place, const struct sl_field *field, sl_err code,
                     const char *text);
/* Fails because the value, named as given, is outside the field's bounds. */
sl_err sl_field_fail_range(const struct sl_field_place *place, const struct sl_field *field,
                           sl_err code, const char *called, uint64_t value);
/* Gives the envelope of the last frame if its body was refused, so that it can be answered. False:
 * there is none. Borrowed until the next decode. */
bool sl_codec_last_envelope(const struct sl_codec *codec, struct sl_msg *out);
/* Changes budget_ns in an encoded frame. */
void sl_frame_set_budget(void *frame, uint64_t budget_offset_bytes, uint64_t budget_ns);

/* ---- sending ---- */

/* Gives the calling thread's encoder, with the frame bound of env's configuration. It is freed when
 * the thread ends. */
sl_err sl_thread_codec(const struct sl_env *env, struct sl_codec **out, struct sl_error *why);
uint64_t sl_env_next_seq(struct sl_env *env);

#endif
