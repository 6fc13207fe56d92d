/* ipc/shm/sl_mapped.h - opens, follows and closes objects that consist mainly of a mapped shm file
 * that other processes may replace: the counters by name and the filter of keys. */
#ifndef SL_MAPPED_H
#define SL_MAPPED_H

#include "ipc/shm/sl_shm_file.h"

/* A kind of object. The object begins with its struct sl_shm_file. */
struct sl_mapped_kind {
    struct sl_shm_file_want want; /* the directory is given with each call */
    size_t object_bytes;
    bool writable;
    /* Fills the rest of the object from its segment; may be NULL. */
    sl_err (*measure)(void *object, struct sl_error *why);
};

/* For the registrar at its start: creates the file, or continues that of its predecessor. Errors:
 * those of sl_shm_file_open and _create. */
sl_err sl_mapped_make(const struct sl_mapped_kind *kind, const char *shm_dir, struct sl_error *why);
/* Opens only the file. Errors: those of sl_shm_file_open. */
sl_err sl_mapped_shm_file(const struct sl_mapped_kind *kind, const char *shm_dir, bool writable,
                          struct sl_shm_file *out, struct sl_error *why);
/* Errors: those of sl_shm_file_open and of measure, SL_ERR_NO_MEMORY. */
sl_err sl_mapped_open(const struct sl_mapped_kind *kind, const char *shm_dir, void **out,
                      struct sl_error *why);
/* Makes an object of an open file, which it takes. Errors: as above. */
sl_err sl_mapped_adopt(const struct sl_mapped_kind *kind, struct sl_shm_file *segment, void **out,
                       struct sl_error *why);
/* Whether its file still is the one with that name; false for NULL. A system call. */
bool sl_mapped_is_current(const struct sl_mapped_kind *kind, const char *shm_dir,
                          const void *object);
/* For long-lived processes: opens it, again when it was replaced. Takes the object and returns the
 * current one, or NULL. If unchanged it costs as much as sl_shm_file_followed. One thread. */
void *sl_mapped_follow(const struct sl_mapped_kind *kind, const char *shm_dir, void *object);
void sl_mapped_close(void *object); /* accepts NULL */

#endif
