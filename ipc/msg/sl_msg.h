/* ipc/msg/sl_msg.h - messages in memory: structs made from the table, and the codec. */
#ifndef SL_MSG_H
#define SL_MSG_H

#include "ipc/msg/sl_msg_table.h"
#include "runtime/base/sl_env.h"

struct sl_text {
    const char *at; /* NUL-terminated after decoding; may be NULL when length is 0 */
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
/* Names of actors, clients and nodes: [A-Za-z0-9._-], 1..31 bytes, the first a letter or digit: fit
 * for a file name and a routing id. */
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

/* What became of a block (SL_ITEM_RUN). */
enum sl_block_fate {
    SL_BLOCK_OPEN = 0, /* the op runs */
    SL_BLOCK_MEMORY,   /* loaded: where it was when the op first looked */
    SL_BLOCK_DISK,
    SL_BLOCK_REMOTE,
    SL_BLOCK_MISSING, /* nowhere: the load ends here */
    SL_BLOCK_BEHIND,  /* behind one that is missing: not asked for */
    SL_BLOCK_LEFT,    /* here, but sooner computed than read */
    SL_BLOCK_FAILED,  /* not loaded, as the op failed */
    SL_BLOCK_STORED,
    SL_BLOCK_EXISTED,
    SL_BLOCK_REFUSED, /* not stored */
};

#define SL_MSG_IS_REPLY(type) (((type)&1u) != 0u)

struct sl_msg {
    uint32_t version;      /* filled by encode */
    uint32_t type;         /* enum sl_msg_type */
    uint64_t op_id;        /* engine-level request this belongs to; 0: none */
    uint64_t trace_id;     /* copied from the cause; 0: none */
    struct sl_text sender; /* filled by sl_send and sl_reply */
    uint64_t seq;          /* sender's number of a request; filled by sl_send */
    uint64_t reply_to;     /* seq of the request that this answers */
    uint64_t budget_ns;    /* time left; 0 in replies */
    sl_err code;           /* replies: result of the whole; requests: SL_OK */
    struct sl_text text;   /* replies: why, at most 240 bytes */
    uint64_t received_ns;  /* not on the wire: env time of the arrival */
    union {
#define SL_BODY_MEMBER(NAME, body, number, TABLE, help) struct sl_body_##body body;
        SL_MSG_TABLE(SL_BODY_MEMBER)
    } body;
};

/* Storage of encoding and decoding, reused from message to message; one owner at a time. */
struct sl_codec; /* opaque */
sl_err sl_codec_create(uint64_t frame_bytes_max, struct sl_codec **out, struct sl_error *why);
void sl_codec_destroy(struct sl_codec **codec);
/* Gives *frame, borrowed until the next encode. The body of a reply whose code is not SL_OK and
 * whose body is all zero is left out; any other body must keep the bounds. A message that breaks
 * the table's bounds is refused: SL_ERR_INVALID (names message and field), SL_ERR_LIMIT (frame too
 * large). */
sl_err sl_codec_encode(struct sl_codec *codec, const struct sl_msg *msg, const void **frame,
                       size_t *length_bytes, struct sl_error *why);
/* Fills *out, all or nothing; texts and lists are borrowed until the next decode with this codec
 * (the frame need not live on). Every byte is hostile. Errors, each naming the field:
 * SL_ERR_PROTOCOL, SL_ERR_LIMIT (more than the table allows), SL_ERR_UNSUPPORTED (unknown type,
 * LOCAL type), SL_ERR_VERSION (names both). With the last two the envelope's fields are filled, so
 * that a reply is possible; with SL_ERR_VERSION only as far as they can be read: else *out stays.
 */
sl_err sl_codec_decode(struct sl_codec *codec, const void *frame, size_t length_bytes,
                       struct sl_msg *out, struct sl_error *why);
const char *sl_msg_name(uint32_t type); /* "RESERVE"; "?" */
/* Prints the catalogue as Markdown (stream: a FILE *). */
void sl_msg_print_catalogue(void *stream);

/* ---- sending, for actors ---- */

/* Fills sender and seq, encodes, sends along env. `to`: actor name. *seq (may be NULL) gets the
 * number. A request with budget_ns 0 gets the setting op_timeout. The first message to an actor
 * meets no lane yet and is SL_ERR_BUSY: a request that must arrive goes through sl_calls. Errors:
 * those of encode and of sl_mailbox_send. */
sl_err sl_send(struct sl_env *env, const char *to, const struct sl_msg *msg, uint64_t *seq);
/* Answers a request: type, op_id, trace_id, reply_to and the way back come from it; code, text and
 * body from reply. A reply that cannot be sent is counted, never an error of the actor; one that
 * breaks the table is logged and becomes a reply with SL_ERR_INTERNAL. Answers to replies and to
 * LOCAL messages do nothing. */
void sl_reply(struct sl_env *env, const struct sl_msg *request, const struct sl_msg *reply);
/* The same with a code and why's text alone (why may be NULL). */
void sl_reply_code(struct sl_env *env, const struct sl_msg *request, sl_err code,
                   const struct sl_error *why);
/* The same with a text of its own. */
void sl_reply_fail(struct sl_env *env, const struct sl_msg *request, sl_err code,
                   const char *format, ...) SL_PRINTF(4, 5);

/* The parts of a request that are needed to answer it after its message is gone. */
struct sl_return {
    char to[32];
    uint64_t op_id, trace_id, seq, deadline_ns;
    uint32_t type;
};
void sl_return_keep(const struct sl_msg *request,
                    struct sl_return *out); /* deadline from received_ns + budget */
/* Whether it is that request, sent again. */
bool sl_return_is_of(const struct sl_return *kept, const struct sl_msg *request);
void sl_return_reply(struct sl_env *env, const struct sl_return *to, const struct sl_msg *reply);

/* ---- outstanding requests ---- */

/* Keeps the frames of requests until they are answered, resends those that stay unanswered for
 * call_retry (receivers recognise duplicates; only idempotent requests go through here), and ends
 * each at its deadline. Sizes are fixed at create. One thread. */
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
/* Sends with a deadline (the budget in the frame is what is left; it is refreshed when resent). A
 * peer that is not reachable now, or whose queue is full, is retried after 1, 2, 4 .. ms (at most
 * call_retry) until the deadline. Errors: SL_ERR_LIMIT (table full, or kept frames over 4 x
 * message_bytes_max), those of encode. */
sl_err sl_calls_send(struct sl_calls *calls, const char *to, const struct sl_msg *msg,
                     uint64_t deadline_ns, uint64_t cookie, uint64_t *seq);
/* Matches a reply by reply_to, type and sender and ends the call: true, *out filled. False: late,
 * duplicate or foreign: drop it; or the peer is draining, and the call goes on with its successor.
 */
bool sl_calls_match(struct sl_calls *calls, const struct sl_msg *reply, struct sl_call *out);
/* Resends calls that are due, and gives those whose deadline has passed, one at a time: call until
 * false. Asks env for the next wake-up. */
bool sl_calls_expired(struct sl_calls *calls, uint64_t now_ns, struct sl_call *out);
/* Ends a call without an answer (a later answer is dropped). */
void sl_calls_forget(struct sl_calls *calls, uint64_t seq);
uint32_t sl_calls_count(const struct sl_calls *calls);

#endif
