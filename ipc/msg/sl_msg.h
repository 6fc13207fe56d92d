/* ipc/msg/sl_msg.h - messages in memory: structs made from the table, and the codec. */
#ifndef SL_MSG_H
#define SL_MSG_H

#include "ipc/msg/sl_msg_table.h"
#include "runtime/base/sl_env.h"

struct sl_text {
    const char *at; /* zero-terminated after decoding; may be NULL if length is 0 */
    uint64_t length;
};
struct sl_bytes {
    const void *at;
    uint64_t length;
};
struct sl_u64s {
    const uint64_t *at;
    uint64_t count;
};
struct sl_texts {
    const struct sl_text *at;
    uint64_t count;
};
struct sl_text sl_text_of(const char *zero_terminated); /* borrows */
/* Names of actors, clients and nodes: 1..31 bytes of [A-Za-z0-9._-], the first a letter or digit.
 * They fit as file names and routing ids. */
bool sl_actor_name_is_clean(const char *at, uint64_t length);
bool sl_text_is_clean(const char *at, uint64_t length); /* UTF-8 without NUL */

#define SL_FIELD_TYPE_U64                            uint64_t
#define SL_FIELD_TYPE_BOOL                           bool
#define SL_FIELD_TYPE_TEXT                           struct sl_text
#define SL_FIELD_TYPE_BIN                            struct sl_bytes
#define SL_FIELD_TYPE_U64S                           struct sl_u64s
#define SL_FIELD_TYPE_TEXTS                          struct sl_texts
#define SL_FIELD_MEMBER(kind, name, low, high, help) SL_FIELD_TYPE_##kind name;
#define SL_LIST_MEMBER(name, item, high, help) \
    struct {                                   \
        const struct sl_item_##item *at;       \
        uint64_t count;                        \
    } name;
#define SL_ITEM_STRUCT(item, TABLE)            \
    struct sl_item_##item {                    \
        TABLE(SL_FIELD_MEMBER, SL_LIST_MEMBER) \
    };
SL_ITEM_TABLE(SL_ITEM_STRUCT)
#define SL_BODY_STRUCT(NAME, body, number, TABLE, help) \
    struct sl_body_##body {                             \
        TABLE(SL_FIELD_MEMBER, SL_LIST_MEMBER)          \
    };
SL_MSG_TABLE(SL_BODY_STRUCT)
#define SL_MSG_ENUM(NAME, body, number, TABLE, help) SL_MSG_##NAME = (number),
enum sl_msg_type { SL_MSG_TABLE(SL_MSG_ENUM) };

/* The outcome of a block (SL_ITEM_RUN). */
enum sl_run_outcome {
    SL_BLOCK_OPEN = 0, /* the op is running */
    SL_BLOCK_MEMORY,   /* loaded: where the block was when the op first looked */
    SL_BLOCK_DISK,
    SL_BLOCK_REMOTE,
    SL_BLOCK_MISSING, /* not found: the load ends here */
    SL_BLOCK_BEHIND,  /* after a missing one: not requested */
    SL_BLOCK_LEFT,    /* available, but faster to compute than to read */
    SL_BLOCK_FAILED,  /* not loaded because the op failed */
    SL_BLOCK_STORED,
    SL_BLOCK_EXISTED,
    SL_BLOCK_REFUSED, /* not stored */
};

#define SL_MSG_IS_REPLY(type) (((type)&1u) != 0u)

struct sl_msg {
    uint32_t version;      /* filled by encode */
    uint32_t type;         /* enum sl_msg_type */
    uint64_t op_id;        /* the engine-level request; 0: none */
    uint64_t trace_id;     /* copied from the causing message; 0: none */
    struct sl_text sender; /* filled by sl_send and sl_reply */
    uint64_t seq;          /* the sender's number of the request; filled by sl_send */
    uint64_t reply_to;     /* seq of the request that this answers */
    uint64_t budget_ns;    /* time left; 0 in replies */
    sl_err code;           /* replies: overall result; requests: SL_OK */
    struct sl_text text;   /* replies: reason, at most 240 bytes */
    uint64_t received_ns;  /* not sent: env time of the arrival */
    union {
#define SL_BODY_MEMBER(NAME, body, number, TABLE, help) struct sl_body_##body body;
        SL_MSG_TABLE(SL_BODY_MEMBER)
    } body;
};

/* Storage for encoding and decoding, reused for each message; one owner at a time. */
struct sl_codec; /* opaque */
sl_err sl_codec_create(uint64_t frame_bytes_max, struct sl_codec **out, struct sl_error *why);
void sl_codec_destroy(struct sl_codec **codec);
/* Gives *frame, borrowed until the next encode. The body of a reply is left out if its code is not
 * SL_OK and it is all zero. Otherwise a message that exceeds the table's bounds is refused:
 * SL_ERR_INVALID (names message and field), SL_ERR_LIMIT (frame too large). */
