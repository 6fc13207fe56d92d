/* ipc/shm/sl_pins.h - a reader's claims: its own writable shm file with pin slots, a lossy ring of
 * sampled accesses, and counters. The registrar maps it read-only and trusts none of it.
 *
 * Order: the reader stores the generation in a slot; fence(seq_cst); checks the entry again. The
 * registrar unlinks the victims; fence(seq_cst); scans all slots; reuses what is not pinned and
 * retires the rest. */
#ifndef SL_PINS_H
#define SL_PINS_H

#include "ipc/shm/sl_index.h"

/* ---- the identity of a client, and whether it is alive ----
 *
 * A client is identified by number and generation of its pin file (struct sl_proc_id), which are
 * part of the file's name. While it lives it holds a POSIX record lock on the file: no fork
 * inherits it, and it ends with the process, in whatever namespace that lives. It also ends when
 * the process closes any descriptor of this file, so libsluice opens it once. */
#define SL_CLIENT_NAME_BYTES 32u
#define SL_PINS_NAME_BYTES   64u
void sl_client_name(struct sl_proc_id id, char out[SL_CLIENT_NAME_BYTES]);
void sl_pins_name(const char *client, char out[SL_PINS_NAME_BYTES]);
enum sl_client_state {
    SL_CLIENT_GONE,
    SL_CLIENT_UNLOCKED, /* it lives but has lost the lock: nothing of it is reused */
    SL_CLIENT_LIVES,    /* also if the system gives no answer */
};
/* For processes other than the client's. *fd: -1, or as the previous call left it; the caller
 * closes it after the last. One system call while the client lives. */
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
    struct sl_proc_id self; /* the process that holds the pins */
    uint64_t pinned_bytes_max;
};
/* Creates the file and locks it before it gets its name. Replaces one that a dead process left
 * under that name. Errors: SL_ERR_EXISTS (another process has it locked), SL_ERR_INVALID (counts,
 * name), SL_ERR_NO_SPACE. */
sl_err sl_pins_create(const struct sl_pins_options *options, struct sl_pins **out,
                      struct sl_error *why);
/* Removes the file unless another file has its name by now; the mapping stays in use. For a node
 * that created its other files again in the same directory. */
void sl_pins_unname(struct sl_pins *pins);
/* Three ways to unmap the file. end: its reader uses nothing of the node any more, and the
 * registrar, which knows the reader, frees its slot and removes the file. destroy: the same, and
 * removes the file unless another one has its name. leave: for a fork, whose parent continues to
 * use it. */
void sl_pins_end(struct sl_pins **pins);
void sl_pins_destroy(struct sl_pins **pins);
void sl_pins_leave(struct sl_pins **pins);
typedef uint32_t sl_pin; /* slot number + 1; 0: none */
/* Pins the extent of an entry found in view. SL_ERR_STALE: it changed, look it up again;
 * SL_ERR_LIMIT: slots or bytes; SL_ERR_NOT_FOUND: the entry has no copy in memory. */
sl_err sl_pins_take(struct sl_pins *pins, const struct sl_index_view *view,
                    const struct sl_entry *entry, sl_pin *pin);
/* Pins an extent that was granted in advance (ref, generation), for writing. The registrar reclaims
 * it only when no pin names it, so while it is pinned only this client uses its bytes.
 * SL_ERR_STALE: the grant has ended; SL_ERR_LIMIT. */
sl_err sl_pins_take_grant(struct sl_pins *pins, const struct sl_index_view *view, sl_ref ref,
                          uint64_t generation, uint64_t length_bytes, sl_pin *pin);
void sl_pins_release(struct sl_pins *pins, sl_pin pin);
/* Flag of a recorded generation: the reader has stored the value itself. This does not count as a
 * use. Values recorded so in sequence are in the order of eviction, first to be evicted first. */
#define SL_ACCESS_STORED (UINT64_C(1) << 63)
/* Records an access; overwrites the oldest. For a chain call tail first, head last. */
void sl_pins_note_access(struct sl_pins *pins, sl_ref ref, uint64_t generation);
/* The same, with an engine's hints for the value (struct sl_packed_hints). */
void sl_pins_note_hints(struct sl_pins *pins, sl_ref ref, uint64_t generation, uint32_t said);
/* 0: none. Fields beyond their bounds are cut to them; keep_ns is rounded up to seconds. */
struct sl_packed_hints {
    uint32_t session;  /* enum sl_session */
    uint32_t priority; /* enum sl_priority */
    uint64_t keep_ns;
};
uint32_t sl_packed_hints_pack(const struct sl_packed_hints *said);
/* Flag of the packed hints, with SL_ACCESS_STORED: only hints; the reader has neither used nor
 * stored the value now. A registrar that does not know the flag ignores all of it. */
#define SL_SAID_ALONE (UINT32_C(1) << 31)
/* For hints of another process: fields are within their bounds whatever it wrote. */
void sl_packed_hints_unpack(uint32_t packed, struct sl_packed_hints *out);
uint64_t sl_pins_pinned_bytes(const struct sl_pins *pins);
/* As sl_shm_file_is_cut: a scan of the pins may have missed some. */
bool sl_pins_is_cut(const struct sl_pins *pins);
/* Whether any pin is taken, from this process's own memory. False for NULL. */
bool sl_pins_any(const struct sl_pins *pins);

/* The registrar's side. */
struct sl_pins_view; /* opaque */
sl_err sl_pins_view_open(const char *shm_dir, const char *name, struct sl_pins_view **out,
                         struct sl_error *why);
/* As sl_shm_file_is_short. */
bool sl_pins_view_is_short(const struct sl_pins_view *view);
/* Whether its reader has ended (sl_pins_end), even if its process lives on. */
bool sl_pins_view_ended(const struct sl_pins_view *view);
/* As sl_shm_file_linked: false once its process, or the registrar after its death, has removed
 * it. */
bool sl_pins_view_linked(const struct sl_pins_view *view);
void sl_pins_view_close(struct sl_pins_view **view);
/* After the caller's seq_cst fence: calls each() for every slot that is not 0. */
void sl_pins_view_scan(const struct sl_pins_view *view,
                       void (*each)(void *context, uint64_t generation), void *context);
/* Gives at most max accesses recorded since the last call, oldest first; lost ones are skipped.
 * Each view keeps its own position, so other views, in any process, get the same accesses. They are
 * hints: before use check that ref is live and has this generation. */
struct sl_access {
    uint64_t generation;
    sl_ref ref;
    uint32_t said; /* sl_packed_hints_unpack */
};
uint32_t sl_pins_view_drain(struct sl_pins_view *view, struct sl_access *out, uint32_t max);
/* Number of accesses that were overwritten before they could be given, since the view was
 * opened. */
uint64_t sl_pins_view_lost(const struct sl_pins_view *view);
/* Call this if another process drained the ring before this view was opened: accesses overwritten
 * by now may have been given then, and do not count as lost. */
void sl_pins_view_resume(struct sl_pins_view *view);
struct sl_proc_id sl_pins_view_owner(const struct sl_pins_view *view);

#endif
