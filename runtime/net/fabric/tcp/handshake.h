/* runtime/net/fabric/tcp/handshake.h - TLS 1.3 by libssl: the handshake, with a key that both sides
 * know already (an external PSK, psk_dhe_ke). What follows is made by core/records.h.
 *
 * Bytes go in and out by calls: nothing here touches a socket, and nothing blocks. One thread. */
#ifndef SL_FABRIC_TCP_HANDSHAKE_H
#define SL_FABRIC_TCP_HANDSHAKE_H

#include "runtime/base/sl_error.h"
#include "runtime/net/fabric/core/records.h"
#include "runtime/net/fabric/core/wire.h"

#define SL_HANDSHAKE_BYTES_MAX (32 * SL_KIB) /* that one side may say before it is over */

struct sl_tls;       /* opaque: what all connections of a fabric share */
struct sl_handshake; /* opaque */

/* by: who makes the records of its connections. Errors: SL_ERR_NO_MEMORY, SL_ERR_UNSUPPORTED (this
 * libssl). */
sl_err sl_tls_open(enum sl_aead_by by, struct sl_tls **out, struct sl_error *why);
void sl_tls_close(struct sl_tls **tls);

/* The key of a peer that calls itself so; false: there is none. */
typedef bool (*sl_psk_find_fn)(void *context, const uint8_t id[SL_WIRE_ID_BYTES],
                               uint8_t key[SL_WIRE_PSK_BYTES]);
struct sl_handshake_options {
    bool answers;      /* we are asked */
    const uint8_t *id; /* asking: who we are to the peer, and the key for it; copied */
    const uint8_t *key;
    sl_psk_find_fn find; /* answering; called within sl_handshake_step */
    void *context;
};
sl_err sl_handshake_begin(struct sl_tls *tls, const struct sl_handshake_options *options,
                          struct sl_handshake **out, struct sl_error *why);
void sl_handshake_end(struct sl_handshake **handshake);
/* Takes what came (0 bytes: begins). SL_OK: over, both sides know the key; SL_ERR_BUSY: it goes on.
 * Errors: SL_ERR_PERMISSION (another key, no key), SL_ERR_PROTOCOL. */
sl_err sl_handshake_step(struct sl_handshake *handshake, const void *bytes, uint32_t length_bytes,
                         struct sl_error *why);
/* What is to be sent: up to room_bytes; gives how many. Also after it failed (why, for the peer).
 */
uint32_t sl_handshake_say(struct sl_handshake *handshake, void *to, uint32_t room_bytes);
/* When it is over: the keys of both directions, and what came behind the handshake goes to the
 * opener. Errors: those of sl_record_key_init, SL_ERR_PROTOCOL. */
sl_err sl_handshake_keys(struct sl_handshake *handshake, struct sl_records *opener,
                         struct sl_records *sealer, struct sl_error *why);

#endif
