/* runtime/net/fabric/tcp/handshake.h - the TLS 1.3 handshake by libssl, with a pre-shared key
 * (external PSK, psk_dhe_ke). The records after it are made by core/records.h.
 *
 * Bytes are passed by calls: nothing here uses a socket, and nothing blocks. One thread. */
#ifndef SL_FABRIC_TCP_HANDSHAKE_H
#define SL_FABRIC_TCP_HANDSHAKE_H

#include "runtime/base/sl_error.h"
#include "runtime/net/fabric/core/records.h"
#include "runtime/net/fabric/core/wire.h"

#define SL_HANDSHAKE_BYTES_MAX (32 * SL_KIB) /* limit for one side's messages */

struct sl_tls;       /* opaque: shared by the connections of a fabric */
struct sl_handshake; /* opaque */

/* by: the library for records. Errors: SL_ERR_NO_MEMORY, SL_ERR_UNSUPPORTED (this libssl). */
sl_err sl_tls_open(enum sl_aead_by by, struct sl_tls **out, struct sl_error *why);
void sl_tls_close(struct sl_tls **tls);

/* Gives the key for an id that a peer has sent; false: unknown id. */
typedef bool (*sl_psk_find_fn)(void *context, const uint8_t id[SL_WIRE_ID_BYTES],
                               uint8_t key[SL_WIRE_PSK_BYTES]);
struct sl_handshake_options {
    bool answers;      /* we are the server */
    const uint8_t *id; /* client: our id at the peer, and its key; copied */
    const uint8_t *key;
    sl_psk_find_fn find; /* server; called within sl_handshake_step */
    void *context;
};
sl_err sl_handshake_begin(struct sl_tls *tls, const struct sl_handshake_options *options,
                          struct sl_handshake **out, struct sl_error *why);
void sl_handshake_end(struct sl_handshake **handshake);
/* Handles received bytes (0 bytes: starts). SL_OK: complete, both sides know the key; SL_ERR_BUSY:
 * continue. Errors: SL_ERR_PERMISSION (wrong or no key), SL_ERR_PROTOCOL, SL_ERR_NO_MEMORY. */
sl_err sl_handshake_step(struct sl_handshake *handshake, const void *bytes, uint32_t length_bytes,
                         struct sl_error *why);
/* Gives bytes to send, up to room_bytes, and their number. After a failure: the alert. */
uint32_t sl_handshake_output(struct sl_handshake *handshake, void *to, uint32_t room_bytes);
/* After completion: sets the keys of both directions, and passes bytes after the handshake to the
 * opener. Errors: those of sl_record_key_init, SL_ERR_PROTOCOL. */
sl_err sl_handshake_keys(struct sl_handshake *handshake, struct sl_records *opener,
                         struct sl_records *sealer, struct sl_error *why);

#endif