sl_err sl_codec_encode(struct sl_codec *codec, const struct sl_msg *msg, const void **frame,
                       size_t *length_bytes, struct sl_error *why);
/* Fills *out, all or nothing. Texts and lists are borrowed until the next decode with this codec;
 * the frame need not be kept. Every byte is hostile. Errors, each naming the field:
 * SL_ERR_PROTOCOL, SL_ERR_LIMIT (more than the table allows), SL_ERR_UNSUPPORTED (unknown type,
 * LOCAL type), SL_ERR_VERSION (names both). With the last two the envelope's fields are filled, so
 * that a reply is possible; with SL_ERR_VERSION only if they can be read, otherwise *out is
 * unchanged. */
sl_err sl_codec_decode(struct sl_codec *codec, const void *frame, size_t length_bytes,
                       struct sl_msg *out, struct sl_error *why);
const char *sl_msg_name(uint32_t type); /* such as "RESERVE"; "?" for an unknown type */
/* Prints the catalogue as Markdown (stream: a FILE *). */
void sl_msg_print_catalogue(void *stream);

/* ---- sending, for actors ---- */

/* Fills sender and seq, encodes and sends through env. `to`: actor name. *seq (may be NULL)
 * receives the number. A request with budget_ns 0 gets the setting op_timeout. The first message to
 * an actor finds no lane yet and returns SL_ERR_BUSY: use sl_calls for a request that must arrive.
 * Errors: those of encode and of sl_mailbox_send. */
sl_err sl_send(struct sl_env *env, const char *to, const struct sl_msg *msg, uint64_t *seq);
/* Answers a request. Type, op_id, trace_id, reply_to and the route come from the request; code,
 * text and body from reply. A reply that cannot be sent is counted and is no error of the actor.
 * One that violates the table is logged and replaced by a reply with SL_ERR_INTERNAL (SL_ERR_LIMIT
 * if it is too large). For replies and LOCAL messages this does nothing. */
void sl_reply(struct sl_env *env, const struct sl_msg *request, const struct sl_msg *reply);
/* As sl_reply, with a code and the text of why (may be NULL). */
void sl_reply_code(struct sl_env *env, const struct sl_msg *request, sl_err code,
                   const struct sl_error *why);
/* As sl_reply, with a code and this text. */
void sl_reply_fail(struct sl_env *env, const struct sl_msg *request, sl_err code,
                   const char *format, ...) SL_PRINTF(4, 5);

/* The parts of a request that are needed to answer it later. */
struct sl_reply_route {
    char to[32];
    uint64_t op_id, trace_id, seq, deadline_ns;
    uint32_t type;
};
void sl_reply_route_keep(const struct sl_msg *request,
                         struct sl_reply_route *out); /* deadline: received_ns + budget */
/* Whether request is a resend of the kept one. */
bool sl_reply_route_matches(const struct sl_reply_route *kept, const struct sl_msg *request);
void sl_reply_route_send(struct sl_env *env, const struct sl_reply_route *to,
                         const struct sl_msg *reply);

/* ---- outstanding requests ---- */

/* Keeps the frames of requests until they are answered. Requests without an answer are resent every
 * call_retry (receivers recognise duplicates; all requests here are idempotent) and end at their
 * deadline. Sizes are fixed at create. One thread. */
struct sl_calls; /* opaque */
struct sl_call {
    uint64_t cookie; /* the caller's */
    uint64_t op_id;
    uint32_t type; /* of the request */
    char to[32];
};
sl_err sl_calls_create(struct sl_env *env, uint32_t count_max, struct sl_calls **out,
                       struct sl_error *why);
void sl_calls_destroy(struct sl_calls **calls);
/* Sends a request with a deadline. The budget in the frame is the time left, and is updated on each
 * resend. If the peer is unreachable or its queue is full, it is retried after 1, 2, 4 .. ms (at
 * most call_retry) until the deadline. Errors: SL_ERR_LIMIT (table full, or kept frames over 4 x
 * message_bytes_max), those of encode. */
sl_err sl_calls_send(struct sl_calls *calls, const char *to, const struct sl_msg *msg,
                     uint64_t deadline_ns, uint64_t cookie, uint64_t *seq);
/* Matches a reply by reply_to, type and sender, and ends the call: true, *out is filled. False: the
 * reply is late, duplicate or foreign and must be dropped; or the peer is draining, and the call
 * continues with its successor. */
bool sl_calls_match(struct sl_calls *calls, const struct sl_msg *reply, struct sl_call *out);
/* Resends calls that are due, and gives those whose deadline has passed, one at a time: call until
 * false. Schedules the next wake-up with env. */
bool sl_calls_expired(struct sl_calls *calls, uint64_t now_ns, struct sl_call *out);
/* Ends a call without waiting for its answer. A later answer is dropped. */
void sl_calls_drop(struct sl_calls *calls, uint64_t seq);
uint32_t sl_calls_count(const struct sl_calls *calls);

#endif
