/* runtime/fabric/tcp/proof.h - greetings and requests where bytes go in the clear (a trusted wire, both
 * sides set so): nobody says a secret, everybody proves to know it.
 *
 * A greeting is HMAC-SHA256 over nonces of both sides. A request carries, where its grant's token would
 * be, an AES-128-GMAC over its fields and that token, by a key and a counter of the connection. So
 * what was recorded is worth nothing on another connection, nor at another place of the same. Values
 * and answers carry no proof: who can change packets on the way can change those. */
#ifndef SL_FABRIC_TCP_PROOF_H
#define SL_FABRIC_TCP_PROOF_H

#include "runtime/fabric/core/wire.h"
#include "runtime/sl_error.h"

struct evp_cipher_ctx_st;

struct sl_proof {
    uint8_t id[SL_WIRE_ID_BYTES];
    uint8_t key[SL_WIRE_PSK_BYTES];                                  /* of the peer */
    uint8_t asks[SL_WIRE_TOKEN_BYTES], answers[SL_WIRE_NONCE_BYTES]; /* nonces */
};
/* False, all: libcrypto failed. */
bool sl_proof_answering(const struct sl_proof *proof, uint8_t out[SL_WIRE_PROOF_BYTES]);
bool sl_proof_asking(const struct sl_proof *proof, uint8_t out[SL_WIRE_TOKEN_BYTES]);

struct sl_marker {
    struct evp_cipher_ctx_st *cipher; /* NULL: there is none */
    uint64_t count;                   /* requests so far */
};
sl_err sl_marker_init(struct sl_marker *marker, const struct sl_proof *proof, struct sl_error *why);
void sl_marker_fini(struct sl_marker *marker);
/* Of the next request: what stands in it instead of the token. */
bool sl_marker_mark(struct sl_marker *marker, const unsigned char request[SL_WIRE_REQUEST_BYTES],
                    const uint8_t token[SL_WIRE_TOKEN_BYTES], uint8_t out[SL_WIRE_TOKEN_BYTES]);

#endif
