/* runtime/net/fabric/core/records.h - TLS 1.3 records (RFC 8446, 5.2) after the handshake: values
 * are sealed from their memory and opened into it, without another copy.
 *
 * libssl makes the handshake (tcp/handshake.c), but would copy every byte of a record twice. It
 * also has one object for both directions, while a connection is received on one thread and sent on
 * another. So records are made here (core/aead.h) with the secrets of the handshake. They are
 * standard TLS: a peer with SSL_read and SSL_write understands them
 * (tests/unit/runtime/net/records_test.c).
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
/* Staging buffer: one record until the first large value, then as much as one receive or send. */
#define SL_STAGING_SMALL_BYTES (SL_RECORD_BYTES_MAX + 1024u)
#define SL_STAGING_LARGE_BYTES (25 * SL_RECORD_BYTES_MAX) /* fits the L2 cache, with the values */
/* One receive: bytes that are digested in the L2 cache, and its parts, with the next head. */
#define SL_OPENER_SLICE_BYTES (256 * SL_KIB)
#define SL_OPENER_PARTS       65u
/* Records sealed with one key: half of the limit of RFC 8446, 5.5 for AES-GCM (2^24.5). */
#define SL_RECORD_KEY_RECORDS (UINT64_C(1) << 23)

struct sl_record_key {
    struct sl_aead aead;
    uint8_t iv[SL_RECORD_IV_BYTES];
    uint8_t secret[SL_RECORD_SECRET_BYTES]; /* application traffic secret N */
    uint64_t sequence, update_after;
};

/* One direction of a connection: an opener or a sealer. */
struct sl_records {
    struct sl_record_key key;
    unsigned char *staging;
    /* begin..end of the staging: received but not taken, or sealed but not sent. */
    uint32_t room_bytes, begin, end;
    /* Without records: values are received straight into their memory, and the staging has the
     * start of the next head; messages are sent as they are. */
    bool clear;
    /* Opener: plain_bytes at plain_at are already open. In the clear: bytes that the last receive
     * asked for, and got, straight into memory. */
    uint32_t plain_at, plain_bytes, asked_bytes, straight_bytes;
    int32_t over;      /* opener: -errno that ended it; it opens nothing more */
    struct iovec part; /* sealer: being sent */
};

/* Allocates staging for the handshake; keys are set later. fini accepts zeroes. Errors:
 * SL_ERR_NO_MEMORY. */
sl_err sl_records_init(struct sl_records *records, struct sl_error *why);
void sl_records_fini(struct sl_records *records);
/* Sets a direction's secret (SHA-256). Errors: SL_ERR_UNSUPPORTED (suite), SL_ERR_NO_MEMORY. */
sl_err sl_record_key_init(struct sl_record_key *key, uint16_t suite, const void *secret, bool seals,
                          enum sl_aead_by by, struct sl_error *why);
/* Enlarges the staging to one receive or send; without memory nothing changes. */
void sl_records_grow(struct sl_records *records);

/* Free space for the next bytes of the connection; not empty if take was called until it gave 0. */
struct iovec sl_opener_space(struct sl_records *opener);
void sl_opener_received(struct sl_records *opener, uint32_t length_bytes);
/* Minimum number of bytes to receive before left_bytes more can be taken. */
uint32_t sl_opener_bytes_missing(const struct sl_records *opener, uint32_t left_bytes);
/* Makes the parts of a receive of left_bytes for `to` (0: the next head), after all available bytes
 * were taken. Gives their number, and in *low_bytes a low-water mark. The kernel uses them until
 * sl_opener_received, and also `to` in the clear. */
uint32_t sl_opener_parts(struct sl_records *opener, struct sl_runs to, uint32_t left_bytes,
                         struct iovec parts[SL_OPENER_PARTS], uint32_t *low_bytes);
/* Opens available bytes, up to length_bytes, and feeds the digest (NULL: none) while they are in
 * the cache. Gives the number of bytes; 0: more must arrive; or -EBADMSG (record not authentic),
 * -EPROTO (not a valid record), -ECONNRESET (ended by the peer). Bytes in `to` of a record that is
 * not authentic must not be used. */
int32_t sl_opener_take(struct sl_records *opener, struct sl_runs to, uint32_t length_bytes,
                       struct sl_digest_stream *digest);
/* Takes the head of the next answer if it is equal to this one, and gives its size; 0: more must
 * arrive. -ECANCELED: another head, which is not taken; or as above. */
int32_t sl_opener_expect(struct sl_records *opener, const unsigned char head[SL_WIRE_ANSWER_BYTES]);

/* A message to seal; its parts are consumed. heads[i] != 0: part i of `parts` is a frame's head,
 * which gets its own record, so that values start at the start of a record. */
struct sl_seal_job {
    struct sl_records *sealer;
    struct msghdr *message;
    const struct iovec *parts;
    const uint8_t *heads;
};
/* Seals as much as the staging holds; it must be empty. 0, or -ENOMEM, -EPROTO. */
int32_t sl_seal_fill(const struct sl_seal_job *job);
/* Gives in *out what to send next: 1; 0: the whole message was sent; or as above. */
int32_t sl_seal_next(const struct sl_seal_job *job, struct msghdr *out);
void sl_seal_sent(const struct sl_seal_job *job, uint32_t length_bytes);

#endif
