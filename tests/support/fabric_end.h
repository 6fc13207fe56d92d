/* tests/support/fabric_end.h - one end of a fabric under test: memory, one peer, and a record of
 * its callbacks. Check assertions inside; for the test's thread. */
#ifndef SL_TESTS_FABRIC_END_H
#define SL_TESTS_FABRIC_END_H

#include "runtime/net/fabric/core/fabric.h"
#include "runtime/net/fabric/core/wire.h"
#include "runtime/net/fabric/tcp/handshake.h"

#define END_DONES_MAX 4096u

struct end_done {
    uint64_t cookie, moved_bytes;
    sl_err code;
    uint32_t piece_count;
    uint8_t pieces[8]; /* of the first */
};

struct fabric_end {
    struct sl_fabric *fabric;
    unsigned char *bytes; /* anonymous shared memory, which a child of the test sees */
    uint64_t length_bytes;
    uint64_t
        stride_bytes; /* set before end_open: the memory is a pool of such blocks; 0: an arena */
    bool unread;      /* likewise: peers may not read it */
    uint32_t memory, peer;
    uint64_t *now_ns; /* NULL: the real clock */
    bool registered, refused;
    uint32_t register_region;
    enum sl_fabric_link link;
    uint32_t ups, downs;
    char link_why[SL_ERROR_TEXT_BYTES];
    struct end_done dones[END_DONES_MAX];
    uint32_t done_count;
    uint32_t grants_ended, grant_last, granted, grants_failed;
    unsigned char key[SL_FABRIC_BLOB_MAX]; /* from the last granted() callback */
    uint32_t key_bytes;
    struct sl_error grant_why; /* of the last grant that failed */
    unsigned char address[SL_FABRIC_BLOB_MAX];
    uint32_t address_bytes; /* 0: no address to deliver */
};

/* Fills options with events that write into end; the test then changes the options it needs. */
void end_options(struct fabric_end *end, struct sl_fabric_options *options, const char *kind);
/* Returns SL_ERR_UNSUPPORTED; other errors fail the test. length_bytes > 0: maps and registers
 * memory of that size, in chunks of chunk_bytes (0: one chunk). */
sl_err end_open(struct fabric_end *end, const struct sl_fabric_options *options,
                uint64_t length_bytes, uint64_t chunk_bytes, struct sl_error *why);
void end_close(struct fabric_end *end);
/* Runs one step; waits at most wait_ms for work. */
void end_step(struct fabric_end *end, int wait_ms);
/* Runs both ends of a pair in one process and passes their addresses to each other. */
void pair_step(struct fabric_end *a, struct fabric_end *b);
uint64_t end_now(const struct fabric_end *end);

/* The end's address, as a peer knows it. */
struct sl_wire_address guest_address(const struct fabric_end *end);
/* Sends the bytes as one record. */
void guest_say(int fd, struct sl_records *sealer, const void *bytes, size_t length_bytes);
/* Receives length_bytes and runs the end; fails after 30 s, or when the connection ends. */
void peer_receive(struct fabric_end *end, int fd, unsigned char *answer, size_t length_bytes);
/* Runs the handshake of a peer, with a HELLO that asks for plaintext answers and gets one. Call
 * sl_records_fini afterwards. */
void guest_greet(struct fabric_end *end, int fd, struct sl_records *sealer);
/* Runs only the handshake: the peer has yet to send HELLO. */
void peer_handshake(struct fabric_end *end, int fd, struct sl_records *sealer);

/* Runs the pair until `condition`; fails the test after 60 s of real time. */
#define PAIR_UNTIL(a, b, condition)                                                            \
    do {                                                                                       \
        uint64_t pair_end_ns = sl_clock_monotonic_ns() + 60 * SL_NS_PER_S;                     \
        while (!(condition)) {                                                                 \
            ck_assert_msg(sl_clock_monotonic_ns() < pair_end_ns, "waited for %s", #condition); \
            pair_step((a), (b));                                                               \
        }                                                                                      \
    } while (0)

/* Drops the memory region by region; returns the result of the first step. */
sl_err fabric_memory_drop(struct sl_fabric *fabric, uint32_t memory);

/* Fills memory with bytes that depend on their offset and on the seed. */
void pattern_fill(unsigned char *at, uint64_t length_bytes, uint64_t seed);
bool pattern_is(const unsigned char *at, uint64_t length_bytes, uint64_t seed);

/* Waits for a grant's key, which is then in owner->key. */
uint32_t end_grant(struct fabric_end *owner, const struct sl_fabric_grant *want);
/* Waits for the owner's next key and opens it at the other end. */
uint32_t pair_key(struct fabric_end *owner, struct fabric_end *user);
/* Makes a grant of `owner` for the other end and opens it there: *key is the other end's. */
uint32_t pair_grant(struct fabric_end *owner, struct fabric_end *user, uint64_t offset_bytes,
                    uint64_t length_bytes, uint32_t *key);
/* Posts one piece with the deadline; its offset is the same on both sides. */
sl_err end_post(struct fabric_end *end, uint32_t key, uint64_t offset_bytes, uint64_t length_bytes,
                uint64_t cookie, uint64_t deadline_ns);
/* NULL: not done. */
const struct end_done *end_done_of(const struct fabric_end *end, uint64_t cookie);

#endif
