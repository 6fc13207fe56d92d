/* ipc/shm/sl_labels.c - see sl_labels.h. The file consists of rows; the first one of each kind is
 * `other`. If a process is killed while it takes a row, that row stays empty: one of many. */
#include "ipc/shm/sl_labels.h"
#include "ipc/shm/sl_mapped.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define LABELS_FILE  "labels"
#define STRIPE_WORDS 16u /* two lines */
#define DATA_BYTES   (SL_LABELS_MAX * sizeof(struct row))
/* Limit per kind, so that many names of one kind leave room for the other. */
#define KIND_ROWS_MAX ((SL_LABELS_MAX - SL_LABEL_KINDS) / SL_LABEL_KINDS)
_Static_assert(SL_LABEL_COUNT_OF <= STRIPE_WORDS, "counts have their words");

enum row_state { ROW_FREE, ROW_TAKEN, ROW_READY };
struct row {
    _Atomic uint32_t state; /* TAKEN: a process writes the rest; READY: it no longer changes */
    uint32_t kind;
    char id[SL_LABEL_ID_BYTES];
    char name[SL_LABEL_NAME_BYTES];
    _Atomic uint32_t full; /* of `other`: there is no free row any more */
    char room[52];
    _Atomic uint64_t words[SL_LABEL_STRIPES][STRIPE_WORDS];
};
_Static_assert(offsetof(struct row, words) == 256, "whole lines");

struct sl_labels {
    struct sl_shm_file segment;
};

static struct row *row_of(const struct sl_shm_file *segment, uint32_t label)
{
    return (struct row *)(void *)segment->data + label;
}

static void row_fill(struct row *row, enum sl_label_kind kind, const char *id, const char *name)
{
    row->kind = (uint32_t)kind;
    (void)snprintf(row->id, sizeof row->id, "%s", id);
    (void)snprintf(row->name, sizeof row->name, "%s", name);
    atomic_store_explicit(&row->state, ROW_READY,
                          memory_order_release); /* partner of the finders' acquire */
}

static sl_err others_fill(struct sl_shm_file *segment, struct sl_error *why)
{
    (void)why;
    for (uint32_t kind = 0; kind < SL_LABEL_KINDS; kind++) {
        row_fill(row_of(segment, kind), (enum sl_label_kind)kind, "other", "");
    }
    return SL_OK;
}

static const struct sl_mapped_kind labels_kind = {.want = {.name = LABELS_FILE,
                                                           .kind = SL_SHM_FILE_LABELS,
                                                           .data_bytes = DATA_BYTES,
                                                           .allocate_bytes = DATA_BYTES,
                                                           .prepare = others_fill},
                                                  .object_bytes = sizeof(struct sl_labels),
                                                  .writable = true};

sl_err sl_labels_make(const char *shm_dir, struct sl_error *why)
{
    return sl_mapped_make(&labels_kind, shm_dir, why);
}

sl_err sl_labels_open(const char *shm_dir, struct sl_labels **out, struct sl_error *why)
{
    void *labels = NULL;
    sl_err err = sl_mapped_open(&labels_kind, shm_dir, &labels, why);
    *out = err == SL_OK ? labels : *out;
    return err;
}

bool sl_labels_are_current(const char *shm_dir, const struct sl_labels *labels)
{
    return sl_mapped_is_current(&labels_kind, shm_dir, labels);
}

void sl_labels_follow(const char *shm_dir, struct sl_labels **labels)
{
    *labels = sl_mapped_follow(&labels_kind, shm_dir, *labels);
}

void sl_labels_close(struct sl_labels **labels)
{
    sl_mapped_close(*labels);
    *labels = NULL;
}

static bool row_is(const struct row *row, enum sl_label_kind kind, const char *id)
{
    return atomic_load_explicit(&row->state, memory_order_acquire) == ROW_READY &&
           row->kind == (uint32_t)kind && strncmp(row->id, id, sizeof row->id - 1) == 0;
}

/* Two processes may concurrently take a row each for one id: readers add them up. */
static uint32_t row_find(const struct sl_shm_file *segment, enum sl_label_kind kind, const char *id,
                         const char *name)
{
    uint32_t count = 0; /* of this kind */
    for (uint32_t i = SL_LABEL_KINDS; i < SL_LABELS_MAX && count < KIND_ROWS_MAX; i++) {
        struct row *row = row_of(segment, i);
        uint32_t state = atomic_load_explicit(&row->state, memory_order_acquire);
        if (state == ROW_FREE &&
            atomic_compare_exchange_strong_explicit(&row->state, &state, ROW_TAKEN,
                                                    memory_order_acquire, memory_order_acquire)) {
            row_fill(row, kind, id, name);
            return i;
        }
        if (row_is(row, kind, id)) {
            return i;
        }
        count += state == ROW_READY && row->kind == (uint32_t)kind;
    }
    atomic_store_explicit(&row_of(segment, kind)->full, 1, memory_order_relaxed);
    return (uint32_t)kind;
}

