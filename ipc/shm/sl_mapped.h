/* ipc/shm/sl_mapped.h - objects that are little but the mapping of a segment which others may
 * replace: what is counted by name, the filter of keys. How they are opened, followed and closed.
 */
#ifndef SL_MAPPED_H
#define SL_MAPPED_H

#include "ipc/shm/sl_segment.h"

/* A kind of them. The object begins with its struct sl_segment. */
struct sl_mapped_kind {
    struct sl_segment_want want; /* the directory is each call's */
    size_t object_bytes;
    bool writable;
    /* Fills the rest of the object from its segment; may be NULL. */
    sl_err (*measure)(void *object, struct sl_error *why);
};

/* The registrar, at its start: makes it, or goes on with its predecessor's. Errors: those of
 * segments. */
sl_err sl_mapped_make(const struct sl_mapped_kind *kind, const char *shm_dir, struct sl_error *why);
/* Opens the segment alone. Errors: those of segments. */
sl_err sl_mapped_segment(const struct sl_mapped_kind *kind, const char *shm_dir, bool writable,
                         struct sl_segment *out, struct sl_error *why);
/* Errors: those of segments and of measure, SL_ERR_NO_MEMORY. */
sl_err sl_mapped_open(const struct sl_mapped_kind *kind, const char *shm_dir, void **out,
                      struct sl_error *why);
/* Takes what is open: the segment of a new object. Closed on failure. Errors: as above. */
sl_err sl_mapped_adopt(const struct sl_mapped_kind *kind, struct sl_segment *segment, void **out,
                       struct sl_error *why);
/* Whether its file still is the one of that name; object may be NULL: it is not. A system call. */
bool sl_mapped_is_current(const struct sl_mapped_kind *kind, const char *shm_dir,
                          const void *object);
/* For who lives long: opens it, again when another took its place. Takes the object, gives the one
 * that there is now, or NULL; as sl_segment_followed when it is still the same. One thread. */
void *sl_mapped_follow(const struct sl_mapped_kind *kind, const char *shm_dir, void *object);
void sl_mapped_close(void *object); /* accepts NULL */

#endif
