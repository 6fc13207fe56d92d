/* actors/transporter/rails/stream.h - what a rail's process and the door say to each other: numbered
 * messages in order, of one life of the rail.
 *
 * A message that cannot leave now is kept, and those behind it wait. A frame that was taken may be
 * lost with its receiver: the numbers show it, and then the rail's life is over. One thread. */
#ifndef SL_TRANSPORTER_RAILS_STREAM_H
#define SL_TRANSPORTER_RAILS_STREAM_H

#include "ipc/sl_msg.h"

#define TR_STREAM_BYTES_MAX (16 * SL_MIB) /* kept; more: the other side does not take anything */
#define TR_STREAM_RETRY_NS  SL_NS_PER_MS

/* RAIL_ORDER.kind; in brackets the fields that it uses. */
enum sl_rail_order {
    RAIL_OPEN = 1,    /* [pid, start_time] the first of a life: who the door is */
    RAIL_MEMORY_ADD,  /* [handle, arena, birth, length, chunk] registered follows */
    RAIL_MEMORY_GO,   /* [handle] removed follows */
    RAIL_PEER_ADD,    /* [handle] */
    RAIL_PEER_TOLD,   /* [handle, blob] its address */
    RAIL_PEER_REMOVE, /* [handle] */
    RAIL_GRANT_ADD,   /* [handle, verb, memory, peer, offset, length, shut] granted follows */
    RAIL_GRANT_END,   /* [handle] grant ended follows */
    RAIL_KEY_OPEN,    /* [handle, peer, blob] */
    RAIL_KEY_CLOSE,   /* [handle] */
    RAIL_CANCEL,      /* [handle: the post's slot, cookie] */
    RAIL_PING,        /* pong follows */
    RAIL_GRANTS_SHUT, /* [handle: a number, shut] shut follows */
};
/* RAIL_NEWS.kind */
enum sl_rail_news {
    RAIL_REGISTERED = 1, /* [handle, code, region, text] */
    RAIL_REMOVED,        /* [handle] nothing of the memory is registered */
    RAIL_ADDRESS,        /* [handle, blob] for the peer */
    RAIL_LINK,           /* [handle, link, code, text] */
    RAIL_GRANTED,     /* [handle, code, blob] the key; an error: there is none, the grant is over */
    RAIL_GRANT_ENDED, /* [handle] nothing lands any more */
    RAIL_PONG,
    RAIL_STATS, /* [stats] */
    RAIL_SHUT,  /* [handle: the number] nothing lands any more in what was shut until then */
};

struct tr_kept;
struct tr_stream {
    struct sl_env *env; /* borrowed */
    struct sl_codec *codec;
    char to[32];
    uint64_t life, sent, heard; /* numbers of the last, each way */
    struct tr_kept *first, *last;
    uint64_t kept_bytes;
};
/* Errors: SL_ERR_NO_MEMORY. */
sl_err tr_stream_init(struct tr_stream *stream, struct sl_env *env, const char *to,
                      struct sl_error *why);
void tr_stream_fini(struct tr_stream *stream);
/* A new life: numbers start over, what is kept is dropped. */
void tr_stream_begin(struct tr_stream *stream, uint64_t life);
/* Fills life and number (the first two fields of the body). After an error that is not of the
 * message the life is over: SL_ERR_LIMIT (too much is kept), SL_ERR_NO_MEMORY. Errors of encoding
 * (SL_ERR_INVALID) leave the stream as it was. */
sl_err tr_stream_send(struct tr_stream *stream, struct sl_msg *msg);
/* Sends what is kept, as far as it goes, and asks for the next turn. */
void tr_stream_flush(struct tr_stream *stream);
enum tr_heard {
    TR_HEARD_NEXT,
    TR_HEARD_OLD, /* of another life, or once more: nothing to do */
    TR_HEARD_GAP  /* messages before it are lost */
};
enum tr_heard tr_stream_hear(struct tr_stream *stream, const struct sl_msg *msg);

#endif