/* Whether the cached row is still valid: the file may have been replaced. */
static bool is_found(const struct sl_shm_file *segment, enum sl_label_kind kind, const char *id,
                     uint32_t label)
{
    return label == (uint32_t)kind
               ? atomic_load_explicit(&row_of(segment, label)->full, memory_order_relaxed) != 0
               : label < SL_LABELS_MAX && row_is(row_of(segment, label), kind, id);
}

uint32_t sl_label_find(struct sl_labels *labels, enum sl_label_kind kind, const char *id,
                       const char *name, struct sl_label_place *place)
{
    if (labels == NULL) {
        return (uint32_t)kind;
    }
    uint32_t found = atomic_load_explicit(&place->next, memory_order_relaxed);
    if (found != 0 && is_found(&labels->segment, kind, id, found - 1)) {
        return found - 1;
    }
    found = row_find(&labels->segment, kind, id, name);
    atomic_store_explicit(&place->next, found + 1, memory_order_relaxed);
    return found;
}

void sl_label_add(struct sl_labels *labels, uint32_t label, uint32_t thread,
                  enum sl_label_count count, uint64_t amount)
{
    if (labels != NULL && label < SL_LABELS_MAX && amount != 0) {
        (void)atomic_fetch_add_explicit(
            &row_of(&labels->segment, label)->words[thread % SL_LABEL_STRIPES][count], amount,
            memory_order_relaxed);
    }
}

/* ---- reading ---- */

static void text_read(char *out, const char *from, size_t room)
{
    size_t i = 0;
    for (; i + 1 < room && from[i] != '\0'; i++) {
        char byte = from[i];
        out[i] = byte;
        if (byte < ' ' || byte > '~') {
            out[i] = '?';
        }
    }
    out[i] = '\0';
}

static struct sl_label_sum *sum_of(struct sl_label_sum *all, uint32_t *count, const struct row *row)
{
    struct sl_label_sum next = {.kind = (enum sl_label_kind)row->kind};
    text_read(next.id, row->id, sizeof next.id);
    text_read(next.name, row->name, sizeof next.name);
    for (uint32_t i = 0; i < *count; i++) {
        if (all[i].kind == next.kind && strcmp(all[i].id, next.id) == 0) {
            return &all[i];
        }
    }
    all[*count] = next;
    return &all[(*count)++];
}

sl_err sl_labels_read(const char *shm_dir, struct sl_label_sum out[SL_LABELS_MAX], uint32_t *count,
                      struct sl_error *why)
{
    struct sl_shm_file segment = {.fd = -1};
    sl_err err = sl_mapped_shm_file(&labels_kind, shm_dir, false, &segment, why);
    *count = 0;
    if (err != SL_OK) {
        return err;
    }
    for (uint32_t i = 0; i < SL_LABELS_MAX; i++) {
        const struct row *row = row_of(&segment, i);
        uint64_t counts[SL_LABEL_COUNT_OF] = {0};
        uint64_t any = 0;
        for (uint32_t k = 0; k < SL_LABEL_STRIPES * SL_LABEL_COUNT_OF; k++) {
            uint64_t word = atomic_load_explicit(
                &row->words[k / SL_LABEL_COUNT_OF][k % SL_LABEL_COUNT_OF], memory_order_relaxed);
            counts[k % SL_LABEL_COUNT_OF] += word;
            any |= word;
        }
        if (atomic_load_explicit(&row->state, memory_order_acquire) != ROW_READY ||
            row->kind >= SL_LABEL_KINDS || (any == 0 && row->name[0] == '\0')) {
            continue;
        }
        struct sl_label_sum *sum = sum_of(out, count, row);
        for (uint32_t k = 0; k < SL_LABEL_COUNT_OF; k++) {
            sum->counts[k] += counts[k];
        }
    }
    err = sl_shm_file_is_cut(&segment)
              ? sl_fail(why, SL_ERR_CORRUPT, "%s/%s was cut short", shm_dir, LABELS_FILE)
              : SL_OK;
    sl_shm_file_close(&segment);
    return err;
}
