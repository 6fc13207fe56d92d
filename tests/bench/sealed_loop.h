/* tests/bench/sealed_loop.h - the limit of one thread: it receives records, opens them with
 * libcrypto and digests their contents, in one pass. Their sender has sealed them before, or
 * seals as it sends. */
#ifndef SL_TESTS_SEALED_LOOP_H
#define SL_TESTS_SEALED_LOOP_H

#include <stdbool.h>
#include <stdint.h>

/* Records of 16 KiB, as in TLS 1.3 with AES-128-GCM. length_bytes: whole 16 KiB. NULL: no
 * memory. */
unsigned char *sealed_make(const unsigned char *plain, uint64_t length_bytes,
                           uint64_t *sealed_bytes);
/* Sends all of it; false: the connection broke. */
bool sealed_send(int fd, const unsigned char *sealed, uint64_t sealed_bytes);
/* Seals length_bytes, whole 16 KiB, and sends them, staging by staging. */
bool sealed_seal_and_send(int fd, const unsigned char *plain, uint64_t length_bytes);
/* Receives length_bytes of values of `size` to memory; false: it broke, or a record was wrong. */
bool sealed_receive(int fd, unsigned char *memory, uint64_t length_bytes, uint64_t size);

#endif
