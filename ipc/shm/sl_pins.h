/* ipc/shm/sl_pins.h - a reader's claims: its own writable segment with pin slots, a lossy ring of
 * sampled accesses, and counters. The registrar maps it read-only and trusts none of it.
 *
 * Order (DESIGN section 4). Reader: store generation in a slot; fence(seq_cst); re-check the entry.
 * Registrar: unlink the victims; fence(seq_cst); scan all slots; reuse what is not pinned, retire
 * the rest. */
#ifndef SL_PINS_H
#define SL_PINS_H

#include "ipc/shm/sl_index.h"

/* ---- who is a client, and whether it lives ----
 *
 * A client is named by number and generation of its pin segment (struct sl_proc_id), which are in
 * the segment's name, too. Its life is a POSIX record lock on the file: no fork has it, and it ends
 * with the process, whatever namespace that lives in. It also ends when the process closes any
 * descriptor of this file: so libsluice opens it once. */
#define SL_CLIENT_NAME_BYTES 32u
#define SL_PINS_NAME_BYTES   64u
void sl_client_name(struct sl_proc_id id, char out[SL_CLIENT_NAME_BYTES]);
void sl_pins_name(const char *client, char out[SL_PINS_NAME_BYTES]);
enum sl_client_state {
    SL_CLIENT_GONE,
    SL_CLIENT_UNLOCKED, /* it lives and has lost the lock: nothing of it is reused */
    SL_CLIENT_LIVES,    /* also when the system does not tell */
};
/* For processes other than the client's. *fd: -1, or as the look before left it: the caller closes
 * it behind the last. One system call while the client lives. */
enum sl_client_state sl_client_state(const char *shm_dir, struct sl_proc_id id, int *fd);
/* Calls each for every client that has a pin file in the directory. */
void sl_pins_clients(const char *shm_dir, void (*each)(void *context, struct sl_proc_id client),
                     void *context);

struct sl_pins; /* opaque; owned by one client; pin and release from any of its threads */

struct sl_pins_options {
    const char *shm_dir;
    const char *name; /* of the client or actor: the file is pins.NAME */
    uint32_t slot_count;
    uint32_t access_count;  /* power of two: entries of the access ring */
    struct sl_proc_id self; /* who holds the pins */
    uint64_t pinned_bytes_max;
};
/* Creates the segment, locked before it gets its name; one of that name that a dead process left is
 * replaced. Errors: SL_ERR_EXISTS (another process has it locked), SL_ERR_INVALID (counts, name),
 * SL_ERR_NO_SPACE. */
sl_err sl_pins_create(const struct sl_pins_options *options, struct sl_pins **out,
                      struct sl_error *why);
/* Removes the file, unless the name is another's by now: the segment goes on without. Of a node
 * that made its other segments anew in the same place. */
void sl_pins_unname(struct sl_pins *pins);
/* Three ways to unmap the segment. end: its reader uses nothing of the node any more, and the
 * registrar, which knows the reader, frees its slot and removes the file. destroy: the same, and
 * removes the file, unless the name is another's. leave: of a fork, whose parent goes on with the
 * segment. */
void sl_pins_end(struct sl_pins **pins);
void sl_pins_destroy(struct sl_pins **pins);
void sl_pins_leave(struct sl_pins **pins);
typedef uint32_t sl_pin; /* slot number + 1; 0: none */
/* Pins the extent of an entry found in view. SL_ERR_STALE: it changed, look it up again;
 * SL_ERR_LIMIT: slots or bytes; SL_ERR_NOT_FOUND: the entry has no copy in memory. */
sl_err sl_pins_take(struct sl_pins *pins, const struct sl_index_view *view,
                    const struct sl_entry *entry, sl_pin *pin);
/* Holds an extent that was granted to this client ahead of use (ref, generation), for writing: the
 * registrar takes it back only when no pin names it, so while it is pinned its bytes are this
 * client's alone. SL_ERR_STALE: the grant is over; SL_ERR_LIMIT. */
sl_err sl_pins_take_grant(struct sl_pins *pins, const struct sl_index_view *view, sl_ref ref,
                          uint64_t generation, uint64_t length_bytes, sl_pin *pin);
void sl_pins_give(struct sl_pins *pins, sl_pin pin);
/* Notes an access; overwrites the oldest. For a chain call tail first, head last. */
/* Bit of a generation that is noted: the reader has stored the value itself. That is no use; values
 * noted so in a row are in the order of eviction, what goes first before. */
#define SL_ACCESS_STORED (UINT64_C(1) << 63)
void sl_pins_note_access(struct sl_pins *pins, sl_ref ref, uint64_t generation);
/* The same, with what an engine said of the value (struct sl_said). */
void sl_pins_note_said(struct sl_pins *pins, sl_ref ref, uint64_t generation, uint32_t said);
/* 0: nothing. Fields beyond their bounds are cut to them; keep_s of less than a second is one. */
struct sl_said {
    uint32_t session;  /* enum sl_session */
    uint32_t priority; /* enum sl_priority */
    uint64_t keep_ns;
};
uint32_t sl_said_pack(const struct sl_said *said);
/* Bit of what is packed, with SL_ACCESS_STORED: the reader says it by itself, and has neither used
 * nor stored the value now. A registrar that does not know the bit takes nothing of it. */
#define SL_SAID_ALONE (UINT32_C(1) << 31)
/* Of another process: fields are within their bounds whatever it wrote. */
void sl_said_unpack(uint32_t packed, struct sl_said *out);
uint64_t sl_pins_pinned_bytes(const struct sl_pins *pins);
/* As sl_segment_is_cut: who scans the pins may have missed some. */
bool sl_pins_is_cut(const struct sl_pins *pins);
/* Whether any pin is taken, by this process's own memory. NULL: there are none. */
bool sl_pins_any(const struct sl_pins *pins);

/* Registrar's side. */
struct sl_pins_view; /* opaque */
sl_err sl_pins_view_open(const char *shm_dir, const char *name, struct sl_pins_view **out,
                         struct sl_error *why);
/* As sl_segment_is_short. */
bool sl_pins_view_is_short(const struct sl_pins_view *view);
/* Whether its reader ended (sl_pins_end), also while its process lives on. */
bool sl_pins_view_ended(const struct sl_pins_view *view);
/* As sl_segment_linked: false once its process, or the registrar after its death, has removed it.
 */
bool sl_pins_view_linked(const struct sl_pins_view *view);
void sl_pins_view_close(struct sl_pins_view **view);
/* After the caller's seq_cst fence: calls each() for every slot that is not 0. */
void sl_pins_view_scan(const struct sl_pins_view *view,
                       void (*each)(void *context, uint64_t generation), void *context);
/* Gives accesses noted since the last call, oldest first, at most max; lost ones are skipped. Other
 * views of the segment, in any process, get the same ones: where each is stands in the view alone.
 * Hints: check that ref is live and has this generation before using one. */
struct sl_access {
    uint64_t generation;
    sl_ref ref;
    uint32_t said; /* sl_said_unpack */
};
uint32_t sl_pins_view_drain(struct sl_pins_view *view, struct sl_access *out, uint32_t max);
/* How many accesses were overwritten before they could be given, since the view was opened. */
uint64_t sl_pins_view_lost(const struct sl_pins_view *view);
/* Somebody has drained the ring before this view was opened: what is overwritten by now may have
 * been given then, and does not count as lost. */
void sl_pins_view_resume(struct sl_pins_view *view);
struct sl_proc_id sl_pins_view_owner(const struct sl_pins_view *view);

#endif
