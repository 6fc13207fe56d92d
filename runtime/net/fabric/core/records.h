/* runtime/net/fabric/core/records.h - records of TLS 1.3 (RFC 8446, 5.2) once a handshake is over:
 * sealed straight from where values lie, and opened straight to where they go.
 *
 * libssl makes the handshake (tcp/handshake.c) and copies every byte of a record twice; it also has
 * one object for both directions, where a connection is received on one thread and sent on
 * another. So records are made here (core/aead.h), from the secrets of the handshake. What
 * comes is TLS: a peer that uses SSL_read and SSL_write understands it (tests/unit/records_test.c).
 *
 * An opener or a sealer belongs to one thread at a time. */
#ifndef SL_FABRIC_CORE_RECORDS_H
#define SL_FABRIC_CORE_RECORDS_H

#include "runtime/base/sl_error.h"
#include "runtime/net/fabric/core/aead.h"
#include "runtime/net/fabric/core/runs.h"
#include "runtime/net/fabric/core/wire.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#define SL_RECORD_PLAIN_MAX    16384u
#define SL_RECORD_HEAD_BYTES   5u
#define SL_RECORD_TAG_BYTES    SL_AEAD_TAG_BYTES
#define SL_RECORD_OVER_BYTES   (SL_RECORD_HEAD_BYTES + 1 + SL_RECORD_TAG_BYTES)
#define SL_RECORD_BYTES_MAX    (SL_RECORD_HEAD_BYTES + SL_RECORD_PLAIN_MAX + 256u)
#define SL_RECORD_SECRET_BYTES 32u
#define SL_RECORD_IV_BYTES     SL_AEAD_NONCE_BYTES
/* Staging: a record while nothing of size was moved, then as much as one receive or send takes. */
#define SL_STAGING_SMALL_BYTES (SL_RECORD_BYTES_MAX + 1024u)
#define SL_STAGING_LARGE_BYTES (25 * SL_RECORD_BYTES_MAX) /* in the L2 cache, with what is in it \
                                                           */
/* Of one receive: digested while it is in the L2 cache; and its parts, with the head behind them.
 */
#define SL_OPENER_SLICE_BYTES (256 * SL_KIB)
#define SL_OPENER_PARTS       65u
/* A key seals half of what RFC 8446, 5.5 allows AES-GCM (2^24.5 records); then the next one. */
#define SL_RECORD_KEY_RECORDS (UINT64_C(1) << 23)

struct sl_record_key {
    struct sl_aead aead;
    uint8_t iv[SL_RECORD_IV_BYTES];
    uint8_t secret[SL_RECORD_SECRET_BYTES]; /* application traffic secret N */
    uint64_t sequence, update_after;
};

/* A direction of a connection: an opener or a sealer. */
struct sl_records {
    struct sl_record_key key;
    unsigned char *staging;
    /* begin..end of the staging came and was not taken, or is sealed and not sent yet. */
    uint32_t room_bytes, begin, end;
    /* In no records: values are received straight to where they go, and the staging has what came
     * of the head behind them; messages are sent as they are. */
    bool clear;
    /* Opener: plain_bytes at plain_at are opened already. Of the last receive in the clear so much
     * was asked for, and came. */
    uint32_t plain_at, plain_bytes, asked_bytes, straight_bytes;
    int32_t over;      /* opener: -errno of what ended it: nothing more is opened */
    struct iovec part; /* sealer: being sent */
};

/* Staging for the handshake; keys come later. fini accepts zeroes. Errors: SL_ERR_NO_MEMORY. */
sl_err sl_records_init(struct sl_records *records, struct sl_error *why);
void sl_records_fini(struct sl_records *records);
/* The secret of a direction (SHA-256). Errors: SL_ERR_UNSUPPORTED (suite), SL_ERR_NO_MEMORY. */
sl_err sl_record_key_init(struct sl_record_key *key, uint16_t suite, const void *secret, bool seals,
                          enum sl_aead_by by, struct sl_error *why);
/* From here on as much as one receive or send takes; without memory for it all stays as it is. */
void sl_records_grow(struct sl_records *records);

/* Where the next bytes of the connection go; none of it is empty as long as take was asked until it
 * gave 0. */
struct iovec sl_opener_space(struct sl_records *opener);
void sl_opener_came(struct sl_records *opener, uint32_t length_bytes);
/* At least so many bytes of the connection must come before left_bytes more can be taken. */
uint32_t sl_opener_wants(const struct sl_records *opener, uint32_t left_bytes);
/* A receive for those who want left_bytes more at `to` (0: the next head), and have taken what is
 * there: its parts, their number, and with how many bytes it may be woken. Until sl_opener_came
 * they are the kernel's, and `to` with them if this is in the clear. */
uint32_t sl_opener_parts(struct sl_records *opener, struct sl_runs to, uint32_t left_bytes,
                         struct iovec parts[SL_OPENER_PARTS], uint32_t *low_bytes);
/* Opens what is there, up to length_bytes, and feeds it to the digest (NULL: none) while it is in
 * the cache. Gives the number of bytes; 0: more must come; or -EBADMSG (a record was changed on its
 * way), -EPROTO (what came is no such record), -ECONNRESET (the peer has ended). A record that was
 * changed may leave its bytes in `to`: they count for nothing. */
int32_t sl_opener_take(struct sl_records *opener, struct sl_runs to, uint32_t length_bytes,
                       struct sl_digest_stream *digest);
/* Takes the next answer's head if it is this one, and gives its size; 0: more must come.
 * -ECANCELED: it is another one, and is left; or as above. */
int32_t sl_opener_expect(struct sl_records *opener, const unsigned char head[SL_WIRE_ANSWER_BYTES]);

/* What is to be sealed: the parts of the message are used up. heads[i] != 0: part i of `parts` is a
 * frame's head, which gets records of its own, so that the records of values begin with them. */
struct sl_seal_job {
    struct sl_records *sealer;
    struct msghdr *message;
    const struct iovec *parts;
    const uint8_t *heads;
};
/* Seals into the staging as much as it holds. Nothing may be left there. 0, or -ENOMEM, -EPROTO. */
int32_t sl_seal_fill(const struct sl_seal_job *job);
/* What is to be sent next: 1; 0: all of the message is out; or as above. */
int32_t sl_seal_next(const struct sl_seal_job *job, struct msghdr *out);
void sl_seal_sent(const struct sl_seal_job *job, uint32_t length_bytes);

#endif
