/* ipc/shm/sl_labels.h - counters by name: loads, lookups and stores by model, gets and lookups by
 * tenant.
 *
 * The registrar creates the shm file `labels`. A name takes a row when it is first counted, and
 * keeps it as long as the node runs. There are SL_LABELS_MAX rows, half of them for each kind;
 * later names count as `other` of their kind, so that sums stay exact. The coordinator and clients
 * write: a row has SL_LABEL_STRIPES copies of its words, so that threads rarely share one. Any
 * process of the user can write counts: a wrong one only affects statistics. */
#ifndef SL_LABELS_H
#define SL_LABELS_H

#include "ipc/shm/sl_shm_file.h"

#include <stdatomic.h>

#define SL_LABELS_MAX       128u
#define SL_LABEL_STRIPES    8u
#define SL_LABEL_ID_BYTES   64u
#define SL_LABEL_NAME_BYTES 128u

enum sl_label_kind { SL_LABEL_MODEL, SL_LABEL_TENANT, SL_LABEL_KINDS };

/* id, text. Of a model: blocks; of a tenant: keys. The order is that of the words: add new ones at
 * the end. */
#define SL_LABEL_COUNT_TABLE(X)                       \
    X(MEMORY, "requested, found in memory")           \
    X(DISK, "requested, found on a disk")             \
    X(REMOTE, "requested, found on another node")     \
    X(NONE, "requested, missing")                     \
    X(FAILED, "requested, failed with an error")      \
    X(BYTES, "bytes that were read")                  \
    X(LOOK_FOUND, "looked up, found")                 \
    X(LOOK_MISSED, "looked up, missing")              \
    X(LOOK_FAILED, "looked up, failed with an error") \
    X(STORED, "stored")                               \
    X(EXISTED, "to be stored, existed")               \
    X(REFUSED, "to be stored, refused")               \
    X(STORED_BYTES, "bytes that were stored")         \
    X(SEEN, "requested, missing, stored once")
#define SL_LABEL_COUNT_ENUM(id, text) SL_LABEL_##id,
enum sl_label_count { SL_LABEL_COUNT_TABLE(SL_LABEL_COUNT_ENUM) SL_LABEL_COUNT_OF };

struct sl_labels; /* opaque; any number of threads */

/* For the registrar at its start: creates the file, or continues that of its predecessor. Errors:
 * those of sl_shm_file_open and _create. */
sl_err sl_labels_make(const char *shm_dir, struct sl_error *why);
/* Errors: those of sl_shm_file_open (SL_ERR_NOT_FOUND: the node's registrar is of an older
 * release). */
sl_err sl_labels_open(const char *shm_dir, struct sl_labels **out, struct sl_error *why);
/* For long-lived processes: opens it, again when it was replaced. *labels is NULL if there is none.
 * Costs a system call if it is unchanged. One thread. */
void sl_labels_follow(const char *shm_dir, struct sl_labels **labels);
void sl_labels_close(struct sl_labels **labels);
/* Whether it still is the current file; false for NULL. */
bool sl_labels_are_current(const char *shm_dir, const struct sl_labels *labels);

/* Cache of the row where an id was found, kept by its frequent user; {0} at first; any thread. */
struct sl_label_place {
    _Atomic uint32_t next; /* number of the row + 1; 0: none yet */
};
/* Finds the row of this id, 1 to 63 bytes (longer ones are cut). A new row gets the name, which is
 * for people; "": not known. place: the cache of this kind and id, which makes it one look. labels
 * may be NULL, here and below. */
uint32_t sl_label_find(struct sl_labels *labels, enum sl_label_kind kind, const char *id,
                       const char *name, struct sl_label_place *place);
/* thread: any number; threads that count concurrently should differ. */
void sl_label_add(struct sl_labels *labels, uint32_t label, uint32_t thread,
                  enum sl_label_count count, uint64_t amount);

/* For readers in any process. */
struct sl_label_sum {
    enum sl_label_kind kind;
    char id[SL_LABEL_ID_BYTES];     /* printable ASCII: other bytes become '?' */
    char name[SL_LABEL_NAME_BYTES]; /* as id */
    uint64_t counts[SL_LABEL_COUNT_OF];
};
/* Gives rows that counted anything or have a name; `other` has no name. Errors: those of
 * sl_shm_file_open. */
sl_err sl_labels_read(const char *shm_dir, struct sl_label_sum out[SL_LABELS_MAX], uint32_t *count,
                      struct sl_error *why);

#endif
