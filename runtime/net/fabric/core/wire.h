/* runtime/net/fabric/core/wire.h - frames and blobs of the tcp fabric. Every byte that is parsed
 * here is untrusted.
 *
 * A request is 64 bytes. Answers of 24 bytes arrive in the order of requests; the value follows an
 * answer to a successful READ. Integers are little-endian.
 *
 * All of it is inside TLS 1.3, whose handshake identifies the peer (tcp/handshake.h). The first
 * request is a HELLO. It may ask for answers in the clear, without records, if both sides are
 * configured so. */
#ifndef SL_FABRIC_CORE_WIRE_H
#define SL_FABRIC_CORE_WIRE_H

#include "runtime/base/sl_error.h"

#define SL_WIRE_FRAME_VERSION 3u /* earlier versions are refused */
#define SL_WIRE_REQUEST_BYTES 64u
#define SL_WIRE_ANSWER_BYTES  24u
#define SL_WIRE_TOKEN_BYTES   24u /* 192 random bits */
#define SL_WIRE_VALUE_MAX     (4 * SL_MIB)
#define SL_WIRE_ID_BYTES      16u /* identifies the peer to a listener */
#define SL_WIRE_PSK_BYTES     32u /* its key */

enum sl_wire_verb { SL_WIRE_READ = 1, SL_WIRE_HELLO = 3 };

struct sl_wire_request {
    enum sl_wire_verb verb;
    uint32_t sequence;
    uint32_t length_bytes; /* 1..SL_WIRE_VALUE_MAX; HELLO: 0 */
    uint64_t offset_bytes;
    uint64_t generation;
    uint32_t grant; /* HELLO: 1: send answers in the clear */
    uint8_t token[SL_WIRE_TOKEN_BYTES];
};
void sl_wire_request_write(const struct sl_wire_request *request,
                           unsigned char out[SL_WIRE_REQUEST_BYTES]);
/* Errors: SL_ERR_PROTOCOL, SL_ERR_VERSION (named in why). */
sl_err sl_wire_request_read(const unsigned char bytes[SL_WIRE_REQUEST_BYTES],
                            struct sl_wire_request *out, struct sl_error *why);

struct sl_wire_answer {
    enum sl_wire_verb verb;
    sl_err code;
    uint32_t sequence;
    uint32_t length_bytes; /* of the value that follows: READ and SL_OK; else 0 */
};
void sl_wire_answer_write(const struct sl_wire_answer *answer,
                          unsigned char out[SL_WIRE_ANSWER_BYTES]);
sl_err sl_wire_answer_read(const unsigned char bytes[SL_WIRE_ANSWER_BYTES],
                           struct sl_wire_answer *out, struct sl_error *why);

/* Address of a fabric, with credentials for one peer. Only that peer gets it, over the
 * authenticated connection between the nodes. */
#define SL_WIRE_ADDRESS_BYTES 80u
struct sl_wire_address {
    bool ipv6;
    bool clear;    /* answers in the clear are possible */
    uint16_t port; /* 0: it does not listen */
    uint32_t scope;
    uint8_t ip[16]; /* network order; IPv4: the first 4 */
    uint8_t id[SL_WIRE_ID_BYTES];
    uint8_t psk[SL_WIRE_PSK_BYTES];
};
void sl_wire_address_write(const struct sl_wire_address *address,
                           unsigned char out[SL_WIRE_ADDRESS_BYTES]);
sl_err sl_wire_address_read(const void *bytes, uint32_t length_bytes, struct sl_wire_address *out,
                            struct sl_error *why);

/* Contents of a grant's key. */
#define SL_WIRE_KEY_BYTES 64u
struct sl_wire_key {
    uint32_t grant;
    uint64_t generation, offset_bytes, length_bytes;
    uint8_t token[SL_WIRE_TOKEN_BYTES];
};
void sl_wire_key_write(const struct sl_wire_key *key, unsigned char out[SL_WIRE_KEY_BYTES]);
sl_err sl_wire_key_read(const void *bytes, uint32_t length_bytes, struct sl_wire_key *out,
                        struct sl_error *why);

/* Little-endian integers, also for other blobs. */
static inline void sl_wire_put(unsigned char *out, uint64_t value, unsigned length_bytes)
{
    for (unsigned i = 0; i < length_bytes; i++) {
        out[i] = (unsigned char)(value >> (8 * i));
    }
}
static inline uint64_t sl_wire_get(const unsigned char *bytes, unsigned length_bytes)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < length_bytes; i++) {
        value |= (uint64_t)bytes[i] << (8 * i);
    }
    return value;
}

#endif
