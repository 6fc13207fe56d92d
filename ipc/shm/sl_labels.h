/* ipc/shm/sl_labels.h - what is counted by name: by model what engines load, look up and store, and
 * by tenant what clients get and look up.
 *
 * The segment `labels` in the shm directory is made by the registrar. A name takes a row when it is
 * first counted, and keeps it as long as the node runs. There are SL_LABELS_MAX rows, half of them
 * for each kind; what comes later is counted as `other` of its kind, so that sums stay exact. The
 * coordinator writes, and clients do: a row has SL_LABEL_STRIPES copies of its words, so that
 * threads seldom meet in one. Counts are of any process of the user: a wrong one harms a figure. */
#ifndef SL_LABELS_H
#define SL_LABELS_H

#include "ipc/shm/sl_segment.h"

#include <stdatomic.h>

#define SL_LABELS_MAX       128u
#define SL_LABEL_STRIPES    8u
#define SL_LABEL_ID_BYTES   64u
#define SL_LABEL_NAME_BYTES 128u

enum sl_label_kind { SL_LABEL_MODEL, SL_LABEL_TENANT, SL_LABEL_KINDS };

/* id, text. Of a model: blocks; of a tenant: keys. The order is that of the words: new ones go to
 * the end. */
#define SL_LABEL_COUNT_TABLE(X)                      \
    X(MEMORY, "asked for and found in memory")       \
    X(DISK, "asked for and found on a disk")         \
    X(REMOTE, "asked for and found on another node") \
    X(NONE, "asked for and nowhere")                 \
    X(FAILED, "asked for in vain: an error")         \
    X(BYTES, "bytes that came")                      \
    X(LOOK_FOUND, "looked up and here")              \
    X(LOOK_MISSED, "looked up and not here")         \
    X(LOOK_FAILED, "looked up in vain: an error")    \
    X(STORED, "stored")                              \
    X(EXISTED, "to be stored, and there already")    \
    X(REFUSED, "to be stored, and not stored")       \
    X(STORED_BYTES, "bytes that were stored")        \
    X(SEEN, "asked for and nowhere, and here once")
#define SL_LABEL_COUNT_ENUM(id, text) SL_LABEL_##id,
enum sl_label_count { SL_LABEL_COUNT_TABLE(SL_LABEL_COUNT_ENUM) SL_LABEL_COUNT_OF };

struct sl_labels; /* opaque; any number of threads */

/* The registrar, at its start: makes the segment, or goes on with its predecessor's. Errors: those
 * of segments. */
sl_err sl_labels_make(const char *shm_dir, struct sl_error *why);
/* Errors: those of segments (SL_ERR_NOT_FOUND: the node's registrar is of a release without). */
sl_err sl_labels_open(const char *shm_dir, struct sl_labels **out, struct sl_error *why);
/* For who lives long: opens it, again when another took its place. *labels is NULL where there is
 * none; a system call when it is still the same. One thread. */
void sl_labels_follow(const char *shm_dir, struct sl_labels **labels);
void sl_labels_close(struct sl_labels **labels);
/* Whether it still is the one that is there; NULL is not. */
bool sl_labels_are_current(const char *shm_dir, const struct sl_labels *labels);

/* Where an id was found: kept by whoever counts it again and again, {0} at first; any thread. */
struct sl_label_place {
    _Atomic uint32_t next; /* of its row */
};
/* The row of this id, 1 to 63 bytes (longer ones are cut); a new one gets the name, which people
 * read,
 * "" if nobody knows it. place: of this kind and id; one look there, where it was found before.
 * labels may be NULL, here and below. */
uint32_t sl_label_find(struct sl_labels *labels, enum sl_label_kind kind, const char *id,
                       const char *name, struct sl_label_place *place);
/* thread: any number; those of threads that count at a time should differ. */
void sl_label_add(struct sl_labels *labels, uint32_t label, uint32_t thread,
                  enum sl_label_count count, uint64_t amount);

/* Reading, by any process. */
struct sl_label_sum {
    enum sl_label_kind kind;
    char id[SL_LABEL_ID_BYTES];     /* printable ASCII: what is none becomes '?' */
    char name[SL_LABEL_NAME_BYTES]; /* likewise */
    uint64_t counts[SL_LABEL_COUNT_OF];
};
/* Those in which anything was counted, or that have a name; `other` has no name. Errors: those of
 * segments. */
sl_err sl_labels_read(const char *shm_dir, struct sl_label_sum out[SL_LABELS_MAX], uint32_t *count,
                      struct sl_error *why);

#endif
