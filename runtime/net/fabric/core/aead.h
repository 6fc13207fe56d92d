/* runtime/net/fabric/core/aead.h - the ciphers of TLS records (RFC 8446, 5.2), usable in parts: by
 * libcrypto, or AES-128-GCM by libipsec-mb where that is faster.
 *
 * libcrypto uses VAES and AVX-512 from 3.1 on. Older ones process 16 bytes an instruction, and
 * libipsec-mb is three times as fast. It is loaded at run time, so one program runs with and
 * without it. Both produce identical bytes.
 *
 * An sl_aead belongs to one thread at a time. */
#ifndef SL_FABRIC_CORE_AEAD_H
#define SL_FABRIC_CORE_AEAD_H

#include "runtime/base/sl_error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SL_AEAD_NONCE_BYTES 12u
#define SL_AEAD_TAG_BYTES   16u

enum sl_record_suite { SL_SUITE_AES_128_GCM = 0x1301, SL_SUITE_CHACHA20_POLY1305 = 0x1303 };
/* SL_AEAD_BEST: libipsec-mb if it is available and faster. */
enum sl_aead_by { SL_AEAD_BEST, SL_AEAD_LIBCRYPTO };

struct evp_cipher_ctx_st;
struct sl_aead_fast;

struct sl_aead {
    struct evp_cipher_ctx_st *cipher;
    struct sl_aead_fast *fast; /* NULL: libcrypto is used, with `cipher` */
    uint16_t suite;
    bool seals;
};

/* Opens *aead without a key; closed on failure. fini accepts zeroes and erases the key. Errors:
 * SL_ERR_UNSUPPORTED (suite), SL_ERR_NO_MEMORY. */
sl_err sl_aead_init(struct sl_aead *aead, uint16_t suite, bool seals, enum sl_aead_by by,
                    struct sl_error *why);
void sl_aead_fini(struct sl_aead *aead);
/* Sets or replaces the key: 16 bytes for AES, 32 for ChaCha20. False: libcrypto failed. */
bool sl_aead_key(struct sl_aead *aead, const uint8_t *key);
uint32_t sl_aead_key_bytes(uint16_t suite);

/* A record: begin, its parts in order, end. `head` is authenticated as additional data. A part has
 * any length, and is sealed or opened in place or to other memory. */
bool sl_aead_begin(struct sl_aead *aead, const uint8_t nonce[SL_AEAD_NONCE_BYTES],
                   const uint8_t *head, size_t head_bytes);
bool sl_aead_part(struct sl_aead *aead, void *to, const void *from, size_t length_bytes);
/* Gives the tag. */
bool sl_aead_seal_end(struct sl_aead *aead, uint8_t tag[SL_AEAD_TAG_BYTES]);
/* False: the record was not authentic, and the output of its parts must not be used. */
bool sl_aead_open_end(struct sl_aead *aead, const uint8_t tag[SL_AEAD_TAG_BYTES]);

/* Name of the library: "libcrypto" or "libipsec-mb". */
const char *sl_aead_library(enum sl_aead_by by);

#endif
