/* actors/tierer/recover.h - reads log files record by record, for start.c. */
#ifndef SL_TIERER_RECOVER_H
#define SL_TIERER_RECOVER_H

#include "actors/tierer/state.h"

/* A walk through the frames of a log file. */
struct ti_walk {
    uint64_t offset;
    uint64_t sequence;   /* of the last frame */
    uint32_t damaged;    /* gaps where a frame was expected */
    uint32_t unreadable; /* pages after the last frame */
    /* Frames of tombstones: the newest one known (the caller sets it first), the newest one here,
     * and one that is missing; 0: none. */
    uint64_t tombstones_seen, tombstone_last, tombstones_lost;
    struct sl_digest tombstones; /* records of the newest one, which another frame may repeat */
};

typedef sl_err (*ti_take_fn)(struct tierer *self, struct ti_segment *segment,
                             const struct ti_record *record, struct sl_error *why);
/* Passes the records of all frames to `take`; verify: only those whose values are intact. */
sl_err ti_frames_walk(struct tierer *self, struct ti_segment *segment, bool verify, ti_take_fn take,
                      struct ti_walk *walk, struct sl_error *why);
/* Reads the footer of a log file whose `bytes` is the size of its file. Gives its records (free).
 * Errors: SL_ERR_NOT_FOUND (no intact footer), SL_ERR_NO_MEMORY. */
sl_err ti_footer_read(struct tierer *self, const struct ti_segment *segment,
                      unsigned char **records, struct ti_trailer *trailer, struct sl_error *why);

/* Reads only the trailer; uses frame_buffer. */
bool ti_trailer_read(struct tierer *self, const struct ti_segment *segment,
                     struct ti_trailer *trailer);

enum ti_header_state {
    TI_HEADER_NONE,
    TI_HEADER_FINE,
    TI_HEADER_OTHER_FORMAT,
    TI_HEADER_UNREADABLE
};

/* Reads the header, or its copy, into *segment. */
enum ti_header_state ti_header_find(struct tierer *self, struct ti_segment *segment,
                                    uint64_t file_bytes);

#endif
